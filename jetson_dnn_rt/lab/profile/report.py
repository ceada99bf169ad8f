"""What `profile` found, for the file of tables and for programs; `profile_text` is for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.coordinator.tables.tables import Integers, order_statistic

if TYPE_CHECKING:
    from jetson_dnn_rt.coordinator.tables.files import TableFile
    from jetson_dnn_rt.coordinator.tables.tables import TaskTable
    from jetson_dnn_rt.lab.profile.cold_start import ColdStart
    from jetson_dnn_rt.lab.profile.profiling import Key, ProfiledTask
    from jetson_dnn_rt.lab.profile.session import Condition, Found, LayerTimes
    from jetson_dnn_rt.lab.profile.tables import ProfileResult
    from jetson_dnn_rt.platforms.platform import Platform


@dataclass(frozen=True, eq=False)
class Profiled:
    """Everything that a profile measured.

    Attributes
    ----------
    tasks : tuple of ProfiledTask
    platform : Platform
    result : ProfileResult
        The tables.
    alone : mapping of (str, str) to int64 [S, R]
        Times of runs by task and variant, with nothing beside, at the fastest clocks.
    found : Found
        Everything beyond the tables.
    """

    tasks: tuple[ProfiledTask, ...]
    platform: Platform
    result: ProfileResult
    alone: Mapping[Key, Integers]
    found: Found

    def to_file(self, notes: Mapping[str, Any]) -> TableFile:
        """The file of tables, with what else is known."""
        from jetson_dnn_rt.coordinator.tables.files import TableFile

        result = self.result
        return TableFile(
            result.clocks, result.tables, self.found.cohort, result.power_measured, notes
        )


def describe(
    profiled: Profiled, *, frames: str, runs: int, threads: int, per: str = "stage"
) -> dict[str, Any]:
    """All of it but the tables themselves, as JSON has it; times in ms, power in W."""
    from jetson_dnn_rt.platforms.machine import describe_machine

    result, clocks = profiled.result, profiled.result.clocks
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "platform": profiled.platform.title,
        "frames": frames,
        "runs": runs,
        "threads": threads,
        "per": per,
        "clocks": {
            "measured": len(profiled.found.points),
            "configurations": len(clocks.space),
            "kept": len(clocks),
            "fastest": clocks.describe(clocks.fastest),
            # Relative errors, each measured point held out once; null = nothing was predicted.
            "time_error": None if result.time_error is None else asdict(result.time_error),
            "power_error": None if result.power_error is None else asdict(result.power_error),
        },
        "power_measured": result.power_measured,
        "interference": list(profiled.found.cohort),
        "co_runners": {c.name: dict(c.load) for c in profiled.found.conditions},
        "tasks": [
            _describe_task(task, table, profiled)
            for task, table in zip(profiled.tasks, result.tables, strict=True)
        ],
    }


def _describe_task(task: ProfiledTask, table: TaskTable, profiled: Profiled) -> dict[str, Any]:
    return {
        "task": task.name,
        "model": task.variants.model.source,
        "deadline_ms": table.deadline_ns / 1e6,
        "period_ms": table.period_ns / 1e6,
        "variants": [_describe_variant(table, v, profiled) for v in range(len(table.variants))],
        "left_out": dict(task.variants.left_out),
    }


def _describe_variant(table: TaskTable, variant: int, profiled: Profiled) -> dict[str, Any]:
    key = table.task, table.variants[variant]
    found = profiled.found
    times_ms = table.times_ns[variant] / 1e6
    slowest = table.median_ns[variant] @ table.slowdown[variant]
    agreement = found.agreements.get(key)
    measured = profiled.result.power_measured
    beside = {condition.name: _describe_condition(condition, key, profiled)
              for condition in found.conditions}  # fmt: skip
    return {
        "variant": key[1],
        "accuracy": table.accuracy(variant),
        "agreement": None if agreement is None else asdict(agreement),
        "time_ms": describe_times(times_ms.sum(axis=0)),
        "stages": dict(zip(table.stages, map(describe_times, times_ms), strict=True)),
        "slowest_clocks": float(slowest[0] / slowest[-1]),
        "power_w": float(table.power_w[variant, :, -1].mean()) if measured else None,
        "beside_load": beside["cpu"]["ratio"] if "cpu" in beside else None,
        "beside": beside,
        "points": [
            {
                "clocks": profiled.platform.space.describe(point.position),
                "time_ms": describe_times(point.times_ns[key].sum(axis=1) / 1e6),
            }
            for point in found.points
        ],
        "layers": None if key not in found.layers else _describe_layers(found.layers[key]),
        "operators": found.operators.get(key),
        "cold": None if key not in found.cold else _describe_cold(found.cold[key]),
        "left_out": found.left_out.get(key, []),
    }


def _describe_condition(condition: Condition, key: Key, profiled: Profiled) -> dict[str, Any]:
    """Times of the runs of a variant: a back end may do several stages in one."""
    task = next(task for task in profiled.tasks if task.name == key[0])
    names = [stage.name for stage in task.variants.pipelines[key[1]].stages]
    before, after = profiled.alone[key] / 1e6, condition.times_ns[key] / 1e6
    pairs = zip(names, before.T, after.T, strict=True)
    return {
        "ratio": asdict(condition.ratios[key]),
        "alone_ms": describe_times(before.sum(axis=1)),
        "time_ms": describe_times(after.sum(axis=1)),
        "stages": {
            name: {"alone_ms": describe_times(one), "time_ms": describe_times(other)}
            for name, one, other in pairs
        },
    }


def _describe_layers(layers: LayerTimes) -> dict[str, Any]:
    rows = np.array([run.times_ns for run in layers.runs if not run.cold], np.int64) / 1e6
    inner = rows[:, 1:-1]  # between preprocessing and decoding
    total_ms = float(inner.sum(axis=1).mean())
    return {
        "network_ms": describe_times(inner.sum(axis=1)),
        "layers": [
            {
                "name": name,
                "operators": operators,
                "time_ms": describe_times(column),
                "share": float(column.mean() / total_ms),
            }
            for name, operators, column in zip(
                layers.names, layers.operators, inner.T, strict=True
            )
        ],
    }


def _describe_cold(starts: Sequence[ColdStart]) -> dict[str, Any]:
    phases = [start.phases_ms for start in starts]
    return {
        "starts": len(starts),
        "phases_ms": {
            name: describe_times(np.array([row[name] for row in phases])) for name in phases[0]
        },
    }


def describe_times(times_ms: npt.NDArray[Any]) -> dict[str, float | int]:
    """Order statistics and the mean: each quantile is a time that occurred.

    Parameters
    ----------
    times_ms : ndarray, [N]
        In milliseconds, at least one.

    Returns
    -------
    dict
        ``count``; ``best``, ``mean``, ``p50``, ``p99``, ``p999`` and ``max`` (the high-water
        mark) in milliseconds.
    """
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {
        "best": float(times_ms.min()),
        "mean": float(times_ms.mean()),
        **{name: float(order_statistic(times_ms, share)) for name, share in shares.items()},
        "max": float(times_ms.max()),
        "count": len(times_ms),
    }
