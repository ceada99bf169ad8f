# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The best static choice of a world."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from worlds import make_task, make_world, table_of

from jetson_dnn_rt.lab.simulate.hindsight import Choice, Hindsight


def search_in(world):
    scenario = SimpleNamespace(workers=world.workers, interference=world.interference)
    source = SimpleNamespace(
        clock_table=world.clock_table,
        warm_up_ns={},
        tables=[table_of(task) for task in world.tasks],
        interference=world.interference,
        scenario=scenario,
    )
    return Hindsight(source, world)


@pytest.mark.parametrize(
    ("floor", "deadlines_ms", "choice"),
    [
        # The fast clocks take 1 W more all the time, but half as long for the work.
        (1.0, (30.0, 30.0), Choice((0, 0), 1)),
        # The first is only in time in its fast variant: then 0.05 are lost in the mean.
        (0.95, (5.0, 12.0), Choice((1, 0), 1)),
        (0.9, (5.0, 12.0), Choice((1, 1), 1)),
    ],
)
def test_the_best_choice(floor, deadlines_ms, choice):
    tasks = [
        make_task(name, [20.0 * number], (8.0,), deadline_ms=deadline_ms)
        for number, (name, deadline_ms) in enumerate(zip("ab", deadlines_ms, strict=True))
    ]
    assert search_in(make_world(*tasks, end_ms=60.0)).find(floor) == choice


def test_no_choice_is_so_accurate():
    task = make_task("a", [0.0], (8.0,), deadline_ms=5.0)
    search = search_in(make_world(task, end_ms=20.0))
    assert search.find(1.0) is None
    assert search.find(0.9) == Choice((1,), 1)
    assert search.play(Choice((1,), 1)) is search.played[Choice((1,), 1)]
