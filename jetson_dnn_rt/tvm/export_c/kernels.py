# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""One lowered kernel as a C function.

A vector of the schedule becomes a loop over its lanes, which is C99, or GNU C vectors, which gcc
and clang keep in registers as LLVM does. Small buffers are local arrays; the others are placed
consecutively in a workspace that the caller provides.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jetson_dnn_rt.tvm.export_c.expressions import (
    SCALARS,
    ExpressionPrinter,
    Lane,
    Lanes,
    Shape,
    is_run,
    kind_of,
    split_type,
    unwrap,
)
from jetson_dnn_rt.tvm.export_c.nests import (
    find_index_variables,
    find_loads,
    find_nest,
    list_statements,
    walk,
    walk_statements,
)
from jetson_dnn_rt.tvm.export_c.planner import round_up

ALIGNMENT = 64
"""Alignment of every buffer in bytes: a cache line."""

STACK_BYTES = 1024
"""Buffers up to this size are local arrays: the accumulators, which stay in registers. TVM's own
code generator uses the same limit."""

JAMMED = 64
"""Maximum of stores of sums in a loop body: no processor has more registers."""

UNROLLED = 128
"""Maximum of stores that a loop over elements of a local array is unrolled to."""

_KEYWORDS = frozenset((
    "asm", "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
    "enum", "extern", "float", "for", "goto", "held", "if", "inline", "int", "lane", "long",
    "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "typedef", "typeof", "union", "unsigned", "void", "volatile", "while",
))  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """Buffer argument of a kernel: C name, type and number of its elements."""

    name: str
    scalar: str
    elements: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.elements * np.dtype(self.scalar).itemsize


@dataclass
class Kernel:
    """A kernel in C.

    `macs` (products that are added to something) and `operations` (on floats, in all) are upper
    bounds for one run: conditional work counts.
    """

    name: str
    operands: list[Operand] = field(default_factory=list)  # arguments, outputs last
    # extra memory; parameters, because compilers know that these do not overlap
    workspaces: list[Operand] = field(default_factory=list)
    stack_bytes: int = 0  # of its local arrays
    macs: int = 0
    operations: int = 0
    text: str = ""  # the function
    written: set[int] = field(default_factory=set)  # indices of the operands that it writes
    lanes: set[int] = field(default_factory=set)  # widths of the GNU C vectors in the text

    @property
    def head(self) -> str:
        """The function's declaration."""
        return self.text.partition("\n{\n")[0]

    @property
    def workspace_bytes(self) -> int:
        """Total size of the workspaces, each aligned."""
        return sum(round_up(each.bytes, ALIGNMENT) for each in self.workspaces)


def write_kernel(name: str, function: Any, prefix: str, vector_lanes: int) -> Kernel:
    """Write a lowered kernel as ``static void PREFIX_NAME(...)``.

    `vector_lanes` is the number of floats of the widest GNU C vector; 0: loops only. Raises
    `ModelError` when the kernel cannot be expressed in C99.
    """
    writer = _Writer(Kernel(name), vector_lanes)
    writer.write(function, prefix)
    return writer.kernel


class _Writer:
    def __init__(self, kernel: Kernel, vector_lanes: int) -> None:
        self.kernel, self.vector_lanes = kernel, vector_lanes
        self.lines: list[str] = []
        self.depth = self.trips = 1
        self.names: dict[Any, str] = {}
        self.roots: dict[str, str] = {}
        self.taken: set[str] = set()
        self.used: set[str] = set()
        self.written: set[str] = set()
        self.local: set[str] = set()
        self.print = ExpressionPrinter(self._use, self._vector_type, kernel.name)

    def write(self, function: Any, prefix: str) -> None:
        kernel = self.kernel
        kernel.operands = [self._declare_buffer(each) for each in function.params]
        self._statement(function.body)
        written = {self.roots[name] for name in self.written}
        kernel.written = {i for i, each in enumerate(kernel.operands) if each.name in written}
        parameters = [
            f"    {'' if each.name in written else 'const '}{SCALARS[each.scalar]} *restrict "
            f"{each.name}"
            for each in kernel.operands
        ]
        for each in kernel.workspaces:
            parameters.append(f"    {SCALARS[each.scalar]} *restrict {each.name}")
        listed = ",\n".join(parameters)
        unused = [each.name for each in kernel.operands if each.name not in self.used]
        body = "\n".join([*(f"    (void){name};" for name in unused), *self.lines])
        kernel.text = f"void {prefix}_{kernel.name}(\n{listed})\n{{\n{body}\n}}\n"

    # -- names ---------------------------------------------------------------------------------

    def _declare(self, variable: Any) -> str:
        base = re.sub(r"\W", "_", str(variable.name)) or "value"
        base = f"v_{base}" if base[0].isdigit() or base in _KEYWORDS else base
        name, number = base, 1
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        self.names[variable] = self.roots[name] = name
        return name

    def _use(self, variable: Any) -> str:
        name = self.names.get(variable)
        if name is None:
            raise self.print.refuse(f"the variable {variable.name}, which nothing declares")
        self.used |= {self.roots[name], name}
        return name

    def _declare_buffer(self, variable: Any) -> Operand:
        kind = variable.ty
        if not hasattr(kind, "shape"):
            raise self.print.refuse(f"the parameter {variable.name}, which is no buffer")
        # StorageRewrite makes vectors the elements of buffers where all accesses are vectors.
        scalar, _, lanes = str(kind.dtype).partition("x")
        if scalar not in SCALARS:
            raise self.print.refuse(f"a buffer of {scalar}")
        for extent in kind.shape:
            if kind_of(extent) != "IntImm":
                raise self.print.refuse(f"a buffer of the unknown size {extent}")
        count = math.prod(int(extent.value) for extent in kind.shape) * int(lanes or 1)
        return Operand(self._declare(variable), scalar, count)

    def _vector_type(self, scalar: str, lanes: int) -> str:
        if scalar != "float32":
            raise self.print.refuse(f"a vector of {scalar}")
        self.kernel.lanes.add(lanes)
        return f"v{lanes}"

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def _braces(self, head: str = "") -> Iterator[None]:
        """Enclose the lines of a block in braces."""
        self._line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self._line("}")

    # -- statements ----------------------------------------------------------------------------

    def _statement(self, node: Any) -> None:
        kind = kind_of(node)
        writer = getattr(self, f"_write_{kind.lower()}", None)
        if writer is None:
            raise self.print.refuse(f"the TIR statement {kind}")
        writer(node)

    def _write_seqstmt(self, node: Any) -> None:
        for each in node.seq:
            self._statement(each)

    def _write_evaluate(self, node: Any) -> None:
        if kind_of(node.value) != "IntImm":
            raise self.print.refuse(f"the statement {node.value}")

    def _write_attrstmt(self, node: Any) -> None:
        if str(node.attr_key).startswith(("thread_extent", "virtual_thread", "async")):
            raise self.print.refuse(f"the attribute {node.attr_key}")
        self._statement(node.body)

    def _write_for(self, node: Any) -> None:
        if int(node.kind) not in (0, 3) or node.step is not None:
            raise self.print.refuse("a loop on several threads: schedule it for one")
        if self._write_jammed(node) or self._write_unrolled(node):
            return
        with self._loop(node):
            self._statement(node.body)

    @contextmanager
    def _loop(self, node: Any) -> Iterator[None]:
        kind, trips = SCALARS[split_type(node.loop_var)[0]], self.trips
        first = unwrap(self.print.write(node.min))
        end = unwrap(self.print.write(node.extent if first == "0" else node.min + node.extent))
        name = self._declare(node.loop_var)
        with self._braces(f"for ({kind} {name} = {first}; {name} < {end}; ++{name})"):
            if kind_of(node.extent) == "IntImm":
                self.trips *= int(node.extent.value)
            yield
        self.trips = trips

    def _write_jammed(self, node: Any) -> bool:
        """Write a nest of sums into a local array so that the array stays in registers.

        Loops over the sums' terms come first, and those over the array's elements are unrolled
        within: each element is a register, and there are many independent sums. The order of the
        terms of every sum is as before. LLVM achieves this by unrolling everything.
        """
        nest = find_nest(node)
        if nest is None:
            return False
        over = [loop for loop in nest.loops if loop.loop_var in nest.indices]
        terms = [loop for loop in nest.loops if loop.loop_var not in nest.indices]
        copies = math.prod(int(loop.extent.value) for loop in over)
        stores = sum(kind_of(each) == "BufferStore" for each in nest.body)
        is_local = all(self.names.get(each) in self.local for each in nest.buffers)
        if not terms or copies * stores > JAMMED or not is_local:
            return False
        with ExitStack() as stack:
            for loop in terms:
                stack.enter_context(self._loop(loop))
            self._unroll(over, nest.body)
        return True

    def _write_unrolled(self, node: Any) -> bool:
        """Unroll a loop over a local array: only then can its elements be registers."""
        if kind_of(node.extent) != "IntImm" or kind_of(node.min) != "IntImm":
            return False
        body = list_statements(node.body)
        stores = sum(kind_of(each) == "BufferStore" for each in walk_statements(body))
        if int(node.extent.value) * stores > UNROLLED:
            return False
        indices = find_index_variables(body, lambda each: self.names.get(each) in self.local)
        if node.loop_var not in indices:
            return False
        self._unroll([node], body)
        return True

    def _unroll(self, loops: list[Any], body: list[Any]) -> None:
        firsts = [int(loop.min.value) for loop in loops]
        ranges = [
            range(first, first + int(loop.extent.value))
            for loop, first in zip(loops, firsts, strict=True)
        ]
        binds = any(kind_of(each) != "BufferStore" for each in body)
        for values in itertools.product(*ranges):
            for loop, value in zip(loops, map(str, values), strict=True):
                self.names[loop.loop_var] = self.roots[value] = value
            with self._braces() if binds else nullcontext():
                for each in body:
                    self._statement(each)

    def _write_ifthenelse(self, node: Any) -> None:
        with self._braces(f"if ({unwrap(self.print.write(node.condition))})"):
            self._statement(node.then_case)
        if node.else_case is not None:
            self.lines.pop()
            with self._braces("} else"):
                self._statement(node.else_case)

    def _write_bind(self, node: Any) -> None:
        scalar, lanes = split_type(node.var)
        self._add_cost(node.value)
        if lanes == 1:
            text = unwrap(self.print.write(node.value))
            self._line(f"const {SCALARS[scalar]} {self._declare(node.var)} = {text};")
            return
        text = unwrap(self.print.write(node.value, Lane("lane")))
        array = Operand(self._declare(node.var), scalar, lanes)
        self._line(f"{SCALARS[scalar]} {array.name}[{lanes}];")
        self._lane_loop(lanes, f"{array.name}[lane] = {text};")
        self.kernel.stack_bytes += array.bytes

    def _write_allocbuffer(self, node: Any) -> None:
        buffer = self._declare_buffer(node.buffer)
        if buffer.bytes > STACK_BYTES:
            self.kernel.workspaces.append(buffer)
            return
        self._line(f"{SCALARS[buffer.scalar]} {buffer.name}[{buffer.elements}];")
        self.kernel.stack_bytes += buffer.bytes
        self.local.add(buffer.name)

    def _write_declbuffer(self, node: Any) -> None:
        data = node.data
        if kind_of(data) != "Call" or not str(data.op.name).endswith("buffer_data"):
            raise self.print.refuse(f"the buffer {node.buffer.name}, whose memory is {data}")
        source = data.args[0]
        if str(source.ty.dtype).split("x")[0] != str(node.buffer.ty.dtype).split("x")[0]:
            raise self.print.refuse(f"the buffer {node.buffer.name} of two types")
        # Another view of the same memory is the same pointer in C.
        self.names[node.buffer] = self.names[source]

    def _write_bufferstore(self, node: Any) -> None:
        if len(node.indices) != 1:
            raise self.print.refuse(f"a store of {len(node.indices)} dimensions")
        (index,) = node.indices
        self._add_cost(node.value)
        name = self._use(node.buffer)
        self.written.add(name)
        lanes = split_type(node.value)[1]
        if lanes == 1:
            target = f"{name}[{self.print.address(index, None)}]"
            self._line(f"{target} = {unwrap(self.print.write(node.value))};")
            return
        if self._is_vector(node, index):
            self._store_vectors(node, index, name, lanes)
            return
        shape: Shape = Lane("lane")
        text = unwrap(self.print.write(node.value, shape))
        target = f"{name}[{self.print.address(index, shape, lanes)}]"
        if not self._overlaps(node.value, node.buffer, index):
            self._lane_loop(lanes, f"{target} = {text};")
            return
        with self._braces():  # all lanes are read before the first is written
            self._line(f"{SCALARS[split_type(node.value)[0]]} held[{lanes}];")
            self._lane_loop(lanes, f"held[lane] = {text};")
            self._lane_loop(lanes, f"{target} = held[lane];")

    def _is_vector(self, node: Any, index: Any) -> bool:
        return (
            self.vector_lanes > 0
            and is_run(index)
            and split_type(node.value)[0] == "float32"
            and self.print.fits_vector(node.value)
            and not self._overlaps(node.value, node.buffer, index)
        )

    def _store_vectors(self, node: Any, index: Any, name: str, lanes: int) -> None:
        first = 0
        while first < lanes:
            width = self.vector_lanes
            while width > lanes - first:
                width //= 2
            shape: Shape = Lanes(first, width) if width > 1 else Lane(str(first))
            place = f"{name} + {self.print.address(index, shape, lanes)}"
            value = unwrap(self.print.write(node.value, shape))
            kind = self._vector_type("float32", width) if width > 1 else "float"
            self._line(f"*({kind} *)({place}) = {value};")
            first += width

    def _lane_loop(self, lanes: int, text: str) -> None:
        with self._braces(f"for (int32_t lane = 0; lane < {lanes}; ++lane)"):
            self._line(text)

    def _overlaps(self, value: Any, buffer: Any, index: Any) -> bool:
        """Whether a value reads other elements of the buffer that it is stored to."""
        return any(
            self.names.get(load.source) == self.names[buffer]
            and str(load.indices[0]) != str(index)
            for load in find_loads(value)
        )

    # -- cost ----------------------------------------------------------------------------------

    def _add_cost(self, value: Any) -> None:
        for node in walk(value):
            kind = kind_of(node)
            if kind not in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Call"):
                continue
            scalar, lanes = split_type(node)
            if not scalar.startswith("float"):
                continue
            if kind == "Call" and str(node.op.name).endswith("if_then_else"):
                continue
            self.kernel.operations += self.trips * lanes
            if kind == "Add" and "Mul" in (kind_of(node.a), kind_of(node.b)):
                self.kernel.macs += self.trips * lanes
