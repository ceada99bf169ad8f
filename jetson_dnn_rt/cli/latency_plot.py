"""The latency plot of a run: every job's response against time, with its deadline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.reader import Trace
from jetson_dnn_rt.traces.summary import order_statistic

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
_COLUMNS = ("release_ns", "completion_ns", "absolute_deadline_ns")

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TaskJobs:
    """All jobs of a task, in the order of their releases.

    Attributes
    ----------
    release_ns, response_ns, deadline_ns : int64 [N]
        The deadline is relative.
    outcomes : str [N]
        Values of `Outcome`.
    """

    release_ns: Integers
    response_ns: Integers
    deadline_ns: Integers
    outcomes: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.release_ns)

    def of(self, *outcomes: Outcome) -> npt.NDArray[np.bool_]:
        """Which jobs ended so."""
        return np.isin(self.outcomes, [outcome.value for outcome in outcomes])


def read_jobs(trace: Trace, tasks: Iterable[str]) -> dict[str, TaskJobs]:
    """What is drawn of a trace, by task in the order of `tasks`."""
    names, outcomes = [], []
    columns: list[Integers] = []
    for batch in trace.batches(["task", "outcome", *_COLUMNS]):
        names.append(np.array(batch.column("task").to_pylist(), np.str_))
        outcomes.append(np.array(batch.column("outcome").to_pylist(), np.str_))
        columns.append(np.stack([batch.column(name).to_numpy() for name in _COLUMNS]))
    of_task = np.concatenate([*names, np.empty(0, np.str_)])
    outcome = np.concatenate([*outcomes, np.empty(0, np.str_)])
    times_ns = np.concatenate([*columns, np.empty((3, 0), np.int64)], axis=1)
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
    """Draw one panel for each task, and beside it the histogram of its responses.

    Jobs that never ran have no response: they are ticks along the bottom.

    Parameters
    ----------
    tasks : mapping of str to TaskJobs
        At least one.
    path : Path
        A PNG.
    title : str
        Above the plot.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 0.9 + 2.7 * len(tasks)), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(
        len(tasks),
        2,
        squeeze=False,
        sharex="col",
        sharey="row",
        gridspec_kw={"width_ratios": (6, 1)},
    )
    origin_ns = min((int(jobs.release_ns[0]) for jobs in tasks.values() if len(jobs)), default=0)
    for (task, jobs), (panel, histogram) in zip(tasks.items(), panels, strict=True):
        _plot_task(panel, histogram, task, jobs, origin_ns)
    panels[-1, 0].set_xlabel("time of release [s]")
    panels[-1, 1].set_xlabel("jobs")
    if title:
        figure.suptitle(title, fontsize=11)
    figure.savefig(path)


def _plot_task(panel: Any, histogram: Any, task: str, jobs: TaskJobs, origin_ns: int) -> None:
    deadlines_ms = jobs.deadline_ns / 1e6
    responses_ms = jobs.response_ns[jobs.of(*_RESPONDED)] / 1e6
    # One stall must not flatten all the rest: what is above is drawn at the upper edge.
    longest_ms = float(np.max([*deadlines_ms, 1.0]))
    top_ms = min(float(np.max([*responses_ms, longest_ms])), 4.0 * longest_ms)
    for outcome, color in _COLORS.items():
        if jobs.of(outcome).any():
            _plot_outcome(panel, outcome, color, jobs, origin_ns, top_ms)
    name = task
    completed_ns = np.sort(jobs.response_ns[jobs.of(Outcome.MET, Outcome.LATE)]).tolist()
    if len(jobs):
        style = {"color": "#c00000", "lw": 1.2}
        # Stepwise: it can be changed while a task runs.
        times_s = (jobs.release_ns - origin_ns) / 1e9
        panel.plot(times_s, deadlines_ms, label="deadline", drawstyle="steps-post", **style)
        histogram.axhline(deadlines_ms[-1], **style)
        place = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.99), "frameon": False}
        place["markerscale"] = 2
        panel.legend(fontsize=8, ncol=7, handletextpad=0.4, columnspacing=1.0, **place)
    if completed_ns:
        p50, p99 = (order_statistic(completed_ns, q) / 1e6 for q in (0.50, 0.99))
        name += f"   p50 {p50:.1f}, p99 {p99:.1f}, max {completed_ns[-1] / 1e6:.1f} ms"
        histogram.hist(
            np.minimum(np.array(completed_ns) / 1e6, top_ms),
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
