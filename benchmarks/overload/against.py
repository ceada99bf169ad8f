# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Another commit of this package as a side: its own code, compiled as ours is, in its own process.

Its files are taken from git into ``build/against/``, which git ignores, and stay there for the
next run. The networks, the settings that are not the defaults, and the camera are those of our
side; what both commits leave to their defaults is each one's own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.harness.origin import ROOT, NoCommitError, find_commit
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import say
from jetson_dnn_rt.compiled import find_build
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety.children import child_environment, python_command

BRIDGE = Path(__file__).with_name("bridge.py")
FOLDER = ROOT / "build" / "against"
_COMPILE_LIMIT_S = 900.0
_READY = ".ready"  # the folder is complete


def find_against(name: str) -> str:
    """Find the commit of ``--against``; `ConfigurationError` where git knows none."""
    try:
        return find_commit(ROOT, name)
    except NoCommitError as error:
        raise ConfigurationError(f"--against {name}: no such commit here: {error}") from error


def prepare(commit: str, folder: Path = FOLDER) -> Path:
    """Lay out the files of a commit, and compile it where our own code is compiled."""
    tree = folder / commit[:12]
    if not (tree / _READY).exists():
        say(f"overload: the files of {commit[:12]} are laid out and compiled, once")
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        packed = subprocess.run(
            ["git", "-C", str(ROOT), "archive", "--format=tar", commit], stdout=subprocess.PIPE
        )
        if packed.returncode:
            raise BenchmarkError(f"git archive {commit} failed (see above)")
        subprocess.run(["tar", "-x", "-C", str(tree)], input=packed.stdout, check=True)
        (tree / _READY).touch()
    # Both compiled, or neither: the engine alone is several times as fast.
    if find_build().used:
        compile_tree(tree)
    return tree


def compile_tree(tree: Path) -> None:
    """Compile the engine of a tree; nothing where that has been done."""
    paths = [str(tree), *child_environment()["PYTHONPATH"].split(os.pathsep)]
    paths.remove(str(ROOT))
    done = subprocess.run(
        python_command("jetson_dnn_rt.cli.compile"),
        env={**child_environment(), "PYTHONPATH": os.pathsep.join(paths)},
        stdout=sys.stderr,
        timeout=_COMPILE_LIMIT_S,
    )
    if done.returncode:
        raise BenchmarkError(f"the engine of {tree} was not compiled (see above)")


def make_command(tree: Path, spec: Any, path: Path) -> list[str]:
    """Make the command of the side, whose specification is written to a path."""
    given = find_changes(spec, leave=("tasks", "tree", "peer", "results"))
    given["tasks"] = [find_changes(task) for task in spec.tasks]
    path.write_text(json.dumps(given, default=str), encoding="utf-8")
    return [sys.executable, str(BRIDGE), str(tree), str(path)]


def find_changes(spec: Any, leave: tuple[str, ...] = ()) -> dict[str, Any]:
    """Find the fields of a dataclass that are not at their defaults."""
    return {
        one.name: value
        for one in fields(spec)
        if one.name not in leave and (value := getattr(spec, one.name)) != one.default
    }
