# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Profiles of a board whose truth is known, from measuring to tables, with interruptions."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest
from fake_boards import IDLE_SHARE, MODEL, SCRIPT_NS, FakeBoard
from sysfs_trees import TREES, FakeKernel, read_all, write_tree

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.profile.clock_model import choose_points
from jetson_dnn_rt.lab.profile.journal import ALONE, Journal
from jetson_dnn_rt.lab.profile.profiling import ProfiledTask, Profiler
from jetson_dnn_rt.lab.profile.tables import (
    find_presets,
    make_measured_tables,
    make_predicted_tables,
)
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.platforms.boards import PowerMode, tx2_space, xavier_space
from jetson_dnn_rt.platforms.clocks import ClockDomain, ClockOption, ClockSpace
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.tasks import Stage
from jetson_dnn_rt.variants.measuring.timing import DISCARDED_RUNS
from jetson_dnn_rt.variants.running.variant_set import VariantSet

KEY = ("t", "full@null")
FRAMES = [Frame(np.full((8, 8, 3), 50 * i, np.uint8), "bgr8", 7 * i, i) for i in range(3)]


@pytest.fixture
def make():
    opened = []

    def build(space, tasks=1, **options):
        board = FakeBoard(space, **options)
        profiled = []
        for number in range(tasks):
            variants = VariantSet(TaskConfig(), load_model(MODEL), clock=board)
            opened.append(variants)
            name = "t" if number == 0 else f"t{number}"
            profiled.append(ProfiledTask(name, variants, 30_000_000, 40_000_000))
        return board, Profiler(profiled, FRAMES, board, board)

    yield build
    for variants in opened:
        variants.close()


def test_present_clocks_are_measured_and_not_touched(make):
    board, profiler = make(tx2_space())
    (point,) = profiler.measure_points(None, 7)
    assert board.applied == []
    assert point.position == board.present
    expected = np.rint(np.array(SCRIPT_NS) * board.slowdown[board.present])
    np.testing.assert_array_equal(point.times_ns[KEY], np.tile(expected, (7, 1)))


def test_each_point_is_set_left_to_settle_and_measured(make):
    board, profiler = make(tx2_space(), tasks=2)
    start_ns = board.now_ns()
    points = profiler.measure_points([11_759, 17, 3000], 6, 4)
    assert board.applied == [11_759, 17, 3000]
    assert [point.position for point in points] == board.applied
    assert [len(point.times_ns[KEY]) for point in points] == [6, 4, 4]
    for point in points:
        assert set(point.times_ns) == {KEY, ("t1", "full@null")}
        expected = np.rint(np.array(SCRIPT_NS) * board.slowdown[point.position])
        np.testing.assert_array_equal(point.times_ns[KEY][-1], expected)
        watts = board.power_now[point.position]
        assert point.power_w[KEY] == pytest.approx(watts, rel=1e-6)
        assert point.idle_w == pytest.approx(IDLE_SHARE * watts, rel=1e-6)
    # Three points, each of 3 x 1 s for power and at least 50 ms to settle.
    assert board.now_ns() - start_ns > 9 * 10**9 + 3 * 50_000_000


def test_what_the_board_gives_instead_is_measured_as_that_once(make, caplog):
    board, profiler = make(tx2_space(), unreachable={17: 18, 20: 18})
    with caplog.at_level(logging.WARNING):
        points = profiler.measure_points([11_759, 17, 20], 2)
    assert [point.position for point in points] == [11_759, 18]
    assert f"requested {board.space.describe(17)}, the board set" in caplog.text


def test_readings_of_power_are_averaged(make):
    board, profiler = make(tx2_space(), meter="power")
    (point,) = profiler.measure_points(None, 1)
    watts = board.power_now[board.present]
    # On a thread of its own, while the board's clock jumps: between idle and busy.
    assert IDLE_SHARE * watts <= point.idle_w <= watts
    assert IDLE_SHARE * watts <= point.power_w[KEY] <= watts


def test_power_that_nobody_can_read_is_none(make):
    _, profiler = make(tx2_space(), meter="none")
    (point,) = profiler.measure_points(None, 1)
    assert (dict(point.power_w), point.idle_w) == ({}, None)


def test_progress_goes_from_nothing_to_nearly_all(make):
    board, made = make(tx2_space(), tasks=2, meter="none")
    said: list[tuple[str, int, int]] = []
    profiler = Profiler(made.tasks, FRAMES, board, board, lambda *step: said.append(step))
    profiler.measure_points([5, 6], 120, 10)
    steps = [(done, total) for phase, done, total in said if phase == "measuring"]
    assert steps == [(d, 260) for d in (0, 50, 100, 120, 170, 220, 240, 250)]
    said.clear()
    profiler.measure_times(20)
    assert said == [("measuring", 0, 40), ("measuring", 20, 40)]


def test_a_variant_agrees_with_itself(make):
    _, profiler = make(tx2_space(), tasks=2)
    agreements = profiler.compare()
    assert set(agreements) == {KEY, ("t1", "full@null")}
    # A null network finds nothing to agree on.
    assert all((a.value, a.reference) == (None, "full@null") for a in agreements.values())


def test_a_variant_that_fails_is_named(make):
    _, profiler = make(tx2_space())
    (task,) = profiler.tasks
    pipeline = task.variants.pipelines["full@null"]

    def fail(work):
        raise RuntimeError("no memory")

    pipeline.stages = (*pipeline.stages[:2], Stage("decode", fail))
    with pytest.raises(ModelError, match="task t fails while it is timed: no memory"):
        profiler.measure_points(None, 1)
    with pytest.raises(ModelError, match="t full@null fails on frame 0: no memory"):
        profiler.compare()


def test_tables_of_measured_points_are_those_points_slow_to_fast(make):
    board, profiler = make(tx2_space())
    max_n, max_q = find_presets(board)
    points = profiler.measure_points([max_q, max_n, 0], 5)
    result = make_measured_tables(profiler, points)
    assert result.clocks.indices.tolist() == [0, max_q, max_n]
    assert (result.clocks.max_n, result.clocks.max_q) == (2, 1)
    assert result.power_measured
    assert result.time_error is result.power_error is None
    (table,) = result.tables
    np.testing.assert_allclose(
        table.slowdown[0], board.slowdown[result.clocks.indices].T, rtol=1e-5
    )
    watts = board.power_now[result.clocks.indices]
    np.testing.assert_allclose(table.power_w[0], np.tile(watts, (3, 1)), rtol=1e-6)
    np.testing.assert_allclose(result.clocks.idle_w, IDLE_SHARE * watts, rtol=1e-6)
    assert table.times_ns[0, :, 0].tolist() == list(SCRIPT_NS)  # at the fastest
    assert (table.deadline_ns, table.period_ns) == (30_000_000, 40_000_000)
    assert table.accuracy(0) == 1.0


def test_a_board_is_known_everywhere_from_50_points(make):
    space = xavier_space(masks=False)
    board, profiler = make(space, tasks=2)
    positions = choose_points(space, include=find_presets(board))
    assert len(positions) == 50
    points = profiler.measure_points(positions.tolist(), 8, 5)
    result = make_predicted_tables(profiler, points)
    clocks = result.clocks
    assert 10 < len(clocks) < 100
    assert clocks.indices[-1] == space.fastest
    assert (clocks.indices[clocks.max_n], clocks.indices[clocks.max_q]) == find_presets(board)
    assert len(result.tables) == 2
    for table in result.tables:
        np.testing.assert_allclose(table.slowdown[0], board.slowdown[clocks.indices].T, rtol=1e-3)
        assert (table.power_w >= clocks.idle_w).all()
        error = np.abs(table.power_w[0, 0] / board.power_now[clocks.indices] - 1.0)
        assert result.power_error is not None
        assert np.quantile(error, 0.95) <= 1.5 * result.power_error.p95
        assert table.times_ns[0, :, 0].tolist() == list(SCRIPT_NS)
    assert result.time_error is not None
    assert result.time_error.max < 1e-3
    assert result.time_error.points == 50


def test_without_power_the_frequencies_are_still_known(make):
    board, profiler = make(xavier_space(masks=False), meter="none")
    points = profiler.measure_points(choose_points(board.space, 40).tolist(), 3)
    result = make_predicted_tables(profiler, points)
    assert not result.power_measured
    assert result.power_error is None
    np.testing.assert_allclose(
        result.tables[0].slowdown[0], board.slowdown[result.clocks.indices].T, rtol=1e-3
    )


def test_a_board_that_never_reached_its_fastest_clocks_is_refused(make):
    board, profiler = make(tx2_space(), unreachable={11_759: 11_755})
    with pytest.raises(ConfigurationError, match=r"does not reach .*nvpmodel -m 0"):
        profiler.measure_points([11_759, 1, 2], 2, need_first=True)
    assert board.applied == [11_759]  # at once, not after all the others
    points = profiler.measure_points(choose_points(board.space).tolist(), 2)
    with pytest.raises(ConfigurationError, match=r"fastest clocks .*nvpmodel -m 0"):
        make_predicted_tables(profiler, points)


@pytest.mark.parametrize(
    ("names", "max_n", "max_q"),
    [
        (["MAXN", "MAXQ", "MAXP_CORE_ALL"], "MAXN", "MAXQ"),
        (["MAXN", "MODE_30W_ALL", "MODE_10W", "MODE_15W"], "MAXN", "MODE_10W"),
        (["15W", "7W"], "15W", "7W"),
        (["25W", "MAXN_SUPER", "15W"], "MAXN_SUPER", "15W"),
    ],
)
def test_presets_are_found_by_the_names_that_boards_give_them(names, max_n, max_q):
    board = FakeBoard(tx2_space())
    gpu = board.space.domains[2].options
    board.modes = tuple(PowerMode(name, {"gpu": gpu[i]}) for i, name in enumerate(names))
    assert find_presets(board) == (board.mode_index(max_n), board.mode_index(max_q))


def test_a_board_without_modes_has_its_ends_as_presets():
    options = tuple(ClockOption(f * 10**8) for f in range(1, 5))
    space = ClockSpace([ClockDomain("cpu", options), ClockDomain("gpu", options)])
    board = FakeBoard(space)
    board.modes = ()
    assert find_presets(board) == (space.fastest, space.slowest)


class JumpingClock:
    """Time passes by itself, a little, and whoever waits is there at once."""

    def __init__(self):
        self._now_ns = 0

    def now_ns(self):
        self._now_ns += 1000
        return self._now_ns

    def sleep_until_ns(self, time_ns):
        self._now_ns = max(self._now_ns, time_ns)


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_a_recorded_board_is_set_measured_and_left_as_it_was(tree, tmp_path):
    write_tree(tmp_path / "root", tree)
    before = read_limits(tmp_path / "root")
    clock = JumpingClock()
    variants = VariantSet(TaskConfig(), load_model("null:2"), clock=clock)
    task = ProfiledTask("t", variants, 30_000_000, 40_000_000)
    with detect(
        tmp_path / "root",
        allow_writes=True,
        files=FakeKernel(tmp_path / "root"),
        state_dir=tmp_path / "state",
    ) as platform:
        profiler = Profiler([task], FRAMES, platform, clock)
        wanted = list(dict.fromkeys([platform.space.fastest, *find_presets(platform), 0]))
        points = profiler.measure_points(wanted, 3, need_first=True)
        assert [point.position for point in points] == wanted
        result = make_measured_tables(profiler, points)
    variants.close()
    assert result.power_measured
    assert result.clocks.idle_w.min() > 0.0
    assert read_limits(tmp_path / "root") == before


def read_limits(root):
    """All files but those that say where between its limits a clock happens to be."""
    return {name: text for name, text in read_all(root).items() if "cur_freq" not in name}


class InterruptedProfileError(Exception):
    pass


class FragileJournal(Journal):
    """The process dies after so many pieces."""

    left = 10**9

    def put(self, name, value):
        if self.left == 0:
            raise InterruptedProfileError
        self.left -= 1
        super().put(name, value)


@pytest.mark.parametrize("pieces", range(1, 9))
def test_interrupted_anywhere_it_ends_with_the_same_result(pieces, make, tmp_path):
    board, made = make(tx2_space())
    # Agreement, 3 + 2 chunks, 2 points, and 3 chunks beside a load.
    path = tmp_path / "progress.jsonl"
    steps: list[tuple[int, int]] = []

    def profile(journal):
        steps.clear()

        def progress(phase, done, total):
            if phase.startswith("measuring"):
                steps.append((done, total))

        profiler = Profiler(made.tasks, FRAMES, board, board, progress, journal)
        profiler.compare()
        points = profiler.measure_points([11_759, 17], 120, 60)
        beside = profiler.measure_times(101, "cpu")
        times = [point.times_ns[KEY] for point in points] + [beside[KEY]]
        return times, [dict(point.power_w) for point in points]

    with FragileJournal(path) as journal:
        journal.begin({"runs": 120})
        journal.left = pieces
        with pytest.raises(InterruptedProfileError):
            profile(journal)
    spent = len(board.applied)
    with Journal(path) as journal:
        assert journal.resumed == pieces
        times, power = profile(journal)
        again = journal.pieces
    assert [len(rows) for rows in times] == [120, 60, 101]
    for rows, position in zip(times, [11_759, 17], strict=False):
        expected = [round(v) for v in np.array([1e6, 4e6, 2e6]) * board.slowdown[position]]
        assert (rows == expected).all()
    assert [watts[KEY] for watts in power] == pytest.approx(board.power_now[[11_759, 17]].tolist())
    # Clocks of finished points are not touched again.
    assert len(board.applied) - spent == 2 - (pieces >= 5) - (pieces >= 8)
    # Progress counts the rest only, so that its estimate of the time left holds.
    assert all(done <= total for done, total in steps)
    with Journal(path) as journal:
        assert profile(journal)[0][2].tolist() == times[2].tolist()
        assert steps == []
        assert journal.pieces == again


def test_cold_runs_and_frames_are_in_the_journal(make):
    _, profiler = make(tx2_space())
    profiler.measure_points(None, 60)
    chunks = list(profiler.journal.chunks(ALONE))
    assert [chunk.first for chunk in chunks] == [0, 50]
    for chunk, count in zip(chunks, (50, 10), strict=True):
        runs = chunk.runs["full@null"]
        assert [run.cold for run in runs] == [True] * DISCARDED_RUNS + [False] * count
        assert "MHz" in chunk.clocks
    # All frames come in turn, the second chunk goes on with the next one.
    sequences = [run.sequence for run in chunks[1].runs["full@null"]]
    assert sequences[:4] == [2, 0, 1, 2]
    assert {run.stamp_ns for run in chunks[0].runs["full@null"]} == {0, 7, 14}
    stamps = [run.stamps_ns for chunk in chunks for run in chunk.runs["full@null"]]
    assert all(a[-1] <= b[0] for a, b in itertools.pairwise(stamps))


def test_frames_whose_condition_did_not_hold_are_dropped(make):
    calls = iter([None, InterruptedProfileError()])

    def check():
        error = next(calls)
        if error is not None:
            raise error

    _, profiler = make(tx2_space())
    with pytest.raises(InterruptedProfileError):
        profiler.measure_times(150, "memory", check=check)
    assert [chunk.first for chunk in profiler.journal.chunks("memory")] == [0]
