"""Execution times of every stage, or layer: boxes with the highest time seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jetson_dnn_rt.lab.report.style import (
    INK,
    MEASURED,
    MEASURED_PALE,
    MUTED,
    Layout,
    Picture,
    clear_grid,
    render,
)
from jetson_dnn_rt.lab.report.wording import format_count, format_digits, format_share
from jetson_dnn_rt.lab.wcet.samples import Sample

_COLUMN_POINTS = 40

MOST_STAGES = 28
"""Rows of a figure: of more, the longest are shown, in their order."""


def choose_stages(stages: Sequence[Sample], most: int = MOST_STAGES) -> list[Sample]:
    """Those with the longest mean times, in the order they were given."""
    ranked = sorted(stages, key=lambda stage: -float(stage.times_ns.mean()))[:most]
    return [stage for stage in stages if any(stage is kept for kept in ranked)]


def draw_stages(name: str, stages: Sequence[Sample]) -> Picture:
    """Draw the stages of one task and variant, the first one at the top.

    Parameters
    ----------
    name : str
        Of the file.
    stages : sequence of Sample
        With a time each, in the order of running.
    """
    shown = choose_stages(stages)
    total_ns = sum(float(stage.times_ns.mean()) for stage in stages)

    def draw(figure: Any, layout: Layout) -> None:
        height = 92 + 27 * len(shown)
        (panel,) = layout.panels(figure, 1, height, narrow_px=height)
        _draw_boxes(panel, shown, total_ns, narrow=layout.narrow)
        rest = len(stages) - len(shown)
        if rest:
            left_ns = sum(
                float(s.times_ns.mean()) for s in stages if not any(s is kept for kept in shown)
            )
            panel.set_title(
                f"the {len(shown)} longest; {format_count(rest, 'other')} together "
                f"{format_digits(left_ns / 1e6)} ms on average",
                fontweight="normal",
            )

    longest = max(stages, key=lambda stage: float(stage.times_ns.mean()))
    alt = f"Execution times of {len(stages)} stages; {dict(longest.key)['stage']} is the longest"
    return render(name, alt, draw)


def _draw_boxes(panel: Any, stages: Sequence[Sample], total_ns: float, *, narrow: bool) -> None:
    rows = np.arange(len(stages))[::-1]
    highest = 0.0
    shown: tuple[str, ...] = ()
    for row, stage in zip(rows, stages, strict=True):
        ordered = np.sort(stage.times_ns) / 1e6
        p1, p25, p50, p75, p99 = (
            float(ordered[max(0, math.ceil(q * len(ordered)) - 1)])
            for q in (0.01, 0.25, 0.5, 0.75, 0.99)
        )
        top = float(ordered[-1])
        highest = max(highest, top)
        panel.plot([p1, p99], [row, row], color=MEASURED, lw=1.2, zorder=3)
        for edge in (p1, p99):
            panel.plot([edge, edge], [row - 0.16, row + 0.16], color=MEASURED, lw=1.2, zorder=3)
        panel.barh(row, p75 - p25, left=p25, height=0.56, color=MEASURED_PALE, lw=0, zorder=3)
        panel.plot([p50, p50], [row - 0.28, row + 0.28], color=INK, lw=1.8, zorder=4)
        panel.plot([top], [row], "o", ms=4.2, mfc="white", mec=MEASURED, mew=1.2, zorder=4)
        share = float(stage.times_ns.mean()) / total_ns if total_ns else 0.0
        figures = {
            "p50": format_digits(p50),
            "p99": format_digits(p99),
            "highest": format_digits(top),
            "share": format_share(share),
        }
        shown = ("p50", "share") if narrow else tuple(figures)
        _write_row(panel, row, [figures[column] for column in shown])
    _write_row(panel, len(stages) - 0.4, shown, bold=True)
    names = [shorten(dict(stage.key)["stage"], 18 if narrow else 44) for stage in stages]
    panel.set_yticks(rows, names)
    panel.set_ylim(-0.6, len(stages) - 0.4)
    panel.set_xlim(0, 1.04 * highest)
    panel.tick_params(axis="y", length=0, labelcolor=INK)
    clear_grid(panel, "y")
    panel.set_xlabel("execution time [ms]")


def _write_row(panel: Any, row: float, cells: Sequence[str], *, bold: bool = False) -> None:
    """Figures in columns to the right of the panel."""
    last = len(cells) - 1
    for place, cell in enumerate(cells):
        # The last column hangs on the layout, which keeps room for all of them.
        panel.annotate(
            cell if place < last else " " * 8 + cell,
            (1.0, row),
            xycoords=panel.get_yaxis_transform(),
            xytext=((place + 1) * _COLUMN_POINTS, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8.0,
            color=MUTED,
            fontweight="bold" if bold else "normal",
            annotation_clip=False,
        )


def shorten(text: str, length: int) -> str:
    """The end of a long name: layers differ there."""
    return text if len(text) <= length else "…" + text[1 - length :]
