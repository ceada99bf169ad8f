# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Decisions compiled with mypyc: the same source, as C where it was built, otherwise as Python.

`jetson_dnn_rt.cli.compile` builds it. A build is used by the Python that made it, as long as no
source that it was made from has changed: after an edit Python runs the edited file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

ROOT = Path(__file__).resolve().parent

PURE = "JETSON_DNN_RT_PURE"  # set to 1: Python, even where a build is there
FIX = "python3 -m jetson_dnn_rt.cli.compile (needs mypy, and a C compiler: apt install gcc)"

STAMP = "sources.json"  # in the folder of a build: hashes of what it was made from
_TAG = EXTENSION_SUFFIXES[0].split(".")[1]  # of Python and machine: cpython-311-x86_64-linux-gnu


@dataclass(frozen=True, slots=True)
class Build:
    """The build for this Python, or why it is not used."""

    folder: Path
    reason: str = ""  # why Python runs instead; empty = compiled

    @property
    def used(self) -> bool:
        """Whether the compiled modules run."""
        return not self.reason


def find_folder() -> Path:
    """Return the folder of the build for this Python, whether there is one or not."""
    return ROOT / "_compiled" / _TAG


def use_compiled(package: str, path: list[str]) -> None:
    """Let the modules of a package (its ``__name__`` and ``__path__``) come from the build."""
    build = find_build()
    if build.used:
        path.insert(0, os.fspath(build.folder.joinpath(*package.split(".")[1:])))


@cache
def find_build() -> Build:
    """Find the build, and load what its modules have in common."""
    folder = find_folder()
    reason = "set by " + PURE if os.environ.get(PURE, "0") not in ("", "0") else ""
    try:
        reason = reason or find_change(folder)
        if not reason:
            _load_library(folder)
    except (ImportError, OSError, ValueError) as error:
        reason = f"the build cannot be used: {error}"
    return Build(folder, reason)


def find_change(folder: Path) -> str:
    """Say what changed since the build; empty if nothing did."""
    stamp = folder / STAMP
    if not stamp.is_file():
        return "not built"
    hashes: dict[str, str] = json.loads(stamp.read_text(encoding="utf-8"))
    for name, known in hashes.items():
        if hash_file(ROOT / name) != known:
            return f"{name} has changed since it was built"
    return ""


def hash_file(file: Path) -> str:
    """SHA-256 of a file; empty if it is missing."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _load_library(folder: Path) -> None:
    """Load the library behind all compiled modules: each imports it by its name alone."""
    for file in folder.glob(f"*__mypyc{EXTENSION_SUFFIXES[0]}"):
        name = file.name.partition(".")[0]
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
