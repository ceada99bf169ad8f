# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Plans: what is prepared once for each size of frames, for the sizes that came last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

P = TypeVar("P")

KEPT = 8
"""Sizes whose plans stay: cameras have a handful. Each holds scratch for a resized picture."""


class Plans(Generic[P]):
    """The plans of the last `KEPT` keys that were asked for; `made` counts all that were made."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Hashable, P] = OrderedDict()
        self.made = 0

    def find(self, key: Hashable, make: Callable[[], P]) -> P:
        """Find the plan of a key; it is made where there is none, whose errors are raised."""
        plan = self._plans.get(key)
        if plan is not None:
            self._plans.move_to_end(key)
            return plan
        plan = self._plans[key] = make()
        self.made += 1
        if len(self._plans) > KEPT:
            self._plans.popitem(last=False)
        return plan
