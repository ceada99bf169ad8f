"""Run all checks of the checkout; exit code 0 if all pass, otherwise 1.

All run even if one fails. pytest comes last, so that its closing line ends the output.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = Path(sysconfig.get_path("scripts"))

CHECKS = {
    "format": ("ruff", "format", "--check", "."),
    "lint": ("ruff", "check", "."),
    "types": ("mypy",),
    "import rules": ("lint-imports", "--no-cache"),
}
# More than two would not be faster: the tests in real time, half of all, run one by one.
WORKERS = 2 if len(os.sched_getaffinity(0)) > 1 else 0
TESTS = ("pytest", "--durations=10", "-n", str(WORKERS), "--no-loadscope-reorder")


def run_check(name: str, command: tuple[str, ...]) -> bool:
    """Run one check with its output shown; return whether it passed."""
    print(f"== {name}: {' '.join(command)}", flush=True)
    started = time.monotonic()
    code = subprocess.run([SCRIPTS / command[0], *command[1:]], cwd=ROOT).returncode
    word = "passed" if code == 0 else f"FAILED (exit code {code})"
    print(f"== {name}: {word}, {time.monotonic() - started:.1f} s\n", flush=True)
    return code == 0


def main() -> int:
    """Run the static checks and, if requested, the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", action="store_true", help="run pytest as well")
    options = parser.parse_args()
    failed = [name for name, command in CHECKS.items() if not run_check(name, command)]
    verdict = f"FAILED: {', '.join(failed)}" if failed else "all passed"
    print(f"== static checks: {verdict}\n", flush=True)
    if not options.tests:
        return 1 if failed else 0
    tests = subprocess.run([SCRIPTS / TESTS[0], *TESTS[1:]], cwd=ROOT).returncode
    return 1 if failed or tests != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
