# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ONNX graphs for torch and for batches."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from networks import Classifier
from onnx import TensorProto
from onnx_parts import OnnxPart, make_classifier, make_part, node

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.graph.batched_part import BatchedPart, set_batch
from jetson_dnn_rt.models.model import SourceOptions
from jetson_dnn_rt.models.sources.from_onnx import bypass_copies, convert_to_torch
from jetson_dnn_rt.models.sources.onnx import OnnxOrigin
from jetson_dnn_rt.models.sources.torch import export_onnx, run_onnx

pytest.importorskip("onnx2torch")
pytest.importorskip("onnxruntime")


SHAPE = (1, 3, 8, 8)


def make_model():
    """Two convolutions that share their weights, the second through two copies."""
    nodes = [
        node("Identity", "weight", "copy"),
        node("Identity", "copy", "again"),
        node("Conv", "image weight", "middle"),
        node("Conv", "middle again", "end"),
        node("Identity", "end", "logits"),
    ]
    constants = {"weight": np.random.default_rng(0).random((3, 3, 1, 1), np.float32)}
    kinds = {"logits": TensorProto.FLOAT}
    return onnx.load_model_from_string(make_part(nodes, constants, {"image": SHAPE}, kinds).data)


def move_constants(model):
    """Its constants as nodes, as Paddle's exporter writes them."""
    graph = model.graph
    nodes = [
        onnx.helper.make_node("Constant", [], [constant.name], value=constant)
        for constant in graph.initializer
    ]
    kept = list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.node.extend([*nodes, *kept])
    return model


def test_weights_that_are_nodes_are_constants_for_torch(tmp_path):
    path = tmp_path / "paddle.onnx"
    onnx.save_model(move_constants(make_model()), str(path))
    model = bypass_copies(onnx.load(str(path)))
    assert [node.op_type for node in model.graph.node] == ["Conv", "Conv", "Identity"]
    assert [constant.name for constant in model.graph.initializer] == ["weight"]
    onnx.checker.check_model(model)
    image = make_images(1, SHAPE[1:])
    (expected,) = run(path.read_bytes(), image)
    with torch.inference_mode():
        found = convert_to_torch(path.read_bytes(), "paddle")(torch.from_numpy(image))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_copies_of_constants_are_bypassed_and_others_stay():
    model = bypass_copies(make_model())
    assert [node.op_type for node in model.graph.node] == ["Conv", "Conv", "Identity"]
    assert model.graph.node[1].input[:] == ["middle", "weight"]
    onnx.checker.check_model(model)
    before = model.SerializeToString()
    assert bypass_copies(model).SerializeToString() == before


def test_shared_weights_run_on_torch_as_on_onnx_runtime(tmp_path):
    path = tmp_path / "shared.onnx"
    onnx.save_model(make_model(), str(path))
    image = make_images(1, SHAPE[1:])
    (expected,) = run(path.read_bytes(), image)
    with torch.inference_mode():
        found = OnnxOrigin(path, SourceOptions()).torch_module()(torch.from_numpy(image))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def run(data, image):
    return run_onnx(data, [image], "it")


def make_images(size, shape):
    return np.random.default_rng(1).random((size, *shape), np.float32)


@pytest.mark.parametrize("size", [2, 5])
def test_every_image_gives_what_it_gives_alone(size):
    """The file reshapes to a constant [1, 8], which has to become [size, 8]."""
    part = make_classifier()
    images = make_images(size, part.input_shapes[0][1:])
    scores, best = run(BatchedPart(part, size).onnx_model(), images)
    assert scores.shape == (size, 5)
    for index in range(size):
        alone = run(part.onnx_model(), images[index : index + 1])
        np.testing.assert_allclose(scores[index : index + 1], alone[0], rtol=1e-6)
        np.testing.assert_array_equal(best[index], alone[1][0])
    assert np.ptp(scores, axis=0).max() > 1e-4  # the images do differ


def test_shapes_say_the_size():
    part = make_classifier()
    batched = BatchedPart(part, 3)
    assert batched.input_shapes == ((3, *part.input_shapes[0][1:]),)
    assert batched.name == "test:part x3"
    assert batched.graph_hash == part.graph_hash
    graph = onnx.load_model_from_string(batched.onnx_model()).graph
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3


def test_an_export_of_torch_is_rewritten():
    data = export_onnx(Classifier().eval(), ((1, 3, 32, 32),), "test")
    images = make_images(3, (3, 32, 32))
    (logits,) = run(set_batch(data, 3), images)
    alone = np.concatenate([run(data, images[i : i + 1])[0] for i in range(3)])
    np.testing.assert_allclose(logits, alone, rtol=1e-5, atol=1e-6)


def test_constants_of_other_values_stay():
    """A constant that two nodes read is rewritten for the one that holds images alone."""
    constants = {"shape": np.array([1, 12], np.int64), "row": np.ones((3, 4), np.float32)}
    nodes = [
        node("Reshape", "row shape", "flat_row"),
        node("Reshape", "image shape", "flat"),
        node("Add", "flat flat_row", "sum"),
    ]
    part = make_part(nodes, constants, {"image": (1, 3, 4)}, {"sum": TensorProto.FLOAT})
    images = make_images(2, (3, 4))
    (found,) = run(BatchedPart(part, 2).onnx_model(), images)
    np.testing.assert_array_equal(found, images.reshape(2, 12) + 1)


def test_torch_runs_the_rewritten_file():
    constants = {"shape": np.array([1, 12], np.int64)}
    nodes = [node("Reshape", "image shape", "flat"), node("Relu", "flat", "out")]
    part = make_part(nodes, constants, {"image": (1, 3, 2, 2)}, {"out": TensorProto.FLOAT})
    module = convert_to_torch(BatchedPart(part, 2).onnx_model(), "test")
    images = make_images(2, (3, 2, 2)) - 0.5
    found = module(torch.from_numpy(images))
    np.testing.assert_array_equal(found.numpy(), np.maximum(images, 0).reshape(2, 12))


def test_what_does_not_take_one_image_is_refused():
    with pytest.raises(ModelError, match=r"not one image each"):
        BatchedPart(OnnxPart(b"", ((2, 3, 4, 4),)), 2)
    with pytest.raises(ValueError, match="size must be >= 2: 1"):
        BatchedPart(make_classifier(), 1)


def test_names_of_nodes_are_no_programs(tmp_path):
    """torch.fx writes them into the source text that it runs."""
    written = tmp_path / "written"
    letters = "+".join(f"chr({ord(letter)})" for letter in f"open({str(written)!r}, 'w')")
    model = make_model()
    image = make_images(1, SHAPE[1:])
    (expected,) = run(model.SerializeToString(), image)
    for one in model.graph.node:  # all of one name, too
        one.name = f'training"), exec({letters}), getattr(self, "to'
    with torch.inference_mode():
        found = convert_to_torch(model.SerializeToString(), "m")(torch.from_numpy(image))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
    assert not written.exists()
