# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Compression of a model, with frames and without labels, to a smaller network.

Frames decide where the budget goes (the cost of an error of each layer for the results), what is
kept of each layer (the covariance of its inputs), and what the result learns from the full one.
Then both are compared on held-out frames. Their times are measured by `lab.compress.measuring`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.compress.decomposition import KeepIf, decompose, list_layers
from jetson_dnn_rt.lab.compress.timing import Inputs, keep_faster, open_pair
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.variants.decomposition import (
    STEPS_FACT,
    Decomposition,
    store_reduced,
    weights_key,
)
from jetson_dnn_rt.variants.library.library import Entry, Library
from jetson_dnn_rt.variants.measuring.agreement import Agreement, compare
from jetson_dnn_rt.variants.measuring.sample_frames import count_held_out, prepare_inputs, spread
from jetson_dnn_rt.variants.measuring.store import AGREEMENT_FACT, READING_FACT
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.running.variant_set import choose_default
from jetson_dnn_rt.variants.spec import FULL, DecompositionSpec, VariantSpec

if TYPE_CHECKING:
    from torch import fx

    from jetson_dnn_rt.lab.compress.recovery import RecoveryReport
    from jetson_dnn_rt.models.graph.splitting import Split

logger = logging.getLogger(__name__)

_COVARIANCE_FRAMES = 256
_SENSITIVITY_FRAMES = 16
_FEW_FRAMES = 100
_LEAST_FRAMES_KEPT = 40


@dataclass(frozen=True, eq=False)
class Fit:
    """Decomposed network, fitted to frames."""

    graph: fx.GraphModule  # with the node names of the model's graph
    decomposition: Decomposition
    recovery: RecoveryReport | None
    data_aware: bool  # whether the frames decided on ranks and factors


@dataclass(frozen=True, eq=False)
class Compression:
    """A compressed model, compared with the full one."""

    model: str  # as the user named it
    fit: Fit
    variant: VariantSpec  # that ran
    agreement: Agreement  # with the full model, on held-out frames
    frames: str  # their source
    frame_count: int
    threads: int  # of one run
    held_out: Sequence[Frame]  # which nothing was fitted to
    entry: Entry | None  # in the library

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        decomposition, recovery = self.fit.decomposition, self.fit.recovery
        counts = decomposition.to_json()
        del counts["spec"]
        return {
            "model": self.model,
            "variant": str(self.variant),
            **counts,
            "macs_reduction": 1.0 - decomposition.macs_kept,
            "threads": self.threads,
            "agreement": self.agreement.value,
            "agreement_metric": self.agreement.metric,
            "agreement_frames": self.agreement.frames,
            "agreement_evidence": self.agreement.evidence,
            "frames": self.frames,
            "frame_count": self.frame_count,
            "data_aware": self.fit.data_aware,
            "recovery": recovery and asdict(recovery),
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
    settings: DecoderSettings | None = None,
    progress: Progress = ignore_progress,
) -> Compression:
    """Decompose a model, let it recover, compare it, and put it into the library.

    How far it agrees with the full model is kept with it.

    Parameters
    ----------
    frames : iterable of Frame
        At least two, as the camera delivers them. Some are held out for the comparison
        (`variants.measuring.sample_frames.count_held_out`); of the others only the network's
        inputs are kept in memory.
    source : str
        Source of the frames, for the record.
    recover_steps : int
        0 = no recovery.
    library : Library, optional
        Where the network and the state of an interrupted recovery are stored.
    backend : str
        Back end on which layers are timed and the whole network runs; by default
        `choose_default`'s.
    threads : int
        Threads of one run.
    data_aware : bool
        Let the frames decide on ranks and factors, not only on the recovery.
    keep_slower : bool
        Keep decomposed layers that are not faster.
    seed : int
        Seed of the recovery.
    settings : DecoderSettings, optional
        Thresholds under which both are compared.
    """
    if recover_steps < 0:
        raise ConfigurationError(f"recover_steps must be >= 0: {recover_steps}")
    variant = VariantSpec(str(spec), backend or choose_default(model).backend)
    whole = check_budget(model, spec)
    inputs, judges = _read_frames(model, frames)
    if len(inputs) < _FEW_FRAMES:
        logger.warning(
            "%d frames of %s are few to fit and judge a network; fix: take %d or more",
            len(inputs), source or "the camera", _FEW_FRAMES,
        )  # fmt: skip
    checkpoint = None
    if library is not None:
        checkpoint = library.root / "recovery" / f"{weights_key(model, spec).digest}.pt"
    fitted = fit(
        whole.graph,
        model.input_shape,
        spec,
        inputs,
        recover_steps=recover_steps,
        head=model.head.name,
        data_aware=data_aware,
        keep_if=None if keep_slower else keep_faster(variant.backend, threads=threads),
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
    )
    smaller = whole.replace_graph(fitted.graph)
    part = smaller.part(0)
    parts = (model, part)
    # A part gives its values as they are computed, the decoder takes them as they are returned.
    places = (None, [part.outputs.index(name) for name in smaller.outputs])

    def make_runner(index: int) -> Runner:
        return create_runner(parts[index], variant.backend, variant.precision, threads=threads)

    with open_pair(make_runner) as runners:
        full, reduced = (
            _decode_all(model, runners, i, places[i], judges, settings, progress) for i in (0, 1)
        )
    agreement = compare(model.kind, full, reduced, str(VariantSpec(FULL, variant.backend)))
    compression = Compression(
        model.source, fitted, variant, agreement, source, len(inputs), threads, judges, entry=None
    )
    if library is None:
        return compression
    facts = {
        **compression.to_json(),
        READING_FACT: model.reading,
        AGREEMENT_FACT: asdict(agreement),
    }
    facts = {STEPS_FACT: recover_steps, **{k: v for k, v in facts.items() if k != "layers"}}
    entry = store_reduced(library, model, fitted.graph, fitted.decomposition, facts)
    if checkpoint is not None and entry.path is not None:
        checkpoint.unlink(missing_ok=True)
    return replace(compression, entry=entry)


def check_budget(model: Model, spec: DecompositionSpec) -> Split:
    """Refuse a budget that no frames bring into reach; returns the whole network.

    Raises `ConfigurationError` for such a budget, `ModelError` for a network without a static
    graph.
    """
    from jetson_dnn_rt.lab.compress.smallest_share import require_share
    from jetson_dnn_rt.models.graph.splitting import split
    from jetson_dnn_rt.variants.measuring.macs import count

    whole = split(model, 1)
    require_share(whole.graph, count(whole.graph, model.input_shape), spec)
    return whole


def fit(
    graph: fx.GraphModule,
    input_shape: tuple[int, ...],
    spec: DecompositionSpec,
    inputs: Inputs,
    *,
    recover_steps: int = 0,
    head: str = "",
    data_aware: bool = True,
    keep_if: KeepIf | None = None,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: Progress = ignore_progress,
) -> Fit:
    """Decompose a network and let it recover, both with frames.

    Parameters
    ----------
    graph : torch.fx.GraphModule
        The full network; not modified.
    input_shape : tuple of int
        ``(1, 3, H, W)``.
    inputs : sequence of ndarray of float32, [1, 3, H, W]
        Frames as the network takes them, at least two.
    head : str, optional
        Layout of the network's outputs.
    keep_if : callable, optional
        As in `decompose`.
    checkpoint : Path, optional
        Checkpoint file of the recovery.
    """
    import torch

    from jetson_dnn_rt.lab.compress.covariance import collect
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
        some = [learnt[index] for index in spread(len(learnt), _COVARIANCE_FRAMES)]
        covariances = collect(full, layers, some, progress)
        if spec.rule == "macs":  # the only rule under which layers compete
            some = [learnt[index] for index in spread(len(learnt), _SENSITIVITY_FRAMES)]
            some = some if len(some) > 1 else [*some, *some]
            sensitivities = measure_sensitivities(full, layers, some, progress)
    reduced, decomposition = decompose(
        graph,
        input_shape,
        spec,
        covariances=covariances,
        sensitivities=sensitivities,
        keep_if=keep_if,
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
    """All frames as inputs of the network, and the held-out frames themselves."""
    last: deque[Frame] = deque()
    count = 0

    def watch() -> Iterator[Frame]:
        nonlocal count
        for frame in frames:
            last.append(frame)
            count += 1
            # Never fewer than will be held out in the end, however many more follow.
            if len(last) > max(2 * count_held_out(count), _LEAST_FRAMES_KEPT):
                last.popleft()
            yield frame

    inputs = prepare_inputs(model, watch())
    if count < 2:
        raise ConfigurationError(f"compression needs two frames at least: {count}")
    return inputs, list(last)[-count_held_out(count) :]


def _decode_all(
    model: Model,
    runners: tuple[Runner, Runner],
    index: int,
    places: Sequence[int] | None,
    frames: Sequence[Frame],
    settings: DecoderSettings | None,
    progress: Progress,
) -> list[Result]:
    """Results of one of the two networks on all frames.

    `places` are those of the network's outputs among what its runner returns; None = the same.
    """
    runner = runners[index]
    buffer = runner.allocate_input()
    preprocessor = Preprocessor(model.preprocessing, buffer)
    decode, settings = model.create_decoder(), settings or DecoderSettings()
    results = []
    for frame in frames:
        geometry = preprocessor.write(frame)
        given = runner.run([buffer])
        outputs = runner.to_host(given if places is None else [given[i] for i in places])
        results.append(decode(outputs, geometry, settings))
        progress("agreement", index * len(frames) + len(results), 2 * len(frames))
    return results
