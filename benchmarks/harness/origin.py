# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The code that a result was measured with: its commit, and what the benchmark's rooms held.

The commit is for people: ``git checkout`` gives that code again. Whether the code has changed
since is told by digests of the rooms' files (`benchmarks.harness.rooms`), which need no git and no
history: a released archive, a shallow clone and a tree with uncommitted changes are judged alike.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.rooms import find_rooms

ROOT = Path(__file__).resolve().parents[2]
KEY = "code"
"""Name of the entry of a result file that says which code it measured."""
NO_COMMIT = "no commit recorded"
CHANGED = "changed since"
_NOT_CODE = (":(exclude)benchmarks/results", ":(exclude)docs", ":(exclude)*.md", ":(exclude)*.rst")
_LIMIT_S = 60.0
_MADE = {"__pycache__", "_compiled"}


class NoCommitError(Exception):
    """No commit is known: not a checkout, or git does not tell."""


def describe_code(name: str, root: Path = ROOT) -> dict[str, Any]:
    """Describe the code that a benchmark measures, for its result.

    ``uncommitted`` are the files that differ from the commit, results and documentation apart.
    Without a commit there is the reason in its place.
    """
    rooms = {room: digest(root, room) for room in find_rooms(name)}
    try:
        return {"commit": find_commit(root), "uncommitted": find_uncommitted(root), "rooms": rooms}
    except NoCommitError as error:
        return {"commit": None, "reason": str(error), "rooms": rooms}


def find_commit(root: Path = ROOT, name: str = "HEAD") -> str:
    """Find a commit by a name that git knows; `NoCommitError` where there is none."""
    # A folder that was unpacked inside of somebody's repository has no commit there.
    run_git(root, "ls-files", "--error-unmatch", "package.xml")
    return run_git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()


def find_uncommitted(root: Path = ROOT) -> list[str]:
    """Find the files that differ from the commit, new ones too."""
    lines = run_git(root, "status", "--porcelain", "-z", "--no-renames", "--", ".", *_NOT_CODE)
    return sorted(line[3:] for line in lines.split("\0") if line)


def run_git(root: Path, *arguments: str) -> str:
    """Run git in a folder; `NoCommitError` with its reason where it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCommitError(f"git does not run: {error}") from error
    if done.returncode:
        reason = (done.stderr.strip() or f"git {arguments[0]} failed").splitlines()[0]
        raise NoCommitError(f"not a git checkout: {reason}")
    return done.stdout


def digest(root: Path, room: str) -> str:
    """Hash the names and contents of a room's files; empty where it is not there."""
    found = hashlib.sha256()
    files = list(_find_files(root / room))
    for file in files:
        content = file.read_bytes()
        found.update(f"{file.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()[:16] if files else ""


def _find_files(path: Path) -> Iterator[Path]:
    """Find the files below a path in order, without built and hidden ones."""
    if path.is_file():
        yield path
    elif path.is_dir():
        for one in sorted(path.iterdir()):
            if one.name not in _MADE and not one.name.startswith(".") and one.suffix != ".so":
                yield from _find_files(one)


def find_changed(result: Mapping[str, Any], root: Path = ROOT) -> list[str] | None:
    """Find which rooms of a result differ from those of this checkout; None if not recorded."""
    recorded = result.get(KEY, {}).get("rooms")
    if recorded is None:
        return None
    # A room that is declared since then, or is gone, has not been measured as it is.
    rooms = dict.fromkeys([*find_rooms(result["benchmark"]), *recorded])
    return [room for room in rooms if recorded.get(room) != digest(root, room)]


def show_code(result: Mapping[str, Any], root: Path = ROOT) -> str:
    """Say in a few words which code a result is of, and whether that has changed.

    A ``+`` follows the commit where there were changes that it does not have.
    """
    code = result.get(KEY, {})
    commit = code.get("commit")
    shown = NO_COMMIT if commit is None else commit[:8] + ("+" if code["uncommitted"] else "")
    # Which rooms is not said: the page would change with every commit.
    return f"{shown}, {CHANGED}" if find_changed(result, root) else shown
