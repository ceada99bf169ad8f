"""What ``evaluate`` says at its end."""

from __future__ import annotations

from typing import Any

from jetson_dnn_rt.cli.text import Cell, format_rows
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.histogram import Histogram

_QUANTILES = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9}


def describe_times(times: Histogram) -> dict[str, float | None]:
    """Best, mean, percentiles and high-water mark in milliseconds; None where nothing ran."""
    if not times.count:
        return dict.fromkeys(("best", "mean", *_QUANTILES, "hwm"))
    return {
        "best": times.best_ns / 1e6,
        "mean": times.mean_ns / 1e6,
        **{name: times.percentile_ns(percent) / 1e6 for name, percent in _QUANTILES.items()},
        "hwm": times.hwm_ns / 1e6,
    }


def format_sequential(summary: dict[str, Any]) -> str:
    """Execution times of every variant, what became of the messages, and the repetitions."""
    header = ["task", "variant", "runs", "failed", "best ms", "mean ms", *_MS, "hwm ms"]
    rows: list[list[Cell]] = []
    for task, described in summary["tasks"].items():
        for variant, found in described["variants"].items():
            times = found["execution_ms"]
            rows.append([task, variant, found["runs"], found["failed"], *times.values()])
    lines = [format_rows(header, rows), *describe_bags(summary)]
    if summary["identical"] is not None:
        lines.append(f"{summary['repeats']} repetitions: {_compare(summary)}")
    if summary["lost"]:
        lines.append(f"{summary['lost']} messages are not accounted for")
    return "\n".join(lines)


_MS = [f"{name} ms" for name in _QUANTILES]


def _compare(summary: dict[str, Any]) -> str:
    if summary["identical"]:
        return "identical, to the bit"
    different = [
        f"{task} {variant} on {found['differing']['frames']} frames "
        f"(first {found['differing']['first'][:3]})"
        for task, described in summary["tasks"].items()
        for variant, found in described["variants"].items()
        if found["differing"]["frames"]
    ]
    return f"results differ: {'; '.join(different)}"


def describe_bags(summary: dict[str, Any]) -> list[str]:
    """For each bag how many messages were frames, and why the others were not."""
    lines = []
    for bag in summary["bags"]:
        line = f"{bag['bag']} {bag['topic']}: {bag['frames']} of {bag['messages']} messages"
        others = []
        if bag["unreadable"]:
            first = bag["bad"][0]
            others.append(
                f"{bag['unreadable']} unreadable (message {first['message']}: {first['reason']})"
            )
        if bag["missing"]:
            others.append(f"{bag['missing']} more are out of reach")
        lines.append(", ".join([line, *others]))
        lines += [f"  {note}" for note in bag["notes"]]
    return lines


def format_replay(summary: dict[str, Any]) -> str:
    """Outcomes and responses of every task."""
    outcomes = [outcome.value for outcome in Outcome]
    header = [
        *("task", "frames", *outcomes, "missed %"),
        *("p50 ms", "p99 ms", "max ms", "deadline ms"),
    ]
    rows: list[list[Cell]] = []
    for task, found in summary["tasks"].items():
        miss = found["miss_ratio"]
        rows.append(
            [
                task,
                found["released"],
                *(found["outcomes"][outcome] for outcome in outcomes),
                None if miss is None else 100.0 * miss,
                *found["response_ms"].values(),
                found["deadline_ms"],
            ]
        )
    return format_rows(header, rows)
