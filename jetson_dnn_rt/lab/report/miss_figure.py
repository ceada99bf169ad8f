"""Misses by kind over time, and how many come in a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from jetson_dnn_rt.lab.report.misses import Bursts, expect_bursts, find_task_bursts
from jetson_dnn_rt.lab.report.recording import OUTCOMES, TaskColumns
from jetson_dnn_rt.lab.report.style import (
    DEADLINE,
    INK,
    OUTCOME_COLORS,
    Layout,
    Picture,
    clear_grid,
    render,
    write_title,
)
from jetson_dnn_rt.lab.report.wording import format_count, format_ms
from jetson_dnn_rt.tasks import Outcome

SPELLS = 60
LONGEST_SHOWN = 12
"""Bursts of this length and more share the last bar."""


def draw_misses(name: str, task: TaskColumns, span_ns: int) -> Picture | None:
    """Draw both panels; None when nothing was missed."""
    if not task.missed.any():
        return None
    bursts = find_task_bursts(task)

    def draw(figure: Any, layout: Layout) -> None:
        left, right = layout.panels(figure, 2, 270, widths=(1.5, 1.0), narrow_px=240)
        _draw_over_time(left, task, span_ns, layout)
        _draw_bursts(right, task, bursts, layout)

    alt = (
        f"{format_count(int(task.missed.sum()), 'miss', 'misses')} of {task.name} over time; "
        f"at most {bursts.longest} in a row"
    )
    return render(name, alt, draw)


def _draw_over_time(panel: Any, task: TaskColumns, span_ns: int, layout: Layout) -> None:
    spells = max(6, min(SPELLS // 2 if layout.narrow else SPELLS, len(task) // 4))
    edges = np.linspace(0.0, max(span_ns, 1), spells + 1)
    everything = np.histogram(task.release_ns, edges)[0]
    bottom = np.zeros(spells)
    words = []
    for code, outcome in enumerate(OUTCOMES):
        if outcome is Outcome.MET or not task.count(outcome):
            continue
        counts = np.histogram(task.release_ns[task.outcome == code], edges)[0]
        share = 100.0 * np.divide(counts, everything, out=np.zeros(spells), where=everything > 0)
        color = OUTCOME_COLORS[outcome]
        panel.bar(
            edges[:-1] / 1e9,
            share,
            np.diff(edges) / 1e9,
            bottom,
            align="edge",
            color=color,
            lw=0.4,
            edgecolor="white",
        )
        bottom += share
        words.append((f"■ {outcome.value} {task.count(outcome):,}", color))
    panel.set_xlim(0, edges[-1] / 1e9)
    panel.set_ylim(0, min(100.0, max(1.0, 1.1 * float(bottom.max()))))
    clear_grid(panel, "x")
    panel.set_xlabel("time since the first frame [s]")
    panel.set_ylabel("frames missed [%]")
    write_title(
        panel, "When frames were missed", layout, words, width=1.0 if layout.narrow else 0.6
    )


def _draw_bursts(panel: Any, task: TaskColumns, bursts: Bursts, layout: Layout) -> None:
    from matplotlib.ticker import NullLocator

    last = min(LONGEST_SHOWN, max(4, bursts.longest))
    lengths = np.arange(1, last + 1)
    counts = np.bincount(np.minimum(bursts.lengths, last), minlength=last + 1)[1:]
    chance = expect_bursts(lengths, len(task), float(task.missed.mean()))
    panel.bar(lengths, counts, width=0.66, color=DEADLINE, lw=0)
    panel.plot(lengths, chance, "_", color=INK, ms=17 if last <= 6 else 9, mew=1.8, zorder=4)
    panel.set_yscale("symlog", linthresh=1.0, linscale=0.6)
    panel.yaxis.set_minor_locator(NullLocator())
    top = max(float(counts.max()), max(chance))
    panel.set_ylim(0, 3.2 * top)
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for length, count in zip(lengths, counts, strict=True):
        if count:
            at = max(count, chance[length - 1])
            panel.annotate(
                f"{count:,}",
                (length, at),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=8.2,
            )
    names = [str(length) for length in lengths]
    if bursts.longest > last:
        names[-1] += "+"
    panel.set_xticks(lengths, names)
    panel.tick_params(axis="x", length=0)
    clear_grid(panel, "x")
    panel.set_xlabel("frames missed in a row")
    panel.set_ylabel("how many times")
    write_title(
        panel,
        f"Longest time without a result: {format_ms(bursts.longest_ns)}",
        layout,
        [("■ counted", DEADLINE), ("▬ if misses fell by chance", INK)],
        width=1.0 if layout.narrow else 0.4,
    )
