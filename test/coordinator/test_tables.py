# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Profile tables: their derived quantities, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.platforms.clocks import ClockDomain, ClockOption, ClockSpace

SPACE = ClockSpace(
    (
        ClockDomain("cpu", (ClockOption(100), ClockOption(200)), 1),
        ClockDomain("gpu", (ClockOption(10), ClockOption(20), ClockOption(30)), 5),
    )
)


def make_clock_table(**changes):
    values = {
        "space": SPACE,
        "indices": np.array([0, 1, 4, 5]),
        "idle_w": np.array([1.0, 1.5, 2.0, 2.5]),
        "max_n": 3,
        "max_q": 1,
    }
    return ClockTable(**{**values, **changes})


def make_table(**changes):
    shape = (2, 2, 3)
    values = {
        "task": "a",
        "stages": ("inference-1", "inference-2"),
        "variants": ("full@null", "tucker-0.50@null"),
        "deadline_ns": 90,
        "period_ns": 100,
        "times_ns": np.array([[[10, 11, 15], [20, 21, 30]], [[5, 6, 7], [8, 9, 12]]]),
        "slowdown": np.broadcast_to([4.0, 2.0, 1.0], shape).copy(),
        "power_w": np.broadcast_to([2.0, 3.0, 6.0], shape).copy(),
        "loss": np.array([[0.0, 0.0], [0.02, 0.03]]),
    }
    return TaskTable(**{**values, **changes})


def test_positions_go_from_slowest_to_fastest():
    table = make_clock_table()
    assert (len(table), table.slowest, table.fastest) == (4, 0, 3)
    assert table.describe(3) == SPACE.describe(5)
    assert [table.delay_ns(*pair) for pair in ((0, 1), (1, 2), (0, 3), (2, 2))] == [5, 1, 5, 0]


def test_a_part_of_a_clock_table_keeps_its_presets():
    part = make_clock_table().take([1, 3])
    assert part.indices.tolist() == [1, 5]
    assert (part.max_q, part.max_n) == (0, 1)
    with pytest.raises(ValueError, match="max_q 1"):
        make_clock_table().take([0, 3])
    assert make_clock_table().take([0, 2], keep_presets=False).max_n == 1


def test_quantities_of_a_task():
    table = make_table()
    assert table.median_ns.tolist() == [[11, 21], [6, 9]]  # times that occurred
    assert table.quantile_ns(0.99).tolist() == [[15, 30], [7, 12]]
    # Of the most accurate variant.
    assert table.sub_deadlines_ns == (90 * 11 // 32, 90 - 90 * 11 // 32)
    assert (table.accuracy(0), table.accuracy(1)) == (1.0, pytest.approx(0.95))
    part = table.take_clocks([0, 2])
    assert part.slowdown[0, 0].tolist() == [4.0, 1.0]
    assert part.power_w[1, 0].tolist() == [2.0, 6.0]


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        *((make_table, "times_ns", np.ones(shape, int)) for shape in ((2, 3, 3), (2, 2))),
        (make_table, "times_ns", np.zeros((2, 2, 3), int)),
        (make_table, "slowdown", np.zeros((2, 2, 3))),
        (make_table, "power_w", np.ones((2, 2, 2))),
        (make_table, "loss", np.full((2, 2), -0.1)),
        (make_table, "loss", np.zeros((1, 2))),
        (make_table, "deadline_ns", 0),
        (make_table, "variants", ()),
        (make_clock_table, "idle_w", np.ones(3)),
        (make_clock_table, "max_n", 4),
        (make_clock_table, "max_q", -1),
        (make_clock_table, "indices", np.array([], int)),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_name(make, name, value):
    with pytest.raises(ValueError, match=name.removesuffix("s")):
        make(**{name: value})
