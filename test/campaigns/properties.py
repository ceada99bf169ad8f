# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The properties with fresh examples, round after round: `make test` draws the same each time.

    python test/campaigns/properties.py --minutes 30 --seed 1
    python test/campaigns/properties.py --minutes 5 --only places --seed "$RANDOM"

Each round runs every test with ``@given``, file by file in random order, and the state machine of
the scheduling engine, with a seed of its own; the last one ends with the time. A counterexample,
shrunk, is a fault: the test gets it as an ``@example``, in the commit that fixes code or property.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import program
from more_examples import TIMES
from program import ROOT, SUPPORT, Result
from property_examples import DRAWN

MACHINE = "test/scheduling/test_engine_machine.py"
"""The state machine's file: its tests have fixed seeds, so that it is run here by itself."""
_MACHINES, _STEPS = 60, 60
_SHOWN = 3000
_COUNTS = re.compile(r"- (\d+) passing, (\d+) failing")
_PROPERTY = re.compile(r"^@given\b", re.MULTILINE)
_TIMEOUT_S = 1800.0
"""For one file, in which shrinking takes five minutes for each property at most."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this campaign."""
    parser.add_argument("--only", default="", metavar="TEXT", help="files with this in their path")
    parser.add_argument("--times", type=int, default=5, help="as many examples as a test asks for")


def find_files(text: str = "") -> list[str]:
    """Return the test files with properties, the state machine's among them."""
    found = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "test").rglob("test_*.py"))
        if _PROPERTY.search(path.read_text(encoding="utf-8"))
    ]
    return [name for name in (*found, MACHINE) if text in name]


def run(args: argparse.Namespace) -> Result:
    """Run rounds, and judge them."""
    result, tally = Result(), Counter[str]()
    files = find_files(args.only)
    ran: set[str] = set()
    while not args.clock.is_over:
        seed = args.rng.randrange(1 << 32)
        for name in args.rng.sample(files, len(files)):
            if args.clock.is_over:
                break
            ran.add(name)
            if name == MACHINE:
                _run_machine(seed, tally, result)
            else:
                run_file(name, seed, args.times, tally, result)
        else:
            tally["whole rounds"] += 1
    result.counts = {"files": len(ran), **tally}
    whole = bool(files) and len(ran) == len(files)
    result.judge(
        "every file with a property is run", f"{len(ran)} of {len(files)}",
        None if files and args.clock.is_over and not whole else whole,
    )  # fmt: skip
    result.judge("no property has a counterexample", f"{len(result.faults)} in "
                 f"{tally['examples']:,} examples", not result.faults)  # fmt: skip
    return result


def run_file(name: str, seed: int, times: int, tally: Counter[str], result: Result) -> None:
    """Run the properties of a file in a process of their own."""
    with tempfile.TemporaryDirectory(prefix="properties-") as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", name]
        command += ["-p", "no:cacheprovider", f"--basetemp={folder}/tmp", f"--junitxml={report}"]
        command += [f"--hypothesis-profile={DRAWN}", f"--hypothesis-seed={seed}"]
        command += ["--hypothesis-show-statistics", "-p", "more_examples"]
        again = f"{name}, seed {seed}, {times} times the examples"
        try:
            done = subprocess.run(
                command, cwd=ROOT, env={**os.environ, TIMES: str(times)}, capture_output=True,
                text=True, errors="replace", timeout=_TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            result.faults.append(f"{again}: not ended after {_TIMEOUT_S:g} s")
            return
        for passing, failing in _COUNTS.findall(done.stdout):
            tally["examples"] += int(passing) + int(failing)
        failures = list(_read_failures(report)) if report.is_file() else []
        tally["runs of files"] += 1
        # 5: no test was selected, as where a package is missing.
        if done.returncode not in (0, 5) and not failures:
            failures = [("pytest", (done.stdout + done.stderr)[-_SHOWN:])]
        tally["counterexamples"] += len(failures)
        result.faults += [f"{again}: {test}: {text}" for test, text in failures]
        for test, text in failures:
            print(f"{again}: {test}\n{text}", file=sys.stderr, flush=True)


def _read_failures(report: Path) -> Iterator[tuple[str, str]]:
    """Yield the tests that failed with their counterexamples, of a report that pytest wrote."""
    for case in ElementTree.parse(report).iter("testcase"):
        for found in (*case.iter("failure"), *case.iter("error")):
            text = found.text or ""
            at = text.find("Falsifying example")
            shown = text[at:] if at >= 0 else text[-_SHOWN:]
            yield case.get("name", "?"), f"{found.get('message', '')[:500]}\n{shown[:_SHOWN]}"


def _run_machine(seed: int, tally: Counter[str], result: Result) -> None:
    """Run the state machine of the engine."""
    from engine_machine import EngineMachine, run_machine

    EngineMachine.transitions.clear()
    try:
        run_machine(seed, _MACHINES, _STEPS)
    except Exception as error:
        notes = "\n".join(getattr(error, "__notes__", ()))
        text = f"engine, run_machine({seed}, {_MACHINES}, {_STEPS}): {error}\n{notes}"[:_SHOWN]
        tally["counterexamples"] += 1
        result.faults.append(text)
        print(text, file=sys.stderr, flush=True)
    tally["examples"] += _MACHINES
    tally["transitions of the engine"] += EngineMachine.transitions.total()
    tally["runs of files"] += 1


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.fspath, (ROOT, SUPPORT)))
    sys.exit(program.main(run, add_arguments, minutes=10.0))
