"""The measurements of `profile` beyond the clocks, and the traces of all.

Beside co-runners; layer by layer; with the PyTorch profiler; in fresh processes. Pieces that are
in the journal already are not measured again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from jetson_dnn_rt.coordinator.tables.tables import Integers
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.lab.profile.co_runners import (
    COHORT,
    CPU,
    GPU,
    MEMORY,
    Beside,
    CoRunners,
    compare_beside,
    measure_cohort,
    run_cohort,
    run_load,
)
from jetson_dnn_rt.lab.profile.cold_start import ColdSpec, ColdStart, start_cold
from jetson_dnn_rt.lab.profile.journal import ALONE, list_chunks, pack_run, unpack_run
from jetson_dnn_rt.lab.profile.profiling import CHUNK, ClockPoint, Key, ProfiledTask, Profiler
from jetson_dnn_rt.lab.profile.target import COLD, LAYERS, ProfileTarget, TracedRun
from jetson_dnn_rt.safety.records import read_record
from jetson_dnn_rt.traces.schema import TracedTask
from jetson_dnn_rt.variants.measuring.agreement import Agreement
from jetson_dnn_rt.variants.measuring.timing import TimedRun
from jetson_dnn_rt.variants.running.pipeline import Pipeline

Interference = tuple[str, int]
"""Kind of co-runner, and the size of a cohort."""

OpenPipeline = Callable[[ProfiledTask, contextlib.ExitStack], Pipeline]
"""Loads the first variant of a task once more, with memory of its own."""

PHASES = {
    CPU: "beside a load on every core",
    MEMORY: "beside copies of memory",
    GPU: "beside a load on the GPU",
    COHORT: "beside the cohort",
}


@dataclass(frozen=True, eq=False)
class Condition:
    """Measurements beside one kind of co-runner."""

    name: str  # ``cpu``, ``memory``, ``gpu``, ``cohort:N``
    times_ns: Mapping[Key, Integers]  # [frames, runs]
    ratios: Mapping[Key, Beside]  # against alone
    load: Mapping[str, Any]  # ``count`` of co-runners, and the ``rate`` of their work in ``unit``


@dataclass(frozen=True, eq=False)
class LayerTimes:
    """The layers of a variant; stamps are around preprocessing, each layer, and decoding."""

    names: tuple[str, ...]
    operators: tuple[str, ...]
    runs: list[TimedRun]
    clocks: str  # in words


@dataclass
class Found:
    """All measurements besides the tables; layers, operators and cold where requested."""

    points: list[ClockPoint] = field(default_factory=list)  # in the order of measuring
    agreements: dict[Key, Agreement] = field(default_factory=dict)  # with the full model
    cohort: tuple[float, ...] = (1.0,)  # slow-down with 1, 2, ... tasks side by side
    conditions: list[Condition] = field(default_factory=list)
    layers: dict[Key, LayerTimes] = field(default_factory=dict)
    operators: dict[Key, dict[str, Any]] = field(default_factory=dict)
    cold: dict[Key, list[ColdStart]] = field(default_factory=dict)
    left_out: dict[Key, list[str]] = field(default_factory=dict)  # what failed, and why


class ProfileSession:
    """The measurements of one profile."""

    def __init__(self, profiler: Profiler, threads: int, target: ProfileTarget) -> None:
        self.found = Found()
        self.tasks, self._frames = profiler.tasks, profiler.frames
        self._profiler, self._journal = profiler, profiler.journal
        self._platform, self._clock = profiler.platform, profiler.clock
        self._threads, self._target, self._progress = threads, target, profiler.progress

    def measure_beside(
        self,
        interference: Interference,
        runs: int,
        alone: Mapping[Key, Integers],
        open_pipeline: OpenPipeline,
    ) -> None:
        """Measure all variants beside a co-runner."""
        kind, count = interference
        self._progress(PHASES[kind], 0, 1)
        if kind == COHORT:
            self._measure_cohort(count, runs, open_pipeline)
        name = f"{kind}:{count}" if kind == COHORT else kind
        times_ns: dict[Key, Integers] = {}
        for number, task in enumerate(self.tasks):
            piece = f"load|{name}|{task.name}"
            load = self._journal.get(piece)
            with contextlib.ExitStack() as stack:
                beside = CoRunners(name, 0)
                if load is None and kind == COHORT:
                    others = [self.tasks[(number + n) % len(self.tasks)] for n in range(count)]
                    members = [open_pipeline(other, stack) for other in others[1:]]
                    beside = stack.enter_context(run_cohort(members, self._frames))
                elif load is None:
                    beside = stack.enter_context(run_load(kind, self._threads))
                times_ns |= self._profiler.measure_times(runs, name, [task], beside.check)
            if load is None:
                load = {"count": beside.count, "rate": beside.rate, "unit": beside.unit}
                self._journal.put(piece, load)
        ratios = compare_beside(alone, times_ns)
        self.found.conditions.append(Condition(name, times_ns, ratios, load or {}))

    def _measure_cohort(self, count: int, runs: int, open_pipeline: OpenPipeline) -> None:
        def measure() -> list[float]:
            with contextlib.ExitStack() as stack:
                members = [self.tasks[n % len(self.tasks)] for n in range(count)]
                pipelines = [open_pipeline(member, stack) for member in members]
                return list(
                    measure_cohort(pipelines, self._frames, runs, self._clock, self._progress)
                )

        self.found.cohort = tuple(self._journal.remember(f"cohort|{count}", measure))

    def measure_layers(self, runs: int) -> None:
        """Time the layers of all variants that run layer by layer."""
        for key, task in self._list_keys():
            with self._leaving_out(key, "layers"):
                self.found.layers[key] = self._measure_layers(task, key[1], runs)

    def _measure_layers(self, task: ProfiledTask, variant: str, runs: int) -> LayerTimes:
        prefix = f"layers|{task.name}|{variant}"
        known = self._journal.get(prefix)
        chunks = [self._journal.get(f"{prefix}|{first}") for first in range(0, runs, CHUNK)]
        if known is None or None in chunks:
            from jetson_dnn_rt.lab.profile.layer_chain import make_layer_chain, run_layers

            self._progress(f"layers of {task.name} {variant}", 0, runs)
            chain = make_layer_chain(
                task.variants, variant, threads=self._threads, clock=self._clock
            )
            known = {
                "names": [layer.name for layer in chain.layers],
                "operators": [layer.operators for layer in chain.layers],
                "clocks": self._describe_clocks(),
            }
            self._journal.put(prefix, known)
            done, total = 0, sum(chunk is None for chunk in chunks) * CHUNK
            for index, chunk in enumerate(chunks):
                if chunk is None:
                    count = min(CHUNK, runs - index * CHUNK)
                    self._progress(f"layers of {task.name} {variant}", done, total)
                    rows = run_layers(chain, task.variants, self._frames, count, self._clock)
                    chunks[index] = list(map(pack_run, rows))
                    self._journal.put(f"{prefix}|{index * CHUNK}", chunks[index])
                    done += count
        taken = [unpack_run(row) for chunk in chunks for row in chunk]
        return LayerTimes(tuple(known["names"]), tuple(known["operators"]), taken, known["clocks"])

    def profile_operators(self, runs: int) -> None:
        """Run the PyTorch profiler over all variants that it supports."""
        from jetson_dnn_rt.lab.profile.operator_profile import profile_operators

        def measure(key: Key, pipeline: Pipeline) -> dict[str, Any]:
            self._progress(f"operators of {' '.join(key)}", 0, 1)
            file = self._target.operator_file(*key)
            times = profile_operators(pipeline, self._frames, runs, file)
            return {
                "runs": runs,
                "file": None if file is None else str(file),
                "operators": [asdict(operator) for operator in times],
            }

        for key, task in self._list_keys():
            with self._leaving_out(key, "operators"):
                run = partial(measure, key, task.variants.pipelines[key[1]])
                piece = "|".join(("operators", *key))
                self.found.operators[key] = self._journal.remember(piece, run)

    def measure_cold(self, count: int, make_spec: Callable[[ProfiledTask, str], ColdSpec]) -> None:
        """Measure the first frames of fresh processes for all variants."""
        keys = list(self._list_keys())

        def measure(task: ProfiledTask, variant: str, done: int) -> dict[str, Any]:
            self._progress("cold starts", done, len(keys) * count)
            return asdict(start_cold(make_spec(task, variant), self._frames))

        for number, (key, task) in enumerate(keys):
            self.found.cold[key] = [
                read_record(
                    ColdStart,
                    self._journal.remember(
                        "|".join(("cold", *key, str(start))),
                        partial(measure, task, key[1], number * count + start),
                    ),
                )
                for start in range(count)
            ]

    def write_traces(self, parameters: Mapping[str, Any]) -> None:
        """Write one trace for each condition, so that their times are never mixed."""
        from jetson_dnn_rt.traces.metadata import describe_run

        traced = {task.name: _describe_task(task) for task in self.tasks}

        def write(
            folder: str, runs: Iterable[TracedRun], interference: str, what: str = "frames"
        ) -> None:
            details = {**parameters, "interference": interference, "what": what}
            metadata = describe_run(
                "profile", traced, platform=self._platform, parameters={"profile": details}
            )
            self._target.write_trace(folder, runs, metadata)

        write("", self.list_runs(), ALONE)
        for condition in self.found.conditions:
            folder = f"beside-{condition.name.replace(':', '-')}"
            write(folder, self.list_runs(condition.name), condition.name)
        if self.found.layers:
            write(LAYERS, self.list_layer_runs(), ALONE, "layers")
        if self.found.cold:
            write(COLD, self.list_cold_runs(), ALONE, "first frames of fresh processes")

    def list_runs(self, condition: str = ALONE) -> Iterator[TracedRun]:
        """All frames of a condition, in the order of their starts."""
        tasks = {task.name: task for task in self.tasks}
        for chunk in list_chunks(self._journal, condition):
            task = tasks[chunk.key.task]
            runs = [
                self._trace(task, variant, run, chunk.clocks)
                for variant, rows in chunk.runs.items()
                for run in rows
            ]
            yield from sorted(runs, key=lambda traced: traced.run.stamps_ns[0])

    def list_layer_runs(self) -> Iterator[TracedRun]:
        """All frames that ran layer by layer."""
        for (task, variant), layers in self.found.layers.items():
            names = ("preprocess", *layers.names, "decode")
            deadline_ns = next(t.deadline_ns for t in self.tasks if t.name == task)
            for run in layers.runs:
                yield TracedRun(task, variant, names, deadline_ns, layers.clocks, run)

    def list_cold_runs(self) -> Iterator[TracedRun]:
        """The first frame of each fresh process."""
        for key, task in self._list_keys():
            for start in self.found.cold.get(key, []):
                run = TimedRun(start.sequences[0], 0, False, start.stamps_ns[0])
                yield self._trace(task, key[1], run, self._describe_clocks())

    def _trace(self, task: ProfiledTask, variant: str, run: TimedRun, clocks: str) -> TracedRun:
        stages = tuple(stage.name for stage in task.variants.pipelines[variant].stages)
        return TracedRun(task.name, variant, stages, task.deadline_ns, clocks, run)

    def _list_keys(self) -> Iterator[tuple[Key, ProfiledTask]]:
        for task in self.tasks:
            for variant in task.variants.pipelines:
                yield (task.name, variant), task

    def _describe_clocks(self) -> str:
        space = self._platform.space
        return space.describe(space.nearest(self._platform.read()))

    @contextlib.contextmanager
    def _leaving_out(self, key: Key, what: str) -> Iterator[None]:
        """Note what one variant cannot give, and continue with the others."""
        try:
            yield
        except JetsonDnnRtError as error:
            self.found.left_out.setdefault(key, []).append(f"no {what}: {error}")


def _describe_task(task: ProfiledTask) -> TracedTask:
    return TracedTask(
        model=task.variants.model.source,
        model_hash=task.variants.model.model_hash,
        variants=tuple(task.variants.pipelines),
        stages=task.variants.stage_names,
        deadline_ns=task.deadline_ns,
        period_ns=task.period_ns,
    )


def check_interference(interference: Sequence[Interference]) -> None:
    """Raise a `ConfigurationError` for a load on the GPU if torch sees none here."""
    if any(kind == GPU for kind, _ in interference):
        try:
            from jetson_dnn_rt.backends.torch import choose_device

            device = choose_device()
        except ImportError as error:
            raise ConfigurationError(f"--interference gpu needs torch: {error}") from error
        if device != "cuda":
            raise ConfigurationError("--interference gpu: torch sees no CUDA device here")
