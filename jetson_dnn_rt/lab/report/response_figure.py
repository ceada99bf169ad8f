"""Response against the deadline, and where the time of slow frames went."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jetson_dnn_rt.lab.report.recording import Flags, TaskColumns
from jetson_dnn_rt.lab.report.style import (
    BESIDE,
    DEADLINE,
    INK,
    MEASURED,
    MUTED,
    Layout,
    Picture,
    clear_grid,
    format_thousands,
    mark_deadline,
    render,
    write_title,
)
from jetson_dnn_rt.lab.report.wording import format_digits, format_ms

BINS = 60
OTHER = "#b3bcc5"
_PARTS = (
    ("running", MEASURED),
    ("waiting for other tasks", BESIDE),
    ("everything else", OTHER),
)


@dataclass(frozen=True)
class Spent:
    """Mean parts of the response of some frames.

    Attributes
    ----------
    title : str
        Which frames.
    execution_ns, waiting_ns, other_ns : float
        Their sum is the response.
    """

    title: str
    execution_ns: float
    waiting_ns: float
    other_ns: float

    @property
    def response_ns(self) -> float:
        """Of these frames, as a mean."""
        return self.execution_ns + self.waiting_ns + self.other_ns


def split_response(task: TaskColumns) -> list[Spent]:
    """Where the time went: of usual frames, of the slowest percent, of the slowest one.

    Only finished frames count, without warm-up; empty when there is none.
    """
    chosen = np.flatnonzero(task.finished & ~task.warm_up)
    if not len(chosen):
        return []
    order = chosen[np.argsort(task.response_ns[chosen], kind="stable")]
    count = len(order)
    slowest = order[min(count - 1, math.floor(0.99 * count)) :]
    groups = [
        ("usual frames", order[math.floor(0.25 * count) : max(1, math.ceil(0.75 * count))]),
        ("slowest 1 %", slowest),
        ("slowest frame", order[-1:]),
    ]
    return [_spend(task, title, rows) for title, rows in groups]


def _spend(task: TaskColumns, title: str, rows: Any) -> Spent:
    execution, waiting = task.execution_ns[rows].mean(), task.waiting_ns[rows].mean()
    rest = task.response_ns[rows].mean() - execution - waiting
    return Spent(title, float(execution), float(waiting), max(0.0, float(rest)))


def draw_response(name: str, task: TaskColumns) -> Picture | None:
    """Draw both panels; None when no frame was finished."""
    spent = split_response(task)
    if not spent:
        return None
    measured = task.finished & ~task.warm_up

    def draw(figure: Any, layout: Layout) -> None:
        left, right = layout.panels(figure, 2, 290, widths=(1.0, 1.25), narrow_px=250)
        _draw_histogram(left, task, measured, layout)
        _draw_parts(right, spent, task.usual_deadline_ns / 1e6, layout)

    alt = f"Response of {task.name} against its deadline; " + "; ".join(
        f"{part.title} {format_ms(part.response_ns)}" for part in spent
    )
    return render(name, alt, draw)


def _draw_histogram(panel: Any, task: TaskColumns, measured: Flags, layout: Layout) -> None:
    # Deadlines may have changed: what counts is the share of its own deadline.
    share = 100.0 * task.response_ns[measured] / np.maximum(1, task.deadline_ns[measured])
    ordered = np.sort(share)
    top = min(float(ordered[-1]), max(150.0, 1.2 * float(np.quantile(ordered, 0.995))))
    edges = np.linspace(0.0, max(top, 110.0), BINS + 1)
    # A bin ends at the deadline, so that no bar is half red.
    edges = edges * (100.0 / edges[np.searchsorted(edges, 100.0)])
    shown = np.minimum(share, edges[-1] - 1e-9)
    for chosen, color in ((shown <= 100.0, MEASURED), (shown > 100.0, DEADLINE)):
        panel.hist(shown[chosen], bins=edges, color=color, lw=0, alpha=0.88)
    panel.margins(y=0.18)
    panel.set_xlim(0, edges[-1])
    clear_grid(panel, "x")
    mark_deadline(panel, 100.0, "deadline")
    p99 = float(ordered[math.ceil(0.99 * len(ordered)) - 1])
    above = int(np.count_nonzero(share > edges[-1]))
    key = [(f"{above} beyond the scale, in the last bar", DEADLINE)] if above else []
    title = f"p99 of the results: {p99:.0f} % of the deadline"
    write_title(panel, title, layout, key, width=1.0 if layout.narrow else 0.45)
    panel.set_xlabel("response as a share of the deadline [%]")
    panel.set_ylabel("frames with a result")
    panel.yaxis.set_major_formatter(format_thousands)


def _draw_parts(panel: Any, spent: list[Spent], deadline_ms: float, layout: Layout) -> None:
    rows = np.arange(len(spent))[::-1]
    left = np.zeros(len(spent))
    columns = [
        [part.execution_ns / 1e6 for part in spent],
        [part.waiting_ns / 1e6 for part in spent],
        [part.other_ns / 1e6 for part in spent],
    ]
    for (_, color), widths in zip(_PARTS, columns, strict=True):
        panel.barh(rows, widths, left=left, color=color, height=0.52, lw=0)
        left += widths
    for row, total in zip(rows, left, strict=True):
        panel.annotate(
            format_ms(total * 1e6),
            (total, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.4,
            fontweight="bold",
            color=INK,
            zorder=6,
            bbox={"color": "white", "pad": 1.0},
        )
    room = 1.3 if layout.narrow else 1.16
    panel.set_xlim(0, room * max(float(left.max()), min(deadline_ms, 4.0 * float(left.max()))))
    panel.set_ylim(-0.5, len(spent) - 0.2)
    panel.set_yticks(rows, [part.title for part in spent])
    panel.tick_params(axis="y", length=0, labelcolor=INK)
    clear_grid(panel, "y")
    mark_deadline(panel, deadline_ms, f"deadline {format_digits(deadline_ms)} ms")
    key = [(f"■ {text}", MUTED if color == OTHER else color) for text, color in _PARTS]
    write_title(panel, "Where the time goes", layout, key, width=1.0 if layout.narrow else 0.55)
    panel.set_xlabel("response time [ms]")
