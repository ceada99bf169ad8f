# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Fault injection: an exception and a hang at each call that the threads of a process make.

A tool finds the calls in the sources (``--list``; its rule and limits: test/support/call_sites.py)
of the threads of workers, watchdog, delivery, trace, clocks and cameras. Set-ups of a real
executor, camera, trace and board of files (test/support/fault_rig.py) then run in real time, and
one after the other each call that a thread reaches raises once, and hangs once until it is let go.
Calls that only the handling of another fault reaches fail after that one.

Each time diagnostics must name it, frames must flow and all threads work again, or a task be
suspended with an error, and the frames that were released, their outcomes, the records and the
jobs in the trace must add up. ``--sample N`` takes N calls of each kind of thread.
"""

# ruff: noqa: E402  (the process is replaced first by one without compiled modules)
from __future__ import annotations

import os
import sys

PURE = "JETSON_DNN_RT_PURE"
if __name__ == "__main__" and os.environ.get(PURE) != "1":
    # Calls inside compiled modules cannot be reached.
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, PURE: "1"})

import argparse
import importlib.util
import logging
import shutil
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import program
from program import Result

# isort: split
from call_sites import ROOTS, Program, Site
from fault_points import HANG, Injector, Key, install

NAMED_S, FLOW_S = 2.0, 5.0
STUCK_S = 1.0
CLOSE_S = 60.0
REACH_S = 5.0  # for a call that is made now and then
WITHOUT_NAME = ("its text cannot be read", "faults that could not be noted")
START, STEADY, END = "start", "steady", "end"
THREAD_NAMES = ("rt-worker", "rt-watchdog", "rt-delivery", "trace", "clock", "camera")


@dataclass(frozen=True)
class Case:
    """A call that fails, in a set-up and a phase of it; `before` fails first, to get there."""

    scenario: str
    phase: str
    key: Key
    fault: str  # "raise" or "hang"
    before: Key | None = None


class Campaign:
    """The set-ups, one after the other, and what came out."""

    def __init__(self, args: argparse.Namespace, injector: Injector, folder: Path) -> None:
        import fault_rig

        from jetson_dnn_rt.safety.faults import FAULTS

        self._log = FAULTS
        self._rigs: Any = fault_rig
        self._args, self._injector, self._folder = args, injector, folder
        self._ros: Any = None
        self._clocks: Any = None
        self._rig: Any = None
        self._cases_of_rig = 0
        self._unreadable = 0
        self.result = Result()
        self.tried: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.hard: set[Case] = set()  # that were not reached again
        self.slowest = {"named": 0.0, "flow": 0.0}

    def __enter__(self) -> Campaign:
        self._rigs.hurry(self._args.stuck_s)
        if self._args.ros:
            from ros_graph import Ros

            self._ros = Ros()
        return self

    def __exit__(self, *raised: object) -> None:
        self._close()
        if self._clocks is not None:
            self._clocks.close()
        if self._ros is not None:
            self._ros.close()

    # -- rigs ----------------------------------------------------------------------------------

    def _open(self, scenario: str) -> Any:
        if self._clocks is None:
            self._clocks = self._rigs.Clocks(self._folder / f"clocks-{time.monotonic_ns()}")
        (chosen,) = (one for one in self._rigs.SCENARIOS if one.name == scenario)
        self._rig = self._rigs.Rig(chosen, self._folder, self._clocks, self._ros)
        self._cases_of_rig = 0
        self._rig.start()
        return self._rig

    def _close(self) -> None:
        if self._rig is not None:
            rig, self._rig = self._rig, None
            closing = threading.Thread(target=rig.close, name="closing", daemon=True)
            closing.start()
            closing.join(CLOSE_S)
            if closing.is_alive():
                self.result.faults.append("a set-up does not end; its threads stay behind")
            shutil.rmtree(rig.writer.folder, ignore_errors=True)

    def explore(self) -> list[Case]:
        """Run every set-up undisturbed; the calls that were reached, with where that was."""
        first: dict[Key, tuple[str, str]] = {}
        seen = self._injector.seen

        def note(scenario: str, phase: str) -> None:
            for key in sorted(seen):
                # A call that comes again and again is tried then, not when it comes once.
                if key not in first or (first[key][1] != STEADY and phase == STEADY):
                    first[key] = scenario, phase
            seen.clear()

        for name in self._names():
            seen.clear()
            rig = self._open(name)
            self._wait_for_flow(rig, rig.progress())
            note(name, START)
            time.sleep(self._args.look_s)
            note(name, STEADY)
            self._close()
            if name == self._names()[-1]:
                self._clocks.close()
                self._clocks = None
            note(name, END)
        return [Case(*place, key, "raise") for key, place in sorted(first.items())]

    def _names(self) -> list[str]:
        names = [one.name for one in self._rigs.SCENARIOS]
        if self._args.scenarios:
            names = [name for name in names if name in self._args.scenarios.split(",")]
        return [name for name in names if name != "node" or self._args.ros]

    def _wait_for_flow(self, rig: Any, before: dict[str, int]) -> list[str]:
        """Wait until every count has grown; those that did not in time."""
        end_s = time.monotonic() + FLOW_S * self._args.patience
        while True:
            now = rig.progress()
            behind = [name for name, count in before.items() if now[name] < count + 2]
            if not behind or time.monotonic() > end_s:
                return behind
            time.sleep(0.005)

    # -- cases ---------------------------------------------------------------------------------

    def run(self, cases: Sequence[Case]) -> list[Case]:
        """Try the cases; returns those that calls of fault handling make, reached on the way."""
        known = {case.key for case in cases}
        further: dict[Key, Case] = {}
        groups: dict[tuple[str, str], list[Case]] = defaultdict(list)
        for case in cases:
            groups[case.phase, case.scenario].append(case)
        for group in groups.values():
            for case in group:
                if self._args.clock.is_over:
                    self.result.counts["not tried for want of time"] = (
                        self.result.counts.get("not tried for want of time", 0) + 1
                    )
                    continue
                self._injector.seen.clear()
                self._try(case)
                for key in self._injector.seen - known - set(further):
                    further[key] = Case(case.scenario, case.phase, key, "raise", case.key)
            self._close()
        return [further[key] for key in sorted(further)]

    def _try(self, case: Case) -> None:
        errors: tuple[type[BaseException], ...] = (RuntimeError, MemoryError)
        chain = [case.key] if case.before is None else [case.before, case.key]
        faults: list[Any] = [self._args.rng.choice(errors) for _ in chain]
        if case.fault == HANG:
            faults[-1] = HANG
        steps = {START: self._at_start, STEADY: self._while_running, END: self._at_the_end}
        try:
            found = steps[case.phase](case, chain, faults)
        except Exception as error:  # a fault of the campaign, or of what it calls
            found = [f"{type(error).__name__}: {error}"]
        finally:
            self._injector.disarm()
        site = self._injector.sites[case.key[1]]
        for text in found or ():
            first = f" after {self._injector.sites[case.before[1]]}" if case.before else ""
            fault = "+".join(f if isinstance(f, str) else f.__name__ for f in faults)
            self.result.faults.append(
                f"{case.key[0]}, {site}{first}, {case.scenario}, {case.phase}, {fault}: {text}"
            )
        if found is not None:
            self.tried[f"{case.key[0]} {case.fault}"] += 1
            self._progress(case, site, found)
        if found:
            self._discard()

    def _progress(self, case: Case, site: Site, found: Sequence[str]) -> None:
        if self._args.verbose:
            print(case.key[0], case.fault, case.scenario, case.phase, site, found, file=sys.stderr)

    def _discard(self) -> None:
        """After a fault nothing is known of the rig, nor of the clocks."""
        self._close()
        if self._clocks is not None:
            self._clocks.close()
            self._clocks = None

    def _while_running(self, case: Case, chain: list[Key], faults: list[Any]) -> list[str] | None:
        while True:
            rig, before = self._warm_up(case)
            self._cases_of_rig += 1
            self._injector.arm(chain, list(faults))
            if self._injector.hit.wait(REACH_S):
                break
            self._injector.disarm()
            if self._cases_of_rig == 1:
                self.hard.add(case)
                return None
            self._close()  # after an earlier case it may do less: a batch that hung is the last
        found = self._watch(case, rig, before)
        found += rig.account()
        if not rig.is_whole:
            self._close()
        return found

    def _warm_up(self, case: Case) -> tuple[Any, set[str]]:
        """A rig in which everything works, and what its diagnostics say of old."""
        rig = self._rig
        if rig is None:
            rig = self._open(case.scenario)
            self._wait_for_flow(rig, rig.progress())
        self._log.clear()
        self._unreadable = rig.camera.state.unreadable
        return rig, set(map(self._rigs.blur, rig.alarms()))

    def _watch(self, case: Case, rig: Any, before: set[str]) -> list[str]:
        """Wait until it is named, let go what hangs, and see everything work again."""
        found = self._wait_for_name(case, rig.alarms, before)
        counts = rig.progress()
        self._injector.let_go.set()
        began_s = time.monotonic()
        behind = self._wait_for_flow(rig, counts)
        self.slowest["flow"] = max(self.slowest["flow"], time.monotonic() - began_s)
        if behind and not rig.is_suspended:
            found.append(f"{', '.join(behind)}: no more within {FLOW_S:g} s; {rig.describe()}")
            self.missed["flow"] += 1
        found += self._wait_for_calm(rig)
        return found

    def _wait_for_name(
        self, case: Case, alarms: Callable[[], list[str]], before: set[str]
    ) -> list[str]:
        began_s = time.monotonic()
        while True:
            lines = alarms()
            if self._is_named(case, lines, before):
                took_s = time.monotonic() - began_s
                self.slowest["named"] = max(self.slowest["named"], took_s)
                if took_s <= NAMED_S * self._args.patience:
                    return []
                self.missed["named"] += 1
                return [f"named after {took_s:.1f} s only"]
            if time.monotonic() - began_s > NAMED_S * self._args.patience:
                self.missed["named"] += 1
                new = self._new(lines, before)[:3]
                return [f"not named within {NAMED_S:g} s; new in diagnostics: {new}"]
            time.sleep(0.02)

    def _is_named(self, case: Case, lines: list[str], before: set[str]) -> bool:
        if case.fault != HANG:
            # A picture that there is no memory to decode is counted, in `camera_status`.
            counted = self._rig is not None and self._rig.camera.state.unreadable
            if case.key[0] == "camera" and counted and counted > self._unreadable:
                return True
            if any(text in line for text in self._injector.texts for line in lines):
                return True
            # Where its text, or its name, cannot be made either, that is said.
            return any(text in line for text in WITHOUT_NAME for line in self._new(lines, before))
        new = self._new(lines, before)
        if case.key[0] == "camera" and any(line.startswith("camera: ") for line in new):
            return True
        return any(name in line for line in new for name in (*THREAD_NAMES, "hangs"))

    def _new(self, lines: list[str], before: set[str]) -> list[str]:
        return [line for line in lines if self._rigs.blur(line) not in before]

    def _wait_for_calm(self, rig: Any) -> list[str]:
        """Wait until no thread is reported as dead or stuck any more."""
        end_s = time.monotonic() + FLOW_S * self._args.patience
        while True:
            lines = [line for line in rig.alarms() if line.startswith(("dead.", "stuck."))]
            if not lines:
                return []
            if time.monotonic() > end_s:
                return [f"still reported: {lines}"]
            time.sleep(0.01)

    def _at_start(self, case: Case, chain: list[Key], faults: list[Any]) -> list[str] | None:
        self._close()
        if case.key[0] == "clock" and self._clocks is not None:
            self._clocks.close()
            self._clocks = None
        self._log.clear()
        self._injector.arm(chain, faults)
        rig = self._open(case.scenario)
        if not self._injector.hit.wait(REACH_S):
            self.hard.add(case)
            return None
        found = self._watch(case, rig, set())
        found += rig.account()
        self._close()
        return found

    def _at_the_end(self, case: Case, chain: list[Key], faults: list[Any]) -> list[str] | None:
        rig, before = self._warm_up(case)
        self._injector.arm(chain, faults)
        restored: list[str] = []

        def close() -> None:
            rig.close()
            if case.key[0] == "clock":
                restored.extend(self._clocks.close())

        closing = threading.Thread(target=close, name="closing")
        closing.start()
        if not self._injector.hit.wait(REACH_S):
            self._injector.disarm()
            closing.join()
            self._forget(case)
            self.hard.add(case)
            return None
        found = self._wait_for_name(case, rig.alarms, before)
        self._injector.let_go.set()
        closing.join(60.0)
        if closing.is_alive():
            found.append("the end does not come")
        found += self._wait_for_calm(rig)
        found += self._wait_for_trace(rig)
        self._forget(case)
        return found + restored

    def _wait_for_trace(self, rig: Any) -> list[str]:
        """The trace as it is on disk, as soon as its thread has ended."""
        rig.writer._thread.join(FLOW_S)
        found: list[str] = rig.read_trace()
        shutil.rmtree(rig.writer.folder, ignore_errors=True)
        return found

    def _forget(self, case: Case) -> None:
        self._rig = None
        if case.key[0] == "clock":
            self._clocks = None


Points = tuple[Program, dict[str, list[Site]], Injector]


def prepare() -> Points:
    """Find the calls of each kind of thread, and let them be reached; before any import."""
    sources = Program()
    listed = {kind: sources.sites_of(kind) for kind in ROOTS}
    every = {site for sites in listed.values() for site in sites}
    return sources, listed, install(sorted(every, key=str), sources.modules)


def choose(cases: Sequence[Case], args: argparse.Namespace) -> Iterator[Case]:
    """All cases, or some of each kind of thread."""
    for kind in ROOTS:
        own = [case for case in cases if case.key[0] == kind]
        if args.only and kind not in args.only.split(","):
            continue
        if args.sample:
            own = [case for case in own if case.phase == STEADY]
            own = args.rng.sample(own, min(args.sample, len(own)))
        yield from own


def run(args: argparse.Namespace) -> Result:
    """The campaign."""
    sources, listed, injector = args.points
    if args.list:
        return show(listed, sources)
    logging.disable(logging.CRITICAL)  # thousands of tracebacks
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        with Campaign(args, injector, folder) as campaign:
            cases = campaign.explore()
            reached = {case.key for case in cases}
            chosen = list(choose(cases, args))
            further = campaign.run(chosen) if "raise" in args.kinds else []
            if "raise" in args.kinds and not args.sample:
                campaign.run(further)
                reached |= {case.key for case in further}
            if "hang" in args.kinds:
                hangs = chosen if not args.sample else chosen[:: args.sample]
                also = [] if args.sample else further
                campaign.run([Case(c.scenario, c.phase, c.key, HANG, c.before)
                              for c in (*hangs, *also)])  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return judge(args, campaign, injector, listed, reached)


def judge(
    args: argparse.Namespace,
    campaign: Campaign,
    injector: Injector,
    listed: dict[str, list[Site]],
    reached: set[Key],
) -> Result:
    """The bars."""
    result = campaign.result
    numbers = injector.numbers
    keys = {kind: {(kind, numbers[s.module, s.span]) for s in s_} for kind, s_ in listed.items()}
    result.counts |= {
        "listed": {kind: len(found) for kind, found in keys.items()},
        "reached": {kind: len(found & reached) for kind, found in keys.items()},
        "tried": dict(sorted(campaign.tried.items())),
        "not reached again": [
            f"{case.key[0]}, {injector.sites[case.key[1]]}, {case.fault}" for case in campaign.hard
        ][:100],
        "slowest_s": {name: round(seconds, 2) for name, seconds in campaign.slowest.items()},
    }
    if not args.sample:
        result.counts["never reached"] = {
            kind: [str(injector.sites[number]) for _, number in sorted(found - reached)]
            for kind, found in keys.items()
        }
    every = set().union(*keys.values())
    unlisted = [f"{k}, {injector.sites[n]}" for k, n in sorted(reached - every)]
    result.counts["reached, not listed"] = unlisted
    tried = sum(campaign.tried.values())
    others = len(result.faults) - campaign.missed["named"] - campaign.missed["flow"]
    result.judge(
        "every call that was reached is in the list", f"{len(unlisted)} not", not unlisted
    )
    result.judge(
        "every fault is named in diagnostics within 2 s",
        f"{tried - campaign.missed['named']} of {tried}, the slowest after "
        f"{campaign.slowest['named']:.2f} s",
        tried > 0 and not campaign.missed["named"],
    )
    result.judge(
        "frames flow and threads work within 5 s, or a task is suspended with an error",
        f"{tried - campaign.missed['flow']} of {tried}",
        not campaign.missed["flow"],
    )
    result.judge("all counts add up", f"{others} faults", others <= 0)
    return result


def show(listed: dict[str, list[Site]], sources: Program) -> Result:
    """Print the list."""
    for kind, sites in listed.items():
        for site in sites:
            print(f"{kind}: {site}")
    result = Result(counts={kind: len(sites) for kind, sites in listed.items()})
    result.counts["functions"] = {kind: len(sources.functions_of(kind)) for kind in ROOTS}
    return result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the campaign's own options."""
    parser.set_defaults(points=prepare())
    parser.add_argument("--list", action="store_true", help="print all call sites; fail none")
    parser.add_argument("--sample", type=int, default=0, help="calls of each kind of thread")
    parser.add_argument("--scenarios", default="", help="only these set-ups, with commas")
    parser.add_argument("--only", default="", help="only these kinds of thread")
    parser.add_argument("--kinds", default="raise,hang", help="of faults")
    parser.add_argument("--look-s", type=float, default=2.0, help="to find the calls of a set-up")
    parser.add_argument("--patience", type=float, default=1.0, help="factor of the time limits")
    parser.add_argument(
        "--stuck-s",
        type=float,
        default=STUCK_S,
        help="time after which a thread is named; the package's is the default",
    )
    ros = importlib.util.find_spec("rclpy") is not None
    parser.add_argument("--no-ros", dest="ros", action="store_false", default=ros,
                        help="no camera node")  # fmt: skip
    parser.add_argument("--verbose", action="store_true", help="tell each case")


if __name__ == "__main__":
    program.prepare_ros()
    sys.exit(program.main(run, add_arguments, minutes=120.0))
