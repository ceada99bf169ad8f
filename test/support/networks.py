# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Small networks that the tests of models, back ends and variants are made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.backends.torch import choose_device
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.models.heads.base import Inspected
from jetson_dnn_rt.models.heads.registry import recognise_head
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.model import Model, make_probe_input
from jetson_dnn_rt.models.sources.torch import TorchOrigin
from jetson_dnn_rt.variants.running.pipeline import Pipeline
from jetson_dnn_rt.variants.running.variant_set import VariantSet
from jetson_dnn_rt.variants.spec import VariantSpec


class Classifier(torch.nn.Module):
    """A convolution, a mean and a matrix: every layer that the short types treat differently."""

    def __init__(self, classes: int = 7) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.layers = torch.nn.Sequential(
                torch.nn.Conv2d(3, 16, 3, 2, 1),
                torch.nn.BatchNorm2d(16),
                torch.nn.ReLU(),
                torch.nn.AdaptiveAvgPool2d(1),
                torch.nn.Flatten(),
                torch.nn.Linear(16, classes),
            )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.layers(image)


class BoxesAndScores(torch.nn.Module):
    """Corners in pixels, which a short type would round, and scores by an exponential."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2)
            self.convolution = torch.nn.Conv2d(3, 9, 8, 8)
        self.register_buffer("corners", torch.linspace(0, 4000, 24).reshape(1, 24, 1))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.convolution(image).flatten(2).transpose(1, 2)
        return self.corners + x[..., :4], x[..., 4:].sigmoid()


class BrightColumns(torch.nn.Module):
    """As many boxes, labels and scores as the picture has bright pixels in its first row."""

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        scores = image[0, 0, 0]
        found = torch.nonzero(scores > 0.5).squeeze(1)
        boxes = torch.stack([found, found, found + 2, found + 3], 1).float()
        return boxes, found, scores[found]


def make_model(
    module: torch.nn.Module, size: tuple[int, int], labels: tuple[str, ...] = ()
) -> Model:
    """A model around a module, with its head recognised."""
    origin = TorchOrigin.of_module("test network", module, size)
    head = recognise_head(Inspected(origin.probe(make_probe_input(*size)), size))
    names = labels or tuple(f"class_{i}" for i in range(head.classes))
    return Model("test:network", head, Preprocessing(*size), names, "0" * 64, origin)


def skip_on_gpu(what: str) -> None:
    """Skip a test of torch on the CPU where torch computes on a GPU."""
    if choose_device() == "cuda":
        pytest.skip(f"torch computes on the GPU: {what}")


def load_pipeline(model: Model, name: str, *arguments, **options) -> Pipeline:
    """One variant of a model; the test is skipped where its back end lacks the precision."""
    spec = VariantSpec.parse(name)
    info = inspect_backend(spec.backend)
    if spec.precision not in info.precisions:
        pytest.skip(f"{name}: {info.reason}")
    variants = VariantSet(TaskConfig(variants=(name,)), model, *arguments, **options)
    return variants.pipelines[str(spec)]


def calibrate(
    module: torch.nn.Module, size: tuple[int, int], as_list: bool = False
) -> torch.nn.Module:
    """Give a network with random weights outputs that differ from pixel to pixel.

    The statistics of its normalisations are set from noise, as training would; torchvision's
    detectors take their images `as_list`.
    """
    norms = [m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # a plain mean
        norm.reset_running_stats()
        norm.train()
    rng = np.random.default_rng(3)
    with torch.no_grad():
        for _ in range(2):
            images = torch.from_numpy(rng.standard_normal((2, 3, *size), np.float32))
            module(list(images) if as_list else images)
    return module.eval()


def make_onnx(
    path: Path,
    *,
    shape: tuple[int | str, ...] = (1, 3, 32, 48),
    element: int = TensorProto.FLOAT,
    inputs: int = 1,
    classes: int = 5,
    metadata: dict[str, str] | None = None,
) -> Path:
    """A convolution of stride 4 into `classes` maps, as an ONNX file."""
    rng = np.random.default_rng(0)
    channels = shape[1] if isinstance(shape[1], int) else 3
    weight = rng.standard_normal((classes, channels, 4, 4)).astype(np.float32)
    if element == TensorProto.FLOAT16:
        weight = weight.astype(np.float16)
    images = [helper.make_tensor_value_info(f"image{i}", element, shape) for i in range(inputs)]
    output = helper.make_tensor_value_info("logits", element, ["n", classes, "h", "w"])
    graph = helper.make_graph(
        [helper.make_node("Conv", ["image0", "weight"], ["logits"], strides=[4, 4])],
        "net",
        images,
        [output],
        [numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, str(path))
    return path
