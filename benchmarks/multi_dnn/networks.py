# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Networks of `multi-dnn`: built without a download, decomposed, cut into jobs.

Needs torch and numpy, torchvision for its architectures, and nothing else. The weights of
torchvision's networks are random, with the statistics of their normalisations measured, so that
activations neither die nor grow over 150 layers: times do not depend on them, and outputs can be
compared.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import fx, nn

from benchmarks.harness.numerics import measure_norms
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.lab.compress import ranks as rank_rules
from jetson_dnn_rt.lab.compress.factorisation import count_macs
from jetson_dnn_rt.models.graph.layers import replace_module
from jetson_dnn_rt.models.graph.splitting import Split, StagePart, find_layers
from jetson_dnn_rt.models.graph.tracing import fold_shapes, trace
from jetson_dnn_rt.models.model import make_probe_input
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.decomposition import (
    Layer,
    Ranks,
    build_structure,
    describe_layer,
    load_reduced,
    stored_steps,
)
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.macs import LayerCost, count
from jetson_dnn_rt.variants.spec import DecompositionSpec

if TYPE_CHECKING:
    from jetson_dnn_rt.demo.builtin import BuiltinName

REDUCTIONS = {"vgg16": 81.0, "resnet152": 38.6, "inception_v3": 62.8, "regnet_y_32gf": 35.8}
"""Per cent of the multiply-accumulates that Tucker removes in the paper (its figure 3)."""

USUAL_REDUCTION = 50.0
"""The same for networks that are not in the paper."""

SMALL = 64
"""Inputs below this are CIFAR's: ten classes, and VGG's head without its 7 x 7 maps."""

LEAST_INPUT = {"inception_v3": 75}
"""Least input in pixels: the pooling leaves nothing of a smaller one."""

RECOVERED = DecompositionSpec("tucker", "macs", 0.5)
"""What ``benchmarks recovery`` makes of the built-in networks."""

_LEAST_REDUCTION = 2.0  # per cent; below there is nothing to decompose (1x1, depthwise)
_BUILTIN = "builtin:"
_SEED = 20220606


@dataclass(frozen=True)
class NetworkSpec:
    """Network of torchvision, or ``builtin:detector``, ``builtin:segmenter``, and its input."""

    name: str
    size: tuple[int, int]

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        """``(1, 3, H, W)``."""
        return (1, 3, *self.size)

    @property
    def is_builtin(self) -> bool:
        """Whether it has trained weights: those of a built-in model."""
        return self.name.startswith(_BUILTIN)

    @staticmethod
    def of(name: str, side: int) -> NetworkSpec:
        """Make the spec of a network for an input of `side` pixels, or its least or fixed size."""
        if name.startswith(_BUILTIN):
            from jetson_dnn_rt.demo.builtin import INPUT_SIZE

            known = ", ".join(f"{_BUILTIN}{key}" for key in INPUT_SIZE)
            if name.removeprefix(_BUILTIN) not in INPUT_SIZE:
                raise ConfigurationError(f"there is no network {name!r}, but {known}")
            return NetworkSpec(name, INPUT_SIZE[name.removeprefix(_BUILTIN)])
        if name not in (known_names := _torchvision().list_models(module=_torchvision())):
            near = ", ".join(key for key in known_names if key[:3] == name[:3])
            raise ConfigurationError(f"torchvision has no classifier {name!r} (near: {near})")
        side = max(side, LEAST_INPUT.get(name, 0))
        return NetworkSpec(name, (side, side))

    def build(self, *, weights: bool = True) -> nn.Module:
        """Build the network in evaluation mode, or without weights, for `load_module`."""
        if self.is_builtin:
            from jetson_dnn_rt.demo.builtin import load

            return load(self.name.removeprefix(_BUILTIN))
        keywords: dict[str, Any] = {"init_weights": False} if "inception" in self.name else {}
        small = self.size[0] < SMALL or self.size[0] <= LEAST_INPUT.get(self.name, 0)
        if small:
            keywords["num_classes"] = 10
        make = partial(_torchvision().get_model, self.name, weights=None, **keywords)
        try:
            with torch.device("meta"):  # without temporary weights
                module: nn.Module = make()
        except NotImplementedError:  # RegNet computes its widths with tensors
            module = make()
        if small and self.name.startswith("vgg"):
            assert isinstance(module.classifier, nn.Sequential)
            module.avgpool = nn.AdaptiveAvgPool2d(1)
            module.classifier[0] = nn.Linear(512, 4096, device="meta")
        if weights:
            _fill(module.to_empty(device="cpu"), self.input_shape)
        return module.eval()

    def make_image(self) -> npt.NDArray[np.float32]:
        """Make the input of all modes, float32 [1, 3, H, W]."""
        values = np.random.default_rng(_SEED).standard_normal(self.input_shape, np.float32)
        return values if not self.is_builtin else (values * 0.1 + 0.5)


def _torchvision() -> Any:
    try:
        from torchvision import models
    except Exception as error:  # a build for another torch raises RuntimeError
        raise BackendUnavailableError(
            f"multi-dnn takes its architectures from torchvision ({error}): pip install "
            "torchvision, of the same build as torch"
        ) from error
    return models


@torch.no_grad()
def _fill(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Fill in random weights, and statistics of normalisations measured on random pictures."""
    generator = torch.Generator().manual_seed(_SEED)
    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            scale = math.sqrt(2.0 / layer.weight[0].numel())
            layer.weight.normal_(0.0, scale, generator=generator)
            if layer.bias is not None:
                layer.bias.zero_()
        elif isinstance(layer, nn.BatchNorm2d):
            layer.reset_parameters()
    _calibrate(module.eval(), shape)


def _calibrate(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Measure the statistics of normalisations on random pictures."""
    generator = torch.Generator().manual_seed(_SEED)
    # Small pictures shrink to 1 x 1 maps: a channel's statistics then have one value per picture.
    frames = 32 if shape[2] < 2 * SMALL else 4
    measure_norms(module, torch.randn(frames, *shape[1:], generator=generator))


@dataclass(frozen=True, eq=False)
class Prepared:
    """Network by form, cut into jobs, and the ranks of decomposed layers.

    Forms are ``original``; if a layer could be decomposed, ``tucker``; and ``recovered``, of a
    built-in network that the library has at half of its operations, taught by the original.
    `reduction` is the per cent of the multiply-accumulates that the decomposition of ``tucker``
    removes, `asked` the target.
    """

    spec: NetworkSpec
    forms: Mapping[str, Split]
    ranks: Mapping[str, Ranks]
    reduction: float
    asked: float
    gmacs: float
    _parts: dict[str, StagePart] = field(default_factory=dict)

    def part(self, form: str) -> StagePart:
        """Whole network in one piece, cached, since its hash covers all weights."""
        if form not in self._parts:
            graph = self.forms[form].graph
            self._parts[form] = Split(self.spec.name, graph, self.spec.size, ()).part(0)
        return self._parts[form]

    @property
    def reduced_form(self) -> str:
        """Form of a reduced network that is as accurate as the original; empty for none.

        Random weights have no accuracy: their decomposition stands for the time of a good one.
        """
        if "recovered" in self.forms:
            return "recovered"
        return "" if self.spec.is_builtin or "tucker" not in self.forms else "tucker"

    def measure_accuracy(self, scenes: int) -> dict[str, float]:
        """Measure mAP@0.5 or mIoU of each form of a built-in model; empty for random weights."""
        if not self.spec.is_builtin:
            return {}
        from benchmarks.accuracy import compare_accuracy

        name = cast("BuiltinName", self.spec.name.removeprefix(_BUILTIN))
        graphs = {form: split.graph for form, split in self.forms.items()}
        found = compare_accuracy(name, graphs, scenes, lambda done, total: None)
        return {form: round(value, 4) for form, value in found.items()}

    def save(self, form: str, folder: Path) -> Path:
        """Write the weights for other processes; `load_module` reads them."""
        path = folder / f"{self.spec.name.replace(':', '_')}_{self.spec.size[0]}_{form}.pt"
        if not path.exists():
            torch.save(self.forms[form].graph.state_dict(), path)
        return path


def find_recovered(spec: NetworkSpec, library: Library) -> fx.GraphModule | None:
    """Find the built-in network that ``benchmarks recovery`` stored; None where there is none."""
    if not spec.is_builtin:
        return None
    model = load_model(spec.name)
    if stored_steps(model, RECOVERED, library) < 1:
        return None
    return load_reduced(model, RECOVERED, library)


def prepare(spec: NetworkSpec, jobs: int, device: str, library: Library | None = None) -> Prepared:
    """Build, decompose and cut a network; `device` is where eigenvalues are computed.

    A recovered network comes from the library.
    """
    image = torch.from_numpy(make_probe_input(*spec.size))
    graph = trace(spec.build())
    fold_shapes(graph, image)
    places = find_layers(graph, spec.size)
    cuts = choose_cuts(places, jobs)
    original = Split(spec.name, graph, spec.size, cuts)
    forms = {"original": original}
    recovered = find_recovered(spec, library) if library is not None else None
    if recovered is not None:
        forms["recovered"] = Split(spec.name, recovered, spec.size, ())
    costs = count(graph, spec.input_shape)
    layers = {
        name: layer
        for name in costs.layers
        if not (layer := describe_layer(graph.get_submodule(name), "tucker")).reason
        and layer.kind == "conv"
    }
    asked = REDUCTIONS.get(spec.name, USUAL_REDUCTION)
    ranks, saved = choose_ranks(layers, costs.layers, asked / 100.0 * costs.macs)
    reduction = 100.0 * saved / costs.macs
    if reduction < _LEAST_REDUCTION:
        return Prepared(spec, forms, {}, 0.0, asked, costs.macs / 1e9)
    keep = not spec.is_builtin
    reduced = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    for name, pair in ranks.items():
        conv = graph.get_submodule(name)
        assert isinstance(conv, nn.Conv2d)
        replace_module(reduced, name, decompose(conv, layers[name], pair, device, keep_norm=keep))
    if keep:
        for name, module in list(reduced.named_modules()):
            if isinstance(module, nn.BatchNorm2d):  # the original keeps its own
                replace_module(reduced, name, copy.deepcopy(module))
        _calibrate(reduced, spec.input_shape)
    forms["tucker"] = original.replace_graph(reduced)
    return Prepared(spec, forms, ranks, reduction, asked, costs.macs / 1e9)


def choose_cuts(places: Sequence[str], jobs: int) -> tuple[str, ...]:
    """Choose cuts into jobs of equally many layers; fewer jobs if there are too few cuts."""
    jobs = min(jobs, len(places) + 1)
    return tuple(places[(len(places) + 1) * index // jobs - 1] for index in range(1, jobs))


def choose_ranks(
    layers: Mapping[str, Layer], costs: Mapping[str, LayerCost], saved: float
) -> tuple[dict[str, Ranks], int]:
    """Choose one ratio of ranks for all layers, in multiples of 8, that saves enough operations.

    Returns the ranks of the layers that get cheaper, and their saving: at least `saved` if that is
    possible.
    """

    def apply(ratio: float) -> tuple[dict[str, Ranks], int]:
        chosen: dict[str, Ranks] = {}
        total = 0
        for name, layer in layers.items():
            pair = tuple(
                rank_rules.choose_by_ratio(ratio, channels, rank_rules.MULTIPLE)
                for channels in (layer.inputs, layer.outputs)
            )
            gain = costs[name].macs - int(count_macs(layer, costs[name], *pair))
            if gain > 0:
                chosen[name] = pair
                total += gain
        return chosen, total

    low, high = 0.0, 1.0  # the smaller the ratio, the more is saved
    for _ in range(16):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if apply(middle)[1] >= saved else (low, middle)
    return apply(low)


def decompose(
    conv: nn.Conv2d, layer: Layer, ranks: Ranks, device: str, *, keep_norm: bool = False
) -> nn.Sequential:
    """Tucker-2 by truncated HOSVD: the leading eigenvectors of both channel modes, and the core.

    The variants of the package choose ranks by layer and iterate; that takes minutes for these
    networks, and the time of a run depends on the ranks alone. Random weights have no leading
    directions, so each layer would lose most of its norm, and after 13 of them values would vanish
    in fp16: `keep_norm` scales the core.
    """
    built = build_structure(conv, ranks)
    weight = conv.weight.detach().to(device)
    weight = weight.reshape(layer.groups, layer.outputs, layer.inputs, layer.taps)
    parts = []
    inner = outer = None
    if ranks[0] < layer.inputs:
        unfolded = weight.transpose(1, 2).flatten(2)
        inner = torch.linalg.eigh(unfolded @ unfolded.mT)[1][..., -ranks[0] :]
        parts.append(inner.mT)
        weight = torch.einsum("goit,gir->gort", weight, inner)
    if ranks[1] < layer.outputs:
        unfolded = weight.flatten(2)
        outer = torch.linalg.eigh(unfolded @ unfolded.mT)[1][..., -ranks[1] :]
        weight = torch.einsum("goit,gor->grit", weight, outer)
    parts.append(weight * (conv.weight.norm().to(device) / weight.norm()) if keep_norm else weight)
    if outer is not None:
        parts.append(outer)
    with torch.no_grad():
        for target, part in zip(built, parts, strict=True):
            assert isinstance(target, nn.Conv2d)
            target.weight.copy_(part.flatten(0, 1).reshape(target.weight.shape))
        if conv.bias is not None:
            assert isinstance(built[-1].bias, torch.Tensor)
            built[-1].bias.copy_(conv.bias)
    return built


def load_part(spec: NetworkSpec, path: Path) -> StagePart:
    """Load the original network with saved weights, for a back end to run in one piece."""
    graph = trace(load_module(spec, {}, path))
    fold_shapes(graph, torch.from_numpy(make_probe_input(*spec.size)))
    return Split(spec.name, graph, spec.size, ()).part(0)


def load_module(spec: NetworkSpec, ranks: Mapping[str, Ranks], path: Path) -> nn.Module:
    """Load the network of torchvision, decomposed if requested, with saved weights."""
    module = spec.build(weights=False)
    for name, pair in ranks.items():
        layer = module.get_submodule(name)
        assert isinstance(layer, nn.Conv2d)
        parent, _, key = name.rpartition(".")
        setattr(module.get_submodule(parent), key, build_structure(layer, pair))
    state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    # A graph has folded constants that the module computes, and lacks heads for training only.
    own = module.state_dict()
    wanted = {key: value for key, value in state.items() if key in own}
    missing, _ = module.load_state_dict(wanted, strict=False, assign=True)
    for key in missing:
        if not (key.endswith("num_batches_tracked") or key.startswith("AuxLogits.")):
            raise ConfigurationError(f"{spec.name}: no weights for {key}")
    if hasattr(module, "AuxLogits"):
        module.AuxLogits = nn.Identity()
    return module.eval()


def run_outputs(module: nn.Module, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Call a network; return one output or several, always as a tuple."""
    outputs = module(image)
    return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)


def find_reference(split: Split, image: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
    """Run a network in fp32 on the CPU, in one piece."""
    with torch.inference_mode():
        return [value.numpy() for value in run_outputs(split.graph, torch.from_numpy(image))]
