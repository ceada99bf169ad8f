"""Decomposed networks in the library: their weights, and what became of each layer."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.variants.decomposition import Decomposition, apply_structure
from jetson_dnn_rt.variants.library.library import Entry, EntryKey, Library
from jetson_dnn_rt.variants.spec import DecompositionSpec

if TYPE_CHECKING:
    from torch import fx

logger = logging.getLogger(__name__)

WEIGHTS_FILE = "weights.safetensors"
DECOMPOSITION_FILE = "decomposition.json"
STEPS_FACT = "recover_steps"


def weights_key(model: Model, spec: DecompositionSpec) -> EntryKey:
    """Where the decomposed network of a model is in a library."""
    return EntryKey(model.model_hash, model.part.graph_hash, str(spec), "weights")


def encode_weights(graph: fx.GraphModule) -> bytes:
    """The weights of a network as safetensors."""
    import safetensors.torch

    # Cloned: the format has no tensors that share their memory.
    state = {
        name: value.detach().cpu().contiguous().clone()
        for name, value in graph.state_dict().items()
    }
    data: bytes = safetensors.torch.save(state)
    return data


def store_reduced(
    library: Library,
    model: Model,
    graph: fx.GraphModule,
    decomposition: Decomposition,
    facts: Mapping[str, Any],
) -> Entry:
    """Keep a decomposed network, in the place of an earlier one of the same name.

    Parameters
    ----------
    library : Library
        Where.
    model : Model
        What was decomposed.
    graph : torch.fx.GraphModule
        The network.
    decomposition : Decomposition
        What became of its layers.
    facts : mapping
        What JSON can hold; `STEPS_FACT` are the steps of its recovery.
    """
    files = {
        WEIGHTS_FILE: encode_weights(graph),
        DECOMPOSITION_FILE: json.dumps(decomposition.to_json(), allow_nan=False).encode(),
    }
    key = weights_key(model, decomposition.spec)
    return library.store(key, files, facts, model=model.source)


def load_reduced(model: Model, spec: DecompositionSpec, library: Library) -> fx.GraphModule | None:
    """Load a decomposed network.

    Returns
    -------
    torch.fx.GraphModule or None
        In evaluation mode, its nodes named as those of the model's graph. None where the library
        has none that fits, which is said if it has one.

    Raises
    ------
    ModelError
        When the model has no static graph.
    """
    entry = library.load(weights_key(model, spec))
    if entry is None:
        return None
    from jetson_dnn_rt.models.graph.splitting import split

    graph = split(model, 1).graph
    try:
        return _restore(graph, entry)
    except (ModelError, KeyError, ValueError) as error:
        logger.warning(
            "library entry %s does not fit %s: %s; it is to be built anew",
            entry.path, model.source, error,
        )  # fmt: skip
        return None


def stored_steps(model: Model, spec: DecompositionSpec, library: Library) -> int | None:
    """Recovery steps of the decomposed network in the library; None where there is none."""
    entry = library.load(weights_key(model, spec))
    if entry is None:
        return None
    steps = entry.facts.get(STEPS_FACT, 0)
    return steps if isinstance(steps, int) else 0


def read_decomposition(entry: Entry) -> Decomposition:
    """What became of the layers of a stored network.

    Raises
    ------
    ModelError, KeyError, ValueError
        When the entry has no such file, or it is damaged.
    """
    return Decomposition.from_json(json.loads(entry.files[DECOMPOSITION_FILE]))


def _restore(graph: fx.GraphModule, entry: Entry) -> fx.GraphModule:
    import safetensors
    import safetensors.torch

    reduced = apply_structure(graph, read_decomposition(entry))
    try:
        state = safetensors.torch.load(entry.files[WEIGHTS_FILE])
    except safetensors.SafetensorError as error:
        raise ModelError(f"{WEIGHTS_FILE}: {error}") from error
    expected = reduced.state_dict()
    wrong = sorted(
        name
        for name in state.keys() | expected.keys()
        if name not in state
        or name not in expected
        or state[name].shape != expected[name].shape
        or state[name].dtype != expected[name].dtype
    )
    if wrong:
        raise ModelError(f"{len(wrong)} tensors differ, the first is {wrong[0]!r}")
    reduced.load_state_dict(state)
    return reduced.eval()
