# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Multiply-accumulates and parameters, against formulas and published figures."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import fx, nn

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.variants.measuring.macs import count


def make_graph(module):
    return fx.symbolic_trace(module.eval())


@pytest.mark.parametrize(
    ("name", "gmacs", "parameters"),
    [("resnet18", 1.814, 11_689_512), ("mobilenet_v3_small", 0.0565, 2_542_856)],
)
def test_published_figures(name, gmacs, parameters):
    """torchvision states GFLOPS that are multiply-accumulates, and parameters."""
    costs = count(make_graph(torchvision.models.get_model(name, weights=None)), (1, 3, 224, 224))
    assert costs.macs * 1e-9 == pytest.approx(gmacs, rel=2e-3)
    assert costs.parameters == parameters
    # All of it is in convolutions and linear layers.
    assert costs.macs == sum(layer.macs for layer in costs.layers.values())


def test_layers_that_are_called_twice_count_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)
            self.pool = nn.AvgPool2d(2)

        def forward(self, x):
            return self.conv(self.pool(self.conv(x)))

    costs = count(make_graph(Twice()), (1, 3, 8, 8))
    layer = costs.layers["conv"]
    assert layer.macs == costs.macs == (64 + 16) * 81
    assert layer.parameters == costs.parameters == 84
    assert layer.input_shapes == ((1, 3, 8, 8), (1, 3, 4, 4))
    assert (layer.positions_in, layer.positions_out) == (80, 80)


def test_functions_and_transposed_convolutions_count_too():
    class Functions(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(6, 2, 3, 3))
            self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)
            self.matrix = nn.Parameter(torch.zeros(5, 4))

        def forward(self, x):
            x = nn.functional.conv2d(x, self.weight, padding=1, groups=2)
            rows = self.up(x).flatten(2).transpose(1, 2)
            rows = nn.functional.linear(rows, self.matrix)
            return torch.bmm(rows, rows.transpose(1, 2)) @ rows

    costs = count(make_graph(Functions()), (1, 4, 8, 8))
    convolution, up = 64 * 6 * 2 * 9, 64 * 6 * 4 * 4
    linear, products = 256 * 4 * 5, 2 * 256 * 256 * 5
    assert costs.layers == {}
    assert costs.macs == convolution + up + linear + products


def test_attention_counts():
    class Attention(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x)

    assert count(make_graph(Attention()), (1, 2, 10, 8)).macs == 2 * (2 * 10 * 10 * 8)


def test_strided_and_linear_positions():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.Flatten(2), nn.Linear(49, 5))
    costs = count(make_graph(net), (1, 3, 15, 15))
    assert (costs.layers["0"].positions_in, costs.layers["0"].positions_out) == (225, 49)
    assert costs.layers["2"].macs == 8 * 49 * 5
    assert costs.macs == 49 * 8 * 27 + 8 * 49 * 5


def test_wrong_input_is_a_model_error():
    with pytest.raises(ModelError, match=r"\[1, 4, 8, 8\]"):
        count(make_graph(nn.Sequential(nn.Conv2d(3, 8, 3))), (1, 4, 8, 8))
