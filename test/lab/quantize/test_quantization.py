# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The built-in networks in INT8, by the real libraries, calibrated on a few frames."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest
from networks import Classifier, make_model

from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError, ModelError
from jetson_dnn_rt.lab.quantize import quantization
from jetson_dnn_rt.lab.quantize.quantization import quantize
from jetson_dnn_rt.lab.quantize.quantizers import find_quantizer
from jetson_dnn_rt.models.graph.quantized_part import PRODUCTS, QuantizedPart, list_quantized
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.models.sources.torch import run_onnx
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames, prepare_inputs
from jetson_dnn_rt.variants.network import Network, run_piece
from jetson_dnn_rt.variants.quantized import (
    MODEL_FILE,
    hash_quantized,
    load_quantized,
    read_quantization,
)
from jetson_dnn_rt.variants.spec import VariantSpec

BACKENDS = ("onnxruntime", "openvino")


@pytest.fixture(scope="module")
def frames():
    return list(open_frames("synthetic", 24))


@pytest.fixture(scope="module")
def detector():
    return load_model("builtin:detector")


@pytest.fixture
def library(tmp_path):
    return Library(tmp_path / "cache")


def need(backend):
    pytest.importorskip(backend)
    if backend == "openvino":
        pytest.importorskip("nncf", reason="pip install -r requirements/int8.txt")


def make(model, variant, frames, library, **options):
    spec = VariantSpec.parse(variant)
    entry = quantize(model, spec, frames=frames, library=library, **options)
    return spec, entry, read_quantization(entry)


@pytest.mark.parametrize("name", ["detector", "segmenter"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_agrees_with_fp32_and_is_kept(backend, name, frames, library):
    need(backend)
    model = load_model(f"builtin:{name}")
    steps = []
    spec, entry, facts = make(
        model, f"full@{backend}-int8", frames, library, source="synthetic", agreement=0.9,
        progress=lambda *step: steps.append(step),
    )  # fmt: skip
    assert facts.reached >= 0.9
    assert facts.kept == ()
    assert facts.products == {"detector": 20, "segmenter": 21}[name]
    assert (facts.frames, facts.calibrated_on, facts.judged_on) == ("synthetic", 12, 12)
    assert facts.library.startswith("nncf " if backend == "openvino" else "onnxruntime ")
    assert steps[-1][1:] == (1, 21)
    assert facts.refused == ""
    found = load_quantized(model, spec, Library(library.root), staged=False)
    assert found.files[MODEL_FILE] == entry.files[MODEL_FILE]
    assert hash_quantized(found) == hash_quantized(entry)
    # Boxes are put together in fp32: nothing follows there that INT8 pays for.
    graph = onnx.load_model_from_string(entry.files[MODEL_FILE]).graph
    assert len(list_quantized(onnx.load_model_from_string(entry.files[MODEL_FILE]))) == (
        facts.products
    )
    if name == "detector":
        dequantized = {o for n in graph.node if n.op_type == "DequantizeLinear" for o in n.output}
        exponentials = [n for n in graph.node if n.op_type == "Exp"]
        assert exponentials
        assert not any(dequantized.intersection(node.input) for node in exponentials)


@pytest.mark.parametrize("backend", BACKENDS)
def test_stages_compute_what_the_whole_computes(backend, detector, frames, library):
    """Quantized whole and then cut: the same scales, the same sums of whole numbers."""
    need(backend)
    spec, entry, _ = make(
        detector, f"full@{backend}-int8", frames, library, agreement=0.5, staged=True
    )
    assert entry.key.options == f"cuttable read={detector.reading}"
    network = Network(detector, 2, library)
    network.add_quantized(spec.network, entry.files[MODEL_FILE])
    image = prepare_inputs(detector, frames[-1:])[0]
    results = {}
    for count in (1, 2):
        pieces = network.pieces(spec.network, count)
        assert len(pieces) == count
        values, given = {"image": image}, ()
        for piece in pieces:
            runner = create_runner(piece.part, backend, "int8", threads=1)
            given = tuple(output.copy() for output in run_piece(piece, runner, values))
            values |= zip(piece.outputs, given, strict=False)
            runner.close()
        results[count] = [values[n] for n in pieces[-1].results] if count > 1 else given
    for one, other in zip(results[1], results[2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


@pytest.fixture
def spoil(monkeypatch):
    """Lets the quantizer lose the weights of the layers at some places."""
    need("onnxruntime")
    find = quantization.find_quantizer

    def spoil(*places):
        names = []

        class Spoiling(type(find("onnxruntime"))):
            def quantize(self, model, images, kept):
                products = [n.name for n in model.graph.node if n.op_type in PRODUCTS]
                names[:] = [products[place] for place in places]
                network = onnx.load_model_from_string(super().quantize(model, images, kept))
                weights = {t.name: t for t in network.graph.initializer}
                makers = {o: n for n in network.graph.node for o in n.output}
                for node in network.graph.node:
                    maker = makers.get(node.input[1]) if node.name in names else None
                    if maker is not None and maker.op_type == "DequantizeLinear":
                        tensor = weights[maker.input[0]]
                        values = 0 * onnx.numpy_helper.to_array(tensor)
                        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
                return network.SerializeToString()

        monkeypatch.setattr(quantization, "find_quantizer", lambda backend: Spoiling())
        return names

    return spoil


def test_layers_stay_until_it_agrees(detector, frames, library, spoil):
    names = spoil(2, 5)
    variant = "full@onnxruntime-int8"
    _, entry, facts = make(detector, variant, frames[:8], library, agreement=0.95)
    assert facts.reached >= 0.95
    assert set(names) <= set(facts.kept)
    assert len(facts.kept) < facts.products
    network = onnx.load_model_from_string(entry.files[MODEL_FILE])
    assert not set(facts.kept) & set(list_quantized(network))
    assert facts.refused == ""


def test_the_best_is_kept_where_it_cannot_agree(detector, frames, library, spoil):
    spoil(*range(20))
    variant = "full@onnxruntime-int8"
    _, entry, facts = make(detector, variant, frames[:8], library, agreement=1.0)
    assert facts.reached < 1.0
    assert (
        f"int8 agrees {facts.reached:.3f} mAP@0.5 with fp32 at best, 1 is asked" in facts.refused
    )
    assert f"with {len(facts.kept)} of 20 products in fp32" in facts.refused
    network = onnx.load_model_from_string(entry.files[MODEL_FILE])
    assert len(list_quantized(network)) == 20 - len(facts.kept) > 0


def test_for_tensorrt_all_scales_are_symmetric_and_biases_float(detector, frames):
    need("onnxruntime")
    model = quantization._read_network(detector, detector.onnx_model())
    images = prepare_inputs(detector, frames[:4])
    network = onnx.load_model_from_string(find_quantizer("tensorrt").quantize(model, images, ()))
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in network.graph.initializer}
    makers = {output: node for node in network.graph.node for output in node.output}
    pairs = [n for n in network.graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")]
    for node in pairs:
        zero = constants[node.input[2]]
        assert zero.dtype == np.int8
        assert not zero.any()
    products = [n for n in network.graph.node if n.op_type in PRODUCTS]
    assert len(products) == 20
    for node in products:
        data, weight = (makers[name] for name in node.input[:2])
        assert data.op_type == weight.op_type == "DequantizeLinear"
        assert constants[data.input[1]].size == 1
        assert constants[weight.input[1]].shape == (constants_of(makers, constants, weight)[0],)
        assert constants[node.input[2]].dtype == np.float32
        assert makers[weight.input[0]].op_type == "QuantizeLinear"


def constants_of(makers, constants, dequantize):
    return constants[makers[dequantize.input[0]].input[0]].shape


def test_a_model_that_is_quantized_already_is_not_quantized_again(
    detector, frames, library, tmp_path
):
    need("onnxruntime")
    model = quantization._read_network(detector, detector.onnx_model())
    images = prepare_inputs(detector, frames[:2])
    path = tmp_path / "qdq.onnx"
    path.write_bytes(find_quantizer("onnxruntime").quantize(model, images, ()))
    own = load_model(f"onnx:{path}", head="boxes_scores")
    with pytest.raises(ConfigurationError, match=r"quantized already.*full@onnxruntime-fp32"):
        make(own, "full@onnxruntime-int8", frames, library)


def test_what_cannot_be_quantized_is_told(frames, library, detector, monkeypatch):
    need("onnxruntime")
    spec = "full@onnxruntime-int8"
    with pytest.raises(ConfigurationError, match="two frames at least: 1"):
        make(detector, spec, frames[:1], library)
    with pytest.raises(ConfigurationError, match=r"agreement must be in \[0, 1\]: 2"):
        make(detector, spec, frames, library, agreement=2)
    with pytest.raises(BackendUnavailableError, match="not in int8"):
        make(detector, "full@torch-int8", frames, library)
    monkeypatch.setitem(sys.modules, "nncf", None)
    with pytest.raises(BackendUnavailableError, match="pip install nncf"):
        find_quantizer("openvino")


def test_a_network_without_products(frames, library, tmp_path):
    need("onnxruntime")
    nodes = [
        onnx.helper.make_node("GlobalAveragePool", ["image"], ["mean"], name="mean"),
        onnx.helper.make_node("Flatten", ["mean"], ["scores"], name="flat"),
    ]
    make_value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "mean",
        [make_value("image", onnx.TensorProto.FLOAT, [1, 3, 16, 16])],
        [make_value("scores", onnx.TensorProto.FLOAT, [1, 3])],
    )  # fmt: skip
    path = tmp_path / "mean.onnx"
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    with pytest.raises(ModelError, match="no convolution and no matrix product"):
        make(load_model(f"onnx:{path}"), "full@onnxruntime-int8", frames, library)


def test_a_network_of_an_older_opset(frames):
    """Exporters of some years ago wrote 11, which has no scales by channel."""
    need("onnxruntime")
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 3, 3, 3)), "m": rng.standard_normal((8, 7))}
    nodes = [
        onnx.helper.make_node("Conv", ["picture", "w"], ["maps"]),
        onnx.helper.make_node("GlobalAveragePool", ["maps"], ["mean"]),
        onnx.helper.make_node("Flatten", ["mean"], ["vector"]),
        onnx.helper.make_node("MatMul", ["vector", "m"], ["scores"]),
    ]
    make_value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "older",
        [make_value("picture", onnx.TensorProto.FLOAT, [1, 3, 32, 48])],
        [make_value("scores", onnx.TensorProto.FLOAT, [1, 7])],
        [onnx.numpy_helper.from_array(v.astype(np.float32), name) for name, v in weights.items()],
    )  # fmt: skip
    opset = [onnx.helper.make_opsetid("", 11)]
    older = onnx.helper.make_model(graph, opset_imports=opset, ir_version=6)
    model = make_model(Classifier().eval(), (32, 48))
    network = quantization._read_network(model, older.SerializeToString())
    assert network.opset_import[0].version == 13
    images = prepare_inputs(model, frames[:3])
    data = find_quantizer("onnxruntime").quantize(network, images, ())
    quantized = onnx.load_model_from_string(data)
    assert len(list_quantized(quantized)) == 2
    part = QuantizedPart("older", data, ((1, 3, 32, 48),))
    runner = create_runner(part, "onnxruntime", "int8", threads=1)
    (found,) = runner.run([images[0]])
    (expected,) = run_onnx(older.SerializeToString(), images[:1], "older")
    np.testing.assert_allclose(found, expected, atol=0.03 * np.abs(expected).max())
    runner.close()
