"""A network as Relax calls it, its kernels, and where every value lies: what the C files say."""

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
    """A value between kernels; `scalar` is the type of its elements, as numpy names it."""

    name: str
    shape: tuple[int, ...]
    scalar: str

    @property
    def bytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * np.dtype(self.scalar).itemsize


@dataclass(frozen=True)
class Call:
    """A kernel that is called, with the names of its tensors."""

    kernel: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass
class Network:
    """What the driver does."""

    # without constants and what is only another view
    tensors: dict[str, Tensor] = field(default_factory=dict)
    # weights in order of their first use
    constants: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)  # in the order in which they run
    inputs: tuple[str, ...] = ()  # that the caller gives
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """What is written as C."""

    name: str  # prefix of all names and files
    network: Network  # order and weights; weights that nothing uses are left out
    kernels: dict[str, Kernel]  # with vectors of GNU C
    portable: dict[str, Kernel]  # as plain loops
    blocks: tuple[Block, ...]  # what lies in the arena
    plan: MemoryPlan
    weight_offsets: dict[str, int]  # where each begins in the blob

    @property
    def weight_blob(self) -> bytes:
        """All weights, little-endian."""
        blob = bytearray(
            max(
                (self.weight_offsets[name] + value.nbytes
                 for name, value in self.network.constants.items()),
                default=0,
            )
        )  # fmt: skip
        for name, value in self.network.constants.items():
            data = value.astype(value.dtype.newbyteorder("<")).tobytes()
            begin = self.weight_offsets[name]
            blob[begin : begin + len(data)] = data
        return bytes(blob)

    @property
    def weight_sum(self) -> int:
        """CRC-32 of the blob."""
        return zlib.crc32(self.weight_blob)

    @property
    def stack_bytes(self) -> int:
        """Local arrays of the kernel that has the most."""
        return max((kernel.stack_bytes for kernel in self.kernels.values()), default=0)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one run."""
        return sum(self.kernels[call.kernel].macs for call in self.network.calls)

    def tensor(self, name: str) -> Tensor:
        """A value or weight by name."""
        if name in self.network.constants:
            value = self.network.constants[name]
            return Tensor(name, value.shape, value.dtype.name)
        return self.network.tensors[name]

    def kernel_of(self, step: int) -> Kernel:
        """The kernel that a step calls."""
        return self.kernels[self.network.calls[step].kernel]

    def in_use(self, step: int) -> int:
        """Bytes of the arena that a step needs: values that live, and its work space."""
        return sum_in_use(self.blocks, step, ALIGNMENT)


def make_program(scheduled: tvm.IRModule, name: str, vector_lanes: int) -> Program:
    """Lower a scheduled network, for one thread, and plan its memory.

    `name` is an identifier of C, prefix of all names; `vector_lanes` are floats of a vector
    register of the processor. Raises `ModelError` when something in it cannot be written as C99;
    says what.
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
    """What must lie in the arena, and from which step to which.

    Inputs and outputs of the network are the caller's memory. `workspace` gives the bytes that a
    kernel needs beside its operands.
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
    """See that a call gives what the kernel takes: C would not notice."""
    names = (*call.inputs, *call.outputs)
    found: list[Any] = []
    for name in names:
        value = network.constants.get(name)
        if value is not None:
            found.append((value.dtype.name, value.nbytes))
        else:
            tensor = network.tensors[name]
            found.append((np.dtype(tensor.scalar).name, tensor.bytes))
    wanted = [(operand.scalar, operand.bytes) for operand in kernel.operands]
    if found != wanted:
        raise ModelError(f"kernel {kernel.name} takes {wanted}, the network gives {found}")
    first = len(call.inputs)
    if any(number < first for number in kernel.written):
        raise ModelError(f"kernel {kernel.name} writes its inputs: export-c has no such calls")


def lower_kernels(module: tvm.IRModule) -> dict[str, Any]:
    """Lower the kernels of a scheduled network; raises `ModelError` when TVM cannot.

    They get serial loops, vectors where the schedule has them, and 32-bit indices. The passes are
    those of TVM's own CPU pipeline (``tvm.s_tir.pipeline``) up to where it would wrap a kernel
    into the calling convention of its runtime.
    """
    import tvm
    from tvm import tirx

    kernels = {
        name: function.with_attr("global_symbol", name)
        for name, function in list_kernels(module).items()
    }
    target = tvm.target.Target({"kind": "c"})
    passes = [tirx.transform.BindTarget(target.with_host(target)), *_list_passes()]
    try:
        lowered = tvm.transform.Sequential(passes)(tvm.IRModule(kernels))
    except Exception as error:  # TVM's errors have no class in common
        raise ModelError(f"TVM cannot lower the kernels to C: {error}") from error
    return {variable.name_hint: function for variable, function in lowered.functions.items()}


def _list_passes() -> list[tvm.transform.Pass]:
    from tvm import s_tir, tirx

    return [
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.AnnotateIrregularLoop(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.NarrowDataType(32),
        s_tir.transform.LoopPartition(),
        tirx.transform.VectorizeLoop(True),
        tirx.transform.StorageRewrite(),
        s_tir.transform.HoistIfThenElse(),
        tirx.transform.UnrollLoop(),
        s_tir.transform.RenormalizeSplitPattern(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        s_tir.transform.RewriteUnsafeSelect(),
        tirx.transform.CommonSubexprElim(),
        tirx.transform.LowerIntrin(),
    ]


def read_network(module: tvm.IRModule) -> Network:
    """Read ``main`` of a scheduled network; reshapes are views of the same memory and disappear.

    Raises `ModelError` when it does something else than calling kernels with fixed shapes.
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
        """Names of the tensors that an expression is."""
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
