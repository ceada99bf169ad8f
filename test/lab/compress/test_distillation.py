# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Values to match, their weights, the error of boxes, and varied pictures."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from jetson_dnn_rt.lab.compress.distillation import (
    VIEWS,
    can_batch,
    expose,
    find_targets,
    measure_boxes,
    measure_spreads,
    vary,
)
from jetson_dnn_rt.lab.compress.recovery import RecoverySettings, recover
from jetson_dnn_rt.models.graph.tracing import output_names, trace
from jetson_dnn_rt.models.heads.registry import LAYOUTS


class TwoHeads(nn.Module):
    """Twelve layers one after the other, two heads, and a result that is no number."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Conv2d(3, 3, 1) for _ in range(12)))
        self.score = nn.Conv2d(3, 2, 1)
        self.side = nn.Conv2d(3, 4, 1)

    def forward(self, image):
        x = self.layers(image)
        scores = self.score(x)
        return self.side(x).exp(), scores.sigmoid(), scores.argmax(1)


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(1, 3, 6, 8, generator=generator) for _ in range(3)]


def test_results_last_layers_and_some_between_are_taught(images):
    graph = trace(TwoHeads())
    targets = find_targets(graph, graph, images)
    assert targets.final == ("exp", "sigmoid", "score", "side")
    assert len(targets.between) == 8
    assert targets.between[0] == "layers_0"
    assert targets.between[-1] == "layers_11"


def test_exposed_values_are_those_of_the_graph_and_share_its_weights(images):
    graph = trace(TwoHeads())
    exposed = expose(graph, ["layers_0", "side"])
    first, side = exposed(images[0])
    torch.testing.assert_close(first, graph.get_submodule("layers.0")(images[0]))
    torch.testing.assert_close(side.exp(), graph(images[0])[0])
    assert exposed.get_submodule("side") is graph.get_submodule("side")
    assert "score" not in dict(exposed.named_modules())


def test_spreads_are_variances_about_the_channels_means():
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


def test_graphs_for_one_image_are_told_from_others(images):
    assert can_batch(expose(trace(TwoHeads()), ["side"]), images)

    class Flat(nn.Module):
        def forward(self, image):
            return image.reshape(-1, 3 * 6 * 8).mean(0, keepdim=True)

    flat = trace(nn.Sequential(Flat()))
    assert not can_batch(expose(flat, output_names(flat)), images)


def test_varied_pictures_stay_within_their_range_and_follow_the_seed(images):
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


# Centre and size of two boxes, objectness, two classes.
ROWS = torch.tensor([[[30.0, 40.0, 12.0, 6.0, 0.9, 0.2, 1.0], [9.0, 8.0, 4.0, 4.0, 0.01, 1, 1]]])


def write(head, rows):
    """The same boxes as another head would return them."""
    centres, sizes, scores = rows[..., :2], rows[..., 2:4], rows[..., 4:5] * rows[..., 5:]
    if head == "boxes_scores":
        return torch.cat((centres - sizes / 2, centres + sizes / 2), -1), scores
    if head == "yolox":
        return (torch.cat((centres, sizes.log(), rows[..., 4:]), -1),)
    if head == "yolov8":
        return (torch.cat((centres, sizes, scores), -1).transpose(1, 2),)
    return (rows,)


@pytest.mark.parametrize("head", VIEWS)
def test_every_layout_gives_the_same_error(head):
    view = VIEWS[head]
    found = ROWS.clone()
    found[0, 0, 0] += 4.0  # a third of its side
    found[0, 1, :2] += 100.0  # nobody is sure of this one
    expected = write(head, ROWS)
    corners, confidence = view(expected)
    torch.testing.assert_close(corners[0, 0], torch.tensor([24.0, 37.0, 36.0, 43.0]))
    torch.testing.assert_close(confidence, torch.tensor([[0.9, 0.01]]))
    # Two of four corners are off by a third of the side.
    error = measure_boxes(write(head, found), expected, view)
    assert float(error) == pytest.approx(0.5, rel=1e-4)
    assert float(measure_boxes(expected, expected, view)) == 0.0


def test_views_are_of_heads_that_there_are():
    assert set(VIEWS) < set(LAYOUTS)


def test_nothing_to_be_sure_of_is_no_error():
    rows = ROWS.clone()
    rows[..., 4] = 0.0
    assert float(measure_boxes((ROWS,), (rows,), VIEWS["yolov5"])) == 0.0


class Detector(nn.Module):
    """Boxes about fixed places; the scores come from the brightness."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.first = nn.Conv2d(3, 8, 3, 2, 1)
            self.sides = nn.Conv2d(8, 4, 1)
            self.score = nn.Conv2d(8, 2, 1)

    def forward(self, image):
        x = torch.relu(self.first(image))
        distances = self.sides(x).flatten(2).transpose(1, 2).exp() * 8.0
        boxes = torch.cat((100.0 - distances[..., :2], 100.0 + distances[..., 2:]), -1)
        return boxes, self.score(x).flatten(2).transpose(1, 2).sigmoid()


def test_recovery_of_a_detector_looks_at_its_boxes():
    rng = np.random.default_rng(0)
    inputs = [rng.random((1, 3, 12, 16), np.float32) for _ in range(4)]
    full = trace(Detector())
    smaller = copy.deepcopy(full)
    with torch.no_grad():
        smaller.sides.weight *= 0.8
    settings = RecoverySettings(localisation=0.5)
    reports = [
        recover(full, copy.deepcopy(smaller), inputs, steps=5, head=head, settings=settings)
        for head in ("", "boxes_scores")
    ]
    assert all(report.loss_after < report.loss_before for report in reports)
    view = VIEWS["boxes_scores"]
    with torch.no_grad():
        judges = [torch.from_numpy(image) for image in inputs[-reports[0].held_out :]]
        errors = [float(measure_boxes(smaller(x), full(x), view)) for x in judges]
    expected = reports[0].loss_before + 0.5 * sum(errors) / len(errors)
    assert reports[1].loss_before == pytest.approx(expected, rel=1e-4)
    assert sum(errors) > 0.0
