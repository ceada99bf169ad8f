"""Which splits of the cores are tried, how a trial runs, and which split is taken."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.sharing import core_split
from jetson_dnn_rt.runtime.sharing.core_split import (
    CAPACITY_MARGIN,
    COLD_RUNS,
    LEAST_RUNS,
    MET_MARGIN,
    RUNS,
    CoreSplit,
    SplitFigures,
    choose_split,
    describe_splits,
    find_capacity_hz,
    find_slowdown,
    find_split,
    list_splits,
    run_side_by_side,
)
from jetson_dnn_rt.runtime.sharing.forecast import Forecast, ForecastTask
from jetson_dnn_rt.tasks import Stage

MS = 1_000_000
FRAME = Frame(np.zeros((1, 1, 3), np.uint8), "bgr8", 0, 0)


def figures(
    workers: int,
    threads: int,
    met: int = 100,
    capacity_hz: float = 50.0,
    response_ms: float = 20.0,
) -> SplitFigures:
    return SplitFigures(
        CoreSplit(workers, threads), {"a": 8.0}, capacity_hz, Forecast(100, met, response_ms)
    )


@pytest.mark.parametrize(
    ("cores", "tasks", "splits"),
    [
        (1, 4, "1 x 1"),
        (2, 2, "1 x 2, 2 x 1"),
        (2, 1, "1 x 2"),
        (4, 2, "1 x 4, 2 x 2"),
        # Four threads' worth of cores for three tasks: three workers, a core each.
        (4, 3, "1 x 4, 2 x 2, 3 x 1"),
        (6, 8, "1 x 6, 2 x 3, 3 x 2, 6 x 1"),
        (12, 8, "1 x 12, 2 x 6, 3 x 4, 4 x 3, 6 x 2, 8 x 1"),
        (7, 2, "1 x 7, 2 x 1"),
    ],
)
def test_splits_are_the_divisors_as_far_as_there_are_tasks(
    cores: int, tasks: int, splits: str
) -> None:
    assert ", ".join(map(str, list_splits(cores, tasks))) == splits


@given(cores=st.integers(1, 256), tasks=st.integers(1, 40))
def test_no_split_takes_more_threads_than_cores(cores: int, tasks: int) -> None:
    splits = list_splits(cores, tasks)
    assert splits[0] == CoreSplit(1, cores)
    assert all(split.workers * split.threads <= cores for split in splits)
    assert all(split.workers <= tasks for split in splits)
    assert len(set(splits)) == len(splits)


@pytest.mark.parametrize(("cores", "tasks"), [(0, 1), (1, 0)])
def test_there_is_a_core_and_a_task(cores: int, tasks: int) -> None:
    with pytest.raises(ValueError, match="cores and tasks must be >= 1"):
        list_splits(cores, tasks)


def test_met_frames_go_before_capacity_and_capacity_before_response() -> None:
    one, two, four = figures(1, 4), figures(2, 2), figures(4, 1)
    # All the same: the fewest workers.
    assert choose_split([one, two, four]) is one
    fast = figures(2, 2, response_ms=10.0)
    assert choose_split([one, fast, four]) is fast
    # A few per cent of capacity are noise, more are not.
    assert choose_split([one, fast, figures(4, 1, capacity_hz=52.0)]) is fast
    wide = figures(4, 1, capacity_hz=60.0)
    assert choose_split([one, fast, wide]) is wide
    # Nothing is worth a missed deadline.
    assert choose_split(
        [figures(1, 4, met=90), fast, figures(4, 1, met=95, capacity_hz=90.0)]
    ) is (fast)


@given(
    st.lists(
        st.builds(
            figures,
            st.integers(1, 8),
            st.integers(1, 8),
            st.integers(0, 100),
            st.floats(0.1, 1e3),
            st.floats(0.1, 1e3),
        ),
        min_size=1,
    )
)
def test_what_is_chosen_is_near_the_best(tried: list[SplitFigures]) -> None:
    chosen = choose_split(tried)
    most = max(one.forecast.met_share for one in tried)
    assert chosen.forecast.met_share >= most - MET_MARGIN
    rivals = [one for one in tried if one.forecast.met_share >= most - MET_MARGIN]
    best_hz = max(one.capacity_hz for one in rivals)
    assert chosen.capacity_hz >= best_hz * (1 - CAPACITY_MARGIN)


def test_the_table_marks_what_is_taken() -> None:
    lines = describe_splits([figures(1, 2, met=98), figures(2, 1)])
    assert lines == [
        "   1 x 2: 98.0 % of the frames met, 50.0 frames/s, response 20.0 ms; a 8.0 ms",
        "-> 2 x 1: 100.0 % of the frames met, 50.0 frames/s, response 20.0 ms; a 8.0 ms",
    ]


# -- the trial ---------------------------------------------------------------------------------


class HandClock(SteadyClock):
    """Moves when a stage moves it."""

    def __init__(self) -> None:
        self.time_ns = 0

    def now_ns(self) -> int:
        return self.time_ns

    def stage(self, name: str, *times_ms: int) -> Stage:
        left = list(times_ms)

        def run(work: Any) -> None:
            self.time_ns += (left.pop(0) if len(left) > 1 else left[0]) * MS

        return Stage(name, run)


def test_one_worker_takes_the_tasks_in_turn_and_cold_runs_do_not_count() -> None:
    clock = HandClock()
    pipelines = {
        "a": [clock.stage("first", 90, 90, 2), clock.stage("last", 1)],
        "b": [clock.stage("only", 90, 90, 5)],
    }
    times = run_side_by_side(pipelines, [FRAME, FRAME], 1, clock)
    assert times["a"] == [(2 * MS, 1 * MS)] * len(times["a"])
    assert times["b"] == [(5 * MS,)] * len(times["b"])
    assert {len(runs) for runs in times.values()} <= {RUNS, RUNS + 1}
    assert find_capacity_hz(times, 1) == 250.0
    assert find_capacity_hz(times, 2) == 500.0


def test_a_slow_task_ends_the_trial_after_few_runs() -> None:
    clock = HandClock()
    times = run_side_by_side({"a": [clock.stage("only", 3000)]}, [FRAME], 1, clock)
    assert times == {"a": [(3000 * MS,)] * LEAST_RUNS}


@pytest.mark.parametrize(("workers", "tasks"), [(2, 2), (2, 3), (3, 3)])
def test_so_many_frames_are_always_at_it_and_no_task_twice(workers: int, tasks: int) -> None:
    inside: dict[str, int] = {}
    most, wrong = [0], []
    lock = threading.Lock()
    # Nobody gets on before all workers are in a stage.
    together = threading.Barrier(workers, timeout=20.0)

    def make(name: str) -> Stage:
        calls = [0]

        def run(work: Any) -> None:
            with lock:
                inside[name] = inside.get(name, 0) + 1
                most[0] = max(most[0], sum(inside.values()))
                if inside[name] > 1:
                    wrong.append(name)
                calls[0] += 1
            if calls[0] <= COLD_RUNS:
                together.wait()
            with lock:
                inside[name] -= 1

        return Stage("only", run)

    # With tasks in excess the last cold run of one may find the others done.
    if tasks > workers:
        together = threading.Barrier(1)
    names = [f"t{n}" for n in range(tasks)]
    pipelines = {name: [make(name)] for name in names}
    times = run_side_by_side(pipelines, [FRAME] * tasks, workers, SteadyClock())
    assert not wrong
    assert most[0] <= workers
    if tasks == workers:
        assert most[0] == workers
    assert all(len(runs) >= RUNS for runs in times.values())


def test_a_task_that_fails_ends_the_trial_with_its_name() -> None:
    def fail(work: Any) -> None:
        raise RuntimeError("no memory left")

    clock = HandClock()
    pipelines = {"a": [clock.stage("only", 1)], "b": [Stage("only", fail)]}
    with pytest.raises(ModelError, match="task b fails on its warm-up frame: no memory left"):
        run_side_by_side(pipelines, [FRAME, FRAME], 2, clock)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_have_a_task_each(workers: int) -> None:
    with pytest.raises(ValueError, match=r"workers must be in \[1, 1\]"):
        run_side_by_side({"a": []}, [FRAME], workers, SteadyClock())


class Script:
    """Stands for `run_side_by_side`: frame times in ms by the number of workers and threads."""

    def __init__(self, times_ms: Mapping[tuple[int, int], float]) -> None:
        self.times_ms = times_ms
        self.threads = 1
        self.events: list[str] = []

    def run(
        self, pipelines: Mapping[str, Any], frames: Any, workers: int, clock: Any
    ) -> dict[str, list[tuple[int, ...]]]:
        self.events.append(f"run {workers} x {self.threads}")
        time_ns = int(self.times_ms[workers, self.threads] * MS)
        return {task: [(time_ns,)] * 3 for task in pipelines}

    @contextmanager
    def load(self, split: CoreSplit) -> Iterator[Mapping[str, Sequence[Stage]]]:
        self.threads = split.threads
        self.events.append(f"load {split}")
        yield {"a": [], "b": []}
        self.events.append(f"close {split}")


def tasks(period_ms: int) -> list[ForecastTask]:
    return [ForecastTask(name, period_ms * MS, period_ms * MS, ()) for name in ("a", "b")]


def test_the_split_whose_deadlines_hold_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # Both threads halve a frame: 2 x 1 has no more capacity, but one frame waits for the other.
    script = Script({(1, 2): 6.0, (2, 1): 12.0})
    monkeypatch.setattr(core_split, "run_side_by_side", script.run)
    said: list[str] = []
    arguments: Any = (script.load, [FRAME] * 2)
    split = find_split(2, *arguments, tasks(20), "edf", HandClock(), said.append)
    assert split == CoreSplit(1, 2)
    assert script.events == [
        "load 1 x 2", "run 1 x 2", "close 1 x 2", "load 2 x 1", "run 2 x 1", "close 2 x 1",
    ]  # fmt: skip
    first, *table = said[0].splitlines()
    assert first.startswith("threads: auto takes 1 x 2 (workers x threads)")
    assert [line[:9] for line in table] == ["-> 1 x 2:", "   2 x 1:"]
    # Deadlines that only two workers keep.
    script.times_ms = {(1, 2): 9.0, (2, 1): 14.0}
    split = find_split(2, *arguments, tasks(16), "edf", HandClock(), said.append)
    assert split == CoreSplit(2, 1)


def test_no_trial_where_there_is_no_choice() -> None:
    script, said = Script({}), list[str]()
    split = find_split(
        1, script.load, [FRAME] * 2, tasks(20), "edf", HandClock(), said.append
    )  # fmt: skip
    assert split == CoreSplit(1, 1)
    assert script.events == []
    assert said == [
        "threads: auto takes 1 x 1 (workers x threads): 1 core(s) and 2 task(s) leave no choice"
    ]


def test_slow_down_is_over_one_worker_and_never_a_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({(1, 1): 10.0, (2, 1): 15.0, (3, 1): 9.0})
    monkeypatch.setattr(core_split, "run_side_by_side", script.run)
    pipelines: dict[str, list[Stage]] = {"a": [], "b": [], "c": []}
    found = find_slowdown(pipelines, [FRAME] * 3, 3, HandClock())
    assert found == {1: 1.0, 2: 1.5, 3: 1.0}
