# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Weakly hard limits: by hand, and against a count of every window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_drive import drive, make_task, make_work

from jetson_dnn_rt.config.process import DISCIPLINES
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.weakly_hard import MOST_AHEAD, WeaklyHard, worth
from jetson_dnn_rt.tasks import Outcome

limits = st.integers(1, 8).flatmap(lambda k: st.tuples(st.integers(1, k), st.just(k)))


def is_violated(least, frames, outcomes):
    """Whether fewer than `least` of the last `frames` were met; before the first all were."""
    return sum(([True] * frames + outcomes)[-frames:]) < least


def count_violations(least, frames, outcomes):
    return sum(is_violated(least, frames, outcomes[: end + 1]) for end in range(len(outcomes)))


def count_misses_left(least, frames, outcomes):
    return next(n for n in range(frames + 1) if is_violated(least, frames, outcomes + [False] * n))


def end_all(limit, text):
    """End frames, M = met and m = missed, in the order of release; the distance after each."""
    distances = []
    for number, outcome in enumerate(text, 1):
        limit.end(number, outcome == "M")
        distances.append(limit.distance)
    return distances


def test_two_of_three_by_hand():
    limit = WeaklyHard(2, 3)
    assert (limit.distance, limit.violations) == (2, 0)
    # MMM MMM MMm MmM mMM MMm Mmm mmM mMM
    assert end_all(limit, "MMmMMmmMM") == [2, 2, 1, 1, 2, 1, 0, 0, 2]
    assert limit.violations == 2


def test_a_limit_that_every_frame_must_keep_is_always_one_miss_away():
    limit = WeaklyHard(3, 3)
    assert end_all(limit, "MmMMMM") == [1, 0, 0, 0, 1, 1]
    assert limit.violations == 3  # one miss is in three windows


def test_one_of_k_allows_k_minus_one_misses_in_a_row():
    limit = WeaklyHard(1, 4)
    assert end_all(limit, "mmmMmmmmmM") == [3, 2, 1, 4, 3, 2, 1, 0, 0, 4]
    assert limit.violations == 2


@given(limits, st.lists(st.booleans(), max_size=40))
def test_violations_and_distance_are_those_of_every_window(limit, outcomes):
    least, frames = limit
    counted = WeaklyHard(least, frames)
    for number, met in enumerate(outcomes, 1):
        counted.end(number, met)
        assert counted.distance == count_misses_left(least, frames, outcomes[:number])
    assert counted.violations == count_violations(least, frames, outcomes)


@given(limits, st.lists(st.booleans(), max_size=30), st.randoms(use_true_random=False))
def test_frames_count_in_the_order_of_release_in_whatever_order_they_end(limit, outcomes, draw):
    least, frames = limit
    counted = WeaklyHard(least, frames)
    order = list(range(len(outcomes)))
    draw.shuffle(order)
    ended = set()
    for index in order:
        counted.end(index + 1, outcomes[index])
        ended.add(index)
        # Up to the first one that still runs.
        known = next((i for i in range(len(outcomes)) if i not in ended), len(outcomes))
        assert counted.violations == count_violations(least, frames, outcomes[:known])
        assert counted.distance == count_misses_left(least, frames, outcomes[:known])


def test_a_frame_that_does_not_end_for_long_counts_as_missed_and_is_not_counted_twice():
    limit = WeaklyHard(1, 2)
    for number in range(2, MOST_AHEAD + 1):
        limit.end(number, False)
    assert (limit.distance, limit.violations) == (2, 0)  # frame 1 still runs
    limit.end(MOST_AHEAD + 1, False)
    assert limit.violations == MOST_AHEAD
    limit.end(1, True)
    assert (limit.distance, limit.violations) == (0, MOST_AHEAD)


@pytest.mark.parametrize("limit", [(0, 3), (4, 3), (1, 0)])
def test_a_limit_that_cannot_be_is_refused(limit):
    with pytest.raises(ValueError, match="least must be in"):
        WeaklyHard(*limit)


def test_a_frame_is_worth_more_the_nearer_the_limit_is():
    assert [worth(distance) for distance in range(7)] == [8.0, 8.0, 4.0, 2.0, 1.0, 1.0, 1.0]


# -- in the engine ------------------------------------------------------------------------------


def make_engine(*tasks, **options):
    engine = Engine(**options)
    for task in tasks:
        engine.add_task(task)
        engine.seed_budgets(task.name, task.variant, [(10,) * len(task.stages)])
    return engine


def test_every_way_to_end_without_a_result_in_time_is_a_miss():
    """Late, skipped, superseded, aborted, failed, not an image, and while the task restarts."""
    engine = make_engine(make_task("a", 100, met_of=(1, 1)))
    state = engine.tasks["a"]

    def run(at, begin, end, fails=False):
        engine.release("a", at, at, make_work())
        job = engine.next(begin)
        if fails:
            engine.fail(job, end, "made to fail")
        else:
            engine.boundary(job, end, begin, end)

    run(0, 0, 10)
    assert (state.weakly_hard.violations, state.worth) == (0, 8.0)
    run(1000, 1000, 1101)
    assert state.outcomes[Outcome.LATE] == 1
    run(2000, 2000, 2010, fails=True)
    engine.release("a", 3000, 3000, make_work())
    engine.release("a", 3001, 3001, make_work())
    assert engine.next(3200) is None
    assert state.outcomes[Outcome.SUPERSEDED] == state.outcomes[Outcome.SKIPPED] == 1
    engine.reject("a", 4000, 4000, make_work(), "not an image")
    engine.release("a", 5000, 5000, make_work())
    job = engine.next(5000)
    engine.flush("a", 5001, "restarting")
    engine.suspend(state.parameters.name, "restarting")
    engine.release("a", 5002, 5002, make_work())
    assert state.weakly_hard.violations == 5  # the one that still runs is older
    engine.fail(job, 5003, "hangs")
    assert state.weakly_hard.violations == state.released - 1 == 7


def test_a_frame_that_is_superseded_while_an_older_one_runs_counts_behind_it():
    """The windows are of frames as they came: met, superseded, met has two without two met."""
    engine = make_engine(make_task("a", 100, met_of=(2, 2)))
    limit = engine.tasks["a"].weakly_hard
    engine.release("a", 0, 0, make_work(0))
    job = engine.next(0)
    engine.release("a", 1, 1, make_work(1))
    engine.release("a", 2, 2, make_work(2))
    assert engine.tasks["a"].outcomes[Outcome.SUPERSEDED] == 1
    assert (limit.distance, limit.violations) == (1, 0)
    engine.boundary(job, 10, 0, 10)
    assert (limit.distance, limit.violations) == (0, 1)  # met, superseded
    engine.boundary(engine.next(10), 20, 10, 20)
    assert (limit.distance, limit.violations) == (0, 2)  # superseded, met


@st.composite
def loads(draw):
    tasks = draw(st.integers(1, 3))
    count = st.integers(0, 300)
    return {
        "workers": draw(st.integers(1, 2)),
        "helpers": draw(st.integers(0, 1)),
        "discipline": draw(st.sampled_from(DISCIPLINES)),
        "deadlines": [draw(st.integers(5, 60)) for _ in range(tasks)],
        "limits": [draw(limits) for _ in range(tasks)],
        "stages": [draw(st.integers(1, 3)) for _ in range(tasks)],
        "arrivals": sorted(
            draw(st.lists(st.tuples(count, st.integers(0, tasks - 1)), min_size=1, max_size=50))
        ),
        "times": draw(st.lists(st.integers(0, 30), min_size=1, max_size=20)),
        "failing": draw(st.sets(st.integers(0, 20), max_size=4)),
    }


def run_load(load, *, with_limits):
    tasks = [
        make_task(
            name,
            deadline,
            stages=("one", "two", "three")[:stages],
            met_of=limit if with_limits else (),
        )
        for name, deadline, stages, limit in zip(
            "abc", load["deadlines"], load["stages"], load["limits"], strict=False
        )
    ]
    engine = make_engine(
        *tasks, workers=load["workers"], helpers=load["helpers"], discipline=load["discipline"]
    )
    times = load["times"]
    records = drive(
        engine,
        [(at, "abc"[task]) for at, task in load["arrivals"]],
        lambda job: times[(job.sequence + job.next_stage) % len(times)],
        lambda job: job.sequence in load["failing"],
    )
    return engine, records


@given(loads())
def test_the_engine_counts_every_window_of_the_frames_that_it_released(load):
    engine, records = run_load(load, with_limits=True)
    for name, state in engine.tasks.items():
        own = sorted((r for r in records if r.task == name), key=lambda record: record.sequence)
        outcomes = [record.outcome is Outcome.MET for record in own]
        limit = state.weakly_hard
        assert limit.violations == count_violations(limit.least, limit.frames, outcomes)
        assert limit.distance == count_misses_left(limit.least, limit.frames, outcomes)
        assert state.worth == worth(limit.distance)


@given(loads())
def test_limits_change_no_decision(load):
    """As long as the scheduler does not use them: the page on scheduling says so."""
    assert run_load(load, with_limits=True)[1] == run_load(load, with_limits=False)[1]


def test_a_task_without_a_limit_has_none():
    state = make_engine(make_task("a", 10)).tasks["a"]
    assert (state.weakly_hard, state.worth) == (None, 1.0)
