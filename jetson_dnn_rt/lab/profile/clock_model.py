"""What a stage takes at clocks it was never measured at: a model fitted to at most 50 points.

The time of a stage is taken to be a sum of what it waits for::

    time(c) = a / f_cpu + b / (cores x f_cpu) + g / f_gpu + m[f_emc]

a: one core runs (Python, launching kernels); b: all cores run; g: the GPU runs; m: memory, a
table with one value for each memory clock, that never rises with it. A memory term in 1 / f does
not fit: from 2133 to 3199 MHz medians move by 11 to 48 % (arXiv 2606.16106). All coefficients are
>= 0, so that no prediction is faster for slower clocks.

The mean power of the board while a variant runs is taken to be::

    power(c) = p + e[f_emc] + sum over domains n (k + l f + d f^3)
             + w / time(c) + busy_cpu(c) d' f_cpu^3 + busy_gpu(c) d'' f_gpu^3

n: cores that are on, 1 for the GPU; f^3: V^2 f with a voltage that rises with the clock; f: the
same where the voltage is at its floor; w: the energy of a frame there, whatever the clocks; busy:
the shares of the time that the model of the time gives to the CPU and to the GPU. Both models are
derived, and neither is believed: their error is that of points held out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jetson_dnn_rt.coordinator.tables.tables import Floats, Integers
from jetson_dnn_rt.lab.profile.nonnegative import HeldOutError, fit
from jetson_dnn_rt.platforms.clocks import ClockSpace

MAX_POINTS = 50
"""Points that `choose_points` measures at most: with settling and 1 s of power each, minutes."""

_BIG_CORE_SPEEDS = (0.5, 0.7, 1.0, 1.4, 2.0)
_DESIGNED = 0.6
_NEW = 0.01
"""A term of the power stays where this share of it is not said by the terms before it."""


class Activity(NamedTuple):
    """What a frame does at all configurations, [C] each."""

    rate: Floats
    """Frames in a time, 1 at the fastest clocks."""
    cpu: Floats
    """Share of its time that the CPU is busy."""
    gpu: Floats


@dataclass(frozen=True, eq=False)
class ClockColumns:
    """The terms of the models as columns over all configurations of a board.

    Attributes
    ----------
    time_names, power_names : tuple of str
    time : float64 [C, P]
        Each 1 at the fastest configuration; infinite where a stage that needs the term cannot
        run (a GPU that is off).
    power : float64 [C, Q]
        What is always there; the busy terms depend on the stage.
    cpu, gpu : float64 [C]
        Clock of the fastest core and of the GPU, 1 at the fastest; 0 = none.
    """

    time_names: tuple[str, ...]
    time: Floats
    power_names: tuple[str, ...]
    power: Floats
    cpu: Floats
    gpu: Floats

    @staticmethod
    def of(space: ClockSpace, big_core_speed: float = 1.0) -> ClockColumns:
        """Lay out the columns of a board.

        Parameters
        ----------
        space : ClockSpace
            Its configurations.
        big_core_speed : float
            Of a core of the domain ``big`` relative to one of ``little`` at the same clock.
        """
        names = space.names
        frequencies = space.frequencies_hz() / 1e9
        cores = np.maximum(space.core_counts(), frequencies > 0).astype(np.float64)
        of_cpu = [i for i, name in enumerate(names) if name not in ("gpu", "emc")]
        speeds = [big_core_speed if names[i] == "big" else 1.0 for i in of_cpu]
        cpu = (frequencies[:, of_cpu] * speeds).max(axis=1, initial=0.0)
        parallel = (frequencies[:, of_cpu] * cores[:, of_cpu] * speeds).sum(axis=1)
        gpu = frequencies[:, names.index("gpu")] if "gpu" in names else np.zeros(len(space))

        time: dict[str, Floats] = {}
        power: dict[str, Floats] = {"board": np.ones(len(space))}
        if _varies(cpu):
            time["one CPU core"] = _slowness(cpu)
        if _varies(parallel) and _varies(parallel / np.where(cpu > 0.0, cpu, 1.0)):
            time["all CPU cores"] = _slowness(parallel)
        if _varies(gpu):
            time["GPU"] = _slowness(gpu)
        time["what clocks do not change"] = np.ones(len(space))
        if "emc" in names:
            domain = names.index("emc")
            digits, options = space.option_indices[:, domain], space.domains[domain].options
            for step in range(1, len(options)):
                name = f"memory below {options[step].frequency_hz / 1e6:.10g} MHz"
                time[name] = (digits < step).astype(np.float64)
                power[f"memory from {name[13:]}"] = (digits >= step).astype(np.float64)
        for i in (*of_cpu, *(i for i, name in enumerate(names) if name == "gpu")):
            share = frequencies[:, i] / frequencies[:, i].max(initial=1e-9)
            for name, values in (
                (f"{names[i]} cores", cores[:, i]),
                (f"{names[i]} cores x clock", cores[:, i] * share),
                (f"{names[i]} cores x clock^3", cores[:, i] * share**3),
            ):
                if _varies(values):
                    power[name] = values / values.max()
        return ClockColumns(
            tuple(time), np.stack(list(time.values()), axis=1),
            tuple(power), np.stack(list(power.values()), axis=1),
            cpu / cpu.max(initial=1e-9), gpu / gpu.max(initial=1e-9),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class TimeModel:
    """Times of M stages at all clocks of a board.

    Attributes
    ----------
    columns : ClockColumns
        Of the board.
    coefficients : float64 [P, M]
        In nanoseconds at the fastest clocks.
    error : HeldOutError
        Of all stages.
    """

    columns: ClockColumns
    coefficients: Floats
    error: HeldOutError

    @staticmethod
    def fit(space: ClockSpace, positions: Integers, times_ns: Floats) -> TimeModel:
        """Fit to measured points.

        Parameters
        ----------
        space : ClockSpace
            The board's configurations.
        positions : int64 [N]
            Those that were measured.
        times_ns : float64 [N, M]
            What M stages took there: medians, > 0.

        Raises
        ------
        UndeterminedError
            When the points leave a term open.
        ValueError
            When a time is not above 0.
        """
        values = _check(positions, times_ns, "times_ns")
        both = {"big", "little"} <= set(space.names)
        models = []
        for speed in _BIG_CORE_SPEEDS if both else (1.0,):
            columns = ClockColumns.of(space, speed)
            rows = columns.time[positions]
            _refuse_infinite(rows, columns.time_names)
            found, error = fit(rows, columns.time_names, values, "the model of the time")
            models.append(TimeModel(columns, found, error))
        return min(models, key=lambda model: (model.error.p95, model.error.p50))

    def times_ns(self, positions: Integers | None = None) -> Floats:
        """Predicted times, [C, M]; infinite where a stage cannot run.

        Parameters
        ----------
        positions : int64 [C], optional
            Configurations of the space; all of them by default.
        """
        rows = self._rows(positions)
        # 0 x infinite: a term that a stage does not have says nothing.
        with np.errstate(invalid="ignore"):
            parts = rows[:, :, np.newaxis] * self.coefficients
        total: Floats = np.where(self.coefficients > 0.0, parts, 0.0).sum(axis=1)
        return total

    def slowdown(self, positions: Integers | None = None) -> Floats:
        """Predicted times relative to the fastest configuration, [C, M]."""
        fastest = self.times_ns(np.array([len(self.columns.time) - 1]))
        return self.times_ns(positions) / fastest

    def activity(self, stages: Integers) -> Activity:
        """What a frame does at all configurations of the board.

        Parameters
        ----------
        stages : int64
            Those of the M that the frame consists of.
        """
        weights = self.coefficients[:, stages].sum(axis=1)
        with np.errstate(invalid="ignore"):
            parts = np.where(weights > 0.0, self.columns.time * weights, 0.0)
            total = parts.sum(axis=1)
            shares = np.nan_to_num(parts / total[:, np.newaxis])
        names = self.columns.time_names

        def share(*wanted: str) -> Floats:
            chosen: Floats = shares[:, [name in wanted for name in names]].sum(axis=1)
            return chosen

        return Activity(total[-1] / total, share("one CPU core", "all CPU cores"), share("GPU"))

    def _rows(self, positions: Integers | None) -> Floats:
        return self.columns.time if positions is None else self.columns.time[positions]


@dataclass(frozen=True, eq=False)
class PowerModel:
    """Mean power of the board at all its clocks, while one thing runs.

    Attributes
    ----------
    columns : float64 [C, Q]
    coefficients : float64 [Q]
        In watts.
    error : HeldOutError
    """

    columns: Floats
    coefficients: Floats
    error: HeldOutError

    @staticmethod
    def fit(
        columns: ClockColumns,
        positions: Integers,
        power_w: Floats,
        activity: Activity | None = None,
    ) -> PowerModel:
        """Fit to measured points.

        Parameters
        ----------
        columns : ClockColumns
            Of the board.
        positions : int64 [N]
            Those that were measured.
        power_w : float64 [N]
            Mean power there, > 0.
        activity : Activity, optional
            What `TimeModel.activity` says of what runs; None = nothing does.

        Raises
        ------
        UndeterminedError, ValueError
            As in `TimeModel.fit`.
        """
        values = _check(positions, power_w[:, np.newaxis], "power_w")
        named = dict(zip(columns.power_names, columns.power.T, strict=True))
        if activity is not None:
            named["work"] = activity.rate
            named["busy CPU x clock^3"] = activity.cpu * columns.cpu**3
            named["busy GPU x clock^3"] = activity.gpu * columns.gpu**3
        names = _find_independent(named)
        matrix = np.stack([named[name] for name in names], axis=1)
        found, error = fit(matrix[positions], names, values, "the model of the power")
        return PowerModel(matrix, found[:, 0], error)

    def power_w(self, positions: Integers | None = None) -> Floats:
        """Predicted power, [C]."""
        rows = self.columns if positions is None else self.columns[positions]
        predicted: Floats = rows @ self.coefficients
        return predicted


def choose_points(
    space: ClockSpace, count: int = MAX_POINTS, include: tuple[int, ...] = ()
) -> Integers:
    """Choose which configurations to measure, so that the models are determined and tested.

    First the fastest, the slowest and those asked for. Then points that say most about the terms
    of both models together (greedy D-optimal design: the largest leverage given those chosen).
    The rest lies evenly in the space (additive recurrence), where a model that is wrong shows it.

    Parameters
    ----------
    space : ClockSpace
        The board's configurations; where there are no more than `count`, all are taken.
    count : int
        At most so many, >= 2.
    include : tuple of int
        Positions that have to be among them, as far as everything that a stage may need is on
        there; one in which the GPU is off is never chosen.

    Returns
    -------
    int64 [N]
        In the order in which they are to be measured: the fastest first.
    """
    usable = _usable(space)
    allowed = set(usable.tolist())
    wanted = dict.fromkeys((space.fastest, int(usable[0]), *include))
    first = [position for position in wanted if position in allowed]
    if count < len(first):
        raise ValueError(f"count must be at least {len(first)}: {count}")
    if len(usable) <= count:
        rest = [int(position) for position in usable[::-1] if position not in first]
        return np.array(first + rest, dtype=np.int64)
    chosen = first + _design(space, usable, first, round(_DESIGNED * count) - len(first))
    seen = set(chosen)
    for position in _spread(space, usable):
        if len(chosen) >= count:
            break
        if position not in seen:
            seen.add(position)
            chosen.append(position)
    return np.array(chosen, dtype=np.int64)


def _design(space: ClockSpace, usable: Integers, first: list[int], count: int) -> list[int]:
    """So many more configurations, each the one that says most given those before it."""
    columns = ClockColumns.of(space)
    rows = np.concatenate([columns.time[usable], columns.power[usable]], axis=1)
    rows /= np.linalg.norm(rows, axis=0)
    place = {int(position): row for row, position in enumerate(usable)}
    inverse = np.eye(rows.shape[1]) * len(usable) * 1e3
    chosen: list[int] = []

    def take(row: int) -> None:
        nonlocal inverse
        step = inverse @ rows[row]
        inverse -= np.outer(step, step) / (1.0 + rows[row] @ step)

    for position in first:
        take(place[position])
    for _ in range(count):
        leverage = ((rows @ inverse) * rows).sum(axis=1)
        leverage[[place[p] for p in (*first, *chosen)]] = -1.0
        best = int(leverage.argmax())
        take(best)
        chosen.append(int(usable[best]))
    return chosen


def _spread(space: ClockSpace, usable: Integers) -> Iterator[int]:
    """Configurations that fill the space evenly (R-sequence: Roberts, 2018)."""
    sizes = [len(domain.options) for domain in space.domains]
    ratio = 2.0
    for _ in range(60):  # the root of x^(d+1) = x + 1
        ratio = (1.0 + ratio) ** (1.0 / (len(sizes) + 1))
    allowed = set(usable.tolist())
    for n in range(1, 100 * MAX_POINTS):
        digits = [int((0.5 + n * ratio ** -(i + 1)) % 1.0 * size) for i, size in enumerate(sizes)]
        position = space.number(digits)
        if position in allowed:
            yield position


def _usable(space: ClockSpace) -> Integers:
    """Configurations in which everything is on that a stage may need."""
    finite = np.isfinite(ClockColumns.of(space).time).all(axis=1)
    return np.flatnonzero(finite).astype(np.int64)


def _find_independent(columns: dict[str, Floats]) -> list[str]:
    """Names of columns that say something which those before them do not.

    On a board whose cores stay on, say, their number and the board itself are one: that is no
    lack of measurements.
    """
    names: list[str] = []
    basis: list[Floats] = []
    for name, column in columns.items():
        rest = column.copy()
        for direction in (*basis, *basis):  # twice: rounding
            rest -= (direction @ rest) * direction
        length = float(np.linalg.norm(rest))
        if length > _NEW * float(np.linalg.norm(column)):
            names.append(name)
            basis.append(rest / length)
    return names


def _varies(values: Floats) -> bool:
    return bool(np.ptp(values) > 1e-9 * np.abs(values).max(initial=0.0))


def _slowness(speed: Floats) -> Floats:
    """1 at the fastest configuration, which is the last; infinite where nothing runs."""
    slowness = np.full(len(speed), np.inf)
    np.divide(speed[-1], speed, out=slowness, where=speed > 0.0)
    return slowness


def _check(positions: Integers, values: Floats, name: str) -> Floats:
    if len(values) != len(positions) or len(set(positions.tolist())) != len(positions):
        raise ValueError(
            f"positions must be {len(values)} different ones, as many as {name}: "
            f"{len(positions)} with {len(set(positions.tolist()))} different"
        )
    if not (np.isfinite(values).all() and (values > 0.0).all()):
        raise ValueError(f"{name} must be finite and > 0")
    return values.astype(np.float64)


def _refuse_infinite(rows: Floats, names: tuple[str, ...]) -> None:
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=0))
    if len(bad):
        raise ValueError(f"positions hold one in which {names[bad[0]]} is off")
