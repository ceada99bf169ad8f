"""Children run nothing out of the folder that their parent stands in (EDGES 16)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jetson_dnn_rt.children import CHILD_FOLDER, child_environment, python_command


@pytest.mark.parametrize("python_path", ["", ".", "::", "relative"])
def test_a_module_beside_the_caller_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python_path: str
) -> None:
    for name in ("ctypes", "jetson_dnn_rt", "runpy", "relative/ctypes"):
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", python_path)
    target = "import ctypes, sys\nimport jetson_dnn_rt.clock\nprint(sys.argv, __name__)"
    package = tmp_path / "absolute"
    package.mkdir()
    (package / "child_under_test.py").write_text(target)
    environment = child_environment()
    environment["PYTHONPATH"] += f":{package}"
    command = python_command("child_under_test", "one", "two")
    for folder in (CHILD_FOLDER, None):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split("', '")[1:] == ["one", "two'] __main__\n"]
    assert not (tmp_path / "ran").exists()
