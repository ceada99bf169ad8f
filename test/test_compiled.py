# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The scheduling runs compiled where that build is of the present sources, otherwise as Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from quick_compiler import make_quick_compiler

from jetson_dnn_rt.compiled import PURE, ROOT, find_build

PROGRAM = """
from jetson_dnn_rt.compiled import find_build
from jetson_dnn_rt.scheduling import engine
print(engine.__file__.rpartition(".")[2], find_build().reason)
"""


def show_engine(path, **environment):
    """What runs in a process that imports the package from `path`, and why."""
    env = {**os.environ, "PYTHONPATH": os.fspath(path), "PYTHONSAFEPATH": "1", PURE: "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=path,
        env={**env, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def copy(tmp_path):
    """A copy of the package with its build."""
    if not find_build().folder.is_dir():
        pytest.skip("not compiled here: make setup, with mypy")
    shutil.copytree(ROOT, tmp_path / ROOT.name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / ROOT.name


@pytest.mark.skipif(find_spec("mypyc") is None, reason="needs mypy")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_checkout_is_compiled():
    """`make setup` builds it, and builds it again after an edit."""
    assert show_engine(ROOT.parent).startswith("so")


def test_an_edit_is_never_ignored(copy):
    assert show_engine(copy.parent) == "so"
    with (copy / "scheduling/queue.py").open("a") as file:
        file.write("# edited\n")
    assert show_engine(copy.parent) == "py scheduling/queue.py has changed since it was built"


def test_python_on_request(copy):
    assert show_engine(copy.parent, **{PURE: "1"}) == f"py set by {PURE}"


@pytest.mark.parametrize("damage", ["library", "stamp"])
def test_a_damaged_build_is_not_used(copy, damage):
    (folder,) = copy.glob("_compiled/*")
    (file,) = folder.glob("sources.json" if damage == "stamp" else "*__mypyc*.so")
    file.write_bytes(file.read_bytes()[:100])
    assert show_engine(copy.parent).startswith("py the build cannot be used: ")


def test_without_a_build(copy):
    shutil.rmtree(copy / "_compiled")
    assert show_engine(copy.parent) == "py not built"


@pytest.mark.slow
def test_an_installed_package_is_compiled_in_place(copy, tmp_path):
    """As after pip: not in a checkout, from any working directory; what fails is said."""
    pytest.importorskip("mypyc", reason="needs mypy")
    shutil.rmtree(copy / "_compiled")
    place = copy.parent / "lib/python3/site-packages"
    place.mkdir(parents=True)
    copy.rename(place / ROOT.name)
    env = {**os.environ, "PYTHONPATH": os.fspath(place), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "jetson_dnn_rt.cli.compile"]
    options = {"cwd": Path("/"), "capture_output": True, "text": True}
    broken = subprocess.run(command, env={**env, "CC": "/bin/false"}, **options)
    assert broken.returncode == 1
    assert (
        "Fix: python3 -m jetson_dnn_rt.cli.compile (needs mypy, and a C compiler" in broken.stderr
    )
    assert show_engine(place) == "py not built"
    quick = {**env, "CC": make_quick_compiler(tmp_path)}
    done = subprocess.run(command, env=quick, **options)
    assert done.returncode == 0, done.stderr
    assert show_engine(place) == "so"
