# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Allocation of a budget of multiply-accumulates: one choice per layer, least total error.

A multiple-choice knapsack. Each layer offers points (cost, error), the original among them. On the
lower convex hulls the best answer to *some* budget is found greedily by the price of a saving
(Lagrange); the surplus saving of the last step is then spent again, point by point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Options:
    """Decomposition choices for one layer."""

    costs: npt.NDArray[np.int64]  # [N], multiply-accumulates
    errors: npt.NDArray[np.float64]  # [N], >= 0; those of all layers are added up

    def frontier(self) -> npt.NDArray[np.intp]:
        """Indices of the Pareto-optimal options, cheapest first."""
        order = np.lexsort((self.errors, self.costs))
        best = np.minimum.accumulate(self.errors[order])
        first = np.concatenate(([True], self.errors[order][1:] < best[:-1]))
        return np.asarray(order[first])

    def hull(self) -> list[int]:
        """Indices of the options on the lower convex hull, cheapest first."""
        hull: list[int] = []
        for point in self.frontier():
            while len(hull) > 1 and self._turns_up(hull[-2], hull[-1], int(point)):
                hull.pop()
            hull.append(int(point))
        return hull

    def _turns_up(self, a: int, b: int, c: int) -> bool:
        """Whether b lies on or above the line from a to c."""
        ab, bc = self.costs[b] - self.costs[a], self.costs[c] - self.costs[b]
        drop, further = self.errors[a] - self.errors[b], self.errors[b] - self.errors[c]
        return bool(further * float(ab) >= drop * float(bc))


def allocate(options: Mapping[str, Options], limit: int) -> dict[str, int]:
    """Choose an option for each layer so that the sum of the costs is at most the limit.

    If even the cheapest options cost more, those are chosen.
    """
    hulls = {name: option.hull() for name, option in options.items()}
    chosen = {name: hull[-1] for name, hull in hulls.items()}
    left = limit - sum(int(options[name].costs[index]) for name, index in chosen.items())
    steps: list[tuple[float, str, int]] = []
    for name, hull in hulls.items():
        costs, errors = options[name].costs, options[name].errors
        for cheap, dear in pairwise(hull):
            saved = float(costs[dear] - costs[cheap])
            steps.append(((errors[cheap] - errors[dear]) / saved, name, cheap))
    # On a hull the price rises from step to step, so each layer's steps stay in their order.
    for _, name, cheap in sorted(steps, key=lambda step: (step[0], step[1], -step[2])):
        if left >= 0:
            break
        costs = options[name].costs
        left += int(costs[chosen[name]] - costs[cheap])
        chosen[name] = cheap
    if left > 0:
        _spend(options, chosen, left)
    return chosen


# By layer: extra cost and gain of each option on its frontier over the chosen one.
Moves = dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]


def _spend(options: Mapping[str, Options], chosen: dict[str, int], left: int) -> None:
    """Improve a choice step by step: one layer more expensive, if needed another one cheaper."""
    frontiers = {name: option.frontier() for name, option in options.items()}
    for _ in range(8 * len(options)):
        ups: Moves = {
            name: (
                options[name].costs[frontier] - options[name].costs[chosen[name]],
                options[name].errors[chosen[name]] - options[name].errors[frontier],
            )
            for name, frontier in frontiers.items()
        }
        best_gain = 1e-12
        best: tuple[tuple[str, int], ...] | None = None
        for name, (costs, gains) in ups.items():
            fitting = np.flatnonzero((costs > 0) & (costs <= left))
            if len(fitting):
                move = fitting[np.argmax(gains[fitting])]
                if gains[move] > best_gain:
                    best_gain, best = float(gains[move]), ((name, int(move)),)
        if best is None:
            best = _find_exchange(ups, left)
        if best is None:
            return
        for name, move in best:
            left -= int(ups[name][0][move])
            chosen[name] = int(frontiers[name][move])


def _find_exchange(moves: Moves, left: int) -> tuple[tuple[str, int], tuple[str, int]] | None:
    """Find the best pair of a more expensive and a cheaper layer that gains and fits."""
    best_gain, best = 1e-9, None
    cheaper = [
        (name, int(move))
        for name, (costs, _) in moves.items()
        for move in np.flatnonzero(costs < 0)[-4:]
    ]
    for name, (costs, gains) in moves.items():
        for other, back in cheaper:
            if other == name:
                continue
            room = left - int(moves[other][0][back])
            fitting = np.flatnonzero((costs > 0) & (costs <= room))
            if len(fitting) == 0:
                continue
            move = int(fitting[-1])  # gains rise along a frontier
            gain = float(gains[move] + moves[other][1][back])
            if gain > best_gain:
                best_gain, best = gain, ((name, move), (other, back))
    return best
