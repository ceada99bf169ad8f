# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Parameter files without ROS: the same values as a node of rclpy gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jetson_dnn_rt.config.parameter_file import read_parameter_file, read_parameter_files
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]

# What rclpy (Kilted) gives node NAME for parameters a, b and g.x, each asked for once.
CASES = [
    ("/**: {ros__parameters: {a: 1}}\n/**/detector: {ros__parameters: {a: 2, g: {x: 5}}}",
     "/detector", {"a": 2, "g.x": 5}),
    ("/**/detector: {ros__parameters: {a: 2}}\n/**: {ros__parameters: {a: 1, b: z}}",
     "/detector", {"a": 1, "b": "z"}),
    ("detector: {ros__parameters: {a: 3}}\n/**: {ros__parameters: {a: 1}}", "/detector", {"a": 1}),
    ("/detector: {ros__parameters: {a: 3, g.x: 7}}", "/detector", {"a": 3, "g.x": 7}),
    ("rear:\n  detector: {ros__parameters: {a: 4}}", "/rear/detector", {"a": 4}),
    ("rear/detector: {ros__parameters: {a: 4}}", "/rear/detector", {"a": 4}),
    ("rear/detector: {ros__parameters: {a: 4}}", "/detector", {}),
    ("/rear/detector: {ros__parameters: {a: 4}}\ndetector: {ros__parameters: {a: 9}}\n"
     "/*/detector: {ros__parameters: {b: star}}", "/rear/detector", {"a": 4, "b": "star"}),
    ("/*: {ros__parameters: {a: 4}}", "/detector", {"a": 4}),
    ("/*: {ros__parameters: {a: 4}}", "/rear/detector", {}),
    ("/**:\n  detector: {ros__parameters: {a: 4}}", "/detector", {"a": 4}),
    ("/**/rear/*: {ros__parameters: {a: 4}}", "/x/rear/detector", {"a": 4}),
    ("/**/detector: {ros__parameters: {a: 1}}\n/**/detector: {ros__parameters: {b: q}}",
     "/detector", {"a": 1, "b": "q"}),
    ("/**/*: {ros__parameters: {a: 1}}", "/detector", {"a": 1}),
    ("/**/**/x/**/*: {ros__parameters: {a: 1}}", "/rear/x/y/detector", {"a": 1}),
    ("/**/x/**/x: {ros__parameters: {a: 1}}", "/x", {}),
    ("/*/**: {ros__parameters: {a: 1}}", "/detector", {"a": 1}),
]  # fmt: skip


def write(folder, text):
    file = folder / "params.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(("text", "name", "values"), CASES)
def test_sections_are_matched_as_in_ros(tmp_path, text, name, values):
    assert read_parameter_file(write(tmp_path, text)).of(name) == values


@pytest.mark.parametrize(("text", "name", "values"), CASES)
def test_ros_says_the_same(tmp_path, text, name, values):
    rclpy = pytest.importorskip("rclpy", reason="rclpy is not installed")
    file = write(tmp_path, text)
    context = rclpy.Context()
    rclpy.init(args=["--ros-args", "--params-file", os.fspath(file)], context=context)
    try:
        space, _, base = name.rpartition("/")
        node = rclpy.create_node(
            base, namespace=space or "/", context=context, start_parameter_services=False
        )
        defaults = {"a": 0, "b": "", "g.x": 0}
        given = {key: node.declare_parameter(key, value).value for key, value in defaults.items()}
        node.destroy_node()
    finally:
        context.try_shutdown()
    assert given == {**defaults, **values}


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 1e-3), ("1.5E+2", 150.0), ("-2e1", -20.0), ("3", 3), ("0.5", 0.5), ("on", True),
     ("full@torch-fp32", "full@torch-fp32"), ("[1, 2]", [1, 2]), ("'3'", "3"), ("1e", "1e")],
)  # fmt: skip
def test_values_have_the_types_of_ros(tmp_path, text, value):
    found = read_parameter_file(write(tmp_path, f"n: {{ros__parameters: {{a: {text}}}}}"))
    assert found.of("/n")["a"] == value
    assert type(found.of("/n")["a"]) is type(value)


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("perception: {ros__parameters: {tasks: [a, rear/b]}}", ["a", "rear/b"]),
        ("perception: {ros__parameters: {tasks: ['']}}", []),
        ("/robot/perception: {ros__parameters: {tasks: [b]}}", ["b"]),
        ("/**: {ros__parameters: {tasks: [b]}}", ["b"]),
        ("/**/perception: {ros__parameters: {tasks: [b]}}", ["b"]),
        ("perception: {ros__parameters: }", ["detector", "segmenter"]),
    ],
)
def test_tasks(tmp_path, text, tasks):
    assert read_parameter_file(write(tmp_path, text)).tasks == tuple(tasks)


def test_tasks_are_in_the_namespace_of_perception(tmp_path):
    text = "robot:\n  perception: {ros__parameters: {tasks: [rear/detector]}}\n"
    text += "  rear:\n    detector: {ros__parameters: {a: 1}}\n"
    text += "rear/detector: {ros__parameters: {a: 2}}\n"
    assert read_parameter_file(write(tmp_path, text)).of_task("rear/detector") == {"a": 1}


@pytest.mark.parametrize(
    "text",
    ["[1, 2", "\x00", "[1, 2]", "a: 3", "a: {b: 3}",
     "a: {ros__parameters: {b: &y {c: *y}}}", "a: {ros__parameters: [1]}",
     "perception: {ros__parameters: {tasks: detector}}",
     "perception: {ros__parameters: {tasks: [1]}}", "", "# nothing\n", "{}"],
)  # fmt: skip
def test_a_file_of_another_form_is_refused(tmp_path, text):
    with pytest.raises(ConfigurationError, match=r"params\.yaml"):
        _ = read_parameter_file(write(tmp_path, text)).tasks


@pytest.mark.parametrize("pattern", ["/**" * 60 + "/x", "/**/a" * 40 + "/x"])
def test_a_pattern_of_many_stars_takes_no_time(tmp_path, pattern):
    """As a regular expression it took hours; found by ``test/campaigns/fuzz.py``."""
    text = f"{pattern}: {{ros__parameters: {{b: 1}}}}\n/**: {{ros__parameters: {{a: 1}}}}"
    assert read_parameter_file(write(tmp_path, text)).of("/a" * 100) == {"a": 1}


def test_the_name_of_a_node_has_an_end(tmp_path):
    text = "\n".join(f"{'  ' * depth}{'a' * 60}:" for depth in range(6))
    with pytest.raises(ConfigurationError, match=r"params\.yaml: line 6: .* more than 255"):
        read_parameter_file(write(tmp_path, text + " {ros__parameters: {a: 1}}"))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"no\.yaml"):
        read_parameter_file(tmp_path / "no.yaml")


def test_the_file_of_the_package_is_read():
    file = read_parameter_file(ROOT / "config" / "perception.param.yaml")
    assert file.tasks == ("detector", "segmenter")
    assert file.of_task("detector")["preprocessing.pad_value"] == -1
    assert file.of_task("detector")["wcet_exceedance"] == 0.001
    assert file.of_task("segmenter") == {
        "kind": "segmentation",
        "model": "builtin:segmenter",
        "lock_configuration": False,
    }


def test_of_several_files_the_last_wins(tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("/robot/detector: {ros__parameters: {a: 1, b: 1}}", encoding="utf-8")
    second.write_text("/**/detector: {ros__parameters: {b: 2}}", encoding="utf-8")
    for namespace in ("robot", "/robot/"):
        files = read_parameter_files([first, second], namespace)
        assert files.of_task("detector") == {"a": 1, "b": 2}
    assert read_parameter_files([second, first], "robot").of_task("detector") == {"a": 1, "b": 1}
    assert read_parameter_files([first, second]).of_task("detector") == {"b": 2}


def test_a_value_that_cannot_be_used_has_the_line_of_the_file_that_won(tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("detector:\n  ros__parameters:\n    stages: 99\n    deadline_ms: abc\n")
    second.write_text("# of the robot\n/**:\n  ros__parameters: {stages: 1, deadline_ms: -1.0}\n")
    file = read_parameter_files([first, second])
    with pytest.raises(ConfigurationError) as caught:
        file.read(TaskConfig, "detector")
    place = f"{second}, line 3"
    assert str(caught.value) == f"{place}: detector: deadline_ms must be in [0, 60000]: -1.0"
    assert caught.value.parameter == "deadline_ms"
    assert file.locate("detector", "stages") == place
    assert read_parameter_file(first).locate("detector", "stages") == f"{first}, line 3"
    assert file.locate("detector", "priority") == ""


def test_a_value_that_is_not_the_files_has_no_line(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("detector: {ros__parameters: {stages: 2}}\n")
    file = read_parameter_file(path)
    with pytest.raises(ConfigurationError, match=r"^detector: stages must be in"):
        file.read(TaskConfig, "detector", {"stages": 99})
    with pytest.raises(ConfigurationError, match=r"^detector: preprocessing\.std needs three"):
        file.read(TaskConfig, "detector", preprocessing_std=(1.0,))
