"""What `run` says at its end: the JSON, the table, and the folder of ``--output``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.cli.recorder import Recorder
from jetson_dnn_rt.cli.text import Cell, format_rows
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.summary import RunSummary, TaskSummary, summarize_ms

if TYPE_CHECKING:
    from jetson_dnn_rt.nodes.process.session import SessionReport

PICTURE, PLOT, TRACE, SUMMARY = "annotated.png", "latency.png", "trace", "summary.json"


def to_dict(report: SessionReport, summary: RunSummary) -> dict[str, object]:
    """The JSON of ``run --json``."""
    return {
        "frames": count_frames(report),
        "seconds": round(report.seconds, 3),
        "tasks": summary.to_dict(),
    }


def count_frames(report: SessionReport) -> int:
    """Frames of the cameras of this process; without one, of the task that got most."""
    if report.cameras:
        return sum(camera.frames for camera in report.cameras.values())
    return max((task.released for task in report.counts.values()), default=0)


def format_table(report: SessionReport, summary: RunSummary) -> str:
    """For each task: frames, outcomes, response, deadline, variant."""
    outcomes = [outcome.value for outcome in Outcome]
    header = ["task", "frames", *outcomes, "p50 ms", "p99 ms", "max ms", "deadline ms", "variant"]
    rows = [_row(name, task) for name, task in summary.tasks.items()]
    lines = [format_rows(header, rows)]
    for name, task in summary.tasks.items():
        if task.reasons:
            reasons = ", ".join(f"{why} {count}" for why, count in task.reasons.most_common(4))
            lines.append(f"{name}: {reasons}")
    lines.append(f"{count_frames(report)} frames in {report.seconds:.1f} s; {report.verdict}")
    return "\n".join(lines)


def _row(name: str, task: TaskSummary) -> list[Cell]:
    response = summarize_ms(task.response_ns)
    variants = ", ".join(
        variant if len(task.variants) == 1 else f"{variant} ({count})"
        for variant, count in task.variants.most_common()
    )
    return [
        name,
        task.released,
        *(task.outcomes[outcome] for outcome in Outcome),
        response["p50"],
        response["p99"],
        response["max"],
        task.deadline_ns / 1e6,
        variants or "-",
    ]


def write_output(folder: Path, report: SessionReport, recorder: Recorder) -> list[Path]:
    """Write picture, plot and summary; the trace was written meanwhile.

    Returns
    -------
    list of Path
        The files of the folder; the picture is missing when no task met a single frame.
    """
    import cv2

    from jetson_dnn_rt.cli.annotation import draw_results
    from jetson_dnn_rt.cli.latency_plot import plot_latency, read_jobs
    from jetson_dnn_rt.traces.reader import open_trace

    files = [folder / TRACE]
    sight = recorder.best
    if sight is not None:
        results = [(r, report.tasks[task].labels) for task, r in sight.results.items()]
        cv2.imwrite(str(folder / PICTURE), draw_results(sight.frame, results))
        files.append(folder / PICTURE)
    sources = ", ".join(
        f"{c.source} {c.width}x{c.height} at {c.rate_hz:g} Hz" for c in report.cameras.values()
    )
    jobs = read_jobs(open_trace(folder / TRACE), report.tasks)
    plot_latency(jobs, folder / PLOT, sources)
    (folder / SUMMARY).write_text(
        json.dumps(_describe(report, recorder.summary), indent=1) + "\n", encoding="utf-8"
    )
    return [*files, folder / PLOT, folder / SUMMARY]


def _describe(report: SessionReport, summary: RunSummary) -> dict[str, object]:
    """The JSON of the command line, and what it was measured on and with."""
    return {
        **to_dict(report, summary),
        "reasons": {name: dict(task.reasons) for name, task in summary.tasks.items()},
        "models": {
            name: {"model": task.model, "kind": task.kind, "variants": list(task.variants)}
            for name, task in report.tasks.items()
        },
        "budgets_ms": {name: counts.budgets_ms for name, counts in report.counts.items()},
        "cameras": {name: asdict(camera) for name, camera in report.cameras.items()},
        "schedulability": {**asdict(report.verdict), "text": str(report.verdict)},
        "realtime": {s.name: {"applied": s.applied, "detail": s.detail} for s in report.settings},
        "machine": describe_machine(),
    }
