# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""INT8 on the back ends: what runs, what is read back, and what a label must not say."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import onnxruntime
import pytest
from fake_cuda import FakeCuda
from fake_tensorrt import make_tensorrt
from onnx import TensorProto
from onnx_parts import make_part, node

from jetson_dnn_rt.backends import openvino as openvino_backend
from jetson_dnn_rt.backends.registry import create_runner, inspect_backend
from jetson_dnn_rt.backends.tensorrt.build import build_engine
from jetson_dnn_rt.backends.tensorrt.runner import TensorRtRunner
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.graph import quantized_part
from jetson_dnn_rt.models.graph.batched_part import BatchedPart
from jetson_dnn_rt.models.graph.quantized_part import (
    QuantizedPart,
    count_quantized,
    cut,
    list_quantized,
    make_unsigned,
    mark_quantized,
    sums_overflow,
)
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.models.sources.torch import run_onnx

SHAPE = (1, 3, 16, 24)
BACKENDS = ("onnxruntime", "openvino")
LARGEST = 64 if sums_overflow() else 127
"""Weight that is computed right in INT8 here."""
SCALES = {"image": 1 / 255, "maps": 0.02, "weight": 0.01, "second": 0.008}


def make_qdq(fused=True, largest=LARGEST):
    """Two convolutions as exporters write them: uint8 data, int8 weights.

    Not `fused`: the first one's result is read in fp32 as well. `largest` is the largest weight.
    """
    rng = np.random.default_rng(0)
    constants = {
        "w1": rng.integers(-largest, largest + 1, (8, 3, 3, 3)).astype(np.int8),
        "w2": rng.integers(-largest, largest + 1, (4, 8, 1, 1)).astype(np.int8),
        "z8": np.zeros((), np.int8), "zu": np.zeros((), np.uint8),
        "zm": np.full((), 128, np.uint8),
        **{f"s_{name}": np.float32(scale) for name, scale in SCALES.items()},
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "image s_image zu", "image_q"),
        node("DequantizeLinear", "image_q s_image zu", "image_d"),
        node("DequantizeLinear", "w1 s_weight z8", "w1_d"),
        node("Conv", "image_d w1_d", "maps", pads=[1, 1, 1, 1]),
        node("QuantizeLinear", "maps s_maps zm", "maps_q"),
        node("DequantizeLinear", "maps_q s_maps zm", "maps_d"),
        node("DequantizeLinear", "w2 s_second z8", "w2_d"),
        node("Conv", "maps_d w2_d", "raw"),
        node("QuantizeLinear", "raw s_maps zm", "raw_q"),
        node("DequantizeLinear", "raw_q s_maps zm", "raw_d"),
        node("GlobalAveragePool", "raw_d", "mean"),
        node("Flatten", "mean", "scores"),
    ]
    outputs = {"scores": TensorProto.FLOAT} | ({} if fused else {"maps": TensorProto.FLOAT})
    return make_part(nodes, constants, {"image": SHAPE}, outputs)


def mark(part):
    """The same part as one that was quantized here."""
    model = onnx.load_model_from_string(part.data)
    mark_quantized(model, "test 1.0")
    return QuantizedPart(part.name, model.SerializeToString(), part.input_shapes)


def make_image(seed=0):
    return np.random.default_rng(seed).random(SHAPE, np.float32)


def create(part, backend, precision="int8"):
    info = inspect_backend(backend)
    if precision not in info.precisions:
        pytest.skip(f"{backend} has no {precision} here: {info.reason}")
    return create_runner(part, backend, precision, threads=1)


def compute(part, image):
    """In fp32, node by node, with the values rounded where the network says so."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(part.onnx_model(), options)
    return session.run(None, {"image": image})[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_quantized_part_runs_in_int8(backend):
    pytest.importorskip(backend)
    part = mark(make_qdq())
    runner = create(part, backend)
    assert runner.precision == "int8"
    image = make_image()
    (found,) = runner.run([image])
    # One step of the last scale: the two add whole numbers, the reference numbers that are nearly.
    np.testing.assert_allclose(found, compute(part, image), atol=2 * SCALES["maps"])
    runner.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_user_quantized_runs_as_it_is(backend, tmp_path):
    """A file with Q/DQ is a model like any other: its layers run in INT8, whatever its label."""
    pytest.importorskip(backend)
    path = tmp_path / "quantized.onnx"
    path.write_bytes(make_qdq().data)
    model = load_model(f"onnx:{path}")
    assert model.kind == "classification"
    runner = create(model, backend, "fp32")
    image = make_image(1)
    (found,) = runner.run([image])
    np.testing.assert_allclose(found, compute(model, image), atol=2 * SCALES["maps"])
    runner.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_vnni_weights_of_eight_bits_are_computed_in_fp32(backend, caplog, monkeypatch):
    """Else pairs of products overflow: half of the results were wrong by several steps."""
    pytest.importorskip(backend)
    monkeypatch.setattr(quantized_part, "is_x86", lambda: True)
    monkeypatch.setattr(quantized_part, "has_vnni", lambda: False)
    image = make_image(1)
    for largest, told in ((127, True), (64, False)):
        part = make_qdq(largest=largest)
        caplog.clear()
        runner = create(part, backend, "fp32")
        assert ("has no VNNI" in caplog.text) == told
        (found,) = runner.run([image])
        # In fp32 it is the reference, in INT8 it may be a step of the last scale beside it.
        limit = 1e-3 if told else 2 * SCALES["maps"]
        np.testing.assert_allclose(found, compute(part, image), atol=limit)
        runner.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_signed_values_with_a_zero_point_are_computed_right(backend, tmp_path):
    """As NNCF and others write them; OpenVINO takes them as unsigned, the same numbers."""
    pytest.importorskip(backend)
    path = tmp_path / "signed.onnx"
    path.write_bytes(make_signed(make_qdq().data))
    model = load_model(f"onnx:{path}")
    runner = create(model, backend, "fp32")
    for seed in range(3):
        image = make_image(seed)
        (found,) = runner.run([image])
        np.testing.assert_allclose(found, compute(model, image), atol=2 * SCALES["maps"])
    runner.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_layers_that_read_one_signed_value(backend):
    """As in the stages of a YOLO; OpenVINO 2026.4 is off by half without `make_unsigned`."""
    pytest.importorskip(backend)
    rng = np.random.default_rng(0)
    constants = {
        "s_image": np.float32(1 / 255), "z_image": np.array(-128, np.int8),
        "s": np.float32(0.03), "z": np.array(-118, np.int8),
    }  # fmt: skip

    def layer(value, name, inputs, size=1):
        weight = rng.integers(-LARGEST, LARGEST + 1, (8, inputs, size, size)).astype(np.int8)
        scales = (rng.random(8) * 0.004 + 0.001).astype(np.float32)
        constants.update(
            {f"{name}_w": weight, f"{name}_s": scales, f"{name}_z": np.zeros(8, np.int8)}
        )
        return [
            node("DequantizeLinear", f"{name}_w {name}_s {name}_z", f"{name}_wd", axis=0),
            node("Conv", f"{value} {name}_wd", f"{name}_raw", pads=[size // 2] * 4),
            node("Sigmoid", f"{name}_raw", f"{name}_sigmoid"),
            node("Mul", f"{name}_raw {name}_sigmoid", name),
        ]

    def round_to(value, scale, zero):
        return [
            node("QuantizeLinear", f"{value} {scale} {zero}", f"{value}_q"),
            node("DequantizeLinear", f"{value}_q {scale} {zero}", f"{value}_d"),
        ]

    nodes = [
        *round_to("image", "s_image", "z_image"), *layer("image_d", "stem", 3, 3),
        *round_to("stem", "s", "z"), *layer("stem_d", "left", 8), *layer("stem_d", "right", 8),
        *round_to("left", "s", "z"), *layer("left_d", "deep", 8),
        node("Concat", "deep right", "both", axis=1), *round_to("both", "s", "z"),
        *layer("both_d", "out", 16),
    ]  # fmt: skip
    part = make_part(nodes, constants, {"image": SHAPE}, {"out": TensorProto.FLOAT})
    runner = create(part, backend, "fp32")
    image = make_image()
    expected = compute(part, image)
    (found,) = runner.run([image])
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)
    runner.close()


def make_signed(data):
    """Values between the layers as int8 with zero points; weights as they are."""
    model = onnx.load_model_from_string(data)
    for tensor in model.graph.initializer:
        if tensor.name in ("zu", "zm"):
            zero = (
                int(onnx.numpy_helper.to_array(tensor)) - 128 + (7 if tensor.name == "zm" else 0)
            )
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(zero, np.int8), tensor.name))
    del model.graph.value_info[:]
    return model.SerializeToString()


def test_unsigned_is_the_same_network():
    signed = make_signed(make_qdq().data)
    unsigned = make_unsigned(signed)
    zeros = {
        node.input[2]: node.op_type for node in onnx.load_model_from_string(unsigned).graph.node
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
    }  # fmt: skip
    assert set(zeros) == {"zu_unsigned", "zm_unsigned", "z8"}
    for seed in range(3):
        image = make_image(seed)
        one, other = (
            compute(QuantizedPart("part", data, (SHAPE,)), image) for data in (signed, unsigned)
        )
        np.testing.assert_array_equal(one, other)
    plain = make_float().data
    assert make_unsigned(plain) is plain
    already = make_qdq().data
    assert compute(QuantizedPart("part", make_unsigned(already), (SHAPE,)), image).shape == (1, 4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_network_that_was_not_quantized_here_has_no_int8(backend):
    pytest.importorskip(backend)
    with pytest.raises(ModelError, match="not quantized: int8 needs frames to calibrate with"):
        create(make_qdq(), backend)


def test_onnxruntime_that_fuses_nothing_is_no_int8():
    """The convolution's result is needed in fp32 as well: there it computes it in fp32."""
    pytest.importorskip("onnxruntime")
    nodes = [
        node("QuantizeLinear", "image s_image zu", "image_q"),
        node("DequantizeLinear", "image_q s_image zu", "image_d"),
        node("DequantizeLinear", "w1 s_weight z8", "w1_d"),
        node("Conv", "image_d w1_d", "maps"),
        node("Exp", "maps", "out"),
    ]
    constants = {
        "w1": np.ones((2, 3, 3, 3), np.int8), "z8": np.zeros((), np.int8),
        "zu": np.zeros((), np.uint8), "s_image": np.float32(1 / 255), "s_weight": np.float32(0.01),
    }  # fmt: skip
    part = mark(make_part(nodes, constants, {"image": SHAPE}, {"out": TensorProto.FLOAT}))
    assert count_quantized(part.onnx_model(), part.name) == 1
    with pytest.raises(ModelError, match="not computed in int8 by onnxruntime: none of its 1"):
        create(part, "onnxruntime")


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_openvino_that_computes_in_another_type_is_refused(precision, monkeypatch):
    """The real library, told to compile for fp32 what was asked for in a shorter type."""
    pytest.importorskip("openvino")
    if precision == "bf16" and not openvino_backend.supports_bf16():
        pytest.skip("the CPU has no bf16")
    core = openvino_backend._open_core()

    class ForcedCore:
        def compile_model(self, network, device, options):
            # Without its low-precision transformations what is quantized is computed in fp32.
            forced = {"INFERENCE_PRECISION_HINT": "f32", "LP_TRANSFORMS_MODE": False}
            return core.compile_model(network, device, {**options, **forced})

        def read_model(self, model):
            return core.read_model(model=model)

        def get_property(self, *names):
            return core.get_property(*names)

    monkeypatch.setattr(openvino_backend, "_open_core", ForcedCore)
    part = mark(make_qdq()) if precision == "int8" else make_float()
    with pytest.raises(ModelError, match=f"not computed in {precision} by openvino: .*f32"):
        create(part, "openvino", precision)


def make_float():
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((8, 3, 3, 3)).astype(np.float32)
    nodes = [node("Conv", "image w", "maps"), node("Relu", "maps", "out")]
    return make_part(nodes, {"w": weight}, {"image": SHAPE}, {"out": TensorProto.FLOAT})


def test_a_stage_without_products_is_int8_as_well():
    """All that it has is arithmetic, which stays in fp32 in every variant in int8."""
    pytest.importorskip("onnxruntime")
    nodes = [node("Relu", "image", "out")]
    part = mark(make_part(nodes, {}, {"image": SHAPE}, {"out": TensorProto.FLOAT}))
    for backend in BACKENDS:
        runner = create(part, backend)
        np.testing.assert_array_equal(runner.run([make_image() - 0.5])[0] >= 0, True)
        runner.close()


# -- parts ---------------------------------------------------------------------------------------


def test_a_value_that_is_quantized_next_crosses_rounded():
    whole = mark(make_qdq()).onnx_model()
    first = cut(whole, "first", {"image": SHAPE}, ["maps"])
    second = cut(whole, "second", {"maps": (1, 8, 16, 24)}, ["scores"])
    assert len(list_quantized(onnx.load_model_from_string(first.onnx_model()))) == 1
    assert len(list_quantized(onnx.load_model_from_string(second.onnx_model()))) == 1
    assert first.graph_hash != second.graph_hash
    image = make_image(2)
    (maps,) = run_onnx(first.onnx_model(), [image], "first")
    assert len(np.unique(maps)) <= 256
    steps = maps / np.float32(SCALES["maps"])
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-3)
    (expected,) = run_onnx(whole, [image], "whole")
    (found,) = run_onnx(second.onnx_model(), [maps], "second")
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_value_that_others_need_as_it_is_crosses_as_it_is():
    model = onnx.load_model_from_string(mark(make_qdq(fused=False)).onnx_model())
    model.graph.node.append(onnx.helper.make_node("Exp", ["maps"], ["extra"], name="extra"))
    del model.graph.output[1:]
    model.graph.output.append(
        onnx.helper.make_tensor_value_info("extra", TensorProto.FLOAT, [1, 8, 16, 24])
    )
    first = cut(model.SerializeToString(), "first", {"image": SHAPE}, ["maps"])
    (maps,) = run_onnx(first.onnx_model(), [make_image(3)], "first")
    assert len(np.unique(maps)) > 256


def test_cuts_name_values_of_the_network():
    whole = mark(make_qdq()).onnx_model()
    with pytest.raises(ModelError, match="the quantized network has no value 'relu' to cut at"):
        cut(whole, "first", {"image": SHAPE}, ["relu"])
    same = cut(whole, "whole", {"image": SHAPE}, [])
    assert same.onnx_model() == whole
    with pytest.raises(ModelError, match="torch does not run"):
        same.torch_module()


# -- TensorRT ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["8.5.3.1", "8.6.1", "10.3.0", "11.1.0"])
def test_tensorrt_takes_the_scales_from_the_network(version):
    trt, part = make_tensorrt(version), mark(make_qdq())
    build_engine(part, "int8", module=trt)
    ((network, config),) = trt.builds
    assert network.data == part.onnx_model()
    # 11 has no flags of types: a network is of the types that are in it.
    flags = trt.BuilderFlag
    assert config.set == ({flags.INT8} if hasattr(flags, "INT8") else set())
    runner = TensorRtRunner(part, "int8", cuda=FakeCuda(), module=trt)
    image = make_image(4)
    (found,) = runner.to_host(runner.run([image]))
    np.testing.assert_allclose(found, compute(part, image), atol=2 * SCALES["maps"])
    runner.close()


def test_tensorrt_builds_no_int8_of_a_network_in_fp32(caplog):
    trt = make_tensorrt("10.3.0")
    with caplog.at_level(logging.ERROR), pytest.raises(ModelError, match="not quantized"):
        build_engine(make_float(), "int8", module=trt)
    assert trt.builds == []


def test_batches_of_a_quantized_part():
    pytest.importorskip("onnxruntime")
    part = mark(make_qdq())
    runner = create(BatchedPart(part, 3), "onnxruntime")
    images = np.concatenate([make_image(seed) for seed in range(3)])
    (found,) = runner.run([images])
    one = create(part, "onnxruntime")
    for index in range(3):
        np.testing.assert_array_equal(
            found[index : index + 1], one.run([images[index : index + 1]])[0]
        )
    for each in (runner, one):
        each.close()
