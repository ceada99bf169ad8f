# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The virtual clock: every time and every energy as worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from worlds import GPU_W, IDLE_W, MEMORY_W, MS, make_task, make_world, run

from jetson_dnn_rt.lab.simulate.board import Thermal
from jetson_dnn_rt.lab.simulate.scenario import CoRunner
from jetson_dnn_rt.lab.simulate.simulation import Simulation
from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import Outcome


def completions(frames):
    return [(frame.record.task, frame.record.completion_ns / MS) for frame in frames]


def test_a_frame_takes_the_sum_of_its_stages_with_noise_of_its_own():
    task = make_task("a", [1.0, 10.0], noise=[[1.0, 1.0], [0.5, 2.0]])
    _, frames = run(make_world(task))
    assert [[(s.start_ns / MS, s.end_ns / MS) for s in f.record.stages] for f in frames] == [
        [(1, 3), (3, 6)],
        [(10, 11), (11, 17)],
    ]
    assert frames[0].record.outcome is Outcome.MET
    assert frames[0].record.response_time_ns == 5 * MS
    assert frames[0].accuracy == 1.0


@pytest.mark.parametrize(
    ("second_ms", "ends"),
    [
        # It takes the worker at the first boundary of a.
        (1.0, [("b", 8), ("a", 12)]),
        # Frames of one instant are released before a stage starts: else a had begun.
        (0.0, [("b", 4), ("a", 12)]),
    ],
)
def test_one_worker_earliest_deadline_first(second_ms, ends):
    """b is due earlier."""
    world = make_world(
        make_task("a", [0.0], (4.0, 4.0), deadline_ms=50.0),
        make_task("b", [second_ms], (2.0, 2.0), deadline_ms=20.0),
    )
    assert completions(run(world)[1]) == ends


def test_interference_counts_the_stages_that_run_at_the_start():
    tasks = make_task("a", [0.0], (4.0,)), make_task("b", [1.0], (4.0,))
    _, frames = run(make_world(*tasks, workers=2, interference=(1.0, 1.5)))
    assert completions(frames) == [("a", 4), ("b", 7)]


@pytest.mark.parametrize(
    ("requests", "end_ms", "log"),
    [
        # In effect at 5 ms: 5 of 8 ms are done, the other 3 take twice as long.
        ({0.0: 0}, 11, [(0, 1), (5 * MS, 0)]),
        # A later request replaces a pending one.
        ({0.0: 0, 3.0: 1}, 8, [(0, 1)]),
    ],
)
def test_a_clock_change_takes_its_delay_and_changes_the_rest_of_a_stage(requests, end_ms, log):
    simulation, frames = run(make_world(make_task("a", [0.0], (8.0,))), requests)
    assert completions(frames) == [("a", end_ms)]
    assert simulation.clock_log == log


def test_instant_clocks():
    world = make_world(make_task("a", [0.0], (8.0,)))
    simulation = Simulation(world, [].append)
    fast = Simulation(world, [].append, instant_clocks=True)
    assert simulation.request_clocks(0, 0) == 5 * MS
    assert fast.request_clocks(0, 0) == 0
    assert (simulation.clocks, fast.clocks) == (1, 0)


def test_a_co_runner_slows_what_runs_while_it_does():
    """From 2 to 5 ms three times as slow: 2 ms done, then 1 ms of work, then 5 ms."""
    others = (CoRunner(from_s=0.002, until_s=0.005, slowdown=3.0, power_w=4.0),)
    world = make_world(make_task("a", [0.0], (8.0,)), co_runners=others)
    simulation, frames = run(world)
    assert frames[0].record.completion_ns == 10 * MS
    assert simulation.energy_j == pytest.approx((IDLE_W + GPU_W) * 0.010 + 4.0 * 0.003)


def test_an_idle_worker_decides_when_it_is_awake():
    """5 ms of work fit into 5.2 at the release, but not half a millisecond later."""
    budgeted = make_task("a", [0.0, 10.0], (5.0,), deadline_ms=5.2, wake_ms=0.5)
    _, frames = run(make_world(budgeted))
    records = [frame.record for frame in frames]
    assert records[0].start_ns == round(0.5 * MS)
    assert records[0].outcome is Outcome.LATE
    assert records[1].outcome is Outcome.SKIPPED
    assert records[1].completion_ns == round(10.5 * MS)


def test_a_busy_worker_need_not_wake_up():
    """What wakes up has no overhead before its first stage."""
    tasks = [make_task(name, [0.0], (1.0, 1.0), wake_ms=0.5, overhead_ms=0.1) for name in "ab"]
    _, frames = run(make_world(*tasks))
    starts = [[stage.start_ns / MS for stage in frame.record.stages] for frame in frames]
    assert starts == [[0.5, 1.6], [2.7, 3.8]]
    assert [frame.record.overhead_ns / MS for frame in frames] == [0.6, 0.7]


def test_a_result_that_is_known_late_may_be_late():
    task = make_task("a", [0.0, 10.0], (1.0, 1.0), deadline_ms=2.5)
    reported = replace(task, report_ns=np.array([round(0.4 * MS), round(0.6 * MS)]))
    _, frames = run(make_world(reported))
    assert [frame.record.response_time_ns / MS for frame in frames] == [2.4, 2.6]
    assert [frame.record.outcome for frame in frames] == [Outcome.MET, Outcome.LATE]
    assert [frame.record.stages[1].execution_time_ns for frame in frames] == [MS, MS]


def test_a_helper_prepares_a_frame_beside_a_network_just_in_time():
    """That of b is asked for by the engine at 100, when no event is."""
    stages = ("preprocess", "inference", "decode")
    runs = dict.fromkeys(("full", "half"), (Run(), Run(device="cuda"), Run()))
    tasks = []
    for name in "ab":
        task = make_task(name, [0.0], (10.0, 100.0, 20.0), deadline_ms=1000.0)
        parameters = replace(task.parameters, stages=stages)
        tasks.append(replace(task, parameters=parameters, spans=runs))
    frames = []
    simulation = Simulation(make_world(*tasks, helpers=1), frames.append)
    for task in tasks:
        name = task.parameters.name
        simulation.engine.seed_budgets(name, "full", [(10 * MS, 100 * MS, 20 * MS)])
    simulation.run()
    times = [[(s.start_ns / MS, s.end_ns / MS) for s in f.record.stages] for f in frames]
    assert times == [[(0, 10), (10, 110), (110, 130)], [(100, 110), (110, 210), (210, 230)]]


def test_energy_is_exact():
    """Idle for 10 ms of 15, on the GPU and a quarter on the memory for the other 5."""
    task = make_task("a", [5.0], activity=(1.0, 0.0, 0.25))
    simulation, frames = run(make_world(task, end_ms=15.0))
    busy_w = IDLE_W + GPU_W + 0.25 * MEMORY_W
    assert simulation.energy_j == pytest.approx(0.010 * IDLE_W + 0.005 * busy_w, rel=1e-12)
    assert frames[0].energy_j == pytest.approx(0.005 * busy_w, rel=1e-12)


def test_power_side_by_side_saturates_and_is_divided():
    tasks = [make_task(name, [0.0], (4.0,), activity=(0.5, 0.0, 0.0)) for name in "ab"]
    simulation, frames = run(make_world(*tasks, workers=2, end_ms=4.0))
    both_w = IDLE_W + 0.75 * GPU_W
    assert simulation.energy_j == pytest.approx(0.004 * both_w, rel=1e-12)
    assert [f.energy_j for f in frames] == pytest.approx([0.002 * both_w] * 2, rel=1e-12)


def test_throttling_has_hysteresis():
    """Hot after one look, cool after the load is gone; in between everything takes 3 times."""
    thermal = Thermal(
        ambient_c=20.0,
        initial_c=49.0,
        resistance_k_per_w=5.0,
        capacity_j_per_k=0.001,
        trip_c=50.0,
        hysteresis_k=10.0,
        poll_ms=10.0,
        cap_mhz={},
    )
    world = make_world(
        make_task("a", [0.0, 100.0, 200.0], (20.0,), levels=2), end_ms=220.0, thermal=thermal
    )
    _, frames = run(world)
    # 10 ms of work until the first look (8 W * 5 K/W + 20 = 60 degrees), the rest at a third.
    assert [f.record.response_time_ns for f in frames] == [40 * MS] * 3


def test_a_newer_frame_supersedes_the_waiting_one():
    _, frames = run(make_world(make_task("a", [0.0, 1.0, 2.0], (10.0,), deadline_ms=30.0)))
    assert [(f.record.sequence, f.record.outcome) for f in frames] == [
        (1, Outcome.SUPERSEDED),
        (0, Outcome.MET),
        (2, Outcome.MET),
    ]
    assert frames[0].energy_j == 0.0


def test_a_hopeless_frame_is_given_up_with_the_energy_it_took():
    """The budgets know 2 + 3 ms; the third frame's first stage takes 5, and 6 are left."""
    task = make_task(
        "a", [0.0, 10.0, 20.0], deadline_ms=6.0, noise=[[1.0, 1.0], [1.0, 1.0], [2.5, 1.0]]
    )
    _, frames = run(make_world(task))
    assert [f.record.outcome for f in frames] == [Outcome.MET, Outcome.MET, Outcome.ABORTED]
    assert frames[2].energy_j == pytest.approx(0.005 * (IDLE_W + GPU_W), rel=1e-12)


def test_the_oracle_sees_the_truth():
    task = make_task("a", [0.0, 10.0], noise=[[1.0, 2.0], [0.5, 1.0]])
    assert tuple(make_world(task).stage_factors("a", 10 * MS)) == (0.5, 1.0)
    others = (CoRunner(from_s=0.005, until_s=0.02, slowdown=3.0),)
    busy = make_world(task, co_runners=others)
    assert tuple(busy.stage_factors("a", 10 * MS)) == (1.5, 3.0)
