# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A part of a network in INT8: ONNX with ``QuantizeLinear`` and ``DequantizeLinear``.

A network is quantized whole and then cut, so that its stages in sequence compute what the whole
computes: they have the same scales. A boundary value that every later layer reads quantized
crosses rounded, as float32 of at most 256 values, so that the layer before it stays in INT8.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.sources.files import hash_bytes, import_package

if TYPE_CHECKING:
    import onnx
    import torch

logger = logging.getLogger(__name__)

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Sums of products, which INT8 pays for; everything else is cheap."""

_MARK = "jetson_dnn_rt.quantized_by"
_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
_SAFE_WEIGHT = 64
"""Two products with uint8 stay within 16 bits: 2 * 255 * 64 < 2 ** 15."""


class QuantizedPart:
    """A `Part` that exists as quantized ONNX alone."""

    def __init__(
        self,
        name: str,
        data: bytes,
        input_shapes: tuple[tuple[int, ...], ...],
        inner_outputs: tuple[int, ...] = (),
    ) -> None:
        self.name = name
        self.input_shapes = input_shapes
        self.inner_outputs = inner_outputs
        self.graph_hash = hash_bytes(data)
        self._data = data

    def torch_module(self) -> torch.nn.Module:
        """Raise `ModelError`: INT8 runs on back ends that read ONNX."""
        raise ModelError(f"{self.name} is quantized, which torch does not run here")

    def onnx_model(self) -> bytes:
        """The quantized network."""
        return self._data


def is_quantized(model: onnx.ModelProto) -> bool:
    """Whether a network has quantized values, whoever quantized it."""
    return any(node.op_type in (_QUANTIZE, _DEQUANTIZE) for node in model.graph.node)


def mark_quantized(model: onnx.ModelProto, library: str) -> None:
    """Note in a model that it was quantized here, and by which library in which version."""
    entry = model.metadata_props.add()
    entry.key, entry.value = _MARK, library


def make_unsigned(data: bytes) -> bytes:
    """Write values that are quantized to int8 as uint8: the same numbers, 128 higher.

    OpenVINO 2026.4 computes something else where two layers read the same int8 value and its zero
    point is not 0: a YOLOX-nano of NNCF is off by two thirds. Weights, which are constants, stay.
    A model that is not quantized is returned as it is.
    """
    if _QUANTIZE.encode() not in data:
        return data
    onnx = import_package("onnx", "a quantized network")
    model = onnx.load_model_from_string(data)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    int8, shifted = onnx.TensorProto.INT8, {}
    for node in model.graph.node:
        if node.op_type == _QUANTIZE and node.input[0] not in constants and len(node.input) > 2:
            zero = constants.get(node.input[2])
            if zero is not None and zero.data_type == int8:
                shifted[node.output[0]] = node
    for node in model.graph.node:
        if node.op_type not in (_QUANTIZE, _DEQUANTIZE):
            continue
        if node.input[0] not in shifted and node.output[0] not in shifted:
            continue
        zero = constants[node.input[2]]
        name = f"{zero.name}_unsigned"  # weights may have the same one
        if name not in constants:
            values = onnx.numpy_helper.to_array(zero).astype(np.int16) + 128
            constants[name] = onnx.numpy_helper.from_array(values.astype(np.uint8), name)
            model.graph.initializer.append(constants[name])
        node.input[2] = name
    # Types that the exporter recorded would contradict the new ones.
    del model.graph.value_info[:]
    result: bytes = model.SerializeToString()
    return result


def count_quantized(data: bytes, name: str) -> int:
    """Products of a quantized part that a back end should compute in INT8.

    May be 0: of a stage without products, or whose products all stay in fp32. `ModelError` for a
    part that was not quantized here.
    """
    onnx = import_package("onnx", "a variant in int8")
    model = onnx.load_model_from_string(data)
    if not any(entry.key == _MARK for entry in model.metadata_props):
        raise ModelError(
            f"{name} is not quantized: int8 needs frames to calibrate with; fix: jetson-dnn-rt "
            "build"
        )
    return len(list_quantized(model))


def list_quantized(model: onnx.ModelProto) -> list[str]:
    """Names of the products whose data and weights are both dequantized just before them."""
    given = {
        name for node in model.graph.node if node.op_type == _DEQUANTIZE for name in node.output
    }
    return [
        node.name
        for node in model.graph.node
        if node.op_type in PRODUCTS and all(name in given for name in node.input[:2])
    ]


def is_x86() -> bool:
    """Whether this is an x86-64 CPU."""
    return platform.machine().lower() in ("x86_64", "amd64")


def has_vnni() -> bool:
    """Whether an x86 CPU adds products of INT8 in 32 bits."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return bool({"avx512_vnni", "avx_vnni", "amx_int8"} & set(flags.split()))


def sums_overflow() -> bool:
    """Whether this CPU adds pairs of products of INT8 in 16 bits, which weights of 8 overflow."""
    return is_x86() and not has_vnni()


def must_stay_float(data: bytes, name: str) -> bool:
    """Whether a network that its user quantized is right only in fp32 here; that is logged.

    Where sums overflow, results are wrong without an error. What is quantized for such a CPU has
    weights of 7 bits.
    """
    if b"DequantizeLinear" not in data or not sums_overflow():
        return False
    import onnx

    if not any(
        weight > _SAFE_WEIGHT for weight in _list_largest(onnx.load_model_from_string(data))
    ):
        return False
    logger.warning(
        "%s: its INT8 layers are computed in fp32: this CPU has no VNNI, and products of weights "
        "of 8 bits would overflow; fix: quantize it with 7 bits (reduce_range), or give the float "
        "network and let the package make the variant int8",
        name,
    )
    return True


def _list_largest(model: onnx.ModelProto) -> list[int]:
    """The largest distance of each product's quantized weights from their zero point."""
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    found = []
    for node in model.graph.node:
        if node.op_type not in PRODUCTS:
            continue
        for given in node.input[:2]:
            maker = makers.get(given)
            if maker is None or maker.op_type != _DEQUANTIZE or maker.input[0] not in constants:
                continue
            weights = numpy_helper.to_array(constants[maker.input[0]]).astype(np.int32)
            zero = np.zeros(1, np.int32)
            if len(maker.input) > 2 and maker.input[2] in constants:
                zero = numpy_helper.to_array(constants[maker.input[2]]).astype(np.int32).ravel()
            # One zero for each channel is on some axis: the widest of any stands for all.
            found.append(
                max(abs(int(weights.max(initial=0)) - int(zero.min(initial=0))),
                    abs(int(weights.min(initial=0)) - int(zero.max(initial=0))))
            )  # fmt: skip
    return found


def cut(
    data: bytes, name: str, inputs: Mapping[str, tuple[int, ...]], outputs: Sequence[str]
) -> QuantizedPart:
    """Cut a part out of a quantized network, between float32 values that it names.

    Without `outputs` it is the whole network. `ModelError` when it has no value of a name.
    """
    import onnx

    shapes = tuple(inputs.values())
    if not outputs:
        return QuantizedPart(name, data, shapes)
    model = onnx.load_model_from_string(data)
    graph = model.graph
    makers = {output: node for node in graph.node for output in node.output}
    known = {*makers, *(value.name for value in graph.input)}
    for value in (*inputs, *outputs):
        if value not in known:
            raise ModelError(f"{name}: the quantized network has no value {value!r} to cut at")
    ends = {value.name: value for value in graph.output}
    given = [value if value in ends else _find_rounded(graph, value) for value in outputs]
    needed, waiting = set(inputs), list(given)
    nodes = set()
    while waiting:
        node = makers.get(waiting.pop())
        if node is not None and id(node) not in nodes:
            nodes.add(id(node))
            fresh = [value for value in list_read(node) if value not in needed]
            needed.update(fresh)
            waiting += fresh
    kept: list[Any] = [_copy(node) for node in graph.node if id(node) in nodes]
    weights: list[Any] = [_copy(tensor) for tensor in graph.initializer if tensor.name in needed]
    floats = onnx.TensorProto.FLOAT
    make = onnx.helper.make_tensor_value_info
    results = [_copy(ends[v]) if v in ends else make(v, floats, None) for v in given]
    for field, values in (
        (graph.node, kept),
        (graph.initializer, weights),
        (graph.input, [make(value, floats, list(shape)) for value, shape in inputs.items()]),
        (graph.output, results),
        (graph.value_info, []),
    ):
        del field[:]  # type: ignore[attr-defined]
        field.extend(values)  # type: ignore[attr-defined]
    inner = tuple(index for index, value in enumerate(given) if value not in ends)
    return QuantizedPart(name, model.SerializeToString(deterministic=True), shapes, inner)


def _find_rounded(graph: onnx.GraphProto, value: str) -> str:
    """The dequantized form of a value, where nothing reads it but one ``QuantizeLinear``."""
    readers = [node for node in graph.node if value in list_read(node)]
    if len(readers) == 1 and readers[0].op_type == _QUANTIZE and readers[0].input[0] == value:
        given = readers[0].output[0]
        for node in graph.node:
            if node.op_type == _DEQUANTIZE and node.input[0] == given:
                return str(node.output[0])
    return value


def list_read(node: onnx.NodeProto) -> list[str]:
    """Names of the values that a node reads, those of its branches and loops included."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            for inner in graph.node:
                names += list_read(inner)
            names += [value.name for value in graph.output]
    return names


def rename_value(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Rename a value of a graph wherever it is made or read, in branches and loops too."""
    for node in graph.node:
        for field in (node.input, node.output):
            field[:] = [new if name == old else name for name in field]
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                rename_value(inner, old, new)
    for value in (*graph.output, *graph.value_info):
        if value.name == old:
            value.name = new


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
