# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from campaigns import make_campaign
from timing_traces import read_made

from jetson_dnn_rt.lab.report.advice import advise_cohort, advise_load, advise_task, describe_task
from jetson_dnn_rt.lab.report.budgets import analyse_recording
from jetson_dnn_rt.lab.report.report import make_report
from jetson_dnn_rt.tasks import Outcome

pytest.importorskip("pyarrow")


def say(recording, name):
    return " ".join(advise_task(recording.tasks[name], analyse_recording(recording, {})))


def test_nothing_to_do_about_a_task_without_misses(tmp_path):
    recording = read_made(tmp_path, count=60)
    assert say(recording, "detector") == ""
    text = " ".join(describe_task(recording.tasks["detector"]))
    assert text.startswith("All 60 frames had their result within 33.0 ms.")
    assert "first 10 results count as warm-up" in text


def test_a_bad_spell_is_described_and_its_time_named(tmp_path):
    recording = read_made(tmp_path, count=200, bad_from=120, bad_count=20)
    task = recording.tasks["segmenter"]
    text = " ".join(describe_task(task))
    assert f"{int(task.missed.sum())} of 200 frames had no result within 45.0 ms" in text
    assert "20 times the measured time did not fit" in text
    assert "Misses come in bursts" in text
    assert "at 4.0 s in the timeline" in say(recording, "segmenter")


def test_a_task_that_is_too_slow_by_itself(tmp_path):
    recording = read_made(tmp_path, count=150, bad_from=50, bad_count=5)
    task = recording.tasks["segmenter"]
    assert task.missed.any()
    hurried = replace(task, deadline_ns=np.full(len(task), 12_000_000))
    text = say(replace(recording, tasks={"segmenter": hurried}), "segmenter")
    assert "scheduling cannot help" in text
    assert "(p99) of its 12.0 ms" in text
    few = read_made(tmp_path / "few", count=100, bad_from=50, bad_count=5)
    hurried = replace(few.tasks["segmenter"], deadline_ns=np.full(100, 12_000_000))
    text = say(replace(few, tasks={"segmenter": hurried}), "segmenter")
    assert "(highest seen) of its 12.0 ms" in text


def under_load(recording, load, cores=2, source="run"):
    machine = {"load_average_1min": load, "cores": cores}
    metadata = replace(recording.metadata, machine=machine, source=source)
    return replace(recording, metadata=metadata)


def test_other_load_comes_first_among_the_causes(tmp_path, monkeypatch):
    monkeypatch.setattr("jetson_dnn_rt.lab.report.style._render", lambda draw, layout: b"PNG")
    recording = read_made(tmp_path, count=100, slowdown=1.8)
    loaded = under_load(recording, 3.02)
    report = make_report([loaded], lambda sample: make_campaign(sample.title), title="")
    first, second, *_ = report.advice
    assert "3.0 programs on average wanted its 2 cores" in first
    assert second.startswith("More work arrives")
    for quiet in (recording, under_load(recording, 1.9), under_load(recording, 3.0, cores=8)):
        assert advise_load(quiet) == []
    assert advise_load(under_load(recording, 3.0, source="simulate")) == []
    assert advise_load(under_load(read_made(tmp_path / "fits", count=60), 3.0)) == []


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
    response = task.response_ns + 20_000_000
    changed = replace(task, outcome=outcome, waiting_ns=waiting, response_ns=response)
    text = " ".join(advise_task(changed, None))
    assert "for other tasks" in text


@pytest.mark.parametrize(
    ("count", "outcome", "reason", "advice", "description"),
    [
        (1, Outcome.FAILED, "NaN in stage", "1 frame ended in an error", "once “NaN in stage”"),
        (3, Outcome.SKIPPED, "stale", "too old on arrival", "3 times the frame was too old"),
    ],
)
def test_errors_and_old_frames_come_first(tmp_path, count, outcome, reason, advice, description):
    task = read_made(tmp_path, count=60).tasks["detector"]
    task.outcome[5 : 5 + count] = list(Outcome).index(outcome)
    task.reasons[f"{outcome.value}: {reason}"] = count
    (text,) = advise_task(task, None)
    assert advice in text
    assert outcome is not Outcome.FAILED or f"“{reason}”" in text
    assert description in " ".join(describe_task(task))
