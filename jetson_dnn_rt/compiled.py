# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Scheduling compiled with mypyc: the same source, as C where it was built, otherwise as Python.

``python3 -m jetson_dnn_rt.compiled`` builds it, with mypy (the extra ``compiled``) and a C
compiler. A build is used by the Python that made it, as long as no source that it was made from
has changed: after an edit Python runs the edited file.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

ROOT = Path(__file__).resolve().parent

PACKAGES = ("scheduling",)
"""Packages whose modules are compiled; each calls `use_compiled` in its ``__init__``."""
LEFT_OUT = ("scheduling/selection.py",)
"""Selectors are classes for others to inherit from, which a compiled class does not allow."""

PURE = "JETSON_DNN_RT_PURE"  # set to 1: Python, even where a build is there
FIX = "python3 -m jetson_dnn_rt.compiled (needs mypy, and a C compiler: apt install gcc)"

_STAMP = "sources.json"
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


def use_compiled(package: str, path: list[str]) -> None:
    """Let the modules of a package (its ``__name__`` and ``__path__``) come from the build."""
    build = find_build()
    if build.used:
        path.insert(0, os.fspath(build.folder.joinpath(*package.split(".")[1:])))


@cache
def find_build() -> Build:
    """Find the build, and load what its modules have in common."""
    folder = ROOT / "_compiled" / _TAG
    reason = "set by " + PURE if os.environ.get(PURE, "0") not in ("", "0") else ""
    try:
        reason = reason or _find_change(folder)
        if not reason:
            _load_library(folder)
    except (ImportError, OSError, ValueError) as error:
        reason = f"the build cannot be used: {error}"
    return Build(folder, reason)


def _find_change(folder: Path) -> str:
    """Say what changed since the build; empty if nothing did."""
    stamp = folder / _STAMP
    if not stamp.is_file():
        return "not built"
    hashes: dict[str, str] = json.loads(stamp.read_text(encoding="utf-8"))
    for name, known in hashes.items():
        if _hash(ROOT / name) != known:
            return f"{name} has changed since it was built"
    return ""


def _hash(file: Path) -> str:
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


# -- building ------------------------------------------------------------------------------------


def build(folder: Path) -> None:
    """Compile into `folder`, which is replaced; RuntimeError when mypy or the compiler fails."""
    with tempfile.TemporaryDirectory(prefix="compiled-") as work:
        # In a copy: mypy checks nothing inside site-packages. In a process: mypyc ends it where it
        # fails.
        sources = Path(work, ROOT.name)
        shutil.copytree(ROOT, sources, ignore=_leave_out)
        done = subprocess.run(
            [sys.executable, "-m", "jetson_dnn_rt.compiled", "--step"],
            cwd=work,
            env={**os.environ, PURE: "1", "PYTHONPATH": work, "PYTHONSAFEPATH": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stdout[-2000:].strip())
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path(work, "made"), folder)


def _leave_out(_: str, names: list[str]) -> list[str]:
    return [name for name in names if "." in name and not name.endswith(".py")] + ["_compiled"]


def _compile_here() -> None:
    """Compile the copy of the package in the working directory into ``made``."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    for name in PACKAGES:
        for file in (ROOT / name).glob("[!_]*.py"):
            importlib.import_module(f"{ROOT.name}.{name}.{file.stem}")
    loaded = [getattr(module, "__file__", None) for module in sys.modules.values()]
    files = sorted(Path(file) for file in loaded if file and Path(file).is_relative_to(ROOT))
    names = [file.relative_to(ROOT).as_posix() for file in files]
    chosen = [
        name
        for name in names
        if name.startswith(PACKAGES) and name not in LEFT_OUT and not name.endswith("__init__.py")
    ]
    extensions = mypycify(
        [
            *("--config-file=", "--ignore-missing-imports", "--follow-imports=silent"),
            *("--cache-dir=cache", *(f"{ROOT.name}/{name}" for name in chosen)),
        ],
        opt_level="2",
        debug_level="0",
        target_dir="c",
    )
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = "lib", "objects"
    command.ensure_finalized()
    command.run()
    made = Path("made")
    shutil.copytree(Path("lib", ROOT.name), made)
    for file in Path("lib").glob("*.so"):
        shutil.copy(file, made)
    # Of all that was imported: the compiled code relies on the types there, too.
    hashes = {name: _hash(ROOT / name) for name in names}
    (made / _STAMP).write_text(json.dumps(hashes, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Build for this Python, unless the build is up to date."""
    parser = argparse.ArgumentParser(prog="python3 -m jetson_dnn_rt.compiled", description=__doc__)
    parser.add_argument("--check", action="store_true", help="build nothing: 0 if up to date")
    parser.add_argument("--step", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        _compile_here()
        return 0
    folder = ROOT / "_compiled" / _TAG
    if change := _find_change(folder):
        if args.check:
            print(f"scheduling is not compiled: {change}")
            return 1
        try:
            build(folder)
        except (OSError, RuntimeError) as error:
            print(f"scheduling stays Python: {error}\nFix: {FIX}", file=sys.stderr)
            return 1
    print(f"scheduling is compiled: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
