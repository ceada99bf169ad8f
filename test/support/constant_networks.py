# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ONNX files that answer the same to every picture of 64x64, for exact values in messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE = 64
CELLS = sum((SIZE // stride) ** 2 for stride in (8, 16, 32))

Floats = npt.NDArray[np.float32]


def make_constant_onnx(
    path: Path, outputs: Mapping[str, Floats], metadata: Mapping[str, str] | None = None
) -> str:
    """A network with these outputs; the name of its model as tasks take it."""
    # The picture is read and has no effect: a back end may not drop the input.
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
    ]
    constants = [numpy_helper.from_array(np.float32(0.0), "zero")]
    values = []
    for name, value in outputs.items():
        constants.append(numpy_helper.from_array(value.astype(np.float32), f"value of {name}"))
        nodes.append(helper.make_node("Add", [f"value of {name}", "nothing"], [name]))
        values.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, SIZE, SIZE))
    graph = helper.make_graph(nodes, "net", [image], values, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, dict(metadata or {}))
    onnx.save(model, str(path))
    return f"onnx:{path}"


def describe_export(task: str, **more: str) -> dict[str, str]:
    """Metadata as Ultralytics writes them."""
    names = "{0: 'cat', 1: 'dog'}"
    return {"task": task, "stride": "32", "imgsz": f"[{SIZE}, {SIZE}]", "names": names, **more}


def make_columns(*objects: tuple[float, ...]) -> Floats:
    """Output ``[1, values, cells]`` with these objects, and nothing in the other cells."""
    columns = np.zeros((1, len(objects[0]), CELLS), np.float32)
    columns[0, :, : len(objects)] = np.array(objects, np.float32).T
    return columns


def make_seg(folder: Path) -> str:
    """A dog in (8, 8) to (40, 40), a cat in (32, 32) to (60, 60); their masks fill the boxes."""
    boxes = make_columns((24, 24, 32, 32, 0, 0.9, 1, 0), (46, 46, 28, 28, 0.8, 0, 0, 1))
    outputs = {"boxes": boxes, "prototypes": np.ones((1, 2, SIZE // 4, SIZE // 4), np.float32)}
    return make_constant_onnx(folder / "seg.onnx", outputs, describe_export("segment"))


def make_pose(folder: Path) -> str:
    """A dog with three keypoints, the last one unsure, and a cat."""
    boxes = make_columns(
        (24, 24, 32, 32, 0, 0.9, 10, 12, 0.75, 30, 12.5, 1, -4, 70, 0.25),
        (46, 46, 28, 28, 0.8, 0, 40, 41, 1, 42, 43, 1, 44, 45, 1),
    )
    metadata = describe_export("pose", kpt_shape="[3, 3]")
    return make_constant_onnx(folder / "pose.onnx", {"boxes": boxes}, metadata)


def make_obb(folder: Path) -> str:
    """A dog that is turned by 0.5 rad."""
    boxes = make_columns((32, 30, 40, 10, 0, 0.9, 0.5))
    return make_constant_onnx(folder / "obb.onnx", {"boxes": boxes}, describe_export("obb"))


def make_classifier(folder: Path) -> str:
    """Class 2 with a probability of 2/3, class 0 with 1/6, then class 1 with 1/6."""
    logits = np.log(np.array([[1.0, 0.999, 4.0]], np.float32))
    return make_constant_onnx(folder / "classifier.onnx", {"logits": logits})


def make_masks(folder: Path, *names: str) -> str:
    """Masks of two classes, of these names: the n-th is 1 in the n-th quarter of the rows."""
    outputs = {}
    for number, name in enumerate(names):
        logits = np.zeros((1, 2, SIZE // 4, SIZE // 4), np.float32)
        logits[:, 0] = 1.0
        logits[:, 1, 4 * number : 4 * number + 4] = 3.0
        outputs[name] = logits
    return make_constant_onnx(folder / f"{len(names)}_masks.onnx", outputs)
