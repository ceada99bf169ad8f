"""One lowered kernel as a C function.

A vector of the schedule becomes a loop over its lanes, which is C99, or vectors of GNU C, which
gcc and clang keep in registers as LLVM does. Small buffers are local arrays; the others lie one
after the other in a work space that the caller gives.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field
from typing import Any

from jetson_dnn_rt.errors import ModelError
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
    count_stores,
    find_index_variables,
    find_loads,
    find_nest,
    list_statements,
    walk,
)
from jetson_dnn_rt.tvm.export_c.planner import round_up

ALIGNMENT = 64
"""Bytes that every buffer begins at a multiple of: a cache line."""

STACK_BYTES = 1024
"""Buffers up to this size are local arrays: the accumulators, which stay in registers. TVM's own
code generator draws the line here too."""

JAMMED = 64
"""Most stores of sums in the body of a loop: more registers no processor has."""

UNROLLED = 128
"""Most stores that a loop over elements of a local array is unrolled to."""

WIDTHS = {"float32": 4, "float64": 8, "int64": 8, "uint64": 8, "int32": 4, "uint32": 4}
WIDTHS |= {"int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1}
"""Bytes of a scalar."""

_KEYWORDS = frozenset(
    (
        *("auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else"),
        *("enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register"),
        *("restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch"),
        *("typedef", "union", "unsigned", "void", "volatile", "while", "asm", "typeof"),
        *("lane", "held"),
    )
)


@dataclass(frozen=True)
class Operand:
    """A buffer that a kernel is given: its name in C, and type and number of its elements."""

    name: str
    scalar: str
    elements: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.elements * WIDTHS[self.scalar]


@dataclass
class Kernel:
    """A kernel in C.

    `macs` (products that are added to something) and `operations` (on floats, in all) are upper
    bounds for one run: what stands under a condition counts.
    """

    name: str
    operands: tuple[Operand, ...]  # what it is given, outputs last
    # memory that it needs besides; parameters, as compilers know of those that they do not overlap
    workspaces: tuple[Operand, ...]
    stack_bytes: int  # of its local arrays
    macs: int
    operations: int
    text: str  # the function
    written: frozenset[int]  # numbers of the operands that it writes
    lanes: frozenset[int]  # widths of the vectors of GNU C in the text

    @property
    def workspace_bytes(self) -> int:
        """Size of all work spaces, one after the other, each aligned."""
        return sum(round_up(each.bytes, ALIGNMENT) for each in self.workspaces)


def write_kernel(name: str, function: Any, prefix: str, vector_lanes: int) -> Kernel:
    """Write a lowered kernel as ``static void PREFIX_NAME(...)``.

    `vector_lanes` are floats of the widest vector of GNU C; 0: loops only. Raises `ModelError`
    when it has something that C99 has not.
    """
    return _Writer(name, function, prefix, vector_lanes).write()


@dataclass
class _Writer:
    name: str
    function: Any
    prefix: str
    vector_lanes: int
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    trips: int = 1
    macs: int = 0
    operations: int = 0
    used: set[str] = field(default_factory=set)
    lanes: set[int] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    stack: int = 0
    workspaces: list[Operand] = field(default_factory=list)
    local: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.taken: set[str] = set()
        self.roots: dict[str, str] = {}
        self.print = ExpressionPrinter(self._use, self._vector_type, self.name)

    def write(self) -> Kernel:
        operands = [self._declare_operand(each) for each in self.function.params]
        self._statement(self.function.body)
        written = {self.roots[name] for name in self.written}
        parameters = [
            f"{'' if each.name in written else 'const '}{SCALARS[each.scalar]} *restrict "
            f"{each.name}"
            for each in operands
        ]
        parameters += [f"{SCALARS[each.scalar]} *restrict {each.name}" for each in self.workspaces]
        head = f"void {self.prefix}_{self.name}(\n    " + ",\n    ".join(parameters) + ")\n{\n"
        unused = [f"    (void){each.name};" for each in operands if each.name not in self.used]
        body = "\n".join([*unused, *self.lines])
        return Kernel(
            self.name,
            tuple(operands),
            tuple(self.workspaces),
            self.stack,
            self.macs,
            self.operations,
            f"{head}{body}\n}}\n",
            frozenset(i for i, each in enumerate(operands) if each.name in written),
            frozenset(self.lanes),
        )

    # -- names ---------------------------------------------------------------------------------

    def _declare(self, variable: Any) -> str:
        base = re.sub(r"\W", "_", str(variable.name)) or "value"
        base = f"v_{base}" if base[0].isdigit() or base in _KEYWORDS else base
        name, number = base, 1
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        self.names[variable] = name
        self.roots[name] = name
        return name

    def _use(self, variable: Any) -> str:
        name = self.names.get(variable)
        if name is None:
            raise self._refuse(f"the variable {variable.name}, which nothing declares")
        self.used.add(self.roots[name])
        self.used.add(name)
        return name

    def _declare_operand(self, variable: Any) -> Operand:
        kind = variable.ty
        if not hasattr(kind, "shape"):
            raise self._refuse(f"the parameter {variable.name}, which is no buffer")
        scalar, _, lanes = str(kind.dtype).partition("x")
        if scalar not in SCALARS:
            raise self._refuse(f"a buffer of {scalar}")
        count = self._count(kind.shape) * int(lanes or 1)
        return Operand(self._declare(variable), scalar, count)

    def _count(self, shape: Any) -> int:
        count = 1
        for extent in shape:
            if kind_of(extent) != "IntImm":
                raise self._refuse(f"a buffer of the unknown size {extent}")
            count *= int(extent.value)
        return count

    def _vector_type(self, scalar: str, lanes: int) -> str:
        if scalar != "float32":
            raise self._refuse(f"a vector of {scalar}")
        self.lanes.add(lanes)
        return f"v{lanes}"

    def _refuse(self, what: str) -> ModelError:
        return ModelError(
            f"kernel {self.name} has {what}, which export-c does not write as C99: run this "
            "network with another back end"
        )

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # -- statements ----------------------------------------------------------------------------

    def _statement(self, node: Any) -> None:
        kind = kind_of(node)
        writer = getattr(self, f"_write_{kind.lower()}", None)
        if writer is None:
            raise self._refuse(f"the TIR statement {kind}")
        writer(node)

    def _block(self, node: Any) -> None:
        self.depth += 1
        self._statement(node)
        self.depth -= 1
        self._line("}")

    def _write_seqstmt(self, node: Any) -> None:
        for each in node.seq:
            self._statement(each)

    def _write_evaluate(self, node: Any) -> None:
        if kind_of(node.value) != "IntImm":
            raise self._refuse(f"the statement {node.value}")

    def _write_attrstmt(self, node: Any) -> None:
        if str(node.attr_key).startswith(("thread_extent", "virtual_thread", "async")):
            raise self._refuse(f"the attribute {node.attr_key}")
        self._statement(node.body)

    def _write_for(self, node: Any) -> None:
        if int(node.kind) not in (0, 3) or node.step is not None:
            raise self._refuse("a loop on several threads: schedule it for one")
        if self._write_jammed(node) or self._write_unrolled(node):
            return
        trips = self.trips
        self._open_loop(node)
        self._block(node.body)
        self.trips = trips

    def _open_loop(self, node: Any) -> None:
        kind = SCALARS[split_type(node.loop_var)[0]]
        first = unwrap(self.print.write(node.min))
        end = unwrap(self.print.write(node.extent if first == "0" else node.min + node.extent))
        name = self._declare(node.loop_var)
        self._line(f"for ({kind} {name} = {first}; {name} < {end}; ++{name}) {{")
        if kind_of(node.extent) == "IntImm":
            self.trips *= int(node.extent.value)

    def _write_jammed(self, node: Any) -> bool:
        """Write a nest of sums into a local array so that the array stays in registers.

        Loops over the sums' terms come first, and those over the array's elements are unrolled
        within: each element is a register, and there are many independent sums. The order of the
        terms of every sum is as before. LLVM gets there by unrolling all of it.
        """
        nest = find_nest(node)
        if nest is None:
            return False
        over = [loop for loop in nest.loops if loop.loop_var in nest.indices]
        terms = [loop for loop in nest.loops if loop.loop_var not in nest.indices]
        copies = math.prod(int(loop.extent.value) for loop in over)
        stores = sum(kind_of(each) == "BufferStore" for each in nest.body)
        if (
            not terms
            or copies * stores > JAMMED
            or any(self.names.get(each) not in self.local for each in nest.buffers)
        ):
            return False
        trips = self.trips
        for loop in terms:
            self._open_loop(loop)
            self.depth += 1
        self._unroll(over, nest.body)
        for _ in terms:
            self.depth -= 1
            self._line("}")
        self.trips = trips
        return True

    def _write_unrolled(self, node: Any) -> bool:
        """Unroll a loop over elements of a local array: only then they can be registers."""
        if kind_of(node.extent) != "IntImm" or kind_of(node.min) != "IntImm":
            return False
        body = list_statements(node.body)
        if int(node.extent.value) * count_stores(body) > UNROLLED:
            return False
        indices = find_index_variables(body, lambda each: self.names.get(each) in self.local)
        if node.loop_var not in indices:
            return False
        self._unroll([node], body)
        return True

    def _unroll(self, loops: list[Any], body: list[Any]) -> None:
        ranges = [
            range(int(loop.min.value), int(loop.min.value) + int(loop.extent.value))
            for loop in loops
        ]
        for values in itertools.product(*ranges):
            for loop, value in zip(loops, values, strict=True):
                name = str(value)
                self.names[loop.loop_var] = name
                self.roots[name] = name
            bound = any(kind_of(each) != "BufferStore" for each in body)
            if bound:
                self._line("{")
                self.depth += 1
            for each in body:
                self._statement(each)
            if bound:
                self.depth -= 1
                self._line("}")

    def _write_ifthenelse(self, node: Any) -> None:
        self._line(f"if ({unwrap(self.print.write(node.condition))}) {{")
        self._block(node.then_case)
        if node.else_case is not None:
            self.lines[-1] += " else {"
            self._block(node.else_case)

    def _write_bind(self, node: Any) -> None:
        scalar, lanes = split_type(node.var)
        self._add_cost(node.value)
        if lanes == 1:
            text = unwrap(self.print.write(node.value))
            self._line(f"const {SCALARS[scalar]} {self._declare(node.var)} = {text};")
            return
        text = unwrap(self.print.write(node.value, Lane("lane")))
        name = self._declare(node.var)
        self._line(f"{SCALARS[scalar]} {name}[{lanes}];")
        self._lane_loop(lanes, f"{name}[lane] = {text};")
        self.stack += lanes * WIDTHS[scalar]

    def _write_allocbuffer(self, node: Any) -> None:
        kind = node.buffer.ty
        # StorageRewrite gives buffers vectors as elements where all accesses are such.
        scalar, _, lanes = str(kind.dtype).partition("x")
        if scalar not in SCALARS:
            raise self._refuse(f"a buffer of {scalar}")
        count = self._count(kind.shape) * int(lanes or 1)
        name, size = self._declare(node.buffer), count * WIDTHS[scalar]
        if size <= STACK_BYTES:
            self._line(f"{SCALARS[scalar]} {name}[{count}];")
            self.stack += size
            self.local.add(name)
            return
        self.workspaces.append(Operand(name, scalar, count))

    def _write_declbuffer(self, node: Any) -> None:
        data = node.data
        if (
            data is None
            or kind_of(data) != "Call"
            or not str(data.op.name).endswith("buffer_data")
        ):
            raise self._refuse(f"the buffer {node.buffer.name}, whose memory is {data}")
        source = data.args[0]
        if str(source.ty.dtype).split("x")[0] != str(node.buffer.ty.dtype).split("x")[0]:
            raise self._refuse(f"the buffer {node.buffer.name} of two types")
        # Another view of the same memory: in C it is the same pointer.
        self.names[node.buffer] = self.names[source]

    def _write_bufferstore(self, node: Any) -> None:
        if len(node.indices) != 1:
            raise self._refuse(f"a store of {len(node.indices)} dimensions")
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
        # All lanes are read before the first is written.
        scalar = SCALARS[split_type(node.value)[0]]
        self._line("{")
        self.depth += 1
        self._line(f"{scalar} held[{lanes}];")
        self._lane_loop(lanes, f"held[lane] = {text};")
        self._lane_loop(lanes, f"{target} = held[lane];")
        self.depth -= 1
        self._line("}")

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
        self._line(f"for (int32_t lane = 0; lane < {lanes}; ++lane) {{")
        self._line(f"    {text}")
        self._line("}")

    def _overlaps(self, value: Any, buffer: Any, index: Any) -> bool:
        """Whether a value reads other places of the buffer that it is stored to."""
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
            self.operations += self.trips * lanes
            if kind == "Add" and "Mul" in (kind_of(node.a), kind_of(node.b)):
                self.macs += self.trips * lanes
