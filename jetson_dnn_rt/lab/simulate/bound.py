# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bound of a world: the energy and the misses that no policy can do better than.

A linear program of what every run of a world has in common, with all true times known. Its optimum
is at most the energy, or the misses, of any run of the simulator at the same accuracy: it is a
relaxation, so the bound holds, but need not be attained. It is solved with HiGHS (scipy).

Kept are the work of every frame in every variant of each stage, on GPU, CPU and memory; that the
work of a frame lies between its release and its deadline, in steps of `STEP_S`; that a frame runs
one stage at a time, and fits into its deadline if alone; how stages side by side slow each other
down; that all of them have the same clocks; the power of the board at these clocks, idle or not;
co-runners; and the mean accuracy of the met frames.

Given away are: changes of clocks take no time, so does a decision; stages may be interrupted
anywhere, and their GPU, CPU and memory parts run in any order, each at clocks of its own choice;
frames may be met in part; the kernel throttles only when that is of use; what runs side by side
overlaps as well as it can, and the order in which stages began is the best at every instant; and
similar clocks are merged to one as good as all of them.

Why side by side is bounded so. A stage that begins beside k - 1 others takes ``I(k)`` times as
long. Of n stages, in the order of their begins, the k-th had at least k - 1 beside it, so all of
them together work at most ``W(n) = sum of 1 / I(k)`` times as fast as one alone. A part of the
board works at least as long as it does for any one of them, hence at least for ``1 / W(n)`` of the
sum of what each would need alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.board import Floats
from jetson_dnn_rt.lab.simulate.world import World, WorldTask

STEP_S = 1.0
"""A frame's work may move in time within a step of this length. Shorter: tighter and slower."""
MOST_CLOCKS = 48
"""Clocks are merged down to so many. More: tighter and slower."""
ROUNDING_NS = 1.0
"""A stage may take this much less: the simulator's times are whole nanoseconds."""
_PARTS = 3
_MS = 1e6  # the program's times are in ms, energies in mJ: numbers near 1


class _Clocks(NamedTuple):
    """Clock configurations, throttled ones included, [C]."""

    idle_w: Floats
    dynamic_w: Floats  # [C, 3]
    stretch: Floats  # [C, 3]: time of GPU, CPU and memory parts relative to the fastest clocks


class _Cell(NamedTuple):
    """All the time of one step in which the same tasks may run and the same co-runners do."""

    step: int
    tasks: tuple[int, ...]
    slowed: float  # by co-runners
    after_end: bool


_Entries = list[tuple[int, float]]
"""Columns of a row with their values."""
_Needs = dict[tuple[int, int, int], _Entries]
"""What a task needs, or is given, in a step on one part of the board."""


@dataclass
class _Rows:
    """Rows of a sparse matrix under construction."""

    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    count: int = 0

    def add(self, entries: Iterable[tuple[int, float]]) -> None:
        """Add a row."""
        for column, value in entries:
            self.rows.append(self.count)
            self.columns.append(column)
            self.values.append(value)
        self.count += 1

    def matrix(self, width: int) -> Any:
        from scipy.sparse import csr_matrix

        shape = (self.count, width)
        return csr_matrix((self.values, (self.rows, self.columns)), shape=shape)


class Bound:
    """Bound of one world; see the module. `ConfigurationError` without scipy."""

    def __init__(
        self, world: World, *, step_s: float = STEP_S, most_clocks: int = MOST_CLOCKS
    ) -> None:
        try:
            import scipy.optimize  # noqa: F401
        except ImportError as error:
            raise ConfigurationError(
                "the bound needs scipy, which is missing; fix: apt install python3-scipy or "
                "pip install 'jetson_dnn_rt[wcet]'"
            ) from error
        if any(task.narrow is not None for task in world.tasks):
            raise ConfigurationError("the bound does not know networks that run narrow")
        self.frames = sum(len(task.arrivals) for task in world.tasks)
        """Frames that arrive."""
        self._width = 1  # column 0: 1 / met frames, by which everything is scaled
        self._at_most, self._equal = _Rows(), _Rows()  # all with 0 on the right
        self._met: list[int] = []
        self._lost: dict[int, float] = {}  # accuracy lost, by column
        self._energy: dict[int, float] = {}
        self._build(world, step_s, most_clocks)

    def least_energy_j(self, accuracy_floor: float = 0.0, most_misses: float = 1.0) -> float:
        """Least energy of the board by met frame; infinite if no run can be like that.

        Of all runs whose met frames have at least this mean accuracy, and which miss at most this
        share of their frames.
        """
        least = (1.0 - most_misses) * self.frames
        extra = [self._accuracy_row(accuracy_floor), {0: least, **dict.fromkeys(self._met, -1.0)}]
        found = self._solve(self._energy, extra, total=1.0)
        return math.inf if found is None else found / 1e3

    def least_misses(
        self, accuracy_floor: float = 0.0, energy_per_met_frame_j: float = math.inf
    ) -> float:
        """Least share of missed frames of all runs with this accuracy and at most this energy."""
        extra = [self._accuracy_row(accuracy_floor)]
        if math.isfinite(energy_per_met_frame_j):
            row = dict(self._energy)
            for column in self._met:
                row[column] = row.get(column, 0.0) - energy_per_met_frame_j * 1e3
            extra.append(row)
        found = self._solve(dict.fromkeys(self._met, -1.0), extra, total=None)
        if found is None or not self.frames:
            return 1.0
        return 1.0 - math.floor(1e-6 - found) / self.frames

    # -- the program ---------------------------------------------------------------------------

    def _accuracy_row(self, floor: float) -> dict[int, float]:
        row = dict(self._lost)
        for column in self._met:
            row[column] = row.get(column, 0.0) - (1.0 - floor)
        return row

    def _solve(
        self, cost: dict[int, float], extra: Sequence[dict[int, float]], total: float | None
    ) -> float | None:
        """Solve with the met frames scaled to `total`, or unscaled; None if there is no run."""
        from scipy.optimize import linprog
        from scipy.sparse import vstack

        rows = _Rows()
        for row in extra:
            rows.add(row.items())
        at_most = vstack([self._at_most.matrix(self._width), rows.matrix(self._width)])
        ends = _Rows()
        ends.add([(0, 1.0)] if total is None else [(column, 1.0) for column in self._met])
        equal = vstack([self._equal.matrix(self._width), ends.matrix(self._width)])
        right = np.zeros(equal.shape[0])
        right[-1] = 1.0 if total is None else total
        costs = np.zeros(self._width)
        costs[list(cost)] = list(cost.values())
        result = linprog(
            costs, A_ub=at_most, b_ub=np.zeros(at_most.shape[0]), A_eq=equal, b_eq=right,
            bounds=(0.0, None), method="highs-ipm",
        )  # fmt: skip
        if result.status == 2:
            return None
        if result.status != 0:
            raise ArithmeticError(f"HiGHS: {result.message}")
        return float(result.fun)

    def _columns(self, count: int) -> range:
        first = self._width
        self._width += count
        return range(first, self._width)

    def _build(self, world: World, step_s: float, most_clocks: int) -> None:
        clocks = _merge(_clocks(world), most_clocks)
        windows = [_windows(task) for task in world.tasks]
        intervals = _Intervals(world, windows, round(step_s * 1e9))
        lowest_w = float(world.idle_w.min())
        self._energy[0] = (
            lowest_w * world.end_ns / _MS
            + sum(
                other.power_w
                * max(0.0, min(other.until_s * 1e9, world.end_ns) - other.from_s * 1e9)
                for other in world.co_runners
            )
            / _MS
        )
        needs: _Needs = {}
        for number, task in enumerate(world.tasks):
            share = _shares(task)
            for frame, (release, deadline) in enumerate(windows[number]):
                steps, slowed = intervals.find(release, deadline)
                time_ms = (deadline - release) / _MS / slowed
                self._add_frame(task, number, frame, share, steps, time_ms, needs)
        self._add_cells(_speed_ups(world), clocks, intervals.lengths_ms, lowest_w, needs)

    def _add_frame(
        self,
        task: WorldTask,
        number: int,
        frame: int,
        share: Floats,
        steps: Sequence[int],
        time_ms: float,
        needs: _Needs,
    ) -> None:
        """Add what a frame needs: its columns are the share met, and that of each variant."""
        variants, stages = task.base_ns.shape
        (met,) = self._columns(1)
        self._met.append(met)
        self._at_most.add([(met, 1.0), (0, -1.0)])
        shares = np.array(self._columns(variants * stages)).reshape(variants, stages)
        alone_ms = np.maximum(task.base_ns * task.noise[frame] - ROUNDING_NS, 0.0) / _MS
        work_ms = alone_ms[:, :, None] * share
        alone_ms = alone_ms * task.slowdown.min(axis=(0, 3))
        for stage in range(stages):
            self._equal.add(
                [*((column, 1.0) for column in shares[:, stage].tolist()), (met, -1.0)]
            )
        flat = shares.ravel().tolist()
        self._at_most.add([*zip(flat, alone_ms.ravel().tolist(), strict=True), (met, -time_ms)])
        for column, loss in zip(flat, task.loss.ravel().tolist(), strict=True):
            if loss:
                self._lost[column] = loss
        for part in range(_PARTS):
            work = work_ms[:, :, part].ravel().tolist()
            entries = [(c, w) for c, w in zip(flat, work, strict=True) if w > 0.0]
            if not entries:
                continue
            if len(steps) == 1:
                needs.setdefault((number, steps[0], part), []).extend(entries)
                continue
            split = self._columns(len(steps))
            self._equal.add([*entries, *((column, -1.0) for column in split)])
            for step, column in zip(steps, split, strict=True):
                needs.setdefault((number, step, part), []).append((column, 1.0))

    def _add_cells(
        self,
        speed_ups: Sequence[float],
        clocks: _Clocks,
        lengths_ms: dict[_Cell, float],
        lowest_w: float,
        needs: _Needs,
    ) -> None:
        """Add when and at which clocks the work may be done, and what it costs."""
        count = len(clocks.idle_w)
        given: _Needs = {}
        for cell, length_ms in lengths_ms.items():
            tasks = [i for i in cell.tasks if any((i, cell.step, p) in needs for p in range(3))]
            if not tasks:
                continue
            most = speed_ups[min(len(tasks), len(speed_ups)) - 1]
            busy = self._columns(count)
            self._at_most.add([*((column, 1.0) for column in busy), (0, -length_ms)])
            for column, idle_w in zip(busy, clocks.idle_w.tolist(), strict=True):
                # Power while idle is counted up to the end of the world.
                self._energy[column] = idle_w - (0.0 if cell.after_end else lowest_w)
            at_work = [self._columns(count) for _ in range(_PARTS)]
            for part, columns in enumerate(at_work):
                joules = clocks.dynamic_w[:, part].tolist()
                self._energy |= dict(zip(columns, joules, strict=True))
            together: list[_Entries] = [[] for _ in range(count)]
            parts: list[list[_Entries]] = [[[] for _ in range(count)] for _ in range(_PARTS)]
            for number in tasks:
                alone: list[_Entries] = [[] for _ in range(count)]
                for part in range(_PARTS):
                    key = number, cell.step, part
                    if key not in needs:
                        continue
                    columns = self._columns(count)
                    given.setdefault(key, []).extend((column, -1.0) for column in columns)
                    times = (clocks.stretch[:, part] * cell.slowed).tolist()
                    for place, entry in enumerate(zip(columns, times, strict=True)):
                        alone[place].append(entry)
                        parts[part][place].append(entry)
                        self._at_most.add([entry, (at_work[part][place], -1.0)])
                for place, entries in enumerate(alone):
                    together[place] += entries
                    self._at_most.add([*entries, (busy[place], -1.0)])
            if len(tasks) > 1:
                for place in range(count):
                    self._at_most.add([*together[place], (busy[place], -most)])
                    for part in range(_PARTS):
                        if parts[part][place]:
                            column = at_work[part][place]
                            self._at_most.add([*parts[part][place], (column, -most)])
        for key, wanted in needs.items():
            self._at_most.add([*wanted, *given.get(key, [])])


def _windows(task: WorldTask) -> list[tuple[int, int]]:
    """Release and deadline of each frame."""
    return [(release, release + task.parameters.deadline_ns) for release, _, _ in task.arrivals]


def _shares(task: WorldTask) -> Floats:
    """Share of each part in the time of a stage at the fastest clocks, [V, K, 3]."""
    return np.asarray(task.slowdown[0, :, :, -1, None] * task.activity[0, :, :, -1])


def _clocks(world: World) -> _Clocks:
    """All configurations.

    ``slowdown * activity`` of a stage is its share of a part times what the clocks do to this
    part; where a world is not made so, the least over its stages counts.
    """
    stretch = np.full((*world.idle_w.shape, _PARTS), np.inf)
    for task in world.tasks:
        times = (task.slowdown[..., None] * task.activity).transpose(0, 3, 1, 2, 4)
        share = np.broadcast_to(_shares(task), times.shape)
        ratio = np.divide(times, share, out=np.full(times.shape, np.inf), where=share > 0.0)
        np.minimum(stretch, ratio.min(axis=(2, 3)), out=stretch)
    unused = ~np.isfinite(stretch)
    stretch[unused] = 1.0
    flat = stretch.reshape(-1, _PARTS)
    return _Clocks(world.idle_w.ravel(), world.dynamic_w.reshape(-1, _PARTS), flat)


def _merge(clocks: _Clocks, most: int) -> _Clocks:
    """Merge the most similar configurations until at most this many are left.

    Each of the result has the least times and powers of those that it stands for, so that whatever
    one of them can do, it can do for no more energy.
    """
    rows = np.unique(np.column_stack(clocks), axis=0)
    while len(rows) > most:
        levels = np.log(np.maximum(rows, 1e-9))
        apart = np.abs(levels[:, None] - levels[None]).sum(axis=2)
        np.fill_diagonal(apart, np.inf)
        one, other = divmod(int(apart.argmin()), len(rows))
        rows[one] = np.minimum(rows[one], rows[other])
        rows = np.delete(rows, other, axis=0)
    return _Clocks(rows[:, 0], rows[:, 1:4], rows[:, 4:])


def _speed_ups(world: World) -> list[float]:
    """W(n) of the module for n = 1, 2, ... stages side by side."""
    threads = world.workers + world.helpers
    factors = [*world.interference, *world.interference[-1:] * (threads - len(world.interference))]
    least = np.minimum.accumulate(np.array(factors[:threads])[::-1])[::-1]
    speed_ups: list[float] = np.cumsum(1.0 / least).tolist()
    return speed_ups


class _Intervals:
    """Intervals of time between which nothing changes: no release, deadline, co-runner, step."""

    def __init__(
        self, world: World, windows: Sequence[Sequence[tuple[int, int]]], step_ns: int
    ) -> None:
        end_ns = max([world.end_ns, *(end for rows in windows for _, end in rows)])
        marks = {end_ns, world.end_ns, *range(0, end_ns, step_ns)}
        marks.update(time for rows in windows for window in rows for time in window)
        for other in world.co_runners:
            marks |= {round(other.from_s * 1e9), round(other.until_s * 1e9)}
        self._edges = np.array(sorted(time for time in marks if 0 <= time <= end_ns), np.int64)
        begins = self._edges[:-1].tolist()
        self._steps = [begin // step_ns for begin in begins]
        self._slowed = [world.co_runner_slowdown(begin) for begin in begins]
        open_ = np.zeros((len(windows), len(begins)), bool)
        for number, rows in enumerate(windows):
            for window in rows:
                open_[number, slice(*self._edges.searchsorted(window).tolist())] = True
        self.lengths_ms: dict[_Cell, float] = {}
        for place, length_ns in enumerate(np.diff(self._edges).tolist()):
            tasks = tuple(np.flatnonzero(open_[:, place]).tolist())
            after = begins[place] >= world.end_ns
            cell = _Cell(self._steps[place], tasks, self._slowed[place], after)
            self.lengths_ms[cell] = self.lengths_ms.get(cell, 0.0) + length_ns / _MS

    def find(self, release_ns: int, deadline_ns: int) -> tuple[list[int], float]:
        """Steps of a frame, and how much the co-runners slow it down at least."""
        inside = slice(*self._edges.searchsorted([release_ns, deadline_ns]).tolist())
        return sorted(set(self._steps[inside])), min(self._slowed[inside])
