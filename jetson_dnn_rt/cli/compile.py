# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Compile the decisions between two stages for this Python, unless the build is up to date.

They are the scheduling and the coordinator's part in it. It needs mypy (the extra ``compiled``)
and a C compiler, takes half a minute, and changes nothing but the speed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from jetson_dnn_rt.compiled import FIX, PURE, ROOT, STAMP, find_change, find_folder, hash_file
from jetson_dnn_rt.safety.children import python_command

COMPILED = (
    "scheduling/*.py",
    "scheduling/moves/*.py",
    "coordinator/cohort.py",
    "coordinator/coordinator.py",
    "coordinator/policies/horizon/allotment.py",
    "coordinator/policies/horizon/pressure.py",
    "coordinator/policies/horizon/sheet.py",
)
"""What is compiled: the decisions between two stages. The ``__init__`` of each package calls
`use_compiled`."""
LEFT_OUT = ("scheduling/selection.py",)
"""Selectors are classes for others to inherit from, which a compiled class does not allow."""


def build(folder: Path) -> None:
    """Compile into `folder`, which is replaced; RuntimeError when mypy or the compiler fails."""
    with tempfile.TemporaryDirectory(prefix="compiled-") as work:
        # In a copy: mypy checks nothing inside site-packages. In a process: mypyc ends it where it
        # fails.
        sources = Path(work, ROOT.name)
        shutil.copytree(ROOT, sources, ignore=_leave_out)
        done = subprocess.run(
            python_command("jetson_dnn_rt.cli.compile", "--step"),
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

    chosen = sorted(
        file.relative_to(ROOT).as_posix()
        for pattern in COMPILED
        for file in ROOT.glob(pattern)
        if not file.name.startswith("_")
    )
    chosen = [name for name in chosen if name not in LEFT_OUT]
    for name in chosen:
        importlib.import_module(f"{ROOT.name}.{name[:-3].replace('/', '.')}")
    loaded = [getattr(module, "__file__", None) for module in sys.modules.values()]
    files = sorted(Path(file) for file in loaded if file and Path(file).is_relative_to(ROOT))
    names = [file.relative_to(ROOT).as_posix() for file in files]
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
    hashes = {name: hash_file(ROOT / name) for name in names}
    (made / STAMP).write_text(json.dumps(hashes, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Build for this Python, unless the build is up to date."""
    parser = argparse.ArgumentParser(
        prog="python3 -m jetson_dnn_rt.cli.compile", description=__doc__
    )
    parser.add_argument("--check", action="store_true", help="build nothing: 0 if up to date")
    parser.add_argument("--step", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        _compile_here()
        return 0
    folder = find_folder()
    if change := find_change(folder):
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
