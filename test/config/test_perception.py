# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Everything of a process, read from a parameter file without ROS."""

from __future__ import annotations

import pytest

from jetson_dnn_rt.config.parameter_file import read_parameter_file
from jetson_dnn_rt.config.perception import load_config, read_config
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError

TEXT = """\
perception:
  ros__parameters: {tasks: [rear/detector, segmenter], cameras: [front], workers: 2, threads: auto}
rear/detector: {ros__parameters: {deadline_ms: 40, camera: other}}
front: {ros__parameters: {source: "video:x.mp4", rate: 10}}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(TEXT)
    return path


def test_tasks_cameras_and_process_are_read(file):
    config = load_config(file)
    detector, segmenter = config.tasks
    assert detector == TaskConfig("rear/detector", deadline_ms=40.0, camera="other")
    assert (segmenter.kind, segmenter.model) == ("segmentation", "builtin:segmenter")
    assert segmenter.camera == "front"  # the only one
    assert [(camera.name, camera.rate) for camera in config.cameras] == [("front", 10.0)]
    assert (config.process.workers, config.threads) == (2, "auto")
    assert config.coordinator is not None
    assert config.coordinator.policy == "static"


def test_options_go_before_the_file(file):
    overrides = {
        "rear/detector": {"deadline_ms": 20.0},
        "perception": {"workers": 1, "coordinator": False},
    }
    config = read_config(read_parameter_file(file), overrides, ["rear/detector"])
    assert [task.deadline_ms for task in config.tasks] == [20.0]
    assert (config.process.workers, config.coordinator) == (1, None)


@pytest.mark.parametrize(
    ("overrides", "only", "text"),
    [
        ({"rear": {}}, [], "no node rear here, but perception, front, rear/detector, segm"),
        ({}, ["rear"], "no task rear"),
        ({"perception": {"tasks": [""]}}, [], "no task"),
        ({"segmenter": {"stages": -1}}, [], r"^segmenter: stages must be in \[0, 64\]"),
        ({"segmenter": {"met_of": [3, 2]}}, [], r"^segmenter: met_of must be .*: \[3, 2\]"),
        ({"segmenter": {"met_of": [0, 2]}}, [], r"^segmenter: met_of must be .*: \[0, 2\]"),
        ({"segmenter": {"met_of": [1, 61]}}, [], r"met_of must be .* <= 60: \[1, 61\]"),
        ({"segmenter": {"met_of": [2]}}, [], r"^segmenter: met_of must be .*: \[2\]"),
        ({"segmenter": {"met_of": [1.5, 2]}}, [], r"met_of must be a list of whole numbers"),
    ],
)
def test_what_cannot_be_used_is_refused(file, overrides, only, text):
    with pytest.raises(ConfigurationError, match=text):
        read_config(read_parameter_file(file), overrides, only)


@pytest.mark.parametrize(("given", "limit"), [([2, 3], (2, 3)), ([60, 60], (60, 60)), ([-1], ())])
def test_the_engine_gets_the_weakly_hard_limit(file, given, limit):
    overrides = {"segmenter": {"met_of": given}}
    config = read_config(read_parameter_file(file), overrides, ["segmenter"])
    [task] = config.tasks
    made = task.for_engine(("only",), ("v",), period_ns=1, deadline_ns=1)
    assert task.met_of == made.met_of == limit


def test_without_a_file_the_defaults_hold():
    config = TaskConfig("detector")
    assert config.period_ns() == 33_333_333
    assert config.period_ns(camera_hz=10.0) == 100_000_000
    assert config.deadline_ns(config.period_ns()) == 33_333_333
    assert ProcessConfig().workers == 1
