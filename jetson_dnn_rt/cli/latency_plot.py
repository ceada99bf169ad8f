"""The latency plot of a run: every job's response against time, with its deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jetson_dnn_rt.tasks import JobRecord, Outcome
from jetson_dnn_rt.wcet.summary import order_statistic

# Okabe & Ito's palette, to be told apart by the colour-blind too.
_COLORS = {
    Outcome.MET: "#0072B2",
    Outcome.LATE: "#D55E00",
    Outcome.ABORTED: "#CC79A7",
    Outcome.FAILED: "#000000",
    Outcome.SKIPPED: "#E69F00",
    Outcome.SUPERSEDED: "#999999",
}
_RESPONDED = (Outcome.MET, Outcome.LATE, Outcome.ABORTED)


def plot_latency(records: Mapping[str, Sequence[JobRecord]], path: Path, title: str = "") -> None:
    """Draw one panel for each task, and beside it the histogram of its responses.

    Jobs that never ran have no response: they are ticks along the bottom.

    Parameters
    ----------
    records : mapping of str to sequence of JobRecord
        By task, at least one task.
    path : Path
        A PNG.
    title : str
        Above the plot.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 0.9 + 2.7 * len(records)), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(
        len(records),
        2,
        squeeze=False,
        sharex="col",
        sharey="row",
        gridspec_kw={"width_ratios": (6, 1)},
    )
    origin_ns = min((r.release_ns for jobs in records.values() for r in jobs), default=0)
    for (task, jobs), (panel, histogram) in zip(records.items(), panels, strict=True):
        _plot_task(panel, histogram, task, jobs, origin_ns)
    panels[-1, 0].set_xlabel("time of release [s]")
    panels[-1, 1].set_xlabel("jobs")
    if title:
        figure.suptitle(title, fontsize=11)
    figure.savefig(path)


def _plot_task(
    panel: Any, histogram: Any, task: str, jobs: Sequence[JobRecord], origin_ns: int
) -> None:
    steps_s, deadlines_ms = _deadline_steps(jobs, origin_ns)
    responses_ms = [job.response_time_ns / 1e6 for job in jobs if job.outcome in _RESPONDED]
    # One stall must not flatten all the rest: what is above is drawn at the upper edge.
    top_ms = min(max([*responses_ms, *deadlines_ms, 1.0]), 4.0 * max([*deadlines_ms, 1.0]))
    for outcome, color in _COLORS.items():
        chosen = [job for job in jobs if job.outcome is outcome]
        if chosen:
            _plot_outcome(panel, outcome, color, chosen, origin_ns, top_ms)
    name = task
    completed = sorted(
        job.response_time_ns for job in jobs if job.outcome in (Outcome.MET, Outcome.LATE)
    )
    if jobs:
        style = {"color": "#c00000", "lw": 1.2}
        panel.plot(steps_s, deadlines_ms, label="deadline", drawstyle="steps-post", **style)
        histogram.axhline(deadlines_ms[-1], **style)
        place = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.99), "frameon": False}
        place["markerscale"] = 2
        panel.legend(fontsize=8, ncol=7, handletextpad=0.4, columnspacing=1.0, **place)
    if completed:
        p50, p99 = (order_statistic(completed, q) / 1e6 for q in (0.50, 0.99))
        name += f"   p50 {p50:.1f}, p99 {p99:.1f}, max {completed[-1] / 1e6:.1f} ms"
        histogram.hist(
            [min(time_ns / 1e6, top_ms) for time_ns in completed],
            bins=60,
            range=(0.0, top_ms),
            orientation="horizontal",
            color=_COLORS[Outcome.MET],
        )
    panel.set_title(name, fontsize=10, loc="left")
    panel.set_ylim(0.0, 1.08 * top_ms)
    panel.set_ylabel("response [ms]")
    panel.grid(alpha=0.25)
    histogram.grid(alpha=0.25)


def _plot_outcome(
    panel: Any,
    outcome: Outcome,
    color: str,
    jobs: Sequence[JobRecord],
    origin_ns: int,
    top_ms: float,
) -> None:
    label = f"{outcome.value} {len(jobs)}"
    times_s = [(job.release_ns - origin_ns) / 1e9 for job in jobs]
    if outcome in _RESPONDED:
        heights_ms = [min(job.response_time_ns / 1e6, 1.06 * top_ms) for job in jobs]
        panel.scatter(times_s, heights_ms, s=9, color=color, label=label, linewidths=0)
    else:
        transform = panel.get_xaxis_transform()
        panel.vlines(times_s, 0.0, 0.04, color=color, lw=1, label=label, transform=transform)


def _deadline_steps(jobs: Sequence[JobRecord], origin_ns: int) -> tuple[list[float], list[float]]:
    """The relative deadline over time; it can be changed while a task runs."""
    ordered = sorted(jobs, key=lambda job: job.release_ns)
    times_s = [(job.release_ns - origin_ns) / 1e9 for job in ordered]
    return times_s, [(job.absolute_deadline_ns - job.release_ns) / 1e6 for job in ordered]
