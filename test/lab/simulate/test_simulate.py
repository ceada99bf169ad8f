# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`jetson-dnn-rt simulate`: as scripts and people call it."""

from __future__ import annotations

import json

import pytest

from jetson_dnn_rt.cli.main import BAD_ARGUMENTS, main
from jetson_dnn_rt.lab.simulate.scenario import open_scenario, scenario_names
from jetson_dnn_rt.lab.simulate.session import make_source
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import SHARING

KEYS = {
    "miss_ratio": float,
    "miss_ratio_ci95": list,
    "max_burst": int,
    "accuracy": float,
    "energy_j": float,
    "energy_per_met_frame_j": float,
    "response_ms": dict,
    "decision_us": dict,
    "frames_per_s": float,
}


def test_json(capsys, tmp_path):
    trace = tmp_path / "out"
    options = ["--seeds", "2", "--frames", "30", "--trace", str(trace), "--json"]
    assert main(["simulate", "--scenario", "tx2_cohort4", "--policy", "max_q", *options]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {key: type(value) for key, value in result.items()} == KEYS
    assert set(result["response_ms"]) == {"p50", "p99", "max"}
    assert set(result["decision_us"]) == {"p50", "p99"}
    low, high = result["miss_ratio_ci95"]
    assert 0.0 <= low <= result["miss_ratio"] <= high <= 1.0
    opened = open_trace(trace)
    records = [job.record for job in opened.jobs()]
    assert opened.metadata.source == "simulate"
    assert opened.metadata.parameters["simulate"]["policy"] == "max_q"
    assert opened.metadata.parameters[SHARING] == {"workers": 4, "helpers": 0}
    assert opened.metadata.tasks["vgg16"].stages == tuple(
        dict.fromkeys(stage.name for r in records if r.task == "vgg16" for stage in r.stages)
    )
    table = make_source(open_scenario("tx2_cohort4")).clock_table
    assert opened.metadata.platform["clocks"] == table.describe(table.fastest)
    # It begins at the fastest, and has what it wants when the memory has followed.
    clocks = {text for job in opened.jobs() for text in job.clocks}
    assert clocks == {table.describe(table.fastest), table.describe(table.max_q)}
    assert len({(record.task, record.sequence) for record in records}) == len(records)
    assert {record.task for record in records} == {"alexnet", "googlenet", "resnet50", "vgg16"}


def test_a_trace_can_be_replayed(capsys, tmp_path):
    trace = tmp_path / "out"
    run = ["simulate", "--scenario", "tx2_alexnet", "--policy", "static", "--frames", "50"]
    assert main([*run, "--trace", str(trace), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    scenario = tmp_path / "again.yaml"
    scenario.write_text("recording: {trace: out, block_ms: 1.0e+6}\n", encoding="utf-8")
    assert main(["simulate", "--scenario", str(scenario), "--policy", "static", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["miss_ratio"] == first["miss_ratio"]
    assert again["response_ms"] == pytest.approx(first["response_ms"], abs=1e-4)


def test_a_table_for_people(capsys):
    options = ["--scenario", "xavier_vgg16", "--policy", "static", "--frames", "20"]
    assert main(["simulate", *options]) == 0
    out = capsys.readouterr().out
    assert "static in xavier_vgg16, 1 seed\n" in out
    assert "missed     0.00 %" in out


def test_list(capsys):
    assert main(["simulate", "--list"]) == 0
    out = capsys.readouterr().out
    for name in scenario_names():
        assert f"  {name}" in out
    assert "horizon" in out.splitlines()[-1]
    assert "oracle" in out.splitlines()[-1]


def test_scenarios_by_path(tmp_path):
    """One of one's own finds the package's boards and networks."""
    path = tmp_path / "mine.yaml"
    path.write_text("board: xavier\ntasks: [{network: alexnet}]\n", encoding="utf-8")
    assert open_scenario(str(path)).name == "mine"
    assert open_scenario("tx2_cohort8").name == "tx2_cohort8"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "static"], "--scenario is missing"),
        (["--scenario", "tx2_cohort4"], "--policy is missing"),
        (["--scenario", "tx2_cohort5", "--policy", "static"], "neither a file nor one of"),
        (["--scenario", "networks", "--policy", "static"], "neither a file nor one of"),
        (["--scenario", "tx2_cohort4", "--policy", "stat"], "policy must be one of static"),
        (["--scenario", "tx2_cohort4", "--plot", "x"], "--plot needs --policies"),
        (
            ["--scenario", "tx2_vgg16", "--policy", "static", "--trace", "/proc/no/x"],
            "cannot write /proc/no/x",
        ),
    ],
)
def test_errors_are_one_line(capsys, options, message):
    assert main(["simulate", *options]) == BAD_ARGUMENTS
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("jetson-dnn-rt simulate: error: ")
    assert message in error


def test_plots(capsys, tmp_path):
    cv2 = pytest.importorskip("cv2")
    pytest.importorskip("matplotlib")
    policies = "static,predjoule,neuos_min_energy"
    options = ["--plot", str(tmp_path / "plots"), "--policies", policies, "--frames", "12"]
    assert main(["simulate", "--scenario", "greedy_imbalance", *options, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(policies.split(","))
    files = {path.stem.rpartition("-")[2]: path for path in (tmp_path / "plots").iterdir()}
    assert set(files) == {"energy", "latency", "accuracy", "triangle", "timeline", "instances"}
    for path in files.values():
        picture = cv2.imread(str(path))
        assert picture.shape[0] > 400
        assert (picture < 250).any(axis=2).mean() > 0.005


def test_plots_of_a_policy_that_meets_nothing(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "hopeless.yaml"
    path.write_text("board: tx2\ntasks: [{network: vgg16, deadline_ms: 2.0}]\n", encoding="utf-8")
    options = ["--plot", str(tmp_path), "--policies", "static", "--frames", "5"]
    assert main(["simulate", "--scenario", str(path), *options]) == 0
    assert len(list(tmp_path.glob("hopeless-*.png"))) == 4
