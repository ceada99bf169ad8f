"""Which variant ran when, and at which clocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from jetson_dnn_rt.lab.report.recording import TaskColumns
from jetson_dnn_rt.lab.report.style import (
    VARIANT_COLORS,
    Layout,
    Picture,
    clear_grid,
    render,
    write_title,
)
from jetson_dnn_rt.lab.report.wording import format_count, format_share

SPELLS = 120
"""Columns of the figure: shares of the variants in each."""


def share_variants(
    task: TaskColumns, spells: int, span_ns: int, most: int = len(VARIANT_COLORS) - 1
) -> tuple[list[str], Any, Any]:
    """Share of the jobs that started in each spell of time, by variant.

    Returns
    -------
    names : list of str
        The most used variants, then ``2 others`` where there are more.
    edges_s : float64 [S + 1]
        Of the spells.
    shares : float64 [V, S]
        NaN in spells without a job.
    """
    edges = np.linspace(0.0, max(span_ns, 1), spells + 1)
    chosen = task.started
    used = np.bincount(task.variant[chosen], minlength=len(task.variants))
    ranked = [int(place) for place in np.argsort(-used, kind="stable") if used[place]]
    names = [task.variants[place] for place in ranked[:most]]
    groups = [[place] for place in ranked[:most]]
    if len(ranked) > most:
        names.append(format_count(len(ranked) - most, "other"))
        groups.append(ranked[most:])
    counts = np.array(
        [
            np.histogram(task.release_ns[chosen & np.isin(task.variant, group)], edges)[0]
            for group in groups
        ],
        float,
    ).reshape(len(groups), spells)
    total = counts.sum(axis=0)
    shares = np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)
    return names, edges / 1e9, shares


def draw_variants(name: str, task: TaskColumns, span_ns: int) -> Picture | None:
    """Draw the shares over time; None when it ran in one variant only."""
    if len(np.unique(task.variant[task.started])) < 2:
        return None

    def draw(figure: Any, layout: Layout) -> None:
        (panel,) = layout.panels(figure, 1, 210, narrow_px=230)
        spells = SPELLS // 2 if layout.narrow else SPELLS
        spells = max(8, min(spells, len(task) // 8))
        names, edges_s, shares = share_variants(task, spells, span_ns)
        left = np.zeros(spells)
        for color, row in zip(VARIANT_COLORS, np.nan_to_num(100.0 * shares), strict=False):
            panel.bar(
                edges_s[:-1],
                row,
                width=np.diff(edges_s),
                bottom=left,
                align="edge",
                color=color,
                lw=0,
            )
            left += row
        _label(panel, task, names, layout)
        panel.set_xlim(0, edges_s[-1])
        panel.set_ylim(0, 100)

    alt = f"Variants of {task.name} over time: {', '.join(task.variants[:3])}"
    return render(name, alt, draw)


def _label(panel: Any, task: TaskColumns, names: list[str], layout: Layout) -> None:
    used = np.bincount(task.variant[task.started], minlength=len(task.variants))
    total = max(1, int(used.sum()))
    shown = {task.variants[place]: used[place] / total for place in range(len(used))}
    rest = 1.0 - sum(shown.get(name, 0.0) for name in names)
    clear_grid(panel, "x")
    panel.set_ylabel("frames [%]")
    panel.set_xlabel("time since the first frame [s]")
    key = [
        (f"■ {text}  {format_share(shown.get(text, rest))}", color)
        for text, color in zip(names, VARIANT_COLORS, strict=False)
    ]
    write_title(panel, "", layout, key)
