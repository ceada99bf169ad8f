# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""run from end to end: real nodes and threads, networks that only take time."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time

import cv2
import numpy as np
import pytest
from constant_networks import make_columns, make_constant_onnx
from photos import write_photos
from traced_jobs import make_record

from jetson_dnn_rt.cameras.frame_sizes import NAMED
from jetson_dnn_rt.cli import run_report
from jetson_dnn_rt.cli.main import main
from jetson_dnn_rt.models import output_check
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import SHARING
from jetson_dnn_rt.traces.summary import TaskSummary
from jetson_dnn_rt.traces.writer import StreamPart

pytest.importorskip("rclpy")
pytest.importorskip("vision_msgs.msg")

OUTCOMES = {"met", "late", "skipped", "aborted", "superseded", "failed"}
TINY = ["--detector", "null:1", "--segmenter", "null:1,segmentation"]
WIDE = ["--deadline", "detector=500", "--deadline", "segmenter=500"]
SOURCE = ["--source", "synthetic:128x96", "--rate", "50"]
SETTINGS = [
    *("--set", "perception.realtime.gc_freeze=false"),
    *("--set", "detector.warmup_runs=2", "--set", "segmenter.warmup_runs=2"),
]


def run(*arguments):
    return main(["run", *SOURCE, *TINY, *SETTINGS, *arguments])


COMMAND = [sys.executable, "-m", "jetson_dnn_rt.cli.main", "run", *SOURCE, *TINY]


def test_frames_are_all_accounted_for(tmp_path, capfd):
    results = tmp_path / "r.jsonl"
    limited = ("--set", "detector.met_of=[2, 3]")
    assert run("--frames", "10", *WIDE, *limited, "--results", str(results), "--json") == 0
    report = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert set(report) == {"frames", "seconds", "tasks", "cameras"}
    assert report["frames"] == 10
    camera = report["cameras"]["camera"]
    assert camera["frames"] == 10
    assert camera["expected"] == 10 + camera["slipped"]
    assert set(report["tasks"]) == {"detector", "segmenter"}
    for task in report["tasks"].values():
        assert set(task) == {
            "released",
            "outcomes",
            "deadline_ms",
            "deadlines_ms",
            "finished",
            "response_ms",
            "execution_ms",
            "overhead_ms",
            "variants",
            "configured_variant",
            "first_variant",
            "time_shares",
            "switches",
            "met_of",
        }
        assert set(task["outcomes"]) == OUTCOMES
        assert task["released"] == sum(task["outcomes"].values()) == 10
        assert task["deadline_ms"] == 500.0
        for times in ("response_ms", "execution_ms", "overhead_ms"):
            assert set(task[times]) == {"p50", "p99", "max"}
        assert task["variants"] == {"full@null": 1.0}
    missed = 10 - report["tasks"]["detector"]["outcomes"]["met"]
    limit = report["tasks"]["detector"]["met_of"]
    assert (limit["least"], limit["frames"]) == (2, 3)
    assert bool(limit["violations"]) <= (missed >= 2)
    assert report["tasks"]["segmenter"]["met_of"] is None
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    for name, key in (("detector", "boxes"), ("segmenter", "class_shares")):
        mine = [line for line in lines if line["task"] == name]
        assert sorted(line["frame"] for line in mine) == list(range(10))
        assert all(key in line for line in mine)
    stamps = {line["frame"]: line["stamp_ns"] for line in lines}
    assert [stamps[i] for i in range(10)] == sorted(stamps.values())


WITHOUT_TORCH = """
import sys
from jetson_dnn_rt.cli.main import main

code = main(sys.argv[1:])
loaded = {"torch", "onnx", "onnx2torch", "tvm"} & set(sys.modules)
sys.exit(f"loaded: {sorted(loaded)}" if loaded else code)
"""


@pytest.mark.parametrize("variant", [None, "full@onnxruntime-fp32"])
def test_built_in_networks_load_no_torch(variant, tmp_path):
    command = [sys.executable, "-c", WITHOUT_TORCH, "run", "--frames", "3", *WIDE]
    for task in ("detector", "segmenter") if variant else ():
        command += ["--variant", f"{task}={variant}"]
    command += ["--set", "coordinator.policy=horizon", "--output", str(tmp_path), "--json"]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert completed.returncode == 0, completed.stderr
    for task in json.loads(completed.stdout.splitlines()[-1])["tasks"].values():
        assert variant in (None, *task["variants"])


TWO_CAMERAS = """
/**/perception:
  ros__parameters:
    cameras: [front/camera, rear/camera]
    tasks: [front/detector, rear/detector, other/front/cars]
/**/camera:
  ros__parameters: {source: "synthetic:96x64"}
/**/detector:
  ros__parameters: {model: "null:0.1", deadline_ms: 5000.0, engine_cache: none}
/**/cars:
  ros__parameters: {model: "null:0.1", deadline_ms: 5000.0, engine_cache: none, camera: "CAMERA"}
"""


@pytest.mark.parametrize("camera", ["", "front/camera"])
def test_a_task_that_no_frame_reached_fails_the_run(tmp_path, capfd, camera):
    """Two detectors on one of two cameras: the old advice led to one without frames, exit 0."""
    path = tmp_path / "two.yaml"
    path.write_text(TWO_CAMERAS.replace("CAMERA", camera))
    code = main(["run", "--params", str(path), "--frames", "3"])
    text = capfd.readouterr().err
    assert code == (0 if camera else 1), text
    assert ("no frame reached other/front/cars; fix: " in text) is not bool(camera)


def test_table_and_output_folder(tmp_path, capfd):
    folder = tmp_path / "out"
    assert run("--frames", "8", *WIDE, "--output", str(folder)) == 0
    table = capfd.readouterr().out.splitlines()
    assert table[0].split()[:2] == ["task", "frames"]
    assert set(table[0].split()[2:8]) == OUTCOMES
    assert table[2].split()[:2] == ["detector", "8"]
    (delivery,) = (line for line in table if line.startswith("camera: of "))
    assert "frames due at 50 Hz" in delivery
    (decisions,) = (line for line in table if line.startswith("coordinator: static decided "))
    for task in ("detector", "segmenter"):
        assert f"{task}: began in full@null as configured, no switch" in decisions
    assert {file.name for file in folder.iterdir()} == {
        "annotated.png",
        "annotated.mp4",
        "latency.png",
        "trace",
        "summary.json",
    }
    assert cv2.imread(str(folder / "annotated.png")).shape == (96, 128, 3)
    assert cv2.imread(str(folder / "latency.png")).shape[1] > 800
    trace = open_trace(folder)
    assert sum(1 for _ in trace.jobs()) == 16
    assert [part.name for part in trace.parts] == ["jobs-0000.parquet"]
    metadata = trace.metadata
    assert metadata.source == "run"
    assert metadata.tasks["detector"].model == "null:1"
    assert metadata.tasks["detector"].variants == ("full@null",)
    assert metadata.tasks["detector"].deadline_ns == 500_000_000
    assert len(metadata.tasks["detector"].model_hash) == 64
    assert metadata.parameters["detector"]["deadline_ms"] == 500.0
    assert metadata.parameters[SHARING]["helpers"] == 1
    assert metadata.parameters["camera"]["source"] == "synthetic:128x96"
    assert metadata.machine["cpu"]
    assert metadata.platform["clocks"]
    assert "mallopt" in metadata.realtime
    clocks = {text for job in trace.jobs() for text in job.clocks}
    assert clocks == {metadata.platform["configuration"]}
    assert {job.camera for job in trace.jobs()} == {"camera"}
    assert all(job.stamp_ns is not None for job in trace.jobs())
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["frames"] == 8
    (video,) = summary["videos"]
    assert video["file"] == str(folder / "annotated.mp4")
    assert video["frames"] + video["left_out"] == 8
    assert summary["cameras"]["camera"]["source"] == "synthetic:128x96"
    assert summary["schedulability"]["text"]
    assert set(summary["schedulability"]["at_start"]) == {
        *("schedulable", "utilization", "workers", "reason", "rests_on", "broken_limits")
    }
    assert set(summary["schedulability"]["rates"]) == {"detector", "segmenter"}
    assert summary["load"]["cores"] >= 1
    times = summary["stage_ms"]["detector"]["full@null"]["inference"]
    assert 0.0 < times["cpu"] <= 1.1 * times["wall"] + 0.1
    # Of 8 frames the p99 is the highest, under another name; JSON says how many there were.
    columns = table[0].replace(" ms", "_ms").split()
    assert table[2].split()[columns.index("p99_ms")] == "-"
    assert summary["tasks"]["detector"]["finished"] <= 8
    assert summary["coordinator"]["decisions"]["static"] > 0
    assert summary["tasks"]["detector"]["time_shares"] == {"full@null": 1.0}
    assert summary["machine"]["versions"]["jetson_dnn_rt"]


@pytest.mark.parametrize(
    ("deadlines_ms", "text"),
    [
        ([80.0], 80.0),
        ([80.0, 0.04, 80.0], "0.04, 80"),
        ([10.0, 20.0, 30.0, 40.0, 50.0], "10 to 50 (5)"),
    ],
)
def test_every_deadline_that_a_task_had_is_in_its_row(deadlines_ms, text):
    """D1: the row had the last one alone."""
    summary = TaskSummary()
    for number, deadline_ms in enumerate(deadlines_ms):
        summary.add(make_record(number, deadline_ns=int(deadline_ms * 1e6)))
    assert run_report._row("detector", summary)[-2] == text
    assert summary.to_dict()["deadlines_ms"] == sorted(set(deadlines_ms))


def test_a_hundred_photos_of_different_sizes_are_all_answered(tmp_path, capfd, caplog):
    """Ended after the first one: "a camera has one size"."""
    caplog.set_level(logging.INFO)
    folder, out = tmp_path / "photos", tmp_path / "out"
    write_photos(folder, 100)
    # Not pictures, whatever their names say; and two that no network takes.
    (folder / "050a.jpg").write_bytes(b"no picture")
    (folder / "000.a.png").write_bytes(b"")
    for name in ("060a.png", "070a.png"):
        cv2.imwrite(str(folder / name), np.zeros((2, 40_000, 3), np.uint8))
    arguments = ["--source", f"images:{folder}", *WIDE, "--output", str(out)]
    assert run(*arguments, "--results", str(tmp_path / "r.jsonl"), "--json") == 0
    captured = capfd.readouterr()
    report = json.loads(captured.out.splitlines()[-1])
    assert report["frames"] == 102
    for task in report["tasks"].values():
        assert sum(task["outcomes"].values()) == task["released"] == 102
        assert task["outcomes"]["met"] + task["outcomes"]["late"] > 0
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    files = {file.name for file in folder.iterdir()} - {"050a.jpg", "000.a.png"}
    assert {one["file"] for one in lines} == files
    for name in report["tasks"]:
        outcomes = {one["frame"]: one["outcome"] for one in lines if one["task"] == name}
        assert sorted(outcomes) == list(range(102))
        # On a busy machine a newer frame may come first.
        assert {outcomes[61], outcomes[72]} <= {"failed", "superseded", "skipped"}
        assert {n for n, outcome in outcomes.items() if outcome == "failed"} <= {61, 72}
    assert "camera: the size changed 101 times, 2 pictures could not be decoded" in captured.err
    assert caplog.text.count("another size") == NAMED - 1
    camera = json.loads((out / "summary.json").read_text())["cameras"]["camera"]
    assert (camera["width"], camera["height"]) == (1, 1)  # the first, before it was turned
    assert (camera["frames"], camera["size_changes"], camera["unreadable"]) == (102, 101, 2)
    assert (out / "annotated.png").is_file()
    (video,) = json.loads((out / "summary.json").read_text())["videos"]
    assert video["frames"] + video["left_out"] == 102


def test_a_folder_that_a_parameter_file_names_is_played_once(tmp_path, capfd):
    """It was played again and again, and the command never ended."""
    folder, params = tmp_path / "photos", tmp_path / "robot.yaml"
    write_photos(folder, 3)
    params.write_text(
        "perception: {ros__parameters: {tasks: [detector], realtime.gc_freeze: false}}\n"
        f"camera: {{ros__parameters: {{source: 'images:{folder}', rate: 50.0, loop: true}}}}\n"
        "detector: {ros__parameters: {model: 'null:1', warmup_runs: 2, deadline_ms: 500.0}}\n"
    )
    assert main(["run", "--params", str(params), "--json"]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["frames"] == 3


def test_a_network_that_finds_nothing_is_said_once_and_in_the_summary(
    tmp_path, capfd, monkeypatch
):
    monkeypatch.setattr(output_check, "FIRST_FRAMES", 5)
    model = make_constant_onnx(tmp_path / "net.onnx", {"output0": make_columns((0,) * 7)})
    given = ["--detector", model, "--set", "detector.head=yolov8", "--segmenter", "none"]
    out = tmp_path / "out"
    given += ["--deadline", "detector=500", "--frames", "30", "--rate", "50", *SETTINGS[:4]]
    assert main(["run", *SOURCE, *given, "--output", str(out), "--video", "none"]) == 0
    captured = capfd.readouterr()
    text = "nothing above confidence_threshold (0.3) in the first 5 frames"
    said = [line for line in captured.err.splitlines() if text in line]
    assert len(said) == 1
    assert "WARN" in said[0]
    assert f"detector: {text}" in captured.out
    assert not (out / "annotated.mp4").exists()
    assert json.loads((out / "summary.json").read_text())["outputs"]["detector"]["nothing"]


def test_segmenter_none(capfd):
    assert main(["run", *SOURCE, "--detector", "null:1", "--segmenter", "none", "--frames", "2",
                 "--json"]) == 0  # fmt: skip
    out = capfd.readouterr().out
    assert set(json.loads(out.splitlines()[-1])["tasks"]) == {"detector"}


def test_seconds_end_a_run(capfd):
    assert run("--seconds", "0.3", "--json") == 0
    report = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert report["frames"] > 0
    assert report["seconds"] >= 0.3


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--deadline", "lidar=40"], "lidar"),
        (["--variant", "detector=full@abacus-fp32"], "abacus"),
        (["--set", "detector.no_such=1"], "no_such"),
        (["--set", "detector.confidence_threshold=high"], "confidence_threshold"),
        (["--set", "detector.confidence_threshold=1.5"], "confidence_threshold"),
        (["--detector", "onnx:/no/such/model.onnx"], "/no/such/model.onnx"),
        (["--detector", "nonsense"], "nonsense"),
        (["--detector", "null:1,segmentation"], "detect"),
        (["--source", "video:/no/such/video.mp4"], "/no/such/video.mp4"),
        (["--params", "/no/such/params.yaml"], "/no/such/params.yaml"),
        (["--video", "video.gif"], "video.gif"),
        (["--masks"], "--results"),
        (["--results", "/proc/no/such/file"], "/proc/no"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_code_2(arguments, word, capfd):
    assert run("--frames", "2", *arguments) == 2
    captured = capfd.readouterr()
    last = captured.err.strip().splitlines()[-1]
    assert last.startswith("jetson-dnn-rt run: error: ")
    assert word in last
    assert "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.slow
def test_signals_end_a_run_with_its_report():
    process = subprocess.Popen(
        [*COMMAND, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if "first result after" in line:  # a run that no frame reached fails
            break
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert set(json.loads(out.splitlines()[-1])["tasks"]) == {"detector", "segmenter"}


def test_jobs_that_are_not_in_the_trace_fail_the_run(tmp_path, capfd, monkeypatch):
    def refuse(part, batch):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(StreamPart, "append", refuse)
    assert run("--frames", "3", *WIDE, "--output", str(tmp_path)) == 1
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert "6 jobs are not in the trace" in last
    assert "No space left" in last


@pytest.mark.slow
def test_a_killed_run_leaves_a_trace_up_to_its_last_batch(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, *WIDE, *SETTINGS, "--output", str(tmp_path)], stderr=subprocess.DEVNULL
    )
    stream = tmp_path / "trace" / "jobs-0000.arrows"
    try:
        sizes: set[int] = set()
        # Nothing, the header, then at least two batches.
        while len(sizes - {0}) < 3:
            assert process.poll() is None
            sizes.add(stream.stat().st_size if stream.is_file() else 0)
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert [file.name for file in stream.parent.iterdir()] == [stream.name]
    trace = open_trace(tmp_path)
    assert trace.metadata.source == "run"
    assert set(trace.metadata.tasks) == {"detector", "segmenter"}
    jobs = list(trace.jobs())
    for task in ("detector", "segmenter"):
        found = {job.record.sequence for job in jobs if job.record.task == task}
        # A frame that a newer one replaced ends before the one that runs: that one alone, which
        # had not ended when the last batch was written, may be missing.
        assert len(set(range(max(found))) - found) <= 1
        assert len(found) > 20
    # A run into the same folder begins anew.
    assert run("--frames", "2", *WIDE, "--output", str(tmp_path)) == 0
    assert sum(1 for _ in open_trace(tmp_path).jobs()) == 4
