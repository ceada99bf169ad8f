"""A profile that is broken off goes on where it was."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_boards import MODEL, FakeBoard

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.profile.journal import FileJournal, Journal
from jetson_dnn_rt.lab.profile.profiling import ProfiledTask, Profiler
from jetson_dnn_rt.lab.profile.runs import (
    ALONE,
    Chunk,
    RunsKey,
    list_chunks,
    load_chunk,
)
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.platforms.boards import tx2_space
from jetson_dnn_rt.variants.measuring.timing import DISCARDED_RUNS, TimedRun
from jetson_dnn_rt.variants.running.variant_set import VariantSet

KEY = ("t", "full@null")
FRAMES = [Frame(np.full((8, 8, 3), 50 * i, np.uint8), "bgr8", 7 * i, i) for i in range(3)]


@pytest.fixture
def board() -> FakeBoard:
    return FakeBoard(tx2_space())


@pytest.fixture
def task(board: FakeBoard) -> Iterator[ProfiledTask]:
    variants = VariantSet(
        load_model(MODEL), ["full@null"], DecoderSettings(), threads=1, clock=board
    )  # type: ignore[arg-type]
    yield ProfiledTask("t", variants, 30_000_000, 40_000_000)
    variants.close()


class BrokenOffError(Exception):
    pass


class FragileJournal(FileJournal):
    """The process dies behind so many pieces."""

    left = 10**9

    def put(self, name: str, value: object) -> None:
        if self.left == 0:
            raise BrokenOffError
        self.left -= 1
        super().put(name, value)


def test_chunks_come_back_as_they_were() -> None:
    journal = Journal()
    runs = {"a": [TimedRun(3, 99, True, (1, 2, 5)), TimedRun(4, 100, False, (7, 9, 20))]}
    key = RunsKey("cohort:3", "current", "t", 50)
    journal.put(str(key), Chunk(key, "gpu 1300 MHz", runs).to_json())
    assert load_chunk(journal, key) == Chunk(key, "gpu 1300 MHz", runs)
    assert load_chunk(journal, RunsKey(ALONE, "current", "t", 50)) is None
    assert list(list_chunks(journal, "cohort:3")) == [Chunk(key, "gpu 1300 MHz", runs)]
    assert list(list_chunks(journal, "cohort")) == []
    assert runs["a"][1].times_ns == (2, 11)


@pytest.mark.parametrize("pieces", range(1, 9))
def test_broken_off_anywhere_it_ends_as_if_it_had_not_been(
    pieces: int, board: FakeBoard, task: ProfiledTask, tmp_path: Path
) -> None:
    # Agreement, 3 + 2 chunks, 2 points, and 3 chunks beside a load.
    path = tmp_path / "progress.jsonl"
    said: list[tuple[int, int]] = []

    def profile(journal: Journal) -> tuple[list[np.ndarray], list[dict]]:
        said.clear()
        profiler = Profiler(
            [task], FRAMES, board, board,
            lambda phase, *step: said.append(step) if phase.startswith("measuring") else None,
            journal,
        )  # type: ignore[arg-type]  # fmt: skip
        profiler.compare()
        points = profiler.measure_points([11_759, 17], 120, 60)
        beside = profiler.measure_times(101, "cpu")
        times = [point.times_ns[KEY] for point in points] + [beside[KEY]]
        return times, [dict(point.power_w) for point in points]

    journal = FragileJournal(path, {"runs": 120})
    journal.left = pieces
    with pytest.raises(BrokenOffError):
        profile(journal)
    journal.close()
    spent = len(board.applied)
    with FileJournal(path, {"runs": 120}) as journal:
        assert journal.resumed == pieces
        times, power = profile(journal)
        again = dict(journal.items())
    assert [len(rows) for rows in times] == [120, 60, 101]
    for rows, position in zip(times, [11_759, 17], strict=False):
        expected = [round(v) for v in np.array([1e6, 4e6, 2e6]) * board.slowdown[position]]
        assert (rows == expected).all()
    assert [watts[KEY] for watts in power] == pytest.approx(board.power_now[[11_759, 17]].tolist())
    # Clocks of finished points are not touched again.
    assert len(board.applied) - spent == 2 - (pieces >= 5) - (pieces >= 8)
    # Nothing but what is left is announced, so that the time left is true of it.
    assert all(done <= total for done, total in said)
    with FileJournal(path, {"runs": 120}) as journal:
        assert profile(journal)[0][2].tolist() == times[2].tolist()
        assert said == []
        assert dict(journal.items()) == again


def test_cold_runs_and_frames_are_in_the_journal(board: FakeBoard, task: ProfiledTask) -> None:
    profiler = Profiler([task], FRAMES, board, board)  # type: ignore[arg-type]
    profiler.measure_points(None, 60)
    chunks = list(list_chunks(profiler.journal, ALONE))
    assert [chunk.key.first for chunk in chunks] == [0, 50]
    for chunk, count in zip(chunks, (50, 10), strict=True):
        runs = chunk.runs["full@null"]
        assert [run.cold for run in runs] == [True] * DISCARDED_RUNS + [False] * count
        assert "MHz" in chunk.description
    # All frames come in turn, the second chunk goes on with the next one.
    sequences = [run.sequence for run in chunks[1].runs["full@null"]]
    assert sequences[:4] == [2, 0, 1, 2]
    assert {run.stamp_ns for run in chunks[0].runs["full@null"]} == {0, 7, 14}
    stamps = [run.stamps_ns for chunk in chunks for run in chunk.runs["full@null"]]
    assert all(a[-1] <= b[0] for a, b in itertools.pairwise(stamps))


def test_frames_during_which_the_condition_did_not_hold_are_not_kept(
    board: FakeBoard, task: ProfiledTask
) -> None:
    calls = iter([None, BrokenOffError()])

    def check() -> None:
        error = next(calls)
        if error is not None:
            raise error

    profiler = Profiler([task], FRAMES, board, board)  # type: ignore[arg-type]
    with pytest.raises(BrokenOffError):
        profiler.measure_times(150, "memory", check=check)
    assert [chunk.key.first for chunk in list_chunks(profiler.journal, "memory")] == [0]
