# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Decomposed networks: the layers replaced, their ranks, and their form in the library.

`apply_structure` makes the modules of one, to load weights into; `lab.compress` finds the weights.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import torch
from torch import fx, nn

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.graph.layers import copy_folded, replace_module
from jetson_dnn_rt.models.graph.splitting import split
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.files import import_package
from jetson_dnn_rt.safety.records import Count, one_of, read_record, within
from jetson_dnn_rt.variants.library.library import Entry, EntryKey, Library
from jetson_dnn_rt.variants.spec import DecompositionSpec

logger = logging.getLogger(__name__)

WEIGHTS_FILE = "weights.safetensors"
DECOMPOSITION_FILE = "decomposition.json"
STEPS_FACT = "recover_steps"

Ranks = tuple[Annotated[int, within(1, 1 << 31)], ...]


@dataclass(frozen=True)
class LayerDecomposition:
    """One layer and its decomposition; multiply-accumulates are per picture."""

    name: str  # path of the submodule in the graph
    kind: Annotated[str, one_of("conv", "linear")]
    ranks: Ranks  # (R3, R4) per group, or (R,); empty where the layer was never decomposed
    macs_before: Count
    macs_after: Count
    error: Annotated[float, within(0, sys.float_info.max)]
    """Relative error of what `metric` names; 0 without ranks."""
    metric: Annotated[str, one_of("weight", "output")]
    """"output" where the covariance of the inputs was known."""
    kept: bool  # whether the network has the decomposed layer
    reason: str  # why not: "1x1", "not faster: 0.41 ms against 0.38"; empty where kept

    def __post_init__(self) -> None:
        count = 1 if self.kind == "linear" else 2
        if len(self.ranks) != count and (self.kept or self.ranks):
            raise ValueError(f"ranks of {self.name!r} must be {count}: {self.ranks}")


@dataclass(frozen=True)
class Decomposition:
    """A network and the decomposition of its layers.

    The counts are of the whole network, including what cannot be decomposed; batch norms are gone
    afterwards. `note` has the reason why the budget could not be reached, and the share that was;
    else it is empty.
    """

    spec: DecompositionSpec
    layers: tuple[LayerDecomposition, ...]  # every one, in the order of their first calls
    macs_before: Count
    macs_after: Count
    parameters_before: Count
    parameters_after: Count
    note: str = ""

    def __post_init__(self) -> None:
        if len({layer.name for layer in self.layers}) != len(self.layers):
            raise ValueError("layers has a name twice")

    @property
    def macs_kept(self) -> float:
        """Share of the multiply-accumulates that is left."""
        return self.macs_after / self.macs_before if self.macs_before else 1.0

    def to_json(self) -> dict[str, Any]:
        """Values that `json` writes."""
        return {**asdict(self), "spec": str(self.spec)}

    @staticmethod
    def from_json(data: object) -> Decomposition:
        """Read the output of `to_json`; raises `ModelError` for anything else."""
        try:
            return read_record(Decomposition, data, "decomposition")
        except ValueError as error:
            raise ModelError(str(error)) from error


@dataclass(frozen=True)
class Layer:
    """A convolution or linear layer of a graph; its weight is [groups x outputs, inputs, taps]."""

    kind: Literal["conv", "linear"]
    groups: int
    outputs: int
    inputs: int
    taps: int
    reason: str  # why it cannot be decomposed; empty where it can


def describe_layer(module: nn.Module, method: str) -> Layer:
    """Describe whether and how a layer can be decomposed.

    ``tucker`` takes convolutions larger than 1x1, and linear layers as products of two; ``svd``
    takes all of them as products of two, a convolution as kh x kw and 1x1.
    """
    if isinstance(module, nn.Linear):
        return Layer("linear", 1, module.out_features, module.in_features, 1, "")
    if not isinstance(module, nn.Conv2d):
        raise TypeError(f"module must be a Conv2d or Linear: {type(module).__name__}")
    groups, taps = module.groups, math.prod(module.kernel_size)
    inputs, outputs = module.in_channels // groups, module.out_channels // groups
    reason = ""
    if inputs == 1 and groups > 1:
        reason = "depthwise"
    elif taps == 1 and method == "tucker":
        reason = "1x1"
    return Layer("conv", groups, outputs, inputs, taps, reason)


def find_layers(graph: fx.GraphModule, method: str) -> dict[str, Layer]:
    """Describe the layers of a graph by their paths, in the order of their first calls."""
    modules = dict(graph.named_modules(remove_duplicate=False))
    return {
        node.target: describe_layer(modules[node.target], method)
        for node in graph.graph.nodes
        if node.op == "call_module" and type(modules[node.target]) in (nn.Conv2d, nn.Linear)
    }


def build_structure(module: nn.Module, ranks: Ranks) -> nn.Sequential:
    """Make the layers that replace a convolution or linear layer, with all weights zero.

    The last one has a bias even where the layer had none: it takes up the mean of what the
    others lose. Raises `ModelError` when the ranks do not fit the layer.
    """
    weight = getattr(module, "weight", None)
    assert isinstance(weight, torch.Tensor)
    if isinstance(module, nn.Linear):
        if len(ranks) != 1 or not 1 <= ranks[0] <= min(module.in_features, module.out_features):
            raise ModelError(f"ranks {ranks} do not fit {module}")
        built = nn.Sequential(
            nn.Linear(module.in_features, ranks[0], bias=False, device="meta"),
            nn.Linear(ranks[0], module.out_features, device="meta"),
        )
    else:
        assert isinstance(module, nn.Conv2d)
        built = nn.Sequential(*_build_convolutions(module, ranks))
    built = built.to_empty(device=weight.device).to(weight.dtype)
    for parameter in built.parameters():
        nn.init.zeros_(parameter)
    return built.eval()


def _build_convolutions(conv: nn.Conv2d, ranks: Ranks) -> list[nn.Conv2d]:
    groups = conv.groups
    inputs, outputs = conv.in_channels // groups, conv.out_channels // groups
    if len(ranks) != 2 or not (1 <= ranks[0] <= inputs and 1 <= ranks[1] <= outputs):
        raise ModelError(f"ranks {ranks} do not fit {conv}")
    inner, outer = groups * ranks[0], groups * ranks[1]
    layers = [
        nn.Conv2d(
            inner,
            outer,
            conv.kernel_size,  # type: ignore[arg-type,unused-ignore]
            conv.stride,  # type: ignore[arg-type,unused-ignore]
            conv.padding,  # type: ignore[arg-type,unused-ignore]
            conv.dilation,  # type: ignore[arg-type,unused-ignore]
            groups=groups,
            bias=ranks[1] == outputs,
            padding_mode=conv.padding_mode,
            device="meta",
        )
    ]
    if ranks[0] < inputs:
        layers.insert(
            0, nn.Conv2d(conv.in_channels, inner, 1, groups=groups, bias=False, device="meta")
        )
    if ranks[1] < outputs:
        layers.append(nn.Conv2d(outer, conv.out_channels, 1, groups=groups, device="meta"))
    return layers


def apply_structure(graph: fx.GraphModule, decomposition: Decomposition) -> fx.GraphModule:
    """Copy a network with the structure of a decomposition, to load a state dict into.

    The weights of decomposed layers are zero. Raises `ModelError` when the decomposition is of
    another network.
    """
    reduced = copy_folded(graph)
    found = find_layers(graph, decomposition.spec.method)
    listed = {layer.name: layer for layer in decomposition.layers}
    if set(found) != set(listed):
        different = sorted(set(found) ^ set(listed))
        raise ModelError(f"the decomposition is of another network: see {different[0]!r}")
    for name, layer in listed.items():
        if layer.kind != found[name].kind:
            raise ModelError(f"layer {name!r} is a {found[name].kind}, not a {layer.kind}")
        if layer.kept:
            built = build_structure(reduced.get_submodule(name), layer.ranks)
            replace_module(reduced, name, built)
    return reduced


def weights_key(model: Model, spec: DecompositionSpec) -> EntryKey:
    """Key of a model's decomposed network in a library."""
    return EntryKey(model.model_hash, model.graph_hash, str(spec), "weights")


def encode_weights(graph: fx.GraphModule) -> bytes:
    """Encode the weights of a network as safetensors."""
    # Cloned: the format has no tensors that share their memory.
    state = {
        name: value.detach().cpu().contiguous().clone()
        for name, value in graph.state_dict().items()
    }
    import_package("safetensors", "a decomposed network in a file")
    # Imported here: benchmarks that decompose run where torch and numpy alone are installed.
    from safetensors.torch import save

    data: bytes = save(state)
    return data


def store_reduced(
    library: Library,
    model: Model,
    graph: fx.GraphModule,
    decomposition: Decomposition,
    facts: Mapping[str, Any],
) -> Entry:
    """Store a decomposed network, replacing an earlier one of the same name.

    `facts` are JSON values; `STEPS_FACT` are the steps of its recovery.
    """
    files = {
        WEIGHTS_FILE: encode_weights(graph),
        DECOMPOSITION_FILE: json.dumps(decomposition.to_json(), allow_nan=False).encode(),
    }
    key = weights_key(model, decomposition.spec)
    return library.store(key, files, facts, model=model.source)


def load_reduced(model: Model, spec: DecompositionSpec, library: Library) -> fx.GraphModule | None:
    """Load a decomposed network, in evaluation mode, its nodes named as in the model's graph.

    None where the library has none that fits; one that does not fit is logged. Raises `ModelError`
    when the model has no static graph.
    """
    entry = library.load(weights_key(model, spec))
    if entry is None:
        return None
    graph = split(model, 1).graph
    try:
        return _restore(graph, entry)
    except (ModelError, KeyError, ValueError) as error:
        logger.warning(
            "library entry %s does not fit %s: %s; it must be built again",
            entry.path, model.source, error,
        )  # fmt: skip
        return None


def stored_steps(model: Model, spec: DecompositionSpec, library: Library) -> int:
    """Recovery steps of the decomposed network in the library; -1 where there is none."""
    entry = library.load(weights_key(model, spec))
    if entry is None:
        return -1
    steps = entry.facts.get(STEPS_FACT, 0)
    return steps if isinstance(steps, int) else 0


def read_decomposition(entry: Entry) -> Decomposition:
    """Read the decomposition of a stored network.

    Raises `ModelError`, `KeyError` or `ValueError` when the file is missing or damaged.
    """
    return Decomposition.from_json(json.loads(entry.files[DECOMPOSITION_FILE]))


def _restore(graph: fx.GraphModule, entry: Entry) -> fx.GraphModule:
    import_package("safetensors", "a decomposed network in a file")
    from safetensors import SafetensorError
    from safetensors.torch import load

    reduced = apply_structure(graph, read_decomposition(entry))
    try:
        state = load(entry.files[WEIGHTS_FILE])
    except SafetensorError as error:
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
