# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Best static choice: a variant for each task and the clocks, for a whole run, with hindsight.

Every choice is played in the very world, by the same engine and with policy ``static``, so that
admission and aborts are those of any policy. First come clocks spread over the whole range, each
with one variant for all tasks; then the best of them is improved step by step: the next variant
of one task, or the next clocks, as long as that helps. To try all would take weeks, so a better
choice may be left, but none that differs in one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from jetson_dnn_rt.coordinator.tables.hull import reduce_clocks
from jetson_dnn_rt.lab.simulate.session import Source, simulate
from jetson_dnn_rt.lab.simulate.tally import Tally
from jetson_dnn_rt.lab.simulate.world import World

FIRST_TOLERANCE = 0.1  # of the reduction of the clocks; raised until they are few enough
MOST_CLOCKS = 8  # clock configurations to begin with
TOLERANCE = 0.005
"""Shares of misses that differ by less are equal, so that energy decides."""


class Choice(NamedTuple):
    """A static choice: the variant of each task, and the position in the clock table."""

    variants: tuple[int, ...]
    clocks: int


class Hindsight:
    """Static choices in one world, each played once."""

    def __init__(self, source: Source, world: World) -> None:
        self._source, self._world = source, world
        self.played: dict[Choice, Tally] = {}

    def play(self, choice: Choice) -> Tally:
        """Play a choice."""
        if choice not in self.played:
            self.played[choice] = play(self._source, self._world, choice)
        return self.played[choice]

    def find(self, accuracy_floor: float, *, improve: bool = True) -> Choice | None:
        """Find the best choice with at least this mean accuracy of the met frames.

        The best has the least energy by met frame of those with the fewest misses, where shares
        within `TOLERANCE` are equal. None if no choice is that accurate. Without `improve` it is
        the best of those to begin with.
        """
        for choice in self._equal_variants:
            self.play(choice)
        best = self._select(accuracy_floor)
        while improve and best is not None:
            for choice in self._neighbours(best):
                self.play(choice)
            better = self._select(accuracy_floor)
            if better == best:
                break
            best = better
        return best

    def _select(self, floor: float) -> Choice | None:
        able = [
            (tally.miss_ratio, tally.energy_j / tally.met, choice)
            for choice, tally in self.played.items()
            if tally.accuracy is not None and tally.accuracy >= floor - 1e-9
        ]
        if not able:
            return None
        fewest = min(misses for misses, _, _ in able)
        return min(row[1:] for row in able if row[0] <= fewest + TOLERANCE)[1]

    @cached_property
    def _equal_variants(self) -> list[Choice]:
        whole = table = self._world.clock_table
        tolerance = FIRST_TOLERANCE
        while len(table) > MOST_CLOCKS and tolerance < 1.0:
            table, _ = reduce_clocks(whole, self._source.tables, tolerance=tolerance)
            tolerance *= 1.5
        positions = {index: position for position, index in enumerate(whole.indices.tolist())}
        tasks = self._world.tasks
        return [
            Choice(
                tuple(min(variant, len(task.parameters.variants) - 1) for task in tasks),
                positions[index],
            )
            for variant in range(max(len(task.parameters.variants) for task in tasks))
            for index in table.indices.tolist()
        ]

    def _neighbours(self, choice: Choice) -> Iterator[Choice]:
        for clocks in (choice.clocks - 1, choice.clocks + 1):
            if 0 <= clocks < len(self._world.clock_table):
                yield choice._replace(clocks=clocks)
        for index, task in enumerate(self._world.tasks):
            for variant in (choice.variants[index] - 1, choice.variants[index] + 1):
                if 0 <= variant < len(task.parameters.variants):
                    variants = list(choice.variants)
                    variants[index] = variant
                    yield choice._replace(variants=tuple(variants))


def play(source: Source, world: World, choice: Choice) -> Tally:
    """Play a static choice in a world of the source."""
    tasks = tuple(
        replace(
            task, parameters=replace(task.parameters, variant=task.parameters.variants[variant])
        )
        for task, variant in zip(world.tasks, choice.variants, strict=True)
    )
    static = replace(world, tasks=tasks)
    return simulate(source, "static", world=static, clocks=choice.clocks)
