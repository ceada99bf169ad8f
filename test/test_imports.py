# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The robot imports and runs without the optional libraries, the lab and the plug-ins."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OPTIONAL = ("rclpy", "tensorrt", "tvm", "onnxruntime", "openvino")
# Hidden all at once: each is imported in one or two places only.
EXTRAS = (
    *("pyarrow", "scipy", "xlsxwriter", "dask", "distributed", "rosbags", "matplotlib"),
    *("jinja2", "markupsafe", "rich", "trackforge"),
)
# These alone may need ROS: the nodes, and what listens to them.
ROS_MODULES = r"jetson_dnn_rt\.(nodes(\..+)?|watch\.(subscriber|rqt\..+))"
# These alone need Qt, which rqt has loaded when it imports them.
QT_MODULES = r"jetson_dnn_rt\.watch\.rqt\.(deadlines|plot)"
# The robot does without these parts of the package.
PARTS = ("jetson_dnn_rt.lab", "jetson_dnn_rt.tvm", "jetson_dnn_rt.watch", "benchmarks")

PROBE = """
import importlib, json, os, pkgutil, re, sys, traceback

class Hiding:
    # Finds nothing of what is hidden, as if it were not installed.

    def __init__(self, finder, hidden):
        self.finder, self.hidden = finder, hidden

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if hides(self.hidden, name):
            return None
        return self.finder.find_spec(name, path, target)

def hides(hidden, name):
    return any(name == other or name.startswith(other + ".") for other in hidden)

def names(package, hidden, skipped):
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if re.fullmatch(skipped, info.name) or info.name.endswith(".__main__"):
            continue
        if hides(hidden, info.name):
            continue
        yield info.name
        if info.ispkg:
            yield from names(importlib.import_module(info.name), hidden, skipped)

def run(model):
    # One frame through the default variant of a model, as a task runs it.
    import numpy as np
    from jetson_dnn_rt.frames import Frame
    from jetson_dnn_rt.models.sources.registry import load_model
    from jetson_dnn_rt.config.task import TaskConfig
    from jetson_dnn_rt.tasks import Work
    from jetson_dnn_rt.variants.running.variant_set import VariantSet

    variants = VariantSet(TaskConfig(), load_model(model))
    work = Work(Frame(np.zeros((48, 64, 3), np.uint8), "bgr8", 0, 0))
    for stage in variants.pipelines[variants.default].stages:
        stage.run(work)
    variants.close()
    return [variants.default, type(work.result).__name__]

def probe(hidden, skipped):
    assert not any(hides(hidden, name) for name in sys.modules)
    sys.meta_path[:] = [Hiding(finder, hidden) for finder in sys.meta_path]
    import jetson_dnn_rt

    done, failures = [], {}
    try:
        for name in names(jetson_dnn_rt, hidden, skipped):
            try:
                importlib.import_module(name)
            except Exception:
                failures[name] = traceback.format_exc()
            done.append(name)
    except Exception:
        failures["the walk"] = traceback.format_exc()
    heavy = [
        name
        for name in ("rclpy", "onnxruntime", "openvino", "pyarrow", "dask")
        if name in sys.modules
    ]
    try:
        ran = [run("null:1"), run("builtin:segmenter")]
        from jetson_dnn_rt.cli import main
        from jetson_dnn_rt.plugins import collect
        commands = sorted(collect("COMMANDS"))
    except Exception:
        failures["the run"] = traceback.format_exc()
        ran, commands = [], []
    answer = {"done": done, "failures": failures, "heavy": heavy, "ran": ran, "commands": commands}
    print(json.dumps(answer), flush=True)

preloaded, cases, compiled = json.loads(sys.argv[1])
for name in preloaded:
    importlib.import_module(name)
sys.pycache_prefix, sys.dont_write_bytecode = compiled, False
for hidden, skipped in cases:
    # Each in a process of its own, which has what was loaded before.
    child = os.fork()
    if not child:
        probe(hidden, skipped)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def import_all(cases, preloaded, folder):
    """Import every module but those that match, with libraries hidden; an answer for each case.

    What is not `preloaded` is compiled into `folder`, once for all cases.
    """
    completed = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps([preloaded, cases, os.fspath(folder)])],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.fspath(ROOT)},
        check=True,
    )
    answers = [json.loads(line) for line in completed.stdout.splitlines() if line[:1] == "{"]
    assert len(answers) == len(cases)
    return answers


CASES = {
    "+".join(hidden): (hidden, ROS_MODULES if "rclpy" in hidden else QT_MODULES)
    for hidden in (*((name,) for name in OPTIONAL), OPTIONAL, EXTRAS, PARTS)
}
CORE = {"core": ((), ROS_MODULES)}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What came of each case. What takes the longest to load is loaded once for all of them."""
    has_ros = importlib.util.find_spec("rclpy") is not None
    cases = {k: v for k, v in {**CASES, **CORE}.items() if has_ros or v[1] != QT_MODULES}
    heavy = tuple(name for name in ("torch", "torchvision") if importlib.util.find_spec(name))
    found = import_all([*cases.values()], heavy, tmp_path_factory.mktemp("compiled"))
    return dict(zip(cases, found, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_every_module_imports_without(case, answers):
    hidden, skipped = CASES[case]
    if skipped == QT_MODULES:
        pytest.importorskip("rclpy", reason="without ROS the nodes cannot be imported")
    assert not answers[case]["failures"], "\n".join(answers[case]["failures"].values())
    expected = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in (ROOT / "jetson_dnn_rt").rglob("*.py")
        if file.name not in ("__init__.py", "__main__.py")
    }
    left_out = re.compile(rf"{skipped}|({'|'.join(map(re.escape, hidden))})\..+")
    expected = {name for name in expected if not left_out.fullmatch(name)}
    assert expected <= set(answers[case]["done"])
    null, real = answers[case]["ran"]
    backend = next(name for name in ("openvino", "onnxruntime", "torch") if name not in hidden)
    assert (null, real) == (["full@null", "Detections"], [f"full@{backend}-fp32", "Segmentation"])
    assert bool(answers[case]["commands"]) == (hidden != PARTS)


def test_importing_the_core_loads_no_back_end_and_no_ros(answers):
    assert not answers["core"]["failures"]
    assert answers["core"]["heavy"] == []


def test_without_torch_only_what_needs_it_is_lost(tmp_path):
    """A robot whose networks are engines imports and runs all but PyTorch's graphs."""
    needing = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in (ROOT / "jetson_dnn_rt").rglob("*.py")
        if re.search(r"(?m)^(import|from) torch", file.read_text())
    }
    (answer,) = import_all([(("torch", "torchvision", *PARTS), ROS_MODULES)], (), tmp_path)
    assert set(answer["failures"]) <= needing
    assert [kind for _, kind in answer["ran"]] == ["Detections", "Segmentation"]


def test_a_hidden_library_is_really_hidden(tmp_path):
    """Guards the guard: the probe must fail for a library the package does import."""
    (answer,) = import_all([(("numpy",), ROS_MODULES)], (), tmp_path)
    assert any("No module named 'numpy'" in text for text in answer["failures"].values())
