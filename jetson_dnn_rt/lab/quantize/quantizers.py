# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Libraries that quantize a network, each in the form that a back end runs best.

All give ONNX with ``QuantizeLinear`` and ``DequantizeLinear``: OpenVINO, ONNX Runtime and TensorRT
read it, and it can be cut into stages. Measured on two x86-64 cores with VNNI: OpenVINO runs what
NNCF makes of ONNX as fast as what NNCF makes of OpenVINO's own format.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.registry import TENSORRT
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.models.graph.quantized_part import (
    PRODUCTS,
    is_x86,
    list_read,
    mark_quantized,
    rename_value,
    sums_overflow,
)
from jetson_dnn_rt.models.sources.files import first_line, import_package

if TYPE_CHECKING:
    import onnx

Images = Sequence[npt.NDArray[np.float32]]

# Operators beside products that ONNX Runtime has kernels for in INT8, or that move values as they
# are: between two products the values then stay in INT8.
_CHEAP = (
    *("Add", "AveragePool", "Clip", "Concat", "DepthToSpace", "Flatten", "GlobalAveragePool"),
    *("LeakyRelu", "MaxPool", "Mul", "Pad", "Relu", "Reshape", "Resize", "Sigmoid", "Slice"),
    *("Split", "Squeeze", "Transpose", "Unsqueeze"),
)


def find_quantizer(backend: str) -> Quantizer:
    """The quantizer for a back end.

    `BackendUnavailableError` when its library is missing, or there is none for this back end.
    """
    if backend == "openvino":
        return NncfQuantizer()
    if backend == "onnxruntime" or backend in TENSORRT:
        return OnnxRuntimeQuantizer(for_tensorrt=backend in TENSORRT)
    raise BackendUnavailableError(
        f"networks are not quantized for {backend}: int8 runs on openvino, onnxruntime, tensorrt"
    )


class Quantizer(ABC):
    """Quantizes an ONNX model; `library` is what does it, and its version."""

    library: str

    @abstractmethod
    def _quantize(
        self, model: onnx.ModelProto, images: Images, floats: Collection[str]
    ) -> onnx.ModelProto: ...

    def quantize(self, model: onnx.ModelProto, images: Images, kept: Collection[str]) -> bytes:
        """Calibrate on the network's inputs and quantize all products but those in `kept`.

        Other operators are quantized only between products that are. What follows the last
        products, the arithmetic of boxes above all, stays in fp32: nothing is gained there.
        Raises `ModelError` when the library cannot quantize the network.
        """
        floats = {*kept, *_list_tail(model), *_list_neighbours(model, kept)}
        copy = type(model)()
        copy.CopyFrom(model)
        try:
            with _quiet():
                quantized = self._quantize(copy, images, floats)
        except Exception as error:  # the libraries raise anything
            text = f"{type(error).__name__}: {first_line(error)}"
            raise ModelError(f"{self.library} cannot quantize the network: {text}") from error
        _restore_names(quantized, model)
        mark_quantized(quantized, self.library)
        data: bytes = quantized.SerializeToString(deterministic=True)
        return data


class OnnxRuntimeQuantizer(Quantizer):
    """``onnxruntime.quantization``: ranges from the least and largest values, weights by channel.

    Activations are uint8 on x86, whose kernels multiply uint8 by int8 (measured: 1.7 times as fast
    as int8 by int8), and symmetric int8 elsewhere. Where an x86 CPU has no VNNI, two products may
    overflow the 16 bits that they are added in: weights then have 7 bits. For TensorRT, all is
    symmetric, biases stay float, and only inputs and weights of products are quantized.
    """

    def __init__(self, *, for_tensorrt: bool = False) -> None:
        library = import_package("onnxruntime", "quantizing a network")
        import_package("onnx", "quantizing a network")
        self.library = f"onnxruntime {library.__version__}"
        self._for_tensorrt = for_tensorrt
        self._is_x86 = is_x86() and not for_tensorrt

    def _quantize(
        self, model: onnx.ModelProto, images: Images, floats: Collection[str]
    ) -> onnx.ModelProto:
        import onnx
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

        operators = PRODUCTS if self._for_tensorrt else (*PRODUCTS, *_CHEAP)
        options: dict[str, Any] = {
            "WeightSymmetric": True,
            "ActivationSymmetric": not self._is_x86,
            "MatMulConstBOnly": True,
        }
        if self._for_tensorrt:
            options |= {
                "AddQDQPairToWeight": True,
                "QuantizeBias": False,
                "OpTypesToExcludeOutputQuantization": list(operators),
            }
        with tempfile.TemporaryDirectory() as folder:
            before, after = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
            onnx.save(model, before)
            quantize_static(
                before,
                after,
                _make_reader(model.graph.input[0].name, images),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(operators),
                per_channel=True,
                reduce_range=sums_overflow() and not self._for_tensorrt,
                activation_type=QuantType.QUInt8 if self._is_x86 else QuantType.QInt8,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=sorted(floats),
                extra_options=options,
            )
            return onnx.load(after)


class NncfQuantizer(Quantizer):
    """NNCF: ranges that leave out outliers, biases corrected for what rounding shifts.

    Weights have 7 bits on an x86 CPU without VNNI, as above.
    """

    def __init__(self) -> None:
        import_package("onnx", "quantizing a network")
        nncf = _import_nncf()
        self.library = f"nncf {nncf.__version__}"
        self._nncf = nncf

    def _quantize(
        self, model: onnx.ModelProto, images: Images, floats: Collection[str]
    ) -> onnx.ModelProto:
        nncf, name = self._nncf, model.graph.input[0].name
        fix = nncf.OverflowFix.ENABLE if sums_overflow() else nncf.OverflowFix.FIRST_LAYER
        return nncf.quantize(
            model,
            nncf.Dataset(list(images), lambda image: {name: image}),
            subset_size=len(images),
            target_device=nncf.TargetDevice.CPU,
            # Weights symmetric, activations not: those of a SiLU begin at -0.28.
            preset=nncf.QuantizationPreset.MIXED,
            ignored_scope=nncf.IgnoredScope(names=sorted(floats), validate=False),
            advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=fix),
        )


def _import_nncf() -> Any:
    """Import NNCF without its reports to its makers: a robot sends nothing anywhere."""
    before = os.environ.get("NNCF_CI")
    os.environ["NNCF_CI"] = "1"
    try:
        with _quiet():
            nncf = import_package("nncf", "quantizing a network for OpenVINO")
    finally:
        if before is None:
            del os.environ["NNCF_CI"]
        else:
            os.environ["NNCF_CI"] = before
    nncf.set_log_level(logging.ERROR)
    return nncf


def _make_reader(name: str, images: Images) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Gives the images one by one."""

        def __init__(self) -> None:
            self._rest = iter(images)

        def get_next(self) -> dict[str, npt.NDArray[np.float32]] | None:
            image = next(self._rest, None)
            return None if image is None else {name: image}

    return Reader()


def _restore_names(quantized: onnx.ModelProto, model: onnx.ModelProto) -> None:
    """Give back names of values that went with operators without effect: NNCF removes them."""
    made = {name for node in quantized.graph.node for name in node.output}
    for node in model.graph.node:
        if node.op_type not in ("Cast", "Identity") or node.output[0] in made:
            continue
        if node.input[0] in made:
            rename_value(quantized.graph, node.input[0], node.output[0])
            made.add(node.output[0])


def _list_tail(model: onnx.ModelProto) -> list[str]:
    """Names of the operators that no product follows, and that are none themselves."""
    before: set[str] = set()  # values that a product needs
    tail = []
    for node in reversed(model.graph.node):
        if node.op_type in PRODUCTS or before.intersection(node.output):
            before.update(list_read(node))
        else:
            tail.append(node.name)
    return tail


def _list_neighbours(model: onnx.ModelProto, kept: Collection[str]) -> list[str]:
    """Names of the operators, no products, that are beside a product in fp32."""
    beside: set[str] = set()
    for nodes, given, taken in (
        (list(model.graph.node), list_read, _list_written),
        (list(reversed(model.graph.node)), _list_written, list_read),
    ):
        floats: set[str] = set()  # values between which there is no product and one in fp32
        for node in nodes:
            is_product = node.op_type in PRODUCTS
            if node.name in kept or (not is_product and floats.intersection(given(node))):
                floats.update(taken(node))
                if not is_product:
                    beside.add(node.name)
    return sorted(beside)


def _list_written(node: onnx.NodeProto) -> list[str]:
    return [name for name in node.output if name]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the libraries print and log off the screen, where the progress is."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
