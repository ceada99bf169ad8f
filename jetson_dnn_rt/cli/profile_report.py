"""What `profile` found: for the file of tables, for programs and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cli.progress import format_duration
from jetson_dnn_rt.cli.text import Cell, format_rows

if TYPE_CHECKING:
    from jetson_dnn_rt.coordinator.interference import Beside
    from jetson_dnn_rt.coordinator.profile_tables import ProfileResult
    from jetson_dnn_rt.coordinator.profiling import Key, ProfiledTask
    from jetson_dnn_rt.coordinator.table_files import TableFile
    from jetson_dnn_rt.coordinator.tables import TaskTable
    from jetson_dnn_rt.platforms.platform import Platform
    from jetson_dnn_rt.variants.agreement import Agreement


@dataclass(frozen=True, eq=False)
class Profiled:
    """Everything that a profile measured.

    Attributes
    ----------
    tasks : tuple of ProfiledTask
    platform : Platform
    result : ProfileResult
        The tables.
    agreements : mapping of (str, str) to Agreement
        By task and variant.
    points : int
        Clock configurations that were measured.
    interference : tuple of float
        Slow-down with 1, 2, ... tasks side by side.
    co_runners : mapping of (str, str) to Beside
        Beside a load on every core; empty where that was not asked for.
    """

    tasks: tuple[ProfiledTask, ...]
    platform: Platform
    result: ProfileResult
    agreements: Mapping[Key, Agreement]
    points: int
    interference: tuple[float, ...]
    co_runners: Mapping[Key, Beside]

    def to_file(self, notes: Mapping[str, Any]) -> TableFile:
        """The file of tables, with what else is known."""
        from jetson_dnn_rt.coordinator.table_files import TableFile

        result = self.result
        return TableFile(
            result.clocks, result.tables, self.interference, result.power_measured, notes
        )


def describe(profiled: Profiled, *, frames: str, runs: int, threads: int) -> dict[str, Any]:
    """All of it but the tables themselves, as JSON has it; times in ms, power in W."""
    from jetson_dnn_rt.variants.machine import describe_machine

    result, clocks = profiled.result, profiled.result.clocks
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "platform": profiled.platform.title,
        "frames": frames,
        "runs": runs,
        "threads": threads,
        "clocks": {
            "measured": profiled.points,
            "configurations": len(clocks.space),
            "kept": len(clocks),
            "fastest": clocks.describe(clocks.fastest),
            # Relative errors, each measured point held out once; null = nothing was predicted.
            "time_error": None if result.time_error is None else asdict(result.time_error),
            "power_error": None if result.power_error is None else asdict(result.power_error),
        },
        "power_measured": result.power_measured,
        "interference": list(profiled.interference),
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
    times_ms = table.times_ns[variant] / 1e6
    slowest = table.median_ns[variant] @ table.slowdown[variant]
    agreement, beside = profiled.agreements.get(key), profiled.co_runners.get(key)
    measured = profiled.result.power_measured
    return {
        "variant": key[1],
        "accuracy": table.accuracy(variant),
        "agreement": None if agreement is None else asdict(agreement),
        "time_ms": _quantiles(times_ms.sum(axis=0)),
        "stages": dict(zip(table.stages, map(_quantiles, times_ms), strict=True)),
        "slowest_clocks": float(slowest[0] / slowest[-1]),
        "power_w": float(table.power_w[variant, :, -1].mean()) if measured else None,
        "beside_load": None if beside is None else asdict(beside),
    }


def _quantiles(times_ms: Any) -> dict[str, float | int]:
    """Order statistics: each is a time that occurred."""
    from jetson_dnn_rt.coordinator.tables import order_statistic

    return {
        "p50": float(order_statistic(times_ms, 0.5)),
        "p99": float(order_statistic(times_ms, 0.99)),
        "max": float(times_ms.max()),
        "count": len(times_ms),
    }


def format_report(report: Mapping[str, Any]) -> str:
    """What `describe` gave, for people."""
    clocks = report["clocks"]
    rows: list[list[Cell]] = []
    lines = []
    for task in report["tasks"]:
        for variant in task["variants"]:
            beside = variant["beside_load"]
            rows.append(
                [
                    task["task"],
                    variant["variant"],
                    f"{variant['time_ms']['p50']:.2f}",
                    f"{variant['time_ms']['p99']:.2f}",
                    f"{variant['accuracy']:.3f}",
                    f"{variant['slowest_clocks']:.2f}" if clocks["kept"] > 1 else None,
                    variant["power_w"],
                    None if beside is None else f"{beside['p50']:.2f}",
                ]
            )
        lines += [f"{task['task']}: left out: {why}" for why in task["left_out"].values()]
    header = ["task", "variant", "p50 ms", "p99 ms", "accuracy", "at slowest x", "W", "beside x"]
    lines.insert(0, format_rows(header, rows))
    lines.append(
        f"clocks: {clocks['measured']} of {clocks['configurations']} configurations measured, "
        f"{clocks['kept']} in the tables; times at {clocks['fastest']}"
    )
    for what in ("time", "power"):
        error = clocks[f"{what}_error"]
        if error is not None:
            shares = "/".join(f"{100.0 * error[key]:.1f}" for key in ("p50", "p95", "max"))
            lines.append(f"predicted {what}: off by {shares} % (p50/p95/max of points held out)")
    if len(report["interference"]) > 1:
        factors = " ".join(f"{factor:.2f}" for factor in report["interference"])
        lines.append(f"side by side, 1 to {len(report['interference'])}: {factors}")
    if not report["power_measured"]:
        lines.append(
            "power cannot be read here: 1 W stands for a busy machine, 0 W for an idle one"
        )
    written = f", written to {report['output']}" if "output" in report else ""
    lines.append(f"took {format_duration(report['seconds'])}{written}")
    return "\n".join(lines)
