"""The order in which a network calls its kernels, read from Relax."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.tvm.export_c.expressions import SCALARS, kind_of

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
