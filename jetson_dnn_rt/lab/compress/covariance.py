"""How the inputs of layers vary together, collected from frames without labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx, nn

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.variants.progress import Progress, ignore_progress

MAX_PATCH = 2304
"""Largest patch, input channels of a group x taps, whose covariance is kept whole."""

MAX_CHANNELS = 4608
"""Largest number of channels whose covariance is kept; layers of more have none."""

_POSITIONS = 256  # patches taken of one frame and layer: neighbours say much the same
_PATCH_BYTES = 1 << 30  # of all covariances of patches together


@dataclass(frozen=True, eq=False)
class Covariance:
    """Mean and covariance of what a convolution or linear layer reads.

    Attributes
    ----------
    kind : str
        ``patch``: of input channels of a group x taps, taps of a channel side by side, padding
        included. ``channel``: of the input channels of a group, all taps alike.
    mean : Tensor [G, D], float64
        By group.
    matrix : Tensor [G, D, D], float64
        About the mean.
    samples : int
        Patches it was made of.
    """

    kind: Literal["patch", "channel"]
    mean: torch.Tensor
    matrix: torch.Tensor
    samples: int

    def regularise(self, share: float) -> torch.Tensor:
        """Shrink towards a multiple of the identity, so that the matrix can be inverted.

        Parameters
        ----------
        share : float
            Of the mean variance, in (0, 1).

        Returns
        -------
        Tensor [G, D, D]
            Positive definite.
        """
        size = self.matrix.shape[-1]
        level = self.matrix.diagonal(dim1=-2, dim2=-1).mean(-1)
        # A layer that always reads the same still gets an invertible matrix.
        level = torch.where(level > 0.0, level, torch.ones_like(level))[:, None, None]
        return (1.0 - share) * self.matrix + share * level * torch.eye(size, dtype=level.dtype)


def collect(
    graph: fx.GraphModule,
    layers: Sequence[str],
    inputs: Iterable[torch.Tensor],
    progress: Progress = ignore_progress,
) -> dict[str, Covariance]:
    """Run the graph on frames and add up what its layers read.

    Parameters
    ----------
    graph : torch.fx.GraphModule
        In evaluation mode; a layer that is called several times adds up all its calls.
    layers : sequence of str
        Paths of `nn.Conv2d` and `nn.Linear` modules.
    inputs : iterable of Tensor [1, 3, H, W]
        Prepared as the network expects them.
    progress : callable
        Called with ``("covariance", frames done, frames in all or 0)``.

    Returns
    -------
    dict of str to Covariance
        Of each layer that was called and is not too wide (`MAX_CHANNELS`).

    Raises
    ------
    ModelError
        When a layer is not there, or the graph cannot be run on the inputs.
    ConfigurationError
        When there is no input.
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
    """Give whole patches to the smallest layers first, as far as the memory goes."""
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
        groups, channels, taps = _describe(layer)
        if channels > MAX_CHANNELS:
            continue
        whole = channels * taps <= MAX_PATCH and _patch_bytes(layer) <= room
        if whole:
            room -= _patch_bytes(layer)
        sums[name] = _Sums(layer, groups, channels, taps, whole, seed=len(sums))
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

    def __init__(
        self,
        layer: nn.Conv2d | nn.Linear,
        groups: int,
        channels: int,
        taps: int,
        whole: bool,
        seed: int,
    ) -> None:
        self._layer = layer
        self._groups, self._channels = groups, channels
        self._whole = whole
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
        """Positions spread at random over all of them; all where they are few."""
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
        """Mean and covariance of what was added."""
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
