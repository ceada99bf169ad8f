"""What users see, against the files in test/snapshots: see tools/snapshots.py."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import pytest
from definitions import find_definitions
from definitions import main as compare_definitions
from snapshots import FOLDER, SNAPSHOTS, compare, render, snapshot_file

NEEDED = {
    "parameters": ("rclpy",),
    "interfaces": ("rclpy", "vision_msgs.msg"),
    "json_keys": ("rclpy", "vision_msgs.msg", "cv2", "rosbags", "pyarrow", "scipy", "xlsxwriter"),
    "trace_schema": ("pyarrow", "xlsxwriter"),
    "help_benchmarks": ("rclpy", "torch"),
}
"""Snapshots of what needs libraries that are not always there."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, one in SNAPSHOTS.items() if one.tested])
def test_nothing_that_users_see_has_changed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in NEEDED.get(name, ()):
        pytest.importorskip(module)
    if name.startswith("help") and sys.version_info >= (3, 13):
        pytest.skip("argparse of Python 3.13 breaks lines in other places")
    if name == "decisions_simulated":
        from snapshot_decisions import fingerprint

        if f"fingerprint: {fingerprint()}\n" not in snapshot_file(name).read_text("utf-8"):
            pytest.skip("numpy rounds otherwise on this processor than where this was written")
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    diff = compare(name, SNAPSHOTS[name].collect())
    assert not diff, (
        f"{name} is not what it was. If that is meant: python tools/snapshots.py --write {name}"
        f"\n{diff}"
    )


def test_every_snapshot_is_there_and_no_other() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(SNAPSHOTS)


def test_a_difference_is_shown_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = snapshot_file("executables").read_text("utf-8")
    assert compare("executables", text) == ""
    diff = compare("executables", text.replace("pip: jetson-dnn-rt: is there\n", ""))
    assert "-pip: jetson-dnn-rt: is there" in diff.splitlines()
    assert render({"b": 1, "a": {"y": None, "x": "ä"}}) == 'a: {"x": "ä", "y": null}\nb: 1\n'


SOURCE = '''"""A module."""
import os
LIMIT = 3
CLASSES = {"one": "jetson_dnn_rt.models.one:One"}
class One:
    size: int = 1
    def run(self):
        from jetson_dnn_rt.models import two
        return two.go()
def stop(): return os.getpid()
'''


def test_a_move_changes_no_definition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    (tmp_path / "before" / "a.py").write_text(SOURCE)
    head, _, stop = SOURCE.partition("def stop")
    moved = head.replace("jetson_dnn_rt.models", "jetson_dnn_rt.nets.parts")
    (tmp_path / "after" / "b.py").write_text(moved)
    (tmp_path / "after" / "c.py").write_text(f'"""Other."""\nimport os\ndef stop{stop}')
    trees = [str(tmp_path / "before"), str(tmp_path / "after")]
    assert compare_definitions(trees) == 0
    (tmp_path / "after" / "b.py").write_text(moved.replace("two.go()", "two.go(1)"))
    assert compare_definitions(trees) == 1
    lines = [line.split()[::2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [["-", "One.run"], ["+", "One.run"]]


def test_definitions_are_all_there_is() -> None:
    names = [name for name, _ in find_definitions(SOURCE)]
    assert names == ["= LIMIT", "= CLASSES", "One", "One.run", "stop"]
    assert ast.get_docstring(ast.parse(SOURCE)) == "A module."
