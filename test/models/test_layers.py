# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Layers of graphs: functional ones as modules, weights with their channels last."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import fx, nn
from torch.nn import functional

from jetson_dnn_rt.lab.compress.decomposition import decompose
from jetson_dnn_rt.models.graph.layers import lift_modules, to_channels_last
from jetson_dnn_rt.models.graph.tracing import trace
from jetson_dnn_rt.variants.spec import DecompositionSpec


def make_image(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def count(graph, kind):
    modules = dict(graph.named_modules())
    nodes = [node for node in graph.graph.nodes if node.op == "call_module"]
    return sum(isinstance(modules[node.target], kind) for node in nodes)


def export(module, image):
    return torch.export.export(module.eval(), (image,)).module()


class Functional(nn.Module):
    """Functional layers in all the ways to write them."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(make_image(8, 3, 3, 3))
        self.bias = nn.Parameter(make_image(8))
        self.register_buffer("grouped", make_image(8, 2, 3, 3))
        self.register_buffer("mean", make_image(8))
        self.register_buffer("variance", make_image(8).square() + 0.5)
        self.matrix = nn.Parameter(make_image(5, 8))

    def forward(self, x):
        x = functional.conv2d(x, self.weight, self.bias, stride=2, padding=(1, 0))
        x = torch.conv2d(x, self.grouped, padding="same", groups=4, dilation=2)
        x = functional.batch_norm(x, self.mean, self.variance, eps=1e-3)
        return functional.linear(x.mean((2, 3)), self.matrix)


def test_functions_of_a_traced_graph():
    graph = fx.symbolic_trace(Functional().eval())
    names = [node.name for node in graph.graph.nodes if node.op != "get_attr"]
    image = make_image(1, 3, 17, 17)
    expected = graph(image)
    assert lift_modules(graph) is graph
    assert [node.name for node in graph.graph.nodes] == names
    assert torch.equal(graph(image), expected)
    assert [count(graph, kind) for kind in (nn.Conv2d, nn.BatchNorm2d, nn.Linear)] == [2, 1, 1]
    grouped = next(m for m in graph.modules() if isinstance(m, nn.Conv2d) and m.groups == 4)
    assert (grouped.padding, grouped.dilation, grouped.in_channels) == ("same", (2, 2), 8)
    graph.graph.lint()


def test_exported_networks_are_reached_by_tucker():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = torchvision.models.get_model("resnet18", weights=None)
    image = make_image(1, 3, 64, 64)
    with torch.inference_mode():
        expected = network.eval()(image)
        graph = trace(export(network, image))
        assert torch.equal(graph(image)[0], expected)
    for kind in (nn.Conv2d, nn.BatchNorm2d, nn.Linear):
        assert count(graph, kind) == sum(isinstance(m, kind) for m in network.modules())
    spec = DecompositionSpec.parse("svd-0.70")
    _, found = decompose(graph, (1, 3, 64, 64), spec)
    assert found.macs_kept == pytest.approx(0.7, abs=0.005)


def test_calls_of_the_same_layer_share_a_module():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x):
            x = self.conv(self.conv(x))
            return functional.conv2d(x, self.conv.weight, self.conv.bias, padding=2)

    image, module = make_image(1, 3, 8, 8), Twice()
    graph = trace(export(module, image))
    assert torch.equal(graph(image)[0], module(image))
    convolutions = [m for m in graph.modules() if isinstance(m, nn.Conv2d)]
    assert count(graph, nn.Conv2d) == 3
    assert len(convolutions) == 2
    assert convolutions[0].weight is convolutions[1].weight


def test_what_is_no_layer_stays_a_function():
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("variance", torch.ones(3))

        def forward(self, x):
            kernel = x[:, :, :3, :3]  # weights that are made of the input
            x = functional.conv2d(x, kernel)
            x = functional.conv_transpose2d(x, kernel)
            return functional.batch_norm(x, self.mean, self.variance, training=True)

    graph = fx.symbolic_trace(Other().eval())
    before = [(node.op, node.name) for node in graph.graph.nodes]
    lift_modules(graph)
    assert [(node.op, node.name) for node in graph.graph.nodes] == before


def test_names_that_are_taken_are_not_overwritten():
    class Taken(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv2d_layer = nn.Conv2d(3, 3, 1)
            self.weight = nn.Parameter(make_image(3, 3, 1, 1))

        def forward(self, x):
            return functional.conv2d(self.conv2d_layer(x), self.weight)

    graph = fx.symbolic_trace(Taken().eval())
    image = make_image(1, 3, 4, 4)
    expected = graph(image)
    assert torch.equal(lift_modules(graph)(image), expected)
    assert count(graph, nn.Conv2d) == 2


def test_only_what_has_four_dimensions_is_laid_out_anew():
    module = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.Linear(5, 7))
    module.register_buffer("anchors", torch.rand(1, 3, 4, 4, 2))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert to_channels_last(module) is module
    assert module[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert not module[0].weight.is_contiguous()
    assert module.anchors.is_contiguous()
    assert module[1].weight.is_contiguous()
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
