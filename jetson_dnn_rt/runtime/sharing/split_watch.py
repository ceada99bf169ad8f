# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Whether the split of the cores is still the one to take, looked at while tasks run.

Nothing is changed: an executor has no other workers while it has tasks, and no trial may delay
their frames. What has changed since the choice is said once, with what would be better, as far as
that is known, and what to do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit
from jetson_dnn_rt.runtime.sharing.split_choice import LIMIT_NS, SplitChoice
from jetson_dnn_rt.runtime.verdict_watch import PresentVerdict

CHANGE = 1.25
"""Rates and deadlines that changed by this factor are others than a split was chosen for."""

FindKnown = Callable[[Mapping[str, int], Mapping[str, int]], CoreSplit | None]
"""The split that was decided for at periods and deadlines like these by name, where there is."""


class SplitWatch:
    """Compares rates, deadlines and drift with those of a choice; any thread may ask.

    `warn` is told once for each thing that changes.
    """

    def __init__(
        self, choice: SplitChoice, find_known: FindKnown, warn: Callable[[str], object]
    ) -> None:
        self.choice = choice
        self._find_known, self._warn = find_known, warn
        self._lock = threading.Lock()
        self._drifted: set[str] = set()
        self._said: set[tuple[str, str]] = set()
        self._seen: tuple[PresentVerdict | None, Mapping[str, int], frozenset[str]] | None = None
        self._text = ""

    def note_drift(self, task: str, drifts: bool) -> None:
        """Take note whether a task's times no longer match its profile."""
        with self._lock:
            (self._drifted.add if drifts else self._drifted.discard)(task)

    def review(self, present: PresentVerdict, deadlines_ns: Mapping[str, int]) -> str:
        """What has changed since the choice, and what to do; empty where the choice stands.

        `deadlines_ns` has the active tasks; their measured rates are in `present`.
        """
        with self._lock:
            seen = (present, dict(deadlines_ns), frozenset(self._drifted))
            if seen != self._seen:
                self._seen = seen
                causes = self._find_causes(present, deadlines_ns)
                self._text = self._advise(causes, present, deadlines_ns) if causes else ""
                if self._text and not causes.keys() <= self._said:
                    self._warn(f"threads: auto: {self._text}")
                self._said = set(causes)
            return self._text

    def _find_causes(
        self, present: PresentVerdict, deadlines_ns: Mapping[str, int]
    ) -> dict[tuple[str, str], str]:
        """What has changed, by task and kind."""
        found: dict[tuple[str, str], str] = {}
        for name, chosen_ns in self.choice.periods_ns.items():
            if name not in deadlines_ns:
                found[name, "active"] = f"{name} does not run"
                continue
            rate_hz = present.rates_hz.get(name, 0.0)
            is_known = rate_hz > 0.0 and name not in present.assumed
            if is_known and _differ(1e9 / rate_hz, chosen_ns):
                found[name, "rate"] = (
                    f"frames of {name} come at {rate_hz:.1f} Hz, not at {1e9 / chosen_ns:.1f}"
                )
            before_ns = self.choice.deadlines_ns[name]
            if _differ(deadlines_ns[name], before_ns):
                found[name, "deadline"] = (
                    f"the deadline of {name} is {deadlines_ns[name] / 1e6:.1f} ms, not "
                    f"{before_ns / 1e6:.1f}"
                )
            if name in self._drifted:
                found[name, "drift"] = f"times of {name} no longer match its profile"
        for name in deadlines_ns.keys() - self.choice.periods_ns.keys():
            found[name, "active"] = f"{name} runs, too"
        return found

    def _advise(
        self,
        causes: Mapping[tuple[str, str], str],
        present: PresentVerdict,
        deadlines_ns: Mapping[str, int],
    ) -> str:
        """Words for people; empty where the library knows that the split is right all the same."""
        what = "; ".join(causes.values())
        split = self.choice.split
        kinds = {kind for _, kind in causes}
        since = f"{split} was chosen under other conditions: {what}. "
        if "drift" in kinds:
            return (
                f"{since}What is better now is not known; fix: jetson-dnn-rt library prune --kind "
                "split, then clean up and configure the process again, which measures it"
            )
        periods_ns = {
            name: round(1e9 / rate_hz) for name, rate_hz in present.rates_hz.items() if rate_hz > 0
        }
        known = None if "active" in kinds else self._find_known(periods_ns, deadlines_ns)
        if known == split:
            return ""
        if known is not None:
            return (
                f"{since}{known} was better at such rates and deadlines; fix: "
                f"{_name_parameters(known)}, then clean up and configure the process again"
            )
        return (
            f"{since}What is better now is not known; fix: set expected_frequency and deadline_ms "
            "of the tasks to what they are, then clean up and configure the process again, which "
            f"measures it in at most {LIMIT_NS / 1e9:.0f} s"
        )


def _differ(one: float, other: float) -> bool:
    return max(one, other) > CHANGE * min(one, other)


def _name_parameters(split: CoreSplit) -> str:
    if split.narrow_threads:
        return "set expected_frequency and deadline_ms of the tasks to what they are"
    return f"set workers: {split.workers} and threads: {split.threads}"
