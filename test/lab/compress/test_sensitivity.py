# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How much an error in a layer costs: known networks give known figures."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from jetson_dnn_rt.lab.compress.distillation import expose
from jetson_dnn_rt.lab.compress.sensitivity import (
    _find_weaknesses,
    _Moments,
    _Replay,
    measure_sensitivities,
)
from jetson_dnn_rt.models.graph.tracing import trace


class TwoBranches(nn.Module):
    """The sum of two branches, one a hundredth as loud as the other."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.loud = nn.Conv2d(3, 8, 3, padding=1)
            self.quiet = nn.Conv2d(3, 8, 3, padding=1)
            self.constant = nn.Conv2d(3, 8, 1)
            self.last = nn.Conv2d(8, 4, 1)
        with torch.no_grad():
            self.quiet.weight.copy_(self.loud.weight)
            self.constant.weight.zero_()

    def forward(self, image):
        heard = self.loud(image) + 0.01 * self.quiet(image)
        return self.last(heard + self.constant(image))


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(1, 3, 9, 11, generator=generator) for _ in range(4)]


def test_the_error_of_a_linear_network_is_that_of_its_layer(images):
    """What is dropped of the only layer is missing in the result, in the same proportion."""
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1))
    (found,) = measure_sensitivities(trace(network), ["0"], images).values()
    assert found == pytest.approx(1.0, rel=0.05)


def test_a_branch_that_is_heard_less_costs_less(images):
    calls: list[tuple[str, int, int]] = []
    found = measure_sensitivities(
        trace(TwoBranches()),
        ["loud", "quiet", "constant"],
        images,
        lambda *call: calls.append(call),
    )
    assert set(found) == {"loud", "quiet"}  # nothing can be taken from what does not vary
    assert found["loud"] / found["quiet"] == pytest.approx(10_000, rel=0.05)
    assert calls == [("sensitivity", done, 4) for done in (1, 2, 3, 4)]


class InPlace(nn.Module):
    """Reads values before and after operations in place change them, and calls a layer twice."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.first = nn.Conv2d(3, 8, 3, padding=1)
            self.twice = nn.Conv2d(8, 8, 3, padding=1)
            self.branch = nn.Conv2d(8, 8, 1)
        self.again = self.twice
        self.relu = nn.ReLU(inplace=True)

    def forward(self, image):
        first = self.first(image)
        flat = first[:, :, 0]
        branch = self.branch(first)
        found = self.twice(self.relu(first))
        branch += found
        return self.again(branch) + flat.mean() + first


def test_going_on_from_a_layer_is_running_the_whole_network(images):
    layers = ["first", "twice", "branch"]
    graph = trace(InPlace().eval())
    watched = expose(graph, [graph.graph.find_nodes(op="output")[0].args[0].name])
    with torch.no_grad():
        weaknesses = _find_weaknesses(watched, layers, images)
        assert set(weaknesses) == set(layers)
        replay = _Replay(watched, weaknesses)
        (expected,) = replay.run(images[0])
        assert torch.equal(expected, watched(images[0])[0])
        for name in layers:
            hook = weaknesses[name].drop
            handle = watched.get_submodule(name).register_forward_hook(hook)
            (whole,) = watched(images[0])
            handle.remove()
            assert torch.equal(replay.found[name][0], whole)
            assert not torch.equal(whole, expected)


def test_fewer_rows_than_channels_have_the_same_weakest_directions(images):
    """Of a layer with three varying directions, whichever way they are found."""
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(12, 3, generator=generator) @ torch.randn(3, 32, generator=generator)
    few, many = _Moments(-1), _Moments(-1)
    for row in rows:
        few.hook(nn.Identity(), (), row[None])
    for _ in range(3):
        many.hook(nn.Identity(), (), rows)
    one, other = few.find_weakness(), many.find_weakness()
    assert one.share == pytest.approx(other.share)
    lost, same = (weakness.drop(nn.Identity(), (), rows) for weakness in (one, other))
    torch.testing.assert_close(lost, same, rtol=1e-4, atol=1e-4)


def test_linear_layers_and_graphs_are_left_as_they_are(images):
    torch.manual_seed(2)
    network = nn.Sequential(nn.Flatten(), nn.Linear(297, 20), nn.ReLU(), nn.Linear(20, 5))
    graph = trace(network)
    before = graph(images[0])
    found = measure_sensitivities(graph, ["1", "3"], images)
    assert set(found) <= {"1", "3"}
    assert found["3"] == pytest.approx(1.0, rel=0.3)
    assert torch.equal(graph(images[0]), before)
