"""Arguments of perception.launch.py and plot.launch.py."""

from __future__ import annotations

import pytest

pytest.importorskip("launch_ros", reason="launch_ros is not installed: the launch tests need it")
pytest.importorskip("rclpy", reason="rclpy is not installed: the launch tests need it")

from ament_index_python.packages import PackageNotFoundError, get_package_share_directory
from launching import find_share, pretend, run_launch

SHARE = find_share()
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
    return run_launch(SHARE / "launch" / "perception.launch.py", given)


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
