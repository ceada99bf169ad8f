"""``record`` and ``trace_dir`` of perception.launch.py."""

from __future__ import annotations

import os
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("launch_ros", reason="launch_ros is not installed: it comes with ROS 2")

from ament_index_python.packages import PackageNotFoundError, get_package_share_directory

if not os.environ.get("AMENT_PREFIX_PATH"):
    pytest.skip("AMENT_PREFIX_PATH is not set: source the workspace", allow_module_level=True)
try:
    get_package_share_directory("jetson_dnn_rt")
except PackageNotFoundError:
    pytest.skip("jetson_dnn_rt is not installed in this workspace", allow_module_level=True)

FILE = Path(__file__).parents[2] / "launch" / "perception.launch.py"


@pytest.fixture(scope="module")
def perception() -> Any:
    spec = spec_from_file_location("perception_launch", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("record", "trace_dir", "expected"),
    [
        ("false", "", ""),
        ("true", "", "/ros/jetson_dnn_rt"),
        ("true", "/data", "/data"),
        ("false", "/data", "/data"),
    ],
)
def test_where_jobs_are_traced(
    perception: Any,
    monkeypatch: pytest.MonkeyPatch,
    record: str,
    trace_dir: str,
    expected: str,
) -> None:
    monkeypatch.setenv("ROS_HOME", "/ros")
    found = perception.find_trace_dir({"record": record, "trace_dir": trace_dir})
    assert found == expected


def test_a_name_for_a_bag_belongs_into_another_argument(perception: Any) -> None:
    with pytest.raises(ValueError, match="a bag is recorded with record_bag:=NAME"):
        perception.find_trace_dir({"record": "my_bag", "trace_dir": ""})


@pytest.mark.parametrize(("composed", "owners"), [("true", 1), ("false", 2)])
def test_who_has_an_executor_traces(
    perception: Any, tmp_path: Path, composed: str, owners: int
) -> None:
    import yaml

    arguments = {name: default for name, default, _ in perception.ARGUMENTS}
    arguments |= {"composed": composed, "trace_dir": str(tmp_path)}
    file = Path(perception.write_overrides(arguments, ["detector", "segmenter"], True))
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    file.unlink()
    tracing = {node for node, body in written.items() if body["ros__parameters"].get("trace_dir")}
    expected = {"/**/perception"} if owners == 1 else {"/**/detector", "/**/segmenter"}
    assert tracing == expected
