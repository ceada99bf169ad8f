"""From a model and frames without labels to a smaller network that does nearly the same.

Frames decide where the budget goes (how much an error of each layer costs the results), what is
kept of each layer (the covariance of its inputs), and what the result learns from the full one.
Then both are timed in turn and compared on frames that nothing was fitted to.
"""

from __future__ import annotations

import gc
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.compress.decomposition import decompose, list_layers
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.variants.decomposition import (
    STEPS_FACT,
    Decomposition,
    load_reduced,
    store_reduced,
    stored_steps,
    weights_key,
)
from jetson_dnn_rt.variants.library.library import Entry, Library
from jetson_dnn_rt.variants.measuring.agreement import Agreement, compare
from jetson_dnn_rt.variants.measuring.measurement import TimeDistribution
from jetson_dnn_rt.variants.measuring.sample_frames import count_held_out, prepare_inputs, spread
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.running.variant_set import choose_default
from jetson_dnn_rt.variants.spec import FULL, DecompositionSpec, VariantSpec

if TYPE_CHECKING:
    import torch
    from torch import fx

    from jetson_dnn_rt.lab.compress.recovery import RecoveryReport
    from jetson_dnn_rt.models.graph.splitting import Split

__all__ = ["Compression", "Fit", "compress", "fit", "load_reduced", "stored_steps"]

logger = logging.getLogger(__name__)

_COVARIANCE_FRAMES = 256
_SENSITIVITY_FRAMES = 16
_WARM_UP_RUNS = 3
_FEW_FRAMES = 100
_LEAST_FRAMES_KEPT = 40
_LEAST_RUNS, _MOST_RUNS = 20, 300
_TIMING_NS = 6_000_000_000

Inputs = Sequence[npt.NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Fit:
    """A decomposed network that was fitted to frames.

    Attributes
    ----------
    graph : torch.fx.GraphModule
        The network; its nodes are named as those of the model's graph.
    decomposition : Decomposition
        What became of its layers.
    recovery : RecoveryReport or None
        None without recovery.
    data_aware : bool
        Whether the frames decided on ranks and factors.
    """

    graph: fx.GraphModule
    decomposition: Decomposition
    recovery: RecoveryReport | None
    data_aware: bool


@dataclass(frozen=True, eq=False)
class Compression:
    """What a model was compressed to, and what that is worth.

    Attributes
    ----------
    model : str
        As the user named it.
    fit : Fit
        The network.
    variant : VariantSpec
        The variant that was timed.
    time_before, time_after : TimeDistribution
        Of the network alone, run in turn on the same frames.
    agreement : Agreement
        With the full model, on frames that nothing was fitted to.
    frames : str
        Where the frames came from.
    frame_count : int
        How many there were.
    threads : int
        Of one run.
    entry : Entry or None
        In the library.
    """

    model: str
    fit: Fit
    variant: VariantSpec
    time_before: TimeDistribution
    time_after: TimeDistribution
    agreement: Agreement
    frames: str
    frame_count: int
    threads: int
    entry: Entry | None

    def to_json(self) -> dict[str, Any]:
        """Figures for programs; times in ms."""
        decomposition = self.fit.decomposition
        recovery = self.fit.recovery
        return {
            "model": self.model,
            "variant": str(self.variant),
            "macs_before": decomposition.macs_before,
            "macs_after": decomposition.macs_after,
            "macs_reduction": 1.0 - decomposition.macs_kept,
            "parameters_before": decomposition.parameters_before,
            "parameters_after": decomposition.parameters_after,
            "layers": [asdict(layer) for layer in decomposition.layers],
            "time_ms_before": self.time_before.p50_ns * 1e-6,
            "time_ms_after": self.time_after.p50_ns * 1e-6,
            "time_p99_ms_before": self.time_before.p99_ns * 1e-6,
            "time_p99_ms_after": self.time_after.p99_ns * 1e-6,
            "threads": self.threads,
            "agreement": self.agreement.value,
            "agreement_metric": self.agreement.metric,
            "agreement_frames": self.agreement.frames,
            "agreement_evidence": self.agreement.evidence,
            "frames": self.frames,
            "frame_count": self.frame_count,
            "data_aware": self.fit.data_aware,
            "recovery": asdict(recovery) if recovery else None,
            "note": decomposition.note,
            "library_entry": str(self.entry.path) if self.entry and self.entry.path else None,
        }


def compress(
    model: Model,
    spec: DecompositionSpec,
    *,
    frames: Iterable[Frame],
    source: str = "",
    recover_steps: int = 0,
    library: Library | None = None,
    backend: str = "",
    threads: int = 1,
    data_aware: bool = True,
    keep_slower: bool = False,
    seed: int = 0,
    progress: Progress = ignore_progress,
) -> Compression:
    """Decompose a model, let it recover, measure it, and keep it.

    Parameters
    ----------
    model : Model
        The model.
    spec : DecompositionSpec
        How.
    frames : iterable of Frame
        Two at least, as the camera gives them; no labels are needed. Some of them are held out
        and serve to judge alone (`variants.measuring.sample_frames.count_held_out`); of the others
        only what the network sees is kept in memory.
    source : str
        Where the frames came from, for the record.
    recover_steps : int
        Steps of recovery; 0 = none.
    library : Library, optional
        Where the network is kept, and the state of a recovery that was stopped.
    backend : str
        What is timed: layers, and the whole; by default `choose_default`.
    threads : int
        Of one run.
    data_aware : bool
        Let the frames decide on ranks and factors, not only on the recovery.
    keep_slower : bool
        Keep a layer decomposed although its time did not fall.
    seed : int
        Of the recovery.
    progress : callable
        See `jetson_dnn_rt.variants.progress`.

    Raises
    ------
    ConfigurationError
        When there are too few frames, or the spec or the back end cannot be used.
    ModelError
        When the model has no static graph, or cannot be run.
    BackendUnavailableError
        When the back end is missing.
    """
    if recover_steps < 0:
        raise ConfigurationError(f"recover_steps must be >= 0: {recover_steps}")
    from jetson_dnn_rt.models.graph.splitting import split

    variant = VariantSpec(str(spec), backend or choose_default(model).backend)
    whole = split(model, 1)
    inputs, judges = _read_frames(model, frames)
    if len(inputs) < _FEW_FRAMES:
        logger.warning(
            "%d frames of %s are few to fit a network to and to judge it by: take %d or more",
            len(inputs), source or "the camera", _FEW_FRAMES,
        )  # fmt: skip
    checkpoint = _checkpoint(library, model, spec)
    fitted = fit(
        whole.graph,
        model.input_shape,
        spec,
        inputs,
        recover_steps=recover_steps,
        head=model.head.name,
        data_aware=data_aware,
        keep_faster_on=None if keep_slower else (variant.backend, threads),
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
    )
    judging = _Judging(model, whole, fitted.graph, variant, judges, threads, progress)
    before, after = judging.measure_times()
    agreement = judging.measure_agreement()
    compression = Compression(
        model.source, fitted, variant, before, after, agreement, source, len(inputs), threads, None
    )
    if library is None:
        return compression
    facts = compression.to_json()
    facts = {STEPS_FACT: recover_steps, **{k: v for k, v in facts.items() if k != "layers"}}
    entry = store_reduced(library, model, fitted.graph, fitted.decomposition, facts)
    if checkpoint is not None and entry.path is not None:
        checkpoint.unlink(missing_ok=True)
    return Compression(**{**vars(compression), "entry": entry})


def fit(
    graph: fx.GraphModule,
    input_shape: tuple[int, ...],
    spec: DecompositionSpec,
    inputs: Inputs,
    *,
    recover_steps: int = 0,
    head: str = "",
    data_aware: bool = True,
    keep_faster_on: tuple[str, int] | None = None,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: Progress = ignore_progress,
) -> Fit:
    """Decompose a network with frames and let it recover on them.

    Parameters
    ----------
    graph : torch.fx.GraphModule
        The full network; left as it is.
    input_shape : tuple of int
        ``(1, 3, H, W)``.
    spec, recover_steps, data_aware, seed, progress
        As in `compress`.
    head : str, optional
        Layout of what the network returns.
    inputs : sequence of ndarray of float32, [1, 3, H, W]
        Frames as the network takes them, two at least.
    keep_faster_on : tuple of str and int, optional
        Back end and threads on which a layer must become faster to stay decomposed.
    checkpoint : Path, optional
        Of the recovery.

    Raises
    ------
    ConfigurationError, ModelError, BackendUnavailableError
        As in `compress`.
    """
    import torch

    from jetson_dnn_rt.lab.compress.covariance import collect
    from jetson_dnn_rt.lab.compress.layer_timing import keep_faster
    from jetson_dnn_rt.lab.compress.recovery import recover
    from jetson_dnn_rt.lab.compress.sensitivity import measure_sensitivities
    from jetson_dnn_rt.models.graph.layers import copy_folded

    full = copy_folded(graph)
    for parameter in full.parameters():
        parameter.requires_grad_(False)
    covariances, sensitivities = None, None
    if data_aware:
        layers = list_layers(full, spec.method)
        learnt = [torch.from_numpy(image) for image in inputs[: -count_held_out(len(inputs))]]
        covariances = collect(full, layers, _take(learnt, _COVARIANCE_FRAMES), progress)
        if spec.rule == "macs":  # the only rule under which layers compete
            some = _take(learnt if len(learnt) > 1 else [*learnt, *learnt], _SENSITIVITY_FRAMES)
            sensitivities = measure_sensitivities(full, layers, some, progress)
    reduced, decomposition = decompose(
        graph,
        input_shape,
        spec,
        covariances=covariances,
        sensitivities=sensitivities,
        keep_if=keep_faster(keep_faster_on[0], threads=keep_faster_on[1])
        if keep_faster_on
        else None,
        progress=progress,
    )
    report = None
    if recover_steps:
        report = recover(
            full, reduced, inputs,
            steps=recover_steps, head=head, seed=seed, checkpoint=checkpoint, progress=progress,
        )  # fmt: skip
    return Fit(reduced, decomposition, report, data_aware)


def _read_frames(
    model: Model, frames: Iterable[Frame]
) -> tuple[list[npt.NDArray[np.float32]], list[Frame]]:
    """All frames as the network sees them, and the held-out ones themselves."""
    last: deque[Frame] = deque()
    count = 0

    def watch() -> Iterator[Frame]:
        nonlocal count
        for frame in frames:
            last.append(frame)
            count += 1
            # Never fewer than will be held out in the end, however many more come.
            if len(last) > max(2 * count_held_out(count), _LEAST_FRAMES_KEPT):
                last.popleft()
            yield frame

    inputs = prepare_inputs(model, watch())
    if count < 2:
        raise ConfigurationError(f"compression needs two frames at least: {count}")
    return inputs, list(last)[-count_held_out(count) :]


def _take(images: Sequence[torch.Tensor], limit: int) -> list[torch.Tensor]:
    return [images[index] for index in spread(len(images), limit)]


def _checkpoint(library: Library | None, model: Model, spec: DecompositionSpec) -> Path | None:
    if library is None:
        return None
    return library.root / "recovery" / f"{weights_key(model, spec).digest}.pt"


class _Judging:
    """Runs the full and the decomposed network on held-out frames, in turn."""

    def __init__(
        self,
        model: Model,
        whole: Split,
        reduced: fx.GraphModule,
        variant: VariantSpec,
        frames: Sequence[Frame],
        threads: int,
        progress: Progress,
    ) -> None:
        self._model, self._variant = model, variant
        self._frames = frames
        self._parts = (model.part, whole.replace_graph(reduced).part(0))
        self._threads, self._progress = threads, progress

    def measure_times(self) -> tuple[TimeDistribution, TimeDistribution]:
        """Time both networks."""
        inputs = prepare_inputs(self._model, self._frames)
        times: tuple[list[int], list[int]] = ([], [])
        runners = [self._make_runner(index) for index in (0, 1)]
        was_enabled = gc.isenabled()
        try:
            buffers = [runner.allocate_input() for runner in runners]
            end_ns = time.perf_counter_ns() + _TIMING_NS
            gc.disable()
            for count in range(-_WARM_UP_RUNS, _MOST_RUNS):
                if count >= _LEAST_RUNS and time.perf_counter_ns() >= end_ns:
                    break
                for index in (0, 1) if count % 2 else (1, 0):
                    buffers[index][...] = inputs[count % len(inputs)]
                    start_ns = time.perf_counter_ns()
                    runners[index].run([buffers[index]])
                    if count >= 0:
                        times[index].append(time.perf_counter_ns() - start_ns)
                self._progress("timing", max(0, count + 1), _MOST_RUNS)
        finally:
            if was_enabled:
                gc.enable()
            for runner in runners:
                runner.close()
        self._progress("timing", _MOST_RUNS, _MOST_RUNS)
        before, after = (TimeDistribution.of("inference", column) for column in times)
        return before, after

    def measure_agreement(self) -> Agreement:
        """Compare what both say about the frames."""
        full, reduced = (self._decode_all(index) for index in (0, 1))
        reference = VariantSpec(FULL, self._variant.backend)
        return compare(self._model.kind, full, reduced, str(reference))

    def _decode_all(self, index: int) -> list[Result]:
        runner = self._make_runner(index)
        try:
            buffer = runner.allocate_input()
            preprocessor = Preprocessor(self._model.preprocessing, buffer)
            decode, settings = self._model.create_decoder(), DecoderSettings()
            results = []
            for frame in self._frames:
                geometry = preprocessor.write(frame)
                outputs = runner.to_host(runner.run([buffer]))
                results.append(decode(outputs, geometry, settings))
                done = index * len(self._frames) + len(results)
                self._progress("agreement", done, 2 * len(self._frames))
            return results
        finally:
            runner.close()

    def _make_runner(self, index: int) -> Runner:
        backend, precision = self._variant.backend, self._variant.precision
        return create_runner(self._parts[index], backend, precision, threads=self._threads)
