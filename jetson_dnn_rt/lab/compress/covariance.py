# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Covariance of the inputs of layers, collected from frames without labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx, nn

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.variants.decomposition import Layer, describe_layer
from jetson_dnn_rt.variants.progress import Progress, ignore_progress

MAX_PATCH = 2304  # input channels of a group x taps; for larger patches only channels are covered
MAX_CHANNELS = 4608  # wider layers get no covariance

_POSITIONS = 256  # patches of one frame and layer: neighbours are much alike
_CHUNK = 1024  # samples that are multiplied at a time: their sum is short enough for float32
_PATCH_BYTES = 1 << 30  # all covariances of patches together


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
        In evaluation mode; the calls of a layer that is called several times are added up.
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
            for done, image in enumerate(inputs, start=1):
                graph(image)
                progress("covariance", done, total)
    except RuntimeError as error:  # torch has no class of its own for shapes that do not fit
        raise ModelError(f"the graph cannot be run on a frame: {error}") from error
    finally:
        for handle in handles:
            handle.remove()
    if not done:
        raise ConfigurationError("covariances need at least one frame")
    return {name: collected.finish() for name, collected in sums.items() if collected.samples}


def _create_sums(graph: fx.GraphModule, layers: Sequence[str]) -> dict[str, _Sums]:
    """Keep whole patches of the smallest layers, as far as memory allows."""
    found: list[tuple[int, str, Layer]] = []
    for name in layers:
        try:
            layer = describe_layer(graph.get_submodule(name), "svd")
        except (AttributeError, TypeError) as error:
            raise ModelError(f"the graph has no layer {name!r} to look at: {error}") from error
        found.append((8 * layer.groups * (layer.inputs * layer.taps) ** 2, name, layer))
    room = _PATCH_BYTES
    sums: dict[str, _Sums] = {}
    for size, name, layer in sorted(found, key=lambda item: item[0]):
        if layer.inputs <= MAX_CHANNELS:
            whole = layer.inputs * layer.taps <= MAX_PATCH and size <= room
            room -= size if whole else 0
            sums[name] = _Sums(layer, whole, seed=len(sums))
    return sums


class _Sums:
    """First and second moments of one layer's inputs, added up in float64."""

    def __init__(self, layer: Layer, whole: bool, seed: int) -> None:
        self._layer, self._whole = layer, whole
        size = layer.inputs * layer.taps if whole else layer.inputs
        self._first = torch.zeros(layer.groups, size, dtype=torch.float64)
        self._second = torch.zeros(layer.groups, size, size, dtype=torch.float64)
        self._chunk: list[torch.Tensor] = []  # [G, samples, D] each, not yet in the sums
        self._pending = 0
        self._generator = torch.Generator().manual_seed(seed)
        self.samples = 0

    def hook(self, module: nn.Module, args: Any) -> None:
        """Take samples of an input, before the layer runs."""
        value = args[0].detach()
        if isinstance(module, nn.Conv2d):
            samples = self._take_patches(module, value)
        else:
            rows = value.reshape(-1, self._layer.inputs).float().cpu()
            samples = rows[self._choose(len(rows))].unsqueeze(0)
        self._chunk.append(samples)
        self._pending += samples.shape[1]
        self.samples += samples.shape[1]
        if self._pending >= _CHUNK:
            self._add_chunk()

    def _add_chunk(self) -> None:
        # By the thousand, because adding a product costs as much as multiplying hundreds of them.
        samples = torch.cat(self._chunk, 1)
        self._first += samples.sum(1, dtype=torch.float64)
        second = self._second.numpy()  # torch adds different types at a quarter of the speed
        second += (samples.mT @ samples).numpy()
        self._chunk.clear()
        self._pending = 0

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
        samples = samples.reshape(batch, self._layer.groups, -1, samples.shape[-1])
        return samples.permute(1, 0, 3, 2).flatten(1, 2).float().cpu()

    def finish(self) -> Covariance:
        """Mean and covariance of the samples."""
        if self._chunk:
            self._add_chunk()
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
