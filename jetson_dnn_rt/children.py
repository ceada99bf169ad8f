"""Python processes that this one starts, which import nothing from the folder it stands in.

``python -m module`` puts the working directory first on the path: a file ``ctypes.py`` beside a
bag would be run. Children started with what is here see installed packages, PYTHONPATH and this
package, and stand in ``/``, so paths that are handed to them have to be absolute.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CHILD_FOLDER = "/"
"""Working directory of children, for `subprocess`' ``cwd``."""

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


def child_environment() -> dict[str, str]:
    """Environment for a child: of PYTHONPATH the absolute entries only, with this package."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [os.fspath(ROOT), *(path for path in given if os.path.isabs(path))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
