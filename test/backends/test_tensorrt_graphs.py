# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The graphs that TensorRT's parser gets, checked without TensorRT and run on the CPU.

They are taken from a fake TensorRT, so they are what `build_engine` hands over: FP32; for FP16 up
to 10 the same with batch norms folded (FP16 is a flag); for FP16 from 11 on with types of mixed
precision, in which matrix products are FP16 and what would suffer is FP32.

NVIDIA's own tools check them: graphsurgeon for what is loose, Polygraphy's linter for what does
not run. Then they run in their precision. On x86-64 ONNX Runtime has hardly any FP16 kernels: it
rounds weights and what is converted, and computes in FP32. ONNX's reference implementation rounds
the result of every operator to FP16, as a GPU does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from fake_tensorrt import make_tensorrt
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from onnx_parts import make_classifier, make_part, node

from jetson_dnn_rt.backends.tensorrt.build import build_engine
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.network import Network
from jetson_dnn_rt.variants.spec import FULL, DecompositionSpec

NAMES = ("detector", "segmenter", "yolox_nano", "tucker", "stages")
# Precision that is asked for, TensorRT's version.
CASES = [("fp32", "11.1.0"), ("fp16", "10.3.0"), ("fp16", "11.1.0")]
# Largest deviation from FP32, relative to the largest value. YOLOX gives logits of boxes in the
# units of its grid, up to 8, without a sigmoid behind them.
TOLERANCE = {"yolox_nano": 0.05}
USUAL_TOLERANCE = 0.01


def make_parts(name, data):
    """Whole networks, a decomposed one, and one in three stages; with the largest input value."""
    if name == "yolox_nano":
        return [load_model(f"onnx:{data}/models/yolox_nano.onnx", kind="detection")], 255.0
    if name == "segmenter":
        return [load_model("builtin:segmenter")], 1.0
    model = load_model("builtin:detector")
    if name == "detector":
        return [model], 1.0
    network = Network(model, 3 if name == "stages" else 1)
    if name == "stages":
        return [piece.part for piece in network.pieces(FULL, 3)], 1.0
    from jetson_dnn_rt.lab.compress.decomposition import decompose

    spec = DecompositionSpec.parse("tucker-0.50")
    graph, found = decompose(network.graph(), model.input_shape, spec)
    assert found.macs_kept < 0.51
    network.add_decomposed(str(spec), graph)
    return [piece.part for piece in network.pieces(str(spec), 1)], 1.0


@pytest.fixture(scope="module", params=NAMES)
def network(request):
    data = request.getfixturevalue("shared_data") if request.param == "yolox_nano" else ""
    return request.param, *make_parts(request.param, data)


def take_graph(part, precision, version):
    """What the parser of a fake TensorRT was given."""
    trt = make_tensorrt(version)
    build_engine(part, precision, module=trt)
    return onnx.load_model_from_string(trt.builds[-1][0].data)


@pytest.fixture(params=CASES, ids="-".join)
def graphs(request, network):
    """Of all parts of a network."""
    return [take_graph(part, *request.param) for part in network[1]]


def find_loose_ends(model):
    """What graphsurgeon finds: tensors without producer or reader, nodes that lead nowhere."""
    surgeon = pytest.importorskip("onnx_graphsurgeon", reason="pip install onnx-graphsurgeon")
    graph = surgeon.import_onnx(model)
    outside = {id(tensor) for tensor in (*graph.inputs, *graph.outputs)}
    found = []
    for name, tensor in graph.tensors(check_duplicates=True).items():
        constant = isinstance(tensor, surgeon.Constant)
        if not tensor.inputs and not constant and id(tensor) not in outside:
            found.append(f"{name} has no producer")
        if not tensor.outputs and id(tensor) not in outside:
            found.append(f"nothing reads {name}")
    before = len(graph.nodes)
    graph.cleanup().toposort()
    if len(graph.nodes) < before:
        found.append(f"{before - len(graph.nodes)} nodes lead nowhere")
    return found


def test_nothing_is_loose(graphs):
    for model in graphs:
        assert not find_loose_ends(model)
        assert len({entry.name for entry in model.graph.node}) == len(model.graph.node)


def test_types_and_shapes_agree(graphs):
    """From 11 on TensorRT converts nothing by itself: ONNX's own rules for types are the same."""
    for model in graphs:
        onnx.checker.check_model(model, full_check=True)
        inferred = onnx.shape_inference.infer_shapes(
            model, check_type=True, strict_mode=True, data_prop=True
        )
        values = {value.name: value.type.tensor_type for value in inferred.graph.value_info}
        for entry in model.graph.node:
            for name in entry.output:
                if name in values:
                    assert all(dim.dim_value > 0 for dim in values[name].shape.dim), name
        for value in (*model.graph.input, *model.graph.output):
            assert value.type.tensor_type.elem_type == TensorProto.FLOAT


# Of the operators in these networks: types and limits of docs/operators.md of onnx/onnx-tensorrt,
# release 10.1, which says opset 9 to 20.
_OPSETS = range(9, 21)
_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16}
_NUMBERS = _FLOATS | {TensorProto.INT32, TensorProto.INT64}
SUPPORTED = {
    **dict.fromkeys(
        ("AveragePool", "BatchNormalization", "Clip", "Conv", "ConvTranspose", "Exp", "Gemm"),
        _FLOATS,
    ),
    **dict.fromkeys(("GlobalAveragePool", "MatMul", "MaxPool", "Sigmoid", "Softmax"), _FLOATS),
    "Resize": _FLOATS,
    **dict.fromkeys(("Add", "Div", "Mul", "Sub", "Relu", "DepthToSpace", "ReduceMean"), _NUMBERS),
    **dict.fromkeys(("Cast", "Concat", "Gather", "Identity", "Reshape", "Shape"), _NUMBERS),
    **dict.fromkeys(("Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"), _NUMBERS),
    "Constant": _NUMBERS,
}
_CHOICES = {
    ("Resize", "mode"): {"nearest", "linear"},
    ("Resize", "coordinate_transformation_mode"): {
        *("half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn"),
        *("asymmetric", "align_corners"),
    },
    ("Resize", "nearest_mode"): {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"},
}
_CONSTANT_INPUTS = {"Slice": (3,), "Squeeze": (1,), "Unsqueeze": (1,), "ReduceMean": (1,)}


def find_unsupported(model):
    """Operators, types and attributes that TensorRT's parser would refuse."""
    found = []
    for entry in model.opset_import:
        if entry.domain not in ("", "ai.onnx") or entry.version not in _OPSETS:
            found.append(f"opset {entry.domain} {entry.version}")
    inferred = onnx.shape_inference.infer_shapes(model)
    constants = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    values = (*inferred.graph.value_info, *model.graph.input, *model.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values} | constants
    fixed = {*constants, *(n.output[0] for n in model.graph.node if n.op_type == "Constant")}
    for entry in model.graph.node:
        kind = entry.op_type
        if kind not in SUPPORTED:
            found.append(f"{kind} {entry.name}")
            continue
        first = [types[name] for name in (*entry.input[:1], *entry.output[:1]) if name in types]
        if not set(first) <= SUPPORTED[kind] | ({TensorProto.BOOL} if kind == "Cast" else set()):
            found.append(f"{kind} {entry.name} of types {first}")
        for attribute in entry.attribute:
            value = onnx.helper.get_attribute_value(attribute)
            choices = _CHOICES.get((kind, attribute.name))
            if choices and value.decode() not in choices:
                found.append(f"{kind} {entry.name}: {attribute.name} {value.decode()}")
            if (kind, attribute.name) == ("MaxPool", "dilations") and set(value) != {1}:
                found.append(f"{kind} {entry.name}: {attribute.name} {value}")
        for index in _CONSTANT_INPUTS.get(kind, ()):
            if len(entry.input) > index and entry.input[index] not in {*fixed, ""}:
                found.append(f"{kind} {entry.name}: input {index} is computed")
    return found


def test_tensorrt_has_the_operators(graphs):
    for model in graphs:
        assert not find_unsupported(model)


def lint(model, folder):
    """Entries of Polygraphy's linter, which runs each node on ONNX Runtime."""
    pytest.importorskip("polygraphy", reason="pip install polygraphy")
    pytest.importorskip("onnx_graphsurgeon", reason="pip install onnx-graphsurgeon")
    file, report = folder / "graph.onnx", folder / "lint.json"
    onnx.save_model(model, file)
    program = "import sys; from polygraphy.tools import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "check", "lint", str(file), "-o", str(report)]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert report.exists(), answer.stderr
    return json.loads(report.read_text(encoding="utf-8"))


def test_polygraphys_linter_passes_mixed_precision(network, tmp_path):
    name, parts, _ = network
    # Stages are pieces of the detector, and each takes seconds.
    for part in parts[:1] if name == "stages" else parts:
        model = take_graph(part, "fp16", "11.1.0")
        report = lint(model, tmp_path)
        assert report["lint_entries"] == []
        assert report["summary"]["failing"] == []
        assert len(report["summary"]["passing"]) == len(model.graph.node)


def run(model, values):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # nodes without an FP16 kernel are told as warnings
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, values)


def make_inputs(model, largest, seed=0):
    generator = np.random.default_rng(seed)
    return {
        value.name: generator.random(
            [dim.dim_value for dim in value.type.tensor_type.shape.dim], np.float32
        )
        * np.float32(largest)
        for value in model.graph.input
    }


def compare(name, found, expected):
    """Assert that outputs deviate, as in another precision, and by no more than is stated."""
    gaps = []
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype == np.float32
        assert np.isfinite(one).all()
        gaps.append(float(np.abs(one - other).max()) / max(1.0, float(np.abs(other).max())))
    print(f"{name}: largest deviation {max(gaps):.2g} of the largest value")
    assert max(gaps) <= TOLERANCE.get(name, USUAL_TOLERANCE)
    return max(gaps)


@pytest.mark.parametrize(("precision", "version"), CASES)
def test_on_onnxruntime_it_gives_what_fp32_gives(network, precision, version):
    name, parts, largest = network
    for part in parts:
        reference = onnx.load_model_from_string(part.onnx_model())
        values = make_inputs(reference, largest)
        model = take_graph(part, precision, version)
        gap = compare(name, run(model, values), run(reference, values))
        typed = precision == "fp16" and version == "11.1.0"
        halves = [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT16]
        assert bool(halves) == typed
        # Folding batch norms alone changes the last bits.
        assert gap > 1e-6 if typed else gap < 1e-4


@pytest.mark.parametrize("name", ["detector", "segmenter", "tucker"])
def test_with_every_operator_rounded_to_fp16(name):
    (part,), largest = make_parts(name, "")
    reference = onnx.load_model_from_string(part.onnx_model())
    values = make_inputs(reference, largest, seed=1)
    evaluator = ReferenceEvaluator(take_graph(part, "fp16", "11.1.0"))
    with warnings.catch_warnings():  # its sigmoid computes both branches
        warnings.simplefilter("ignore", RuntimeWarning)
        found = evaluator.run(None, values)
    assert compare(name, found, run(reference, values)) > 1e-6


# ---- the checks themselves -------------------------------------------------------------------


def test_loose_ends_are_found():
    model = onnx.load_model_from_string(make_classifier().data)
    assert not find_loose_ends(model)
    model.graph.node.append(node("Relu", "maps", "unread"))
    assert find_loose_ends(model) == ["nothing reads unread", "1 nodes lead nowhere"]
    model.graph.node.insert(0, node("Relu", "nowhere", "maps2"))
    assert "nowhere has no producer" in find_loose_ends(model)


def test_what_tensorrt_lacks_is_found():
    shape = {"x": (1, 3, 4, 4)}
    part = make_part(
        [
            node("Det", "x", "det"),
            node("MaxPool", "x", "pooled", kernel_shape=[2, 2], dilations=[2, 2]),
            onnx.helper.make_node("Resize", ["x", "", "scales"], ["big"], "Resize", mode="cubic"),
        ],
        {"scales": np.array([1, 1, 2, 2], np.float32)},
        shape,
        dict.fromkeys(("det", "pooled", "big"), TensorProto.FLOAT),
    )
    found = find_unsupported(onnx.load_model_from_string(part.data))
    assert [text.split()[0] for text in found] == ["Det", "MaxPool", "Resize"]


def test_the_linter_finds_a_node_that_does_not_run(tmp_path):
    model = onnx.load_model_from_string(make_classifier().data)
    model.graph.node[0].attribute[0].ints[:] = [2, 2, 2]  # strides of a picture with three axes
    assert lint(model, tmp_path)["lint_entries"]
