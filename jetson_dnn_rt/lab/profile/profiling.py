# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Measurement of stage times and power of tasks at clock configurations: the data of the tables.

Measured on real frames, since their content decides how long decoding takes; all stages of a frame
together, since a slow frame is slow in several of them; at the clocks that are read back, since
the kernel may set others than requested.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.coordinator.tables.tables import Integers
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.profile.journal import ALONE, Journal, name_chunk, pack_runs, unpack_chunk
from jetson_dnn_rt.platforms.platform import Platform
from jetson_dnn_rt.platforms.power import has_power, measure_mean_power
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.safety.records import read_record
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.measuring.agreement import Agreement, compare
from jetson_dnn_rt.variants.measuring.measurement import approximates
from jetson_dnn_rt.variants.measuring.timing import TimedRun, run_in_turn
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.running.pipeline import Pipeline
from jetson_dnn_rt.variants.running.variant_set import VariantSet

logger = logging.getLogger(__name__)

SETTLE_NS = 50_000_000  # after a change of clocks and its delay: voltage, other governors
IDLE_STEP_NS = 20_000_000
CHUNK = 50  # frames between two reports of progress; as many are lost when interrupted
CURRENT = "current"  # clocks that were not set

Key = tuple[str, str]
"""A task and one of its variants."""


@dataclass(frozen=True)
class ProfiledTask:
    """A task to profile; the variants are loaded, and closed by the caller."""

    name: str
    variants: VariantSet
    deadline_ns: int
    period_ns: int


@dataclass(frozen=True, eq=False)
class ClockPoint:
    """Measurements at one clock configuration."""

    position: int  # its number in the platform's space, as read back
    times_ns: Mapping[Key, Integers]  # [frames, runs]: a back end may do several stages in one
    power_w: Mapping[Key, float]  # mean while the variant runs; empty if it cannot be measured
    idle_w: float | None  # while nothing runs


class Profiler:
    """Profiler of some tasks: runs one variant at a time and stores the results in the journal."""

    def __init__(
        self,
        tasks: Sequence[ProfiledTask],
        frames: Sequence[Frame],
        platform: Platform,
        clock: Clock,
        progress: Progress = ignore_progress,
        journal: Journal | None = None,
    ) -> None:
        self.tasks, self.frames, self.platform = tuple(tasks), frames, platform
        self.clock, self.progress = clock, progress
        self.journal = Journal() if journal is None else journal
        self._done, self._total = 0, 0

    def compare(self) -> dict[Key, Agreement]:
        """Agreement of each variant with the full model, frame by frame.

        The first exact variant of a task serves as the full model; a task without one is left
        out.
        """
        found: dict[Key, Agreement] = {}
        for task in self.tasks:
            compared = self.journal.remember(
                f"agreement|{task.name}", partial(self._compare, task)
            )
            for name, fields in compared.items():
                found[task.name, name] = read_record(Agreement, fields)
        return found

    def _compare(self, task: ProfiledTask) -> dict[str, dict[str, Any]]:
        pipelines = task.variants.pipelines
        exact = [name for name in pipelines if not approximates(pipelines[name].spec)]
        if not exact:
            logger.warning("task %s has no full variant to compare others with", task.name)
            return {}
        results = {name: self._run_all(f"{task.name} {name}", p) for name, p in pipelines.items()}
        kind, full = task.variants.model.kind, results[exact[0]]
        return {name: asdict(compare(kind, full, results[name], exact[0])) for name in pipelines}

    def _run_all(self, name: str, pipeline: Pipeline) -> list[Result]:
        results = []
        for done, frame in enumerate(self.frames):
            self.progress(f"comparing {name}", done, len(self.frames))
            work = Work(frame)
            try:
                pipeline.run(work)
            except Exception as error:
                raise ModelError(f"{name} fails on frame {done}: {error}") from error
            if work.result is None:
                raise ModelError(f"{name} gives no result on frame {done}")
            results.append(work.result)
        return results

    def measure_points(
        self,
        positions: Sequence[int] | None,
        runs: int,
        runs_of_others: int | None = None,
        *,
        need_first: bool = False,
    ) -> list[ClockPoint]:
        """Measure all variants at clock configurations, one after the other.

        By default the clocks are not changed, and there is only that point. The first
        configuration gets `runs` frames of each variant, >= 1, after some cold ones; the others as
        many, or `runs_of_others`. With `need_first` the first configuration must be reached. A
        configuration that the board sets twice is measured once.
        """
        wanted: list[int | None] = [None] if positions is None else list(positions)
        counts = [runs] + [runs_of_others or runs] * (len(wanted) - 1)
        self._done, self._total = 0, sum(counts) * len(self.tasks)
        points: dict[int, ClockPoint] = {}
        for position, count in zip(wanted, counts, strict=True):
            label = CURRENT if position is None else str(position)
            known = self.journal.pieces.get(f"point|{label}")
            present = self._set_clocks(position) if known is None else int(known["position"])
            if need_first and not points and present != position:
                space = self.platform.space
                raise ConfigurationError(
                    f"{self.platform.title} does not reach its clocks "
                    f"{space.describe(position or 0)}, but {space.describe(present)}; fix: choose "
                    "the power mode without limits (nvpmodel -m 0)"
                )
            if present in points:
                self._done += count * len(self.tasks)
                continue
            times_ns = self._measure_times(count, ALONE, label, present, self.tasks)
            if known is None:
                measured_w, idle_w = self._measure_power()
                named = {"|".join(key): watts for key, watts in measured_w.items()}
                known = {"position": present, "power_w": named, "idle_w": idle_w}
                self.journal.put(f"point|{label}", known)
            named = known["power_w"]
            power_w = {key: named["|".join(key)] for key in times_ns if named}
            points[present] = ClockPoint(present, times_ns, power_w, known["idle_w"])
        return list(points.values())

    def measure_times(
        self,
        runs: int,
        condition: str = ALONE,
        tasks: Sequence[ProfiledTask] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> dict[Key, Integers]:
        """Measure times at the present clocks, [frames, runs] for each task and variant.

        Variants of a task run frame by frame in turn, so that a row is one frame in all of them.
        `condition` names the co-runners, for the journal; `check` is called after each chunk and
        raises if the condition was violated during it.
        """
        chosen = self.tasks if tasks is None else tasks
        self._done, self._total = 0, runs * len(chosen)
        present = self.platform.space.nearest(self.platform.read())
        return self._measure_times(runs, condition, CURRENT, present, chosen, check)

    def _measure_times(
        self,
        runs: int,
        condition: str,
        label: str,
        present: int,
        tasks: Sequence[ProfiledTask],
        check: Callable[[], None] = lambda: None,
    ) -> dict[Key, Integers]:
        clocks = self.platform.space.describe(present)
        phase = "measuring" if condition == ALONE else f"measuring beside {condition}"
        times_ns: dict[Key, Integers] = {}
        for task in tasks:
            chunks = []
            for first in range(0, runs, CHUNK):
                count = min(CHUNK, runs - first)
                name = name_chunk(condition, label, task.name, first)
                if name in self.journal.pieces:  # no part of the work left
                    self._total -= count
                else:
                    self.progress(phase, self._done, self._total)
                    taken = self._run_chunk(task, first, count)
                    check()
                    runs_of = {variant: pack_runs(rows) for variant, rows in taken.items()}
                    self.journal.put(name, {"clocks": clocks, "runs": runs_of})
                    self._done += count
                chunks.append(unpack_chunk(name, self.journal.pieces[name]))
            for name in task.variants.pipelines:
                rows = [run.times_ns for c in chunks for run in c.runs[name] if not run.cold]
                times_ns[task.name, name] = np.array(rows, dtype=np.int64)
        return times_ns

    def _run_chunk(self, task: ProfiledTask, first: int, count: int) -> dict[str, list[TimedRun]]:
        pipelines = task.variants.pipelines
        at = first % len(self.frames)
        frames = [*self.frames[at:], *self.frames[:at]]
        stages = [pipeline.stages for pipeline in pipelines.values()]
        try:
            measured = run_in_turn(stages, frames, count, self.clock)
        except Exception as error:
            raise ModelError(f"task {task.name} fails while it is timed: {error}") from error
        return dict(zip(pipelines, measured, strict=True))

    def _set_clocks(self, position: int | None) -> int:
        """Set the clocks, wait until they are stable, and return the configuration read back."""
        space = self.platform.space
        if position is not None:
            before = space.nearest(self.platform.read())
            self.platform.apply(position)
            delay_ns = space.delay_ns(before, position)
            self.clock.sleep_until_ns(self.clock.now_ns() + delay_ns + SETTLE_NS)
        present = space.nearest(self.platform.read())
        if position is not None and present != position:
            logger.warning(
                "requested %s, the board set %s: measured as that",
                space.describe(position), space.describe(present),
            )  # fmt: skip
        return present

    def _measure_power(self) -> tuple[dict[Key, float], float | None]:
        if not has_power(self.platform):
            return {}, None
        measure = partial(measure_mean_power, self.platform, self.clock)
        idle_w = measure(self._rest)
        power_w = {}
        for task in self.tasks:
            for name, pipeline in task.variants.pipelines.items():
                runs = map(pipeline.run, map(Work, itertools.cycle(self.frames)))
                power_w[task.name, name] = measure(partial(next, runs))
        return power_w, idle_w

    def _rest(self) -> None:
        self.clock.sleep_until_ns(self.clock.now_ns() + IDLE_STEP_NS)
