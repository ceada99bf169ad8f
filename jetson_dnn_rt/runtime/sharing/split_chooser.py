# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Choice of the split of the cores for loaded tasks: from the library, else by a trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit, NarrowTimes
from jetson_dnn_rt.runtime.sharing.split_choice import (
    LIMIT_NS,
    TIGHT,
    SplitChoice,
    choose,
    count_periods,
    find_longest_ns,
    find_nearest,
    list_choices,
    list_splits,
    load_choice,
    make_key,
    store_choice,
)
from jetson_dnn_rt.runtime.sharing.split_trial import SplitTrial
from jetson_dnn_rt.runtime.sharing.split_watch import CHANGE, SplitWatch
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.variants.library.library import EntryKey, Library

Times = Mapping[str, int]
"""Periods, or relative deadlines, in ns by task."""


class SplitChooser:
    """Chooses a split for tasks that are loaded for `planned` and do not run.

    `times` are those of their networks, as `measure_narrow` finds them; `log` is told the choice.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task],
        planned: CoreSplit,
        times: NarrowTimes,
        process: ProcessConfig,
        clock: Clock,
        log: Callable[[str], object],
    ) -> None:
        self._tasks, self._times = dict(tasks), times
        self._process, self._clock, self._log = process, clock, log
        self.splits = list_splits(planned, times, len(tasks))
        self.helpers = {split: self._count_helpers(split, planned) for split in self.splits}

    def _count_helpers(self, split: CoreSplit, planned: CoreSplit) -> int:
        """Helpers with a split: networks that are narrow beside others run on them, too."""
        helpers = self._process.helpers
        is_narrow = split.narrow_threads or self._times.of_split(split)
        return max(helpers, planned.side_by_side - 1) if is_narrow else helpers

    def choose(self, periods_ns: Times, deadlines_ns: Times) -> SplitChoice:
        """The split for tasks with these periods and deadlines; takes `LIMIT_NS` at most."""
        begin_ns = self._clock.now_ns()
        choice, source = self._choose(periods_ns, deadlines_ns)
        seconds = (self._clock.now_ns() - begin_ns) / 1e9
        self._log(f"threads: auto: {choice} ({source or f'measured in {seconds:.1f} s'})")
        return choice

    def _choose(self, periods_ns: Times, deadlines_ns: Times) -> tuple[SplitChoice, str]:
        default = SplitChoice(self.splits[0], dict(periods_ns), dict(deadlines_ns))
        periods = count_periods(periods_ns, len(self.splits) - 1) if self.is_open else 0
        if reason := self._find_reason(periods_ns, deadlines_ns, periods):
            return replace(default, reason=reason), "nothing was tried"
        key = self._make_key(periods_ns, deadlines_ns)
        if kept := load_choice(self._library, key, self.splits, periods_ns, deadlines_ns):
            known = "jetson-dnn-rt library prune --kind split drops it"
            return kept, f"measured on {kept.date[:10]}; {known}"
        splits = ", ".join(map(str, self.splits))
        self._log(
            f"threads: auto: playing frames with {splits} in turns; takes at most "
            f"{LIMIT_NS / 1e9:.0f} s, once for these networks, rates and deadlines"
        )
        trial = SplitTrial(
            self._tasks,
            self._times,
            self._process,
            self.helpers,
            self._clock,
            periods_ns,
            deadlines_ns,
            periods,
        )
        with closing(trial):
            found = choose(self.splits, trial.play, self._clock, LIMIT_NS)
        found = replace(
            found,
            periods_ns=dict(periods_ns),
            deadlines_ns=dict(deadlines_ns),
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        if all(one.rounds for one in found.comparisons):
            store_choice(self._library, key, found, self._tasks)
        return found, ""

    def _find_reason(self, periods_ns: Times, deadlines_ns: Times, periods: int) -> str:
        """Why nothing is to be tried; empty where it is."""
        if not self.is_open:
            return "no network can have fewer threads beside others, or only one task can"
        kept = f"kept {self.splits[0]}"
        longest_ns = find_longest_ns(self._tasks)
        if not longest_ns:
            return f"not decided, {kept}: no frame was measured, see warmup_runs"
        least_ns = min((*periods_ns.values(), *deadlines_ns.values()))
        if longest_ns <= TIGHT * least_ns:
            return (
                f"decided for {self.splits[0]}: one after the other all take at most "
                f"{longest_ns / 1e6:.1f} of {least_ns / 1e6:.1f} ms, no frame is late"
            )
        if not periods:
            return (
                f"not decided, {kept}: frames come too rarely to try splits in "
                f"{LIMIT_NS / 1e9:.0f} s"
            )
        return ""

    @property
    def is_open(self) -> bool:
        """Whether there is more than one split to choose among."""
        return len(self.splits) > 1

    def make_watch(self, choice: SplitChoice, warn: Callable[[str], object]) -> SplitWatch | None:
        """What looks at a choice again while tasks run; None where there is but one split."""
        if not self.is_open:
            return None
        # The networks may be closed meanwhile: nothing of them is kept.
        key = self._make_key(choice.periods_ns, choice.deadlines_ns)
        return SplitWatch(choice, partial(find_known, self._library, key, self.splits), warn)

    @property
    def _library(self) -> Library | None:
        """That of the tasks that have one."""
        return next((t.library for t in self._tasks.values() if t.library is not None), None)

    def _make_key(self, periods_ns: Times, deadlines_ns: Times) -> EntryKey:
        process = self._process
        values = (process.discipline, process.max_inflight, process.cancel_for_urgent)
        helpers = [self.helpers[split] for split in self.splits]
        decisive = (*values, *helpers)
        return make_key(self._tasks, self.splits, decisive, periods_ns, deadlines_ns)


def find_known(
    library: Library | None,
    key: EntryKey,
    splits: Sequence[CoreSplit],
    periods_ns: Times,
    deadlines_ns: Times,
) -> CoreSplit | None:
    """The split that was decided for at rates and deadlines like these, by the library; or None.

    `key` is that of the present choice, which was made for others.
    """
    decided = (
        choice
        for choice in list_choices(library, key)
        if all(one.is_better is not None for one in choice.comparisons)
    )
    found = find_nearest(decided, splits, periods_ns, deadlines_ns, CHANGE)
    return None if found is None else found.split
