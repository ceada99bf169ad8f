# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""NeuOS as in its authors' artifact: list, steps, priority, low rank, calculated by hand."""

from __future__ import annotations

import numpy as np
import pytest
from cohorts import (
    MS,
    check_pure,
    cohorts,
    decide,
    make_clock_table,
    make_cohort,
    make_member,
    make_policy,
    make_table,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.coordinator.policies.neuos_artifact import (
    NeuOSArtifactBalanced,
    NeuOSArtifactMaxAccuracy,
    NeuOSArtifactMinEnergy,
    approximates,
    list_order,
    low_rank_version,
)
from jetson_dnn_rt.coordinator.policies.predjoule import usefulness
from jetson_dnn_rt.coordinator.tables.tables import ClockTable
from jetson_dnn_rt.platforms.boards import tx2_space, xavier_space

BALANCED, FRUGAL, ACCURATE = MODES = (
    NeuOSArtifactBalanced,
    NeuOSArtifactMinEnergy,
    NeuOSArtifactMaxAccuracy,
)
COUNT = 11_760
START = (COUNT - 1) / 2  # all places begin in the middle of the list
U = 8.0  # speed from 1 to 8, power from 1 to 10 W: E = 8 at the slowest, 10 at the fastest


def make_network(name="task", deadline_ms=10.0):
    """Three layers with sub-deadlines of 4, 2 and 4 ms, and a variant of half their time."""
    along = np.arange(COUNT) / (COUNT - 1)
    return make_table(
        name,
        times_ms=((2.0, 1.0, 2.0), (1.0, 0.5, 1.0)),
        speeds=1.0 + 7.0 * along,
        powers_w=1.0 + 9.0 * along,
        deadline_ms=deadline_ms,
    )


def begin(*deadlines_ms):
    """A cohort whose instances begin a frame, and have their memory."""
    tables = [make_network(f"task-{i}", each) for i, each in enumerate(deadlines_ms)]
    members = [make_member(table) for table in tables]
    return make_cohort(make_clock_table(COUNT), members, clocks=77)


def pass_boundary(cohort, *lags_ms):
    """Every instance finishes a layer with this LAG."""
    for member, lag_ms in zip(cohort.members, lags_ms, strict=True):
        member.started, member.stage = True, member.stage + 1
        member.stages_done += 1
        member.lag_ns = round(lag_ms * MS)


def place_after(mode, *lags_ms, deadlines_ms=(10.0,)):
    cohort = begin(*deadlines_ms)
    policy = make_policy(mode, cohort)
    decide(policy, cohort)
    pass_boundary(cohort, *lags_ms)
    decision = decide(policy, cohort)
    place = decision.memory.instances[0].places[1]
    assert decision.clocks == round(place)
    return place


# -- the list -------------------------------------------------------------------------------------


def whole_table(space):
    count = len(space)
    return ClockTable(space, np.arange(count), np.ones(count), count - 1, 0)


def test_list_of_the_tx2():
    table = whole_table(tx2_space())
    order = list_order(table)
    assert sorted(order) == list(range(COUNT))
    names = list(table.space.names)

    def row(place):
        index = order[place]
        hertz, cores = (
            values[index].tolist()
            for values in (table.space.frequencies_hz(), table.space.core_counts())
        )
        mhz = {name: value / 1e6 for name, value in zip(names, hertz, strict=True)}
        count = dict(zip(names, cores, strict=True))
        big = (mhz["big"], count["big"])
        return mhz["emc"], mhz["little"], mhz["gpu"], big, count["little"]

    # Big cores off, then one at 7 clocks, then two; 15 times 4 numbers of little cores, 60 in all.
    assert [row(place) for place in (0, 1, 3, 4, 8, 31, 32, 59)] == [
        (204.0, 345.6, 140.25, (0.0, 0), 1),
        (204.0, 345.6, 140.25, (0.0, 0), 2),
        (204.0, 345.6, 140.25, (0.0, 0), 4),
        (204.0, 345.6, 140.25, (345.6, 1), 1),
        (204.0, 345.6, 140.25, (652.8, 1), 1),
        (204.0, 345.6, 140.25, (2035.2, 1), 4),
        (204.0, 345.6, 140.25, (345.6, 2), 1),
        (204.0, 345.6, 140.25, (2035.2, 2), 4),
    ]
    assert row(60) == (204.0, 345.6, 497.25, (0.0, 0), 1)  # then the GPU
    assert row(7 * 60) == (204.0, 652.8, 140.25, (0.0, 0), 1)  # then the little cores
    assert row(49 * 60) == (800.0, 345.6, 140.25, (0.0, 0), 1)  # then the memory
    assert row(COUNT - 1) == (1866.0, 2035.2, 1300.5, (2035.2, 2), 4)


def test_list_of_the_xavier():
    table = whole_table(xavier_space())
    order = list_order(table)
    assert sorted(order) == list(range(51_968))
    hertz, cores = table.space.frequencies_hz()[order], table.space.core_counts()[order]
    cpu, gpu = (list(table.space.names).index(name) for name in ("cpu", "gpu"))
    # 128 sets of cores by their number, then 14 clocks of the GPU, then those of the CPU.
    assert cores[:128, cpu].tolist() == sorted(cores[:128, cpu].tolist())
    assert set(hertz[:128, gpu].tolist()) == {114_750_000}
    assert hertz[128, gpu] == 216_750_000
    assert (hertz[14 * 128 - 1, cpu], hertz[14 * 128, cpu]) == (115_200_000, 192_000_000)


def test_places_are_those_of_the_list_not_of_the_clock_table():
    space = tx2_space()
    # The clock table has the slower memory clock last, which the list has first.
    fast, slow = space.number((0, 0, 0, 3)), space.number((0, 0, 6, 0))
    table = ClockTable(space, np.array([fast, slow]), np.ones(2), 1, 0)
    assert list_order(table).tolist() == [1, 0]


# -- steps and priority ---------------------------------------------------------------------------


def test_usefulness_of_the_layers():
    assert usefulness(make_network()) == pytest.approx([U] * 3)


@pytest.mark.parametrize(
    ("mode", "lag_ms", "place"),
    [
        # 1 ms ahead of 10: a small step up, whatever the priority.
        (BALANCED, 1.0, START + 100 / U),
        (FRUGAL, 1.0, START + 100 / U),
        (ACCURATE, 1.0, START + 100 / U),
        # 1 ms behind: p = 1 + 0.1. The unused places of the cohort are 0: the smallest slack.
        (BALANCED, -1.0, 1.1 * START - 10 / U),
        (FRUGAL, -1.0, 1.0 * START - 10 / U),
        (ACCURATE, -1.0, 1.1 * START - 10 / U),
        # In time: p = 1 for an empty cohort.
        (BALANCED, 0.0, START - 10 / U),
        (FRUGAL, 0.0, START - 10 / U),
        (ACCURATE, 0.0, START - 10 / U),
        # A place outside the list is its end.
        (BALANCED, -30.0, COUNT - 1),
    ],
)
def test_one_instance(mode, lag_ms, place):
    assert place_after(mode, lag_ms) == pytest.approx(place, rel=1e-12)


@pytest.mark.parametrize(
    ("mode", "priority"),
    [
        (BALANCED, 1.0 + (0.1 - 0.2 + 0.4) / 3),  # the one in time does not count
        (FRUGAL, 0.8),
        (ACCURATE, 1.4),
    ],
)
def test_a_cohort_agrees(mode, priority):
    lags_ms, deadlines_ms = (-1.0, 4.0, 0.0, -16.0), (10.0, 20.0, 10.0, 40.0)
    place = place_after(mode, *lags_ms, deadlines_ms=deadlines_ms)
    assert place == pytest.approx(priority * START - 10 / U, rel=1e-12)


def test_one_in_time_slows_down_for_a_cohort_that_is_ahead():
    ahead = place_after(BALANCED, 0.0, 5.0, deadlines_ms=(10.0, 10.0))
    assert ahead == pytest.approx(0.5 * START - 10 / U, rel=1e-12)
    # As far as the list goes: p = 1 - 3.
    assert place_after(BALANCED, 0.0, 30.0, deadlines_ms=(10.0, 10.0)) == 0.0
    # One that is behind does not, for max accuracy: p = 1 + 0.1.
    behind = place_after(ACCURATE, -1.0, 5.0, deadlines_ms=(10.0, 10.0))
    assert behind == pytest.approx(1.1 * START - 10 / U, rel=1e-12)


def test_a_faster_configuration_that_costs_nothing_is_taken():
    table = make_table(
        times_ms=((2.0, 1.0, 2.0),),
        speeds=1.0 + np.arange(COUNT) / (COUNT - 1),
        powers_w=np.linspace(0.1, 10.0, COUNT),
    )
    cohort = make_cohort(make_clock_table(COUNT), [make_member(table)], clocks=77)
    policy = make_policy(ACCURATE, cohort)
    decide(policy, cohort)
    pass_boundary(cohort, 0.0)
    gain = usefulness(table)[1]
    assert gain <= 3.0
    (instance,) = decide(policy, cohort).memory.instances
    assert instance.places == (START, pytest.approx(START + 100 / gain, rel=1e-12), START)


def test_each_layer_keeps_its_own_place():
    cohort = begin(10.0)
    policy = make_policy(ACCURATE, cohort)
    decide(policy, cohort)
    for lag_ms in (1.0, 1.0):
        pass_boundary(cohort, lag_ms)
        decide(policy, cohort)
    member = cohort.members[0]
    # The frame ends in time, another one begins: its first layer keeps the clocks it finds.
    member.stages_done, member.frames_done = 3, 1
    member.started, member.stage, member.lag_ns = False, 0, 0
    cohort.clocks = cohort.clocks_target = 99
    assert decide(policy, cohort).clocks == 99
    pass_boundary(cohort, -1.0)
    (instance,) = decide(policy, cohort).memory.instances
    ahead = START + 100 / U
    assert instance.places == pytest.approx((START, 1.1 * ahead - 10 / U, ahead), rel=1e-12)


def test_a_debt_is_owed_in_the_next_frame():
    cohort = begin(10.0)
    policy = make_policy(BALANCED, cohort)
    decide(policy, cohort)
    member = cohort.members[0]
    member.frames_done, member.lag_ns = 1, -2 * MS
    decide(policy, cohort)
    pass_boundary(cohort, 1.0)  # of this frame; 1 ms behind with what is owed
    (instance,) = decide(policy, cohort).memory.instances
    assert instance.places[1] == pytest.approx(1.1 * START - 10 / U, rel=1e-12)


def test_steps_are_those_of_the_whole_list():
    """A table of part of the configurations has the same share of a step."""
    space = tx2_space()
    kept = np.arange(0, COUNT, 20)
    clock_table = ClockTable(space, kept, np.ones(len(kept)), len(kept) - 1, 0)
    along = np.arange(len(kept)) / (len(kept) - 1)
    table = make_table(speeds=1.0 + 7.0 * along, powers_w=1.0 + 9.0 * along)
    cohort = make_cohort(clock_table, [make_member(table)], clocks=0)
    policy = make_policy(FRUGAL, cohort)
    begin_place = decide(policy, cohort).memory.instances[0].places[1]
    pass_boundary(cohort, 1.0)
    (instance,) = decide(policy, cohort).memory.instances
    assert instance.places[1] - begin_place == pytest.approx(100 / U / 20, rel=1e-9)


# -- low rank -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("priority", "low_rank", "expected"),
    [
        (1.0, 0, True),  # ceil(4) < 8
        (0.25, 0, True),  # ceil(1 + 6) < 8
        (0.2, 0, False),  # ceil(0.8 + 6.4) = 8
        (0.0, 0, False),
        (-1.0, 0, False),
        (2.0, 0, True),
        (0.25, 1, True),  # ceil(1 + 5.625) = 7 < 7.5
        (1.0, 7, True),  # ceil(4) < 4.5
        (0.9, 7, False),  # ceil(3.6 + 0.45) = 5
        (1.0, 8, False),  # ceil(4) = 4
    ],
)
def test_when_a_convolution_runs_as_low_rank(priority, low_rank, expected):
    assert approximates(priority, 8, low_rank) is expected


def test_low_rank_layers_of_a_frame():
    cohort = begin(10.0)
    policy = make_policy(BALANCED, cohort)
    # 3 layers: max 3, min 1.5. p = 1: ceil(1.5) = 2 < 3.
    assert decide(policy, cohort).variants == (1,)
    # max 2.5, p = 0.5: ceil(0.75 + 1.25) = 2 < 2.5.
    pass_boundary(cohort, 5.0)
    assert decide(policy, cohort).variants == (1,)
    # max 2, p = 0.5: ceil(0.75 + 1) = 2.
    pass_boundary(cohort, 5.0)
    decision = decide(policy, cohort)
    assert decision.variants == (0,)
    assert decision.memory.instances[0].low_rank == (True, True, False)
    # The next frame begins anew.
    cohort.members[0].started, cohort.members[0].stage = False, 0
    decision = decide(policy, cohort)
    assert decision.variants == (1,)
    assert decision.memory.instances[0].low_rank == (True, False, False)


def test_max_accuracy_never_approximates():
    cohort = begin(10.0)
    policy = make_policy(ACCURATE, cohort)
    assert decide(policy, cohort).variants == (0,)
    pass_boundary(cohort, -20.0)
    assert decide(policy, cohort).variants == (0,)


def test_the_low_rank_version_is_the_one_nearest_to_half_the_time():
    times_ms = ((2.0, 2.0), (1.5, 1.7), (0.9, 2.0), (0.3, 0.4))
    assert low_rank_version(make_table(times_ms=times_ms)) == (2, (True, False))
    cohort = make_cohort(
        make_clock_table(),
        [make_member(make_table(times_ms=times_ms), usable=(True, True, False, True))],
    )
    assert decide(make_policy(BALANCED, cohort), cohort).variants == (0,)  # it is not loaded
    assert low_rank_version(make_table(times_ms=((2.0, 2.0),))) == (0, (False, False))


# -- any cohort -----------------------------------------------------------------------------------


@settings(max_examples=100)
@given(cohorts(), st.sampled_from(MODES))
def test_pure_and_within_what_may_be_chosen(cohort, mode):
    policy = make_policy(mode, cohort)
    decision = check_pure(policy, cohort)
    deciding = cohort.deciding
    if deciding >= 0:
        assert decision.variants[deciding] in policy.candidates(cohort, deciding)
    else:
        assert decision.clocks == cohort.clocks_target
