# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`fidelity` on a recording that the simulator itself made."""

from dataclasses import replace
from pathlib import Path

import benches
import pytest
from traced_jobs import write_part

from benchmarks.fidelity import compare
from benchmarks.harness import main as harness
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import load_scenario
from jetson_dnn_rt.lab.simulate.session import simulate
from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame
from jetson_dnn_rt.lab.simulate.tally import Tally
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.summary import RunSummary

SCENARIOS = Path(__file__).resolve().parents[2] / "config/scenarios"


@pytest.fixture
def trace(tmp_path):
    """Six hundred frames, of which some miss their deadline."""
    path = tmp_path / "tight.yaml"
    path.write_text(
        "board: tx2\nframes: 600\nnoise: {frame_sigma: 0.05, frame_correlation: 0.8, "
        "stage_sigma: 0.02}\ntasks: [{network: alexnet, deadline_ms: 4.9}]\n",
        encoding="utf-8",
    )
    records = []
    simulate(
        Laboratory(load_scenario(path, (SCENARIOS,))),
        "static",
        observer=lambda frame: records.append(frame.record),
    )
    return write_part(tmp_path / "jobs-0000.parquet", records)


def test_a_replay_is_like_its_recording(trace):
    options = "--disciplines edf --seeds 10 --trace"
    _, result = benches.run("fidelity", options, str(trace))
    assert [(row["task"], row["replay"]) for row in result["rows"]] == [
        ("all", "resampled"),
        ("alexnet", "resampled"),
        ("all", "in order"),
        ("alexnet", "in order"),
    ]
    for row in result["rows"]:
        assert 0.01 < row["miss_ratio"] < 0.4
        assert row["miss_difference"] <= 0.02
        assert row["p99_difference"] <= 0.10
        assert row["passed"]
    assert result["passed"] is True


def test_a_replay_that_is_not_like_its_recording_fails(trace):
    """Here outcomes do not follow from the times."""
    jobs = [job.record for job in open_trace(trace).jobs()]
    for index in range(0, len(jobs), 2):
        if jobs[index].outcome is Outcome.MET:
            jobs[index] = replace(jobs[index], outcome=Outcome.LATE)
    write_part(trace, jobs)
    code, _ = benches.run("fidelity", "--disciplines edf --seeds 3 --trace", str(trace))
    assert code == 1


def test_one_task_beyond_the_bar_fails(trace):
    """Pooled with twenty times as many frames of another task it would pass."""
    summary, tally = RunSummary(), Tally()
    for index, traced in enumerate(open_trace(trace).jobs()):
        for task in ("few", *["many"] * 20):
            job = replace(traced.record, task=task)
            summary.add(job)
            if task == "few" and index % 5 == 0 and job.outcome is Outcome.MET:
                job = replace(job, outcome=Outcome.LATE)
            tally.add(SimulatedFrame(job, 1.0, 0.0))
    rows = {row["task"]: row["passed"] for row in compare(summary, [tally])}
    assert rows == {"all": True, "few": False, "many": True}


def test_a_trace_has_one_discipline(capsys):
    options = ["--disciplines", "edf", "fifo", "--trace", "x"]
    assert harness.main(["fidelity", *options]) == 2
    assert "the one that it was recorded with" in capsys.readouterr().err
