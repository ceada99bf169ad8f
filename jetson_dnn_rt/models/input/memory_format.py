"""Weights in the memory layout that convolutions run fastest in."""

from __future__ import annotations

import itertools
from typing import TypeVar

import torch

_M = TypeVar("_M", bound=torch.nn.Module)


def to_channels_last(module: _M) -> _M:
    """Lay out all weights and constants of four dimensions with their channels last, in place.

    `torch.nn.Module.to` would refuse a module that holds constants of five dimensions, as the
    anchors of YOLOv5 are.
    """
    for tensor in itertools.chain(module.parameters(), module.buffers()):
        if tensor.dim() == 4:
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
    return module
