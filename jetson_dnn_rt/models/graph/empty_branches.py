# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Branches of an ONNX graph that return an empty list, in a form that OpenVINO reads right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jetson_dnn_rt.models.sources.files import import_package

if TYPE_CHECKING:
    import onnx

_BRANCHES = ("then_branch", "else_branch")  # every ``If`` has both
_FILLED = frozenset(range(1, 14)) - {8}
"""Element types that ``ConstantOfShape`` makes in every version: numbers and bool, no text."""


class _Constant(NamedTuple):
    shape: tuple[int, ...]
    kind: int  # its element type


_Scope = dict[str, "_Constant | onnx.NodeProto | None"]
"""What makes the values of a graph; None is an input."""


def compute_empty_lists(data: bytes) -> bytes:
    """Let branches compute the empty lists that they return, in place of a constant.

    Exported detectors end so: ``If`` there is no box to suppress, the list of those to keep is a
    constant without values. OpenVINO 2026.4 takes that for the number 0, and the first of no boxes
    is whatever is in memory: a frame without objects had a box at random, now and then NaN.

    The constant may be a node or an initializer, in the branch or in a graph around it, and be
    copied or cast on its way. OpenVINO reads ``value_ints`` and ``value_floats`` right; models
    with functions of their own it refuses. Bodies of loops stay as they are: one that computes an
    empty list ends the process (SIGFPE). A model without such a branch is returned as it is.
    """
    if _BRANCHES[0].encode() not in data:
        return data
    onnx = import_package("onnx", "a network with branches")
    model = onnx.load_model_from_string(data)
    # All are found before one is changed: a graph inside a branch may return its constant, too.
    found = list(_find_empty(model.graph, [_open_scope(model.graph)]))
    if not found:
        return data
    names = set(_list_names(model.graph))
    for graph, name, (dims, kind) in found:
        _remove(graph, name)
        wanted = (f"{name}_shape{number or ''}" for number in count())
        shape = next(one for one in wanted if one not in names)
        names.add(shape)
        sides = onnx.numpy_helper.from_array(np.array(dims, np.int64))
        fill = onnx.helper.make_tensor("value", kind, [1], [0])
        filled = onnx.helper.make_node("ConstantOfShape", [shape], [name], value=fill)
        # At the very start, since an initializer may be read by any node.
        graph.node.insert(0, filled)
        graph.node.insert(0, onnx.helper.make_node("Constant", [], [shape], value=sides))
    result: bytes = model.SerializeToString()
    return result


def _find_empty(
    graph: onnx.GraphProto, scopes: Sequence[_Scope]
) -> Iterator[tuple[onnx.GraphProto, str, _Constant]]:
    """Find what the branches inside a graph return without values; its own scope comes first."""
    for place, inner in _list_inside(graph):
        inner_scopes = [_open_scope(inner), *scopes]
        returned = [value.name for value in inner.output] if place in _BRANCHES else []
        for name in dict.fromkeys(returned):
            made = _trace(name, inner_scopes) if name in inner_scopes[0] else None
            if made is not None and 0 in made.shape and made.kind in _FILLED:
                yield inner, name, made
        yield from _find_empty(inner, inner_scopes)


def _list_inside(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """List the graphs that the nodes of a graph hold, with the names of their attributes."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.name, attribute.g


def _open_scope(graph: onnx.GraphProto) -> _Scope:
    scope: _Scope = dict.fromkeys(value.name for value in graph.input)
    for tensor in graph.initializer:
        scope[tensor.name] = _Constant(tuple(tensor.dims), tensor.data_type)
    for node in graph.node:
        scope |= dict.fromkeys(node.output, node)
    return scope


def _trace(name: str, scopes: Sequence[_Scope]) -> _Constant | None:
    """Find the constant that a value is a copy of, with the value's own type."""
    # The innermost graph that has the name; its node reads from there outwards.
    scopes = scopes[next((i for i, one in enumerate(scopes) if name in one), len(scopes)) :]
    made = scopes[0][name] if scopes else None
    if made is None or isinstance(made, _Constant):
        return made
    attributes = {one.name: one for one in made.attribute}
    if made.op_type == "Constant" and "value" in attributes:
        tensor = attributes["value"].t
        return _Constant(tuple(tensor.dims), tensor.data_type)
    if made.op_type not in ("Identity", "Cast"):
        return None
    found = _trace(made.input[0], scopes)
    if found is None or made.op_type == "Identity":
        return found
    return found._replace(kind=attributes["to"].i)


def _remove(graph: onnx.GraphProto, name: str) -> None:
    """Remove the initializer or the node that makes a value."""
    for index, tensor in enumerate(graph.initializer):
        if tensor.name == name:
            del graph.initializer[index]
            return
    del graph.node[next(index for index, node in enumerate(graph.node) if name in node.output)]


def _list_names(graph: onnx.GraphProto) -> Iterator[str]:
    """List the names of all values of a graph and of those inside it."""
    yield from _open_scope(graph)
    for _, inner in _list_inside(graph):
        yield from _list_names(inner)
