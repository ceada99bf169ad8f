# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Covariances of layer inputs, against the definition on all patches."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.lab.compress import covariance as module
from jetson_dnn_rt.lab.compress.covariance import Covariance, collect


def make_graph(*layers):
    return fx.symbolic_trace(nn.Sequential(*layers).eval())


def make_images(count, channels=3, size=12):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, channels, size, size, generator=generator) + 0.5 for _ in range(count)]


def unfold(conv, images):
    """All patches, [G, N, D]."""
    batch = torch.cat(images)
    if conv.padding_mode != "zeros":
        batch = nn.functional.pad(batch, (conv.padding[1],) * 4, mode=conv.padding_mode)
    padding = conv.padding if conv.padding_mode == "zeros" else 0
    patches = nn.functional.unfold(batch, conv.kernel_size, conv.dilation, padding, conv.stride)
    split = patches.double().reshape(len(batch), conv.groups, -1, patches.shape[-1])
    return split.permute(1, 0, 3, 2).flatten(1, 2)


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(4, 8, 3, padding=1),
        nn.Conv2d(4, 8, (1, 5), stride=(1, 2), padding=(0, 2)),
        nn.Conv2d(4, 8, 3, stride=2, dilation=2, groups=2),
        nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(4, 8, 1),
    ],
    ids=["padded", "wide", "grouped", "reflected", "1x1"],
)
def test_patches_are_those_the_convolution_sees(conv):
    images = make_images(3, channels=4)
    found = collect(make_graph(conv), ["0"], images)["0"]
    patches = unfold(conv, images)
    assert found.kind == "patch"
    assert found.samples == patches.shape[1]
    torch.testing.assert_close(found.mean, patches.mean(1), atol=1e-6, rtol=1e-5)
    expected = torch.stack([torch.cov(group.mT, correction=0) for group in patches])
    torch.testing.assert_close(found.matrix, expected, atol=1e-5, rtol=1e-4)


def test_output_of_the_layer_follows_from_its_patches():
    """Mean of a convolution's output = weight x mean of its patches + bias."""
    conv = nn.Conv2d(4, 8, 3, padding="same", dilation=2)
    images = make_images(2, channels=4)
    found = collect(make_graph(conv), ["0"], images)["0"]
    expected = conv(torch.cat(images)).mean((0, 2, 3)).double()
    weight, bias = conv.weight.double().flatten(1), conv.bias.double()
    torch.testing.assert_close(weight @ found.mean[0] + bias, expected, atol=1e-5, rtol=1e-5)


def test_large_maps_are_sampled_evenly():
    images = make_images(40, size=40)
    conv = nn.Conv2d(3, 4, 3, padding=1)
    found = collect(make_graph(conv), ["0"], images)["0"]
    assert found.samples == 40 * 256
    patches = unfold(conv, images)[0]
    torch.testing.assert_close(found.matrix[0], torch.cov(patches.mT), atol=0.06, rtol=0.0)


def test_wide_layers_have_the_covariance_of_their_channels(monkeypatch):
    monkeypatch.setattr(module, "MAX_PATCH", 20)
    images = make_images(2, channels=4)
    found = collect(make_graph(nn.Conv2d(4, 8, 3)), ["0"], images)["0"]
    assert found.kind == "channel"
    pixels = torch.cat(images).permute(1, 0, 2, 3).flatten(1).double()
    torch.testing.assert_close(found.matrix[0], torch.cov(pixels, correction=0), atol=1e-5, rtol=0)
    monkeypatch.setattr(module, "MAX_CHANNELS", 3)
    assert collect(make_graph(nn.Conv2d(4, 8, 3)), ["0"], images) == {}


def test_calls_of_a_shared_layer_add_up():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x):
            return self.conv(self.conv(x))

    graph = fx.symbolic_trace(Twice().eval())
    found = collect(graph, ["conv"], make_images(2))["conv"]
    assert found.samples == 2 * 2 * 144


@pytest.mark.parametrize(("kind", "total"), [(list, 3), (iter, 0)])
def test_linear_layers_and_progress_of_lists_and_streams(kind, total):
    seen = []
    graph = make_graph(nn.Flatten(2), nn.Linear(144, 5))
    images = kind(make_images(3))
    found = collect(graph, ["1"], images, lambda *values: seen.append(values))["1"]
    assert (found.kind, found.samples) == ("patch", 9)
    rows = torch.cat(make_images(3)).flatten(2).flatten(0, 1).double()
    torch.testing.assert_close(found.mean[0], rows.mean(0), atol=1e-6, rtol=1e-5)
    assert seen == [("covariance", done, total) for done in (1, 2, 3)]
    assert not graph.get_submodule("1")._forward_pre_hooks


def test_regularised_matrix_can_be_inverted():
    zeros = torch.zeros(2, 4, 4, dtype=torch.float64)
    constant = Covariance("patch", torch.ones(2, 4), zeros, 10)
    assert (torch.linalg.eigvalsh(constant.regularise(1e-3)) > 0.0).all()
    flat = torch.full((1, 4, 4), 2.0, dtype=torch.float64)
    found = Covariance("patch", torch.zeros(1, 4), flat, 10).regularise(0.01)
    assert float(torch.linalg.eigvalsh(found).min()) == pytest.approx(0.02)


def test_errors_name_the_layer():
    graph = make_graph(nn.Conv2d(3, 4, 3), nn.ReLU())
    with pytest.raises(ModelError, match="'missing'"):
        collect(graph, ["missing"], make_images(1))
    with pytest.raises(ModelError, match=r"'1' to look at: .* ReLU"):
        collect(graph, ["1"], make_images(1))
    with pytest.raises(ConfigurationError, match="at least one frame"):
        collect(graph, ["0"], [])
    with pytest.raises(ModelError, match="cannot be run"):
        collect(graph, ["0"], make_images(1, channels=5))
    assert not graph.get_submodule("0")._forward_pre_hooks
