# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Plans of a frame that must keep an accuracy: what its finished stages lost counts.

A ladder (`horizon.outlook`) has one plan for each time. With `accuracy_floor` the best plan also
depends on the accuracy that the frame may still lose, which only its own boundaries tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jetson_dnn_rt.coordinator.policies.horizon.frontier import Rest
from jetson_dnn_rt.coordinator.policies.horizon.outlook import Outlook, plan_costs
from jetson_dnn_rt.coordinator.tables.hull import new_minima
from jetson_dnn_rt.coordinator.tables.tables import Floats, Integers

Choice = tuple[float, float, int]
"""Time that a plan needs, accuracy that it loses, and the variant of its next stage."""
SPARE = 1e-9  # for the rounding of sums


@dataclass(frozen=True, slots=True)
class Menu:
    """Plans for one boundary at one clock configuration."""

    cheap: list[Choice]
    """By rising cost, each faster or more accurate than all before it."""
    accurate: list[Choice]  # by falling accuracy, each faster than all before it

    def choose(self, time_ns: float, allowed: float) -> int:
        """Return the variant of the next stage.

        That of the cheapest plan that fits and loses no more than `allowed`; else of the most
        accurate one that fits; else of the fastest.
        """
        for need_ns, loss, variant in self.cheap:
            if loss <= allowed and need_ns <= time_ns:
                return variant
        for need_ns, _, variant in self.accurate:
            if need_ns <= time_ns:
                return variant
        return self.accurate[-1][2]


def build_menus(outlook: Outlook) -> list[list[Menu]]:
    """Menus by boundary and clock configuration."""
    menus = []
    for rest, objective in zip(outlook.rests, outlook.objectives, strict=True):
        free = replace(objective, loss_allowed=1.0)
        costs = plan_costs(rest, free, free.joules)
        need = rest.need_ns(outlook.reserve)
        menus.append([_build_menu(rest, need[:, c], costs[:, c]) for c in range(need.shape[1])])
    return menus


def _build_menu(rest: Rest, need: Floats, costs: Floats) -> Menu:
    loss, first = rest.loss, rest.plans[:, 0]
    by_cost = np.lexsort((first, loss, need, costs))
    earlier = np.tri(len(by_cost), k=-1, dtype=bool)
    beaten = (need[by_cost] <= need[by_cost, None]) & (loss[by_cost] <= loss[by_cost, None])
    cheap = by_cost[~(beaten & earlier).any(axis=1)]
    by_loss = np.lexsort((first, need, loss))
    accurate = by_loss[new_minima(need[by_loss])]
    return Menu(_list(need, rest, cheap), _list(need, rest, accurate))


def _list(need: Floats, rest: Rest, order: Integers) -> list[Choice]:
    return [
        (float(need[plan]), float(rest.loss[plan]), int(rest.plans[plan, 0])) for plan in order
    ]
