# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Report of `run`: the table, the JSON, and the folder of ``--output`` with picture and plot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.files import write_image
from jetson_dnn_rt.cli.figures import figure_settings
from jetson_dnn_rt.cli.recorder import Recorder
from jetson_dnn_rt.cli.text import Cell, format_rows
from jetson_dnn_rt.errors import ConfigurationError, naming
from jetson_dnn_rt.nodes.tasks.drawing import draw_results
from jetson_dnn_rt.platforms.machine import describe_machine
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.reader import Trace, open_trace
from jetson_dnn_rt.traces.summary import (
    RunSummary,
    TaskSummary,
    has_quantile,
    hide_tails,
    order_statistic,
    summarize_ms,
)
from jetson_dnn_rt.traces.variant_use import VariantUse

if TYPE_CHECKING:
    from jetson_dnn_rt.cli.video import VideoCount
    from jetson_dnn_rt.nodes.coordinator.coordinator_node import CoordinatorReport
    from jetson_dnn_rt.nodes.process.graph import CameraReport, GraphReport

PICTURE, PLOT, TRACE, SUMMARY = "annotated.png", "latency.png", "trace", "summary.json"
VIDEO = "annotated.mp4"

# Okabe & Ito's palette, which the colour-blind can tell apart, too.
_COLORS = {
    Outcome.MET: "#0072B2",
    Outcome.LATE: "#D55E00",
    Outcome.ABORTED: "#CC79A7",
    Outcome.FAILED: "#000000",
    Outcome.SKIPPED: "#E69F00",
    Outcome.SUPERSEDED: "#999999",
}
_RESPONDED = (Outcome.MET, Outcome.LATE, Outcome.ABORTED)
_TIMES = ("release_ns", "completion_ns", "absolute_deadline_ns")

Integers = npt.NDArray[np.int64]


def to_dict(report: GraphReport, summary: RunSummary) -> dict[str, object]:
    """The JSON of ``run --json``."""
    return {
        "frames": _count_frames(report),
        "seconds": round(report.seconds, 3),
        "tasks": {
            name: {**task.to_dict(), "met_of": limit and limit.to_dict()}
            for name, task in summary.tasks.items()
            for limit in [report.counts[name].limit]
        },
        "cameras": {name: asdict(camera) for name, camera in report.cameras.items()},
    }


def _count_frames(report: GraphReport) -> int:
    """Frames of the cameras of this process; without one, of the task that got most."""
    if report.cameras:
        return sum(camera.frames for camera in report.cameras.values())
    return max((task.released for task in report.counts.values()), default=0)


def format_table(report: GraphReport, summary: RunSummary) -> str:
    """For each task: frames, outcomes, response, deadline, variant."""
    outcomes = [outcome.value for outcome in Outcome]
    header = ["task", "frames", *outcomes, "p50 ms", "p99 ms", "max ms", "deadline ms", "variant"]
    lines = [format_rows(header, [_row(name, task) for name, task in summary.tasks.items()])]
    for name, task in summary.tasks.items():
        if task.reasons:
            reasons = ", ".join(f"{why} {count}" for why, count in task.reasons.most_common(4))
            lines.append(f"{name}: {reasons}")
        if (limit := report.counts[name].limit) is not None:
            lines.append(f"{name}: {limit} was violated at {limit.violations} of the frames")
    lines += [
        f"{name}: {text}"
        for name, findings in report.findings.items()
        for text in findings.values()
    ]
    lines += map(_describe_delivery, report.cameras.values())
    lines += [
        f"{camera.name}: the size changed {camera.size_changes} times, "
        f"{camera.unreadable} pictures could not be decoded"
        for camera in report.cameras.values()
        if camera.size_changes or camera.unreadable
    ]
    if report.coordinator is not None:
        lines.append(_describe_decisions(report.coordinator, report, summary))
    if report.load is not None and report.load.is_crowded:
        lines.append(f"{report.load}: times and misses are those beside them")
    lines.append(f"{_count_frames(report)} frames in {report.seconds:.1f} s; {report.verdict}")
    return "\n".join(lines)


def _describe_decisions(
    coordinator: CoordinatorReport, report: GraphReport, summary: RunSummary
) -> str:
    """What the coordinator decided, in one line."""
    made = (f"{policy} decided {n:,} times" for policy, n in coordinator.decisions.items())
    parts = [", ".join(made) or f"{coordinator.policy} decided nothing"]
    for name, task in summary.tasks.items():
        text = f"{name}: {describe_use(task.use)}"
        lost = {**report.left_out.get(name, {}), **report.counts[name].withdrawn}
        if lost:
            text += f", without {', '.join(lost)}"
        if name in coordinator.not_coordinated and coordinator.policy != "static":
            text += f", not coordinated ({coordinator.not_coordinated[name]})"
        parts.append(text)
    if coordinator.failure:
        parts.append(f"stopped by a fault: {coordinator.failure}")
    return f"coordinator: {'; '.join(parts)}"


def describe_use(use: VariantUse) -> str:
    """The variant that a task began in, and its switches."""
    if not use.first:
        return f"configured {use.configured}, no frame ran"
    begin = f"began in {use.first}"
    begin += " as configured" if use.first == use.configured else f", configured {use.configured}"
    switches = [f"{a} -> {b} {count}" for (a, b), count in use.switches.most_common()]
    if not switches:
        return f"{begin}, no switch"
    shares = [f"{100 * share:.0f} % {variant}" for variant, share in use.time_shares.items()]
    count = use.switches.total()
    return (
        f"{begin}, {count} {'switch' if count == 1 else 'switches'} ({', '.join(switches)}), "
        f"time {', '.join(shares)}"
    )


def _describe_delivery(camera: CameraReport) -> str:
    """Frames of a camera that were due, and those that came."""
    if camera.slipped is None:
        return f"{camera.name}: {camera.frames} frames; its rate, so how many were due, is unknown"
    text = f"{camera.name}: of {camera.expected} frames due at {camera.rate_hz:g} Hz"
    if not camera.slipped:
        return f"{text} all came"
    return (
        f"{text} {camera.frames} came, {camera.slipped} slipped: the source gave them too late "
        "(is the machine busy, the picture too large, or the device slower than it says?)"
    )


def _row(name: str, task: TaskSummary) -> list[Cell]:
    response = hide_tails(summarize_ms(task.response_ns), len(task.response_ns))
    variants = ", ".join(
        variant if len(task.variants) == 1 else f"{variant} ({count})"
        for variant, count in task.variants.most_common()
    )
    return [
        name,
        task.released,
        *(task.outcomes[outcome] for outcome in Outcome),
        *(response[key] for key in ("p50", "p99", "max")),
        _describe_deadlines(task),
        variants or "-",
    ]


def _describe_deadlines(task: TaskSummary) -> Cell:
    """The deadline, or all that a task had, shortest first."""
    deadlines_ms = [deadline_ns / 1e6 for deadline_ns in sorted(task.deadlines_ns)]
    if len(deadlines_ms) < 2:
        return task.deadline_ns / 1e6
    if len(deadlines_ms) > 4:
        return f"{deadlines_ms[0]:g} to {deadlines_ms[-1]:g} ({len(deadlines_ms)})"
    return ", ".join(f"{deadline_ms:g}" for deadline_ms in deadlines_ms)


def write_output(folder: Path, report: GraphReport, recorder: Recorder) -> list[Path]:
    """Write picture, plot and summary; the trace is there already.

    Returns the files of the folder; there is no picture when no task met a single frame.
    ConfigurationError when they cannot be written, or the trace could not.
    """
    with naming(folder):
        return _write_output(folder, report, recorder)


def _write_output(folder: Path, report: GraphReport, recorder: Recorder) -> list[Path]:
    files = [folder / TRACE]
    sight, summary = recorder.best, recorder.summary
    if sight is not None:
        results = [(r, report.info.tasks[task].labels) for task, r in sight.results.items()]
        write_image(folder / PICTURE, draw_results(sight.frame, results))
        files.append(folder / PICTURE)
    sources = ", ".join(
        f"{c.source} {c.width}x{c.height} at {c.rate_hz:g} Hz" for c in report.cameras.values()
    )
    try:
        jobs = read_jobs(open_trace(folder / TRACE), report.info.tasks)
    except ValueError as error:  # the disk took none of it
        raise ConfigurationError(str(error)) from error
    with figure_settings():
        plot_latency(jobs, folder / PLOT, sources)
    content = {
        **to_dict(report, summary),
        "coordinator": report.coordinator and asdict(report.coordinator),
        "left_out": report.left_out,
        "withdrawn": {name: counts.withdrawn for name, counts in report.counts.items()},
        "outputs": report.findings,
        "reasons": {name: dict(task.reasons) for name, task in summary.tasks.items()},
        "models": {
            name: {
                "model": task.traced.model,
                "kind": task.kind,
                "variants": list(task.traced.variants),
            }
            for name, task in report.info.tasks.items()
        },
        "budgets_ms": {name: counts.budgets_ms for name, counts in report.counts.items()},
        "schedulability": {
            **report.present.verdict.to_dict(),
            "text": report.verdict,
            "rates": {
                task: {"hz": rate_hz, "assumed": task in report.present.assumed}
                for task, rate_hz in report.present.rates_hz.items()
            },
            "at_start": report.info.verdict.to_dict(),
        },
        "realtime": {
            s.name: {"applied": s.applied, "detail": s.detail} for s in report.info.settings
        },
        "videos": [
            {"file": str(video.file), "frames": video.frames, "left_out": video.left_out}
            for video in list_videos(recorder)
        ],
        "machine": describe_machine(),
        "load": None if report.load is None else report.load.to_dict(),
        "stage_ms": {
            name: {
                variant: {
                    stage: {"wall": wall, "cpu": cpu} for stage, (wall, cpu) in times.items()
                }
                for variant, times in counts.stage_ms.items()
            }
            for name, counts in report.counts.items()
        },
    }
    (folder / SUMMARY).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return [*files, folder / PLOT, folder / SUMMARY]


def list_videos(recorder: Recorder) -> list[VideoCount]:
    """The videos that were written."""
    return [] if recorder.video is None else recorder.video.counts


# -- the plot: every job's response against time, with its deadline ----------------------------


@dataclass(frozen=True, eq=False)
class TaskJobs:
    """All N jobs of a task, in the order of their releases."""

    release_ns: Integers
    response_ns: Integers
    deadline_ns: Integers  # relative
    outcomes: npt.NDArray[np.str_]  # values of `Outcome`

    def of(self, *outcomes: Outcome) -> npt.NDArray[np.bool_]:
        """Mask of the jobs with one of these outcomes."""
        return np.isin(self.outcomes, [outcome.value for outcome in outcomes])


def read_jobs(trace: Trace, tasks: Iterable[str]) -> dict[str, TaskJobs]:
    """The jobs of a trace, by task in the order of `tasks`."""
    batches = list(trace.batches(["task", "outcome", *_TIMES]))

    def column(name: str, kind: Any) -> npt.NDArray[Any]:
        parts = (np.array(batch.column(name).to_pylist(), kind) for batch in batches)
        return np.concatenate([np.empty(0, kind), *parts])

    of_task, outcome = column("task", np.str_), column("outcome", np.str_)
    times_ns = np.stack([column(name, np.int64) for name in _TIMES])
    jobs = {}
    for task in tasks:
        chosen = np.flatnonzero(of_task == task)
        chosen = chosen[np.argsort(times_ns[0, chosen], kind="stable")]
        release_ns, completion_ns, deadline_ns = times_ns[:, chosen]
        jobs[task] = TaskJobs(
            release_ns, completion_ns - release_ns, deadline_ns - release_ns, outcome[chosen]
        )
    return jobs


def plot_latency(tasks: Mapping[str, TaskJobs], path: Path, title: str = "") -> None:
    """Draw a PNG with a panel for each task, beside the histogram of its responses.

    Jobs that never ran have no response: they are ticks along the bottom.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 0.9 + 2.7 * len(tasks)), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    grid: dict[str, Any] = {"squeeze": False, "sharex": "col", "sharey": "row"}
    panels = figure.subplots(len(tasks), 2, gridspec_kw={"width_ratios": (6, 1)}, **grid)
    begins_ns = [int(jobs.release_ns[0]) for jobs in tasks.values() if len(jobs.release_ns)]
    for (task, jobs), (panel, histogram) in zip(tasks.items(), panels, strict=True):
        _plot_task(panel, histogram, task, jobs, min(begins_ns, default=0))
    panels[-1, 0].set_xlabel("time of release [s]")
    panels[-1, 1].set_xlabel("jobs")
    if title:
        figure.suptitle(title, fontsize=11)
    figure.savefig(path)


def _plot_task(panel: Any, histogram: Any, task: str, jobs: TaskJobs, origin_ns: int) -> None:
    deadlines_ms = jobs.deadline_ns / 1e6
    responses_ms = jobs.response_ns[jobs.of(*_RESPONDED)] / 1e6
    # A single stall must not flatten the rest: values above are drawn at the upper edge.
    longest_ms = float(np.max([*deadlines_ms, 1.0]))
    top_ms = min(float(np.max([*responses_ms, longest_ms])), 4.0 * longest_ms)
    for outcome, color in _COLORS.items():
        if jobs.of(outcome).any():
            _plot_outcome(panel, outcome, color, jobs, origin_ns, top_ms)
    name = task
    completed_ns = np.sort(jobs.response_ns[jobs.of(Outcome.MET, Outcome.LATE)]).tolist()
    if len(jobs.release_ns):
        style = {"color": "#c00000", "lw": 1.2}
        # Stepwise: the deadline can be changed while a task runs.
        times_s = (jobs.release_ns - origin_ns) / 1e9
        panel.plot(times_s, deadlines_ms, label="deadline", drawstyle="steps-post", **style)
        histogram.axhline(deadlines_ms[-1], **style)
        place = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.99), "frameon": False}
        place["markerscale"] = 2
        panel.legend(fontsize=8, ncol=7, handletextpad=0.4, columnspacing=1.0, **place)
    if completed_ns:
        p50, p99 = (order_statistic(completed_ns, q) / 1e6 for q in (0.50, 0.99))
        tail = f"p99 {p99:.1f}, " if has_quantile(len(completed_ns), 0.99) else ""
        name += f"   p50 {p50:.1f}, {tail}max {completed_ns[-1] / 1e6:.1f} ms"
        shown_ms = np.minimum(np.array(completed_ns) / 1e6, top_ms)
        bins = {"bins": 60, "range": (0.0, top_ms), "orientation": "horizontal"}
        histogram.hist(shown_ms, color=_COLORS[Outcome.MET], **bins)
    panel.set_title(name, fontsize=10, loc="left")
    panel.set_ylim(0.0, 1.08 * top_ms)
    panel.set_ylabel("response [ms]")
    panel.grid(alpha=0.25)
    histogram.grid(alpha=0.25)


def _plot_outcome(
    panel: Any, outcome: Outcome, color: str, jobs: TaskJobs, origin_ns: int, top_ms: float
) -> None:
    chosen = jobs.of(outcome)
    label = f"{outcome.value} {np.count_nonzero(chosen)}"
    times_s = (jobs.release_ns[chosen] - origin_ns) / 1e9
    if outcome in _RESPONDED:
        heights_ms = np.minimum(jobs.response_ns[chosen] / 1e6, 1.06 * top_ms)
        panel.scatter(times_s, heights_ms, s=9, color=color, label=label, linewidths=0)
    else:
        transform = panel.get_xaxis_transform()
        panel.vlines(times_s, 0.0, 0.04, color=color, lw=1, label=label, transform=transform)
