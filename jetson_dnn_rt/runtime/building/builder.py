# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Builds and measures the variants of a task beforehand, and keeps both in the library."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

from jetson_dnn_rt.backends.registry import BUILT_BEFOREHAND, TENSORRT
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.config.task import AUTO, TaskConfig
from jetson_dnn_rt.errors import (
    BackendUnavailableError,
    ConfigurationError,
    JetsonDnnRtError,
    ModelError,
    SourceError,
)
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.graph.batched_part import BatchedPart
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.models.sources.files import import_package
from jetson_dnn_rt.plugins import collect
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.runtime.task import Task, make_settings, tuning_options
from jetson_dnn_rt.variants.library.library import Entry, EntryKey, Library
from jetson_dnn_rt.variants.measuring.agreement import Agreement, compare
from jetson_dnn_rt.variants.measuring.machine import device_of
from jetson_dnn_rt.variants.measuring.measurement import (
    Measurement,
    Trial,
    approximates,
    decide,
    find_refusal,
    make_measurement,
    reference_of,
    try_variant,
)
from jetson_dnn_rt.variants.measuring.sample_frames import count_held_out, open_frames
from jetson_dnn_rt.variants.measuring.store import (
    hash_variant,
    load_graph,
    measurement_key,
    read_measurement,
    store_measurement,
)
from jetson_dnn_rt.variants.network import Network, list_counts
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.quantized import (
    MODEL_FILE,
    Quantization,
    load_quantized,
    read_quantization,
)
from jetson_dnn_rt.variants.running.batching import MAX_BATCH
from jetson_dnn_rt.variants.running.engines import PreparedVariant, TuningOptions, open_prepared
from jetson_dnn_rt.variants.running.pipeline import Pipeline
from jetson_dnn_rt.variants.running.variant_set import choose_default
from jetson_dnn_rt.variants.spec import DecompositionSpec, VariantSpec

if TYPE_CHECKING:
    from jetson_dnn_rt.variants.measuring.macs import Costs

logger = logging.getLogger(__name__)

STATES = ("built", "present", "tuned", "refused", "failed")
BUILT, PRESENT, TUNED, REFUSED, FAILED = STATES
"""``present``: it was in the library. ``tuned``: for another machine, where it must be compiled
and measured. ``refused``: built, but rejected by its measurement."""


@dataclass(frozen=True)
class BuildSettings:
    """How variants are built and measured.

    Variants are compared on the last of the frames (`count_held_out`), which nothing is fitted to;
    only which layers of an int8 variant stay in fp32 is decided on them.
    """

    frames: str = "synthetic"  # their source, see `sample_frames`
    frame_count: int = 256
    runs: int = 100  # timed, of each variant
    recover_steps: int = 0  # of recovery of decomposed networks; 0 = none
    # That int8 variants must reach with fp32, in [0, 1]; None = as those in the library were made.
    agreement: float | None = None
    any_frames: bool = True  # accept measurements made on other frames
    again: bool = False  # repeat measurements that exist
    keep_slower: bool = False  # accept what is neither faster nor lighter


@dataclass(frozen=True)
class BuildReport:
    """Outcome of building a variant."""

    task: str
    variant: str
    state: str  # one of `STATES`
    reason: str  # why it was refused or failed, else empty
    fresh: bool  # whether it was built and measured now
    measurement: Measurement | None  # None where it failed, or runs elsewhere
    seconds: float
    note: str = ""  # how much of an int8 variant is int8


@dataclass(frozen=True)
class TaskPlan:
    """A task whose variants are to be built, its default one where it names none.

    `batch` is how many tasks may run it as one batch: back ends that build engines build them for
    batches up to that size too. `tunes` as `TuningOptions` has it.
    """

    config: TaskConfig
    model: Model
    threads: int  # of one inference
    batch: int = 1
    tunes: bool = True

    @cached_property
    def variants(self) -> tuple[VariantSpec, ...]:
        """Variants to be built."""
        named = tuple(map(VariantSpec.parse, self.config.variants))
        return named or (choose_default(self.model),)

    @cached_property
    def tuning(self) -> TuningOptions:
        """Options for its variants with tuned kernels."""
        return tuning_options(self.config, tunes=self.tunes)

    @cached_property
    def references(self) -> tuple[VariantSpec, ...]:
        """Variants measured for comparison only: the full model on the same back ends.

        The first one gives the results that all others should agree with.
        """
        wanted = [choose_default(self.model)]
        wanted += [reference_of(spec) for spec in self.variants if approximates(spec)]
        return tuple(spec for spec in dict.fromkeys(wanted) if spec not in self.variants)


class TaskBuilder:
    """Builds the variants of one task, one after the other.

    The clock times the stages, and paces null models. `held_out` are the frames to compare on,
    where they have been read.
    """

    def __init__(
        self,
        plan: TaskPlan,
        library: Library,
        settings: BuildSettings,
        clock: Clock,
        held_out: Sequence[Frame] = (),
    ) -> None:
        self.plan, self.library, self.settings = plan, library, settings
        self.name = plan.config.name
        self._clock, self._held_out = clock, list(held_out)
        self._progress: Progress = ignore_progress
        self._prepared: dict[VariantSpec, PreparedVariant] = {}
        self._known: dict[VariantSpec, Measurement] = {}
        self._failed: set[VariantSpec] = set()
        self._rivals: dict[VariantSpec, Measurement] = {}
        self._results: dict[VariantSpec, tuple[Result, ...]] = {}
        self._costs: dict[str, Costs | None] = {}
        self._hashes: dict[str, str | None] = {}
        self._compressed: set[str] = set()
        self._warm: set[str] = set()

    @property
    def order(self) -> tuple[VariantSpec, ...]:
        """All variants to be measured: the full networks first, as references of the others."""
        specs = (*self.plan.references, *self.plan.variants)
        default = choose_default(self.plan.model)
        return tuple(sorted(specs, key=lambda spec: (spec != default, approximates(spec))))

    def find(self, spec: VariantSpec) -> Measurement | None:
        """Measurement of a variant in the library, if it is complete and as asked for.

        Raises `BackendUnavailableError` or `ModelError` when the variant cannot run here.
        """
        key = self._key(spec)
        if key is None or self.settings.again or self._lacks_steps(spec):
            return None
        if spec.is_quantized and self._find_quantized(spec) is None:
            return None
        found = read_measurement(self.library, key)
        if found is None or not (self.settings.any_frames or found.frames == self.settings.frames):
            return None
        # Engines and kernels must be there too, for every cover that may be chosen.
        prepared = self._open_prepared(spec)
        return found if prepared is None or prepared.is_built(self._list_parts(spec)) else None

    def find_impossible(self) -> dict[VariantSpec, str]:
        """Listed variants whose networks no frames make possible, with the reason.

        They are found before a frame is read.
        """
        found: dict[VariantSpec, str] = {}
        reasons: dict[str, str] = {}  # by decomposition: several back ends may share one
        for spec in self.plan.variants:
            if spec.decomposition not in reasons:
                reasons[spec.decomposition] = self._find_impossibility(spec)
            if reason := reasons[spec.decomposition]:
                logger.error("%s: variant %s: %s", self.name, spec, reason)
                found[spec] = reason
        return found

    def list_missing(self) -> tuple[VariantSpec, ...]:
        """Those of `order` that must be built, or cannot be."""
        missing = []
        for spec in self.order:
            try:
                if self.find(spec) is None:
                    missing.append(spec)
            except JetsonDnnRtError:
                missing.append(spec)
        return tuple(missing)

    def build(self, spec: VariantSpec, progress: Progress = ignore_progress) -> BuildReport:
        """Build and measure a variant that the library lacks; failures are in the report.

        Build variants in the order of `order`.
        """
        begin_s = time.monotonic()
        self._progress = progress
        measurement, fresh, reason, note = None, False, "", ""
        try:
            measurement = self.find(spec)
            if measurement is None:
                fresh = True
                measurement = self._make(spec)
            if spec.is_quantized and (quantization := self._find_quantized(spec)) is not None:
                note = quantization.share
            if measurement is not None:
                self._known[spec] = measurement
                least = self.plan.config.least_agreement
                reason = find_refusal(spec, measurement, measurement.agreement, least)
            state = REFUSED if reason else BUILT if fresh else PRESENT
            if measurement is None:
                state = TUNED
            elif not reason and spec.backend in TENSORRT and self.plan.batch > 1:
                self._build_batches(spec)
        except JetsonDnnRtError as error:
            logger.error("%s: variant %s: %s", self.name, spec, error)
            state, reason = FAILED, str(error)
            self._failed.add(spec)
        seconds = time.monotonic() - begin_s
        return BuildReport(self.name, str(spec), state, reason, fresh, measurement, seconds, note)

    def measure(
        self, spec: VariantSpec, progress: Progress = ignore_progress
    ) -> tuple[Measurement, Measurement]:
        """Measure a variant that approximates, whatever is known of it, and the one it must beat.

        The time of the latter is taken in turn, so that other load of the machine affects both;
        the rest is measured only where the library lacks it. Raises what `build` reports.
        """
        self._progress = progress
        reference = reference_of(spec)
        known = self.find(reference) or self._make(reference)
        if known is not None:
            self._known[reference] = known
        measurement = self._make(spec)
        if measurement is None:
            raise ModelError(f"variant {spec} of {self.plan.model.source} does not run here")
        return measurement, self._rivals[spec]

    def _make(self, spec: VariantSpec) -> Measurement | None:
        """Build what a variant lacks and measure it; None for one that runs elsewhere."""
        self._compress(spec)
        self._quantize(spec)
        prepared = self._open_prepared(spec)
        if prepared is not None:
            prepared.prepare(self._list_parts(spec), self._progress)
        return self._measure(spec) if prepared is None or prepared.runs_here else None

    def _list_parts(self, spec: VariantSpec) -> list[Part]:
        """Parts of every cover that may be chosen, the whole network first."""
        plan = self.plan
        # The stages that are chosen by measuring are those of a back end that builds nothing.
        network = Network(plan.model, plan.config.fixed_stages or 1, self.library)
        if spec.is_quantized:
            entry = self._load_quantized(spec)
            assert entry is not None  # it was made before
            network.add_quantized(spec.network, entry.files[MODEL_FILE])
        elif not spec.is_full:
            graph = load_graph(plan.model, spec.decomposition, self.library)
            assert graph is not None  # it was made before
            network.add_decomposed(spec.decomposition, graph)
        counts = reversed(list_counts(network.stages))
        pieces = (network.pieces(spec.network, count) for count in counts)
        return [piece.part for cover in pieces for piece in cover]

    def _open_prepared(self, spec: VariantSpec) -> PreparedVariant | None:
        """A variant whose engines take minutes, opened once for its budget; None for others."""
        plan = self.plan
        if spec.backend not in BUILT_BEFOREHAND:
            return None
        if spec not in self._prepared:
            self._prepared[spec] = open_prepared(
                plan.model, spec, threads=plan.threads, library=self.library, tuning=plan.tuning
            )
        return self._prepared[spec]

    # -- decomposed networks -------------------------------------------------------------------

    def _lacks_steps(self, spec: VariantSpec) -> bool:
        """Whether a decomposed network in the library was trained less than is wanted now."""
        wanted = self.settings.recover_steps
        return not spec.is_full and wanted > 0 and self._stored_steps(spec) < wanted

    def _must_be_made(self, spec: VariantSpec) -> bool:
        """Whether a decomposed network is not in the library as it is wanted now."""
        if spec.is_full:
            return False
        purpose = f"the decomposed network {spec.decomposition} of {self.plan.model.source}"
        import_package("torch", purpose)
        return self._stored_steps(spec) < self.settings.recover_steps

    def _find_impossibility(self, spec: VariantSpec) -> str:
        try:
            if self._must_be_made(spec):
                decomposition = DecompositionSpec.parse(spec.decomposition)
                maker = _find_maker(spec, decomposition.method, "compress")
                maker.check_budget(self.plan.model, decomposition)
        except JetsonDnnRtError as error:
            return str(error)
        return ""

    def _stored_steps(self, spec: VariantSpec) -> int:
        from jetson_dnn_rt.variants.decomposition import stored_steps

        decomposition = DecompositionSpec.parse(spec.decomposition)
        return stored_steps(self.plan.model, decomposition, self.library)

    def _compress(self, spec: VariantSpec) -> None:
        """Put a decomposed network into the library, unless it is there as wanted."""
        if spec.is_full or spec.decomposition in self._compressed:
            return
        plan, settings = self.plan, self.settings
        if self._must_be_made(spec):
            decomposition = DecompositionSpec.parse(spec.decomposition)
            _find_maker(spec, decomposition.method, "compress").compress(
                plan.model,
                decomposition,
                frames=self._read_frames(),
                source=settings.frames,
                recover_steps=settings.recover_steps,
                library=self.library,
                threads=plan.threads,
                progress=self._progress,
            )
        self._hashes.pop(spec.decomposition, None)
        self._compressed.add(spec.decomposition)

    # -- quantized networks --------------------------------------------------------------------

    def _load_quantized(self, spec: VariantSpec) -> Entry | None:
        staged = self.plan.config.stages != 1
        return load_quantized(self.plan.model, spec, self.library, staged=staged)

    def _find_quantized(self, spec: VariantSpec) -> Quantization | None:
        """How a network in the library was quantized; None unless as it is wanted now."""
        settings, entry = self.settings, self._load_quantized(spec)
        if entry is None:
            return None
        try:
            found = read_quantization(entry)
        except ValueError as error:
            logger.warning("library entry %s: %s; it is quantized again", entry.path, error)
            return None
        fits = settings.any_frames or found.frames == settings.frames
        return found if fits and settings.agreement in (None, found.asked) else None

    def _quantize(self, spec: VariantSpec) -> None:
        """Put a quantized network into the library, unless it is there as wanted."""
        if not spec.is_quantized or self._find_quantized(spec) is not None:
            return
        plan, settings = self.plan, self.settings
        asked = {} if settings.agreement is None else {"agreement": settings.agreement}
        _find_maker(spec, spec.precision, "build").quantize(
            plan.model,
            spec,
            frames=self._read_frames(),
            source=settings.frames,
            staged=plan.config.stages != 1,
            settings=make_settings(plan.config, plan.model),
            library=self.library,
            threads=plan.threads,
            progress=self._progress,
            **asked,
        )
        self._hashes.pop(spec.network, None)

    # -- measuring -----------------------------------------------------------------------------

    def _measure(self, spec: VariantSpec) -> Measurement:
        plan = self.plan
        key = self._key(spec)
        if key is None:
            raise ModelError(f"{spec.network} was made and is not in the library")
        # The full network that a variant must beat, where it has been measured.
        reference = self._known.get(reference_of(spec)) if approximates(spec) else None
        trial = self._try(spec, reference_of(spec) if reference else None)
        if not approximates(spec):
            self._results[spec] = trial.results
        costs = self._count(spec.decomposition)
        measurement = make_measurement(
            spec,
            trial,
            agreement=self._compare(trial.results),
            frames=self.settings.frames,
            frame_size=(self._frames[0].height, self._frames[0].width),
            threads=plan.threads,
            parameters=costs.parameters if costs else None,
            macs=costs.macs if costs else None,
        )
        if reference is not None:
            # Its memory is known; its time is taken from the same minute.
            rival = replace(reference, total=trial.rival or reference.total)
            self._rivals[spec] = rival
            if not self.settings.keep_slower:
                measurement = measurement.refuse(decide(measurement, rival))
        if spec.is_quantized:
            measurement = measurement.refuse(
                self._find_disagreement(spec, measurement) or measurement.refused
            )
        store_measurement(self.library, key, measurement, plan.model)
        return measurement

    def _find_disagreement(self, spec: VariantSpec, measurement: Measurement) -> str:
        """Why a quantized variant agrees too little, with the figures; empty where it does not."""
        found = self._find_quantized(spec)
        assert found is not None  # it was made before
        if found.refused:
            return found.refused
        measured = measurement.agreement
        # A decomposed network differs from the full one on its own account.
        if not spec.is_full or measured is None or measured.value is None:
            return ""
        if measured.value >= found.asked:
            return ""
        return (
            f"int8 agrees {measured} with {measured.reference}, {found.asked:g} is asked for "
            "(--agreement)"
        )

    def _build_batches(self, spec: VariantSpec) -> None:
        """Put the engines of batches into the library; it is no failure if one cannot be built."""
        plan, prepared = self.plan, self._open_prepared(spec)
        assert prepared is not None
        pipeline = self._open(spec)
        try:
            for size in range(2, min(MAX_BATCH, plan.batch) + 1):
                self._progress(f"building for batches of {size}", size - 2, plan.batch - 1)
                for segment in pipeline.segments:
                    part = BatchedPart(segment.piece.part, size)
                    prepared.make(part, build=True).close()
        except (ModelError, BackendUnavailableError) as error:
            logger.warning("%s: no batches in %s: %s", self.name, spec, error)
        finally:
            pipeline.close()

    def _open(self, spec: VariantSpec) -> Pipeline:
        """Make one variant, refused or not; raises `BackendUnavailableError` where it cannot."""
        plan, name = self.plan, str(spec)
        task = Task(
            replace(plan.config, variants=(name,), variant="", finest_stages=False, memory=AUTO,
                    memory_limit_mb=0.0),
            threads=plan.threads, clock=self._clock, model=plan.model, frames=(),
            library=self.library, build=True, keep_refused=True,
        )  # fmt: skip
        if name not in task.variants.pipelines:
            task.close()
            raise BackendUnavailableError(task.left_out[name])
        return task.variants.pipelines[name]

    def _try(
        self, spec: VariantSpec, reference: VariantSpec | None = None, *, runs: int = 0
    ) -> Trial:
        def build() -> Pipeline:
            return self._open(spec)

        if spec.backend not in self._warm:
            # The first use of a back end grows the process for good; closing the first variant
            # released 1 to 3 MB too much.
            self._progress("warming up", 0, 1)
            try_variant(build, self._frames[:1], runs=1, clock=self._clock)
            self._warm.add(spec.backend)
        self._progress("measuring", 0, 1)
        rival = None
        if reference is not None:
            try:
                rival = self._open(reference)
            except JetsonDnnRtError as error:
                logger.warning("%s: %s is not timed in turn: %s", spec, reference, error)
        try:
            return try_variant(
                build,
                self._frames,
                runs=runs or self.settings.runs,
                clock=self._clock,
                rival=rival,
                device=device_of(spec.backend),
            )
        finally:
            if rival is not None:
                rival.close()

    def _compare(self, results: Sequence[Result]) -> Agreement | None:
        """Compare with the first variant of the full model that runs; None where none does."""
        for full in self.order:
            if approximates(full) or full in self._failed:
                continue
            if full not in self._results:
                try:
                    # Its times are known.
                    self._results[full] = self._try(full, runs=1).results
                except JetsonDnnRtError as error:
                    logger.warning("%s: %s gives no results: %s", self.name, full, error)
                    continue
            return compare(self.plan.model.kind, self._results[full], results, str(full))
        return None

    def _count(self, decomposition: str) -> Costs | None:
        """Multiply-accumulates and parameters; None for a network without a static graph."""
        from jetson_dnn_rt.variants.measuring import macs

        if decomposition not in self._costs:
            try:
                graph = load_graph(self.plan.model, decomposition, self.library)
                shape = self.plan.model.input_shape
                self._costs[decomposition] = macs.count(graph, shape) if graph else None
            except (ModelError, BackendUnavailableError) as error:
                logger.info("%s: cannot be counted: %s", self.name, error)
                self._costs[decomposition] = None
        return self._costs[decomposition]

    def _key(self, spec: VariantSpec) -> EntryKey | None:
        plan, name = self.plan, spec.network
        if self._hashes.get(name) is None:
            stages = plan.config.stages
            self._hashes[name] = hash_variant(plan.model, spec, self.library, stages=stages)
        graph_hash = self._hashes[name]
        if graph_hash is None:
            return None
        return measurement_key(
            plan.model,
            spec,
            graph_hash,
            threads=plan.threads,
            stages=plan.config.stages,
            amp_lists=plan.tuning.amp_lists,
        )

    @cached_property
    def _frames(self) -> list[Frame]:
        """Frames on which variants are run and compared: none of them was fitted to these."""
        if self._held_out:
            return self._held_out
        frames = self._read_frames()
        return frames[-count_held_out(len(frames)) :] if len(frames) > 1 else frames

    def _read_frames(self) -> list[Frame]:
        self._progress("reading frames", 0, 1)
        frames = list(open_frames(self.settings.frames, self.settings.frame_count))
        if not frames:
            raise SourceError(f"there is no frame in {self.settings.frames}")
        return frames


def _find_maker(spec: VariantSpec, method: str, command: str) -> ModuleType:
    """The module that makes a variant's network and puts it into the library."""
    makers = collect("MAKERS")
    if method not in makers:
        raise ConfigurationError(
            f"variant {spec} is not in the library and {method} networks cannot be made here, as "
            "jetson_dnn_rt.lab is not installed; fix: make it on a machine with the whole package "
            f"(jetson-dnn-rt {command}, jetson-dnn-rt library export) and bring it here with "
            "jetson-dnn-rt library import"
        )
    return importlib.import_module(makers[method])
