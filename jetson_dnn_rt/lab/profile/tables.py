# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tables from measured clock points: missing points predicted, then reduced to the best."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jetson_dnn_rt.coordinator.tables.hull import reduce_clocks
from jetson_dnn_rt.coordinator.tables.library_tables import (
    UNKNOWN_BUSY_W,
    UNKNOWN_IDLE_W,
    VariantProfile,
    make_task_table,
)
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Floats, Integers, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.profile.clock_model import HeldOutError, PowerModel, TimeModel
from jetson_dnn_rt.lab.profile.profiling import ClockPoint, Key, Profiler
from jetson_dnn_rt.platforms.platform import Platform

_WATTS = re.compile(r"(\d+)W")


@dataclass(frozen=True, eq=False)
class ProfileResult:
    """Tables of a profile, and the errors of the models behind them."""

    clocks: ClockTable
    tables: tuple[TaskTable, ...]
    power_measured: bool
    time_error: HeldOutError | None = None  # None where every configuration was measured
    power_error: HeldOutError | None = None  # of the worst of the power models


def make_measured_tables(profiler: Profiler, points: Sequence[ClockPoint]) -> ProfileResult:
    """Make tables of exactly the measured configurations, slow to fast.

    Presets Max-N and Max-Q that were not measured are the fastest and the slowest.
    """
    totals = [sum(float(m.sum()) for m in _medians(point).values()) for point in points]
    ordered = [points[i] for i in np.argsort(totals)[::-1]]
    positions = [point.position for point in ordered]
    measured = _has_power(points)
    idle_w = [point.idle_w if measured else UNKNOWN_IDLE_W for point in ordered]
    platform = profiler.platform
    max_n, max_q = find_presets(platform)
    clocks = ClockTable(
        platform.space,
        np.array(positions, dtype=np.int64),
        np.array(idle_w, dtype=np.float64),
        positions.index(max_n) if max_n in positions else len(positions) - 1,
        positions.index(max_q) if max_q in positions else 0,
    )
    fastest = _medians(ordered[-1])
    slowdown = {
        key: np.stack([_medians(point)[key] / fastest[key] for point in ordered], axis=1)
        for key in fastest
    }
    power_w = {
        key: np.array([point.power_w[key] if measured else UNKNOWN_BUSY_W for point in ordered])
        for key in fastest
    }
    tables = _make_tables(profiler, ordered[-1], slowdown, power_w)
    return ProfileResult(clocks, tables, measured)


def make_predicted_tables(profiler: Profiler, points: Sequence[ClockPoint]) -> ProfileResult:
    """Make tables of all the board's configurations, predicted from some, reduced to the best.

    Predictions replace measured points too: single points are noisier than the model of all of
    them, and the search for the best would pick the lucky ones. `ConfigurationError` if the points
    leave part of the models undetermined, or the fastest configuration is not among them.
    """
    platform, space = profiler.platform, profiler.platform.space
    at_fastest = [point for point in points if point.position == space.fastest]
    if not at_fastest:
        raise ConfigurationError(
            f"the fastest clocks ({space.describe(space.fastest)}) were not reached; fix: choose "
            "the power mode without limits (nvpmodel -m 0)"
        )
    positions = np.array([point.position for point in points], dtype=np.int64)
    keys = list(points[0].times_ns)
    medians = [np.concatenate([_medians(point)[key] for key in keys]) for point in points]
    time_model = TimeModel.fit(space, positions, np.stack(medians))
    slowdown, power_w = {}, {}
    errors: list[HeldOutError] = []
    measured = _has_power(points)
    idle_w = np.full(len(space), UNKNOWN_IDLE_W)
    if measured:
        idle_w, error = _fit_power(
            time_model, positions, np.array([point.idle_w for point in points], np.float64), None
        )
        errors.append(error)
    predicted = time_model.slowdown()
    first = 0
    for key in keys:
        runs = np.arange(first, first + points[0].times_ns[key].shape[1])
        first += len(runs)
        slowdown[key] = predicted[:, runs].T
        power_w[key] = np.full(len(space), UNKNOWN_BUSY_W)
        if measured:
            watts = np.array([point.power_w[key] for point in points])
            busy_w, error = _fit_power(time_model, positions, watts, runs)
            # Two models with independent errors, but a busy board never draws less power.
            power_w[key] = np.maximum(busy_w, idle_w)
            errors.append(error)
    clocks = ClockTable(space, np.arange(len(space)), idle_w, *find_presets(platform))
    tables = _make_tables(profiler, at_fastest[0], slowdown, power_w)
    clocks, reduced = reduce_clocks(clocks, tables)
    worst = max(errors, key=lambda error: error.p95, default=None)
    return ProfileResult(clocks, tuple(reduced), measured, time_model.error, worst)


def find_presets(platform: Platform) -> tuple[int, int]:
    """Find the positions of Max-N and Max-Q.

    If no power mode has these names, those of the most and the fewest watts (``15W``,
    ``MODE_10W``); on a board without modes the fastest and the slowest configuration.
    """
    space = platform.space
    rated = [
        (int(found[1]), mode) for mode in platform.modes if (found := _WATTS.search(mode.name))
    ]
    rated.sort(key=lambda pair: pair[0])

    def find(start: str, substitute: int, otherwise: int) -> int:
        named = [mode for mode in platform.modes if mode.name.startswith(start)]
        if not named and rated:
            named = [rated[substitute][1]]
        return named[0].index(space) if named else otherwise

    return find("MAXN", -1, space.fastest), find("MAXQ", 0, space.slowest)


def _fit_power(
    time_model: TimeModel, positions: Integers, watts: Floats, runs: Integers | None
) -> tuple[Floats, HeldOutError]:
    activity = None if runs is None else time_model.activity(runs)
    model = PowerModel.fit(time_model.columns, positions, watts, activity)
    return model.power_w(), model.error


def _make_tables(
    profiler: Profiler,
    fastest: ClockPoint,
    slowdown: Mapping[Key, Floats],
    power_w: Mapping[Key, Floats],
) -> tuple[TaskTable, ...]:
    made, agreements = [], profiler.compare()
    for task in profiler.tasks:
        profiles = {}
        for name, pipeline in task.variants.pipelines.items():
            key = task.name, name
            known = VariantProfile.of(
                pipeline.spec, pipeline.stages, fastest.times_ns[key], agreements.get(key)
            )
            profiles[name] = replace(known, slowdown=slowdown[key], power_w=power_w[key])
        made.append(
            make_task_table(
                task.name,
                task.variants.stage_names,
                profiles,
                deadline_ns=task.deadline_ns,
                period_ns=task.period_ns,
            )
        )
    return tuple(made)


def _medians(point: ClockPoint) -> dict[Key, Floats]:
    """Medians of the runs, [R], at least 1 ns."""
    return {key: np.maximum(np.median(rows, axis=0), 1.0) for key, rows in point.times_ns.items()}


def _has_power(points: Sequence[ClockPoint]) -> bool:
    """Whether power is known at every point: else it is not comparable."""
    return all(point.power_w and point.idle_w is not None for point in points)
