"""``plot.launch.py``: rqt_plot gets the fields of every task."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("launch_ros", reason="launch_ros is not installed: it comes with ROS 2")

from ament_index_python.packages import PackageNotFoundError, get_package_share_directory
from launching import pretend, run_launch

if not os.environ.get("AMENT_PREFIX_PATH"):
    pytest.skip("AMENT_PREFIX_PATH is not set: source the workspace", allow_module_level=True)
try:
    FILE = Path(get_package_share_directory("jetson_dnn_rt"), "launch", "plot.launch.py")
except PackageNotFoundError:
    pytest.skip("jetson_dnn_rt is not installed in this workspace", allow_module_level=True)
if not FILE.is_file():
    pytest.skip("the installed package is older than this test", allow_module_level=True)


def launch(folder: Path, **arguments: str) -> list[str]:
    """The commands that were run."""
    log = folder / "commands"
    environment = pretend(folder, "rqt_plot", f'echo "$@" >> "{log}"')
    code, said = run_launch(FILE, arguments, environment)
    assert code == 0, said
    return sorted(log.read_text(encoding="utf-8").splitlines())


@pytest.mark.launch
def test_latency_deadline_and_misses_of_every_task(tmp_path: Path) -> None:
    assert launch(tmp_path) == [
        "run rqt_plot rqt_plot /detector/debug/deadline_misses/data "
        "/segmenter/debug/deadline_misses/data",
        "run rqt_plot rqt_plot /detector/debug/pipeline_latency_ms/data "
        "/detector/debug/deadline_ms/data /segmenter/debug/pipeline_latency_ms/data "
        "/segmenter/debug/deadline_ms/data",
    ]


@pytest.mark.launch
def test_topics_are_arguments(tmp_path: Path) -> None:
    commands = launch(
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
def test_where_rqt_plot_is_missing_the_layouts_are_named() -> None:
    try:
        get_package_share_directory("rqt_plot")
    except PackageNotFoundError:
        code, said = run_launch(FILE, {})
        assert code == 0, said
        assert "rqt_plot is not installed (ros-<distro>-rqt-plot)" in said
        assert "foxglove_layout.json" in said
    else:
        pytest.skip("rqt_plot is installed here")
