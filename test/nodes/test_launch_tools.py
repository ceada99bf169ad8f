"""What the launch files share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ament_index_python", reason="ament_index_python is missing: it is of ROS 2")

from jetson_dnn_rt.nodes.process.launch_tools import has_package, is_true


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        *(("true", True), ("True", True), ("1", True), ("yes", True), ("ON", True)),
        *(("false", False), ("FALSE", False), ("0", False), ("no", False), ("off", False)),
    ],
)
def test_words_for_yes_and_no(text: str, meaning: bool) -> None:
    assert is_true(text) is meaning


@pytest.mark.parametrize("text", ["", "maybe", "truee", " true"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"true or false expected, not '{text}'"):
        is_true(text)


def test_packages_are_found_in_every_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "b" / "share" / "ament_index" / "resource_index" / "packages" / "plots"
    marker.parent.mkdir(parents=True)
    marker.touch()
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    assert has_package("plots")
    assert not has_package("other")


def test_a_launch_file_loads_no_node() -> None:
    program = "import sys, jetson_dnn_rt.nodes.process.launch_tools; print('rclpy' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    assert answer.stdout.strip() == b"False"
