# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Content of the C files: the network's kernel calls, its kernels and its memory layout."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.tvm.export_c.expressions import SCALARS, kind_of
from jetson_dnn_rt.tvm.export_c.kernels import ALIGNMENT, Kernel, write_kernel
from jetson_dnn_rt.tvm.export_c.planner import Block, MemoryPlan, plan_memory, round_up, sum_in_use
from jetson_dnn_rt.tvm.records import list_kernels

if TYPE_CHECKING:
    import tvm


@dataclass(frozen=True)
class Tensor:
    """A value between kernels; `scalar` is the numpy name of its element type."""

    name: str
    shape: tuple[int, ...]
    scalar: str

    @property
    def c_type(self) -> str:
        """C type of the elements."""
        return SCALARS[self.scalar]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.elements * np.dtype(self.scalar).itemsize


@dataclass(frozen=True)
class Call:
    """A kernel call, with the names of its tensors."""

    kernel: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass
class Network:
    """Work of the driver: tensors and kernel calls."""

    # without constants and views
    tensors: dict[str, Tensor] = field(default_factory=dict)
    # weights in order of their first use
    constants: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)  # in execution order
    inputs: tuple[str, ...] = ()  # from the caller
    outputs: tuple[str, ...] = ()

    def tensor(self, name: str) -> Tensor:
        """A value or weight by name."""
        if name in self.constants:
            value = self.constants[name]
            return Tensor(name, value.shape, value.dtype.name)
        return self.tensors[name]


@dataclass(frozen=True)
class Program:
    """Everything that is written as C."""

    name: str  # prefix of all names and files
    network: Network  # order and weights; unused weights are left out
    kernels: dict[str, Kernel]  # with GNU C vectors
    portable: dict[str, Kernel]  # as plain loops
    blocks: tuple[Block, ...]  # content of the arena
    plan: MemoryPlan
    weight_offsets: dict[str, int]  # start of each in the blob

    @property
    def weight_blob(self) -> bytes:
        """All weights, little-endian."""
        blob = bytearray()
        for name, value in self.network.constants.items():
            blob.extend(bytes(self.weight_offsets[name] - len(blob)))
            blob += value.astype(value.dtype.newbyteorder("<")).tobytes()
        return bytes(blob)

    @property
    def weight_sum(self) -> int:
        """CRC-32 of the blob."""
        return zlib.crc32(self.weight_blob)

    @property
    def stack_bytes(self) -> int:
        """Bytes of local arrays, of the kernel with the most."""
        return max((kernel.stack_bytes for kernel in self.kernels.values()), default=0)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one run."""
        return sum(self.kernels[call.kernel].macs for call in self.network.calls)

    def in_use(self, step: int) -> int:
        """Arena bytes that a step needs: live values and its workspace."""
        return sum_in_use(self.blocks, step, ALIGNMENT)


def make_program(scheduled: tvm.IRModule, name: str, vector_lanes: int) -> Program:
    """Lower a scheduled network, for one thread, and plan its memory.

    `name` is a C identifier, the prefix of all names; `vector_lanes` is the number of floats in a
    vector register of the processor. Raises `ModelError`, with the reason, when it cannot be
    written as C99.
    """
    network = read_network(scheduled)
    functions = lower_kernels(scheduled)
    used = dict.fromkeys(call.kernel for call in network.calls)
    missing = [kernel for kernel in used if kernel not in functions]
    if missing:
        raise ModelError(f"the network calls {', '.join(missing)}, which is not among its kernels")
    kernels = {each: write_kernel(each, functions[each], name, vector_lanes) for each in used}
    portable = {each: write_kernel(each, functions[each], name, 0) for each in used}
    wanted = {value for call in network.calls for value in call.inputs} | set(network.outputs)
    network.constants = {
        each: value for each, value in network.constants.items() if each in wanted
    }
    for call in network.calls:
        _check(call, kernels[call.kernel], network)
    blocks = find_blocks(network, lambda kernel: kernels[kernel].workspace_bytes)
    offsets, end = {}, 0
    for each, value in network.constants.items():
        offsets[each] = end
        end = round_up(end + value.nbytes, ALIGNMENT)
    plan = plan_memory(blocks, ALIGNMENT)
    return Program(name, network, kernels, portable, tuple(blocks), plan, offsets)


def find_blocks(network: Network, workspace: Callable[[str], int]) -> list[Block]:
    """Blocks of the arena, with the first and last step of each.

    Inputs and outputs of the network are the caller's memory. `workspace` returns the bytes that a
    kernel needs besides its operands.
    """
    given = {*network.inputs, *network.outputs}
    blocks = []
    last: dict[str, int] = {}
    for step, call in enumerate(network.calls):
        for name in (*call.inputs, *call.outputs):
            last[name] = step
    for step, call in enumerate(network.calls):
        for name in call.outputs:
            if name not in given:
                blocks.append(Block(name, network.tensors[name].bytes, step, last[name]))
        size = workspace(call.kernel)
        if size:
            blocks.append(Block(f"workspace of {step}", size, step, step))
    return blocks


def _check(call: Call, kernel: Kernel, network: Network) -> None:
    """Check that a call matches the kernel's parameters: C would not."""
    values = [network.tensor(name) for name in (*call.inputs, *call.outputs)]
    found = [(value.scalar, value.bytes) for value in values]
    wanted = [(operand.scalar, operand.bytes) for operand in kernel.operands]
    if found != wanted:
        raise ModelError(f"kernel {kernel.name} takes {wanted}, the network gives {found}")
    first = len(call.inputs)
    if any(number < first for number in kernel.written):
        raise ModelError(f"kernel {kernel.name} writes its inputs: export-c has no such calls")


def lower_kernels(module: tvm.IRModule) -> dict[str, Any]:
    """Lower the kernels of a scheduled network; raises `ModelError` when TVM cannot.

    They get serial loops, vectors where the schedule has them, and 32-bit indices. The passes are
    those of TVM's own CPU pipeline (``tvm.s_tir.pipeline``) up to the point where it would wrap a
    kernel in the calling convention of its runtime.
    """
    import tvm
    from tvm import tirx
    from tvm.s_tir import transform

    kernels = {
        name: function.with_attr("global_symbol", name)
        for name, function in list_kernels(module).items()
    }
    target = tvm.target.Target({"kind": "c"})
    tir = tirx.transform
    passes = [
        tir.BindTarget(target.with_host(target)), transform.CanonicalizeLoop(),
        transform.LowerInitBlock(), transform.PlanAndUpdateBufferAllocationLocation(),
        transform.ConvertBlocksToOpaque(), transform.CompactBufferAllocation(),
        transform.LowerMatchBuffer(), transform.StmtSimplify(), transform.AnnotateIrregularLoop(),
        transform.LowerOpaqueBlock(), tir.FlattenBuffer(), tir.NarrowDataType(32),
        transform.LoopPartition(), tir.VectorizeLoop(True), tir.StorageRewrite(),
        transform.HoistIfThenElse(), tir.UnrollLoop(), transform.RenormalizeSplitPattern(),
        tir.StmtSimplify(), tir.RemoveNoOp(), transform.RewriteUnsafeSelect(),
        tir.CommonSubexprElim(), tir.LowerIntrin(),
    ]  # fmt: skip
    try:
        lowered = tvm.transform.Sequential(passes)(tvm.IRModule(kernels))
    except Exception as error:  # TVM's errors have no class in common
        raise ModelError(f"TVM cannot lower the kernels to C: {error}") from error
    return {variable.name_hint: function for variable, function in lowered.functions.items()}


def read_network(module: tvm.IRModule) -> Network:
    """Read ``main`` of a scheduled network; reshapes are views of the same memory and disappear.

    Raises `ModelError` when it does anything but call kernels with fixed shapes.
    """
    import tvm
    from tvm.relax import transform

    try:
        main = transform.RewriteDataflowReshape()(module)["main"]
    except tvm.TVMError as error:
        raise ModelError(f"TVM cannot find the reshapes of the network: {error}") from error
    reader = _Reader()
    reader.network.inputs = tuple(reader.declare(each, each.ty) for each in main.params)
    for block in main.body.blocks:
        for binding in block.bindings:
            reader.bind(binding.var, binding.value)
    found = reader.values(main.body.body)
    reader.network.outputs = tuple(found)
    return reader.network


class _Reader:
    def __init__(self) -> None:
        self.network = Network()
        self._known: dict[Any, list[str]] = {}
        self._constants: dict[Any, str] = {}

    def declare(self, variable: Any, kind: Any) -> str:
        name = self._add(str(variable.name), kind)
        self._known[variable] = [name]
        return name

    def _add(self, name: str, kind: Any) -> str:
        number, base = 1, name
        while name in self.network.tensors:
            number += 1
            name = f"{base}_{number}"
        scalar = str(kind.dtype)
        if scalar not in SCALARS:
            raise ModelError(f"the tensor {name} is of {scalar}, which export-c does not write")
        self.network.tensors[name] = Tensor(name, _read_shape(name, kind), scalar)
        return name

    def bind(self, variable: Any, value: Any) -> None:
        if kind_of(value) == "Call":
            operator = str(value.op.name)
            if operator == "relax.call_tir":
                self._call(variable, value)
                return
            if operator == "relax.reshape":
                self._known[variable] = self.values(value.args[0])
                return
            raise ModelError(f"the network calls {operator}, which export-c does not write as C99")
        self._known[variable] = self.values(value)

    def _call(self, variable: Any, value: Any) -> None:
        inputs = [name for each in value.args[1].fields for name in self.values(each)]
        kinds = list(value.ty_args)
        if kind_of(kinds[0]).startswith("Tuple"):
            kinds = list(kinds[0].fields)
        names = [self._add(str(variable.name), kind) for kind in kinds]
        self._known[variable] = names
        kernel = str(value.args[0].name_hint)
        self.network.calls.append(Call(kernel, tuple(inputs), tuple(names)))

    def values(self, node: Any) -> list[str]:
        """Names of the tensors of an expression."""
        kind = kind_of(node)
        if node in self._known:
            return self._known[node]
        if kind == "Tuple":
            return [name for each in node.fields for name in self.values(each)]
        if kind == "TupleGetItem":
            return [self.values(node.tuple_value)[int(node.index)]]
        if kind == "GenericConst":
            return [self._constant(node)]
        raise ModelError(f"the network has the expression {kind}, which export-c does not write")

    def _constant(self, node: Any) -> str:
        if node not in self._constants:
            value = np.ascontiguousarray(node.value.numpy())
            if value.dtype.name not in SCALARS:
                raise ModelError(f"a weight is of {value.dtype.name}: export-c does not write it")
            name = f"weight_{len(self._constants)}"
            self._constants[node] = name
            self.network.constants[name] = value
        return self._constants[node]


def _read_shape(name: str, kind: Any) -> tuple[int, ...]:
    shape = []
    for extent in kind.shape:
        if kind_of(extent) != "IntImm":
            raise ModelError(f"the tensor {name} has a size that is not fixed: {extent}")
        shape.append(int(extent.value))
    return tuple(shape)
