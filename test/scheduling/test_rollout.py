# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Rollout: never worse than the base policy where the model holds, better where it does not."""

from __future__ import annotations

import random

import pytest
from model_cases import Traffic, draw_case, draw_small_case, make_times
from model_world import FixedPlan, can_meet, run_world

from jetson_dnn_rt.scheduling.model import BASE, THREAD, Machine, ModelJob, Plan, State
from jetson_dnn_rt.scheduling.moves.table import MOVES
from jetson_dnn_rt.scheduling.planner import MOST_PLAYS, Planner
from jetson_dnn_rt.scheduling.value import play


def check_case(machine, jobs):
    """One case of the theorem; returns by how much rollout was better."""
    base = run_world(FixedPlan(), machine, jobs)
    promised = []

    def note(state, plan, course):
        value, left = course.value, play(state, plan)
        promised.append((value[0] + left[0], value[1] + left[1]))

    planner = Planner(machine)
    rollout = run_world(planner, machine, jobs, decided=note)
    # What is promised at a decision is what comes of it, or better: the dispatcher and the model
    # agree at each step.
    assert promised == sorted(promised)
    assert promised[-1] == rollout.value
    assert promised[0] >= base.value
    assert rollout.value >= base.value
    if len({job.worth for job in jobs}) == 1:
        assert rollout.met >= base.met
    return rollout.value[0] - base.value[0]


@pytest.mark.parametrize("seed", range(4))
def test_never_worse_than_the_base_policy_where_everything_is_known(seed):
    """The theorem; test/campaigns/theorem.py tries far more cases."""
    rng = random.Random(seed)
    gains = [check_case(*draw_case(rng)) for _ in range(150)]
    assert sum(gain > 0 for gain in gains) > 15


@pytest.mark.parametrize("seed", range(4))
def test_any_plan_ends_as_it_was_played(seed):
    """One function picks, in a play and in the world."""
    rng = random.Random(100 + seed)
    for _ in range(50):
        machine, jobs = draw_case(rng)
        plan = BASE
        for _ in range(rng.randint(1, 3)):
            move = MOVES[rng.choice([*MOVES])]
            plan = rng.choice(move(jobs[:6], plan, machine) or [plan])
        state = State(machine, [job.copy() for job in jobs], 0)
        assert play(state, plan) == run_world(FixedPlan(plan), machine, jobs).value
        assert [job.index for job in state.frames] == [0] * len(jobs)


@pytest.mark.parametrize(
    ("loads", "gain"), [((0.6, 0.9), 0), ((0.9, 1.3), 3), ((1.3, 2.2), 20)], ids=str
)
def test_frames_that_come_unexpectedly_and_take_another_time(loads, gain):
    """Gains more than ten times what it loses, against the base policy and per run."""
    rng = random.Random(7)
    won = lost = 0
    for _ in range(3):
        traffic = Traffic(rng, rng.uniform(*loads))
        values = {"known": False, "truth": traffic.truth}
        machine = Machine(1, 1)
        base = run_world(FixedPlan(), machine, traffic.jobs, **values)
        rollout = run_world(
            Planner(machine), machine, traffic.jobs, expect=traffic.expect, **values
        )
        won += max(0, rollout.met - base.met)
        lost += max(0, base.met - rollout.met)
    assert won >= gain
    assert 10 * lost <= won


def test_hardly_ever_short_of_the_best_schedule():
    rng = random.Random(3)
    short_base = short = 0
    for _ in range(100):
        machine, jobs = draw_small_case(rng)
        base = run_world(FixedPlan(), machine, jobs).met
        rollout = run_world(Planner(machine), machine, jobs).met
        short += can_meet(machine, jobs, rollout + 1)
        short_base += can_meet(machine, jobs, base + 1)
    assert short <= 2
    assert short_base > 15


def make_jobs(*rows):
    """One job of a task each: release, deadline, and the times of its stages."""
    return [
        ModelJob(key, key, release, deadline, make_times(*times), precedence=key)
        for key, (release, deadline, *times) in enumerate(rows)
    ]


HELPED = Machine(1, 1)

NEEDED = {
    "narrow": (
        HELPED,
        [(0, 221, 12, 57, 10, 63), (35, 193, 5, 74, 7, 133), (74, 214, 14, 61, 12, 110)],
    ),
    "skip": (Machine(), [(0, 120, 4, 80, 15), (10, 181, 5, 70, 16), (58, 150, 18, 27, 11)]),
    "order": (HELPED, [(0, 323, 3, 100, 5, 150), (10, 65, 2, 30, 20, 54)]),
    "ahead": (
        HELPED,
        [(0, 131, 20, 42, 2, 76), (6, 231, 17, 85, 3, 106), (65, 169, 2, 64, 16, 96)],
    ),
    "narrow-order": (
        HELPED,
        [(0, 258, 19, 80, 20, 100), (34, 176, 2, 51, 2, 76), (34, 229, 18, 87, 20, 109)],
    ),
}
"""For each move a case in which it is needed, with the machine."""


@pytest.mark.parametrize("name", MOVES)
def test_a_move_meets_frames_that_are_lost_without_it(name):
    machine, rows = NEEDED[name]
    jobs = make_jobs(*rows)
    others = [move for move in MOVES if move != name]
    all_moves = run_world(Planner(machine), machine, jobs).met
    assert all_moves == len(jobs) - (name == "skip")
    assert run_world(Planner(machine, others), machine, jobs).met < all_moves


def test_a_frame_that_is_expected_is_waited_for():
    """A long network would make it late; a short one fits before."""
    jobs = make_jobs((0, 300, 0, 100, 0), (20, 80, 0, 45, 0))
    course = run_world(Planner(Machine()), Machine(), jobs)
    assert (20, 1, 0, THREAD) in course.log
    assert course.met == 2
    short = make_jobs((0, 300, 0, 15, 0), (20, 80, 0, 45, 0))
    assert run_world(Planner(Machine()), Machine(), short).log[0][:2] == (0, 0)


def test_two_networks_at_once_meet_the_frames_of_the_counterexample():
    """Deadlines 160, 231, 155, gap 9, slow-down 1.25, one helper: narrow once cost a frame."""
    machine = Machine(1, 1)
    jobs = make_jobs(
        (0, 160, 10, 100, 2, 125), (0, 231, 10, 100, 2, 125), (9, 164, 10, 100, 2, 125)
    )
    assert run_world(Planner(machine), machine, jobs).met == 2


def test_a_frame_alone_is_not_planned():
    planner = Planner(HELPED)
    (job,) = make_jobs((0, 300, 10, 100, 10, 125))
    assert planner.decide(State(HELPED, [job], 0)) is BASE
    assert planner.plays == 0


def test_nothing_is_searched_while_nobody_is_lost():
    planner = Planner(HELPED)
    run_world(planner, HELPED, make_jobs((0, 300, 10, 100, 10, 125), (0, 400, 10, 100, 10, 125)))
    assert planner.plays > 0
    assert planner.searches == 0


def test_a_search_is_bounded():
    planner = Planner(HELPED)
    jobs = make_jobs(*[(0, 200, 5, 60, 5, 75)] * 12)
    planner.decide(State(HELPED, jobs, 0))
    assert planner.searches == 1
    assert planner.plays <= 1 + MOST_PLAYS


def test_a_plan_forgets_frames_that_have_ended():
    plan = Plan(frozenset({1, 2}), frozenset({3}), (4, 1), frozenset({2}))
    assert repr(plan) == "narrow [1, 2], skip [3], first [4, 1], ahead [2]"
    assert repr(plan.without({1})) == "narrow [1], first [1]"
    assert plan.without(set()).is_empty
