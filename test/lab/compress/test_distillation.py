"""What is taught, how errors are weighed, and that varied pictures stay pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from jetson_dnn_rt.lab.compress.distillation import (
    can_batch,
    expose,
    find_targets,
    measure_spreads,
    vary,
)
from jetson_dnn_rt.models.graph.tracing import output_names, trace


class TwoHeads(nn.Module):
    """Twelve layers one after the other, two heads, and a result that is no number."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Conv2d(3, 3, 1) for _ in range(12)))
        self.score = nn.Conv2d(3, 2, 1)
        self.side = nn.Conv2d(3, 4, 1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = self.layers(image)
        scores = self.score(x)
        return self.side(x).exp(), scores.sigmoid(), scores.argmax(1)


@pytest.fixture
def images() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(1, 3, 6, 8, generator=generator) for _ in range(3)]


def test_results_last_layers_and_some_between_are_taught(images: list[torch.Tensor]) -> None:
    graph = trace(TwoHeads())
    targets = find_targets(graph, graph, images)
    assert targets.final == ("exp", "sigmoid", "score", "side")
    assert len(targets.between) == 8
    assert targets.between[0] == "layers_0"
    assert targets.between[-1] == "layers_11"


def test_exposed_values_are_those_of_the_graph_and_share_its_weights(
    images: list[torch.Tensor],
) -> None:
    graph = trace(TwoHeads())
    exposed = expose(graph, ["layers_0", "side"])
    first, side = exposed(images[0])
    torch.testing.assert_close(first, graph.get_submodule("layers.0")(images[0]))
    torch.testing.assert_close(side.exp(), graph(images[0])[0])
    assert exposed.get_submodule("side") is graph.get_submodule("side")
    assert "score" not in dict(exposed.named_modules())


def test_spreads_are_variances_about_the_channels_means() -> None:
    rng = np.random.default_rng(0)
    maps = torch.from_numpy(rng.normal(5.0, 2.0, (30, 4, 6, 7)).astype(np.float32))
    maps += torch.arange(4.0).reshape(4, 1, 1) * 100.0
    logits = torch.from_numpy(rng.normal(-3.0, 0.5, (30, 9)).astype(np.float32))
    samples = ((maps[i : i + 1], logits[i : i + 1], torch.ones(1, 2)) for i in range(30))
    spreads = measure_spreads(samples)
    expected = [float(value.var(dim=axes, correction=0).mean()) for value, axes in (
        (maps, (0, 2, 3)), (logits, (0,)),
    )]  # fmt: skip
    assert spreads[:2] == pytest.approx(expected, rel=1e-5)
    assert 0.0 < spreads[2] < 1e-30


def test_graphs_for_one_image_are_told_from_others(images: list[torch.Tensor]) -> None:
    assert can_batch(expose(trace(TwoHeads()), ["side"]), images)

    class Flat(nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return image.reshape(-1, 3 * 6 * 8).mean(0, keepdim=True)

    flat = trace(nn.Sequential(Flat()))
    assert not can_batch(expose(flat, output_names(flat)), images)


def test_varied_pictures_stay_within_their_range_and_follow_the_seed(
    images: list[torch.Tensor],
) -> None:
    batch = torch.cat([image * 200.0 - 50.0 for image in images] * 3)
    one = vary(batch, np.random.default_rng(4))
    same = vary(batch, np.random.default_rng(4))
    other = vary(batch, np.random.default_rng(5))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert one.shape == batch.shape
    assert batch.min() <= one.min() < one.max() <= batch.max()
    mirrored = [
        torch.corrcoef(torch.stack((a.flatten(), b.flip(-1).flatten())))[0, 1]
        > torch.corrcoef(torch.stack((a.flatten(), b.flatten())))[0, 1]
        for a, b in zip(one, batch, strict=True)
    ]
    assert 0 < sum(map(bool, mirrored)) < len(batch)
