"""Loads a task's model, its variants out of the library and measures them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.null import NullOrigin
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.runtime.executor import Stages
from jetson_dnn_rt.runtime.task import open_library
from jetson_dnn_rt.tasks import Stage
from jetson_dnn_rt.variants.measuring.timing import measure_stages
from jetson_dnn_rt.variants.running.pipeline import Pipeline
from jetson_dnn_rt.variants.running.variant_set import VariantSet
from jetson_dnn_rt.variants.spec import VariantSpec

StageTimes = list[tuple[int, ...]]

BatchKey = tuple[object, ...]


class LoadedTask:
    """A model with its variants, warmed up.

    Parameters
    ----------
    parameters : TaskConfig
        Which model and which variants.
    size : tuple of int
        Height and width of the frames that will come.
    threads : int
        Of one inference, >= 1.
    clock : Clock
        Measures, and paces null models.
    log : callable
        Takes a line per step: building may take long.
    find_like : callable
        Returns the task, where there is one, that this one may run batches with: it is loaded in
        the same way then.
    model : Model, optional
        What `parameters` name, where it is loaded already.

    Attributes
    ----------
    model : Model
        The network.
    settings : DecoderSettings
        Thresholds of all variants.
    threads : int
        Of one inference.
    frame : Frame
        Of the warm-up, in the size of those that will come.
    left_out : dict of str to str
        Variants that the parameters name and the task does not have, with the reason.
    missing : tuple of str
        Those of them that can be built into the library.
    warm_up_times_ns : dict
        For each variant that is ready the stage times of its warm-up runs.
    batch_group : str
        Name of the group that it runs batches in; empty = none.
    batch_tasks : int
        Tasks of the process, this one included, that it may run batches with.
    batch_bytes : int
        Its share of the memory of that group.
    allocate_frame : callable or None
        Makes memory that its device reads frames of a camera of this process from.

    Raises
    ------
    ModelError, ConfigurationError, BackendUnavailableError
        When the model or a variant of the full network cannot be used.
    """

    def __init__(
        self,
        parameters: TaskConfig,
        size: tuple[int, int],
        *,
        threads: int,
        clock: Clock,
        log: Callable[[str], None],
        find_like: Callable[[BatchKey], LoadedTask | None] = lambda key: None,
        model: Model | None = None,
    ) -> None:
        self._parameters, self._clock, self._log = parameters, clock, log
        self.frame = Frame(np.full((*size, 3), 114, np.uint8), "bgr8", 0, 0)
        self.threads = threads
        self.settings = DecoderSettings()
        self.apply_thresholds(parameters)
        self.library = open_library(parameters.engine_cache)
        self.model: Model = model or load_task_model(parameters)
        # Held while variants are made, so that two threads never do that at once.
        self._lock = threading.Lock()
        self._closed = False
        self.warm_up_times_ns: dict[str, StageTimes] = {}
        self.batch_group = ""
        self.batch_bytes = 0
        self.batch_tasks = 1
        like = find_like(self.batch_key) if self.may_batch else None
        self._variants = self._load(
            parameters.variants,
            parameters.stages,
            parameters.memory_limit_mb,
            None if like is None else like.variants,
        )
        self._say_memory()
        if self.allocate_frame is not None:
            # Measured as frames of the camera will come.
            image, address = self.allocate_frame(self.frame.image.shape)
            image[:] = self.frame.image
            self.frame = Frame(image, self.frame.encoding, 0, 0, device_address=address)
        self.left_out = dict(self._variants.left_out)
        self.missing = tuple(self._variants.missing) if self.library is not None else ()
        try:
            for name, pipeline in self._variants.pipelines.items():
                self.warm_up_times_ns[name] = self._warm_up(name, pipeline)
        except BaseException:
            self._variants.close()
            raise

    # -- what there is -------------------------------------------------------------------------

    @property
    def variant_names(self) -> tuple[str, ...]:
        """Full names of the variants that are ready, the default first."""
        return tuple(self.warm_up_times_ns)

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Names of the stages."""
        return self._variants.stage_names

    @property
    def stages(self) -> Stages:
        """The stages of every variant that is ready."""
        pipelines = self._variants.pipelines
        return {name: pipelines[name].stages for name in self.variant_names}

    @property
    def default(self) -> str:
        """The variant that runs first, as far as it is ready."""
        return self.choose_variant(self._parameters.variant)

    @property
    def is_scripted(self) -> bool:
        """Whether it only takes the times of a script."""
        return isinstance(self.model.origin, NullOrigin)

    @property
    def memory_bytes(self) -> int:
        """What the loaded variants take together, with a share of what batches take."""
        return self._variants.memory_bytes + self.batch_bytes

    @property
    def variants(self) -> VariantSet:
        """What is loaded."""
        return self._variants

    # -- batches -------------------------------------------------------------------------------

    @property
    def may_batch(self) -> bool:
        """Whether it may run batches with tasks of the same `batch_key`."""
        return self._parameters.batch == "auto" and not self.is_scripted

    @property
    def batch_key(self) -> BatchKey:
        """What tasks that run batches together have in common."""
        values = self._parameters
        return (
            self.model.model_hash,
            self.model.head,
            self.model.preprocessing,
            tuple(str(VariantSpec.parse(name)) for name in values.variants),
            values.stages,
            values.finest_stages,
            values.memory_limit_mb,
            values.memory,
            values.engine_cache,
            values.amp_lists,
            self.threads,
        )

    @property
    def warmup_runs(self) -> int:
        """Measured runs of whatever is loaded."""
        return self._parameters.warmup_runs

    @property
    def room_bytes(self) -> int | None:
        """What `memory_limit_mb` leaves; None = no limit."""
        limit_mb = self._parameters.memory_limit_mb
        return max(0, int(limit_mb * 1e6) - self.memory_bytes) if limit_mb else None

    # -- which one runs ------------------------------------------------------------------------

    def resolve_variant(self, name: str) -> str:
        """Full name of a variant that is ready; empty = the one that `choose_variant` gives.

        Raises
        ------
        ConfigurationError
            When it is not ready, with the reason.
        """
        if not name:
            return self.choose_variant(name)
        full = str(VariantSpec.parse(name))
        if full in self.warm_up_times_ns:
            return full
        if full in self.missing and self._parameters.build_missing:
            raise ConfigurationError(
                f"variant {full} is being built, see diagnostics; until it is there, choose one "
                f"of {', '.join(self.variant_names)}"
            )
        if full in self.left_out:
            raise ConfigurationError(self.left_out[full])
        raise ConfigurationError(
            f"variant must be one of {', '.join(self.variant_names)}: {name!r}; others must be "
            "listed in `variants` before the node is configured"
        )

    def choose_variant(self, name: str) -> str:
        """The variant to run: the one that is named, once it is ready, else the first that is.

        An empty name stands for the first of the list.

        Raises
        ------
        ConfigurationError
            When the name is none, or not in the list.
        """
        listed = [str(VariantSpec.parse(other)) for other in self._parameters.variants]
        wanted = str(VariantSpec.parse(name)) if name else (listed or self.variant_names)[0]
        if wanted in self.left_out:
            return self.variant_names[0]
        return self.resolve_variant(wanted)

    def apply_thresholds(self, parameters: TaskConfig) -> None:
        """Let the next frame be decoded with these thresholds."""
        apply_thresholds(self.settings, parameters)

    # -- changes, on any thread but a worker -----------------------------------------------------

    def add(self, name: str) -> None:
        """Load a variant that has been built meanwhile and warm it up, while others run.

        Raises
        ------
        ConfigurationError, ModelError, BackendUnavailableError
            When it cannot be used.
        """
        with self._lock:
            if self._closed:
                raise ConfigurationError("the task was cleaned up meanwhile")
            self._variants.add(name)
            try:
                times_ns = self._warm_up(name, self._variants.rehearse(name))
                self._variants.settle(name)
            except ModelError as error:
                self._variants.drop(name, str(error))
                raise
            self.warm_up_times_ns = {**self.warm_up_times_ns, name: times_ns}
            self.left_out = {n: reason for n, reason in self.left_out.items() if n != name}
            self.missing = tuple(other for other in self.missing if other != name)

    def give_up(self, name: str, reason: str) -> None:
        """Note that a missing variant will not come."""
        self.left_out = {**self.left_out, name: reason}
        self.missing = tuple(other for other in self.missing if other != name)

    def hand_over(self, name: str, take: Callable[[Sequence[Stage], StageTimes], None]) -> bool:
        """Give a variant's present stages and its warm-up times to `take`.

        Returns
        -------
        bool
            False, at once, where variants are just being made: ask again later.
        """
        # With the lock, so that stages which `rebuild` replaces are not handed over after it.
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if name in self.warm_up_times_ns:  # else it was lost when all were built anew
                take(self._variants.pipelines[name].stages, self.warm_up_times_ns[name])
        finally:
            self._lock.release()
        return True

    def rebuild(self, give_back: Callable[[Callable[[], None]], object]) -> Stages:
        """Build everything anew after a stage hung.

        Parameters
        ----------
        give_back : callable
            Is given what closes the old pipelines, and calls it when none of them is in use any
            more. Those of a task that ran batches are left to those it ran them with.
        """
        with self._lock:
            if self._closed:
                raise ConfigurationError("the task was cleaned up meanwhile")
            if not self.batch_group:
                give_back(self._variants.close)
            # As many stages as the executor knows, also where they were counted automatically.
            stages = len(self.stage_names) - 2
            self._variants = self._load(self.variant_names, stages, memory_limit_mb=0.0)
            # What hangs may still use the runners and the buffer of the batches.
            self.batch_group, self.batch_bytes = "", 0
            ready = self._variants.pipelines
            self.left_out = {**self.left_out, **self._variants.left_out}
            self.warm_up_times_ns = {n: t for n, t in self.warm_up_times_ns.items() if n in ready}
            return self.stages

    def close(self) -> None:
        """Give the memory back, after what is being added was added."""
        with self._lock:
            self._closed = True
            self._variants.close()

    # -- steps ---------------------------------------------------------------------------------

    def _load(
        self,
        names: Sequence[str],
        stages: int,
        memory_limit_mb: float,
        like: VariantSet | None = None,
    ) -> VariantSet:
        variants = VariantSet(
            self.model,
            names,
            self.settings,
            threads=self.threads,
            clock=self._clock,
            stages=stages,
            library=self.library,
            # What takes minutes is built in the background, if there is a place for it.
            build=self.library is None,
            memory_limit_mb=memory_limit_mb,
            finest=self._parameters.finest_stages,
            like=like,
            memory=self._parameters.memory,
            amp_lists=self._parameters.amp_lists,
        )
        # Messages lie in memory of the middleware's, which no device reaches.
        in_process = bool(self._parameters.camera)
        try:
            self.allocate_frame = variants.read_frames_on_device() if in_process else None
        except BaseException:
            variants.close()
            raise
        return variants

    def _say_memory(self) -> None:
        asked = self._parameters.memory
        if self._variants.memory:
            self._log(f"the input lies {self._variants.describe_input()}")
        elif asked != "auto":
            self._log(f"memory: {asked} has no effect, {self._variants.default} runs on the CPU")

    def _warm_up(self, name: str, pipeline: Pipeline) -> StageTimes:
        begin_ns = time.monotonic_ns()
        try:
            runs = measure_stages(
                pipeline.stages, [self.frame], self._parameters.warmup_runs, self._clock
            )
        except Exception as error:
            raise ModelError(f"variant {name} fails on its warm-up frame: {error}") from error
        median_ms = sorted(sum(run) for run in runs)[len(runs) // 2] / 1e6 if runs else 0.0
        seconds = (time.monotonic_ns() - begin_ns) / 1e9
        self._log(
            f"variant {name}: {median_ms:.2f} ms (median of {len(runs)} runs at "
            f"{self.frame.width}x{self.frame.height}), warmed up in {seconds:.1f} s"
        )
        return runs


def load_task_model(parameters: TaskConfig) -> Model:
    """Load the model that a task's parameters name; the errors of `load_model`."""
    labels = parameters.labels
    return load_model(
        parameters.model,
        kind=parameters.kind,  # type: ignore[arg-type]  # checked by its choices
        head=parameters.head,
        labels=labels[0] if len(labels) == 1 else labels or None,
        input_size=parameters.input_size or None,  # type: ignore[arg-type]
        weights=parameters.weights,
        preprocessing=parameters.preprocessing() or None,
    )


def apply_thresholds(settings: DecoderSettings, parameters: TaskConfig) -> None:
    """Take a task's thresholds over."""
    settings.confidence = parameters.confidence_threshold
    settings.nms_iou = parameters.nms_iou_threshold
    settings.max_detections = parameters.max_detections
