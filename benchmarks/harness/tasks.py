"""Tasks of a benchmark on the executor: the one place where benchmarks assemble the runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.processes import BenchmarkError
from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.tasks import JobRecord, Stage, TaskParameters, Work

if TYPE_CHECKING:
    from jetson_dnn_rt.models.model import Model
    from jetson_dnn_rt.variants.running.pipeline import Pipeline
    from jetson_dnn_rt.variants.running.variant_set import VariantSet

SIZE = (480, 640)
_DRAIN_S = 30.0
_FILES = 16

StageTimes = list[tuple[int, ...]]
"""Nanoseconds of the stages of each run."""


def draw_frames(count: int, size: tuple[int, int] = SIZE) -> list[Frame]:
    """Held-out scenes of the built-in road as frames, height and width in pixels."""
    from jetson_dnn_rt.demo.scenes import held_out_seed, random_scene

    images = [random_scene(held_out_seed(index), size).image for index in range(count)]
    return [Frame(image, "bgr8", 0, index) for index, image in enumerate(images)]


def write_frames(folder: Path) -> Path:
    """A new folder with uncompressed images of a synthetic drive.

    A camera that reads them costs next to nothing: drawing is Python, and would compete for the
    interpreter's lock with what is measured; a device or a video decoder does not.
    """
    import cv2

    from jetson_dnn_rt.cameras.source import open_source

    folder.mkdir()
    source = open_source(f"synthetic:{SIZE[1]}x{SIZE[0]}")
    image = np.zeros((*SIZE, 3), np.uint8)
    for index in range(_FILES):
        source.read(image)
        cv2.imwrite(str(folder / f"{index:03d}.bmp"), image)
    source.close()
    return folder


@dataclass(eq=False)
class BenchTask:
    """A task: the stages of its variants, the first of which runs unless another is named."""

    name: str
    stage_names: tuple[str, ...]
    stages: Mapping[str, Sequence[Stage]]
    times_ns: dict[str, StageTimes] = field(default_factory=dict)
    """By variant, of runs alone on the machine."""
    period_ns: int = 0
    deadline_ns: int = 0

    @property
    def variant(self) -> str:
        """The first."""
        return next(iter(self.stages))

    @property
    def cost_ns(self) -> float:
        """Median time of a frame in the first variant, alone."""
        return float(np.median([sum(run) for run in self.times_ns[self.variant]]))

    def measure(self, frames: Sequence[Frame], runs: int) -> None:
        """Time the stages of every variant alone."""
        from jetson_dnn_rt.variants.measuring.timing import measure_stages

        for variant, stages in self.stages.items():
            self.times_ns[variant] = measure_stages(stages, frames, runs, SteadyClock())


def load_variants(
    stack: ExitStack,
    model: Model | str,
    variants: Sequence[str] = (),
    *,
    all_of_them: bool = True,
    stages: int = 1,
    finest: bool = False,
    **options: Any,
) -> VariantSet:
    """Load a model in some variants; none = the package's default.

    Other `options` are those of `VariantSet`; `stack` closes it.

    `ConfigurationError` when a variant is left out, and all of them are wanted.
    """
    from jetson_dnn_rt.config.task import TaskConfig
    from jetson_dnn_rt.models.sources.registry import load_model
    from jetson_dnn_rt.variants.running.variant_set import VariantSet

    loaded = load_model(model, weights="none") if isinstance(model, str) else model
    config = TaskConfig(variants=tuple(variants), stages=stages, finest_stages=finest)
    found = VariantSet(config, loaded, build=True, **options)
    stack.callback(found.close)
    for name in variants if all_of_them else ():
        if name in found.left_out:
            raise ConfigurationError(f"--variant {name} is not loaded: {found.left_out[name]}")
    return found


def load_task(
    stack: ExitStack, name: str, model: Model | str, variants: Sequence[str] = (), **options: Any
) -> BenchTask:
    """A task of a model, see `load_variants`."""
    found = load_variants(stack, model, variants, **options)
    return make_task(name, found)


def make_task(name: str, variants: VariantSet) -> BenchTask:
    """A task of variants that are loaded."""
    stages = {key: pipeline.stages for key, pipeline in variants.pipelines.items()}
    return BenchTask(name, variants.stage_names, stages)


@dataclass(frozen=True)
class TaskSpec:
    """A model under comparison, for processes too; `variant` empty = the package's default."""

    name: str
    kind: str
    model: str
    variant: str = ""
    weights: str = "none"
    input_size: tuple[int, int] | None = None

    def load(self) -> Model:
        """Load the model."""
        from jetson_dnn_rt.models.sources.registry import load_model

        return load_model(
            self.model,
            kind=self.kind,  # type: ignore[arg-type]  # checked by load_model
            weights=self.weights,
            input_size=self.input_size,
        )

    def build_pipeline(self, threads: int, model: Model | None = None) -> Pipeline:
        """Make the stages of the model, which is loaded unless it is given."""
        from jetson_dnn_rt.models.heads.base import DecoderSettings
        from jetson_dnn_rt.variants.running.variant_set import build_pipeline, choose_default
        from jetson_dnn_rt.variants.spec import VariantSpec

        model = model or self.load()
        spec = VariantSpec.parse(self.variant) if self.variant else choose_default(model)
        return build_pipeline(model, spec, DecoderSettings(), threads=threads)


def add_task(
    executor: Executor,
    task: BenchTask,
    observe: Callable[[JobRecord, Work], None],
    *,
    variant: str = "",
    **parameters: Any,
) -> None:
    """Give a task to an executor; `parameters` are further ones of `TaskParameters`."""
    executor.add_task(
        TaskParameters(
            name=task.name,
            deadline_ns=task.deadline_ns,
            period_ns=task.period_ns,
            stages=task.stage_names,
            variants=tuple(task.stages),
            variant=variant or task.variant,
            **parameters,
        ),
        task.stages,
        observe,
        warm_up_times_ns=task.times_ns or None,
    )


def make_executor(workers: int = 1, discipline: str = "edf", **options: Any) -> Executor:
    """The executor of a benchmark; `options` are further ones of its class."""
    return Executor(workers, discipline, **options)


@contextmanager
def running(executor: Executor, *, freeze: bool = False) -> Iterator[Executor]:
    """Start an executor, and stop it at the end."""
    executor.start()
    try:
        if freeze:
            executor.realtime.freeze()
        yield executor
    finally:
        executor.stop()


def tick(clock: Clock, period_ns: float, count: int) -> Iterator[tuple[int, int]]:
    """Sleep until each of so many instants, the first is now: its number, and when it was due."""
    begin_ns = clock.now_ns()
    for index in range(count):
        due_ns = begin_ns + round(index * period_ns)
        clock.sleep_until_ns(due_ns)
        yield index, due_ns


def drain(executor: Executor, seconds: float = _DRAIN_S) -> None:
    """Wait until all jobs have ended; `BenchmarkError` when one has not."""
    if not executor.wait_idle(seconds):
        raise BenchmarkError(f"a job did not end within {seconds:g} s")
