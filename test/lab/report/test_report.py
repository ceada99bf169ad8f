# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import pytest
from timing_traces import make_jobs, write_trace_of

from jetson_dnn_rt.cli.main import main
from jetson_dnn_rt.lab.report.command import find_parameter, label_trace, name_trace
from jetson_dnn_rt.traces.reader import open_trace

for library in ("pyarrow", "matplotlib", "scipy", "jinja2"):
    pytest.importorskip(library)


@pytest.fixture(autouse=True)
def blank_figures(monkeypatch):
    """Figures take seconds; those of test_page.py are drawn."""
    monkeypatch.setattr("jetson_dnn_rt.lab.report.style._render", lambda draw, layout: b"PNG")


def report(capsys, *arguments):
    assert main(["report", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_profile_is_compared_with_its_interference(tmp_path, capsys):
    folder = tmp_path / "profile"

    def write(name, interference="none", **changes):
        jobs = [job for job in make_jobs(**changes) if job.task == "detector"]
        write_trace_of(folder / name, jobs, interference)

    write("", count=120)
    write("beside-cpu", "cpu", count=120, seed=1, slowdown=1.5)
    write("layers", count=40, seed=2)
    write("cold", count=3, seed=3)
    fields = report(capsys, str(folder), "--output", str(tmp_path / "out"))
    assert fields["title"] == "Timing report: profile"
    assert {shift["after"] for shift in fields["comparisons"]} == {"beside cpu"}
    page = Path(fields["files"]["page"])
    assert page == tmp_path / "out" / "report.html"
    text = page.read_text(encoding="utf-8")
    assert "Layer by layer" in text
    assert "Cold start" in text
    figures = {Path(file).name for file in fields["files"]["figures"]}
    assert {"timeline.png", "detector-layers-1.png", "comparison-1.png"} <= figures
    assert fields["tasks"]["detector"]["campaigns"][0]["support"] == "unproven"


def test_pooled_traces_are_one_recording(tmp_path, capsys):
    paths = [write_trace_of(tmp_path / name, make_jobs(15, seed=1)) for name in "ab"]
    options = ["--pool", "--label", "both", "--output", str(tmp_path / "out")]
    fields = report(capsys, *map(str, paths), *options)
    assert fields["title"] == "Timing report: a"
    assert fields["tasks"]["detector"]["frames"] == 30
    assert fields["comparisons"] == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nowhere"], "nowhere"),
        (["TRACE", "--label", "a", "--label", "b"], "--label"),
        (["EMPTY"], "no job in it"),
    ],
)
def test_what_cannot_be_reported_is_named(arguments, word, tmp_path, capsys):
    places = {
        "TRACE": str(write_trace_of(tmp_path / "trace", make_jobs(3))),
        "EMPTY": str(write_trace_of(tmp_path / "empty", [])),
    }
    given = [places.get(argument, argument) for argument in arguments]
    assert main(["report", *given, "--output", str(tmp_path / "out")]) == 2
    assert word in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_labels(tmp_path):
    path = write_trace_of(tmp_path / "run", make_jobs(3), "memory")
    assert label_trace(path, open_trace(path).metadata) == "beside memory"
    assert name_trace(path) == "run"
    assert name_trace(path / "trace") == "run"
    assert name_trace(path / "trace" / "jobs-0000.parquet") == "run"


def test_recorded_parameters_are_found_at_any_depth():
    recorded = {"perception": {"workers": 3}, "profile": {"interference": "cohort:4"}}
    assert find_parameter(recorded, "workers", 1) == 3
    assert find_parameter(recorded, "interference", "") == "cohort:4"
    assert find_parameter({"interference": 4}, "interference", "") == ""
