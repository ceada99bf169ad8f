# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Summaries of evaluations, and their texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.cli.text import Cell, format_rows
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.histogram import Histogram
from jetson_dnn_rt.traces.summary import RunSummary, hide_tails

if TYPE_CHECKING:
    from jetson_dnn_rt.cameras.bags.image_bag import BadMessage
    from jetson_dnn_rt.lab.evaluate.streams import Stream

_QUANTILES = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9}
_NAMED = 20
"""Bad messages that are listed; all are counted."""


def describe_stream(stream: Stream, frames: int, bad: Sequence[BadMessage]) -> dict[str, Any]:
    """Describe the messages of a bag for the summary."""
    return {
        **stream.to_dict(),
        "frames": frames,
        "unreadable": len(bad),
        "bad": [{"message": message.index, "reason": message.reason} for message in bad[:_NAMED]],
    }


def describe_times(times: Histogram) -> dict[str, float | None]:
    """Give best, mean, percentiles and high-water mark in milliseconds; None where nothing ran."""
    if not times.count:
        return dict.fromkeys(("best", "mean", *_QUANTILES, "hwm"))
    return {
        "best": times.best_ns / 1e6,
        "mean": times.mean_ns / 1e6,
        **{name: times.percentile_ns(percent) / 1e6 for name, percent in _QUANTILES.items()},
        "hwm": times.hwm_ns / 1e6,
    }


def format_sequential(summary: dict[str, Any]) -> str:
    """Format execution times of every variant, the messages of the bags, and the repetitions."""
    header = ["task", "variant", "runs", "failed", "best ms", "mean ms"]
    header += [*(f"{name} ms" for name in _QUANTILES), "hwm ms"]
    rows: list[list[Cell]] = []
    for task, described in summary["tasks"].items():
        for variant, found in described["variants"].items():
            times = hide_tails(found["execution_ms"], found["runs"] - found["failed"])
            rows.append([task, variant, found["runs"], found["failed"], *times.values()])
    lines = [format_rows(header, rows)]
    if "accuracy" in summary:
        lines.append(_format_accuracy(summary["accuracy"]))
    lines += describe_bags(summary)
    if summary["identical"] is not None:
        lines.append(f"{summary['repeats']} repetitions: {_compare(summary)}")
    if summary["lost"]:
        lines.append(f"{summary['lost']} messages are not accounted for")
    return "\n".join(lines)


def _format_accuracy(tasks: dict[str, Any]) -> str:
    rows: list[list[Cell]] = []
    for task, variants in tasks.items():
        for variant, found in variants.items():
            value = found["value"]
            shown = "unknown" if value is None else f"{value:.3f} {found['metric']}"
            counts = [found["frames"], len(found["classes"]), _percent(found["judged"])]
            rows.append([task, variant, shown, *counts])
    header = ["task", "variant", "accuracy", "labelled frames", "classes", "judged %"]
    return format_rows(header, rows)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


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
    """List for each bag how many messages were frames, and why the others were not."""
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
    """Format outcomes and responses of every task."""
    outcomes = [outcome.value for outcome in Outcome]
    header = ["task", "frames", *outcomes, "missed %", "p50 ms", "p99 ms", "max ms", "deadline ms"]
    rows: list[list[Cell]] = []
    for task, found in summary["tasks"].items():
        missed = None if found["miss_ratio"] is None else 100.0 * found["miss_ratio"]
        counts = [found["outcomes"][outcome] for outcome in outcomes]
        finished = found["outcomes"]["met"] + found["outcomes"]["late"]
        response = hide_tails(found["response_ms"], finished)
        times = [*response.values(), found["deadline_ms"]]
        rows.append([task, found["released"], *counts, missed, *times])
    return format_rows(header, rows)


def format_streaming(tasks: dict[str, Any]) -> str:
    """Format the streaming accuracy of every task whose truth is known."""
    header = ["task", "streaming", "on own frames", "instants", "unanswered", "judged %"]
    rows: list[list[Cell]] = []
    for name, found in tasks.items():
        value, own = found["value"], found["own_frames"]
        shown = "unknown" if value is None else f"{value:.3f} {found['metric']}"
        counts = [found["instants"], found["unanswered"], _percent(found["judged"])]
        rows.append([name, shown, None if own is None else f"{own:.3f}", *counts])
    return format_rows(header, rows)


def summarize_jobs(summary: RunSummary) -> dict[str, Any]:
    """Give each task's counts and times, with its miss ratio and why frames were not met."""
    return {
        name: {
            **task.to_dict(),
            "miss_ratio": None if task.met_ratio is None else 1.0 - task.met_ratio,
            "reasons": dict(task.reasons),
        }
        for name, task in summary.tasks.items()
    }


def miss_ratio(summary: RunSummary) -> float | None:
    """Return the share of all jobs that were not met; None without any."""
    released = sum(task.released for task in summary.tasks.values())
    met = sum(round((task.met_ratio or 0.0) * task.released) for task in summary.tasks.values())
    return 1.0 - met / released if released else None
