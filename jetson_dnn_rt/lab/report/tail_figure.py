"""Distribution of execution times, and how often they are longer: the tail on a log scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jetson_dnn_rt.lab.report.style import (
    BOUND,
    INK,
    MEASURED,
    MUTED,
    PALE,
    Layout,
    Picture,
    clear_grid,
    format_thousands,
    mark_deadline,
    render,
    use_log_shares,
    write_title,
)
from jetson_dnn_rt.lab.report.wording import format_count, format_digits, format_ms
from jetson_dnn_rt.lab.wcet.samples import Sample
from jetson_dnn_rt.lab.wcet.statement import Campaign, Support

BINS = 70
POINTS = 1500
"""Of a survival curve: more would not be seen."""


def draw_tail(name: str, sample: Sample, campaign: Campaign | None) -> Picture:
    """Draw both panels of a campaign.

    Parameters
    ----------
    name : str
        Of the file.
    sample : Sample
        At least one time.
    campaign : Campaign or None
        Its bounds; None when nothing was said about it.
    """
    ordered_ms = np.sort(sample.times_ns) / 1e6
    deadline_ms = sample.deadline_ns / 1e6

    def draw(figure: Any, layout: Layout) -> None:
        left, right = layout.panels(figure, 2, 350, widths=(1.0, 1.25), narrow_px=300)
        _draw_distribution(left, ordered_ms, deadline_ms, layout)
        _draw_survival(right, ordered_ms, deadline_ms, campaign, layout)
        if not layout.narrow:
            right.set_ylabel("share of frames that take longer")

    alt = (
        f"Execution times of {sample.title}: {format_count(len(sample), 'frame')}, "
        f"highest seen {format_ms(ordered_ms[-1] * 1e6)}"
    )
    return render(name, alt, draw)


def _quantile(ordered: Any, quantile: float) -> float:
    return float(ordered[math.ceil(quantile * len(ordered)) - 1])


def _draw_distribution(panel: Any, ordered_ms: Any, deadline_ms: float, layout: Layout) -> None:
    count = len(ordered_ms)
    p50, p99 = _quantile(ordered_ms, 0.5), _quantile(ordered_ms, 0.99)
    low = float(ordered_ms[0])
    # Rare slow frames belong to the other panel: here they would flatten everything else.
    high = min(float(ordered_ms[-1]), max(_quantile(ordered_ms, 0.998), low + 3.0 * (p50 - low)))
    margin = max(0.04 * (high - low), 0.01 * high, 1e-6)
    edges = np.linspace(low - margin / 2, high + margin / 2, min(BINS, max(8, count // 4)) + 1)
    panel.hist(ordered_ms, bins=edges, color=MEASURED, alpha=0.85, lw=0)
    panel.set_xlim(low - 2 * margin, high + 3 * margin)
    panel.margins(y=0.2)
    clear_grid(panel, "x")
    for value, text in ((p50, "p50"), (p99, "p99")):
        panel.axvline(value, color=INK, lw=1.0, ls=(0, (3, 2)), ymax=0.86)
        panel.annotate(
            f"{text}\n{format_digits(value)}",
            (value, 0.87),
            xycoords=panel.get_xaxis_transform(),
            ha="center",
            va="bottom",
            fontsize=8.2,
            linespacing=1.1,
            zorder=6,
            bbox={"color": "white", "pad": 0.8},
        )
    beyond = int(np.count_nonzero(ordered_ms > edges[-1]))
    title = "Most frames"
    if beyond:
        title += f" ({format_count(beyond, 'slower one')} not shown)"
    write_title(panel, title, layout, width=1.0 if layout.narrow else 0.45)
    panel.set_xlabel("execution time [ms]")
    panel.set_ylabel("frames")
    panel.yaxis.set_major_formatter(format_thousands)
    if deadline_ms and low <= deadline_ms <= panel.get_xlim()[1]:
        mark_deadline(panel, deadline_ms, f"deadline {format_digits(deadline_ms)}", top=0.8)


def survival(ordered: Any, points: int = POINTS) -> tuple[Any, Any]:
    """Times, and the share of values that are at least as long.

    Parameters
    ----------
    ordered : [N]
        Ascending.
    points : int
        At most about so many: all of the tail, thinned out where the curve is dense.

    Returns
    -------
    times, shares : ndarray, [M]
    """
    count = len(ordered)
    if count > points:
        ranks = np.geomspace(1, count, points)
        places = np.unique(count - np.minimum(count, np.round(ranks)).astype(np.int64))
    else:
        places = np.arange(count)
    return ordered[places], (count - places) / count


def _draw_survival(
    panel: Any,
    ordered_ms: Any,
    deadline_ms: float,
    campaign: Campaign | None,
    layout: Layout,
) -> None:
    count = len(ordered_ms)
    times, shares = survival(ordered_ms)
    highest = float(ordered_ms[-1])
    bounds = [b for b in campaign.bounds if math.isfinite(b.upper_ns)] if campaign else []
    rightmost = max([highest, *(b.upper_ns / 1e6 for b in bounds)])
    low = float(ordered_ms[0])
    span = max(rightmost - low, 0.02 * rightmost, 1e-6)
    right = rightmost + 0.2 * span
    if deadline_ms and rightmost < deadline_ms < rightmost + 0.6 * span:
        right = deadline_ms + 0.06 * span
    panel.set_xlim(low - 0.04 * span, right)
    floor = min([1.0 / count, *(b.exceedance for b in bounds)]) / 6.0
    use_log_shares(panel, floor)
    panel.axhspan(floor, 1.0 / count, color=PALE, zorder=0, lw=0)
    panel.text(
        0.012,
        0.03,
        f"rarer than 1 in {count:,}: never seen",
        transform=panel.transAxes,
        color=MUTED,
        fontsize=8.0,
        va="bottom",
        zorder=6,
        bbox={"color": PALE, "pad": 0.6},
    )
    panel.plot(times, shares, color=MEASURED, drawstyle="steps-post", zorder=4)
    panel.plot([highest], [1.0 / count], "o", color=MEASURED, ms=6, zorder=5)
    crowded = highest > low + 0.4 * (right - low)
    panel.annotate(
        f"highest seen {format_digits(highest)} ms",
        (highest, 1.0 / count),
        xytext=(-7, -2) if crowded else (8, 0),
        textcoords="offset points",
        ha="right" if crowded else "left",
        va="top" if crowded else "center",
        color=MEASURED,
        fontsize=8.4,
        zorder=6,
        bbox={"color": PALE, "pad": 0.6},
    )
    if campaign:
        _draw_bounds(panel, campaign)
    if deadline_ms:
        mark_deadline(panel, deadline_ms, f"deadline {format_digits(deadline_ms)} ms")
    key = []
    if campaign and bounds:
        key = [(f"◆ pWCET, upper bound at {100 * campaign.confidence:.0f} %", BOUND)]
    elif campaign and campaign.support is Support.UNPROVEN:
        key = [("unproven: no bound is given", BOUND)]
    width = 1.0 if layout.narrow else 0.55
    write_title(panel, "How often a frame takes longer", layout, key, width=width)
    panel.set_xlabel("execution time [ms]")


def _draw_bounds(panel: Any, campaign: Campaign) -> None:
    bounds = [bound for bound in campaign.bounds if math.isfinite(bound.upper_ns)]
    if not bounds:
        return
    tops = [bound.upper_ns / 1e6 for bound in bounds]
    panel.plot(tops, [b.exceedance for b in bounds], color=BOUND, lw=1.2, ls=(0, (4, 2)), zorder=3)
    for bound, top in zip(bounds, tops, strict=True):
        backed = bound.support is Support.SUPPORTED
        if math.isfinite(bound.estimate_ns):
            panel.plot(
                [bound.estimate_ns / 1e6, top], [bound.exceedance] * 2, color=BOUND, lw=1, zorder=3
            )
        panel.plot(
            [top],
            [bound.exceedance],
            "D",
            ms=6,
            color=BOUND,
            mfc=BOUND if backed else "white",
            zorder=5,
        )
        panel.annotate(
            format_digits(top),
            (top, bound.exceedance),
            xytext=(6, 5),
            textcoords="offset points",
            color=BOUND,
            fontsize=8.4,
            fontweight="bold",
            zorder=6,
        )
