"""Budgets against deadlines, and how much of the machine the tasks need together."""

from __future__ import annotations

from typing import Any

import numpy as np

from jetson_dnn_rt.lab.report.budgets import BOUND as BOUND_NAME
from jetson_dnn_rt.lab.report.budgets import HIGHEST, P99, Schedulability
from jetson_dnn_rt.lab.report.style import (
    BOUND,
    DEADLINE,
    GRID,
    INK,
    MEASURED,
    MEASURED_PALE,
    MUTED,
    Layout,
    Picture,
    clear_grid,
    render,
    write_title,
)
from jetson_dnn_rt.lab.report.wording import format_count, format_share

TASK_COLORS = ("#2b6cb0", "#e08e0b", "#2a8c6f", "#b5488f", "#5aa9c9", "#8a6d3b", "#8d99a6")
VERDICTS = {True: "fits", False: "does not fit", None: "not proven"}


def draw_budgets(name: str, result: Schedulability) -> Picture:
    """Draw budgets by task, and the load by budget."""

    def draw(figure: Any, layout: Layout) -> None:
        height = 130 + 46 * max(len(result.needs), len(result.verdicts))
        narrow_px = 150 + 44 * max(len(result.needs), len(result.verdicts))
        left, right = layout.panels(figure, 2, height, widths=(1.2, 1.0), narrow_px=narrow_px)
        _draw_tasks(left, result, layout)
        _draw_load(right, result, layout)

    alt = "; ".join(
        f"with {budget} budgets: {VERDICTS[verdict.schedulable]}"
        for budget, verdict in result.verdicts.items()
    )
    return render(name, alt, draw)


def _draw_tasks(panel: Any, result: Schedulability, layout: Layout) -> None:
    rows = np.arange(len(result.needs))[::-1]
    right = 0.0
    for row, needs in zip(rows, result.needs.values(), strict=True):
        budgets = {name: value / 1e6 for name, value in needs.budgets_ns.items()}
        deadline_ms = needs.deadline_ns / 1e6
        panel.barh(row, deadline_ms, height=0.5, color=GRID, lw=0, zorder=1)
        panel.plot([deadline_ms] * 2, [row - 0.33, row + 0.33], color=DEADLINE, lw=2, zorder=4)
        panel.barh(row, budgets[P99], height=0.5, color=MEASURED_PALE, lw=0, zorder=2)
        panel.plot([budgets[HIGHEST]], [row], "o", ms=7, color=MEASURED, zorder=5)
        if BOUND_NAME in budgets:
            panel.plot([budgets[BOUND_NAME]], [row], "D", ms=6, color=BOUND, zorder=5)
        right = max(right, deadline_ms, *budgets.values())
        least = needs.least_deadline_ns[HIGHEST]
        if least is not None:
            right = max(right, min(least / 1e6, 3.0 * deadline_ms))
            if least / 1e6 <= right:
                panel.plot([least / 1e6], [row - 0.38], "^", ms=7, color=INK, zorder=5)
    panel.set_yticks(rows, list(result.needs))
    panel.set_ylim(-0.65, len(rows) - 0.35)
    panel.set_xlim(0, 1.06 * right)
    panel.tick_params(axis="y", length=0, labelcolor=INK)
    clear_grid(panel, "y")
    panel.set_xlabel("time [ms]")
    key = [
        ("■ p99", "#7fa9d6"),
        ("● highest seen", MEASURED),
        *([("◆ pWCET", BOUND)] if BOUND_NAME in result.verdicts else []),
        ("| deadline", DEADLINE),
        ("▲ least deadline that would fit", INK),
    ]
    width = 1.0 if layout.narrow else 0.54
    write_title(panel, "Execution budgets and deadlines", layout, key, width=width)


def _draw_load(panel: Any, result: Schedulability, layout: Layout) -> None:
    names = list(result.verdicts)
    rows = np.arange(len(names))[::-1]
    left = np.zeros(len(names))
    key = []
    for number, (task, needs) in enumerate(result.needs.items()):
        color = TASK_COLORS[min(number, len(TASK_COLORS) - 1)]
        loads = np.array([100.0 * needs.budgets_ns[b] / needs.period_ns for b in names])
        panel.barh(rows - 0.06, loads, left=left, height=0.36, color=color, lw=0, zorder=2)
        left += loads
        if number < len(TASK_COLORS):
            text = f"■ {task}" if number < len(TASK_COLORS) - 1 else "■ others"
            key.append((text, color))
    capacity = 100.0 * result.workers
    top = max(capacity, float(left.max()))
    for row, budget, load in zip(rows, names, left, strict=True):
        verdict = result.verdicts[budget].schedulable
        panel.annotate(
            f"{format_share(load / 100.0)}: {VERDICTS[verdict]}",
            (0, row + 0.14),
            xytext=(2, 2),
            textcoords="offset points",
            va="bottom",
            fontsize=8.4,
            fontweight="bold",
            color=INK,
            zorder=6,
            bbox={"color": "white", "pad": 0.4},
        )
    panel.axvline(capacity, color=DEADLINE, lw=1.6, zorder=4)
    panel.set_yticks(rows, names)
    panel.set_ylim(-0.5, len(rows) - 0.2)
    panel.set_xlim(0, 1.06 * top)
    panel.tick_params(axis="y", length=0, labelcolor=INK)
    clear_grid(panel, "y")
    panel.set_xlabel("load of the machine with this budget [%]", color=MUTED)
    title = f"Do all fit together on {format_count(result.workers, 'worker')}?"
    write_title(
        panel,
        title,
        layout,
        [*key, ("| all there is", DEADLINE)],
        width=1.0 if layout.narrow else 0.46,
    )
