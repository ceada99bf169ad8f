"""What `profile` found, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jetson_dnn_rt.cli.progress import format_duration
from jetson_dnn_rt.cli.text import Cell, format_rows

LAYERS_SHOWN, OPERATORS_SHOWN = 12, 6
"""Those that take longest; all of them are in the JSON."""


def format_report(report: Mapping[str, Any]) -> str:
    """What `profile_report.describe` gave, as text."""
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
            *(_ms(variant["time_ms"][key]) for key in ("p50", "p99", "max")),
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
            did = f"{load['rate']:.3g} {load['unit']}"
            yield f"beside {name}: {load['count']} co-runners did {did}"


def _format_stages(report: Mapping[str, Any]) -> str:
    rows: list[list[Cell]] = []
    for task, variant in _list_variants(report):
        for name, times in variant["stages"].items():
            rows.append([task["task"], variant["variant"], name, *_times(times)])
    return "\n" + format_rows(["task", "variant", "stage", *_COLUMNS], rows) + "\n"


def _format_layers(report: Mapping[str, Any]) -> Iterator[str]:
    for task, variant in _list_variants(report):
        if variant["layers"] is None:
            continue
        layers = variant["layers"]["layers"]
        longest = sorted(layers, key=lambda layer: -float(layer["share"]))[:LAYERS_SHOWN]
        rows: list[list[Cell]] = [
            [
                layer["name"],
                layer["operators"],
                f"{100.0 * layer['share']:.1f} %",
                *_times(layer["time_ms"]),
            ]
            for layer in longest
        ]
        yield (
            f"{task['task']} {variant['variant']}: {len(longest)} of {len(layers)} layers, those "
            f"that take longest; all layers {_ms(variant['layers']['network_ms']['p50'])} ms"
        )
        yield format_rows(["layer", "operators", "share", *_COLUMNS], rows) + "\n"


def _format_operators(report: Mapping[str, Any]) -> Iterator[str]:
    for task, variant in _list_variants(report):
        if variant["operators"] is None:
            continue
        for device in ("cpu", "cuda"):
            times = [o for o in variant["operators"]["operators"] if o["device"] == device]
            if times:
                shown = ", ".join(
                    f"{o['name']} {100.0 * o['share']:.0f} %" for o in times[:OPERATORS_SHOWN]
                )
                yield f"{task['task']} {variant['variant']} operators on {device}: {shown}"


def _format_cold(report: Mapping[str, Any]) -> Iterator[str]:
    for task, variant in _list_variants(report):
        if variant["cold"] is not None:
            phases = variant["cold"]["phases_ms"]
            words = ", ".join(
                f"{name.replace('_', ' ')} {_ms(times['p50'])} (max {_ms(times['max'])})"
                for name, times in phases.items()
            )
            yield (
                f"{task['task']} {variant['variant']}: {variant['cold']['starts']} cold starts, "
                f"ms: {words}"
            )


_COLUMNS = ("best ms", "mean", "p50", "p99", "max")


def _times(times: Mapping[str, float]) -> list[str]:
    return [_ms(times[key]) for key in ("best", "mean", "p50", "p99", "max")]


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 1.0 else f"{value:.2f}"


def _ratio(ratio: Mapping[str, float]) -> str:
    return f"{ratio['p50']:.2f}/{ratio['p99']:.2f}"
