from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from timing_traces import read_made

from jetson_dnn_rt.lab.report.advice import advise_cohort, advise_task, describe_task
from jetson_dnn_rt.lab.report.budgets import analyse_recording
from jetson_dnn_rt.lab.report.recording import Recording, TaskColumns, find_task_bursts
from jetson_dnn_rt.tasks import Outcome

pytest.importorskip("pyarrow")


def say(recording: Recording, name: str) -> str:
    task = recording.tasks[name]
    result = analyse_recording(recording, {})
    return " ".join(advise_task(task, find_task_bursts(task), result))


def describe(task: TaskColumns) -> str:
    return " ".join(describe_task(task, find_task_bursts(task)))


def test_nothing_to_do_about_a_task_without_misses(tmp_path):
    recording = read_made(tmp_path, count=60)
    assert say(recording, "detector") == ""
    text = describe(recording.tasks["detector"])
    assert text.startswith("All 60 frames had their result within 33.0 ms.")
    assert "first 10 results count as warm-up" in text


def test_a_bad_spell_is_described_and_its_time_named(tmp_path):
    recording = read_made(tmp_path, count=200, bad_from=120, bad_count=20)
    task = recording.tasks["segmenter"]
    text = describe(task)
    assert f"{int(task.missed.sum())} of 200 frames had no result within 45.0 ms" in text
    assert "20 times the measured time did not fit" in text
    assert "Misses come in bursts" in text
    assert "at 4.0 s in the timeline" in say(recording, "segmenter")


def test_a_task_that_is_too_slow_by_itself(tmp_path):
    recording = read_made(tmp_path, count=100, bad_from=50, bad_count=5)
    task = recording.tasks["segmenter"]
    assert task.missed.any()
    hurried = replace(task, deadline_ns=np.full(len(task), 12_000_000))
    text = say(replace(recording, tasks={"segmenter": hurried}), "segmenter")
    assert "scheduling cannot help" in text
    assert "(p99) of its 12.0 ms" in text


def test_overload_is_reported_once_for_all(tmp_path):
    recording = read_made(tmp_path, count=100, slowdown=1.8)
    result = analyse_recording(recording, {})
    assert result.mean_load > 1.0
    (text,) = advise_cohort(result)
    assert text.startswith("More work arrives than 1 worker can do")
    assert "segmenter" in text
    assert "More work arrives" not in say(recording, "segmenter")
    fits = read_made(tmp_path / "fits", count=100)
    assert advise_cohort(analyse_recording(fits, {})) == advise_cohort(None) == []


def test_waiting_for_others_is_told_from_running(tmp_path):
    recording = read_made(tmp_path, count=200, bad_from=120, bad_count=3)
    task = recording.tasks["detector"]
    outcome = task.outcome.copy()
    outcome[-1] = list(Outcome).index(Outcome.LATE)
    waiting = task.waiting_ns + 20_000_000
    changed = replace(
        task, outcome=outcome, waiting_ns=waiting, response_ns=task.response_ns + 20_000_000
    )
    text = " ".join(advise_task(changed, find_task_bursts(changed), None))
    assert "for other tasks" in text


def with_outcome(task: TaskColumns, places: slice, outcome: Outcome, reason: str) -> TaskColumns:
    """The same task, with other ends of some frames."""
    changed = task.outcome.copy()
    changed[places] = list(Outcome).index(outcome)
    task.reasons[reason] = len(changed[places])
    return replace(task, outcome=changed)


def test_errors_come_first(tmp_path):
    task = read_made(tmp_path, count=60).tasks["detector"]
    reason = "failed: NaN in stage inference"
    changed = with_outcome(task, slice(5, 6), Outcome.FAILED, reason)
    (text,) = advise_task(changed, find_task_bursts(changed), None)
    assert "1 frame ended in an error" in text
    assert "“NaN in stage inference”" in text
    assert "once “NaN in stage inference”" in describe(changed)


def test_old_frames_point_at_the_camera(tmp_path):
    task = read_made(tmp_path, count=60).tasks["detector"]
    changed = with_outcome(task, slice(5, 8), Outcome.SKIPPED, "skipped: stale")
    text = " ".join(advise_task(changed, find_task_bursts(changed), None))
    assert "too old on arrival" in text
