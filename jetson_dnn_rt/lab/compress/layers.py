"""Costs of decomposed layers, and who decides whether to keep one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from torch import nn

from jetson_dnn_rt.variants.decomposition import Layer
from jetson_dnn_rt.variants.measuring.macs import LayerCost

KeepIf = Callable[[str, nn.Module, nn.Module, tuple[int, ...]], tuple[bool, str]]
"""From a layer's name, the layer, what would replace it and its input's shape: whether to, or why
not."""


def count_macs(
    layer: Layer, cost: LayerCost, inner: npt.ArrayLike, outer: npt.ArrayLike
) -> npt.NDArray[np.int64]:
    """Count the multiply-accumulates of a decomposed layer.

    Parameters
    ----------
    layer, cost : Layer, LayerCost
        The layer as it is, and its cost.
    inner, outer : array_like of int
        Ranks R3 and R4 per group, of one shape. A rank that equals its channels means that there
        is no 1x1 convolution on that side.
    """
    inner, outer = np.asarray(inner, np.int64), np.asarray(outer, np.int64)
    first = np.where(inner < layer.inputs, layer.inputs * inner, 0) * cost.positions_in
    middle = layer.taps * inner * outer * cost.positions_out
    last = np.where(outer < layer.outputs, layer.outputs * outer, 0) * cost.positions_out
    return np.asarray(layer.groups * (first + middle + last))
