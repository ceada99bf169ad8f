# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Networks that suppress overlaps inside: a row for each object, none for the grey picture."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.sources.registry import load_model

ROWS = np.array([[8, 12, 16, 28, 0.9, 2], [1, 2, 6, 9, 0.5, 1]], np.float32)
NEVER = 1e9


def make_rows_onnx(path, form, brightness=0.9, rows=ROWS):
    """`rows` for a picture whose mean is above `brightness`, and none for others."""
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Greater", ["mean", "limit"], ["bright"]),
        helper.make_node("Expand", ["bright", "count"], ["each"]),
        helper.make_node("Compress", ["rows", "each"], ["found"], axis=0),
    ]
    constants = {"limit": np.float32([brightness]), "rows": rows, "count": np.int64([len(rows)])}
    constants |= {str(n): np.int64([n]) for n in range(7)}
    outputs = {}

    def take(name, first, last, flat, kind, shape):
        nodes.append(
            helper.make_node("Slice", ["found", str(first), str(last), "1"], [f"{name}_"])
        )
        value = f"{name}_"
        if flat:
            nodes.append(helper.make_node("Squeeze", [value, "1"], [f"{name}__"]))
            value = f"{name}__"
        if form != "torchvision":
            nodes.append(helper.make_node("Unsqueeze", [value, "0"], [f"{name}___"]))
            value = f"{name}___"
        nodes.append(helper.make_node("Cast", [value], [name], to=kind))
        outputs[name] = (kind, shape)

    batch = () if form == "torchvision" else (1,)
    if form == "flat rows":
        nodes.append(helper.make_node("Identity", ["found"], ["output"]))
        outputs["output"] = (TensorProto.FLOAT, ("n", rows.shape[1]))
    elif form == "rows":
        take("output", 0, 6, False, TensorProto.FLOAT, (1, "n", 6))
    else:
        take("boxes", 0, 4, False, TensorProto.FLOAT, (*batch, "n", 4))
        take("labels", 5, 6, True, TensorProto.INT64, (*batch, "n"))
        take("scores", 4, 5, True, TensorProto.FLOAT, (*batch, "n"))
    values = [helper.make_tensor_value_info(n, *about) for n, about in outputs.items()]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, 32, 32))
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "net", [image], values, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return f"onnx:{path}"


FORMS = {"rows": "end_to_end", "lists": "box_lists", "torchvision": "torchvision"}


@pytest.mark.parametrize("form", FORMS)
def test_a_network_that_sees_nothing_in_a_grey_picture_is_tried_on_others(tmp_path, form, caplog):
    """``[1, 0, 6]`` was refused, ``[0, 4]`` accepted."""
    model = load_model(make_rows_onnx(tmp_path / "m.onnx", form), kind="detection")
    assert model.head.name == FORMS[form]
    assert "could not be checked" not in caplog.text
    tiny = ROWS * np.float32([0.02, 0.02, 0.02, 0.02, 1, 1])
    source = make_rows_onnx(tmp_path / "tiny.onnx", form, rows=tiny)
    with pytest.raises(ModelError, match=r"lie in one pixel|may be corners from 0 to 1, not cen"):
        load_model(source, kind="detection")


@pytest.mark.parametrize("form", FORMS)
def test_one_that_sees_nothing_in_any_is_read_by_its_shapes_with_a_warning(tmp_path, form, caplog):
    source = make_rows_onnx(tmp_path / "m.onnx", form, NEVER)
    assert load_model(source, kind="detection").head.name == FORMS[form]
    assert "none of the pictures it was tried on gave an object" in caplog.text
    assert f"jetson-dnn-rt inspect {source} --frames DIR" in caplog.text


def test_a_single_row_is_not_taken_for_a_batch(tmp_path):
    """``[N, 7]`` of YOLOv7 with one object has the shape of a classifier's seven logits."""
    seven = np.concatenate([ROWS, ROWS[:, :1]], axis=1)[:1]
    source = make_rows_onnx(tmp_path / "m.onnx", "flat rows", rows=seven)
    with pytest.raises(ModelError, match=r"outputs \[0, 7\] .* fit no known head"):
        load_model(source)
