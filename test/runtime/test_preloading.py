# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What is imported while cameras open: what the tasks will need, and nothing else."""

import pytest

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.runtime import preloading
from jetson_dnn_rt.runtime.preloading import list_libraries


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    names = {"openvino", "onnxruntime", "torch"}
    monkeypatch.setattr(preloading, "is_installed", names.__contains__)
    monkeypatch.setattr(preloading, "choose_backend", lambda: "openvino")
    return names


def list_of(model, *variants):
    return list_libraries([TaskConfig("a", model=model, variants=variants)])


def test_libraries_of_the_variants_and_of_the_look_at_the_outputs():
    assert list_of("builtin:detector") == ["onnxruntime", "openvino"]
    assert list_of("onnx:a.onnx", "full@onnxruntime-fp32") == ["onnxruntime"]
    assert list_of("torchvision:resnet50", "full@torch-fp32", "full@openvino-bf16") == [
        "torch",
        "openvino",
    ]


def test_nothing_for_scripts_devices_and_names_that_cannot_be_used(installed):
    assert list_of("null:3") == []
    assert list_of("torchvision:resnet50", "full@tensorrt-fp16", "full@tvm-fp32") == []
    assert list_of("torchvision:resnet50", "full", "half@torch") == []
    installed.remove("openvino")
    assert list_of("builtin:detector") == ["onnxruntime"]
