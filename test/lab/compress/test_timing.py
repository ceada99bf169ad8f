# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Layers timed on real back ends; large differences only, the machine may be busy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.lab.compress import timing
from jetson_dnn_rt.lab.compress.decomposition import decompose
from jetson_dnn_rt.lab.compress.timing import LayerPart, keep_faster
from jetson_dnn_rt.models.graph.tracing import trace
from jetson_dnn_rt.variants.spec import DecompositionSpec

SHAPE = (1, 32, 32, 32)


def make_conv(kernel):
    return nn.Conv2d(32, 32, kernel, padding=kernel // 2).eval()


@pytest.mark.parametrize("backend", ["torch", "onnxruntime", "openvino"])
def test_much_larger_layers_are_slower(backend):
    if not inspect_backend(backend).available:
        pytest.skip(f"{backend} is not installed")
    keep_if = keep_faster(backend)
    small, large = make_conv(1), make_conv(9)  # 81 times the work
    assert keep_if("layer", large, small, SHAPE) == (True, "")
    keep, reason = keep_if("layer", small, large, SHAPE)
    assert not keep
    words = reason.split()
    assert words[:2] == ["not", "faster:"]
    assert float(words[2]) > float(words[5])


@pytest.mark.parametrize(("reduced_ns", "keep"), [(99e3, False), (97.5e3, False), (96e3, True)])
def test_a_gain_within_the_noise_is_none(monkeypatch, reduced_ns, keep):
    times = ([99_000, 100_000, 200_000], [reduced_ns] * 3)
    monkeypatch.setattr(timing, "time_in_turn", lambda *_, **options: times)
    layer = make_conv(1)
    found, reason = keep_faster("torch")("layer", layer, layer, SHAPE)
    assert found == keep
    assert reason == ("" if keep else f"not faster: {reduced_ns * 1e-6:.3g} ms against 0.1")


def test_part_is_a_layer_on_its_own():
    layer = make_conv(3)
    part = LayerPart.of("a", layer, SHAPE)
    assert part.input_shapes == (SHAPE,)
    module = part.torch_module()
    assert module is not layer
    image = torch.from_numpy(np.random.default_rng(0).standard_normal(SHAPE, np.float32))
    assert torch.equal(module(image), layer(image))
    assert part.onnx_model()
    assert LayerPart.of("a", layer, SHAPE).graph_hash == part.graph_hash
    others = [LayerPart.of("a", make_conv(3), SHAPE), LayerPart.of("a", layer, (1, 32, 8, 8))]
    assert len({part.graph_hash, *(other.graph_hash for other in others)}) == 3


def test_decomposition_asks_the_machine():
    graph = trace(nn.Sequential(make_conv(9)))
    spec = DecompositionSpec.parse("tucker-ratio-0.25")
    reduced, found = decompose(graph, SHAPE, spec, keep_if=keep_faster("torch"))
    assert found.layers[0].kept
    assert isinstance(reduced.get_submodule("0"), nn.Sequential)


def test_a_missing_back_end_is_an_error():
    with pytest.raises(BackendUnavailableError, match="fp16"):
        keep_faster("openvino", "fp16")("layer", make_conv(1), make_conv(1), SHAPE)
