"""Models from ONNX files."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from networks import make_onnx
from onnx import TensorProto, helper, numpy_helper

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads.labels import COCO_80
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.sources.registry import load_model


def test_yolox(shared_data):
    model = load_model(f"onnx:{shared_data}/models/yolox_nano.onnx", kind="detection")
    assert model.head.name == "yolox"
    assert "<= 0" in model.head.reason
    assert model.preprocessing == Preprocessing(
        416, 416, "letterbox_topleft", 114, "bgr", scale=1.0
    )
    assert model.labels == COCO_80
    assert model.input_shape == (1, 3, 416, 416)
    assert model.model_hash == ("695e750a5d5754bb5a8d5325643b59282191a7e7a564e435a415fd3c578eab14")


def test_the_head_is_logged(tmp_path, caplog):
    caplog.set_level("INFO")
    load_model(f"onnx:{make_onnx(tmp_path / 'm.onnx')}")
    assert "head segmentation (5 maps of 8x12)" in caplog.text


def test_truncated_onnx(shared_data, tmp_path):
    data = (shared_data / "models" / "yolox_nano.onnx").read_bytes()
    for share in (0.001, 0.3, 0.9, 0.999):
        path = tmp_path / "cut.onnx"
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(ModelError, match=r"damaged|cannot be run"):
            load_model(f"onnx:{path}")


def test_wrong_task(tmp_path):
    path = make_onnx(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="needs a model for detection, this one is for segmen"):
        load_model(f"onnx:{path}", kind="detection")


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"inputs": 2}, "2 inputs"),
        ({"shape": (1, 1, 32, 48)}, r"takes \[1, 1, 32, 48\]"),
        ({"shape": (4, 3, 32, 48)}, r"takes \[4, 3, 32, 48\]"),
        ({"element": TensorProto.FLOAT16}, "takes FLOAT16"),
        ({"shape": (1, 3, "h", "w")}, "input size open"),
    ],
)
def test_inputs_that_are_no_image(tmp_path, form, words):
    with pytest.raises(ModelError, match=words):
        load_model(f"onnx:{make_onnx(tmp_path / 'm.onnx', **form)}")


def test_open_sizes_are_fixed(tmp_path):
    path = make_onnx(tmp_path / "m.onnx", shape=("n", 3, "h", "w"))
    model = load_model(f"onnx:{path}", input_size=(64, 96))
    assert model.input_shape == (1, 3, 64, 96)
    dimensions = onnx.load_model_from_string(model.onnx_model()).graph.input[0].type.tensor_type
    assert [d.dim_value for d in dimensions.shape.dim] == [1, 3, 64, 96]
    other = load_model(f"onnx:{path}", input_size=(32, 96))
    assert other.model_hash != model.model_hash


def test_fixed_size_cannot_be_changed(tmp_path):
    path = make_onnx(tmp_path / "m.onnx")
    assert load_model(f"onnx:{path}", input_size=(32, 48)).input_size == (32, 48)
    with pytest.raises(ModelError, match="takes 32x48, input_size says 64x64"):
        load_model(f"onnx:{path}", input_size=(64, 64))


def test_weights_in_other_files_are_refused(tmp_path):
    model = onnx.load(str(make_onnx(tmp_path / "m.onnx", classes=40)))
    onnx.save(model, str(tmp_path / "e.onnx"), save_as_external_data=True, size_threshold=0)
    with pytest.raises(ModelError, match="single file"):
        load_model(f"onnx:{tmp_path / 'e.onnx'}")


def place_tensor(model: onnx.ModelProto, place: str, tensor: TensorProto) -> None:
    """Put a tensor into one of the places of a model that may hold one; not for running."""
    branch = helper.make_graph([], "branch", [], [])
    inner = helper.make_node("Constant", [], ["c"], value=tensor)
    if place == "constant":
        model.graph.node.append(inner)
    elif place == "tensors":
        model.graph.node.append(helper.make_node("Custom", [], ["c"], several=[tensor]))
    elif place == "branch initializer":
        branch.initializer.append(tensor)
        model.graph.node.append(helper.make_node("If", ["x"], ["c"], then_branch=branch))
    elif place == "branch of a branch":
        branch.node.append(inner)
        outer = helper.make_graph(
            [helper.make_node("If", ["x"], ["c"], else_branch=branch)], "outer", [], []
        )
        model.graph.node.append(helper.make_node("Loop", ["x"], ["c"], body=outer))
    elif place == "graphs":
        branch.node.append(inner)
        model.graph.node.append(helper.make_node("Custom", [], ["c"], bodies=[branch]))
    elif place == "function":
        model.functions.append(
            helper.make_function("d", "f", [], ["c"], [inner], [helper.make_opsetid("", 17)])
        )
    elif place == "function default":
        function = helper.make_function("d", "f", [], [], [], [helper.make_opsetid("", 17)])
        function.attribute_proto.append(helper.make_attribute("value", tensor))
        model.functions.append(function)
    elif place == "sparse":
        sparse = model.graph.sparse_initializer.add()
        sparse.values.CopyFrom(tensor)
    elif place == "training":
        model.training_info.add().algorithm.initializer.append(tensor)
    else:
        raise AssertionError(place)


PLACES = (
    "constant",
    "tensors",
    "branch initializer",
    "branch of a branch",
    "graphs",
    "function",
    "function default",
    "sparse",
    "training",
)


@pytest.mark.parametrize("place", PLACES)
def test_tensors_in_other_files_are_refused_wherever_they_are(tmp_path, place):
    """EDGES 14: no tensor of a file may lie in another one, which its hash does not cover."""
    path = make_onnx(tmp_path / "m.onnx")
    model = onnx.load(str(path))
    tensor = numpy_helper.from_array(np.zeros(1, np.float32), "hidden")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="elsewhere.bin")
    place_tensor(model, place, tensor)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"'hidden' in another file: save it as a single file"):
        load_model(f"onnx:{path}")


def test_a_constant_is_not_read_from_the_working_directory(tmp_path, monkeypatch):
    """EDGES 14: a model that runs, with a Constant beside whoever starts it, is not run."""
    away = tmp_path / "away"
    away.mkdir()
    monkeypatch.chdir(away)
    np.ones(5, np.float32).tofile(away / "offset.bin")
    path = make_onnx(tmp_path / "m.onnx")
    model = onnx.load(str(path))
    output = model.graph.output[0].name
    tensor = TensorProto(
        name="offset", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value="offset.bin")
    tensor.external_data.add(key="length", value="4")
    node = next(node for node in model.graph.node if output in node.output)
    node.output[list(node.output).index(output)] = "before"
    model.graph.node.append(helper.make_node("Constant", [], ["offset"], value=tensor))
    model.graph.node.append(helper.make_node("Add", ["before", "offset"], [output]))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="single file"):
        load_model(f"onnx:{path}")


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        ("{0: 'a', 1: 'b', 2: 'c', 3: 'd', 4: 'e'}", ("a", "b", "c", "d", "e")),
        ("__import__('os').system('true')", None),
        ("{0: 'a'}", None),  # too few
        ("(" * 5000, None),
        ("[1, 2", None),
    ],
)
def test_names_in_the_file(tmp_path, names, labels):
    path = make_onnx(tmp_path / "m.onnx", metadata={"names": names})
    assert load_model(f"onnx:{path}").labels == (labels or tuple(f"class_{i}" for i in range(5)))
    assert load_model(f"onnx:{path}", labels=list("vwxyz")).labels == tuple("vwxyz")


def test_onnx_as_torch_agrees(shared_data):
    import onnxruntime

    model = load_model(f"onnx:{shared_data}/models/yolox_nano.onnx")
    image = np.random.default_rng(0).uniform(0, 255, model.input_shape).astype(np.float32)
    session = onnxruntime.InferenceSession(model.onnx_model(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {session.get_inputs()[0].name: image})[0]
    with torch.inference_mode():
        found = model.torch_module()(torch.from_numpy(image))
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)
