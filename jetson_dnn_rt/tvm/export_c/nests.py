# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Loop nests of a kernel: loops over the terms of sums, and loops over the sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jetson_dnn_rt.tvm.export_c.expressions import kind_of, split_type


@dataclass(frozen=True)
class Nest:
    """Loops around sums."""

    loops: list[Any]  # from the outermost, all with constant bounds
    body: list[Any]  # bindings of indices, and stores x[i] = x[i] + ... into buffers
    indices: set[Any]  # variables that select the element of a store
    buffers: set[Any]  # targets of stores


def find_nest(node: Any) -> Nest | None:
    """Parse a loop as a nest of sums; None where it is not one.

    Bindings between loops are moved into the body: they bind indices only, without side effects.
    """
    loops: list[Any] = []
    body: list[Any] = []
    rest = [node]
    while True:
        *before, last = rest
        if any(not _binds_index(each) for each in before):
            break
        if kind_of(last) != "For":
            break
        if kind_of(last.extent) != "IntImm" or kind_of(last.min) != "IntImm":
            return None
        if int(last.kind) not in (0, 3) or last.step is not None:
            return None
        body += before
        loops.append(last)
        rest = list_statements(last.body)
    body += rest
    stores = [each for each in body if kind_of(each) == "BufferStore"]
    if not stores or len(stores) + sum(map(_binds_index, body)) != len(body):
        return None
    buffers = {each.buffer for each in stores}
    if any(not _is_sum(each, buffers) for each in stores):
        return None
    return Nest(loops, body, find_index_variables(body, lambda each: each in buffers), buffers)


def list_statements(node: Any) -> list[Any]:
    """Statements of a body, in order."""
    if kind_of(node) == "SeqStmt":
        return [each for part in node.seq for each in list_statements(part)]
    return [node]


def walk_statements(statements: list[Any]) -> Iterator[Any]:
    """Statements and the statements nested in them."""
    for each in statements:
        yield each
        parts = (getattr(each, name, None) for name in ("body", "then_case", "else_case"))
        for part in parts:
            if part is not None:
                yield from walk_statements(list_statements(part))


def find_index_variables(statements: list[Any], counts: Callable[[Any], bool]) -> set[Any]:
    """Variables that the indices of some buffers depend on, also through bindings.

    `counts` selects the buffers; loops in the statements are searched too.
    """
    indices: list[Any] = []
    bound: dict[Any, Any] = {}
    for each in walk_statements(statements):
        kind = kind_of(each)
        if kind == "Bind":
            bound[each.var] = each.value
        if kind in ("Bind", "BufferStore"):
            loads = (load for load in find_loads(each.value) if counts(load.source))
            indices += [index for load in loads for index in load.indices]
        if kind == "BufferStore" and counts(each.buffer):
            indices += list(each.indices)
    found: set[Any] = set()
    while indices:
        for each in _variables(indices.pop()):
            if each not in found:
                found.add(each)
                if each in bound:
                    indices.append(bound[each])
    return found


def walk(node: Any) -> list[Any]:
    """Nodes of a value, except in the computation of indices."""
    found = [node]
    if kind_of(node) in ("TensorLoad", "Ramp"):
        return found
    return found + [each for part in _children(node) for each in walk(part)]


def find_loads(node: Any) -> list[Any]:
    """Loads in a value."""
    return [each for each in walk(node) if kind_of(each) == "TensorLoad"]


def _children(node: Any) -> list[Any]:
    parts = [
        getattr(node, name, None)
        for name in ("a", "b", "value", "condition", "true_value", "false_value", "base", "stride")
    ]
    if kind_of(node) == "Call":
        parts += list(node.args)
    return [part for part in parts if hasattr(part, "ty")]


def _variables(node: Any) -> list[Any]:
    if kind_of(node) == "Var":
        return [node]
    children = _children(node)
    if kind_of(node) == "TensorLoad":
        children += list(node.indices)
    return [each for part in children for each in _variables(part)]


def _binds_index(node: Any) -> bool:
    """Whether a statement binds an integer computed without memory accesses."""
    if kind_of(node) != "Bind":
        return False
    scalar, lanes = split_type(node.value)
    return lanes == 1 and scalar.startswith("int") and not find_loads(node.value)


def _is_sum(store: Any, buffers: set[Any]) -> bool:
    """Whether a store adds to its target and reads no other target of stores."""
    if kind_of(store.value) != "Add":
        return False
    own = [load for load in find_loads(store.value) if load.source in buffers]
    if len(own) != 1 or not own[0].source.same_as(store.buffer):
        return False
    same = str(own[0].indices[0]) == str(store.indices[0])
    return same and any(
        part is not None and _is(part, own[0]) for part in (store.value.a, store.value.b)
    )


def _is(node: Any, load: Any) -> bool:
    return kind_of(node) == "TensorLoad" and bool(node.same_as(load))
