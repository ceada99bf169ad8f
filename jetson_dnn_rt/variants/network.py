# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A model cut into stages, in full and decomposed, as the parts that back ends run.

Parts that are slow to find or to make (the cuts, exported stages) are kept in the library.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jetson_dnn_rt.backends.base import Array, Runner
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError, RunCancelledError
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.models.sources.files import import_package
from jetson_dnn_rt.models.sources.null import NullOrigin
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.spec import FULL

if TYPE_CHECKING:
    import torch
    from torch import fx

    from jetson_dnn_rt.models.graph.splitting import Split

logger = logging.getLogger(__name__)

IMAGE = "image"
"""Name of the network's input among the boundary values."""

TOLERANCE = 1.05
"""A finer cover may take this much longer: every boundary is a chance to switch or to stop."""

_ONNX_FILE = "model.onnx"
_RUNS = 9
_WARM_UP_RUNS = 2


@dataclass(frozen=True)
class Piece:
    """A run of stages with its place among the others; it takes and gives boundary values."""

    part: Part  # the part that a back end prepares
    first: int  # its first stage, from 0
    span: int  # how many stages it is
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]  # empty for the whole network, which gives what it returns
    dead: tuple[str, ...]  # boundary values that no later stage needs
    results: tuple[str, ...]  # of the last piece: the values that the network returns; else empty

    @property
    def is_last(self) -> bool:
        """Whether the network's outputs come from it."""
        return bool(self.results) or not self.outputs


class Segment(NamedTuple):
    """A run of stages of the network, and the runner that executes it."""

    piece: Piece
    runner: Runner


def run_piece(
    piece: Piece, runner: Runner, values: dict[str, Array], *, wait: bool = True
) -> tuple[Array, ...]:
    """Run stages on the boundary values: outputs are added, those no longer needed removed.

    Without `wait` the run is done only when the runner's `to_host` returns. One that is cancelled
    leaves the values as they were: it may be done again.
    """
    before = {name: values[name] for name in piece.inputs} if runner.can_cancel else {}
    # Taken out before the run, so that memory can be used again from the last use on.
    taken = [values.pop(name) if name in piece.dead else values[name] for name in piece.inputs]
    try:
        given = runner.run(taken) if wait else runner.queue(taken)
    except RunCancelledError:
        values.update(before)
        raise
    values.update(zip(piece.outputs, given))  # noqa: B905  # the whole network names none
    return given


class Network:
    """The parts of a model, cut into `stages` stages where it has a static graph.

    One that has none, or fewer places to cut, has fewer stages, which is logged once. `cuts` are
    those of another network of the model, or some of them, which decide in place of `stages`.
    `imbalance` is that of `models.graph.splitting.split`, where it is not its default.
    """

    def __init__(
        self,
        model: Model,
        stages: int = 1,
        library: Library | None = None,
        cuts: Sequence[str] | None = None,
        imbalance: float | None = None,
    ) -> None:
        if stages < 1:
            raise ValueError(f"stages must be >= 1: {stages}")
        self.model = model
        self._library = library
        self._splits: dict[str, Split] = {}
        self._quantized: dict[str, bytes] = {}
        self.stages = 1
        if cuts:
            self._splits[FULL] = _import_split()(model, len(cuts) + 1, cuts)
            self.stages = len(cuts) + 1
        elif cuts is None and stages > 1:
            self._split(stages, imbalance)

    def _split(self, stages: int, imbalance: float | None) -> None:
        if isinstance(self.model.origin, NullOrigin):
            logger.warning("%s runs as one stage: a null model has no layers", self.model.source)
            return
        try:
            split = _import_split()
            given = {} if imbalance is None else {"imbalance": imbalance}
            more = "".join(f" {name}={value:g}" for name, value in given.items())
            key = self._key(self.model.model_hash, FULL, f"cuts stages={stages}{more}")
            cuts = self._load_cuts(key)
            found = split(self.model, stages, cuts, **given)
        except (ModelError, BackendUnavailableError) as error:
            logger.warning("%s runs as one stage: %s", self.model.source, error)
            return
        if cuts is None and self._library is not None:
            self._library.store(key, {}, {"cuts": list(found.cuts)}, model=self.model.source)
        if len(found) < stages:
            logger.warning(
                "%s runs as %d stages, %d were asked for: its graph has no more places to cut",
                self.model.source, len(found), stages,
            )  # fmt: skip
        self._splits[FULL] = found
        self.stages = len(found)

    @property
    def cuts(self) -> tuple[str, ...]:
        """Names of the cuts, one fewer than there are stages."""
        return self._splits[FULL].cuts if self.stages > 1 else ()

    def _load_cuts(self, key: EntryKey) -> list[str] | None:
        entry = self._library.load(key) if self._library is not None else None
        cuts = entry.facts.get("cuts") if entry is not None else None
        if isinstance(cuts, list) and all(isinstance(cut, str) for cut in cuts):
            return cuts
        return None

    def graph(self, decomposition: str = FULL) -> fx.GraphModule:
        """The network's graph in one of its forms; raises `ModelError` when it has none."""
        if isinstance(self.model.origin, NullOrigin):
            raise ModelError(f"{self.model.source} has no layers")
        if FULL not in self._splits:
            self._splits[FULL] = _import_split()(self.model, 1)
        return self._splits[decomposition].graph

    def add_decomposed(self, decomposition: str, graph: fx.GraphModule) -> None:
        """Add a decomposed graph, whose nodes are those of `graph`."""
        self.graph()
        self._splits[decomposition] = self._splits[FULL].replace_graph(graph)

    def add_quantized(self, form: str, data: bytes) -> None:
        """Add a quantized network, as ONNX, under the name of its variant.

        `ModelError` when it cannot be cut where this network is cut.
        """
        self._quantized[form] = data
        try:
            self.pieces(form)
        except ModelError:
            del self._quantized[form]
            raise

    def has(self, form: str) -> bool:
        """Whether this form of the network is known: a decomposition, or a quantized variant."""
        return form == FULL or form in self._splits or form in self._quantized

    def pieces(self, decomposition: str, count: int | None = None) -> list[Piece]:
        """The network as `count` runs of about equally many stages; by default one per stage.

        `decomposition`, or the name of a quantized variant.
        """
        count = self.stages if count is None else count
        return self.cover(decomposition, [i * self.stages // count for i in range(count + 1)])

    def cover(self, decomposition: str, bounds: Sequence[int]) -> list[Piece]:
        """The network as runs of its stages: ``bounds[i]`` to ``bounds[i + 1]``, from 0."""
        count = len(bounds) - 1
        if decomposition in self._quantized:
            return self._cut_quantized(self._quantized[decomposition], bounds)
        if decomposition == FULL and count == 1:
            # The network in its original form: an ONNX file, say, and not what was made of it.
            whole = self._store_onnx(self.model, FULL)
            return [Piece(whole, 0, self.stages, (IMAGE,), (), (IMAGE,), ())]
        split = self._splits[decomposition]
        parts = [split.part(a, b - a) for a, b in pairwise(bounds)]
        pieces = []
        for index, part in enumerate(parts):
            later = {name for other in parts[index + 1 :] for name in other.inputs}
            kept = later | set(split.outputs)
            inputs = tuple(IMAGE if name == split.image else name for name in part.inputs)
            pieces.append(
                Piece(
                    self._store_onnx(part, decomposition),
                    bounds[index],
                    bounds[index + 1] - bounds[index],
                    inputs,
                    part.outputs,
                    tuple(
                        renamed
                        for name, renamed in zip(part.inputs, inputs, strict=True)
                        if name not in kept
                    ),
                    split.outputs if index == count - 1 else (),
                )
            )
        return pieces

    def _cut_quantized(self, data: bytes, bounds: Sequence[int]) -> list[Piece]:
        """Cut a quantized network where the full one is cut: the nodes have the same names."""
        from jetson_dnn_rt.models.graph.quantized_part import cut

        pieces = []
        for piece in self.cover(FULL, bounds):
            inputs = dict(zip(piece.inputs, piece.part.input_shapes, strict=True))
            part = cut(data, piece.part.name, inputs, piece.outputs)
            pieces.append(replace(piece, part=part))
        return pieces

    def _store_onnx(self, part: Part, decomposition: str) -> Part:
        if self._library is None or (isinstance(part, Model) and not part.origin.exports):
            return part
        key = self._key(part.graph_hash, decomposition, "", part.input_shapes)
        return _StoredPart(part, key, self._library, self.model.source)

    def _key(
        self,
        graph_hash: str,
        decomposition: str,
        options: str,
        shapes: tuple[tuple[int, ...], ...] = (),
    ) -> EntryKey:
        import torch

        return EntryKey(
            self.model.model_hash,
            graph_hash,
            decomposition,
            "artefact",
            backend="onnx",
            backend_version=f"torch {torch.__version__}",
            shapes=shapes or (self.model.input_shape,),
            options=options,
        )


def _import_split() -> Callable[..., Split]:
    """`models.graph.splitting.split`; `BackendUnavailableError` without torch, which it is of."""
    import_package("torch", "cutting a network into stages")
    from jetson_dnn_rt.models.graph.splitting import split

    return split


class _StoredPart:
    """A part whose export is kept in the library."""

    def __init__(self, part: Part, key: EntryKey, library: Library, model: str) -> None:
        self._part, self._key, self._library, self._model = part, key, library, model
        self.name = part.name
        self.input_shapes = part.input_shapes
        self.graph_hash = part.graph_hash
        self.inner_outputs = part.inner_outputs

    def torch_module(self) -> torch.nn.Module:
        return self._part.torch_module()

    def onnx_model(self) -> bytes:
        entry = self._library.load(self._key)
        if entry is not None and _ONNX_FILE in entry.files:
            return entry.files[_ONNX_FILE]
        data = self._part.onnx_model()
        self._library.store(self._key, {_ONNX_FILE: data}, {}, model=self._model)
        return data


# -- into how many runs a back end takes the stages ----------------------------------------------


def choose_cover(
    network: Network,
    decomposition: str,
    make_runner: Callable[[Part], Runner],
    *,
    finest: bool = False,
    runs: int = 0,
    tolerance: float = TOLERANCE,
) -> list[Segment]:
    """Make the finest cover that is nearly as fast as the fastest.

    Back ends that fuse layers and choose memory layouts for a whole network lose at every
    boundary; torch does not. So one run per stage is tried first, then half as many, and so on
    down to one. The runners of the covers that were not chosen are closed.

    Parameters
    ----------
    finest : bool
        One run per stage, whatever it costs.
    runs : int
        Exactly this many, one of `list_counts`, whatever they cost: a cover that was chosen
        before, to get the same bits. 0 = measure.
    tolerance : float
        The finest cover may take this many times the time of the fastest.
    """
    covers: dict[int, list[Segment]] = {}
    try:
        known = [network.stages] if finest else [runs] if runs else list_counts(network.stages)
        chosen = known[0]
        for count in known:
            pieces = network.pieces(decomposition, count)
            covers[count] = segments = []
            for piece in pieces:
                segments.append(Segment(piece, make_runner(piece.part)))
        if len(covers) > 1:
            times_ns = measure_in_turns(covers)
            limit = min(times_ns.values()) * tolerance
            chosen = max(count for count, time_ns in times_ns.items() if time_ns <= limit)
        return covers.pop(chosen)
    finally:
        for segments in covers.values():
            for segment in segments:
                segment.runner.close()


def list_counts(stages: int) -> list[int]:
    """Numbers of runs that are tried for a number of stages, the finest first."""
    counts = [stages]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts


def measure_segments(segments: Sequence[Segment], runs: int = _RUNS) -> float:
    """Median time of the network over some runs on a grey picture, in nanoseconds."""
    return measure_in_turns({0: segments}, runs)[0]


def measure_in_turns(
    covers: Mapping[int, Sequence[Segment]], runs: int = _RUNS
) -> dict[int, float]:
    """`measure_segments` of several covers, run in turns so that other load affects all alike.

    Every other turn is in the opposite order: what ran before a cover leaves its caches to it.
    """
    images = {count: segments[0].runner.allocate_input() for count, segments in covers.items()}
    for image in images.values():
        image[:] = np.float32(0.45)
    taken: dict[int, list[int]] = {count: [] for count in covers}
    for number in range(_WARM_UP_RUNS + runs):
        for count, segments in list(covers.items())[:: -1 if number % 2 else 1]:
            values: dict[str, Array] = {IMAGE: images[count]}
            start_ns = time.perf_counter_ns()
            for segment in segments:
                run_piece(segment.piece, segment.runner, values)
            taken[count].append(time.perf_counter_ns() - start_ns)
    return {
        count: statistics.median(times_ns[_WARM_UP_RUNS:]) for count, times_ns in taken.items()
    }
