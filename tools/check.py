# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Run all checks of the checkout; exit code 0 if all pass, otherwise 1.

All run even if one fails. At the end come what failed in the runs of pytest and their closing
lines, that of everything last. Standard library only: each check runs in the environment that has
it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setup_ros import DEFAULT, DISTRIBUTIONS, clean_environment

ROOT = Path(__file__).resolve().parent.parent

CHECKS = {
    "format": ("ruff", "format", "--check", "."),
    "lint": ("ruff", "check", "."),
    # Apart: --preview changes other rules, too.
    "copyright lines": ("ruff", "check", "--preview", "--select", "CPY001", "."),
    "types": ("mypy",),
    "import rules": ("lint-imports", "--no-cache"),
}
# More than two would not be faster: the tests in real time, half of all, run one by one.
WORKERS = 2 if len(os.sched_getaffinity(0)) > 1 else 0
EVERYTHING = ("pytest", "--durations=10", "-n", str(WORKERS), "--no-loadscope-reorder")
# The decisions once more as Python, where the run of everything has them compiled.
_PURE = "scheduling or test_executor or test_coordinator or test_horizon or test_pressure"
PURE = ("pytest", "test/scheduling", "test/coordinator", "test/runtime", "-k", _PURE)
# What runs on rclpy, on a distribution that has not the whole environment.
NODES = (
    *("pytest", "--durations=10", "test/nodes", "test/launch"),
    *("test/test_fastdds_profile.py", "test/test_packaging_interfaces.py"),
)
HEADING = re.compile("=+ (.+) =+")
SHOWN_LINES = 40
"""Of the tracebacks, which may be far up in the log."""


def find_environment(ros: str) -> Path:
    """Return the environment of a distribution."""
    return ROOT / (".venv" if ros == DEFAULT else f".venv-{ros}")


def in_environment(prefix: Path, command: tuple[str, ...]) -> list[str]:
    """Return the command that runs another in an environment."""
    return ["bash", "-c", f'. "{prefix}/env.sh" && exec "$@"', "bash", *command]


def run_check(name: str, command: tuple[str, ...]) -> bool:
    """Run one check with its output shown; return whether it passed."""
    print(f"== {name}: {' '.join(command)}", flush=True)
    started = time.monotonic()
    whole = in_environment(find_environment(DEFAULT), command)
    code = subprocess.run(whole, cwd=ROOT, env=clean_environment()).returncode
    word = "passed" if code == 0 else f"FAILED (exit code {code})"
    print(f"== {name}: {word}, {time.monotonic() - started:.1f} s\n", flush=True)
    return code == 0


def run_tests(
    name: str, command: tuple[str, ...], ros: str, *, live: bool = True, **variables: str
) -> tuple[bool, list[str]]:
    """Run tests on a distribution; return whether they passed, what failed, the closing line.

    Their output is shown as it comes, or, if not `live`, at their end.
    """
    print(f"\n== tests, {name}: {' '.join(command)}", flush=True)
    env = {**clean_environment(), **variables}
    if ros != DEFAULT:
        env.pop("AMENT_PREFIX_PATH", None)  # of a shell that uses the default environment
    output = bytearray()
    with subprocess.Popen(
        in_environment(find_environment(ros), command), cwd=ROOT, env=env, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        while part := os.read(process.stdout.fileno(), 1 << 16):
            output += part
            if live:
                sys.stdout.buffer.write(part)
                sys.stdout.flush()
    if not live:
        sys.stdout.buffer.write(b"\n" + output)
        sys.stdout.flush()
    lines = output.decode(errors="replace").rstrip().splitlines() or ["no output"]
    return process.returncode == 0, [*pick_failures(lines), lines[-1]]


def pick_failures(lines: list[str]) -> list[str]:
    """Return, from the output of pytest, the end of the tracebacks and the tests that failed."""
    sections: dict[str, list[str]] = {}
    section: list[str] = []
    for line in lines:
        if heading := HEADING.fullmatch(line):
            section = sections.setdefault(heading[1], [])
        section.append(line)
    tracebacks = [*sections.get("ERRORS", []), *sections.get("FAILURES", [])]
    summary = sections.get("short test summary info", [])
    names = [line for line in summary if line.startswith(("FAILED ", "ERROR "))]
    return [*tracebacks[-SHOWN_LINES:], *names]


def main() -> int:
    """Run the static checks and, if requested, the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tests",
        nargs="+",
        choices=DISTRIBUTIONS,
        default=[],
        metavar="ROS",
        help=f"run pytest as well: everything on {DEFAULT}, the tests of nodes on another",
    )
    wanted: list[str] = parser.parse_args().tests
    failed: list[str] = []
    if not wanted or DEFAULT in wanted:
        failed = [name for name, command in CHECKS.items() if not run_check(name, command)]
        verdict = f"FAILED: {', '.join(failed)}" if failed else "all passed"
        print(f"== static checks: {verdict}\n", flush=True)
    if (sourced := os.environ.get("ROS_DISTRO")) and wanted:
        if DEFAULT not in wanted:
            print(f"ROS 2 {sourced} is sourced, so it is the one to test. Fix: make test")
            return 2
        wanted = [DEFAULT]
    results = {}
    if DEFAULT in wanted:
        results[DEFAULT] = run_tests(DEFAULT, EVERYTHING, DEFAULT)
    # One core each: a run of either is one process.
    with ThreadPoolExecutor(2) as pool:
        runs = {}
        if DEFAULT in wanted:
            name = "decisions as Python"
            runs[name] = pool.submit(
                run_tests, name, PURE, DEFAULT, live=False, JETSON_DNN_RT_PURE="1"
            )
        for ros in sorted({*wanted} - {DEFAULT}):
            runs[ros] = pool.submit(run_tests, ros, NODES, ros)
        results |= {name: run.result() for name, run in runs.items()}
    print()
    # That of everything last: it is read as the verdict.
    for name, (_, lines) in sorted(results.items(), key=lambda item: item[0] == DEFAULT):
        print(f"== {name}:", *lines, sep="\n", flush=True)
    return 1 if failed or not all(passed for passed, _ in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
