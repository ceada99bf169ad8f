# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Style of the figures: few colours, each with one meaning, in a wide and a narrow layout.

Red is the deadline and what is beyond it; blue is what was measured; purple is what is inferred.
The colours are safe for the colour-blind (Okabe & Ito; Paul Tol), and also differ in position.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jetson_dnn_rt.cli.figures import figure_settings
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.report.wording import format_digits
from jetson_dnn_rt.tasks import Outcome

INK, MUTED, GRID, PALE = "#1c2733", "#66727f", "#e6eaee", "#f4f6f8"
MEASURED, MEASURED_PALE = "#2b6cb0", "#a9c7e6"
DEADLINE = "#c62828"
BOUND = "#6d3fa0"
BEFORE = "#8d99a6"
BESIDE = "#e08e0b"
"""Time spent waiting for other tasks."""

CONDITION_COLORS = (BEFORE, "#2b6cb0", "#e08e0b", "#2a8c6f", "#b5488f", "#111111")
"""The first condition, and those compared with it."""

OUTCOME_COLORS = {
    Outcome.MET: MEASURED,
    Outcome.LATE: DEADLINE,
    Outcome.SKIPPED: "#e08e0b",
    Outcome.ABORTED: "#b5488f",
    Outcome.SUPERSEDED: "#8d99a6",
    Outcome.FAILED: "#111111",
}
VARIANT_COLORS = ("#2b6cb0", "#e08e0b", "#2a8c6f", "#8d99a6")
"""The three most used variants, and all others."""

PIXELS_PER_INCH = 100
_SCALE = 2
"""Device pixels per page pixel: sharp on a phone and on paper."""

_KEY_SIZE = 8.2
_PADDING: dict[str, Any] = {"w_pad": 0.06, "h_pad": 0.06, "wspace": 0.03, "hspace": 0.04}

_SETTINGS = {
    "font.family": "DejaVu Sans",
    "font.size": 8.8,
    "axes.titlesize": 9.2,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8.0,
    "axes.titlecolor": INK,
    "axes.labelsize": 8.8,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": "#b6bfc8",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    **dict.fromkeys(("xtick.color", "ytick.color"), "#b6bfc8"),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), MUTED),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 8.4),
    "text.color": INK,
    "lines.linewidth": 1.6,
    "figure.facecolor": "white",
}


@dataclass(frozen=True)
class Layout:
    """Width a figure is drawn for, and the number of panels side by side."""

    width_px: int
    columns: int

    @property
    def narrow(self) -> bool:
        """Whether it is the layout for a phone."""
        return self.columns == 1

    def panels(
        self, figure: Any, count: int, height_px: int, narrow_px: int, widths: Sequence[float] = ()
    ) -> list[Any]:
        """Set the figure's size and make panels: side by side, or stacked on a phone.

        `height_px` (on a phone `narrow_px`) is the height of one row of panels, `widths` are the
        relative widths of panels side by side.
        """
        columns = min(count, self.columns)
        rows = -(-count // columns)
        row_px = narrow_px if self.narrow else height_px
        figure.set_size_inches(self.width_px / PIXELS_PER_INCH, rows * row_px / PIXELS_PER_INCH)
        ratios = list(widths) if len(widths) == columns == count else [1.0] * columns
        grid = {"width_ratios": ratios}
        panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw=grid).ravel()
        for spare in panels[count:]:
            spare.remove()
        return list(panels[:count])


WIDE, NARROW = Layout(1040, 2), Layout(350, 1)


@dataclass(frozen=True)
class Picture:
    """Figure as PNG, for a screen and for a phone; `name` is its file name without suffix."""

    name: str
    wide: bytes
    narrow: bytes
    alt: str


Draw = Callable[[Any, Layout], None]


def require_matplotlib() -> Any:
    """Import matplotlib; ConfigurationError with the install line when it is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigurationError(
            "figures need matplotlib, which is not installed: pip install 'jetson_dnn_rt[plots]'"
        ) from error
    return matplotlib


def render(name: str, alt: str, draw: Draw) -> Picture:
    """Draw a figure in both layouts; `draw` draws into a figure in the given layout."""
    return Picture(name, _render(draw, WIDE), _render(draw, NARROW), alt)


def _render(draw: Draw, layout: Layout) -> bytes:
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.image import imsave

    with figure_settings(_SETTINGS):
        figure = Figure(dpi=_SCALE * PIXELS_PER_INCH, constrained_layout=_PADDING)
        canvas = FigureCanvasAgg(figure)
        draw(figure, layout)
        # `savefig` would draw everything twice, once for the layout alone.
        canvas.draw()
        file = io.BytesIO()
        nameless: dict[str, Any] = {"Software": None}
        imsave(file, np.asarray(canvas.buffer_rgba()), format="png", metadata=nameless)
    return file.getvalue()


def write_label(
    panel: Any,
    text: str,
    place: tuple[float, float],
    offset: tuple[float, float] = (0, 0),
    align: str = "left baseline",
    **style: Any,
) -> Any:
    """Write a text an offset in points away from a place; `align` is ``left center``."""
    ha, va = align.split()
    points = {"xytext": offset, "textcoords": "offset points"}
    return panel.annotate(text, place, ha=ha, va=va, **points, **{"fontsize": 8.4, **style})


def mark_deadline(
    panel: Any, deadline_ms: float, text: str = "", *, name: str = "deadline", top: float = 1.0
) -> None:
    """Draw a labelled red vertical line, or an arrow towards it when it is off the axis."""
    text = text or f"{name} {format_digits(deadline_ms)} ms"
    low, high = panel.get_xlim()
    across = panel.get_xaxis_transform()
    style: dict[str, Any] = {"color": DEADLINE, "fontsize": 8.4, "zorder": 6, "va": "top"}
    if low <= deadline_ms <= high:
        panel.axvline(deadline_ms, color=DEADLINE, lw=1.4, zorder=3)
        right = deadline_ms > low + 0.6 * (high - low)
        offset, align = ((-4, -3), "right top") if right else ((4, -3), "left top")
        style = {"color": DEADLINE, "zorder": 6, "xycoords": across}
        style["bbox"] = {"color": "white", "alpha": 0.8, "pad": 0.6}
        write_label(panel, text, (deadline_ms, top), offset, align, **style)
    elif deadline_ms > high:
        panel.text(high, top - 0.02, f"{text} →", ha="right", transform=across, **style)
    else:
        panel.text(low, top - 0.02, f"← {text}", ha="left", transform=across, **style)


def write_title(
    panel: Any,
    title: str,
    layout: Layout,
    key: Sequence[tuple[str, str]] = (),
    *,
    width: float = 1.0,
) -> None:
    """Write a title and, below it, a key of words in the colours of their marks; lines wrap.

    `width` is the panel's share of a wide figure; on a phone a panel has all of it.
    """
    width = 1.0 if layout.narrow else width
    room_px = layout.width_px * width - (100.0 if layout.narrow else 66.0)
    renderer = panel.figure.canvas.get_renderer()
    lines: list[list[tuple[float, str, str]]] = []
    at = room_px
    for text, color in key:
        length = _measure(renderer, text)
        if not lines or at + length > room_px:
            lines.append([])
            at = 0.0
        lines[-1].append((at, text, color))
        at += length + 14.0
    points = 72.0 / PIXELS_PER_INCH
    for number, line in enumerate(reversed(lines)):
        for start, text, color in line:
            offset = start * points, 6 + 12.5 * number
            style = {"xycoords": "axes fraction", "color": color, "fontsize": _KEY_SIZE}
            write_label(panel, text, (0, 1), offset, "left bottom", **style).set_in_layout(False)
    broken = "\n".join(textwrap.wrap(title, max(12, int(room_px / 7.4))))
    # A blank title reserves space for the key, which is not part of the layout.
    panel.set_title(broken or " ", pad=7.0 + 12.5 * len(lines) - (0 if broken else 12.0))


def _measure(renderer: Any, text: str) -> float:
    """Width of a text of a key, in pixels of the page."""
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family="DejaVu Sans", size=_KEY_SIZE)
    width, _, _ = renderer.get_text_width_height_descent(text, font, False)
    return float(width) / _SCALE


def name_rows(panel: Any, names: Sequence[str], below: float, above: float) -> Any:
    """Label the rows of a horizontal figure, keep only its vertical grid lines; return the rows.

    The first is at the top; `below` and `above` are the space up to the edges of the panel.
    """
    rows = np.arange(len(names))[::-1]
    panel.set_yticks(rows, names)
    panel.set_ylim(-below, len(names) - 1 + above)
    panel.tick_params(axis="y", length=0, labelcolor=INK)
    panel.grid(False, axis="y")
    return rows


def format_thousands(value: float, _position: int = 0) -> str:
    """Format a tick of an axis of counts."""
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def use_log_shares(panel: Any, floor: float) -> None:
    """Give a panel a logarithmic vertical axis of shares, from all frames down to `floor`."""
    from matplotlib.ticker import NullLocator

    panel.set_yscale("log")
    panel.set_ylim(floor, 1.6)
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(format_ratio)


def format_ratio(share: float, _position: int = 0) -> str:
    """Format a tick of a logarithmic axis of shares: ``1 in 1,000``."""
    if share >= 0.999:
        return "all"
    if share >= 9.99e-7:
        return f"1 in {round(1 / share):,}"
    return f"$10^{{{round(math.log10(share))}}}$"
