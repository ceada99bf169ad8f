# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Models from ONNX files."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
from networks import make_onnx
from onnx import TensorProto, helper

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.heads.labels import COCO_80
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.model import make_probe_input
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.models.sources.torch import describe_onnx_error, run_onnx

PICTURE = make_probe_input(32, 48)


def test_yolox(shared_data):
    model = load_model(f"onnx:{shared_data}/models/yolox_nano.onnx", kind="detection")
    assert model.head.name == "yolox"
    assert "< 0" in model.head.reason
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
    for share in (0.001, 0.3, 0.999):
        path = tmp_path / "cut.onnx"
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(ModelError, match=r"damaged|cannot be run"):
            load_model(f"onnx:{path}")


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"inputs": 2}, "has the inputs 'image0' .*, 'image1' .*needed is one image"),
        ({"shape": (1, 1, 32, 48)}, r"takes \[1, 1, 32, 48\]"),
        ({"shape": (4, 3, 32, 48)}, r"takes \[4, 3, 32, 48\]"),
        ({"element": TensorProto.DOUBLE}, "takes .*DOUBLE.* needed is float32, float16 or uint8"),
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


def test_a_size_that_the_network_cannot_take(tmp_path):
    """Two paths, one of them halved and doubled again: an odd side does not come back."""
    nodes = [
        helper.make_node("AveragePool", ["image"], ["half"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["half", "", "scales"], ["whole"]),
        helper.make_node("Add", ["image", "whole"], ["sum"]),
    ]
    values = [helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, "h", "w"))]
    outputs = [helper.make_tensor_value_info("sum", TensorProto.FLOAT, (1, 3, "h", "w"))]
    scales = helper.make_tensor("scales", TensorProto.FLOAT, [4], [1.0, 1.0, 2.0, 2.0])
    graph = helper.make_graph(nodes, "skip", values, outputs, [scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    with pytest.raises(ModelError, match=r"another input_size than 33x47: .*multiples of 32"):
        load_model(f"onnx:{path}", input_size=(33, 47))


def test_fixed_size_cannot_be_changed(tmp_path):
    path = make_onnx(tmp_path / "m.onnx")
    assert load_model(f"onnx:{path}", input_size=(32, 48)).input_size == (32, 48)
    with pytest.raises(ModelError, match="takes 32x48, input_size says 64x64"):
        load_model(f"onnx:{path}", input_size=(64, 64))


def make_external(name, file):
    """A tensor of one number that is in another file."""
    tensor = TensorProto(
        name=name, data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value=file)
    return tensor


def add_node(graph, **attributes):
    graph.node.append(helper.make_node("Custom", [], ["c"], **attributes))


def add_function(model, attributes=(), **values):
    nodes = [helper.make_node("Constant", [], ["c"], **values)]
    function = helper.make_function("d", "f", [], ["c"], nodes, [helper.make_opsetid("", 17)])
    function.attribute_proto.extend(attributes)
    model.functions.append(function)


def make_branch(tensor, depth=1):
    """A graph with a constant, in as many graphs."""
    branch = helper.make_graph([], "branch", [], [])
    add_node(
        branch, **({"value": tensor} if depth == 1 else {"g": make_branch(tensor, depth - 1)})
    )
    return branch


PLACES = {
    "constant": lambda model, tensor: add_node(model.graph, value=tensor),
    "tensors": lambda model, tensor: add_node(model.graph, several=[tensor]),
    "branch initializer": lambda model, tensor: add_node(
        model.graph, then_branch=helper.make_graph([], "branch", [], [], [tensor])
    ),
    "branch of a branch": lambda model, tensor: add_node(model.graph, g=make_branch(tensor, 2)),
    "graphs": lambda model, tensor: add_node(model.graph, bodies=[make_branch(tensor)]),
    "function": lambda model, tensor: add_function(model, value=tensor),
    "function default": lambda model, tensor: add_function(
        model, [helper.make_attribute("value", tensor)], value_int=1
    ),
    "sparse": lambda model, tensor: model.graph.sparse_initializer.add().values.CopyFrom(tensor),
    "training": lambda model, tensor: model.training_info.add().algorithm.initializer.append(
        tensor
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_tensors_in_other_files_are_refused_wherever_they_are(tmp_path, place):
    """EDGES 14: no tensor of a file may lie in another one, which its hash does not cover."""
    path = make_onnx(tmp_path / "m.onnx")
    model = onnx.load(str(path))
    PLACES[place](model, make_external("hidden", "elsewhere.bin"))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"'hidden' in another file, elsewhere.bin; fix: copy"):
        load_model(f"onnx:{path}")


def test_a_constant_is_not_read_from_the_working_directory(tmp_path, monkeypatch):
    """EDGES 14: a model that runs, with a Constant beside whoever starts it, is not run."""
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    np.ones(1, np.float32).tofile("offset.bin")
    path = make_onnx(tmp_path / "m.onnx")
    model = onnx.load(str(path))
    (node,) = model.graph.node
    output, node.output[0] = node.output[0], "before"
    tensor = make_external("offset", "offset.bin")
    model.graph.node.append(helper.make_node("Constant", [], ["offset"], value=tensor))
    model.graph.node.append(helper.make_node("Add", ["before", "offset"], [output]))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="single file"):
        load_model(f"onnx:{path}")


@pytest.mark.parametrize("name", ["plain", "a 'folder' of $HOME"])
def test_weights_in_a_file_beside_it_come_with_the_command_that_makes_one_file(tmp_path, name):
    """What `torch.onnx.export` writes by default: refused without a command."""
    folder = tmp_path / name
    folder.mkdir()
    path = make_onnx(folder / "m.onnx")
    plain = load_model(f"onnx:{path}")
    model = onnx.load(str(path))
    onnx.save(
        model, str(path), save_as_external_data=True, location="m.onnx.data", size_threshold=0
    )
    with pytest.raises(
        ModelError, match=r"in another file, m.onnx.data; fix: make a sin"
    ) as error:
        load_model(f"onnx:{path}")
    text = str(error.value)
    command = shlex.split(text[text.index("python3 -c") :])
    subprocess.run([sys.executable, *command[1:3]], check=True, cwd="/")
    single = load_model(f"onnx:{folder / 'm_single.onnx'}")
    assert f"use onnx:{folder / 'm_single.onnx'}; or export it with external_data=False" in text
    for one, other in zip(single.origin.probe(PICTURE), plain.origin.probe(PICTURE), strict=True):
        np.testing.assert_array_equal(one, other)
    (folder / "m.onnx.data").unlink()
    with pytest.raises(
        ModelError, match=r"fix: copy m.onnx.data, which belongs to it, into .* of"
    ):
        load_model(f"onnx:{path}")


@pytest.mark.parametrize("place", ["/etc/passwd", "../x", "a/b", "", ".", "x\x1b[2J"])
def test_no_command_is_given_that_would_read_a_file_elsewhere(tmp_path, place):
    path = make_onnx(tmp_path / "m.onnx")
    model = onnx.load(str(path))
    model.graph.initializer.append(make_external("hidden", place))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="in another file, and not in one beside it") as error:
        load_model(f"onnx:{path}")
    assert "python3" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ir_version": 99}, r"needs the format of version 99, and the package onnx .* 1?\d;"),
        ({"opset": 99}, r"needs operators of opset 99, and the package onnx .* knows none above"),
    ],
)
def test_a_file_of_a_newer_onnx_is_not_called_damaged(tmp_path, change, words):
    path = make_onnx(tmp_path / "m.onnx")
    model = onnx.load(str(path))
    model.ir_version = change.get("ir_version", model.ir_version)
    model.opset_import[0].version = change.get("opset", model.opset_import[0].version)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=words) as error:
        load_model(f"onnx:{path}")
    assert "damaged" not in str(error.value)
    assert "pip install --upgrade onnx onnxruntime" in str(error.value)


@pytest.mark.parametrize(
    "said",
    [
        "Unsupported model IR version: 13, max supported IR version: 10",
        "ONNX Runtime only *guarantees* support for models stamped with official released onnx "
        "opset versions. Opset 27 is under development and support for this is limited.",
    ],
)
def test_an_onnx_runtime_that_is_too_old_is_told_to_be_upgraded(said):
    assert "; fix: pip install --upgrade onnxruntime, or" in describe_onnx_error(ValueError(said))
    assert describe_onnx_error(ValueError("no kernel")) == "no kernel"


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        ("{0: 'a', 1: 'b', 2: 'c', 3: 'd', 4: 'e'}", ("a", "b", "c", "d", "e")),
        ("__import__('os').system('true')", None),
        ("(" * 5000, None),
        ("[1, 2", None),
    ],
)
def test_names_in_the_file(tmp_path, names, labels):
    path = make_onnx(tmp_path / "m.onnx", metadata={"names": names})
    assert load_model(f"onnx:{path}").labels == (labels or tuple(f"class_{i}" for i in range(5)))
    assert load_model(f"onnx:{path}", labels=list("vwxyz")).labels == tuple("vwxyz")


def test_names_of_another_network_are_refused(tmp_path):
    path = make_onnx(tmp_path / "m.onnx", metadata={"names": "{0: 'a'}"})
    with pytest.raises(ModelError, match="metadata names 1 classes, the outputs hold 5"):
        load_model(f"onnx:{path}")


@pytest.mark.parametrize(("names", "fits"), [("abcde", True), ("abcdef", False)])
def test_names_under_another_key_are_taken_if_they_fit(tmp_path, names, fits):
    path = make_onnx(tmp_path / "m.onnx", metadata={"classes": json.dumps(list(names))})
    expected = tuple(names) if fits else tuple(f"class_{i}" for i in range(5))
    assert load_model(f"onnx:{path}").labels == expected


def test_onnx_as_torch_agrees(shared_data):
    model = load_model(f"onnx:{shared_data}/models/yolox_nano.onnx")
    image = np.random.default_rng(0).uniform(0, 255, model.input_shape).astype(np.float32)
    (expected,) = run_onnx(model.onnx_model(), [image], "it")
    with torch.inference_mode():
        found = model.torch_module()(torch.from_numpy(image))
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)


def test_labels_that_replace_or_do_not_fit_are_warned_of(tmp_path, caplog):
    names = "{0: 'a', 1: 'b', 2: 'c', 3: 'd', 4: 'e'}"
    path = make_onnx(tmp_path / "m.onnx", metadata={"names": names})
    load_model(f"onnx:{path}", labels=list("abcde"))
    assert "labels are" not in caplog.text
    assert "labels replace" not in caplog.text
    load_model(f"onnx:{path}", labels="coco80")
    assert "labels are 80 names for a model of 5 classes" in caplog.text
    assert "labels replace the names in the file, a, b, c ..." in caplog.text


def test_preprocessing_that_replaces_the_model_s_own_is_warned_of(caplog):
    """Boxes everywhere, with scores near 1.0, and no word."""
    own = load_model("builtin:detector").preprocessing
    load_model("builtin:detector", preprocessing={"scale": 0.00392, "color": own.color})
    assert "preprocessing.scale" not in caplog.text
    load_model("builtin:detector", preprocessing={"scale": 7.0, "mean": [1.0, 2.0, 3.0]})
    assert "preprocessing.scale 7 instead of " in caplog.text
    assert "preprocessing.mean 1 2 3 instead of " in caplog.text
    assert "preprocessing.std" not in caplog.text
