# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Commands and environments of child processes that import nothing from the working directory.

``python -m module`` puts the working directory first on the path: a file ``ctypes.py`` beside a
bag would be run. Children started with these functions see installed packages, PYTHONPATH and this
package. Those that get no paths also run in ``/``; those that get paths as the user wrote them
stay in the working directory, and still import nothing from there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CHILD_FOLDER = "/"
"""Working directory of children that get no relative paths, for `subprocess`' ``cwd``."""

# The first entry of a path with -c is the working directory. PYTHONSAFEPATH does the same from
# Python 3.11 on; the oldest supported one is 3.10.
_RUN_MODULE = """\
import sys
sys.path[:] = [path for path in sys.path if path[:1] == "/"]
import runpy
sys.argv[:] = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def python_command(module: str, *arguments: str) -> list[str]:
    """Command that runs a module as ``python -m`` does, without the working directory's files."""
    return [sys.executable, "-c", _RUN_MODULE, module, *arguments]


def code_command(code: str, *arguments: str) -> list[str]:
    """Command that runs a program text with the standard library only."""
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


@contextlib.contextmanager
def safe_spawning() -> Iterator[None]:
    """Let processes that `multiprocessing` spawns import nothing from the working directory.

    They begin with ``python -c``, which looks for `multiprocessing` itself in the working
    directory, and get this process' path a moment later.
    """
    if sys.version_info < (3, 11):
        # Python 3.10 has no public way to leave the working directory out of the path.
        from multiprocessing import util

        given = util._args_from_interpreter_flags  # type: ignore[attr-defined,unused-ignore]
        util._args_from_interpreter_flags = lambda: [  # type: ignore[attr-defined,unused-ignore]
            *given(),
            "-I",
        ]
        try:
            yield
        finally:
            util._args_from_interpreter_flags = given  # type: ignore[attr-defined,unused-ignore]
        return
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYTHONSAFEPATH", None)
        else:
            os.environ["PYTHONSAFEPATH"] = before


def child_environment() -> dict[str, str]:
    """Environment for a child: of PYTHONPATH the absolute entries only, with this package."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [os.fspath(ROOT), *(path for path in given if os.path.isabs(path))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
