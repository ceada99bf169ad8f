# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The costs of a whole cohort by time and clock configuration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.coordinator.policies.horizon.outlook import LEVELS, STEP, Outlook


class Sheet:
    """The grids of a cohort in one array: the cost of all members at all clocks is a sum of rows.

    There is one outlook per member (members with one table may share it), with the relative
    deadline that its grids were made for.
    """

    def __init__(self, outlooks: Sequence[Outlook], deadlines_ns: Sequence[int]) -> None:
        self._count = count = len(outlooks[0].ladders[0])
        self._columns = columns = np.arange(count)
        self._levels_per_ns = [1.0 / (STEP * deadline) for deadline in deadlines_ns]
        parts: list[npt.NDArray[np.float32]] = []
        begins: dict[int, list[int]] = {}
        size = 0
        for outlook in outlooks:
            if id(outlook) not in begins:
                end = size + outlook.grids.size
                begins[id(outlook)] = list(range(size, end, LEVELS * count))
                parts.append(outlook.grids.ravel())
                size = end
        self._begins = [begins[id(outlook)] for outlook in outlooks]
        self._costs = np.concatenate(parts)
        # By present clocks, then member and boundary: time lost by a change, as positions in
        # `_costs`; the last row is for a frame that finds the clocks changed.
        lost = [
            np.floor(outlook.change_ns[-1] * scale).astype(np.int64) * count + columns
            for outlook, scale in zip(outlooks, self._levels_per_ns, strict=True)
        ]
        self._first_row = np.cumsum([0, *(len(steps) for steps in lost)]).tolist()
        self._no_change = self._first_row[-1]
        lost.append(np.broadcast_to(columns, (1, count, count)))
        self._steps = np.ascontiguousarray(np.concatenate(lost).transpose(1, 0, 2))

    def place(
        self, member: int, boundary: int, time_ns: float, *, delayed: bool
    ) -> tuple[int, int, int]:
        """Return the positions of the costs of a frame with this much time.

        Position of its row; of the row without time; and its row of changes, where a change is
        `delayed` for it.
        """
        level = self._level(member, time_ns)
        begin = self._begins[member][boundary]
        row = self._first_row[member] + boundary if delayed else self._no_change
        return begin + level * self._count, begin, row

    def place_at(self, member: int, boundary: int, time_ns: float, clocks: int) -> int:
        """Return the position of a frame's cost at one clock configuration."""
        begin = self._begins[member][boundary]
        return begin + self._level(member, time_ns) * self._count + clocks

    def _level(self, member: int, time_ns: float) -> int:
        level = int(time_ns * self._levels_per_ns[member])
        # min() and max() would be half of the calls of a decision.
        return 0 if level < 0 else level if level < LEVELS else LEVELS - 1

    def total(self, places: Sequence[int]) -> float:
        """Sum of the costs at some positions."""
        return float(self._costs.take(places).sum())

    def add_up(
        self, places: Sequence[tuple[int, int, int]], present: int
    ) -> npt.NDArray[np.float32]:
        """Total cost at each clock configuration, float32 [C], of one or more of `place`.

        A change takes its time from the clocks that are in effect, `present`.
        """
        table = np.array(places).T[:, :, None]
        index = self._steps[present].take(table[2, :, 0], axis=0)
        index += table[0]
        np.maximum(index, table[1] + self._columns, out=index)
        total: npt.NDArray[np.float32] = np.add.reduce(self._costs.take(index))
        return total
