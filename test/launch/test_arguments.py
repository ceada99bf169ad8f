"""Arguments of perception.launch.py and plot.launch.py."""

from __future__ import annotations

import pytest

pytest.importorskip("launch_ros", reason="launch_ros is not installed: the launch tests need it")
pytest.importorskip("rclpy", reason="rclpy is not installed: the launch tests need it")

from ament_index_python.packages import PackageNotFoundError, get_package_share_directory
from launching import find_share, pretend, run_launch

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
        ({"composed": "perhaps"}, "true or false expected, not 'perhaps'"),
        ({"cameras": "front", "input_image_topic": "/image"}, "images come from one of them"),
    ],
)
def test_what_cannot_be_started_is_said(arguments, reason):
    code, said = run_launch(PERCEPTION, arguments)
    assert code == 1
    assert reason in said


def plot(folder, **arguments):
    """The commands that were run."""
    log = folder / "commands"
    environment = pretend(folder, "rqt_plot", f'echo "$@" >> "{log}"')
    code, said = run_launch(PLOT, arguments, environment)
    assert code == 0, said
    return sorted(log.read_text(encoding="utf-8").splitlines())


@pytest.mark.launch
def test_latency_deadline_and_misses_of_every_task(tmp_path):
    assert plot(tmp_path) == [
        "run rqt_plot rqt_plot /detector/debug/deadline_misses/data "
        "/segmenter/debug/deadline_misses/data",
        "run rqt_plot rqt_plot /detector/debug/pipeline_latency_ms/data "
        "/detector/debug/deadline_ms/data /segmenter/debug/pipeline_latency_ms/data "
        "/segmenter/debug/deadline_ms/data",
    ]


@pytest.mark.launch
def test_topics_are_arguments(tmp_path):
    commands = plot(
        tmp_path,
        namespace="/robot/",
        plot_tasks="rear/detector",
        plot_topics="p99_ms, /coordinator/debug/power_w",
        plot_counters="none",
    )
    assert commands == [
        "run rqt_plot rqt_plot /robot/rear/detector/debug/p99_ms/data "
        "/coordinator/debug/power_w/data"
    ]


@pytest.mark.launch
def test_where_rqt_plot_is_missing_the_layouts_are_named():
    try:
        get_package_share_directory("rqt_plot")
    except PackageNotFoundError:
        code, said = run_launch(PLOT, {})
        assert code == 0, said
        assert "rqt_plot is not installed (ros-<distro>-rqt-plot)" in said
        assert "foxglove_layout.json" in said
    else:
        pytest.skip("rqt_plot is installed here")
