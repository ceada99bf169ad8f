# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A task: its model and variants, loaded as its configuration says, and warmed up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.config.task import AUTO, NO_CACHE, TaskConfig
from jetson_dnn_rt.coordinator.tables.library_tables import load_profiles, make_task_table
from jetson_dnn_rt.coordinator.tables.tables import TaskTable
from jetson_dnn_rt.errors import ConfigurationError, ModelError, blaming
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.graph.mixed_precision import read_colours
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.heads.class_filter import resolve_thresholds
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.output_check import OutputCheck
from jetson_dnn_rt.models.sources.null import NullOrigin
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.models.tracking import Tracker
from jetson_dnn_rt.runtime.task_entry import Stages
from jetson_dnn_rt.tasks import Stage
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.cancelling import measure_cancels
from jetson_dnn_rt.variants.measuring.timing import measure_stages
from jetson_dnn_rt.variants.running.engines import TuningOptions
from jetson_dnn_rt.variants.running.pipeline import Pipeline
from jetson_dnn_rt.variants.running.variant_set import TAKES_THREADS, VariantSet
from jetson_dnn_rt.variants.spec import VariantSpec

StageTimes = list[tuple[int, ...]]
"""Run by run the times of the stages in ns."""

BatchKey = tuple[object, ...]
"""Key that tasks which may run batches together have in common."""


def open_library(folder: str) -> Library | None:
    """Open the library that `engine_cache` names; None where nothing is kept.

    ConfigurationError when it cannot be used.
    """
    if folder == NO_CACHE:
        return None
    return Library(Path(folder) if folder else None)


def tuning_options(config: TaskConfig, *, tunes: bool) -> TuningOptions:
    """How variants with tuned kernels are built; `tunes` as `TuningOptions` has it."""
    rpc = config.tvm_rpc if tunes else ""
    return TuningOptions(config.tvm_trials, config.tvm_minutes, rpc, config.amp_lists, tunes)


def check_lists(config: TaskConfig) -> None:
    """Refuse `amp_lists` that cannot be used, also where no variant or no TVM would read them.

    The errors are those of `read_colours`.
    """
    with blaming("amp_lists"):
        read_colours(config.amp_lists)


def open_model(config: TaskConfig, *, trust: bool = False) -> Model:
    """Load a task's model; the errors are those of `load_model`."""
    return load_model(
        config.model,
        kind=config.kind or None,  # type: ignore[arg-type]  # checked by its choices
        head=config.head,
        labels=config.labels or None,
        input_size=config.input_size or None,  # type: ignore[arg-type]  # two, see TaskConfig
        weights=config.weights,
        preprocessing=config.preprocessing() or None,
        trust=trust,
        outputs=config.outputs,
        constants=config.constant_inputs,
    )


def make_settings(config: TaskConfig, model: Model) -> DecoderSettings:
    """Make the thresholds that a task's frames are decoded with.

    ConfigurationError for a class that the model does not have, and for a choice of classes where
    the results are not boxes.
    """
    if model.kind != "detection":
        for name in ("classes", "class_thresholds"):
            if values := getattr(config, name):
                raise ConfigurationError(
                    f"{name} has no meaning for {model.source}, a model for {model.kind}: it "
                    f"chooses among boxes; fix: leave it empty, not {list(values)}",
                    name,
                )
    lowest, thresholds = resolve_thresholds(
        model.labels, config.confidence_threshold, config.classes, config.class_thresholds
    )
    return DecoderSettings(
        confidence=lowest,
        thresholds=thresholds,
        nms_iou=config.nms_iou_threshold,
        class_agnostic=config.nms_class_agnostic,
        max_detections=config.max_detections,
        confidence_image=config.confidence_image,
    )


def make_tracker(config: TaskConfig, model: Model) -> Tracker | None:
    """Make the task's tracker; None where it has none.

    ConfigurationError where there is nothing to track, and without the library.
    """
    if not config.tracker:
        return None
    if model.kind != "detection":
        raise ConfigurationError(
            f"tracker: {config.tracker} has no meaning for {model.source}, a model for "
            f"{model.kind}: boxes are tracked; fix: leave it empty",
            "tracker",
        )
    return Tracker(int(config.track_lost_ms * 1e6), config.track_start_threshold)


def make_grey_frame(size: tuple[int, int]) -> Frame:
    """A frame for warm-up; `size` is height and width."""
    return Frame(np.full((*size, 3), 114, np.uint8), "bgr8", 0, 0)


class Task:
    """A model with its variants, warmed up; one inference takes `threads`.

    With `narrow_threads` it can also run with so many, beside others; see `scheduling.places`.
    `size` is the height and width of the frames that will come, by default those of `config`;
    `frames` those of the warm-up, by default a grey one; empty = no warm-up. `find_like` finds a
    loaded task by `batch_key`: this one is then cut at the same places, which batches of both
    need. `model` and `library` are those of `config`, where they are open already; `runs` has for
    each variant with how many runs it takes the network, else that is measured. `build` makes
    engines that are not in the library, which takes minutes, at once; by default only where there
    is no library: else they are built in the background. `keep_refused` loads variants too that
    the library lists as refused. With `on_device` frames may lie in memory that `allocate_frame`
    made. With `cancels` it is measured how long runs take to end when they are told to.

    Raises
    ------
    ModelError, ConfigurationError, BackendUnavailableError
        When the model or a variant of the full network cannot be used.
    """

    def __init__(
        self,
        config: TaskConfig,
        size: tuple[int, int] | None = None,
        *,
        threads: int,
        narrow_threads: int = 0,
        clock: Clock,
        log: Callable[[str], object] = lambda text: None,
        find_like: Callable[[BatchKey], Task | None] = lambda key: None,
        model: Model | None = None,
        frames: Sequence[Frame] | None = None,
        library: Library | None = None,
        runs: Mapping[str, int] | None = None,
        build: bool = False,
        keep_refused: bool = False,
        on_device: bool = False,
        cancels: bool = False,
    ) -> None:
        self.config = config
        self.name = config.name
        self.threads = threads
        self.narrow_threads = narrow_threads
        self.clock = clock  # measures, and paces null models
        self._log = log
        check_lists(config)
        self.library = library or open_library(config.engine_cache)
        # Times of its parts until it is ready, for the log.
        self.load_times_ns: dict[str, int] = {}
        begin_ns = time.monotonic_ns()
        self.model: Model = model or open_model(config)
        begin_ns = self._note_time("model", begin_ns)
        self.settings = make_settings(config, self.model)
        self._tracker = make_tracker(config, self.model)
        self.output_check = OutputCheck(self.model)
        self._active = False  # whether frames are tracked and their outputs checked
        # Held while variants are made, so that two threads never do that at once.
        self._lock = threading.Lock()
        self._closed = False
        self._on_device = on_device
        self.batch_group = ""  # name of the one that it runs batches in; empty = none
        self.batch_tasks = 1  # of that group
        self.batch_bytes = 0  # its share of the memory of the group
        like = find_like(self.batch_key) if self.may_batch else None
        if like is None and config.stages != 1 and not self.is_scripted:
            log(f"{self.name}: cutting {self.model.source} into stages; takes up to half a minute")
        self.variants: VariantSet = self._open(
            config,
            build=build,
            keep_refused=keep_refused,
            like=None if like is None else like.variants,
            runs=runs,
        )
        begin_ns = self._note_time("variants", begin_ns)
        if self.variants.free_cuts is not None:
            log(f"{self.name}: stages auto: {self.variants.free_cuts}")
        self._log_memory()
        # Variants that were asked for and are not there, with the reason; and those of them that
        # can be built into the library.
        self.left_out = dict(self.variants.left_out)
        self.missing = tuple(self.variants.missing) if self.library is not None else ()
        self.frame = make_grey_frame(size or (config.image_height, config.image_width))
        if self.allocate_frame is not None:
            # Measured as frames of the camera will come.
            image, address = self.allocate_frame(self.frame.image.shape)
            image[:] = self.frame.image
            self.frame = Frame(image, self.frame.encoding, 0, 0, device_address=address)
        self._cancels = cancels
        self.cancel_latencies_ns: dict[str, list[int]] = {}  # of runs that were told to end
        self.warm_up_times_ns: dict[str, StageTimes] = {}  # of the variants that are ready
        try:
            self.warm_up([self.frame] if frames is None else frames)
        except BaseException:
            self.variants.close()
            raise
        self._note_time("warm-up", begin_ns)

    # -- what there is -------------------------------------------------------------------------

    @property
    def variant_names(self) -> tuple[str, ...]:
        """Full names of the variants that are ready, the default first."""
        return tuple(self.warm_up_times_ns)

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Names of the stages."""
        return self.variants.stage_names

    @property
    def stages(self) -> Stages:
        """The stages of every variant that is ready."""
        pipelines = self.variants.pipelines
        return {name: pipelines[name].stages for name in self.variant_names}

    @property
    def default(self) -> str:
        """The variant that runs first, as far as it is ready."""
        return self.choose_variant(self.config.variant)

    @property
    def is_scripted(self) -> bool:
        """Whether it only replays the times of a script."""
        return isinstance(self.model.origin, NullOrigin)

    @property
    def is_narrow(self) -> bool:
        """Whether the default variant's network can run with fewer threads, too."""
        return bool(self.variants.pipelines[self.default].narrow)

    @property
    def has_one_core(self) -> bool:
        """Whether the default variant's network runs on one core of the CPU, whatever there is."""
        origin, pipeline = self.model.origin, self.variants.pipelines[self.default]
        if isinstance(origin, NullOrigin):
            return origin.script.spin and not origin.script.takes_threads
        return (
            self.threads == 1
            and pipeline.spec.backend in TAKES_THREADS
            and all(segment.runner.device == "cpu" for segment in pipeline.segments)
        )

    @property
    def memory_bytes(self) -> int:
        """Growth of the process for its variants, see `Pipeline`, and its share of the batches."""
        return self.variants.memory_bytes + self.batch_bytes

    # -- batches -------------------------------------------------------------------------------

    @property
    def may_batch(self) -> bool:
        """Whether it may run batches with tasks of the same `batch_key`."""
        return self.config.batch == AUTO and not self.is_scripted

    @property
    def batch_key(self) -> BatchKey:
        """Key that tasks which may run batches together have in common."""
        config = self.config
        return (
            self.model.model_hash,
            self.model.head,
            self.model.preprocessing,
            tuple(str(VariantSpec.parse(name)) for name in config.variants),
            config.stages,
            config.finest_stages,
            config.memory_limit_mb,
            config.memory,
            config.engine_cache,
            config.amp_lists,
            self.threads,
        )

    @property
    def room_bytes(self) -> int | None:
        """Memory that `memory_limit_mb` leaves; None = no limit."""
        limit_mb = self.config.memory_limit_mb
        return max(0, int(limit_mb * 1e6) - self.memory_bytes) if limit_mb else None

    # -- which one runs ------------------------------------------------------------------------

    def resolve_variant(self, name: str) -> str:
        """Full name of a variant that is ready; empty = the one that `choose_variant` gives.

        ConfigurationError when it is not ready, with the reason.
        """
        if not name:
            return self.choose_variant(name)
        full = str(VariantSpec.parse(name))
        if full in self.warm_up_times_ns:
            return full
        if full in self.missing and self.config.build_missing:
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
        """The variant to run: the named one when it is ready, else the first that is.

        An empty name stands for the first of the list. ConfigurationError when the name is not a
        variant's, or not in the list.
        """
        listed = [str(VariantSpec.parse(other)) for other in self.config.variants]
        wanted = str(VariantSpec.parse(name)) if name else (listed or self.variant_names)[0]
        if wanted in self.left_out:
            return self.variant_names[0]
        return self.resolve_variant(wanted)

    # -- changes, on any thread but a worker ---------------------------------------------------

    def use(self, config: TaskConfig, settings: DecoderSettings) -> None:
        """Bring dynamic values into effect from the next frame on; `make_settings` made these."""
        self.config, self.settings = config, settings
        self._share()

    def start_tracking(self, period_ns: int) -> None:
        """Track what comes every `period_ns` from now on, if the task has a tracker.

        Outputs are checked from now on, too. Before, frames are those of the warm-up and of
        measurements.
        """
        if self._tracker is not None:
            self._tracker.start(period_ns)
        self.output_check = OutputCheck(self.model)
        self._active = True
        self._share()

    def stop_tracking(self) -> None:
        """Track and check no more."""
        self._active = False
        self._share()

    def _share(self) -> None:
        """Let the variants decode with the present settings and tracker."""
        # `rebuild` sets `variants` first and reads the rest then, this is called in the other
        # order: whichever comes last has both.
        if self._active:
            # A script finds nothing.
            check = None if self.is_scripted else self.output_check
            self.variants.decode_with(self.settings, self._tracker, check)
        else:
            self.variants.decode_with(self.settings, None, None)

    def add(self, name: str) -> None:
        """Load a variant that has been built meanwhile and warm it up, while others run.

        The errors are those of the constructor.
        """
        with self._lock:
            if self._closed:
                raise ConfigurationError("the task was cleaned up meanwhile")
            self.variants.add(name)
            try:
                times_ns = self._measure(name, self.variants.rehearse(name), [self.frame])
                self.variants.settle(name)
            except ModelError as error:
                self.variants.drop(name, str(error))
                raise
            self.warm_up_times_ns = {**self.warm_up_times_ns, name: times_ns}
            self.left_out = {n: reason for n, reason in self.left_out.items() if n != name}
            self.missing = tuple(other for other in self.missing if other != name)

    def give_up(self, name: str, reason: str) -> None:
        """Note that a missing variant will not become available."""
        self.left_out = {**self.left_out, name: reason}
        self.missing = tuple(other for other in self.missing if other != name)

    def hand_over(self, name: str, take: Callable[[Sequence[Stage], StageTimes], None]) -> bool:
        """Give a variant's present stages and its warm-up times to `take`.

        Returns False at once while variants are being made: ask again later.
        """
        # With the lock, so that stages which `rebuild` replaces are not handed over after it.
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if name in self.warm_up_times_ns:  # else it was lost when all were rebuilt
                take(self.variants.pipelines[name].stages, self.warm_up_times_ns[name])
        finally:
            self._lock.release()
        return True

    def rebuild(self, give_back: Callable[[Callable[[], None]], object]) -> Stages:
        """Reload everything after a stage hung.

        `give_back` is given the function that closes the old pipelines, and calls it when none of
        them is in use any more. Those of a task that ran batches stay with its group.
        """
        with self._lock:
            if self._closed:
                raise ConfigurationError("the task was cleaned up meanwhile")
            if not self.batch_group:
                give_back(self.variants.close)
            runs_narrow = self.variants.runs_narrow
            self.variants = self._reopen()
            self.variants.run_narrow(runs_narrow)
            self._share()
            # The stage that hangs may still use the runners and the buffer of the batches.
            self.batch_group, self.batch_bytes = "", 0
            ready = self.variants.pipelines
            self.left_out = {**self.left_out, **self.variants.left_out}
            self.warm_up_times_ns = {n: t for n, t in self.warm_up_times_ns.items() if n in ready}
            return self.stages

    def warm_up(self, frames: Sequence[Frame]) -> None:
        """Measure every variant on some frames; none of them may be running."""
        self.frame = next(iter(frames), self.frame)
        self.warm_up_times_ns = {
            name: self._measure(name, pipeline, frames) if frames else []
            for name, pipeline in self.variants.pipelines.items()
        }

    def run_narrow(self, wanted: bool) -> None:
        """Let it always run with `narrow_threads`, or as each frame wants again; measures anew.

        It must not be active.
        """
        if wanted != self.variants.runs_narrow:
            self.variants.run_narrow(wanted)
            if any(self.warm_up_times_ns.values()):  # else none were wanted
                self.warm_up([self.frame])

    def make_table(self, deadline_ns: int, period_ns: int) -> TaskTable:
        """Table of its variants, from the library, else from the warm-up.

        ConfigurationError when none of them has a known accuracy.
        """
        try:
            profiles = load_profiles(
                self.stages,
                self.warm_up_times_ns,
                library=self.library,
                model=self.model,
                threads=self.threads,
                stages=self.config.stages,
                amp_lists=self.config.amp_lists,
                frames=self.config.build_frames,
                least=self.config.least_agreement,
            )
            return make_task_table(
                self.name, self.stage_names, profiles, deadline_ns=deadline_ns, period_ns=period_ns
            )
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    def close(self) -> None:
        """Release the memory, once a variant that is being added is complete."""
        with self._lock:
            self._closed = True
            self.variants.close()

    # -- steps ---------------------------------------------------------------------------------

    def _note_time(self, part: str, begin_ns: int) -> int:
        """Note how long a part of loading took; returns its end."""
        end_ns = time.monotonic_ns()
        self.load_times_ns[part] = end_ns - begin_ns
        return end_ns

    def _open(
        self,
        config: TaskConfig,
        *,
        build: bool = False,
        keep_refused: bool = False,
        like: VariantSet | None = None,
        runs: Mapping[str, int] | None = None,
    ) -> VariantSet:
        variants = VariantSet(
            config,
            self.model,
            self.settings,
            threads=self.threads,
            narrow_threads=self.narrow_threads,
            library=self.library,
            clock=self.clock,
            build=build or self.library is None,
            keep_refused=keep_refused,
            like=like,
            runs=runs,
        )
        # None for topics: messages lie in memory of the middleware, which no device reaches.
        try:
            self.allocate_frame = variants.read_frames_on_device() if self._on_device else None
        except BaseException:
            variants.close()
            raise
        return variants

    def _reopen(self) -> VariantSet:
        # The stages that the executor knows, also where they were chosen automatically.
        stages = len(self.stage_names) - 2
        config = replace(
            self.config, variants=self.variant_names, stages=stages, memory_limit_mb=0.0
        )
        return self._open(config, like=self.variants if self.variants.free_cuts else None)

    def _log_memory(self) -> None:
        asked = self.config.memory
        if self.variants.memory:
            self._log(f"the input lies {self.variants.describe_input()}")
        elif asked != AUTO:
            self._log(f"memory: {asked} has no effect, {self.variants.default} runs on the CPU")

    def _measure(self, name: str, pipeline: Pipeline, frames: Sequence[Frame]) -> StageTimes:
        begin_ns = time.monotonic_ns()
        try:
            runs = measure_stages(pipeline.stages, frames, self.config.warmup_runs, self.clock)
            if self._cancels and runs:
                latencies_ns = measure_cancels(pipeline.stages, frames[0], runs)
                self.cancel_latencies_ns[name] = latencies_ns
        except Exception as error:
            raise ModelError(f"variant {name} fails on its warm-up frame: {error}") from error
        median_ms = sorted(sum(run) for run in runs)[len(runs) // 2] / 1e6 if runs else 0.0
        seconds = (time.monotonic_ns() - begin_ns) / 1e9
        self._log(
            f"variant {name}: {median_ms:.2f} ms (median of {len(runs)} runs at "
            f"{frames[0].width}x{frames[0].height}), warmed up in {seconds:.1f} s"
        )
        return runs
