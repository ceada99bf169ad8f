# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`profile --output DIR`: the content of the folder, and continuing after a crash."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from fake_boards import MODEL, FakeBoard

from jetson_dnn_rt.cli import main
from jetson_dnn_rt.coordinator.tables.files import load_tables
from jetson_dnn_rt.lab.profile import profiling
from jetson_dnn_rt.lab.profile import session as profile_session
from jetson_dnn_rt.lab.profile.target import JOURNAL
from jetson_dnn_rt.lab.wcet.samples import read_samples
from jetson_dnn_rt.platforms.boards import tx2_space
from jetson_dnn_rt.traces.reader import open_trace

pytest.importorskip("pyarrow")

BY = ("task", "variant")


def test_a_folder_holds_tables_report_and_a_trace_for_each_condition(tmp_path, profile):
    output = tmp_path / "new" / "profile"
    code, report, errors = profile(
        f"--runs 60 --rate 1000 --interference none,cpu,memory,cohort:3 --cold 1 --output {output}"
    )
    assert code == 0
    assert json.loads((output / "profile.json").read_text()) == report
    assert load_tables(output / "tables.json").tables[0].times_ns.shape == (1, 3, 60)
    (task,) = report["tasks"]
    (variant,) = task["variants"]
    names = ["cpu", "memory", "cohort:3"]
    assert list(variant["beside"]) == list(report["co_runners"]) == names
    assert report["co_runners"]["cohort:3"]["count"] == 2
    assert report["co_runners"]["memory"]["unit"] == "GB/s"
    for name in names:
        found = variant["beside"][name]
        assert found["time_ms"]["count"] == found["alone_ms"]["count"] == 60
        assert list(found["stages"]) == ["preprocess", "inference", "decode"]
        for key, ratio in found["ratio"].items():
            assert ratio == pytest.approx(found["time_ms"][key] / found["alone_ms"][key])
    assert variant["beside_load"] == variant["beside"]["cpu"]["ratio"]
    assert variant["cold"]["starts"] == 1
    assert variant["cold"]["phases_ms"]["until_first_result"]["p50"] > 1.0
    assert "no operators: the PyTorch profiler sees nothing of null" in variant["left_out"][0]
    assert "beside cohort:3, p50/p99 x" in errors
    times: dict[str, list[int]] = {}
    for condition in ("none", *names):
        folder = "" if condition == "none" else f"beside-{condition.replace(':', '-')}"
        trace = open_trace(output / folder)
        assert trace.metadata.source == "profile"
        assert trace.metadata.parameters["profile"]["interference"] == condition
        assert trace.metadata.tasks["camera"].stages == ("preprocess", "inference", "decode")
        (sample,) = read_samples([trace], by=BY)
        assert dict(sample.key) == {"task": "camera", "variant": "full@null"}
        # Two chunks, each with its three cold frames, marked.
        assert (len(sample), len(sample.warm_up_ns)) == (60, 6)
        assert (np.diff(sample.release_ns) > 0).all()
        assert sample.deadline_ns == 1_000_000
        records = [job.record for job in trace.jobs()]
        # LAG of a frame that ran to its end; its response is its execution.
        assert [r.lag_ns for r in records] == [1_000_000 - r.response_time_ns for r in records]
        times[folder] = sample.times_ns.tolist()
    # The trace is what the report is about.
    assert max(times[""]) / 1e6 == pytest.approx(variant["time_ms"]["max"])
    beside = variant["beside"]["cpu"]["time_ms"]
    assert max(times["beside-cpu"]) / 1e6 == pytest.approx(beside["max"])
    (cold,) = read_samples([open_trace(output / "cold")], by=BY)
    assert (len(cold), len(cold.warm_up_ns)) == (1, 0)
    first = variant["cold"]["phases_ms"]["first_frame"]
    assert cold.times_ns[0] / 1e6 == pytest.approx(first["max"])


def test_after_a_kill_the_same_command_continues(tmp_path, profile, caplog):
    output = tmp_path / "profile"
    options = (
        "--model camera=null:preprocess=0.1;inference=0.4;decode=0.2 --runs 170 "
        f"--frames images:{tmp_path / 'images'} --output {output}"
    )
    code = (
        "import os, sys\n"
        "from jetson_dnn_rt.cli import main\n"
        "from jetson_dnn_rt.lab.profile import profiling\n"
        "from jetson_dnn_rt.platforms.platform import UnknownPlatform\n"
        "import jetson_dnn_rt.platforms.detect as detect\n"
        "detect.detect = lambda **options: UnknownPlatform()\n"
        "run = profiling.run_in_turn\n"
        "calls = []\n"
        "def die(*arguments):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 3:\n"
        "        os.kill(os.getpid(), 9)\n"
        "    return run(*arguments)\n"
        "profiling.run_in_turn = die\n"
        "main.main(['profile', *sys.argv[1:]])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *options.split()],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -9
    before = (output / JOURNAL).read_bytes()
    assert not (output / "profile.json").exists()
    with caplog.at_level(logging.INFO):
        exit_code, report, errors = profile(options)
    assert exit_code == 0
    assert report["resumed"] is True
    # Agreement and the first two chunks were whole.
    assert "3 pieces are measured already" in caplog.text
    assert "measuring 0 of 70" in errors
    assert (output / JOURNAL).read_bytes().startswith(before)
    (variant,) = report["tasks"][0]["variants"]
    assert variant["time_ms"]["count"] == 170
    (sample,) = read_samples([open_trace(output)], by=BY)
    assert (len(sample), len(sample.warm_up_ns)) == (170, 12)
    assert (np.diff(sample.release_ns) > 0).all()


def test_an_interrupted_profile_logs_how_to_continue(tmp_path, profile, caplog, monkeypatch):
    def interrupt(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(profiling, "run_in_turn", interrupt)
    output = tmp_path / "profile"
    with caplog.at_level(logging.INFO):
        assert profile(f"--output {output}")[0] == main.INTERRUPTED
    assert f"kept in {output}: the same command continues" in caplog.text


def test_what_is_finished_is_not_measured_again_and_more_can_be_asked(
    tmp_path, profile, monkeypatch
):
    options = f"--runs 10 --output {tmp_path / 'profile'} --interference cpu"
    _, first, _ = profile(options)

    def fail(*given):
        raise AssertionError("measured again")

    with monkeypatch.context() as context:
        context.setattr(profiling, "run_in_turn", fail)
        context.setattr(profile_session, "run_load", fail)
        code, second, _ = profile(options)
    assert code == 0
    assert second["tasks"] == first["tasks"]
    assert (first["resumed"], second["resumed"]) == (False, True)
    code, third, _ = profile(f"{options},memory")
    assert code == 0
    before, after = (report["tasks"][0]["variants"][0] for report in (first, third))
    assert after["beside"]["cpu"] == before["beside"]["cpu"]
    assert list(after["beside"]) == ["cpu", "memory"]


def test_other_settings_do_not_continue(tmp_path, profile):
    output = tmp_path / "profile"
    assert profile(f"--output {output} --runs 5")[0] == 0
    code, report, errors = profile(f"--output {output} --runs 6 --threads 2")
    assert (code, report) == (2, None)
    last = errors.splitlines()[-1]
    assert "cannot be continued: runs was 5, is 6; threads was 1, is 2" in last
    assert f"remove {output}/progress.jsonl" in last


def test_stages_found_by_measuring_are_those_of_the_first_start(tmp_path, profile, monkeypatch):
    pytest.importorskip("torch")
    from jetson_dnn_rt.variants.running.variant_set import VariantSet

    options = (
        "--model builtin:segmenter --variants full@torch-fp32 --runs 2 --operators 0 "
        f"--output {tmp_path / 'profile'}"
    )
    for found in (2, 3):  # this machine is slower the second time
        monkeypatch.setattr(VariantSet, "_count_stages", lambda self, specs, n=found: n)
        code, report, _ = profile(options)
        assert code == 0
        stages = [s for s in report["tasks"][0]["variants"][0]["stages"] if "inference" in s]
        assert stages == ["inference-1", "inference-2"]


def test_each_clock_configuration_is_a_campaign_of_its_own(tmp_path, profile, monkeypatch):
    board = FakeBoard(tx2_space())
    monkeypatch.setattr("jetson_dnn_rt.platforms.detect.detect", lambda **options: board)
    monkeypatch.setattr("jetson_dnn_rt.clock.SteadyClock", lambda: board)
    output = tmp_path / "profile"
    options = f"--model net={MODEL} --runs 4 --clocks slowest,fastest --output {output}"
    code, report, _ = profile(options)
    assert code == 0
    samples = read_samples([open_trace(output)], by=(*BY, "clocks"))
    found = {dict(sample.key)["clocks"]: sample for sample in samples}
    (variant,) = report["tasks"][0]["variants"]
    points = {point["clocks"]: point["time_ms"] for point in variant["points"]}
    assert set(found) == set(points) == {board.space.describe(0), board.space.describe(11_759)}
    for clocks, sample in found.items():
        assert (len(sample), len(sample.warm_up_ns)) == (4, 3)
        assert sample.times_ns.max() / 1e6 == pytest.approx(points[clocks]["max"])
    slow, fast = (found[board.space.describe(position)] for position in (0, 11_759))
    assert slow.times_ns.min() > fast.times_ns.max()
    # Known configurations are not set again, except the fastest one at the end.
    board.applied.clear()
    assert profile(options)[1]["tasks"] == report["tasks"]
    assert board.applied == [11_759]


def test_layers_and_operators_of_a_network(tmp_path, profile):
    pytest.importorskip("torch")
    output = tmp_path / "profile"
    code, report, errors = profile(
        "--model builtin:segmenter --variants full@torch-fp32 --runs 5 --stages 1 --per layer "
        f"--operators 2 --output {output}"
    )
    assert code == 0
    (variant,) = report["tasks"][0]["variants"]
    layers = variant["layers"]["layers"]
    assert len(layers) > 20
    assert sum(layer["share"] for layer in layers) == pytest.approx(1.0)
    assert all(layer["time_ms"]["count"] == 5 for layer in layers)
    assert "Conv2d + BatchNorm2d + ReLU" in [layer["operators"] for layer in layers]
    assert "layers, those that take longest" in errors
    trace = open_trace(output / "layers")
    samples = read_samples([trace], by=("task", "variant", "stage"))
    names = {dict(sample.key)["stage"] for sample in samples}
    assert names == {layer["name"] for layer in layers} | {"preprocess", "decode"}
    assert {len(sample) for sample in samples} == {5}
    operators = variant["operators"]["operators"]
    assert any("convolution" in operator["name"] for operator in operators)
    events = json.loads(Path(variant["operators"]["file"]).read_text())["traceEvents"]
    assert {"preprocess", "inference", "decode"} <= {event.get("name") for event in events}


def test_a_load_on_a_missing_gpu_is_refused_at_once(profile, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr("jetson_dnn_rt.backends.torch.choose_device", lambda: "cpu")
    code, _, errors = profile("--interference gpu")
    assert code == 2
    assert "--interference gpu: torch sees no CUDA device here" in errors.splitlines()[-1]
    assert "measuring" not in errors


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_place_that_is_no_folder_is_refused(tmp_path, profile, name):
    (tmp_path / "file").write_text("")
    code, _, errors = profile(f"--output {tmp_path / name}")
    assert code == 2
    assert f"--output {tmp_path / name}" in errors.splitlines()[-1]


def test_one_frame_is_not_the_road(tmp_path, profile, caplog):
    folder = tmp_path / "one"
    folder.mkdir()
    cv2.imwrite(str(folder / "0.png"), np.zeros((8, 8, 3), np.uint8))
    assert profile(f"--runs 2 --frames images:{folder}")[0] == 0
    assert "one frame, so times vary less than on the road" in caplog.text
