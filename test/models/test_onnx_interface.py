# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ONNX files of other inputs and outputs: brought to one form, and the same results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from networks import make_onnx
from onnx import TensorProto, helper, numpy_helper

from jetson_dnn_rt.backends.registry import create_runner, inspect_backend
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.input.preprocessing import Geometry
from jetson_dnn_rt.models.sources.onnx_interface import sort_nodes
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.models.sources.torch import run_onnx

SIZE = (32, 48)

WEIGHT = np.random.default_rng(0).standard_normal((5, 3, 4, 4)).astype(np.float32)

IMAGE = np.random.default_rng(1).integers(0, 256, (1, 3, *SIZE)).astype(np.float32)


def write(path, nodes, inputs, outputs, constants=(), metadata=None):
    """A graph of opset 13; inputs and outputs are name, type, shape."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, str(path))
    return path


def convolve(source, kind=np.float32):
    """The convolution that all files here compute, its weights, and its expected result."""
    node = helper.make_node("Conv", [source, "weight"], ["logits"], strides=[4, 4])
    return node, ("weight", WEIGHT.astype(kind))


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    node, weight = convolve("image")
    path = tmp_path_factory.mktemp("onnx") / "plain.onnx"
    write(
        path, [node], [("image", TensorProto.FLOAT, (1, 3, *SIZE))],
        [("logits", TensorProto.FLOAT, (1, 5, 8, 12))], [weight],
    )  # fmt: skip
    (output,) = run_onnx(path.read_bytes(), [IMAGE], "it")
    return output


def run(model, image=IMAGE, backends=("onnxruntime", "openvino", "torch")):
    """Outputs on every back end, which must agree."""
    found = []
    for backend in backends:
        if not inspect_backend(backend).available:
            continue
        runner = create_runner(model, backend, "fp32", threads=1)
        outputs = runner.to_host(runner.run([image]))
        found.append([np.array(output) for output in outputs])
        runner.close()
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    return found[0]


def test_colours_last(tmp_path, expected):
    node, weight = convolve("first")
    turn = helper.make_node("Transpose", ["image"], ["first"], perm=[0, 3, 1, 2])
    path = write(
        tmp_path / "m.onnx", [turn, node], [("image", TensorProto.FLOAT, (1, *SIZE, 3))],
        [("logits", TensorProto.FLOAT, (1, 5, 8, 12))], [weight],
    )  # fmt: skip
    model = load_model(f"onnx:{path}")
    assert model.input_shape == (1, 3, *SIZE)
    np.testing.assert_allclose(run(model)[0], expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("last", [False, True])
def test_bytes_take_pixels_as_they_are(tmp_path, expected, last, caplog):
    node, weight = convolve("first")
    shape = (1, *SIZE, 3) if last else (1, 3, *SIZE)
    nodes = [helper.make_node("Cast", ["image"], ["float"], to=TensorProto.FLOAT)]
    nodes.append(
        helper.make_node("Transpose", ["float"], ["first"], perm=[0, 3, 1, 2])
        if last
        else helper.make_node("Identity", ["float"], ["first"])
    )
    path = write(
        tmp_path / "m.onnx", [*nodes, node], [("image", TensorProto.UINT8, shape)],
        [("logits", TensorProto.FLOAT, (1, 5, 8, 12))], [weight],
    )  # fmt: skip
    model = load_model(f"onnx:{path}")
    settled = model.preprocessing
    assert (settled.scale, settled.mean, settled.std) == (1.0, (0, 0, 0), (1, 1, 1))
    assert model.assumed == ("color",)
    assert "fix: set preprocessing.color as in training" in caplog.text
    np.testing.assert_allclose(run(model)[0], expected, rtol=1e-4, atol=1e-3)


def test_half_precision_at_both_ends(tmp_path):
    node, weight = convolve("image", np.float16)
    path = write(
        tmp_path / "m.onnx", [node], [("image", TensorProto.FLOAT16, (1, 3, *SIZE))],
        [("logits", TensorProto.FLOAT16, (1, 5, 8, 12))], [weight],
    )  # fmt: skip
    model = load_model(f"onnx:{path}")
    image = IMAGE / 255.0
    output = run(model, image, ("onnxruntime", "openvino"))[0]
    assert output.dtype == np.float32
    node, weight = convolve("image")
    other = write(
        tmp_path / "full.onnx", [node], [("image", TensorProto.FLOAT, (1, 3, *SIZE))],
        [("logits", TensorProto.FLOAT, (1, 5, 8, 12))], [weight],
    )  # fmt: skip
    (full,) = run_onnx(other.read_bytes(), [image], "it")
    np.testing.assert_allclose(output, full, atol=0.05)


def test_a_picture_without_a_batch(tmp_path, expected):
    node, weight = convolve("first")
    add = helper.make_node("Unsqueeze", ["image", "axes"], ["first"])
    path = write(
        tmp_path / "m.onnx", [add, node], [("image", TensorProto.FLOAT, (3, *SIZE))],
        [("logits", TensorProto.FLOAT, (1, 5, 8, 12))], [weight, ("axes", np.array([0]))],
    )  # fmt: skip
    model = load_model(f"onnx:{path}")
    np.testing.assert_allclose(run(model)[0], expected, rtol=1e-4, atol=1e-3)


def write_scaled(path, name, kind=TensorProto.FLOAT, shape=(1, 2)):
    """Boxes [1, 10, 4], scaled by the sum of a further input, and their scores and classes."""
    rng = np.random.default_rng(3)
    boxes = rng.uniform(0, 1, (1, 10, 4)).astype(np.float32)
    scores = rng.uniform(0, 1, (1, 10)).astype(np.float32)
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Cast", [name], ["float"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["float"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["box", "sum"], ["scaled"]),
        helper.make_node("Add", ["scaled", "nothing"], ["boxes"]),
        helper.make_node("Add", ["score", "nothing"], ["scores"]),
        helper.make_node("Identity", ["class"], ["labels"]),
    ]
    write(
        path, nodes, [("image", TensorProto.FLOAT, ("N", 3, *SIZE)), (name, kind, shape)],
        [("labels", TensorProto.INT64, (1, 10)), ("boxes", TensorProto.FLOAT, (1, 10, 4)),
         ("scores", TensorProto.FLOAT, (1, 10))],
        [("box", boxes), ("score", scores), ("class", np.arange(10)[None]),
         ("zero", np.zeros(1, np.float32))],
    )  # fmt: skip
    return path, boxes


def test_the_size_that_detr_s_exporters_ask_for(tmp_path):
    path, boxes = write_scaled(tmp_path / "m.onnx", "orig_target_sizes", TensorProto.INT64)
    model = load_model(f"onnx:{path}")
    assert model.head.name == "box_lists"
    assert model.output_names == ("labels", "boxes", "scores")
    outputs = run(model, backends=("onnxruntime", "openvino"))
    np.testing.assert_allclose(outputs[1], boxes * (48 + 32), rtol=1e-5)


def test_further_inputs_are_constants_of_the_user(tmp_path):
    path, boxes = write_scaled(tmp_path / "m.onnx", "factor")
    with pytest.raises(ModelError, match=r"constant_inputs: \['factor=VALUE'\]"):
        load_model(f"onnx:{path}")
    model = load_model(f"onnx:{path}", constants=["factor=[2, 0.5]"])
    outputs = run(model, backends=("onnxruntime", "openvino"))
    np.testing.assert_allclose(outputs[1], boxes * 2.5, rtol=1e-5)
    same = load_model(f"onnx:{path}", constants=["factor=1.25"])
    np.testing.assert_allclose(run(same, backends=("onnxruntime",))[1], boxes * 2.5, rtol=1e-5)
    assert same.model_hash != model.model_hash


@pytest.mark.parametrize(
    ("constants", "words"),
    [
        (["factor"], "must have the form NAME=VALUE"),
        (["factor=[1, 2, 3]"], r"factor=\[1, 2, 3\] is no value for 'factor' FLOAT \[1, 2\]"),
        (["factor=a"], "is no value for 'factor'"),
        (["factor=.nan", "factor2=1"], "no input 'factor2'"),
        (["other=1"], "no input 'other', there are: factor"),
        (["factr=1"], r"no input 'factr'; did you mean factor\? there are: factor"),
        (["factor=!!python/object:os.system {}"], "no value in YAML"),
    ],
)
def test_constants_that_cannot_be_used(tmp_path, constants, words):
    path, _ = write_scaled(tmp_path / "m.onnx", "factor")
    with pytest.raises(ConfigurationError, match=words):
        load_model(f"onnx:{path}", constants=constants)


def write_two_masks(path):
    """Two masks of two classes: the second is the first, negated."""
    nodes = [
        helper.make_node("Conv", ["image", "weight"], ["da"], strides=[4, 4]),
        helper.make_node("Neg", ["da"], ["ll"]),
        helper.make_node("Relu", ["da"], ["aux"]),
    ]
    value = (TensorProto.FLOAT, (1, 2, 8, 12))
    return write(
        path, nodes, [("image", TensorProto.FLOAT, (1, 3, *SIZE))],
        [("da", *value), ("ll", *value), ("aux", *value)], [("weight", WEIGHT[:2])],
    )  # fmt: skip


def test_outputs_by_name(tmp_path):
    path = write_two_masks(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"fix: set outputs to the names .* of da, ll, aux"):
        load_model(f"onnx:{path}")
    model = load_model(f"onnx:{path}", kind="segmentation", outputs=["ll", "da"])
    assert model.head.name == "masks"
    second, first = run(model)
    np.testing.assert_array_equal(first, -second)
    graph = onnx.load_model_from_string(model.onnx_model()).graph
    assert [output.name for output in graph.output] == ["ll", "da"]
    assert "Relu" not in [node.op_type for node in graph.node]
    alone = load_model(f"onnx:{path}", outputs=["ll"])
    assert alone.head.name == "segmentation"


@pytest.mark.parametrize(
    ("outputs", "words"), [(["x"], "no output 'x', it has da, ll, aux"), (["da", "da"], "twice")]
)
def test_outputs_that_are_not_there(tmp_path, outputs, words):
    path = write_two_masks(tmp_path / "m.onnx")
    with pytest.raises(ConfigurationError, match=words):
        load_model(f"onnx:{path}", outputs=outputs)


def test_outputs_are_of_onnx_files():
    with pytest.raises(ConfigurationError, match="are for onnx: models"):
        load_model("builtin:detector", outputs=["boxes"])


def test_open_sizes_are_those_of_the_metadata(tmp_path):
    metadata = {"imgsz": "[64, 96]", "stride": "32"}
    path = make_onnx(tmp_path / "m.onnx", shape=("n", 3, "h", "w"), metadata=metadata)
    assert load_model(f"onnx:{path}").input_size == (64, 96)
    assert load_model(f"onnx:{path}", input_size=(32, 32)).input_size == (32, 32)


def write_plugin(path, open_shape=False):
    """A network whose end is a plug-in of TensorRT."""
    rows = "n" if open_shape else 20
    nodes = [
        helper.make_node("Conv", ["image", "weight"], ["maps"], strides=[4, 4]),
        helper.make_node(
            "EfficientNMS_TRT", ["maps"], ["num", "boxes", "scores", "classes"], domain="TRT"
        ),
    ]
    path = write(
        path, nodes, [("image", TensorProto.FLOAT, (1, 3, *SIZE))],
        [("num", TensorProto.INT32, (1, 1)), ("boxes", TensorProto.FLOAT, (1, rows, 4)),
         ("scores", TensorProto.FLOAT, (1, rows)), ("classes", TensorProto.INT32, (1, rows))],
        [("weight", WEIGHT)],
    )  # fmt: skip
    model = onnx.load(str(path))
    model.opset_import.append(helper.make_opsetid("TRT", 1))
    onnx.save(model, str(path))
    return path


def test_plug_ins_of_tensorrt_are_told_by_the_file(tmp_path, caplog):
    caplog.set_level("INFO")
    model = load_model(f"onnx:{write_plugin(tmp_path / 'm.onnx')}")
    assert model.head.name == "box_lists"
    assert "EfficientNMS_TRT, which TensorRT alone runs" in caplog.text
    with pytest.raises(ModelError, match="shape of output 'boxes' is open"):
        load_model(f"onnx:{write_plugin(tmp_path / 'o.onnx', open_shape=True)}")


def test_nodes_in_any_order(tmp_path, expected):
    """As converters to half precision leave them: their casts at the end of the list."""
    node, weight = convolve("first")
    path = write(
        tmp_path / "m.onnx", [node, helper.make_node("Identity", ["image"], ["first"])],
        [("image", TensorProto.FLOAT, (1, 3, *SIZE))],
        [("logits", TensorProto.FLOAT, (1, 5, 8, 12))], [weight],
    )  # fmt: skip
    model = load_model(f"onnx:{path}")
    np.testing.assert_allclose(run(model)[0], expected, rtol=1e-4, atol=1e-3)
    onnx.checker.check_model(onnx.load_model_from_string(model.onnx_model()))


def test_nodes_in_a_circle_are_refused(tmp_path):
    nodes = [helper.make_node("Add", ["b", "image"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    path = write(
        tmp_path / "m.onnx", nodes, [("image", TensorProto.FLOAT, (1, 3, *SIZE))],
        [("b", TensorProto.FLOAT, (1, 3, *SIZE))],
    )  # fmt: skip
    with pytest.raises(ModelError, match="damaged or no valid ONNX"):
        load_model(f"onnx:{path}")


def test_many_nodes_in_reverse_order_are_sorted_at_once(tmp_path):
    """A pass for each node would take minutes."""
    count = 20_000
    nodes = [helper.make_node("Identity", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    node, weight = convolve(f"v{count}")
    path = write(
        tmp_path / "m.onnx", [node, *reversed(nodes)], [("v0", TensorProto.FLOAT, (1, 3, *SIZE))],
        [("logits", TensorProto.FLOAT, (1, 5, 8, 12))], [weight],
    )  # fmt: skip
    model = onnx.load(str(path))
    assert sort_nodes(model)
    assert [node.output[0] for node in model.graph.node][:3] == ["v1", "v2", "v3"]
    assert not sort_nodes(model)


@pytest.mark.parametrize(
    ("shape", "kind", "words"),
    [
        ((1, -5, 4), TensorProto.FLOAT, "open or too large"),
        ((1, 10**6, 10**7), TensorProto.FLOAT, "open or too large"),
        ((1, 20, 4), TensorProto.STRING, "neither float32 nor integer"),
    ],
)
def test_shapes_that_a_file_makes_up(tmp_path, shape, kind, words):
    path = write_plugin(tmp_path / "m.onnx")
    model = onnx.load(str(path))
    boxes = helper.make_tensor_value_info("boxes", kind, shape)
    model.graph.output[1].CopyFrom(boxes)
    onnx.save(model, str(path))
    with pytest.raises(ModelError, match=words):
        load_model(f"onnx:{path}")


@pytest.mark.parametrize("axes", [None, 0])
def test_outputs_that_are_no_numbers_of_a_picture(tmp_path, axes):
    """A scalar is refused by name; a mask that the network has compared is one of two classes."""
    nodes = [helper.make_node("ReduceMean", ["image"], ["y"], keepdims=0)]
    value = ("y", TensorProto.FLOAT, ())
    if axes is not None:
        nodes = [
            helper.make_node("Conv", ["image", "weight"], ["x"], strides=[4, 4]),
            helper.make_node("Greater", ["x", "zero"], ["y"]),
        ]
        value = ("y", TensorProto.BOOL, (1, 1, 8, 12))
    path = write(
        tmp_path / "m.onnx", nodes, [("image", TensorProto.FLOAT, (1, 3, *SIZE))], [value],
        [("weight", WEIGHT[:1]), ("zero", np.zeros(1, np.float32))] if axes is not None else (),
    )  # fmt: skip
    if axes is None:
        with pytest.raises(ModelError, match=r"an output is float32 \[\], needed are numbers"):
            load_model(f"onnx:{path}")
        return
    model = load_model(f"onnx:{path}")
    assert model.head.name == "class_map"
    outputs = run(model, backends=("onnxruntime",))
    geometry = Geometry(32, 48, 32, 48, 0, 0)
    mask = model.create_decoder()(outputs, geometry, DecoderSettings()).mask
    np.testing.assert_array_equal(mask[2::4, 2::4], outputs[0][0, 0])


@pytest.mark.parametrize(
    ("value", "words"), [("300", "in \\[0, 255\\]"), ("-1", "in \\[0, 255\\]"), ("1.5", "whole"),
                         (".nan", "whole")],
)  # fmt: skip
def test_constants_are_never_changed_to_fit(tmp_path, value, words):
    path, _ = write_scaled(tmp_path / "m.onnx", "factor", TensorProto.UINT8)
    with pytest.raises(ConfigurationError, match=words):
        load_model(f"onnx:{path}", constants=[f"factor={value}"])


def test_a_constant_that_no_memory_holds(tmp_path):
    path, _ = write_scaled(tmp_path / "m.onnx", "factor", shape=(10**6, 10**6))
    with pytest.raises(ModelError, match="no tensor of at most"):
        load_model(f"onnx:{path}", constants=["factor=1"])


def test_sizes_below_0_are_open_and_huge_ones_refused(tmp_path):
    path = make_onnx(tmp_path / "m.onnx", shape=(-1, 3, -1, -1))
    assert load_model(f"onnx:{path}", input_size=(32, 48)).input_shape == (1, 3, 32, 48)
    with pytest.raises(ModelError, match=r"input_size: \[480, 640\]"):
        load_model(f"onnx:{path}")
    path = make_onnx(tmp_path / "huge.onnx", shape=(1, 3, 10**6, 10**6))
    with pytest.raises(ModelError, match="sides may have 8192 pixels"):
        load_model(f"onnx:{path}")
