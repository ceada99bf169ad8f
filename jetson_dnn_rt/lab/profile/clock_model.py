# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Models of time and power at clocks that were never measured, fitted to at most 50 points.

The time of a stage is modelled as a sum of the resources it waits for::

    time(c) = a / f_cpu + b / (cores x f_cpu) + g / f_gpu + m[f_emc]

a: one core runs (Python, launching kernels); b: all cores run; g: the GPU runs; m: memory, a
table with one value for each memory clock, never rising with the clock. A memory term in 1 / f
does not fit: from 2133 to 3199 MHz medians move by 11 to 48 % (arXiv 2606.16106). All coefficients
are >= 0, so that no prediction is faster for slower clocks.

The mean power of the board while a variant runs is modelled as::

    power(c) = p + e[f_emc] + sum over domains n (k + l f + d f^3)
             + w / time(c) + busy_cpu(c) d' f_cpu^3 + busy_gpu(c) d'' f_gpu^3

n: cores that are on, 1 for the GPU; f^3: V^2 f with a voltage that rises with the clock; f: the
same where the voltage is at its floor; w: the energy of a frame there, whatever the clocks; busy:
the shares of the time that the time model assigns to the CPU and to the GPU. Both models are
derived, so neither is trusted: their error is measured on held-out points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jetson_dnn_rt.coordinator.tables.tables import Floats, Integers, order_statistic
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.platforms.clocks import ClockSpace

MAX_POINTS = 50  # at most this many are measured: with settling and 1 s of power each, minutes

_BIG_CORE_SPEEDS = (0.5, 0.7, 1.0, 1.4, 2.0)
_DESIGNED = 0.6  # share of the points that are chosen to determine the models
_NEW = 0.01  # a power term stays if the terms before it leave this share of it unexplained
_SMALLEST = 1e-4  # singular value, relative to the largest, of a direction that was measured
_LARGEST_LEVERAGE = 0.999  # a point above it determines some coefficient alone


@dataclass(frozen=True)
class HeldOutError:
    """Error of a model at points that it was not fitted to.

    Relative error |predicted / measured - 1|. Each measured point is left out once and predicted
    by a model of all the others, so the error includes the noise of the measurement.
    """

    p50: float  # over all points and all quantities measured at them
    p95: float
    max: float
    points: int  # measured points


def require_nnls() -> Any:
    """`scipy.optimize.nnls`, which only predictions need."""
    try:
        from scipy.optimize import nnls
    except ImportError as error:
        raise ConfigurationError(
            "--clocks sample predicts clocks with scipy, which is missing; fix: apt install "
            "python3-scipy, pip install 'jetson_dnn_rt[wcet]', or list the clocks to measure"
        ) from error
    return nnls


def fit(
    columns: Floats, names: Sequence[str], values: Floats, what: str
) -> tuple[Floats, HeldOutError]:
    """Fit ``values ~ columns @ coefficients`` with least squares of relative errors.

    `columns` [N, P] have a row for each measured point, each column of the order of 1; `values`
    [N, M] are measured, > 0. `names` (of the columns) and `what` (the model) are for messages.
    Returns the coefficients [P, M], >= 0, and their error. `ConfigurationError` if all points, or
    all but one, leave a column or a mixture of columns undetermined.
    """
    nnls = require_nnls()
    _check_determined(columns, names, what)
    coefficients = np.empty((columns.shape[1], values.shape[1]))
    predicted = np.empty_like(values)
    ones = np.ones(len(values))
    for m, measured in enumerate(values.T):
        rows = columns / measured[:, np.newaxis]
        found = nnls(rows, ones)[0]
        # Rounding leaves traces of absent terms.
        coefficients[:, m] = np.where(found > 1e-9 * found.max(), found, 0.0)
        for left_out in range(len(rows)):
            found = nnls(np.delete(rows, left_out, axis=0), ones[1:])[0]
            predicted[left_out, m] = columns[left_out] @ found
    errors = np.abs(predicted / values - 1.0)
    p50, p95 = (order_statistic(errors.ravel(), share) for share in (0.5, 0.95))
    return coefficients, HeldOutError(float(p50), float(p95), float(errors.max()), len(values))


def _check_determined(columns: Floats, names: Sequence[str], what: str) -> None:
    points, count = columns.shape
    if points <= count:
        raise ConfigurationError(
            f"{points} measured points do not determine {what}: it has {count} unknowns, and one "
            f"point is held out at a time; measure at least {count + 1} (--clocks sample chooses "
            "them)"
        )
    scales = np.linalg.norm(columns, axis=0)
    scaled = columns / np.where(scales > 0.0, scales, 1.0)
    left, singular, right = np.linalg.svd(scaled, full_matrices=False)
    smallest = right[-1]
    if singular[-1] <= _SMALLEST * singular[0]:
        open_ones = [n for n, part in zip(names, smallest, strict=True) if abs(part) > 0.3]
        raise ConfigurationError(
            f"the measured points do not determine {what}: they do not distinguish "
            f"{' and '.join(open_ones)}; measure points that differ in that alone (--clocks "
            "sample chooses them)"
        )
    leverage = np.square(left).sum(axis=1)
    alone = int(leverage.argmax())
    if leverage[alone] >= _LARGEST_LEVERAGE:
        # The direction that the other points leave undetermined.
        rest = np.delete(scaled, alone, axis=0)
        missing = np.linalg.svd(rest, full_matrices=False)[2][-1]
        name = names[int(np.abs(missing).argmax())]
        raise ConfigurationError(
            f"one measured point alone determines {name} of {what}, and it cannot be held out: "
            "measure a second one (--clocks sample chooses them)"
        )


class Activity(NamedTuple):
    """Load of a frame at all configurations, [C] each."""

    rate: Floats  # frames per time, 1 at the fastest clocks
    cpu: Floats  # share of its time that the CPU is busy
    gpu: Floats


@dataclass(frozen=True, eq=False)
class ClockColumns:
    """The terms of the models as columns over all configurations of a board."""

    time_names: tuple[str, ...]
    # [C, P], each 1 at the fastest configuration; infinite where a stage that needs the term
    # cannot run (a GPU that is off).
    time: Floats
    power_names: tuple[str, ...]
    power: Floats  # [C, Q], the constant terms; the busy terms depend on the stage
    cpu: Floats  # [C], clock of the fastest core, 1 at the fastest configuration; 0 = none
    gpu: Floats  # [C]

    @staticmethod
    def of(space: ClockSpace, big_core_speed: float = 1.0) -> ClockColumns:
        """The columns of a board.

        `big_core_speed` is that of a core of the domain ``big`` relative to one of ``little`` at
        the same clock.
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
    """Times of M stages at all clocks of a board."""

    columns: ClockColumns
    coefficients: Floats  # [P, M], in nanoseconds at the fastest clocks
    error: HeldOutError  # of all stages

    @staticmethod
    def fit(space: ClockSpace, positions: Integers, times_ns: Floats) -> TimeModel:
        """Fit to the medians [N, M] of M stages, > 0, at N measured configurations.

        `ConfigurationError` if the points leave a term undetermined.
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

    def times_ns(self) -> Floats:
        """Predicted times, [C, M]; infinite where a stage cannot run."""
        # 0 x infinite: a term that a stage does not have.
        with np.errstate(invalid="ignore"):
            parts = self.columns.time[:, :, np.newaxis] * self.coefficients
        total: Floats = np.where(self.coefficients > 0.0, parts, 0.0).sum(axis=1)
        return total

    def slowdown(self) -> Floats:
        """Predicted times relative to the fastest configuration, [C, M]."""
        times = self.times_ns()
        return np.asarray(times / times[-1])

    def activity(self, stages: Integers) -> Activity:
        """Load of a frame that consists of these of the M stages."""
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


@dataclass(frozen=True, eq=False)
class PowerModel:
    """Mean power of the board at all its clocks, under one load or idle."""

    columns: Floats  # [C, Q]
    coefficients: Floats  # [Q], in watts
    error: HeldOutError

    @staticmethod
    def fit(
        columns: ClockColumns,
        positions: Integers,
        power_w: Floats,
        activity: Activity | None = None,
    ) -> PowerModel:
        """Fit to the mean power [N], > 0, at N measured configurations.

        `activity` is that of the load, None of an idle board. Errors as in `TimeModel.fit`.
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

    def power_w(self) -> Floats:
        """Predicted power, [C]."""
        predicted: Floats = self.columns @ self.coefficients
        return predicted


def choose_points(
    space: ClockSpace, count: int = MAX_POINTS, include: tuple[int, ...] = ()
) -> Integers:
    """Choose at most `count` configurations to measure, the fastest first.

    First the fastest, the slowest and those of `include` in which everything that a stage may need
    (a GPU) is on. Then the points that determine the terms of both models best (greedy D-optimal
    design: the largest leverage given those chosen). The rest is spread evenly over the space
    (additive recurrence), to expose a wrong model. A space of no more than `count` is measured
    completely.
    """
    finite = np.isfinite(ClockColumns.of(space).time).all(axis=1)
    usable = np.flatnonzero(finite).astype(np.int64)
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
    """Choose more configurations, each the most informative given those before it."""
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
    """Choose configurations that fill the space evenly (R-sequence: Roberts, 2018)."""
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


def _find_independent(columns: dict[str, Floats]) -> list[str]:
    """Find the columns that are not a combination of those before them; return their names.

    On a board whose cores stay on, for example, their number and the constant power cannot be told
    apart: more measurements would not help.
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
