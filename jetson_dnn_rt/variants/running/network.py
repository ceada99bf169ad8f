"""A model cut into stages, in full and decomposed, as the parts that back ends run.

What is slow to find or to make (the cuts, exported stages) is kept in the library.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from jetson_dnn_rt.backends.base import Array, Runner
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.models.sources.null import NullOrigin
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.running.envelope import IMAGE
from jetson_dnn_rt.variants.spec import FULL

if TYPE_CHECKING:
    import torch
    from torch import fx

    from jetson_dnn_rt.models.graph.splitting import Split

logger = logging.getLogger(__name__)

_ONNX_FILE = "model.onnx"


@dataclass(frozen=True)
class Piece:
    """A run of stages, with its place among the others.

    Attributes
    ----------
    part : Part
        What a back end makes ready.
    first, span : int
        The first stage of the network that it does, from 0, and how many.
    inputs, outputs : tuple of str
        Names of the boundary values that it takes and gives. `outputs` is empty for the whole
        network, which gives what it returns.
    dead : tuple of str
        Boundary values that no later stage needs.
    results : tuple of str
        For the last run of stages, the values that the network returns; else empty.
    """

    part: Part
    first: int
    span: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dead: tuple[str, ...]
    results: tuple[str, ...]


def run_piece(
    piece: Piece, runner: Runner, values: dict[str, Array], *, wait: bool = True
) -> tuple[Array, ...]:
    """Run stages on the boundary values: what nobody needs afterwards leaves them, the rest joins.

    Parameters
    ----------
    piece : Piece
        What is run.
    runner : Runner
        Made for its part.
    values : dict of str to array
        The boundary values by name; changed.
    wait : bool
        Whether it shall be done; else it is when the runner's `to_host` returns.

    Returns
    -------
    tuple of array
        What the runner gave.
    """
    # Taken out before the run, so that memory can be used again from the last use on.
    taken = [values.pop(name) if name in piece.dead else values[name] for name in piece.inputs]
    given = runner.run(taken) if wait else runner.queue(taken)
    values.update(zip(piece.outputs, given))  # noqa: B905  # the whole network names none
    return given


class Network:
    """The parts of a model.

    Parameters
    ----------
    model : Model
        The network.
    stages : int
        Into how many stages to cut it, >= 1; a network that has no static graph stays one, which
        is said once.
    library : Library, optional
        Where cuts and exported parts are kept.

    Attributes
    ----------
    stages : int
        How many there are.
    """

    def __init__(self, model: Model, stages: int = 1, library: Library | None = None) -> None:
        if stages < 1:
            raise ValueError(f"stages must be >= 1: {stages}")
        self.model = model
        self._library = library
        self._splits: dict[str, Split] = {}
        self.stages = 1
        if stages > 1:
            self._split(stages)

    def _split(self, stages: int) -> None:
        from jetson_dnn_rt.models.graph.splitting import split

        if isinstance(self.model.origin, NullOrigin):
            logger.warning("%s runs as one stage: a null model has no layers", self.model.source)
            return
        key = self._key(self.model.model_hash, FULL, f"cuts stages={stages}")
        try:
            cuts = self._load_cuts(key)
            found = split(self.model, stages, cuts)
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

    def _load_cuts(self, key: EntryKey) -> list[str] | None:
        entry = self._library.load(key) if self._library is not None else None
        cuts = entry.facts.get("cuts") if entry is not None else None
        if isinstance(cuts, list) and all(isinstance(cut, str) for cut in cuts):
            return cuts
        return None

    def graph(self, decomposition: str = FULL) -> fx.GraphModule:
        """The graph of the network in one of its forms; from the full one the others are made.

        Raises
        ------
        ModelError
            When it has no static graph.
        """
        from jetson_dnn_rt.models.graph.splitting import split

        if isinstance(self.model.origin, NullOrigin):
            raise ModelError(f"{self.model.source} has no layers")
        if FULL not in self._splits:
            self._splits[FULL] = split(self.model, 1)
        return self._splits[decomposition].graph

    def add_decomposed(self, decomposition: str, graph: fx.GraphModule) -> None:
        """Take a decomposed graph, whose nodes are those of `graph`."""
        self.graph()
        self._splits[decomposition] = self._splits[FULL].replace_graph(graph)

    def has(self, decomposition: str) -> bool:
        """Whether parts of this decomposition can be had."""
        return decomposition == FULL or decomposition in self._splits

    def pieces(self, decomposition: str, count: int | None = None) -> list[Piece]:
        """The network as `count` runs of about equally many stages; by default one per stage."""
        count = self.stages if count is None else count
        if decomposition == FULL and count == 1:
            # The network as it came: an ONNX file, say, and not what was made of it.
            return [self._make_whole()]
        split = self._splits[decomposition]
        bounds = [index * self.stages // count for index in range(count + 1)]
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

    def _make_whole(self) -> Piece:
        part = self._store_onnx(self.model.part, FULL)
        return Piece(part, 0, self.stages, (IMAGE,), (), (IMAGE,), ())

    def _store_onnx(self, part: Part, decomposition: str) -> Part:
        from jetson_dnn_rt.models.sources.onnx import OnnxOrigin

        native = isinstance(getattr(part, "origin", None), (OnnxOrigin, NullOrigin))
        if self._library is None or native:
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


class _StoredPart:
    """A part whose export is kept in the library."""

    def __init__(self, part: Part, key: EntryKey, library: Library, model: str) -> None:
        self._part, self._key, self._library, self._model = part, key, library, model
        self.name = part.name
        self.input_shapes = part.input_shapes
        self.graph_hash = part.graph_hash

    def torch_module(self) -> torch.nn.Module:
        return self._part.torch_module()

    def onnx_model(self) -> bytes:
        entry = self._library.load(self._key)
        if entry is not None and _ONNX_FILE in entry.files:
            return entry.files[_ONNX_FILE]
        data = self._part.onnx_model()
        self._library.store(self._key, {_ONNX_FILE: data}, {}, model=self._model)
        return data
