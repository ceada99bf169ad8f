# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Options of run: what they mean for the nodes, and how bad ones are refused."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from jetson_dnn_rt.cli import main, options
from jetson_dnn_rt.cli.run import make_overrides


def parse(*arguments):
    return main.build_parser().parse_args(["run", *arguments])


def write(tmp_path, text):
    file = tmp_path / "params.yaml"
    file.write_text(text)
    return file


@pytest.fixture
def params(tmp_path):
    return write(tmp_path, "detector:\n  ros__parameters:\n    model: builtin:detector\n")


def test_every_option_reaches_its_node(params):
    args = parse(
        *("--source", "video:x.mp4", "--rate", "12.5", "--detector", "onnx:y.onnx"),
        *("--segmenter", "builtin:segmenter", "--variant", "detector=full@openvino-bf16"),
        *("--deadline", "detector=40", "--deadline", "segmenter=55.5"),
        *("--set", "detector.confidence_threshold=0.3", "--set", "perception.workers=2"),
    )
    assert make_overrides(args, params) == {
        "camera": {"source": "video:x.mp4", "rate": 12.5},
        "detector": {
            "model": "onnx:y.onnx",
            "variants": ["full@openvino-bf16"],
            "variant": "full@openvino-bf16",
            "deadline_ms": 40.0,
            "confidence_threshold": 0.3,
        },
        "segmenter": {"model": "builtin:segmenter", "deadline_ms": 55.5},
        "perception": {"workers": 2},
    }


def test_no_option_changes_nothing(params):
    assert make_overrides(parse(), params) == {}


@pytest.mark.parametrize("arguments", [["--frames", "5"], ["--seconds", "5"]])
def test_a_video_is_played_again_where_a_length_is_asked_for(arguments, params):
    overrides = make_overrides(parse("--source", "video:x.mp4", *arguments), params)
    assert overrides["camera"]["loop"] is True


def test_set_wins_over_the_option_that_means_the_same(params):
    args = parse("--source", "video:x", "--set", "camera.loop=true", "--deadline", "detector=40",
                 "--set", "detector.deadline_ms=50")  # fmt: skip
    overrides = make_overrides(args, params)
    assert overrides["camera"]["loop"] is True
    assert overrides["detector"]["deadline_ms"] == 50


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.3", 0.3),
        ("7", 7),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("full@openvino-fp32", "full@openvino-fp32"),
        ("a=b", "a=b"),
    ],
)
def test_values_are_yaml(text, value):
    assert options.parse_setting(f"detector.some.name={text}") == ("detector", "some.name", value)


@pytest.mark.parametrize("text", ["", "detector", "detector=1", ".x=1", "detector.=1", "a.b="])
def test_settings_of_another_form_are_refused(text):
    with pytest.raises(ArgumentTypeError, match="form"):
        options.parse_setting(text)


def test_setting_that_is_no_yaml_is_refused():
    with pytest.raises(ArgumentTypeError, match="YAML"):
        options.parse_setting("detector.x=[1, 2")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--deadline", "detector"],
        ["--deadline", "detector=fast"],
        ["--deadline", "detector=0"],
        ["--deadline", "detector=-1"],
        ["--deadline", "detector=nan"],
        ["--deadline", "detector=inf"],
        ["--variant", "detector"],
        ["--set", "nonsense"],
        ["--trace-limit-mb", "-1"],
        ["--trace-limit-mb", "2.5"],
        ["--trace-limit-mb", "1000001"],
        ["--rate", "0"],
        ["--rate", "many"],
        ["--frames", "0"],
        ["--frames", "1.5"],
        ["--frames", "-1"],
        ["--seconds", "0"],
        ["--frames", "1", "--seconds", "1"],
    ],
)
def test_bad_options_end_with_code_2_and_say_which(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(*arguments)
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("perception:\n  ros__parameters:\n    tasks: [segmenter, rear/detector]\n",
         ["rear/detector"]),
        ("/**:\n  ros__parameters:\n    tasks: [detector, segmenter]\n", ["detector"]),
        ("/robot/perception:\n  ros__parameters: {tasks: [segmenter, b]}\n", ["b"]),
        ("detector:\n  ros__parameters: {}\n", ["detector"]),
    ],
)  # fmt: skip
def test_segmenter_none_takes_it_out_of_the_tasks(tmp_path, text, tasks):
    overrides = make_overrides(parse("--segmenter", "none"), write(tmp_path, text))
    assert overrides == {"perception": {"tasks": tasks}}
