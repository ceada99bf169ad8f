# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Another commit as a side of overload: its own files and classes, in its own process."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass

import benches
import pytest

from benchmarks.harness.origin import ROOT, NoCommitError, find_commit
from benchmarks.harness.tasks import configure
from benchmarks.overload import against, bench
from benchmarks.overload.against import find_against, find_changes, make_command
from benchmarks.overload.bench import ConsumerSpec, find_roles
from benchmarks.overload.cells import AGAINST
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety.children import child_environment

# What an older commit has: fewer fields, and defaults of its own.
TREE = {
    "jetson_dnn_rt/__init__.py": "",
    "jetson_dnn_rt/config/__init__.py": "",
    "jetson_dnn_rt/config/task.py": """
from dataclasses import dataclass
@dataclass(frozen=True)
class TaskConfig:
    name: str = ""
    model: str = "theirs"
    kind: str = "detection"
    weights: str = "DEFAULT"
    engine_cache: str = ""
    batch: str = "auto"
    input_size: tuple = ()
    stages: int = 7
""",
    "benchmarks/__init__.py": "",
    "benchmarks/overload/__init__.py": "",
    "benchmarks/overload/bench.py": """
from dataclasses import dataclass
from pathlib import Path
@dataclass(frozen=True)
class ConsumerSpec:
    tasks: tuple
    threads: int
    deadline_ms: float
    output: Path
    workers: int = 1
    follows_load: bool = False
""",
    "benchmarks/overload/nodes.py": """
import os, pickle
from pathlib import Path
def run_ours(path):
    spec = pickle.loads(Path(path).read_bytes())
    spec.output.write_text(repr((spec, os.environ["PYTHONPATH"].split(os.pathsep)[0])))
    return 0
ROLES = {"ours": run_ours}
""",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in TREE.items():
        path = tmp_path / "theirs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "theirs"


def specify(tree, *tasks, **values):
    output = tree.parent / "log"
    return ConsumerSpec(tasks, 2, 40.0, output, follows_load=True, tree=tree, **values)


def run(spec):
    command = make_command(spec.tree, spec, spec.output.with_name("against.spec"))
    return subprocess.run(command, capture_output=True, text=True, env=child_environment())


def test_the_other_commit_runs_with_its_own_classes_and_defaults(tree):
    task = configure("segmenter", "onnx:x", kind="segmentation", input_size=(384, 512))
    spec = specify(tree, task)
    done = run(spec)
    assert (done.returncode, done.stderr) == (0, "")
    text = spec.output.read_text()
    assert "model='onnx:x', kind='segmentation', weights='none', engine_cache='none'" in text
    assert "batch='off', input_size=(384, 512), stages=7" in text
    assert f"threads=2, deadline_ms=40.0, output=PosixPath('{spec.output}')" in text
    assert "follows_load=True" in text
    assert text.endswith(f"'{tree}')")  # for the processes that it starts


def test_a_setting_that_the_other_commit_lacks_is_named(tree):
    done = run(specify(tree, configure("detector", "onnx:x", head="yolox")))
    assert done.returncode == 1
    assert "this commit's TaskConfig has no head" in done.stderr


def test_a_folder_without_the_package_is_refused(tree):
    shutil.rmtree(tree / "jetson_dnn_rt")
    done = run(specify(tree, configure("detector", "onnx:x")))
    assert done.returncode == 1
    assert f"not from {tree}" in done.stderr or "No module named" in done.stderr


def test_only_what_differs_from_the_defaults_is_handed_on():
    @dataclass
    class Spec:
        needed: int
        usual: int = 1
        changed: int = 1
        left: int = 1

    assert find_changes(Spec(5, changed=2, left=3), leave=("left",)) == {"needed": 5, "changed": 2}


def test_the_side_has_a_process_of_its_own(tree):
    spec = specify(tree, configure("detector", "onnx:x"))
    assert find_roles(AGAINST, spec) == {AGAINST: spec}
    command = bench._command(AGAINST, spec)
    assert command[:2] == [sys.executable, str(against.BRIDGE)]
    given = json.loads(spec.output.with_name("against.spec").read_text())
    assert set(given) == {"threads", "deadline_ms", "output", "follows_load", "tasks"}


def in_a_checkout():
    try:
        return bool(find_commit())
    except NoCommitError:
        return False


checkout = pytest.mark.skipif(not in_a_checkout(), reason="not a git checkout")


@checkout
def test_the_files_are_those_of_the_commit(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(against, "compile_tree", compiled.append)
    commit = find_against("HEAD")
    assert len(commit) == 40
    tree = against.prepare(commit, tmp_path)
    name = "jetson_dnn_rt/clock.py"
    shown = subprocess.run(
        ["git", "-C", str(ROOT), "show", f"{commit}:{name}"], capture_output=True, check=True
    )
    assert (tree / name).read_bytes() == shown.stdout
    (tree / "mark").touch()
    assert against.prepare(commit, tmp_path) == tree
    assert (tree / "mark").exists()  # laid out once
    assert compiled in ([], [tree, tree])  # as our own code is
    (tree / ".ready").unlink()  # as after an end in between
    against.prepare(commit, tmp_path)
    assert not (tree / "mark").exists()


def test_a_commit_that_is_not_here_is_refused():
    with pytest.raises(ConfigurationError, match="--against no-such-commit: no such commit here"):
        find_against("no-such-commit")


@checkout
@pytest.mark.nightly
def test_this_commit_delivers_against_itself(monkeypatch):
    pytest.importorskip("rclpy")
    pytest.importorskip("vision_msgs.msg")
    monkeypatch.setenv("JETSON_DNN_RT_PURE", "1")  # of both sides' processes
    monkeypatch.setattr(against, "compile_tree", lambda tree: None)
    _, result = benches.run(
        "overload",
        "--detector null:10 --segmenter null:10,segmentation --loads 0.5 --rounds 1 --seconds 1 "
        "--deadline-factors 5 --no-sequential --against HEAD",
    )
    (cell,) = result["cells"]
    assert result["sides"] == ["ours", "naive", "against"]
    assert cell["against"]["published"] > 0
    assert cell["against"]["failures"] == []
    assert result["against_on_average"]["rounds"] == 1
    assert result["passed"] == "not decided"
