"""``build_only:=true`` builds what the nodes would run, and ends with the build."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("launch_ros", reason="launch_ros is not installed: it comes with ROS 2")
pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from ament_index_python.packages import PackageNotFoundError, get_package_share_directory
from launching import run_launch

if not os.environ.get("AMENT_PREFIX_PATH"):
    pytest.skip("AMENT_PREFIX_PATH is not set: source the workspace", allow_module_level=True)
try:
    SHARE = Path(get_package_share_directory("jetson_dnn_rt"))
except PackageNotFoundError:
    pytest.skip("jetson_dnn_rt is not installed in this workspace", allow_module_level=True)

PARAMETERS = """
/robot/detector:
  ros__parameters:
    model: {model}
    variants: {variants}
"""


def run(folder: Path, written: str, variants: str, /, **arguments: str) -> tuple[int, str]:
    """Launch with a model and variants in a parameter file, as ``ros2 launch`` does it.

    Returns the exit code and what was said.
    """
    file = folder / "params.yaml"
    file.write_text(PARAMETERS.format(model=written, variants=variants), encoding="utf-8")
    given = {
        "params_file": str(file),
        "namespace": "robot",
        "engine_cache": str(folder / "library"),
        "segmenter_model": "none",
        "build_only": "true",
        **arguments,
    }
    return run_launch(SHARE / "launch" / "perception.launch.py", given)


@pytest.mark.launch
def test_what_the_nodes_would_run_is_built_and_nothing_runs(tmp_path: Path) -> None:
    code, said = run(tmp_path, "null:1", "[full@null]")
    assert code == 0, said
    (measured,) = tmp_path.glob("library/*/full@null*/*/entry.json")
    assert '"variant": "full@null"' in measured.read_text(encoding="utf-8")
    assert "schedulable" not in said
    # The launch's own arguments win over the file.
    code, said = run(tmp_path, "onnx:/nowhere.onnx", "[full@null]", model="null:2")
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
def test_a_build_that_fails_fails_the_launch(
    tmp_path: Path, model: str, variants: str, arguments: dict[str, str], code: int, reason: str
) -> None:
    found, said = run(tmp_path, model, variants, **arguments)
    assert found == 1, said
    assert reason in said
    assert f"the build ended with exit code {code}" in said
