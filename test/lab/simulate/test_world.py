# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Worlds: noise with the distribution of the file, and invariants under every policy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import IDLE_W, laboratory, make_task, make_world, run, simulate_frames

from jetson_dnn_rt.lab.simulate.board import Noise
from jetson_dnn_rt.lab.simulate.world import draw_noise, make_generator
from jetson_dnn_rt.tasks import Outcome

NOISE = Noise(frame_sigma=0.1, frame_correlation=0.7, stage_sigma=0.05)
POLICIES = ("static", "max_q", "race_to_idle", "poet", "alert", "neuos_balanced", "predjoule")


def draw(noise, frames=20_000, seed=0):
    return draw_noise(noise, make_generator(seed, "noise", "a"), frames, 4)


def test_the_moments_are_those_of_the_file():
    logs = np.log(draw(NOISE))
    common = logs.mean(axis=1)
    assert np.median(logs) == pytest.approx(0.0, abs=0.01)
    assert logs.std() == pytest.approx(np.hypot(0.1, 0.05), rel=0.05)
    own = (logs - common[:, None]).std() * np.sqrt(4 / 3)
    assert own == pytest.approx(0.05, rel=0.05)
    lag_one = np.corrcoef(common[:-1], common[1:])[0, 1]
    # The mean of the stages' own noise is not correlated.
    expected = 0.7 * 0.01 / (0.01 + 0.0025 / 4)
    assert lag_one == pytest.approx(expected, abs=0.03)


def test_spikes():
    factors = draw(Noise(spike_probability=0.01, spike_factor=3.0))
    assert set(np.unique(factors)) == {1.0, 3.0}
    assert (factors == 3.0).mean() == pytest.approx(0.01, rel=0.2)


def test_streams_do_not_depend_on_each_other():
    assert not np.array_equal(draw(NOISE, 10), draw(NOISE, 10, seed=1))
    a, b = (make_generator(0, "noise", name).random(4) for name in "ab")
    assert not np.array_equal(a, b)
    camera = make_generator(0, "camera", "a").random(4)
    assert not np.array_equal(a, camera)
    assert np.array_equal(a, make_generator(0, "noise", "a").random(4))


@pytest.mark.parametrize("frames", [0, 1, 5])
def test_a_longer_draw_begins_like_a_shorter_one(frames):
    spiky = Noise(0.1, 0.5, 0.1, 0.2, 2.0)
    assert np.array_equal(draw(spiky, frames), draw(spiky, 20)[:frames])


@st.composite
def worlds(draw):
    times = st.floats(0.2, 8.0)
    tasks = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        gaps = draw(st.lists(st.floats(0.1, 15.0), min_size=1, max_size=8))
        releases = [sum(gaps[: index + 1]) for index in range(len(gaps))]
        stages = draw(st.lists(times, min_size=1, max_size=4))
        row = st.lists(st.floats(0.5, 3.0), min_size=len(stages), max_size=len(stages))
        noise = draw(st.lists(row, min_size=len(gaps), max_size=len(gaps)))
        deadline = draw(st.floats(1.0, 40.0))
        tasks.append(make_task(name, releases, stages, deadline_ms=deadline, noise=noise))
    workers = draw(st.integers(1, 3))
    return make_world(*tasks, workers=workers, interference=(1.0, 1.3, 1.6), end_ms=50.0)


@given(worlds(), st.dictionaries(st.floats(0.0, 50.0), st.integers(0, 1), max_size=4))
@settings(max_examples=80)
def test_counts_add_up_and_energy_is_at_least_idle(world, requests):
    simulation, frames = run(world, dict(sorted(requests.items())))
    released = sum(len(task.arrivals) for task in world.tasks)
    assert len(frames) == released
    assert len({(f.record.task, f.record.sequence) for f in frames}) == released
    states = simulation.engine.tasks.values()
    assert sum(state.released for state in states) == released
    seconds = simulation.now_ns * 1e-9
    assert simulation.energy_j >= 1.0 * seconds * (1.0 - 1e-9)
    assert simulation.energy_j <= (IDLE_W + 10.0) * seconds * (1.0 + 1e-9)
    assert sum(f.energy_j for f in frames) <= simulation.energy_j * (1.0 + 1e-9)
    for frame in frames:
        record = frame.record
        assert record.release_ns <= record.completion_ns
        in_time = record.completion_ns <= record.absolute_deadline_ns
        assert in_time or record.outcome is not Outcome.MET
        ends = [record.release_ns, *(stage.end_ns for stage in record.stages)]
        starts = [stage.start_ns for stage in record.stages]
        assert all(end <= start for end, start in zip(ends, starts, strict=False))
    stages = [stage for frame in frames for stage in frame.record.stages]
    for stage in stages:
        beside = sum(other.start_ns <= stage.start_ns < other.end_ns for other in stages)
        assert beside <= world.workers


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_run(policy):
    source = laboratory("tx2_cohort4")
    first, again, other = (
        simulate_frames(source, policy, seed=seed, frames=20) for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


def test_policies_see_the_same_world():
    """Arrivals, and noise of a (task, sequence, stage), whatever ran before."""
    source = laboratory("tx2_alexnet")
    records, others = (
        [frame.record for frame in simulate_frames(source, policy, seed=1, frames=60)]
        for policy in ("static", "alert")
    )
    assert {(r.sequence, r.release_ns) for r in records} == {
        (r.sequence, r.release_ns) for r in others
    }
    world, median_ns = source.world(1, 60), source.true_tables[0].median_ns[0]
    for record in records:
        times_ns = np.array([stage.execution_time_ns for stage in record.stages])
        expected = world.stage_factors("alexnet", record.release_ns)[: len(times_ns)]
        assert times_ns / median_ns[: len(times_ns)] == pytest.approx(expected, rel=1e-4)


def test_a_longer_run_begins_like_a_shorter_one():
    short, long = (laboratory("tx2_cohort4").world(5, frames) for frames in (30, 60))
    for a, b in zip(short.tasks, long.tasks, strict=True):
        assert a.arrivals == b.arrivals[: len(a.arrivals)]
        assert (a.noise == b.noise[: len(a.noise)]).all()
