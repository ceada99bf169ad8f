# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The precision that an engine really has, read from its inspector's JSON; on a fake TensorRT.

The entries below are in the form of real ones: NVIDIA's documentation of the engine inspector, and
the JSON of a ResNet on an A100 in ``tools/experimental/trt-engine-explorer`` of NVIDIA/TensorRT.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from fake_cuda import FakeCuda
from fake_tensorrt import make_tensorrt
from onnx_parts import OnnxPart, make_classifier, make_part, make_tail, node

from jetson_dnn_rt.backends.tensorrt.build import build_engine
from jetson_dnn_rt.backends.tensorrt.precision import (
    LayerPrecisions,
    check_precision,
    count_precisions,
)
from jetson_dnn_rt.backends.tensorrt.runner import TensorRtRunner
from jetson_dnn_rt.errors import ModelError

VERSIONS = ("8.5.3.1", "8.6.1", "10.3.0", "11.1.0")
WEAK = VERSIONS[:3]  # FP16 is a flag


def describe(name, layer_type, kind, **more):
    tensor = {"Name": "x", "Location": "Device", "Dimensions": [1, 64, 56, 56]}
    tensor["Format/Datatype"] = kind
    entry = {"Name": name, "LayerType": layer_type, "Inputs": [tensor], "Outputs": [tensor]}
    return entry | {"TacticValue": "0x0866ddee325d07a6"} | more


def convolve(kind, weights):
    return describe(
        "Conv_3 + Relu_4", "CaskConvolution", kind,
        ParameterType="Convolution", Kernel=[3, 3], OutMaps=64, Groups=1,
        Weights={"Type": weights, "Count": 36864}, Bias={"Type": weights, "Count": 64},
        Activation="RELU", TacticName="sm80_xmma_fprop_implicit_gemm_tilesize256x64x32",
    )  # fmt: skip


REFORMAT = describe(
    "Reformatting CopyNode for Input Tensor 0 to Conv_0 + Relu_1",
    "Reformat", "Row major linear FP32", ParameterType="Reformat", Origin="REFORMAT",
)  # fmt: skip
POOL = describe("MaxPool_2", "CudaPooling", "Row major linear FP32", ParameterType="Pooling")


@pytest.mark.parametrize(
    ("layer", "precision"),
    [
        (convolve("Row major linear FP32", "Float"), "fp32"),
        (convolve("Channel major FP16 format where channel % 8 == 0", "Half"), "fp16"),
        (convolve("Thirty-two wide channel vectorized row major Int8 format.", "Int8"), "int8"),
        (convolve("Channel major INT8 format where channel % 16 == 0", "Int8"), "int8"),
        (convolve("Half", "Half"), "fp16"),  # 10 and later
        (convolve("Float", "FP32"), "fp32"),
        (describe("gemm_myl0_4", "gemm", "Half"), "fp16"),
        (describe("gemm_myl0_4", "gemm", "BFloat16"), "bf16"),
        (describe("/fc/Gemm", "CaskGemmMatrixMultiply", "Float"), "fp32"),
        (describe("/fc/Gemm", "MatrixMultiply", "Float", ParameterType="MatrixMultiply"), "fp32"),
        (describe("up", "CaskDeconvolutionV2", "Half", ParameterType="Deconvolution"), "fp16"),
        (describe("_gemm_mha_v2_0x1", "kgen", "Half", TacticName="_gemm_mha_v2_0x1"), "fp16"),
        # Weights that are stored narrow are widened to the input's type.
        (convolve("Half", "Int8"), "fp16"),
        (convolve("Row major linear FP32", "Half"), "fp32"),
    ],
)
def test_layers_that_multiply_count(layer, precision):
    assert count_precisions([REFORMAT, layer, POOL]) == LayerPrecisions({precision: 1})


@pytest.mark.parametrize(
    "layer",
    [
        REFORMAT,
        POOL,
        describe("PWN(Sigmoid_3)", "PointWiseV2", "Half"),
        describe("__myl_CastMulMax_myl0_1", "kgen", "Half", TacticName="__myl_CastMulMax_0xa7"),
        describe("Conversion", "Cast", "Half"),
        {"Name": "weights", "LayerType": "Constant", "Inputs": [], "Outputs": []},
    ],
)
def test_other_layers_do_not(layer):
    assert count_precisions([layer]) == LayerPrecisions()


@pytest.mark.parametrize(
    "layer",
    [
        describe("{ForeignNode[/head/Conv.../Concat]}", "Myelin", "Row major linear FP32"),
        describe("{ForeignNode[Conv_0...Conv_9]}", "DLA", "Channel major FP16 format"),
        describe("nms", "PluginV2", "Float"),
        convolve("N/A due to dynamic shapes", ""),
    ],
)
def test_what_does_not_tell_is_not_guessed(layer):
    half = convolve("Half", "Half")
    assert count_precisions([half, layer]) == LayerPrecisions({"fp16": 1}, opaque=1)


@pytest.mark.parametrize(
    ("layers", "words"), [(["conv1 + relu1", "fc"], "only names of layers"), ([], "no layers")]
)
def test_an_engine_without_details(layers, words, caplog):
    found = count_precisions(layers)
    assert words in found.unknown
    check_precision(found, "fp16", "part")  # nothing is refused without a reason
    assert "part: whether the engine runs in fp16 cannot be told" in caplog.text


@pytest.mark.parametrize(
    ("counts", "opaque", "wanted", "figures"),
    [
        ({"fp32": 57}, 0, "fp16", "asked for fp16, 0 of 57 layers that multiply run in it (57"),
        ({"fp32": 3, "fp16": 54}, 0, "int8", "asked for int8, 0 of 57 layers"),
        ({"fp32": 56, "fp16": 1}, 0, "fp32", "asked for fp32, 56 of 57 layers"),
        ({"fp32": 56, "fp16": 1}, 0, "fp16", ""),
        ({"int8": 9, "fp16": 1}, 0, "int8", ""),
        ({"fp32": 57}, 0, "fp32", ""),
        ({"fp32": 57}, 1, "fp16", ""),  # may be inside the one that does not tell
        ({}, 0, "fp16", ""),  # a stage without products
    ],
)  # fmt: skip
def test_labels(counts, opaque, wanted, figures):
    found = LayerPrecisions(counts, opaque)
    if not figures:
        check_precision(found, wanted, "part")
        return
    with pytest.raises(ModelError) as caught:
        check_precision(found, wanted, "part")
    assert figures in str(caught.value)
    assert "not kept under that name" in str(caught.value)


# ---- builds on the fake ----------------------------------------------------------------------


@pytest.fixture(params=VERSIONS)
def trt(request):
    return make_tensorrt(request.param)


@pytest.mark.parametrize(("precision", "counts"), [("fp32", {"fp32": 2}), ("fp16", {"fp16": 2})])
def test_what_was_asked_for_is_read_back(trt, precision, counts):
    """A convolution and a matrix product."""
    built = build_engine(make_classifier(), precision, module=trt)
    assert built.precisions == LayerPrecisions(counts)


def test_fp32_under_the_name_of_fp16_is_refused(trt):
    trt.computes = "Float"
    with pytest.raises(ModelError) as caught:
        build_engine(make_classifier(), "fp16", module=trt)
    text = str(caught.value)
    assert f"test:part in TensorRT {trt.__version__}: asked for fp16, 0 of 2 layers" in text


def test_fp16_under_the_name_of_fp32_is_refused(trt):
    trt.computes = "Half"
    with pytest.raises(ModelError, match="asked for fp32, 0 of 2 layers"):
        build_engine(make_classifier(), "fp32", module=trt)


def test_without_an_inspector_it_is_said(trt, caplog):
    trt.tells = False
    built = build_engine(make_classifier(), "fp16", module=trt)
    assert "built without layer information" in built.precisions.unknown
    assert "whether the engine runs in fp16 cannot be told" in caplog.text
    assert built.engine


def test_a_stage_that_has_nothing_for_fp16(trt, caplog):
    """No products; or one whose weights fp16 cannot hold, which the colours leave in fp32."""
    assert build_engine(make_tail(), "fp16", module=trt).precisions == LayerPrecisions()
    weight = np.full((2, 3, 1, 1), 1e6, np.float32)
    part = make_part(
        [node("Conv", "image weight", "maps")],
        {"weight": weight},
        {"image": (1, 3, 4, 4)},
        {"maps": onnx.TensorProto.FLOAT},
    )
    found = build_engine(part, "fp16", module=trt).precisions
    assert found == LayerPrecisions({"fp32": 1})
    assert "fp16 ends at 65504" in caplog.text


def quantize(part):
    """Q/DQ around the input and the weights of the convolution, as quantisers write them."""
    model = onnx.load_model_from_string(part.data)
    numpy_helper = onnx.numpy_helper
    (conv,) = (entry for entry in model.graph.node if entry.op_type == "Conv")
    scales = {conv.input[0]: 1 / 127, conv.input[1]: 2 / 127}
    first = []
    for index, (name, scale) in enumerate(scales.items()):
        model.graph.initializer.append(numpy_helper.from_array(np.float32(scale), f"{name}_scale"))
        model.graph.initializer.append(numpy_helper.from_array(np.int8(0), f"{name}_zero"))
        rest = f"{name}_scale {name}_zero"
        first.append(node("QuantizeLinear", f"{name} {rest}", f"{name}_q"))
        first.append(node("DequantizeLinear", f"{name}_q {rest}", f"{name}_dq"))
        conv.input[index] = f"{name}_dq"
    nodes = [*first, *(onnx.NodeProto.FromString(n.SerializeToString()) for n in model.graph.node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.checker.check_model(model)
    return OnnxPart(model.SerializeToString(), part.input_shapes)


def test_int8_is_what_the_network_says(trt):
    part = quantize(make_classifier())
    built = build_engine(part, "int8", module=trt)
    assert built.precisions == LayerPrecisions({"int8": 1, "fp32": 1})
    _, config = trt.builds[-1]
    weak = hasattr(trt.BuilderFlag, "INT8")
    assert config.set == ({trt.BuilderFlag.INT8} if weak else set())
    runner = TensorRtRunner(part, "int8", engine=built.engine, module=trt, cuda=FakeCuda())
    image = np.random.default_rng(0).random(part.input_shapes[0], np.float32)
    scores, _ = runner.to_host(runner.run([image]))
    plain = TensorRtRunner(make_classifier(), "fp32", module=trt, cuda=FakeCuda())
    expected, _ = plain.to_host(plain.run([image]))
    assert 0 < np.abs(scores - expected).max() < 0.05
    with pytest.raises(ModelError, match="not"):  # nor is it fp32
        build_engine(part, "fp32", module=trt)


def test_int8_without_quantisation_is_refused(trt):
    with pytest.raises(ModelError, match="is not quantized: int8 needs frames"):
        build_engine(make_classifier(), "int8", module=trt)
    assert not trt.builds
    assert build_engine(make_tail(), "int8", module=trt).engine  # a stage without products


def test_int8_that_becomes_fp16_is_refused(trt):
    trt.computes = "Half"
    with pytest.raises(ModelError, match=r"asked for int8, 0 of 2 .* \(2 in fp16\)"):
        build_engine(quantize(make_classifier()), "int8", module=trt)
