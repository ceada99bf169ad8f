"""The package imports without the optional libraries, and does not load the heavy ones early."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OPTIONAL = ("rclpy", "tensorrt", "tvm", "onnxruntime", "openvino")
# These alone may need ROS: the nodes, and the benchmarks' programs that are nodes themselves.
ROS_MODULES = r"jetson_dnn_rt\.(nodes(\..+)?|bench\.\w+_(node|camera))"
NONE = r"(?!)"

PROBE = """
import importlib, json, pkgutil, re, sys, traceback

hidden, skipped = json.loads(sys.argv[1])

class Hiding:
    # Finds nothing of what is hidden, as if it were not installed.

    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            return None
        return self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
import jetson_dnn_rt

def names(package):
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if re.fullmatch(skipped, info.name) or info.name.endswith(".__main__"):
            continue
        yield info.name
        if info.ispkg:
            yield from names(importlib.import_module(info.name))

done, failures = [], {}
try:
    for name in names(jetson_dnn_rt):
        try:
            importlib.import_module(name)
        except Exception:
            failures[name] = traceback.format_exc()
        done.append(name)
except Exception:
    failures["the walk"] = traceback.format_exc()
heavy = [name for name in ("rclpy", "onnxruntime", "openvino") if name in sys.modules]
print(json.dumps({"done": done, "failures": failures, "heavy": heavy}))
"""


def import_all(hidden: tuple[str, ...], skipped: str) -> dict[str, list[str]]:
    completed = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps([hidden, skipped])],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.fspath(ROOT)},
        check=True,
    )
    answer = json.loads(completed.stdout.splitlines()[-1])
    assert not answer["failures"], "\n".join(answer["failures"].values())
    return answer


@pytest.mark.parametrize("hidden", [*((name,) for name in OPTIONAL), OPTIONAL], ids="+".join)
def test_every_module_imports_without(hidden: tuple[str, ...]) -> None:
    skipped = ROS_MODULES if "rclpy" in hidden else NONE
    if skipped == NONE:
        pytest.importorskip("rclpy", reason="without ROS the nodes cannot be imported")
    answer = import_all(hidden, skipped)
    expected = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in (ROOT / "jetson_dnn_rt").rglob("*.py")
        if file.name not in ("__init__.py", "__main__.py")
    }
    expected = {name for name in expected if not re.fullmatch(skipped, name)}
    assert expected <= set(answer["done"])


def test_importing_the_core_loads_no_back_end_and_no_ros() -> None:
    assert import_all((), ROS_MODULES)["heavy"] == []


def test_a_hidden_library_is_really_hidden() -> None:
    """Guards the guard: the probe must fail for a library the package does import."""
    with pytest.raises(AssertionError, match="No module named 'numpy'"):
        import_all(("numpy",), ROS_MODULES)
