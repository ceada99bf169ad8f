# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The code of a result: its commit, uncommitted changes, and whether its rooms have changed."""

import shutil
import subprocess

import pytest

from benchmarks.harness import origin, rooms
from benchmarks.harness.main import BENCHMARKS
from benchmarks.harness.origin import KEY, describe_code, find_changed, show_code
from benchmarks.harness.rooms import find_rooms


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_declares_its_rooms(name):
    assert find_rooms(name), f"name the rooms of {name} in benchmarks/harness/rooms.py"
    for room in find_rooms(name):
        assert (origin.ROOT / room).exists(), f"{room} of {name} is not there"


def test_no_rooms_of_benchmarks_that_are_gone():
    assert set(rooms._ROOMS) == set(BENCHMARKS)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Checkout without git: two rooms, and a folder that is none."""
    monkeypatch.setitem(rooms._ROOMS, "made", ("engine", "clock.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for name in ("engine/rule.py", "engine/__pycache__/rule.pyc", "other/x.py", "clock.py"):
        path = tmp_path / "jetson_dnn_rt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "package.xml").write_text("")
    return tmp_path


def git(tree, *arguments):
    if shutil.which("git") is None:
        pytest.skip("needs git")
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(tree), *who, *arguments], check=True, capture_output=True)


def commit(tree):
    git(tree, "add", ".")
    git(tree, "commit", "-m", "x")


def measure(tree):
    return {"benchmark": "made", KEY: describe_code("made", tree)}


def edit(tree, name):
    with (tree / name).open("a") as file:
        file.write("#")


@pytest.mark.parametrize("with_git", [True, False])
def test_a_result_whose_rooms_changed_is_marked(tree, with_git):
    if with_git:
        git(tree, "init")
        commit(tree)
    result = measure(tree)
    was = show_code(result, tree)
    assert was == (result[KEY]["commit"][:8] if with_git else "no commit recorded")
    edit(tree, "jetson_dnn_rt/other/x.py")
    edit(tree, "jetson_dnn_rt/engine/__pycache__/rule.pyc")
    assert find_changed(result, tree) == []
    edit(tree, "jetson_dnn_rt/engine/rule.py")
    if with_git:
        commit(tree)
    assert find_changed(result, tree) == ["jetson_dnn_rt/engine"]
    assert show_code(result, tree) == f"{was}, changed since"


@pytest.mark.parametrize("change", ["renamed", "gone", "new"])
def test_files_that_come_and_go_are_changes(tree, change):
    result = measure(tree)
    file = tree / "jetson_dnn_rt/engine/rule.py"
    if change == "renamed":
        file.rename(file.with_name("rules.py"))
    elif change == "gone":
        file.unlink()
    else:
        file.with_name("more.py").write_text("")
    assert find_changed(result, tree) == ["jetson_dnn_rt/engine"]


def test_a_room_that_is_declared_later_has_not_been_measured(tree, monkeypatch):
    result = measure(tree)
    monkeypatch.setitem(rooms._ROOMS, "made", ("engine", "clock.py", "other"))
    assert find_changed(result, tree) == ["jetson_dnn_rt/other"]


def test_uncommitted_changes_are_recorded(tree):
    git(tree, "init")
    for name in ("docs", "benchmarks/results"):
        (tree / name).mkdir(parents=True)
    commit(tree)
    assert measure(tree)[KEY]["uncommitted"] == []
    for name in ("docs/page.md", "README.md", "CHANGELOG.rst"):
        (tree / name).write_text("")
    (tree / "benchmarks" / "results" / "x.json").write_text("")
    assert measure(tree)[KEY]["uncommitted"] == []  # none is code
    edit(tree, "jetson_dnn_rt/clock.py")
    (tree / "jetson_dnn_rt" / "new.py").write_text("")
    result = measure(tree)
    assert result[KEY]["uncommitted"] == ["jetson_dnn_rt/clock.py", "jetson_dnn_rt/new.py"]
    assert show_code(result, tree) == f"{result[KEY]['commit'][:8]}+"


def test_an_archive_has_no_commit_and_says_why(tree, monkeypatch):
    found = measure(tree)[KEY]
    assert found["commit"] is None
    assert "not a git checkout" in found["reason"]
    assert set(found["rooms"]) == {"jetson_dnn_rt/clock.py", "jetson_dnn_rt/engine"}
    monkeypatch.setenv("PATH", "")
    assert "git does not run" in measure(tree)[KEY]["reason"]


def test_an_archive_inside_of_a_repository_has_no_commit_of_it(tree):
    git(tree.parent, "init", str(tree.parent / "outer"))
    outer = tree.parent / "outer"
    (outer / "theirs").write_text("")
    commit(outer)
    inner = outer / "inner"
    tree.rename(inner)
    assert measure(inner)[KEY]["commit"] is None


def test_results_from_before_have_no_commit():
    assert find_changed({"benchmark": "overload"}) is None
    assert show_code({"benchmark": "overload"}) == "no commit recorded"
    assert show_code({}) == "no commit recorded"
