# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How much an error in a layer costs: known networks give known figures."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from jetson_dnn_rt.lab.compress.sensitivity import measure_sensitivities
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
    assert calls == [("sensitivity", 1, 2), ("sensitivity", 2, 2)]


def test_linear_layers_and_graphs_are_left_as_they_are(images):
    torch.manual_seed(2)
    network = nn.Sequential(nn.Flatten(), nn.Linear(297, 20), nn.ReLU(), nn.Linear(20, 5))
    graph = trace(network)
    before = graph(images[0])
    found = measure_sensitivities(graph, ["1", "3"], images)
    assert set(found) <= {"1", "3"}
    assert found["3"] == pytest.approx(1.0, rel=0.3)
    assert torch.equal(graph(images[0]), before)
