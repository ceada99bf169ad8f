"""Covariance of the inputs of layers, collected from frames without labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx, nn

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.variants.progress import Progress, ignore_progress

MAX_PATCH = 2304  # input channels of a group x taps; of larger patches only channels are kept
MAX_CHANNELS = 4608  # layers of more have no covariance

_POSITIONS = 256  # patches of one frame and layer: neighbours are much alike
_PATCH_BYTES = 1 << 30  # of all covariances of patches together


@dataclass(frozen=True, eq=False)
class Covariance:
    """Mean and covariance of the inputs of a convolution or linear layer.

    ``patch``: of input channels of a group x taps, taps of a channel side by side, padding
    included. ``channel``: of the input channels of a group, all taps alike.
    """

    kind: Literal["patch", "channel"]
    mean: torch.Tensor  # [G, D], float64
    matrix: torch.Tensor  # [G, D, D], float64, about the mean
    samples: int  # patches

    def regularise(self, share: float) -> torch.Tensor:
        """Shrink by a share in (0, 1) towards the mean variance; [G, D, D], positive definite."""
        size = self.matrix.shape[-1]
        level = self.matrix.diagonal(dim1=-2, dim2=-1).mean(-1)
        # A layer with constant inputs still gets an invertible matrix.
        level = torch.where(level > 0.0, level, torch.ones_like(level))[:, None, None]
        return (1.0 - share) * self.matrix + share * level * torch.eye(size, dtype=level.dtype)


def collect(
    graph: fx.GraphModule,
    layers: Sequence[str],
    inputs: Iterable[torch.Tensor],
    progress: Progress = ignore_progress,
) -> dict[str, Covariance]:
    """Run the graph on frames and collect the covariances of the inputs of layers.

    Parameters
    ----------
    graph : torch.fx.GraphModule
        In evaluation mode; a layer that is called several times adds up all its calls.
    layers : sequence of str
        Paths of `nn.Conv2d` and `nn.Linear` modules.
    inputs : iterable of Tensor [1, 3, H, W]
        At least one.

    Returns
    -------
    dict of str to Covariance
        Of each layer that was called and is not too wide (`MAX_CHANNELS`).
    """
    sums = _create_sums(graph, layers)
    handles = [
        graph.get_submodule(name).register_forward_pre_hook(collected.hook)
        for name, collected in sums.items()
    ]
    total = len(inputs) if isinstance(inputs, Sequence) else 0
    done = 0
    try:
        with torch.inference_mode():
            for image in inputs:
                graph(image)
                done += 1
                progress("covariance", done, total)
    except RuntimeError as error:  # torch has no class of its own for shapes that do not fit
        raise ModelError(f"the graph cannot be run on a frame: {error}") from error
    finally:
        for handle in handles:
            handle.remove()
    if done == 0:
        raise ConfigurationError("covariances need at least one frame")
    return {name: collected.finish() for name, collected in sums.items() if collected.samples}


def _create_sums(graph: fx.GraphModule, layers: Sequence[str]) -> dict[str, _Sums]:
    """Keep whole patches of the smallest layers, as far as the memory goes."""
    found: dict[str, nn.Conv2d | nn.Linear] = {}
    for name in layers:
        try:
            layer = graph.get_submodule(name)
        except AttributeError as error:
            raise ModelError(f"the graph has no layer {name!r}") from error
        if not isinstance(layer, (nn.Conv2d, nn.Linear)):
            raise ModelError(f"{name!r} is a {type(layer).__name__}, not a Conv2d or Linear")
        found[name] = layer
    room = _PATCH_BYTES
    sums: dict[str, _Sums] = {}
    for name, layer in sorted(found.items(), key=lambda item: _patch_bytes(item[1])):
        _, channels, taps = _describe(layer)
        if channels > MAX_CHANNELS:
            continue
        whole = channels * taps <= MAX_PATCH and _patch_bytes(layer) <= room
        if whole:
            room -= _patch_bytes(layer)
        sums[name] = _Sums(layer, whole, seed=len(sums))
    return sums


def _describe(layer: nn.Conv2d | nn.Linear) -> tuple[int, int, int]:
    """Groups, input channels of a group, taps."""
    if isinstance(layer, nn.Linear):
        return 1, layer.in_features, 1
    return layer.groups, layer.in_channels // layer.groups, math.prod(layer.kernel_size)


def _patch_bytes(layer: nn.Conv2d | nn.Linear) -> int:
    groups, channels, taps = _describe(layer)
    return 8 * groups * (channels * taps) ** 2


class _Sums:
    """First and second moments of one layer's inputs, added up in float64."""

    def __init__(self, layer: nn.Conv2d | nn.Linear, whole: bool, seed: int) -> None:
        groups, channels, taps = _describe(layer)
        self._layer, self._whole = layer, whole
        self._groups, self._channels = groups, channels
        size = channels * taps if whole else channels
        self._first = torch.zeros(groups, size, dtype=torch.float64)
        self._second = torch.zeros(groups, size, size, dtype=torch.float64)
        self._generator = torch.Generator().manual_seed(seed)
        self.samples = 0

    def hook(self, module: nn.Module, args: Any) -> None:
        """Take samples of an input, before the layer runs."""
        if isinstance(self._layer, nn.Linear):
            rows = args[0].detach().reshape(-1, self._channels).float().cpu()
            self._add(rows[self._choose(len(rows))].unsqueeze(0))
        else:
            self._add(self._take_patches(self._layer, args[0].detach()))

    def _choose(self, count: int) -> torch.Tensor:
        """Random positions; all of them if they are few."""
        if count <= _POSITIONS:
            return torch.arange(count)
        return torch.randperm(count, generator=self._generator)[:_POSITIONS]

    def _take_patches(self, layer: nn.Conv2d, image: torch.Tensor) -> torch.Tensor:
        """Samples of a map, float32 [G, samples, D]; positions are those of the output."""
        if self._whole:
            image = _pad(layer, image)
        batch, channels, height, width = image.shape
        flat = image.reshape(batch, channels, -1)
        if not self._whole:
            chosen = self._choose(height * width).to(image.device)
            samples = flat[:, :, chosen]
        else:
            (kh, kw), (sh, sw), (dh, dw) = layer.kernel_size, layer.stride, layer.dilation
            rows = (height - dh * (kh - 1) - 1) // sh + 1
            columns = (width - dw * (kw - 1) - 1) // sw + 1
            chosen = self._choose(rows * columns)
            corner = (chosen // columns) * sh * width + (chosen % columns) * sw
            across = torch.arange(kh)[:, None] * dh * width + torch.arange(kw) * dw
            index = (across.reshape(-1, 1) + corner).to(image.device)  # [taps, samples]
            samples = flat[:, :, index.reshape(-1)].reshape(batch, channels, *index.shape)
        # [B, G*I, (K,) N] -> [G, B*N, I*K]
        samples = samples.reshape(batch, self._groups, -1, samples.shape[-1])
        return samples.permute(1, 0, 3, 2).flatten(1, 2).float().cpu()

    def _add(self, samples: torch.Tensor) -> None:
        # One frame's product is short enough for float32; their sum is not.
        self._first += samples.sum(1, dtype=torch.float64)
        self._second += samples.mT @ samples
        self.samples += samples.shape[1]

    def finish(self) -> Covariance:
        """Mean and covariance of the samples."""
        mean = self._first / self.samples
        matrix = self._second / self.samples - mean.unsqueeze(-1) * mean.unsqueeze(-2)
        return Covariance("patch" if self._whole else "channel", mean, matrix, self.samples)


def _pad(layer: nn.Conv2d, image: torch.Tensor) -> torch.Tensor:
    """Pad a map as the convolution does."""
    if isinstance(layer.padding, str):
        padding = []
        for tap, dilation in zip(layer.kernel_size[::-1], layer.dilation[::-1], strict=True):
            total = dilation * (tap - 1) if layer.padding == "same" else 0
            padding += [total // 2, total - total // 2]
    else:
        high, wide = layer.padding
        padding = [int(wide), int(wide), int(high), int(high)]
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return nn.functional.pad(image, padding, mode=mode) if any(padding) else image
