"""What the launch files share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("ament_index_python", reason="ament_index_python is missing: it is of ROS 2")

from jetson_dnn_rt.nodes.process.launch_tools import (
    find_trace_dir,
    has_package,
    is_true,
    make_overrides,
)

CONFIG = Path(__file__).parents[2] / "config" / "perception.param.yaml"
ARGUMENTS = {
    "namespace": "robot",
    "image_transport": "",
    "source": "synthetic:320x240",
    "model": "null:2",
    "segmenter_model": "null:3,segmentation",
    "engine_cache": "",
    "policy": "neuos_balanced",
    "use_sim_time": "true",
    "autostart": "true",
    "composed": "true",
    "record": "false",
    "trace_dir": "",
}
TASKS = ["detector", "segmenter"]


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        *(("true", True), ("True", True), ("1", True), ("yes", True), ("ON", True)),
        *(("false", False), ("FALSE", False), ("0", False), ("no", False), ("off", False)),
    ],
)
def test_words_for_yes_and_no(text, meaning):
    assert is_true(text) is meaning


@pytest.mark.parametrize("text", ["", "maybe", "truee", " true"])
def test_other_words_are_refused(text):
    with pytest.raises(ValueError, match=f"true or false expected, not '{text}'"):
        is_true(text)


def test_packages_are_found_in_every_prefix(tmp_path, monkeypatch):
    marker = tmp_path / "b" / "share" / "ament_index" / "resource_index" / "packages" / "plots"
    marker.parent.mkdir(parents=True)
    marker.touch()
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    assert has_package("plots")
    assert not has_package("other")


def test_a_launch_file_loads_no_node():
    program = "import sys, jetson_dnn_rt.nodes.process.launch_tools; print('rclpy' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    assert answer.stdout.strip() == b"False"


@pytest.mark.parametrize(
    ("record", "trace_dir", "expected"),
    [
        ("false", "", ""),
        ("true", "", "/ros/jetson_dnn_rt"),
        ("true", "/data", "/data"),
        ("false", "/data", "/data"),
    ],
)
def test_where_jobs_are_traced(monkeypatch, record, trace_dir, expected):
    monkeypatch.setenv("ROS_HOME", "/ros")
    assert find_trace_dir({"record": record, "trace_dir": trace_dir}) == expected


def test_a_name_for_a_bag_belongs_into_another_argument():
    with pytest.raises(ValueError, match="a bag is recorded with record_bag:=NAME"):
        find_trace_dir({"record": "my_bag", "trace_dir": ""})


@pytest.mark.parametrize(("composed", "owners"), [("true", ["perception"]), ("false", TASKS)])
def test_who_has_an_executor_traces(tmp_path, composed, owners):
    arguments = {**ARGUMENTS, "composed": composed, "trace_dir": str(tmp_path)}
    content = make_overrides(arguments, TASKS, True)
    tracing = {node for node, body in content.items() if "trace_dir" in body["ros__parameters"]}
    assert tracing == {name for owner in owners for name in (f"/**/{owner}", f"/robot/{owner}")}


_EXACT = """
/robot/perception: {ros__parameters: {autostart: false, tasks: [other]}}
/**/detector: {ros__parameters: {model: "null:9", use_sim_time: false}}
/robot/detector: {ros__parameters: {model: "null:8"}}
"""


@pytest.mark.parametrize(
    "users", [CONFIG.read_text(encoding="utf-8"), _EXACT], ids=["ours", "exact"]
)
def test_arguments_hold_above_every_section_of_the_users_file(ros, tmp_path, users):
    from rclpy.node import Node

    files = [tmp_path / "user.yaml", tmp_path / "overrides.yaml"]
    files[0].write_text(users, encoding="utf-8")
    files[1].write_text(yaml.safe_dump(make_overrides(ARGUMENTS, TASKS, True)), encoding="utf-8")
    options = [text for file in files for text in ("--params-file", str(file))]
    found = {}
    for name in ("perception", "camera", "coordinator", *TASKS):
        node = Node(
            name,
            namespace="/robot",
            context=ros.context,
            cli_args=["--ros-args", *options],
            use_global_arguments=False,
            automatically_declare_parameters_from_overrides=True,
        )
        values = node.get_parameters_by_prefix("").items()
        found[name] = {key: parameter.value for key, parameter in values}
        node.destroy_node()
    for values in found.values():
        assert values["autostart"] is values["use_sim_time"] is True
    assert list(found["perception"]["tasks"]) == TASKS
    assert found["camera"]["source"] == "synthetic:320x240"
    assert found["detector"]["model"] == "null:2"
    assert found["segmenter"]["model"] == "null:3,segmentation"
    assert found["coordinator"]["policy"] == "neuos_balanced"
