# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Report of `profile`: as JSON, for the file of tables and for programs, and as text."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cli.progress import format_duration
from jetson_dnn_rt.cli.text import Cell, format_rows
from jetson_dnn_rt.coordinator.tables.tables import Integers, TaskTable, order_statistic
from jetson_dnn_rt.lab.profile.cold_start import ColdStart
from jetson_dnn_rt.lab.profile.profiling import ProfiledTask
from jetson_dnn_rt.lab.profile.session import LayerTimes, ProfileSession
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.traces.summary import has_quantile

LAYERS_SHOWN, OPERATORS_SHOWN = 12, 6  # the longest; the JSON has all

_COLUMNS = {"best": "best ms", "mean": "mean", "p50": "p50", "p99": "p99", "max": "max"}


def describe(session: ProfileSession, args: argparse.Namespace, frames: str) -> dict[str, Any]:
    """The report as JSON, without the tables themselves; times in ms, power in W."""
    result, clocks = session.result, session.result.clocks
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "platform": session.platform.title,
        "frames": frames,
        "runs": args.runs,
        "threads": args.threads,
        "per": args.per,
        "clocks": {
            "measured": len(session.points),
            "configurations": len(clocks.space),
            "kept": len(clocks),
            "fastest": clocks.describe(clocks.fastest),
            # Relative errors, each measured point held out once; null = no prediction.
            "time_error": result.time_error and asdict(result.time_error),
            "power_error": result.power_error and asdict(result.power_error),
        },
        "power_measured": result.power_measured,
        "interference": list(session.cohort),
        "co_runners": {c.name: dict(c.load) for c in session.conditions},
        "tasks": [
            {
                "task": task.name,
                "model": task.variants.model.source,
                "deadline_ms": table.deadline_ns / 1e6,
                "period_ms": table.period_ns / 1e6,
                "variants": [
                    _describe_variant(session, task, table, v) for v in range(len(table.variants))
                ],
                "left_out": dict(task.variants.left_out),
            }
            for task, table in zip(session.tasks, result.tables, strict=True)
        ],
    }


def _describe_variant(
    session: ProfileSession, task: ProfiledTask, table: TaskTable, variant: int
) -> dict[str, Any]:
    key = table.task, table.variants[variant]
    times_ms = table.times_ns[variant] / 1e6
    slowest = table.median_ns[variant] @ table.slowdown[variant]
    agreement = session.agreements.get(key)
    measured = session.result.power_measured
    # Times beside others are by run, not by stage: a back end may do several stages in one.
    runs = [stage.name for stage in task.variants.pipelines[key[1]].stages]
    beside = {
        condition.name: _compare(runs, session.alone[key], condition.times_ns[key])
        for condition in session.conditions
    }
    return {
        "variant": key[1],
        "accuracy": table.accuracy(variant),
        "agreement": agreement and asdict(agreement),
        "time_ms": describe_times(times_ms.sum(axis=0)),
        "stages": dict(zip(table.stages, map(describe_times, times_ms), strict=True)),
        "slowest_clocks": float(slowest[0] / slowest[-1]),
        "power_w": float(table.power_w[variant, :, -1].mean()) if measured else None,
        "beside_load": beside["cpu"]["ratio"] if "cpu" in beside else None,
        "beside": beside,
        "points": [
            {
                "clocks": session.platform.space.describe(point.position),
                "time_ms": describe_times(point.times_ns[key].sum(axis=1) / 1e6),
            }
            for point in session.points
        ],
        "layers": _describe_layers(session.layers[key]) if key in session.layers else None,
        "operators": session.operators.get(key),
        "cold": _describe_cold(session.cold[key]) if key in session.cold else None,
        "left_out": session.left_out.get(key, []),
    }


def _compare(runs: Sequence[str], alone_ns: Integers, beside_ns: Integers) -> dict[str, Any]:
    """Times [frames, runs] beside a load and alone; the ratio is that of quantiles of frames."""
    before, after = alone_ns / 1e6, beside_ns / 1e6
    pairs = zip(runs, before.T, after.T, strict=True)
    return {
        "ratio": {
            name: float(
                order_statistic(beside_ns.sum(axis=1), share)
                / max(1, order_statistic(alone_ns.sum(axis=1), share))
            )
            for name, share in (("p50", 0.5), ("p99", 0.99))
        },
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
    """Order statistics and the mean, in ms: each quantile is a time that occurred."""
    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {
        "best": float(times_ms.min()),
        "mean": float(times_ms.mean()),
        **{name: float(order_statistic(times_ms, share)) for name, share in shares.items()},
        "max": float(times_ms.max()),
        "count": len(times_ms),
    }


def format_report(report: Mapping[str, Any]) -> str:
    """The report of `describe` as text."""
    parts = [_format_variants(report), *_format_clocks(report)]
    if report["per"] != "model":
        parts.append(_format_stages(report))
    parts += [*_format_layers(report), *_format_operators(report), *_format_cold(report)]
    for task, variant in _list_variants(report):
        parts += [f"{task['task']} {variant['variant']}: {why}" for why in variant["left_out"]]
    if not report["power_measured"]:
        parts.append(
            "power cannot be read here: 1 W stands for a busy machine, 0 W for an idle one"
        )
    written = f", written to {report['output']}" if "output" in report else ""
    parts.append(f"took {format_duration(report['seconds'])}{written}")
    return "\n".join(parts)


def _list_variants(report: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    for task in report["tasks"]:
        for variant in task["variants"]:
            yield task, variant


def _format_variants(report: Mapping[str, Any]) -> str:
    conditions = list(report["co_runners"])
    rows: list[list[Cell]] = [
        [
            task["task"],
            variant["variant"],
            *(_show(variant["time_ms"], key) for key in ("p50", "p99", "max")),
            f"{variant['accuracy']:.3f}",
            f"{variant['slowest_clocks']:.2f}" if report["clocks"]["kept"] > 1 else None,
            variant["power_w"],
            *(_ratio(variant["beside"][name]["ratio"]) for name in conditions),
        ]
        for task, variant in _list_variants(report)
    ]
    header = ["task", "variant", "p50 ms", "p99 ms", "max ms", "accuracy", "at slowest x", "W"]
    lines = [format_rows([*header, *(f"beside {name}, p50/p99 x" for name in conditions)], rows)]
    for task in report["tasks"]:
        lines += [f"{task['task']}: left out: {why}" for why in task["left_out"].values()]
    return "\n".join(lines)


def _format_clocks(report: Mapping[str, Any]) -> Iterator[str]:
    clocks = report["clocks"]
    yield (
        f"clocks: {clocks['measured']} of {clocks['configurations']} configurations measured, "
        f"{clocks['kept']} in the tables; times at {clocks['fastest']}"
    )
    for what in ("time", "power"):
        error = clocks[f"{what}_error"]
        if error is not None:
            shares = "/".join(f"{100.0 * error[key]:.1f}" for key in ("p50", "p95", "max"))
            yield f"predicted {what}: off by {shares} % (p50/p95/max of points held out)"
    if len(report["interference"]) > 1:
        factors = " ".join(f"{factor:.2f}" for factor in report["interference"])
        yield f"side by side, 1 to {len(report['interference'])}: {factors}"
    for name, load in report["co_runners"].items():
        if load.get("rate") is not None:
            rate = f"{load['rate']:.3g} {load['unit']}"
            yield f"beside {name}: {load['count']} co-runners at {rate}"


def _format_stages(report: Mapping[str, Any]) -> str:
    rows: list[list[Cell]] = []
    for task, variant in _list_variants(report):
        for name, times in variant["stages"].items():
            rows.append([task["task"], variant["variant"], name, *_times(times)])
    return "\n" + format_rows(["task", "variant", "stage", *_COLUMNS.values()], rows) + "\n"


def _format_layers(report: Mapping[str, Any]) -> Iterator[str]:
    for task, variant in _list_variants(report):
        if variant["layers"] is None:
            continue
        layers = variant["layers"]["layers"]
        longest = sorted(layers, key=lambda layer: -float(layer["share"]))[:LAYERS_SHOWN]
        rows: list[list[Cell]] = [
            [layer["name"], layer["operators"], _percent(layer, 1), *_times(layer["time_ms"])]
            for layer in longest
        ]
        yield (
            f"{task['task']} {variant['variant']}: {len(longest)} of {len(layers)} layers, those "
            f"that take longest; all layers {_ms(variant['layers']['network_ms']['p50'])} ms"
        )
        yield format_rows(["layer", "operators", "share", *_COLUMNS.values()], rows) + "\n"


def _format_operators(report: Mapping[str, Any]) -> Iterator[str]:
    for task, variant in _list_variants(report):
        if variant["operators"] is None:
            continue
        for device in ("cpu", "cuda"):
            times = [o for o in variant["operators"]["operators"] if o["device"] == device]
            if times:
                shown = ", ".join(f"{o['name']} {_percent(o, 0)}" for o in times[:OPERATORS_SHOWN])
                yield f"{task['task']} {variant['variant']} operators on {device}: {shown}"


def _format_cold(report: Mapping[str, Any]) -> Iterator[str]:
    for task, variant in _list_variants(report):
        if variant["cold"] is not None:
            phases = variant["cold"]["phases_ms"]
            words = ", ".join(
                f"{name.replace('_', ' ')} {_ms(times['p50'])} (max {_ms(times['max'])})"
                for name, times in phases.items()
            )
            starts = f"{variant['cold']['starts']} cold starts, ms"
            yield f"{task['task']} {variant['variant']}: {starts}: {words}"


def _times(times: Mapping[str, float]) -> list[str]:
    return [_show(times, key) for key in _COLUMNS]


def _show(times: Mapping[str, float], key: str) -> str:
    """Show a time of `describe_times`; a dash for a p99 that no time lies above."""
    if key == "p99" and not has_quantile(int(times["count"]), 0.99):
        return "-"
    return _ms(times[key])


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 1.0 else f"{value:.2f}"


def _ratio(ratio: Mapping[str, float]) -> str:
    return f"{ratio['p50']:.2f}/{ratio['p99']:.2f}"


def _percent(part: Mapping[str, Any], digits: int) -> str:
    return f"{100.0 * part['share']:.{digits}f} %"
