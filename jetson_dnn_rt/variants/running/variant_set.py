# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Several variants of one model, loaded and ready."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.cuda.runner import CudaRunner
from jetson_dnn_rt.backends.memory import used_bytes
from jetson_dnn_rt.backends.registry import (
    BUILT_BEFOREHAND,
    create_runner,
    is_installed,
    require_backend,
)
from jetson_dnn_rt.backends.threads import limit_opencv
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.config.task import AUTO, MAX_STAGES, TaskConfig
from jetson_dnn_rt.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ModelError,
    NotBuiltError,
    blaming,
)
from jetson_dnn_rt.frames import Allocate
from jetson_dnn_rt.models.graph.batched_part import BatchedPart
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.models.output_check import OutputCheck
from jetson_dnn_rt.models.sources.files import hash_bytes
from jetson_dnn_rt.models.sources.null import NullOrigin
from jetson_dnn_rt.models.tracking import Tracker
from jetson_dnn_rt.platforms.machine import describe_gpu
from jetson_dnn_rt.variants.free_cuts import (
    CANDIDATES,
    FORM,
    FREE,
    IMBALANCE,
    FreeCuts,
    load_free_cuts,
)
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.measuring.machine import describe_cores, describe_device, device_of
from jetson_dnn_rt.variants.measuring.measurement import approximates, find_refusal
from jetson_dnn_rt.variants.measuring.store import (
    find_agreement,
    load_graph,
    load_measurement,
    measurement_key,
)
from jetson_dnn_rt.variants.network import (
    TOLERANCE,
    Network,
    Segment,
    choose_cover,
    list_counts,
    measure_segments,
)
from jetson_dnn_rt.variants.quantized import MODEL_FILE, load_quantized
from jetson_dnn_rt.variants.running.engines import TuningOptions, make_runner
from jetson_dnn_rt.variants.running.frame_processor import (
    FrameProcessor,
    adopt_image,
    find_memory,
    read_frames_on_device,
)
from jetson_dnn_rt.variants.running.pipeline import Pipeline, name_stages
from jetson_dnn_rt.variants.spec import FULL, VariantSpec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import fx

logger = logging.getLogger(__name__)

STAGE_NS = 2_000_000
"""Target time of a stage where the number of stages is automatic: a job that has just started
blocks a more urgent one for about this long."""
MAX_AUTOMATIC_STAGES = 8

TAKES_THREADS = ("torch", "onnxruntime", "openvino")
"""Back ends whose runners in one process may have different numbers of threads."""

# The fastest on a CPU first, as `python -m benchmarks backends` has them on two x86 cores.
_PREFERENCE = ("openvino", "onnxruntime", "torch")
# Of these only torch uses a GPU. TensorRT and TVM are never chosen unasked: their builds take
# long.
_PREFERENCE_CUDA = ("torch", "openvino", "onnxruntime")


class LeftOutError(ConfigurationError):
    """A variant does not fit into the memory, or was refused by its measurement."""


def choose_default(model: Model) -> VariantSpec:
    """The variant of a task whose user names none.

    ``full`` in fp32, on torch where it sees a CUDA device, else on the first back end that is
    installed of OpenVINO, ONNX Runtime and torch; for a ``null:`` model the null back end. Raises
    `BackendUnavailableError` when none is installed.
    """
    if isinstance(model.origin, NullOrigin):
        return VariantSpec(FULL, "null")
    backend = choose_backend()
    if not backend:
        raise BackendUnavailableError("no back end is installed: pip install onnxruntime")
    return VariantSpec(FULL, backend)


def choose_backend() -> str:
    """Back end of `choose_default` for all but ``null:`` models; empty where none is installed."""
    # The driver is asked first: importing torch takes seconds and a few hundred MB.
    has_cuda = describe_gpu() and is_installed("torch") and device_of("torch") == "cuda"
    return next(filter(is_installed, _PREFERENCE_CUDA if has_cuda else _PREFERENCE), "")


class VariantSet:
    """The variants of one task. They share the input buffer, so one frame at a time.

    Parameters
    ----------
    config : TaskConfig
        Its `variants` (none = `choose_default`), `stages` (0 = so many that one takes about
        `STAGE_NS`, at most `MAX_AUTOMATIC_STAGES`; ``auto`` = see `variants.free_cuts`),
        `finest_stages`, `memory_limit_mb` (the first variant is loaded whatever it takes),
        `memory` and `amp_lists` are used.
    settings : DecoderSettings, optional
        Limits of the results.
    threads : int
        Threads of one inference, >= 1.
    narrow_threads : int
        The same for several inferences side by side: networks on a CPU are then loaded twice; 0 =
        once.
    library : Library, optional
        Where decomposed networks come from, and what is slow to make is kept.
    clock : Clock, optional
        What the null back end waits on.
    build : bool
        Build engines that are not in the library, which takes minutes; else their variants are
        `missing`. Kernels are never tuned here: see `runtime.building.builder`.
    keep_refused : bool
        Load variants too that the library lists as refused.
    like : VariantSet, optional
        Of the same model, loaded with the same arguments: it is cut at the same places and run in
        the same pieces, which a batch of both needs; `config.stages` is ignored.
    runs : mapping of str to int, optional
        In how many runs variants take the network, as it was chosen before.

    Attributes
    ----------
    free_cuts : FreeCuts, optional
        With `stages` ``auto``, what was chosen.
    pipelines : dict of str to Pipeline
        Those that are loaded, by full name, in the order given; `default` is the first.
    left_out : dict of str to str
        Those that are not, with the reason; `missing` are those of them that may yet be built.

    Raises
    ------
    ConfigurationError
        When a name is not a variant's or appears twice, or `stages` is out of range.
    BackendUnavailableError, ModelError
        When a variant of the full network cannot be built; those built before are closed.
    """

    def __init__(
        self,
        config: TaskConfig,
        model: Model,
        settings: DecoderSettings | None = None,
        *,
        threads: int = 1,
        narrow_threads: int = 0,
        library: Library | None = None,
        clock: Clock | None = None,
        build: bool = False,
        keep_refused: bool = False,
        like: VariantSet | None = None,
        runs: Mapping[str, int] | None = None,
    ) -> None:
        stages = config.stages
        specs = [VariantSpec.parse(name) for name in config.variants] or [choose_default(model)]
        if len(set(map(str, specs))) != len(specs):
            text = f"variants: a name appears twice: {list(map(str, specs))}"
            raise ConfigurationError(text, "variants")
        if stages != AUTO and not 0 <= int(stages) <= MAX_STAGES:
            raise ConfigurationError(f"stages must be in [0, {MAX_STAGES}]: {stages}")
        self.model = model
        self.library = library
        self.pipelines: dict[str, Pipeline] = {}
        self.left_out: dict[str, str] = {}
        self.missing: tuple[str, ...] = ()
        self._config, self._settings = config, settings or DecoderSettings()
        self._threads, self._clock = threads, clock
        self._narrow_threads = narrow_threads
        self.runs_narrow = False  # see `run_narrow`
        limit_opencv(threads)  # of preprocessing
        self._limit_bytes = int(config.memory_limit_mb * 1e6)
        self._build_engines, self._keep_refused = build, keep_refused
        self._runs = dict(runs or {})
        self._shared: FrameProcessor | None = None
        self.free_cuts: FreeCuts | None = None
        self._network: Network
        if like is not None:
            self._network, self.free_cuts = like._network, like.free_cuts
            self._runs |= {name: len(p.segments) for name, p in like.pipelines.items()}
        elif stages == AUTO:
            self._network = self._choose_cuts(specs)
        else:
            self._network = Network(model, int(stages) or self._count_stages(specs), library)
        self.stage_names = name_stages(self._network.stages)
        try:
            with blaming("variants"):
                for spec in specs:
                    self._try_add(spec)
            if not self.pipelines:
                full = str(choose_default(model))
                logger.warning("%s runs as %s until another variant is there", model.source, full)
                self.add(full)
            self.default = next(iter(self.pipelines))
            for name in self.pipelines:
                self.settle(name)
        except BaseException:
            self.close()
            raise

    def add(self, name: str) -> Pipeline:
        """Load one more variant; may be called while the others run, from any one thread.

        Raises `NotBuiltError` when it is not in the library, `LeftOutError` when it does not fit
        into the memory or was refused, `BackendUnavailableError` or `ModelError` when it cannot be
        built.
        """
        spec = VariantSpec.parse(name)
        if str(spec) not in self.pipelines:
            # A new dictionary: others may be going through the old one.
            self.pipelines = {**self.pipelines, str(spec): self._build(spec)}
            self.left_out.pop(str(spec), None)
            self.missing = tuple(other for other in self.missing if other != str(spec))
        return self.pipelines[str(spec)]

    def rehearse(self, name: str) -> Pipeline:
        """Put a loaded variant behind an input buffer of its own: to warm it up while others run.

        It shares the runners of the pipeline, which must not run meanwhile; only that one is
        closed.
        """
        loaded = self.pipelines[name]
        image = loaded.segments[0].runner.allocate_input()
        processor = FrameProcessor(self.model, self._settings, image)
        rehearsed = Pipeline(
            loaded.spec, processor, loaded.segments, self.stage_names, narrow=loaded.narrow
        )
        rehearsed.runs_narrow = loaded.runs_narrow
        return rehearsed

    def run_narrow(self, wanted: bool) -> None:
        """Let the variants always run with `narrow_threads`, or as each frame wants again.

        None of them may be running.
        """
        self.runs_narrow = wanted
        for pipeline in self.pipelines.values():
            pipeline.runs_narrow = wanted

    def graph(self, name: str) -> fx.GraphModule:
        """Graph of a loaded variant's network, not to be changed."""
        return self._network.graph(self.pipelines[name].spec.decomposition)

    def decode_with(
        self, settings: DecoderSettings, tracker: Tracker | None, check: OutputCheck | None
    ) -> None:
        """Decode frames of the loaded variants with these from the next one on.

        Any thread may ask for it; what `rehearse` gives is neither tracked nor checked.
        """
        self._settings = settings
        self._processor.decode_with(settings, tracker, check)

    def move_input(self, whole: npt.NDArray[np.float32], slot: int) -> None:
        """Let the variants, none of them running, read a slot of a batch group's input buffer."""
        self._processor.move(whole, slot)
        for name in self.pipelines:
            self.settle(name)

    def make_batch_runners(self, name: str, size: int) -> list[Runner]:
        """Make the segments of a loaded variant ready for several images at once.

        After `move_input`: those for a full batch read the input in place, where the device can.
        Raises `BackendUnavailableError` or `ModelError` when the back end cannot run the network
        so, or its engine is not in the library.
        """
        spec, segments = self.pipelines[name].spec, self.pipelines[name].segments
        runners: list[Runner] = []
        try:
            for segment in segments:
                runners.append(self._make_runner(spec, BatchedPart(segment.piece.part, size)))
            whole = self._processor.whole_image
            if whole is not None and len(whole) == size:
                pairs = zip(segments, runners, strict=True)
                adopt_image([Segment(segment.piece, runner) for segment, runner in pairs], whole)
        except BaseException:
            for runner in runners:
                runner.close()
            raise
        return runners

    def settle(self, name: str) -> None:
        """Let a variant that is not running read the shared input in place, where the device can.

        After `rehearse` for one that was added: there it read another buffer.
        """
        adopt_image(self.pipelines[name].segments, self._processor.image)

    @property
    def memory(self) -> str:
        """Kind of the memory of the input: ``mapped``, ...; empty without a CUDA device."""
        return find_memory(self.pipelines[self.default].segments)

    def describe_input(self) -> str:
        """Where the input lies and who converts frames, for people."""
        kind, fault = self.memory, self._processor.device_fault
        if not kind:
            return "in the CPU's memory"
        if fault:
            return f"in {kind} memory, frames are converted by the CPU: {fault}"
        converter = "device" if self._processor.reads_on_device else "CPU"
        return f"in {kind} memory, frames are converted by the {converter}"

    def read_frames_on_device(self) -> Allocate | None:
        """Let the device convert camera frames; returns what allocates them."""
        segments = self.pipelines[self.default].segments
        return read_frames_on_device(self._processor, segments, self.model.preprocessing)

    def drop(self, name: str, reason: str) -> None:
        """Close a variant that turned out to be of no use; it must not be running."""
        dropped = self.pipelines[name]
        self.pipelines = {other: p for other, p in self.pipelines.items() if other != name}
        self.left_out[name] = reason
        dropped.close()

    @property
    def memory_bytes(self) -> int:
        """Growth of the process when the variants were loaded; see `Pipeline`."""
        return sum(pipeline.memory_bytes for pipeline in self.pipelines.values())

    def close(self) -> None:
        """Close every pipeline; a second call does nothing."""
        for pipeline in self.pipelines.values():
            pipeline.close()
        if self._shared is not None:
            self._shared.close()

    @property
    def _processor(self) -> FrameProcessor:
        assert self._shared is not None  # made with the first variant
        return self._shared

    def _try_add(self, spec: VariantSpec) -> None:
        try:
            self.add(str(spec))
        except (NotBuiltError, LeftOutError) as error:
            self.left_out[str(spec)] = str(error)
            if isinstance(error, NotBuiltError):
                self.missing = (*self.missing, str(spec))
            logger.warning("%s", error)

    def _build(self, spec: VariantSpec) -> Pipeline:
        if not self._network.has(spec.network):
            self._load_network(spec)
        self._check_measurement(spec)
        device = device_of(spec.backend)
        before = used_bytes(device)
        segments = self._make_segments(spec)
        narrow: list[Runner] = []
        try:
            if self._narrow_threads and self._takes_threads(spec) and device == "cpu":
                for segment in segments:
                    narrow.append(self._make_runner(spec, segment.piece.part, narrow=True))
            if self._shared is None:
                image = segments[0].runner.allocate_input()
                self._shared = FrameProcessor(self.model, self._settings, image)
            if spec.backend != "null":  # whose runs take as long as its script says
                measure_segments(segments, runs=1)
                if narrow:
                    pairs = zip(segments, narrow, strict=True)
                    measure_segments([Segment(one.piece, to) for one, to in pairs], runs=1)
            grown = max(0, used_bytes(device) - before)
            pipeline = Pipeline(spec, self._processor, segments, self.stage_names, grown, narrow)
            pipeline.runs_narrow = self.runs_narrow
            left = self._limit_bytes - self.memory_bytes
            if self._limit_bytes and self.pipelines and grown > left:
                raise LeftOutError(
                    f"variant {spec} of {self.model.source} is left out: it takes "
                    f"{grown / 1e6:.0f} MB, {max(0, left) / 1e6:.0f} of "
                    f"{self._limit_bytes / 1e6:.0f} MB are left (memory_limit_mb)"
                )
            return pipeline
        except BaseException:
            for runner in (*(segment.runner for segment in segments), *narrow):
                runner.close()
            raise

    def _make_segments(self, spec: VariantSpec) -> list[Segment]:
        """Make the finest cover that is nearly as fast as the fastest; the library keeps which."""
        network, library, is_free = self._network, self.library, self.free_cuts is not None
        # torch runs operator by operator, whatever the cuts: stages cost it little.
        finest = self._config.finest_stages or (spec.backend == "torch" and not is_free)
        tolerance = 1.0 + FREE if is_free else TOLERANCE
        runs = self._runs.get(str(spec), 0)
        key: EntryKey | None = None
        if library is not None and network.stages > 1 and not (finest or runs):
            key = self._cover_key(spec, tolerance)
            entry = library.load(key)
            found = entry.facts.get("runs") if entry is not None else None
            runs = found if found in list_counts(network.stages) else 0
        segments = choose_cover(
            network,
            spec.network,
            partial(self._make_runner, spec),
            finest=finest,
            runs=runs,
            tolerance=tolerance,
        )
        if library is not None and key is not None and not runs:
            library.store(key, {}, {"runs": len(segments)}, model=self.model.source)
            text = "%s: %d runs cover the %d stages, as measured; kept for later starts"
            logger.info(text, spec, len(segments), network.stages)
        return segments

    def _cover_key(self, spec: VariantSpec, tolerance: float) -> EntryKey:
        (whole,) = self._network.pieces(spec.network, 1)
        cuts = hash_bytes(repr(self._network.cuts).encode())[:16]
        key = measurement_key(
            self.model, spec, whole.part.graph_hash,
            threads=self._threads, stages=cuts, amp_lists=self._config.amp_lists,
        )  # fmt: skip
        options = f"cover={tolerance:g} form={FORM} cores={describe_cores()} {key.options}"
        return replace(key, kind="artefact", options=options)

    def _takes_threads(self, spec: VariantSpec) -> bool:
        origin = self.model.origin
        scripted = isinstance(origin, NullOrigin) and origin.script.takes_threads
        return spec.backend in TAKES_THREADS or scripted

    def _load_network(self, spec: VariantSpec) -> None:
        """Load a network other than the full one in fp32; `NotBuiltError` without one."""
        if spec.is_quantized:
            staged = self._config.stages != 1
            entry = load_quantized(self.model, spec, self.library, staged=staged)
            if entry is None:
                raise NotBuiltError(
                    f"variant {spec} of {self.model.source} is not in the library: run "
                    "jetson-dnn-rt build, which calibrates it on frames"
                )
            try:
                self._network.add_quantized(spec.network, entry.files[MODEL_FILE])
            except ModelError as error:
                raise NotBuiltError(
                    f"variant {spec} of {self.model.source}: {error}; run jetson-dnn-rt build"
                ) from error
            return
        graph = load_graph(self.model, spec.decomposition, self.library)
        if graph is None:
            raise NotBuiltError(
                f"variant {spec} of {self.model.source} is not in the library: run "
                "jetson-dnn-rt build, or jetson-dnn-rt compress"
            )
        self._network.add_decomposed(spec.decomposition, graph)

    def _check_measurement(self, spec: VariantSpec) -> None:
        """Leave out a variant that was measured to be of no use, or to agree too little."""
        if self.library is None or self._keep_refused or not approximates(spec):
            return
        threads, stages, lists = self._threads, self._config.stages, self._config.amp_lists
        found = load_measurement(
            self.library, self.model, spec, threads=threads, stages=stages, amp_lists=lists
        )
        agreement = find_agreement(
            self.library, self.model, spec, found,
            threads=threads, stages=stages, amp_lists=lists, frames=self._config.build_frames,
        )  # fmt: skip
        refusal = find_refusal(spec, found, agreement, self._config.least_agreement)
        if refusal:
            raise LeftOutError(f"variant {spec} of {self.model.source} is left out: {refusal}")

    def _make_runner(self, spec: VariantSpec, part: Part, *, narrow: bool = False) -> Runner:
        runner = make_runner(
            self.model,
            spec,
            part,
            threads=self._narrow_threads if narrow else self._threads,
            clock=self._clock,
            library=self.library,
            build=self._build_engines,
            tuning=TuningOptions(amp_lists=self._config.amp_lists, tunes=False),
        )
        if isinstance(runner, CudaRunner):
            try:
                runner.use_memory(self._config.memory)
            except ConfigurationError:
                runner.close()
                raise
        return runner

    def _choose_measured(self, specs: Sequence[VariantSpec]) -> VariantSpec:
        """The variant by whose times the stages are chosen."""
        # Not one whose engine may have to be built first.
        quick = (
            s for s in specs
            if s.is_full and not s.is_quantized and s.backend not in BUILT_BEFOREHAND
        )  # fmt: skip
        return next(quick, None) or choose_default(self.model)

    def _choose_cuts(self, specs: Sequence[VariantSpec]) -> Network:
        if isinstance(self.model.origin, NullOrigin):
            return Network(self.model, 1, self.library)
        spec = self._choose_measured(specs)
        model = self.model
        key = EntryKey(
            model.model_hash,
            model.graph_hash,
            FULL,
            "artefact",
            spec.backend,
            require_backend(spec.backend, spec.precision).version,
            describe_device(device_of(spec.backend)),
            spec.precision,
            (model.input_shape,),
            f"cuts form={FORM} stages={AUTO} threads={self._threads} cores={describe_cores()}",
        )
        candidates = Network(model, CANDIDATES, self.library, imbalance=IMBALANCE)
        make = partial(self._make_runner, spec)
        self.free_cuts = load_free_cuts(candidates, make, self.library, key)
        # Not measured once more, which could give another number of runs.
        self._runs.setdefault(str(spec), len(self.free_cuts.cuts) + 1)
        return Network(model, library=self.library, cuts=self.free_cuts.cuts)

    def _count_stages(self, specs: Sequence[VariantSpec]) -> int:
        if isinstance(self.model.origin, NullOrigin):
            return 1
        spec = self._choose_measured(specs)
        (piece,) = Network(self.model, 1, self.library).pieces(FULL)
        runner = create_runner(piece.part, spec.backend, spec.precision, threads=self._threads)
        try:
            time_ns = measure_segments([Segment(piece, runner)])
        finally:
            runner.close()
        return max(1, min(MAX_AUTOMATIC_STAGES, round(time_ns / STAGE_NS)))
