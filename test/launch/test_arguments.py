# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Arguments of perception.launch.py and plot.launch.py."""

from __future__ import annotations

import importlib.util
import os
import re

import pytest

pytest.importorskip("launch_ros", reason="launch_ros is not installed: the launch tests need it")
pytest.importorskip("rclpy", reason="rclpy is not installed: the launch tests need it")

from launching import find_share, run_launch

SHARE = find_share()
PERCEPTION = SHARE / "launch" / "perception.launch.py"
PLOT = SHARE / "launch" / "plot.launch.py"
PARAMETERS = """
/robot/detector:
  ros__parameters:
    model: {model}
    variants: {variants}
"""


def build(folder, written, variants, /, **arguments):
    """Launch ``build_only`` with a model and variants in a file; exit code and output."""
    file = folder / "params.yaml"
    file.write_text(PARAMETERS.format(model=written, variants=variants), encoding="utf-8")
    given = {
        "params_file": str(file),
        "namespace": "robot",
        "engine_cache": str(folder / "library"),
        "tasks": "detector",
        "build_only": "true",
        **arguments,
    }
    return run_launch(PERCEPTION, given)


@pytest.mark.launch
def test_what_the_nodes_would_run_is_built_and_nothing_runs(tmp_path):
    code, said = build(tmp_path, "null:1", "[full@null]")
    assert code == 0, said
    (measured,) = tmp_path.glob("library/*/full@null*/*/entry.json")
    assert '"variant": "full@null"' in measured.read_text(encoding="utf-8")
    assert "schedulable" not in said
    # The launch's own arguments win over the file.
    code, said = build(tmp_path, "onnx:/nowhere.onnx", "[full@null]", model="null:2")
    assert code == 0, said
    assert len(list(tmp_path.glob("library/*/full@null*/*/entry.json"))) == 2


@pytest.mark.launch
@pytest.mark.parametrize(
    ("model", "variants", "arguments", "code", "reason"),
    [
        ("onnx:/nowhere.onnx", "[full@null]", {}, 1, "/nowhere.onnx"),
        ("null:1", "[nonsense]", {}, 2, "nonsense"),
        ("null:1", "[full@null]", {"engine_cache": "none"}, 2, "nowhere to keep it"),
    ],
)
def test_a_build_that_fails_fails_the_launch(tmp_path, model, variants, arguments, code, reason):
    found, said = build(tmp_path, model, variants, **arguments)
    assert found == 1, said
    assert reason in said
    assert f"the build ended with exit code {code}" in said


INCLUDING = """
from launch import LaunchDescription
from launch.actions import IncludeLaunchDescription, OpaqueFunction
from launch.launch_description_sources import PythonLaunchDescriptionSource

def tell(context):
    print("profiles:", [name for name in context.environment if "PROFILES" in name])

def generate_launch_description():
    include = IncludeLaunchDescription(
        PythonLaunchDescriptionSource({file!r}), launch_arguments={arguments!r}.items()
    )
    return LaunchDescription([include, OpaqueFunction(function=tell)])
"""


@pytest.mark.launch
def test_an_including_launch_file_keeps_its_environment(tmp_path, monkeypatch):
    for name in ("FASTDDS", "FASTRTPS"):
        monkeypatch.delenv(f"{name}_DEFAULT_PROFILES_FILE", raising=False)
    arguments = {
        "build_only": "true",
        "model": "null:1",
        "tasks": "detector",
        "engine_cache": str(tmp_path / "library"),
    }
    file = tmp_path / "including.launch.py"
    text = INCLUDING.format(file=str(PERCEPTION), arguments=arguments)
    file.write_text(text, encoding="utf-8")
    code, said = run_launch(file, {})
    assert code == 0, said
    assert "profiles: []" in said


@pytest.mark.launch
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"params_file": "nowhere.yaml"}, "params_file: nowhere.yaml is neither in"),
        ({"composed": "perhaps"}, "composed: true or false expected, not 'perhaps'"),
        ({"plot": "perhaps"}, "plot: true or false expected, not 'perhaps'"),
        ({"tasks": "none"}, "none is no task"),
        ({"cameras": "front", "input_image_topic": "/image"}, "images come from one of them"),
        ({"sorce": "synthetic"}, "has no argument sorce; did you mean source?"),
        ({"xyz": "1"}, "has no argument xyz; --show-args lists those that there are"),
    ],
)
def test_what_cannot_be_started_is_said(arguments, reason):
    code, said = run_launch(PERCEPTION, arguments)
    assert code == 1
    assert reason in said


# Fakes of what rqt_plot and rqt install: an rqt that says what it was started with.
RQT = {
    "rqt_gui/main.py": """
class Main:
    def __init__(self, filename):
        pass

    def main(self, arguments, standalone, plugin_argument_provider):
        given = arguments[: arguments.index("--ros-args")]
        print("rqt:", standalone.rpartition(".")[2], *given[1:], flush=True)
""",
    "rqt_plot/plot.py": "class Plot:\n    add_arguments = None\n",
    "rqt_gui_py/__init__.py": "",
    "pyqtgraph/__init__.py": "",
}


def plot(folder, **arguments):
    """The windows that were opened."""
    for name, content in RQT.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(content, encoding="utf-8")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    code, said = run_launch(PLOT, arguments, {"PYTHONPATH": path})
    assert code == 0, said
    return sorted(re.findall(r"rqt: (.*?)\r?$", said, re.MULTILINE))


@pytest.mark.launch
def test_the_plugin_of_deadlines_is_shown(tmp_path):
    assert plot(tmp_path) == ["Deadlines --force-discover --namespace /"]
    given = plot(tmp_path, namespace="robot/")
    assert given == ["Deadlines --force-discover --namespace /robot"]


@pytest.mark.launch
def test_latency_deadline_and_misses_of_every_task(tmp_path):
    assert plot(tmp_path, plot_with="rqt_plot,deadlines") == [
        "Deadlines --force-discover --namespace /",
        "WaitingPlot --force-discover /detector/debug/deadline_misses/data "
        "/segmenter/debug/deadline_misses/data",
        "WaitingPlot --force-discover /detector/debug/pipeline_latency_ms/data "
        "/detector/debug/deadline_ms/data /segmenter/debug/pipeline_latency_ms/data "
        "/segmenter/debug/deadline_ms/data",
    ]


@pytest.mark.launch
def test_topics_are_arguments(tmp_path):
    windows = plot(
        tmp_path,
        namespace="/robot/",
        plot_with="rqt_plot",
        plot_tasks="rear/detector",
        plot_topics="p99_ms, /coordinator/debug/power_w",
        plot_counters="none",
    )
    assert windows == [
        "WaitingPlot --force-discover /robot/rear/detector/debug/p99_ms/data "
        "/coordinator/debug/power_w/data"
    ]


@pytest.mark.launch
def test_a_tool_that_is_not_known_is_refused():
    code, said = run_launch(PLOT, {"plot_with": "gnuplot"})
    assert code == 1
    assert "plot_with: deadlines, rqt_plot expected, not gnuplot" in said


@pytest.mark.launch
def test_a_misspelt_argument_of_plot_is_refused():
    code, said = run_launch(PLOT, {"plot_wiht": "rqt_plot"})
    assert code == 1
    assert "plot.launch.py has no argument plot_wiht; did you mean plot_with?" in said


@pytest.mark.launch
def test_where_rqt_is_missing_the_fix_is_said_and_the_launch_goes_on():
    if importlib.util.find_spec("rqt_gui"):
        pytest.skip("rqt is installed here")
    code, said = run_launch(PLOT, {})
    assert code == 0, said
    assert "fix: sudo apt install ros-<distro>-rqt-gui" in said
    assert "foxglove_layout.json" in said


@pytest.mark.launch
@pytest.mark.parametrize(
    ("composed", "enclaves"),
    [("true", {"/perception"}), ("false", {"/camera", "/detector", "/segmenter"})],
)
def test_each_process_gets_its_enclave_where_sros2_is_on(
    tmp_path, monkeypatch, composed, enclaves
):
    """None of them is in this keystore, so every process ends, and its command is logged."""
    monkeypatch.setenv("ROS_SECURITY_ENABLE", "true")
    monkeypatch.setenv("ROS_SECURITY_STRATEGY", "Enforce")
    monkeypatch.setenv("ROS_SECURITY_KEYSTORE", str(tmp_path))
    _, said = run_launch(PERCEPTION, {"composed": composed})
    assert set(re.findall(r"--enclave (\S+)", said)) == enclaves
