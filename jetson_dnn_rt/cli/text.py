# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tables and figures for people; programs read the JSON."""

from __future__ import annotations

from collections.abc import Sequence

from jetson_dnn_rt.printable import make_printable

Cell = str | int | float | bool | None


def format_cell(value: Cell) -> str:
    """One decimal for times, a dash for what was not observed."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) >= 1.0 or value == 0.0 else f"{value:.2f}"
    return make_printable(str(value))


def format_figure(value: float | None, digits: int) -> str:
    """A number with `digits` decimals; a dash for what was not observed."""
    return "-" if value is None else f"{value:.{digits}f}"


def format_rows(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table in plain text: words to the left, figures to the right."""
    cells = [[format_cell(value) for value in row] for row in rows]
    widths = [max(len(column[i]) for column in [header, *cells]) for i in range(len(header))]
    left = [all(isinstance(row[i], str) for row in rows) for i in range(len(header))]

    def line(values: Sequence[str]) -> str:
        pairs = zip(values, widths, left, strict=True)
        return "  ".join(v.ljust(w) if to_left else v.rjust(w) for v, w, to_left in pairs).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, cells)])
