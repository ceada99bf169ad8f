# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Distillation of the full network into a decomposed one: values to match, on varied pictures.

No labels are needed: the full network's values are the target for any picture.

Hinton et al., "Distilling the Knowledge in a Neural Network", 2015; Romero et al., "FitNets",
2015, for the intermediate values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.graph.tracing import output_names
from jetson_dnn_rt.variants.measuring.sample_frames import spread

_MOST_BETWEEN = 8  # intermediate values cost time, and a few guide the layers as well as all
_SURE = 0.05  # least confidence of a box that counts
# A box that is shifted by a third of its side has an IoU of 1/2 with its old place: error 1.
_HALF_IOU_SHIFT = 1.0 / 3.0
_LARGEST_LOG = 8.0

Tensors = Sequence[torch.Tensor]
View = Callable[[Tensors], tuple[torch.Tensor, torch.Tensor]]
"""Converts a network's outputs to corners [B, N, 4] in any unit and confidences [B, N]."""

_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Linear)


@dataclass(frozen=True)
class Targets:
    """Values that both graphs compute, by the names of their nodes."""

    # What the graph returns, and the last layers before it: logits and offsets, whatever follows
    # them (suppression, a sigmoid that saturates).
    final: tuple[str, ...]
    between: tuple[str, ...]  # outputs of some of the earlier layers, spread over the network

    @property
    def names(self) -> tuple[str, ...]:
        """All values."""
        return self.final + self.between


def find_targets(
    full: fx.GraphModule, reduced: fx.GraphModule, images: Sequence[torch.Tensor]
) -> Targets:
    """Find the values that can be matched, on two or more images to detect variable shapes.

    A value counts if both graphs, of which `reduced` is the smaller, have a node of its name and
    return floating-point tensors of one shape for every image: a list of boxes after suppression
    does not.
    """
    layers = [
        node
        for node in full.graph.nodes
        if node.op == "call_module" and isinstance(full.get_submodule(str(node.target)), _LAYERS)
    ]
    leads_on = _leads_to(layers)
    returned = output_names(full)
    last = [node.name for node in layers if node not in leads_on]
    final = [*returned, *(name for name in last if name not in returned)]
    others = [node.name for node in layers if node.name not in final]
    between = [others[i] for i in spread(len(others), _MOST_BETWEEN)]
    there = {node.name for node in reduced.graph.nodes if node.op != "placeholder"}
    names = [name for name in [*final, *between] if name in there]
    usable = _find_usable(full, reduced, names, images)
    targets = Targets(
        tuple(name for name in final if name in usable),
        tuple(name for name in between if name in usable),
    )
    if not targets.names:
        raise ModelError("the decomposed network has no value that the full one could teach it")
    return targets


def expose(graph: fx.GraphModule, names: Sequence[str]) -> fx.GraphModule:
    """A graph that shares the weights and returns the values of these nodes."""
    found: dict[str, fx.Node] = {}
    copied = fx.Graph()
    places: dict[fx.Node, fx.Node] = {}
    for node in graph.graph.nodes:
        if node.op != "output":
            places[node] = copied.node_copy(node, lambda n: places[n])
            found[node.name] = places[node]
    copied.output(tuple(found[name] for name in names))
    exposed = fx.GraphModule(graph, copied)
    exposed.graph.eliminate_dead_code()
    exposed.delete_all_unused_submodules()
    exposed.recompile()
    return exposed


def can_batch(graph: fx.GraphModule, images: Sequence[torch.Tensor]) -> bool:
    """Whether a graph takes several images at once; many are exported for a single image."""
    with torch.no_grad():
        try:
            together = graph(torch.cat(list(images)))
        except RuntimeError:
            return False
        alone = [graph(image) for image in images]
    for index, value in enumerate(together):
        expected = torch.cat([values[index] for values in alone])
        if value.shape != expected.shape or not torch.allclose(value, expected, 1e-3, 1e-4):
            return False
    return True


def measure_spreads(samples: Iterable[Sequence[torch.Tensor]]) -> list[float]:
    """Mean square of each value [B, C, ...] about its mean per channel: the unit of its error."""
    firsts: list[torch.Tensor] = []
    seconds: list[torch.Tensor] = []
    count = 0
    for values in samples:
        count += 1
        for index, value in enumerate(values):
            wide = value.detach().double()
            rows = wide.transpose(0, 1).flatten(1) if wide.ndim > 1 else wide.unsqueeze(0)
            if index == len(firsts):
                firsts.append(torch.zeros(len(rows), dtype=torch.float64))
                seconds.append(torch.zeros(len(rows), dtype=torch.float64))
            firsts[index] += rows.mean(1)
            seconds[index] += rows.square().mean(1)
    spreads = [
        float((second / count - (first / count).square()).mean())
        for first, second in zip(firsts, seconds, strict=True)
    ]
    # A constant value is met exactly or not at all.
    return [max(spread, float(np.finfo(np.float32).tiny)) for spread in spreads]


def vary(images: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Mirror, crop, brighten or darken pictures [B, 3, H, W] within their range of values."""
    count = len(images)
    mirrored = np.where(rng.random(count) < 0.5, -1.0, 1.0)
    # Half of them keep their pixels: a crop is resampled, so it has less noise.
    size = np.where(rng.random(count) < 0.5, 1.0, rng.uniform(0.7, 1.0, count))
    place = rng.uniform(-1.0, 1.0, (count, 2)) * (1.0 - size)[:, None]
    theta = np.zeros((count, 2, 3), np.float32)
    theta[:, 0, 0], theta[:, 1, 1] = mirrored * size, size
    theta[:, :, 2] = place
    gain = rng.uniform(0.8, 1.2, (count, 1, 1, 1)).astype(np.float32)
    low, high = images.amin(), images.amax()
    grid = functional.affine_grid(
        torch.from_numpy(theta).to(images.device), list(images.shape), align_corners=False
    )
    moved = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
    varied = moved * torch.from_numpy(gain).to(images.device)
    return torch.minimum(torch.maximum(varied, low), high)


def _leads_to(layers: Sequence[fx.Node]) -> set[fx.Node]:
    """All nodes that lead to one of the layers."""
    before: set[fx.Node] = set()
    waiting = list(layers)
    while waiting:
        for node in waiting.pop().all_input_nodes:
            if node not in before:
                before.add(node)
                waiting.append(node)
    return before


def _find_usable(
    full: fx.GraphModule,
    reduced: fx.GraphModule,
    names: Sequence[str],
    images: Sequence[torch.Tensor],
) -> set[str]:
    usable = set(names)
    shapes: dict[str, torch.Size] = {}
    with torch.no_grad():
        for graph in (expose(full, names), expose(reduced, names)):
            for image in images:
                for name, value in zip(names, graph(image), strict=True):
                    if not (
                        isinstance(value, torch.Tensor)
                        and value.is_floating_point()
                        and shapes.setdefault(name, value.shape) == value.shape
                    ):
                        usable.discard(name)
    return usable


def measure_boxes(found: Tensors, expected: Tensors, view: View) -> torch.Tensor:
    """Squared error of the corners relative to the boxes' sides, weighted by confidence.

    0 if the teacher is confident of no box. Squared errors over all cells hardly reflect it: most
    cells are background, where any box will do, and a small box needs more pixels of precision
    than a large one. Measured on the built-in detector after 600 steps of recovery at half of the
    multiply-accumulates: 1.2 points of mAP are lost without it, of which 0.9 are regained with the
    teacher's boxes and none with its scores; with it 0.8 are lost.
    """
    corners, _ = view(found)
    true, confidence = view(expected)
    weights = torch.where(confidence >= _SURE, confidence, torch.zeros_like(confidence))
    sides = true[..., 2:] - true[..., :2]
    # A box far smaller than the largest one is not a real detection.
    sides = sides.clamp(min=max(1e-6, 1e-3 * float(sides.abs().max()))).repeat(1, 1, 2)
    errors = ((corners - true) / (_HALF_IOU_SHIFT * sides)).square().mean(-1)
    return (weights * errors).sum() / weights.sum().clamp(min=_SURE)


def _to_corners(centres: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    return torch.cat((centres - 0.5 * sizes, centres + 0.5 * sizes), -1)


def _view_corners(values: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    return values[0].float(), values[1].float().amax(-1)


def _view_rows(values: Tensors, *, raw: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of boxes; raw ones are in cells, relative to the cell, and logarithms of sizes."""
    rows = values[0].float()
    sizes = rows[..., 2:4].clamp(max=_LARGEST_LOG).exp() if raw else rows[..., 2:4]
    return _to_corners(rows[..., :2], sizes), rows[..., 4] * rows[..., 5:].amax(-1)


def _view_columns(values: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    rows = values[0].float().transpose(1, 2)
    return _to_corners(rows[..., :2], rows[..., 2:4]), rows[..., 4:].amax(-1)


VIEWS: dict[str, View] = {
    "boxes_scores": _view_corners,
    "yolox": partial(_view_rows, raw=True),
    "yolox_decoded": _view_rows,
    "yolov5": _view_rows,
    "yolov8": _view_columns,
}
"""Readers by head of `models.heads.registry`. Heads that return boxes after suppression have none:
their rows do not correspond."""
