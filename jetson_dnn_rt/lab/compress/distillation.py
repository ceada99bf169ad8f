"""What a decomposed network is taught by the full one: values to match, and how pictures vary.

No labels are needed: whatever picture both networks see, the full one's values are the aim.

Hinton et al., "Distilling the Knowledge in a Neural Network", 2015; Romero et al., "FitNets",
2015, for the values between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.graph.tracing import output_names
from jetson_dnn_rt.variants.measuring.sample_frames import spread

_MOST_BETWEEN = 8
"""Values between cost time, and a few of them guide the layers as well as all."""

_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Linear)


@dataclass(frozen=True)
class Targets:
    """Values that both graphs have, by the names of their nodes.

    Attributes
    ----------
    final : tuple of str
        What the graph returns, and the last layers before it: logits and offsets, whatever is
        done with them afterwards (suppression, a sigmoid that saturates).
    between : tuple of str
        Outputs of some of the layers before those, spread evenly over the network.
    """

    final: tuple[str, ...]
    between: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return self.final + self.between


def find_targets(
    full: fx.GraphModule, reduced: fx.GraphModule, images: Sequence[torch.Tensor]
) -> Targets:
    """Find the values that can be matched.

    A value counts when both graphs have a node of its name, and give floating-point tensors of
    one shape for every image: a list of boxes that were suppressed does not.

    Parameters
    ----------
    full, reduced : torch.fx.GraphModule
        The nodes of `reduced` are among those of `full`.
    images : sequence of tensor, [1, 3, H, W]
        Two or more, to tell fixed shapes from others.

    Raises
    ------
    ModelError
        When there is no such value.
    """
    layers = [node for node in full.graph.nodes if _is_layer(full, node)]
    leads_on = _leads_to(layers)
    returned = output_names(full)
    last = [node.name for node in layers if node not in leads_on]
    final = [*returned, *(name for name in last if name not in returned)]
    others = [node.name for node in layers if node.name not in final]
    between = [others[i] for i in spread(len(others), _MOST_BETWEEN)]
    there = {node.name for node in reduced.graph.nodes}
    names = [name for name in [*final, *between] if name in there]
    names = [name for name in names if _is_tensor(full, name)]
    usable = _find_usable(full, reduced, names, images)
    targets = Targets(
        tuple(name for name in final if name in usable),
        tuple(name for name in between if name in usable),
    )
    if not targets.names:
        raise ModelError("the decomposed network has no value that the full one could teach it")
    return targets


def expose(graph: fx.GraphModule, names: Sequence[str]) -> fx.GraphModule:
    """Make a graph with the same weights, not copies, that returns the values of these nodes."""
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
    """Whether a graph may be given several images at once; many are exported for one."""
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
    """Mean square of each value about its mean per channel: what an error of 1 stands for.

    Parameters
    ----------
    samples : iterable of sequence of tensor, [B, C, ...]
        The values for one image after the other.
    """
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
    # A value that never varies is met exactly or not at all.
    return [max(spread, float(np.finfo(np.float32).tiny)) for spread in spreads]


def vary(images: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Change pictures so that they stay pictures: mirrored, cropped, brighter or darker.

    Parameters
    ----------
    images : tensor, [B, 3, H, W]
        As the network takes them.
    rng : numpy.random.Generator
        Decides everything.

    Returns
    -------
    tensor, [B, 3, H, W]
        Within the range of values of `images`.
    """
    count = len(images)
    mirrored = np.where(rng.random(count) < 0.5, -1.0, 1.0)
    # Half of them keep their pixels as they are: a crop is resampled, so it has less noise.
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


def _is_layer(graph: fx.GraphModule, node: fx.Node) -> bool:
    return node.op == "call_module" and isinstance(graph.get_submodule(str(node.target)), _LAYERS)


def _leads_to(layers: Sequence[fx.Node]) -> set[fx.Node]:
    """All nodes from which one of the layers follows."""
    before: set[fx.Node] = set()
    waiting = list(layers)
    while waiting:
        for node in waiting.pop().all_input_nodes:
            if node not in before:
                before.add(node)
                waiting.append(node)
    return before


def _is_tensor(graph: fx.GraphModule, name: str) -> bool:
    return any(node.name == name and node.op != "placeholder" for node in graph.graph.nodes)


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
