# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The bound: as worked out by hand, and below every run of small worlds."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from worlds import GPU_W, IDLE_W, laboratory, make_task, make_world, table_of

from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Decision
from jetson_dnn_rt.coordinator.policy import Policy
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.bound import Bound
from jetson_dnn_rt.lab.simulate.scenario import CoRunner
from jetson_dnn_rt.lab.simulate.session import ORACLE, simulate

pytest.importorskip("scipy")

EXACT = 1e-6
IDLE_MJ = 1.0 * 100.0  # at the slow clocks, over a world of 100 ms


@pytest.mark.parametrize(
    ("floor", "busy_ms"),
    [
        (1.0, 8.0),  # at the fast clocks: 16 ms at the slow ones take more
        (0.9, 4.0),
        (0.95, 6.0),  # half of it in each variant: the bound may, a frame of one stage may not
    ],
)
def test_one_frame_alone_by_hand(floor, busy_ms):
    bound = Bound(make_world(make_task("a", [0.0], (8.0,)), end_ms=100.0))
    expected_mj = IDLE_MJ + busy_ms * (IDLE_W - 1.0 + GPU_W)
    assert bound.least_energy_j(floor) == pytest.approx(expected_mj / 1e3, rel=EXACT)


def test_side_by_side_by_hand():
    """Two of 8 ms take at least 16 / (1 + 1 / 1.5) = 9.6 ms together."""
    tasks = make_task("a", [0.0], (8.0,)), make_task("b", [0.0], (8.0,))
    bound = Bound(make_world(*tasks, workers=2, interference=(1.0, 1.5), end_ms=100.0))
    expected_mj = IDLE_MJ + 9.6 * (IDLE_W - 1.0 + GPU_W)
    assert bound.least_energy_j(1.0) == pytest.approx(expected_mj / 2e3, rel=EXACT)


def test_a_co_runner_by_hand():
    other = CoRunner(0.0, 0.05, slowdown=1.5, power_w=4.0)
    world = make_world(
        make_task("a", [0.0], (8.0,), deadline_ms=20.0), end_ms=100.0, co_runners=(other,)
    )
    expected_mj = IDLE_MJ + 4.0 * 50.0 + 12.0 * (IDLE_W - 1.0 + GPU_W)
    assert Bound(world).least_energy_j(1.0) == pytest.approx(expected_mj / 1e3, rel=EXACT)


@pytest.mark.parametrize(
    ("deadline_ms", "floor", "misses"),
    [
        (20.0, 1.0, 0.0),
        (10.0, 1.0, 0.5),  # 16 ms of work in 10 ms
        (10.0, 0.9, 0.0),
        (5.0, 1.0, 1.0),  # not even alone
    ],
)
def test_misses_by_hand(deadline_ms, floor, misses):
    tasks = [make_task(name, [0.0], (8.0,), deadline_ms=deadline_ms) for name in "ab"]
    assert Bound(make_world(*tasks, end_ms=100.0)).least_misses(floor) == misses


def test_less_energy_than_there_can_be():
    bound = Bound(make_world(make_task("a", [0.0], (8.0,)), end_ms=100.0))
    least_j = bound.least_energy_j(1.0)
    assert bound.least_misses(1.0, least_j * (1.0 + EXACT)) == 0.0
    assert bound.least_misses(1.0, least_j * (1.0 - 1e-3)) == 1.0


def test_what_no_run_can_be():
    bound = Bound(make_world(make_task("a", [0.0], (8.0,), deadline_ms=5.0), end_ms=100.0))
    assert bound.least_energy_j(1.0) == math.inf
    narrow = replace(make_task("a", [0.0]), narrow=np.ones((2, 2)))
    with pytest.raises(ConfigurationError, match="narrow"):
        Bound(make_world(narrow))


# -- against exhaustive search -------------------------------------------------------------------


class Scripted(Policy):
    """Decides as it is told, boundary by boundary."""

    adjusts_clocks = adjusts_variants = clocks_at_boundaries = True

    def decide(self, cohort, now_ns):
        variants = [member.variant for member in cohort.members]
        clocks = cohort.clocks_target
        if cohort.deciding >= 0 and self.script:
            variants[cohort.deciding], clocks = self.script.pop(0)
        return Decision(tuple(variants), clocks)


def small_world(seed):
    """Two tasks of one frame each, or one of two."""
    random = np.random.default_rng(seed)
    together = bool(random.integers(2))
    releases = [[0.0], [float(random.uniform(0.0, 6.0))]] if together else [[0.0, 9.0]]
    tasks = [
        make_task(
            f"task{number}",
            times,
            tuple(random.uniform(1.0, 4.0, 2)),
            deadline_ms=float(random.uniform(4.0, 16.0)),
            noise=random.uniform(0.8, 1.3, (len(times), 2)),
            activity=(0.6, 0.1, 0.3),
        )
        for number, times in enumerate(releases)
    ]
    others = (CoRunner(0.002, 0.006, float(random.uniform(1.0, 2.0)), 1.0),)
    return make_world(
        *tasks,
        workers=int(random.integers(1, 3)),
        interference=(1.0, 1.3),
        end_ms=30.0,
        delay_ms=0.0,
        co_runners=others if random.integers(2) else (),
    )


def without_some(world):
    """The world, and those in which frames never come: a policy cannot skip better."""
    counts = [len(task.arrivals) for task in world.tasks]
    for kept in product((True, False), repeat=sum(counts)):
        flags = iter(kept)
        masks = [[next(flags) for _ in range(count)] for count in counts]
        tasks = []
        for task, mask in zip(world.tasks, masks, strict=True):
            chosen = [i for i, keep in enumerate(mask) if keep]
            tasks.append(
                replace(
                    task,
                    arrivals=tuple(task.arrivals[i] for i in chosen),
                    noise=task.noise[chosen],
                    overhead_ns=task.overhead_ns[chosen],
                    wake_ns=task.wake_ns[chosen],
                )
            )
        yield replace(world, tasks=tuple(tasks))


@pytest.mark.parametrize("seed", range(6))
def test_no_run_of_a_small_world_is_below_the_bound(seed):
    world = small_world(seed)
    bound = Bound(world)
    tables = [table_of(task) for task in world.tasks]
    source = SimpleNamespace(
        clock_table=world.clock_table, tables=tables, interference=world.interference,
        warm_up_ns={},
    )  # fmt: skip
    policy = Scripted(
        world.clock_table, tables, CoordinatorConfig(),
        workers=world.workers, interference=world.interference,
    )  # fmt: skip
    seen = set()
    choices = list(product(range(2), range(2)))
    for part in without_some(world):
        boundaries = 2 * sum(len(task.arrivals) for task in part.tasks)
        for script in product(choices, repeat=boundaries):
            policy.script = list(script)
            tally = simulate(source, "scripted", world=part, made=policy)
            if tally.met:
                run = tally.met, tally.energy_j, round(tally.accuracy, 9)
                seen.add(run)
    assert len(seen) > 4
    least_j = {}
    for met, energy_j, accuracy in seen:
        key = met, accuracy
        least_j[key] = min(energy_j / met, least_j.get(key, math.inf))
    for (met, accuracy), energy_j in least_j.items():
        misses = 1.0 - met / bound.frames
        assert bound.least_energy_j(accuracy, misses) <= energy_j * (1.0 + EXACT)
        assert bound.least_misses(accuracy, energy_j * (1.0 + EXACT)) <= misses + EXACT


@pytest.mark.parametrize("scenario", ["tx2_cohort4", "xavier_thermal"])
@pytest.mark.parametrize("policy", ["max_n", "horizon", ORACLE])
def test_no_policy_is_below_the_bound(scenario, policy):
    source = laboratory(scenario)
    world = source.world(0, 30)
    tally = simulate(source, policy, world=world)
    bound = Bound(world)
    energy_j = tally.energy_j / tally.met
    assert bound.least_energy_j(tally.accuracy - EXACT, tally.miss_ratio + EXACT) <= energy_j
    assert bound.least_misses(tally.accuracy - EXACT, energy_j) <= tally.miss_ratio + EXACT


@pytest.mark.parametrize("finer", [{"step_s": 0.05}, {"most_clocks": 1000}])
def test_a_finer_program_is_tighter(finer):
    world = laboratory("tx2_cohort4").world(0, 6)
    coarse = Bound(world, most_clocks=8).least_energy_j(0.98)
    assert coarse <= Bound(world, **{"most_clocks": 8, **finer}).least_energy_j(0.98) * (1 + EXACT)
