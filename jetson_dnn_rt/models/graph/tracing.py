# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""From a module to its graph of operators (torch.fx), with the shapes of all values."""

from __future__ import annotations

import copy
import functools
import linecache
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.graph.layers import lift_modules
from jetson_dnn_rt.models.sources.files import first_line

LEAF_ATTRIBUTE = "fx_leaf"
"""Class attribute of a module; where it is true, the module stays one node of the graph."""


SOURCE_NAME = "<eval_with_key>"
"""Beginning of the names that torch.fx gives the source texts that it compiles."""


class TraceError(ModelError):
    """A network has no static graph; the message says why."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: torch.nn.Module, qualified_name: str) -> bool:
        own = bool(getattr(module, LEAF_ATTRIBUTE, False))
        return own or bool(super().is_leaf_module(module, qualified_name))


def trace(module: torch.nn.Module) -> fx.GraphModule:
    """The graph of a module in evaluation mode, with its own copy of the weights.

    The module is of one image, ``[1, 3, H, W]``, to a tensor or a tuple of tensors. A graph is
    copied as it is; a module that wraps one has it in an attribute ``static_graph``. `TraceError`
    where the control flow depends on values, or the graph has another form.
    """
    forget_dead_sources()
    module = copy.deepcopy(getattr(module, "static_graph", module))
    if isinstance(module, fx.GraphModule):
        graph = module
    else:
        try:
            graph = fx.GraphModule(module, _Tracer().trace(module))
        except Exception as error:  # whatever the module does with a value that is not there
            text = f"it cannot be traced: {type(error).__name__}: {first_line(error)}"
            raise TraceError(text) from error
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    used = [node for node in inputs if node.users]
    if len(used) != 1:
        raise TraceError(f"its graph has {len(used)} inputs, needed is one image")
    for node in inputs:
        if not node.users:
            graph.graph.erase_node(node)
    output_names(graph)
    # Graphs of torch.export flatten their arguments in a wrapper; here there is but one.
    graph.graph.set_codegen(fx.graph.CodeGen())
    lift_modules(graph)
    graph.graph.eliminate_dead_code()
    graph.delete_all_unused_submodules()
    graph.recompile()
    return graph.eval()


def forget_dead_sources() -> None:
    """Let go the source texts of graphs that are gone.

    torch.fx keeps the text of each graph that it ever compiled, and of each change to it: without
    this a process that loads its networks again and again grows for ever.
    """
    alive = {kind.forward.__code__.co_filename for kind in _kinds_of(fx.GraphModule)}
    loader = getattr(fx.graph_module, "_loader", None)  # not public: without it, texts stay there
    texts = getattr(loader, "eval_cache", {})
    for name in {*linecache.cache, *texts} - alive:
        if name.startswith(SOURCE_NAME):
            linecache.cache.pop(name, None)
            texts.pop(name, None)


def _kinds_of(kind: Any) -> Iterator[Any]:
    """The classes below one that have compiled code: torch.fx makes one for each graph."""
    inner: Any
    for inner in kind.__subclasses__():
        if hasattr(inner.__dict__.get("forward"), "__code__"):
            yield inner
        yield from _kinds_of(inner)


def output_names(graph: fx.GraphModule) -> tuple[str, ...]:
    """Names of the values that a graph returns, in their order; `TraceError` unless tensors."""
    (result,) = next(node for node in graph.graph.nodes if node.op == "output").args
    results = result if isinstance(result, (tuple, list)) else (result,)
    if not results or not all(isinstance(node, fx.Node) for node in results):
        raise TraceError(f"it returns {type(result).__name__}, needed are tensors")
    return tuple(node.name for node in results)


class _Recorder(fx.Interpreter):
    """Runs a graph and stores the result of every node, as `keep` returns it."""

    def __init__(self, graph: fx.GraphModule, keep: Callable[[fx.Node, Any], None]) -> None:
        super().__init__(graph)
        self._keep = keep

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        self._keep(n, value)
        return value


def _record(
    graph: fx.GraphModule, image: torch.Tensor, keep: Callable[[fx.Node, Any], None]
) -> None:
    try:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of operators as onnx2torch writes them
            _Recorder(graph, keep).run(image)
    except Exception as error:  # a foreign graph may raise anything
        raise TraceError(f"its graph cannot be run: {first_line(error)}") from error


Types = dict[str, tuple[torch.dtype, tuple[int, ...]] | None]


def find_types(graph: fx.GraphModule, image: torch.Tensor) -> Types:
    """Type and shape of every value of a graph for this image; None where it is no tensor.

    `TraceError` where the graph cannot be run.
    """
    types: Types = {}

    def keep(node: fx.Node, value: Any) -> None:
        is_tensor = isinstance(value, torch.Tensor)
        types[node.name] = (value.dtype, tuple(value.shape)) if is_tensor else None

    _record(graph, image, keep)
    return types


def fold_shapes(graph: fx.GraphModule, image: torch.Tensor) -> None:
    """Replace values that depend only on shapes, which are fixed, by constants.

    A shape that is read in one stage and used in the next would forbid the cut between them, and
    costs time in every run. `TraceError` where the graph cannot be run.
    """
    values: dict[fx.Node, Any] = {}
    _record(graph, image, values.__setitem__)
    static: set[fx.Node] = set()
    for node in list(graph.graph.nodes):
        # The network's input and outputs stay nodes.
        if node.op in ("placeholder", "output") or any(u.op == "output" for u in node.users):
            continue
        is_static = _reads_shape(node, graph) or all(n in static for n in node.all_input_nodes)
        if is_static and _is_constant(values[node]):
            static.add(node)
    for node in [n for n in graph.graph.nodes if n in static and n.op != "get_attr"]:
        if not any(user not in static for user in node.users):
            continue
        replacement = values[node]
        if isinstance(replacement, torch.Tensor):
            name = f"_folded_{node.name}"
            graph.register_buffer(name, replacement.detach().clone())
            with graph.graph.inserting_before(node):
                replacement = graph.graph.get_attr(name)
        elif isinstance(replacement, torch.Size):
            replacement = tuple(replacement)
        for user in list(node.users):
            swap = functools.partial(_swap, node, replacement)
            user.args = fx.node.map_arg(user.args, swap)
            user.kwargs = fx.node.map_arg(user.kwargs, swap)
    graph.graph.eliminate_dead_code()
    graph.delete_all_unused_submodules()
    graph.recompile()


def _swap(node: fx.Node, replacement: Any, argument: fx.Node) -> Any:
    return replacement if argument is node else argument


def _reads_shape(node: fx.Node, graph: fx.GraphModule) -> bool:
    if node.op == "call_function" and node.target is getattr:
        return bool(node.args[1] == "shape")
    if node.op == "call_method":
        return node.target in ("size", "dim")
    if node.op == "call_module":
        return type(graph.get_submodule(str(node.target))).__name__ == "OnnxShape"
    return False


def _is_constant(value: Any) -> bool:
    """Whether it is a tensor, or can stand in a graph as a literal."""
    if isinstance(value, (tuple, list)):
        return all(isinstance(item, int) for item in value)
    return isinstance(value, (torch.Tensor, int, float, bool))
