# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Policies in simulated worlds: the oracle, `horizon`, and the loop that motivates NeuOS."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from worlds import laboratory, simulate_frames

from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.policies.horizon.policy import Horizon
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import CoRunner, open_scenario
from jetson_dnn_rt.lab.simulate.session import ORACLE, make_policy, simulate

FRAMES = 60


def cost_of(tally):
    """Objective of balanced mode by met frame, in joules, misses left out."""
    weight = Horizon.energy_per_accuracy
    assert tally.accuracy is not None
    return tally.energy_j / tally.met * (1.0 + weight * (1.0 - tally.accuracy))


@pytest.mark.parametrize("scenario", ["tx2_alexnet", "xavier_vgg16"])
@pytest.mark.parametrize("seed", [0, 1])
def test_alone_the_oracle_meets_every_frame_for_least(scenario, seed):
    bound, ours = (
        simulate(laboratory(scenario), policy, seed=seed, frames=FRAMES)
        for policy in (ORACLE, "horizon")
    )
    assert bound.miss_ratio == 0.0
    assert cost_of(bound) <= cost_of(ours)


def test_the_oracles_frames_end_just_before_their_deadlines():
    source = laboratory("tx2_vgg16")
    (task,) = simulate(source, ORACLE, frames=FRAMES).tasks.values()
    deadline_ns = source.scenario.tasks[0].deadline_ns
    assert max(task.response_ns) <= deadline_ns
    assert np.median(task.response_ns) >= 0.9 * deadline_ns


def test_one_oracle_serves_several_worlds():
    lab = laboratory("tx2_alexnet")
    first, second = lab.world(0, FRAMES), lab.world(1, FRAMES)
    oracle = make_policy(lab, ORACLE, CoordinatorConfig(), first)
    oracle.show(second)
    reused = simulate(lab, ORACLE, seed=1, frames=FRAMES, made=oracle)
    fresh = simulate(lab, ORACLE, seed=1, frames=FRAMES)
    assert reused.energy_j == fresh.energy_j
    assert reused.miss_ratio == fresh.miss_ratio == 0.0


@pytest.mark.parametrize("scenario", ["tx2_cohort4", "xavier_cohort4"])
def test_horizon_hardly_misses_at_half_the_energy(scenario):
    ours, fastest = (
        simulate(laboratory(scenario), policy, seed=3, frames=90)
        for policy in ("horizon", "max_n")
    )
    assert ours.miss_ratio <= 0.01
    assert ours.accuracy is not None
    assert ours.accuracy >= 0.93
    assert ours.energy_j <= 0.6 * fastest.energy_j


def test_horizon_follows_a_hidden_co_runner():
    busy = replace(open_scenario("tx2_vgg16"), co_runners=(CoRunner(1.0, 6.0, 1.6),))
    tally = simulate(Laboratory(busy), "horizon", seed=2, frames=120)
    (task,) = tally.tasks.values()
    # It may surprise one frame; the next ones are planned with it.
    assert task.released - task.met <= 2
    assert task.max_burst <= 1


def test_the_clocks_alone_keep_the_deadline_at_full_accuracy_with_less_energy():
    clocks, static = (
        simulate(laboratory("feedback_loop"), policy, frames=120)
        for policy in ("clocks_alone", "static")
    )
    assert clocks.miss_ratio == 0.0
    assert clocks.accuracy == 1.0
    assert clocks.energy_j < 0.75 * static.energy_j


def test_one_controller_gives_up_no_accuracy_and_both_nearly_all():
    source = laboratory("feedback_loop")
    alone, both = (
        [frame.accuracy for frame in simulate_frames(source, policy, frames=120)]
        for policy in ("variants_alone", "uncoordinated")
    )
    assert set(alone) == {1.0}
    lowest = source.tables[0].accuracy(-1)
    assert both[0] == 1.0
    assert np.mean(both[40:]) < lowest + 0.2 * (1.0 - lowest)


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("neuos_balanced", CoordinatorConfig()),
        ("neuos_max_accuracy", CoordinatorConfig()),
        ("horizon", CoordinatorConfig(mode="max_accuracy")),
    ],
)
def test_coordination_ends_the_loop(policy, settings):
    tally = simulate(laboratory("feedback_loop"), policy, frames=120, settings=settings)
    assert tally.accuracy is not None
    assert tally.accuracy > 0.98
    assert tally.miss_ratio <= 0.01


def spread_of_misses(tally):
    shares = [1.0 - task.met / task.released for task in tally.tasks.values()]
    return max(shares) - min(shares)


def test_greedy_clocks_serve_instances_unequally():
    """The second motivation of NeuOS, section 3.3."""
    static, greedy, horizon = (
        simulate(laboratory("greedy_imbalance"), policy, frames=300)
        for policy in ("static", "predjoule", "horizon")
    )
    assert static.miss_ratio == 0.0
    assert greedy.miss_ratio > 0.05
    assert spread_of_misses(greedy) > 0.2
    assert horizon.miss_ratio <= 0.005
    assert spread_of_misses(horizon) <= 0.02
    assert horizon.energy_j < greedy.energy_j
