# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""``replay.launch.py``: the nodes on a bag, under its clock, from its first frame to its last."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("launch_ros", reason="launch_ros is not installed: the launch tests need it")
pytest.importorskip("rclpy", reason="rclpy is not installed: the launch tests need it")
pytest.importorskip("rosbags", reason="rosbags is not installed: the launch tests need it")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: the launch tests need it")

from bags import PERIOD_NS, TOPIC, StoragePlugin, find_file, make_image, write_bag
from launching import find_share, pretend, run_launch

from jetson_dnn_rt.traces.reader import open_trace

FILE = find_share() / "launch" / "replay.launch.py"
PLAYER = Path(__file__).parents[1] / "support" / "play_bag.py"
BEGIN_NS = 1_600_000_000 * 10**9
FRAMES = 40


STAMPS_NS = [BEGIN_NS + place * PERIOD_NS for place in range(FRAMES)]

# The subscription is reliable, as the player is. Room for all frames: then none is lost, however
# long a busy machine keeps the process from running.
PARAMETERS = f"""
/**/detector:
  ros__parameters:
    input_qos_depth: {FRAMES}
/**/segmenter:
  ros__parameters:
    input_qos_depth: {FRAMES}
"""


def write(folder, plugin=StoragePlugin.SQLITE3):
    images = [make_image(k, stamp_ns=time_ns) for k, time_ns in enumerate(STAMPS_NS)]
    return write_bag(folder / "bag", images, log_times_ns=STAMPS_NS, plugin=plugin)


@pytest.fixture
def bag(tmp_path):
    return write(tmp_path)


def play(folder):
    return pretend(folder, "ros2bag", f'exec "{sys.executable}" "{PLAYER}" "$@"')


@pytest.mark.launch
@pytest.mark.parametrize(
    ("composed", "plugin"), [("true", StoragePlugin.MCAP), ("false", StoragePlugin.SQLITE3)]
)
def test_every_frame_of_a_bag_runs_under_its_clock(tmp_path, composed, plugin):
    bag = write(tmp_path, plugin)
    if plugin is StoragePlugin.MCAP:
        bag = find_file(bag)
    file = tmp_path / "deep.param.yaml"
    file.write_text(PARAMETERS, encoding="utf-8")
    arguments = {
        "bag": str(bag),
        "params_file": str(file),
        "namespace": "robot",
        "composed": composed,
        "model": "null:1",
        "segmenter_model": "null:1,segmentation",
        "engine_cache": "none",
        "trace_dir": str(tmp_path / "traces"),
    }
    code, said = run_launch(FILE, arguments, play(tmp_path))
    assert code == 0, said
    assert f"waiting for the tasks to subscribe to {TOPIC}" in said
    assert said.index("schedulable: ") < said.index(f"playing {TOPIC}")
    assert "the bag has ended" in said
    traces = [open_trace(folder) for folder in (tmp_path / "traces").iterdir()]
    names = sorted(trace.path.name.partition("-20")[0] for trace in traces)
    assert names == (["perception"] if composed == "true" else ["detector", "segmenter"])
    jobs = [job for trace in traces for job in trace.jobs()]
    for task in ("detector", "segmenter"):
        own = [job for job in jobs if job.record.task == task]
        # Jobs are in the order of their ends: one that is superseded ends before the running one.
        assert sorted(job.stamp_ns for job in own) == STAMPS_NS
        assert {job.camera for job in own} == {TOPIC}
        # By the bag's clock these frames are new, though they were taken years ago. Of the first
        # ones the clock may not have come yet.
        ages_ns = [job.record.release_ns - job.record.capture_ns for job in own[10:]]
        assert max(ages_ns) < 10**9
        assert any(ages_ns)


@pytest.mark.launch
def test_a_player_that_fails_fails_the_launch(bag, tmp_path):
    environment = pretend(tmp_path, "ros2bag", "echo no storage plugin; exit 7")
    arguments = {"bag": str(bag), "model": "null:1", "tasks": "detector"}
    code, said = run_launch(FILE, arguments, environment)
    assert code == 1, said
    assert "no storage plugin" in said
    assert "ros2 bag play ended with exit code 7" in said


@pytest.mark.launch
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "no bag to play; fix: bag:=FOLDER or bag:=FILE"),
        ({"bag": "/nowhere"}, "bag /nowhere is not there"),
        ({"bag": "BAG", "topik": "/x"}, "has no argument topik; did you mean topic?"),
        ({"bag": "BAG", "modell": "x"}, "replay.launch.py has no argument modell"),
        ({"bag": "BAG", "topic": "imu"}, f"bag BAG has no images on '/imu', but on {TOPIC}"),
    ],
)
def test_what_cannot_be_played_is_said(bag, tmp_path, arguments, reason):
    given = {name: value.replace("BAG", str(bag)) for name, value in arguments.items()}
    code, said = run_launch(FILE, given, play(tmp_path))
    assert code == 1
    assert reason.replace("BAG", str(bag)) in said


@pytest.mark.launch
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "bag FILE holds no sensor_msgs Image and no CompressedImage (nothing can be read"),
        (b"\x89MCAP0\r\n and then nonsense", "FILE holds no sensor_msgs Image"),
    ],
    ids=["empty", "damaged"],
)
def test_a_bag_without_images_is_refused(tmp_path, content, reason):
    file = tmp_path / "drive.mcap"
    file.write_bytes(content)
    code, said = run_launch(FILE, {"bag": str(file)}, play(tmp_path))
    assert code == 1
    assert reason.replace("FILE", str(file)) in said


@pytest.mark.launch
@pytest.mark.parametrize("plugin", list(StoragePlugin))
@pytest.mark.parametrize("whole", [True, False], ids=["folder", "file"])
def test_a_bag_without_metadata_is_played_by_its_file(tmp_path, plugin, whole):
    folder = write(tmp_path, plugin)
    (folder / "metadata.yaml").unlink()
    file = find_file(folder)
    log = tmp_path / "command"
    environment = pretend(tmp_path, "ros2bag", f'echo "$@" >> "{log}"')
    arguments = {"bag": str(folder if whole else file), "model": "null:1", "tasks": "detector"}
    code, said = run_launch(FILE, arguments, environment)
    assert code == 0, said
    played = log.read_text(encoding="utf-8")
    assert played.startswith(f"bag play {file} --clock 100 ")
    # It plays at once otherwise, whoever listens, and ends with messages on the way.
    assert " --start-paused --wait-for-all-acked " in played
    assert played.count("\n") == 1  # a player that has ended is not resumed
    # Humble opens a file with sqlite3 unless told otherwise.
    assert ("--storage mcap" in played) == (plugin is StoragePlugin.MCAP)


@pytest.mark.launch
def test_several_files_without_metadata_are_refused(bag, tmp_path):
    (bag / "metadata.yaml").unlink()
    shutil.copy(find_file(bag), bag / "second.db3")
    code, said = run_launch(FILE, {"bag": str(bag)}, play(tmp_path))
    assert code == 1
    assert f"has 2 files and no metadata.yaml; fix: ros2 bag reindex {bag}" in said
