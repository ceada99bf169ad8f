# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Search for the layers that stay in fp32, so that the rest agrees as much as was asked for.

Layers are taken in runs of neighbours, at most `MAX_GROUPS` of them. Each run is quantized alone:
the error that this makes in the outputs ranks it. Then the fewest of the worst runs that must stay
are found by bisection. So the number of networks that are quantized is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from jetson_dnn_rt.variants.progress import Progress, ignore_progress

MAX_GROUPS = 16
"""Runs of layers that are tried alone."""


@dataclass(frozen=True)
class Found:
    """The best network that was tried."""

    kept: tuple[str, ...]  # layers that stay in fp32, in the order of the network
    agreement: float
    tries: int
    enough: bool  # whether it agrees as much as was asked for


def search(
    layers: Sequence[str],
    judge: Callable[[Collection[str]], float],
    rank: Callable[[Collection[str]], float],
    *,
    asked: float,
    progress: Progress = ignore_progress,
) -> Found:
    """Find few layers to keep in fp32.

    Parameters
    ----------
    layers : sequence of str
        In the order of the network, at least one.
    judge : callable
        Agreement of the network in which these layers are kept in fp32.
    rank : callable
        Error of the outputs of the network in which these layers alone are quantized.
    asked : float
        Agreement that is enough.

    Returns
    -------
    Found
        Of those that are enough the one with the fewest groups kept, as far as agreement grows
        with their number; else the one with the highest agreement. Never all layers.
    """
    groups = group_layers(layers)
    steps = max(1, (len(groups) - 1).bit_length())
    total = 1 + len(groups) + steps
    tries = 0
    tried: dict[int, float] = {}
    order = list(groups)

    def attempt(count: int) -> bool:
        nonlocal tries
        kept = {name for group in order[:count] for name in group}
        tried[count] = judge(kept)
        tries += 1
        progress("finding layers that stay in fp32", tries, total)
        return tried[count] >= asked

    progress("finding layers that stay in fp32", 0, total)
    if not attempt(0) and len(groups) > 1:
        errors = []
        for group in groups:
            errors.append(rank(group))
            tries += 1
            progress("finding layers that stay in fp32", tries, total)
        pairs = sorted(zip(errors, groups, strict=True), key=lambda pair: -pair[0])
        order = [group for _, group in pairs]
        few, many = 0, len(groups)  # not enough; enough, but without INT8
        while many - few > 1:
            middle = (few + many) // 2
            if attempt(middle):
                many = middle
            else:
                few = middle
    enough = [count for count, value in tried.items() if value >= asked]
    best = min(enough) if enough else max(tried, key=lambda count: (tried[count], -count))
    chosen = {name for group in order[:best] for name in group}
    kept = tuple(name for name in layers if name in chosen)
    return Found(kept, tried[best], tries, bool(enough))


def group_layers(layers: Sequence[str]) -> list[tuple[str, ...]]:
    """Runs of neighbours, at most `MAX_GROUPS`, of about equal length."""
    count = min(MAX_GROUPS, len(layers))
    bounds = [index * len(layers) // count for index in range(count + 1)]
    return [tuple(layers[a:b]) for a, b in pairwise(bounds)]
