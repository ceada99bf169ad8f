# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Command lines of the executables: help, and words that ROS would ignore."""

from __future__ import annotations

import sys

import pytest

from jetson_dnn_rt.config.checked_names import list_parameters
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.process import main
from jetson_dnn_rt.nodes.process.arguments import (
    EXECUTABLES,
    find_params_files,
    format_help,
    refuse_non_ros_arguments,
    refuse_rules_of_other_nodes,
)
from jetson_dnn_rt.nodes.process.running import BAD_CONFIGURATION

DETECTOR = EXECUTABLES["detector"]


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("executable", EXECUTABLES)
def test_help_has_every_parameter_and_starts_nothing(executable, flag, monkeypatch, capsys):
    """Before, it started a node."""
    monkeypatch.setattr(sys, "argv", [executable, flag])
    monkeypatch.setattr(main, "run_node", None)
    assert getattr(main, executable)() == 0
    said = capsys.readouterr().out
    assert f"ros2 run jetson_dnn_rt {executable} --ros-args -p autostart:=true" in said
    for name in list_parameters(EXECUTABLES[executable].kind):
        assert f"\n  {name}: " in said


def test_help_has_the_defaults_of_the_executable():
    assert "  model: builtin:segmenter\n" in format_help(EXECUTABLES["segmenter"])
    assert "  model: builtin:detector\n" in format_help(DETECTOR)


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["model:=x"], "fix: --ros-args -p model:=x"),
        (["modell:=x"], "did you mean --ros-args -p model:=x?"),
        (["--model=x"], "fix: --ros-args -p model:=x"),
        (["autostart:=true"], "fix: --ros-args -p autostart:=true"),
        (["image_raw:=/front/image"], "fix: --ros-args -r image_raw:=/front/image"),
        (["__ns:=/front"], "fix: --ros-args -r __ns:=/front"),
        (["video.mp4"], "there is no argument video.mp4; fix: parameters are given as --ros-args"),
        (["--ros-args", "-p", "a:=1", "--", "b\x1b[2J"], "there is no argument b?[2J"),
    ],
)
def test_words_outside_of_ros_args_are_refused(words, fix):
    """Before, the node started with its defaults."""
    with pytest.raises(ConfigurationError) as caught:
        refuse_non_ros_arguments(DETECTOR, words)
    assert fix in str(caught.value)


def test_such_a_word_ends_the_executable_with_code_2(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["detector", "model:=x"])
    monkeypatch.setattr(main, "run_node", None)
    assert main.detector() == BAD_CONFIGURATION
    assert "--ros-args -p model:=x" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [[], ["--ros-args"], ["--ros-args", "-p", "a:=1", "--"], ["--ros-args", "-r", "x:=y"]]
)
def test_what_launch_files_give_is_taken(words):
    refuse_non_ros_arguments(DETECTOR, words)


@pytest.mark.parametrize(
    ("option", "rule", "words"),
    [
        ("-p", "detektor:model:=x", "no node detektor here; did you mean detector?"),
        ("--param", "lidar:model:=x", "no node lidar here, but detector, camera"),
        ("-r", "detektor:image_raw:=/x", "did you mean detector?"),
    ],
)
def test_a_rule_for_a_node_that_is_not_here_is_refused(option, rule, words):
    with pytest.raises(ConfigurationError) as caught:
        refuse_rules_of_other_nodes(["--ros-args", option, rule], ["detector", "camera"])
    assert words in str(caught.value)


def test_rules_for_the_nodes_here_and_for_all_are_taken():
    given = ["-p", "detector:model:=onnx:x", "-p", "model:=onnx:a:b", "-r", "__ns:=/x"]
    given += ["-r", "lidar:points:=/points", "-r", "image_raw:=/image"]
    refuse_rules_of_other_nodes(["--ros-args", *given], ["detector", "camera"])


def test_parameter_files_are_found_in_their_order():
    given = ["--ros-args", "--params-file", "a", "-p", "b:=1", "--params-file", "c"]
    assert [path.name for path in find_params_files(given)] == ["a", "c"]
