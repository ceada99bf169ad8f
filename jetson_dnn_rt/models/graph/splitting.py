# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A network cut into stages of about equal time, each of which any back end can run.

The graph's nodes are kept in their order, so the stages one after the other are the network
itself: on torch the outputs are the same bit for bit. The values that a later stage needs from an
earlier one are *boundary values*, named after their nodes. A cut is allowed where all of them are
float32 tensors of fixed shape, and not between a convolution and the normalisation or activation
that back ends fuse with it.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.graph.layers import to_channels_last
from jetson_dnn_rt.models.graph.tracing import (
    TraceError,
    find_types,
    fold_shapes,
    output_names,
    trace,
)
from jetson_dnn_rt.models.model import Model, make_probe_input
from jetson_dnn_rt.models.sources.files import hash_state
from jetson_dnn_rt.models.sources.torch import export_onnx

__all__ = ["Split", "StagePart", "TraceError", "find_cuts", "find_layers", "split"]

IMBALANCE = 1.05
"""Stages may be this much longer than the best balance, where less has to cross the boundaries."""

_TIMED_RUNS = 5
_FUSED = (
    torch.nn.BatchNorm2d, torch.nn.Identity, torch.nn.Dropout, torch.nn.ReLU, torch.nn.ReLU6,
    torch.nn.LeakyReLU, torch.nn.PReLU, torch.nn.SiLU, torch.nn.GELU, torch.nn.Hardswish,
    torch.nn.Hardsigmoid, torch.nn.Sigmoid, torch.nn.Tanh, torch.nn.Softplus, torch.nn.Mish,
)  # fmt: skip
_FUSED_NAMES = (
    "batch_norm", "relu", "relu6", "leaky_relu", "silu", "gelu", "hardswish", "hardsigmoid",
    "sigmoid", "tanh", "dropout", "getitem", "getattr", "size",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class StagePart:
    """A stage, or a run of stages, in the form for back ends."""

    name: str  # for messages
    inputs: tuple[str, ...]  # names of the boundary values that it takes
    outputs: tuple[str, ...]  # and of those that it gives
    input_shapes: tuple[tuple[int, ...], ...]
    graph_hash: str  # SHA-256 over operators and weights
    graph: fx.GraphModule
    inner_outputs: tuple[int, ...] = ()  # indices of those that only later stages read

    def torch_module(self) -> torch.nn.Module:
        """A copy of the stage, which returns a tuple."""
        return copy.deepcopy(self.graph)

    def onnx_model(self) -> bytes:
        """Export the stage; checked against torch where ONNX Runtime is installed."""
        return export_onnx(self.torch_module(), self.input_shapes, self.name)


class Split:
    """A network with its cuts, the names of the nodes that begin stages 2, 3, ...

    `graph`, from `trace`, is the whole network, `image` the name of its input, `outputs` are those
    of the values that it returns, in order; `size` is the height and width of the input.
    """

    def __init__(
        self, name: str, graph: fx.GraphModule, size: tuple[int, int], cuts: Sequence[str]
    ) -> None:
        self._name = name
        self._size = size
        self.graph = graph
        self.outputs = output_names(graph)
        self._nodes = _list_nodes(graph)
        self.image = next(n.name for n in graph.graph.nodes if n.op == "placeholder")
        positions = {node.name: index for index, node in enumerate(self._nodes)}
        unknown = [cut for cut in cuts if cut not in positions]
        if unknown:
            raise ModelError(f"{name}: its graph has no node {unknown[0]!r} to cut at")
        bounds = [0, *(positions[cut] for cut in cuts), len(self._nodes)]
        if any(a >= b for a, b in pairwise(bounds)):
            raise ModelError(f"{name}: its cuts are not in the order of its nodes: {list(cuts)}")
        self._bounds = bounds
        self.cuts = tuple(cuts)
        self._types = find_types(graph, torch.from_numpy(make_probe_input(*size)))

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def part(self, first: int, span: int = 1) -> StagePart:
        """The stages `first` to ``first + span - 1``, counted from 0, as one part."""
        begin, end = self._bounds[first], self._bounds[first + span]
        nodes = self._nodes[begin:end]
        inside = set(nodes)
        outer = dict.fromkeys(
            source for node in nodes for source in node.all_input_nodes
            if source not in inside and source.op != "get_attr"
        )  # fmt: skip
        given = [
            node for node in nodes
            if node.name in self.outputs or any(user not in inside for user in node.users)
        ]  # fmt: skip
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {node: graph.placeholder(node.name) for node in outer}

        def find(node: fx.Node) -> fx.Node:
            if node.op == "get_attr" and node not in copies:
                copies[node] = graph.node_copy(node)
            return copies[node]

        for node in nodes:
            copies[node] = graph.node_copy(node, find)
        graph.output(tuple(copies[node] for node in given))
        module = fx.GraphModule(self.graph, graph)
        names = [f"inference-{first + 1}"] + [f"inference-{first + span}"] * (span > 1)
        whole = span == len(self)
        return StagePart(
            self._name if whole else f"{self._name} {' to '.join(names)}",
            tuple(node.name for node in outer),
            tuple(node.name for node in given),
            tuple(self._shape(node.name) for node in outer),
            _hash_graph(module),
            module,
            tuple(index for index, node in enumerate(given) if node.name not in self.outputs),
        )

    @property
    def parts(self) -> tuple[StagePart, ...]:
        """All stages."""
        return tuple(self.part(index) for index in range(len(self)))

    def replace_graph(self, graph: fx.GraphModule) -> Split:
        """The same cuts in a graph of the same nodes, such as a decomposed one."""
        return Split(self._name, graph, self._size, self.cuts)

    def export_named(self) -> bytes:
        """The whole network as ONNX, in which every value that may cross a cut has its name.

        So what was made of the whole, a quantized network say, can be cut anywhere. The input is
        called ``image``.
        """
        values = dict.fromkeys((*self.outputs, *self._list_crossing()))
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in self.graph.graph.nodes:
            if node.op != "output":
                copies[node] = graph.node_copy(node, copies.__getitem__)
        named = {node.name: copy for node, copy in copies.items()}
        graph.output(tuple(named[value] for value in values))
        module = fx.GraphModule(self.graph, graph)
        shape = (1, 3, *self._size)
        data = export_onnx(module, (shape,), self._name, output_names=tuple(values))
        return _drop_outputs(data, len(self.outputs))

    def _list_crossing(self) -> list[str]:
        """Values that cross a place where a cut is allowed."""
        image = torch.from_numpy(make_probe_input(*self._size))
        nodes = self._nodes
        index = {node: position for position, node in enumerate(nodes)}
        allowed = [position for position, _ in _list_cuts(self.graph, nodes, image)]
        return [
            node.name
            for position, node in enumerate(nodes)
            for last in [max((index.get(user, -1) for user in node.users), default=-1)]
            if any(position < cut <= last for cut in allowed)
        ]

    def _shape(self, name: str) -> tuple[int, ...]:
        found = self._types[name]
        assert found is not None  # cuts are only allowed where it is a tensor
        return found[1]


def split(
    model: Model, stages: int, cuts: Sequence[str] | None = None, imbalance: float = IMBALANCE
) -> Split:
    """Cut a network into stages: fewer than asked for where the graph allows fewer cuts.

    `cuts` are those of a `Split`; by default nodes are measured on this machine and the cuts
    chosen so that the longest stage is at most `imbalance` times as long as in the best balance,
    and as little crosses the cuts as can be.

    Raises
    ------
    TraceError
        When the network has no static graph.
    ModelError
        When `cuts` do not fit, or the network is not available as a torch module.
    """
    if stages < 1:
        raise ValueError(f"stages must be >= 1: {stages}")
    graph = trace(model.torch_module())
    fold_shapes(graph, torch.from_numpy(make_probe_input(*model.input_size)))
    if cuts is None:
        cuts = find_cuts(graph, model.input_size, stages, imbalance)
    return Split(model.source, graph, model.input_size, cuts)


def find_cuts(
    graph: fx.GraphModule, size: tuple[int, int], stages: int, imbalance: float = IMBALANCE
) -> tuple[str, ...]:
    """Choose where to cut a graph; see `split`."""
    nodes = _list_nodes(graph)
    image = torch.from_numpy(make_probe_input(*size))
    if stages == 1:
        return ()
    allowed = _list_cuts(graph, nodes, image)
    times_ns = _measure_nodes(graph, nodes, image)
    positions = [0, *(position for position, _ in allowed), len(nodes)]
    crossing = [0, *(size for _, size in allowed), 0]
    sums = [0]
    for time_ns in times_ns:
        sums.append(sums[-1] + time_ns)
    ends = [sums[position] for position in positions]
    chosen = _balance(ends, crossing, min(stages, len(allowed) + 1), imbalance)
    return tuple(nodes[positions[index]].name for index in chosen)


def find_layers(graph: fx.GraphModule, size: tuple[int, int]) -> tuple[str, ...]:
    """Cuts at all places that allow one: a stage is a layer, with what back ends fuse with it."""
    nodes = _list_nodes(graph)
    allowed = _list_cuts(graph, nodes, torch.from_numpy(make_probe_input(*size)))
    return tuple(nodes[position].name for position, _ in allowed)


def _list_nodes(graph: fx.GraphModule) -> list[fx.Node]:
    return [n for n in graph.graph.nodes if n.op not in ("placeholder", "get_attr", "output")]


def _list_cuts(
    graph: fx.GraphModule, nodes: list[fx.Node], image: torch.Tensor
) -> list[tuple[int, int]]:
    """Positions before which a cut is allowed, with the bytes that would cross it."""
    types = find_types(graph, image)
    modules = dict(graph.named_modules())
    index = {node: position for position, node in enumerate(nodes)}
    sources = [n for n in graph.graph.nodes if n.op == "placeholder"] + nodes
    last_use = {
        node: max((index.get(user, len(nodes)) for user in node.users), default=-1)
        for node in sources
    }
    allowed = []
    for position in range(1, len(nodes)):
        live = [n for n in sources if index.get(n, -1) < position <= last_use[n]]
        if _is_fused(nodes[position], modules) or any(
            user.op != "output" and index[user] >= position and _is_in_place(user, modules)
            for node in live
            for user in node.users
        ):
            continue
        found = [types[node.name] for node in live]
        if all(kind is not None and kind[0] == torch.float32 for kind in found):
            size = sum(4 * torch.Size(kind[1]).numel() for kind in found if kind is not None)
            allowed.append((position, size))
    return allowed


def _is_fused(node: fx.Node, modules: dict[str, torch.nn.Module]) -> bool:
    """Whether back ends compute it together with what comes before."""
    if node.op == "call_module":
        module = modules[str(node.target)]
        name = type(module).__name__.lower().removeprefix("onnx")
        return isinstance(module, _FUSED) or name in _FUSED_NAMES
    return _name_of(node).rstrip("_").split(".")[0] in _FUSED_NAMES


def _name_of(node: fx.Node) -> str:
    """Name of the function or method that a node calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _is_in_place(node: fx.Node, modules: dict[str, torch.nn.Module]) -> bool:
    """Whether it would write into a boundary value, which belongs to another stage."""
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    name = _name_of(node).split(".")[0]
    in_place = name.endswith("_") or name in ("iadd", "imul", "isub")
    return bool(node.kwargs.get("inplace", False)) or in_place


class _Timer(fx.Interpreter):
    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self.times_ns: dict[str, list[int]] = {}

    def run_node(self, n: fx.Node) -> Any:
        start_ns = time.perf_counter_ns()
        value = super().run_node(n)
        self.times_ns.setdefault(n.name, []).append(time.perf_counter_ns() - start_ns)
        return value


def _measure_nodes(graph: fx.GraphModule, nodes: list[fx.Node], image: torch.Tensor) -> list[int]:
    timed = to_channels_last(copy.deepcopy(graph))
    timer = _Timer(timed)
    with torch.inference_mode():
        for _ in range(_TIMED_RUNS + 1):
            timer.run(image)
    # The least of the runs: other programs only ever add to it.
    return [min(timer.times_ns[node.name][1:]) for node in nodes]


def _balance(
    ends: list[int], crossing: list[int], stages: int, imbalance: float = IMBALANCE
) -> list[int]:
    """Indices of the cuts, so that the longest stage is shortest; see `IMBALANCE`.

    `ends` has the time from the start to each allowed cut, first 0, last the whole; `crossing` the
    bytes that cross there.
    """

    def find_best(add: Callable[[float, int, int], float]) -> tuple[float, list[int]]:
        """The least total and its cuts; `add` gives that of one more stage, from start to end."""
        before: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
        for stage in range(1, stages + 1):
            best = {}
            for end in range(stage, len(ends)):
                total, start = min((add(before[s][0], s, end), s) for s in before if s < end)
                best[end] = (total, [*before[start][1], start])
            before = best
        total, starts = before[len(ends) - 1]
        return total, starts[1:]

    longest, _ = find_best(lambda total, start, end: max(total, ends[end] - ends[start]))

    def add_bytes(total: float, start: int, end: int) -> float:
        fits = ends[end] - ends[start] <= longest * imbalance
        return total + crossing[end] if fits else float("inf")

    # Among the balances that are good enough, the one with the fewest bytes over boundaries.
    return find_best(add_bytes)[1]


def _drop_outputs(data: bytes, kept: int) -> bytes:
    """An ONNX model that returns only the first of its outputs; the others stay in it, named."""
    import onnx

    model = onnx.load_model_from_string(data)
    del model.graph.output[kept:]
    result: bytes = model.SerializeToString()
    return result


def _hash_graph(module: fx.GraphModule) -> str:
    text = hashlib.sha256()
    modules = dict(module.named_modules())
    for node in module.graph.nodes:
        target = modules[str(node.target)] if node.op == "call_module" else node.target
        if callable(node.target):  # its text may contain an address, new in every process
            target = f"{node.target.__module__}.{node.target.__qualname__}"
        text.update(f"{node.op} {node.name} {target} {node.args} {node.kwargs}\n".encode())
    return hash_state(module.state_dict(), text.hexdigest())
