# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Run all checks of the checkout; exit code 0 if all pass, otherwise 1.

All run even if one fails, in two phases of two queues beside each other. At the end come what
failed in the runs of pytest and their closing lines, that of everything last.
Standard library only: each check runs in the environment that has it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

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
_CORES = len(os.sched_getaffinity(0))
# More than two would not be faster: the tests in real time, half of all, run one by one.
WORKERS = 2 if _CORES > 1 else 0
EVERYTHING = (
    *("pytest", "--durations=10", "-m", "not nightly"),
    *("-n", str(WORKERS), "--no-loadscope-reorder"),
)
# The decisions once more as Python, where the run of everything has them compiled.
_PURE = "scheduling or test_executor or test_coordinator or test_horizon or test_pressure"
PURE = ("pytest", "test/scheduling", "test/coordinator", "test/runtime", "-k", _PURE)
# What runs on rclpy, on a distribution that has not the whole environment.
NODES = (
    *("pytest", "--durations=10", "test/nodes", "test/launch"),
    *("test/test_fastdds_profile.py", "test/test_packaging_interfaces.py"),
)
# What a robot without torch runs, on the oldest and the newest Python that have wheels of ROS.
LANES = {"3.10": "the lowest versions allowed", "3.13": "the newest versions"}
LANE = (
    *("pytest", "--durations=10", "-m", "not slow and not nightly"),
    *(f"test/{room}" for room in ("config", "cameras", "models", "platforms", "traces")),
    *(f"test/scheduling/test_{name}.py" for name in ("engine", "selection", "queue")),
    *(f"test/runtime/test_{name}.py" for name in ("executor", "session", "realtime")),
    *(f"test/nodes/test_{name}.py" for name in ("conversion", "camera_node", "task_node")),
    *("test/nodes/test_perception.py", "test/variants/test_compiled_network.py"),
    *("test/test_packaging.py", "test/test_frames.py"),
)
HEADING = re.compile("=+ (.+) =+")
SHOWN_LINES = 40
"""Of the tracebacks, which may be far up in the log."""


class Outcome(NamedTuple):
    """Result of a run: whether it passed, and its lines in the report at the end."""

    passed: bool
    lines: list[str]


def find_environment(name: str) -> Path:
    """Return the environment of a distribution or of a lane."""
    return ROOT / (".venv" if name == DEFAULT else f".venv-{name}")


def in_environment(prefix: Path, command: tuple[str, ...]) -> list[str]:
    """Return the command that runs another in an environment."""
    return ["bash", "-c", f'. "{prefix}/env.sh" && exec "$@"', "bash", *command]


def run_check(name: str, command: tuple[str, ...]) -> bool:
    """Run one check, with its output shown at its end; return whether it passed."""
    started = time.monotonic()
    whole = in_environment(find_environment(DEFAULT), command)
    done = subprocess.run(
        whole, cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    word = "passed" if done.returncode == 0 else f"FAILED (exit code {done.returncode})"
    show(
        f"== {name}: {' '.join(command)}\n{done.stdout.decode(errors='replace')}"
        f"== {name}: {word}, {time.monotonic() - started:.1f} s\n\n"
    )
    return done.returncode == 0


def run_checks() -> Outcome:
    """Run the static checks."""
    failed = [name for name, command in CHECKS.items() if not run_check(name, command)]
    return Outcome(not failed, [f"FAILED: {', '.join(failed)}" if failed else "all passed"])


def run_tests(
    name: str, command: tuple[str, ...], place: str, *, live: bool = False, **variables: str
) -> Outcome:
    """Run tests in the environment of a distribution or lane, with their output at their end.

    If `live`, it is shown as it comes.
    """
    started = time.monotonic()
    show(f"\n== tests, {name}: {' '.join(command)}\n")
    env = {**clean_environment(), **variables}
    if place != DEFAULT:
        env.pop("AMENT_PREFIX_PATH", None)  # of a shell that uses the default environment
    output = bytearray()
    whole = in_environment(find_environment(place), command)
    with subprocess.Popen(whole, cwd=ROOT, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while part := os.read(process.stdout.fileno(), 1 << 16):
            output += part
            if live:
                show(part.decode(errors="replace"))
    text = output.decode(errors="replace")
    took = f"== tests, {name}: {time.monotonic() - started:.0f} s\n"
    show(took if live else f"\n{text}{took}")
    lines = text.rstrip().splitlines() or ["no output"]
    return Outcome(process.returncode == 0, [*pick_failures(lines), lines[-1]])


def show(text: str) -> None:
    """Write a text in one piece, as two queues write at the same time."""
    sys.stdout.write(text)
    sys.stdout.flush()


def explain_absence(lane: str) -> str:
    """Return why a lane cannot run here; empty where it can."""
    if sourced := os.environ.get("ROS_DISTRO"):
        return f"ROS 2 {sourced} is sourced, whose Python is the one that is tested"
    prefix = find_environment(lane)
    if (prefix / "env.sh").is_file() and shutil.which("python", path=prefix / "bin"):
        return ""
    return f"Python {lane} is not on this machine"


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


Queue = dict[str, Callable[[], Outcome]]
"""Runs one after the other, each by its name."""


def plan(wanted: list[str], lanes: list[str]) -> list[list[Queue]]:
    """Return phases of one or two queues beside each other.

    No other tests run beside everything, which has two processes: a third on two cores makes tests
    in real time late.
    """
    others: Queue = {
        ros: partial(run_tests, ros, NODES, ros, live=DEFAULT not in wanted)
        for ros in sorted({*wanted} - {DEFAULT})
    }
    if DEFAULT not in wanted:
        return [[others]]
    everything = partial(run_tests, DEFAULT, EVERYTHING, DEFAULT, live=True)
    rest: Queue = {}
    for lane in lanes:
        title = f"Python {lane}, {LANES[lane]}"
        rest[title] = partial(run_tests, title, LANE, lane)
    name = "decisions as Python"
    rest[name] = partial(run_tests, name, PURE, DEFAULT, JETSON_DNN_RT_PURE="1")
    return [[{DEFAULT: everything}, {"static checks": run_checks}], [others, rest]]


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
    parser.add_argument(
        "--lanes",
        nargs="*",
        choices=LANES,
        default=[],
        metavar="PYTHON",
        help=f"beside {DEFAULT}, what a robot runs: {', '.join(LANES)}",
    )
    options = parser.parse_args()
    wanted: list[str] = options.tests
    if not wanted:
        return 0 if run_checks().passed else 1
    if sourced := os.environ.get("ROS_DISTRO"):
        if DEFAULT not in wanted:
            print(f"ROS 2 {sourced} is sourced, so it is the one to test. Fix: make test")
            return 2
        wanted = [DEFAULT]
    absent = {lane: reason for lane in options.lanes if (reason := explain_absence(lane))}
    phases = plan(wanted, [lane for lane in options.lanes if lane not in absent])
    results: dict[str, Outcome] = {}

    def work(queue: Queue) -> None:
        for name, run in queue.items():
            results[name] = run()

    with ThreadPoolExecutor(min(2, _CORES)) as pool:
        for queues in phases:
            for done in [pool.submit(work, queue) for queue in queues]:
                done.result()
    print()
    names = [name for queues in phases for queue in queues for name in queue]
    # That of everything last: it is read as the verdict.
    last = DEFAULT if DEFAULT in names else names[-1]
    for name in names:
        if name == last:
            continue
        print(f"== {name}:", *results[name].lines, sep="\n", flush=True)
    for lane, reason in absent.items():
        print(f"== Python {lane}, {LANES[lane]}:\nLEFT OUT: {reason}", flush=True)
    failed = [name for name, outcome in results.items() if not outcome.passed]
    print(f"== ran: {', '.join(results)}; failed: {', '.join(failed) or 'none'}")
    print(f"== {last}:", *results[last].lines, sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
