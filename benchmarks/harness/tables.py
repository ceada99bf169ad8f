# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Reports of benchmarks: lines and tables, as text for a terminal or as Markdown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from jetson_dnn_rt.cli.text import Cell, format_cell, format_rows


@dataclass(frozen=True)
class Table:
    """Table of cells in columns, optionally with a line of text above it."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]


Report = Sequence[str | Table]

UNDECIDED: Final = "not decided"
Verdict: TypeAlias = "bool | Literal['not decided'] | None"
"""What ``passed`` of a result is: True, False, `UNDECIDED` where the rounds do not tell (see
`benchmarks.harness.intervals`), None where there is no bar, or nothing to judge. A text is true:
compare, or use `judge_all`."""


def tabulate(rows: Iterable[Any], *columns: str | tuple[str, Any]) -> Table:
    """Make a table of mappings.

    A column is ``heading=path.to.key:format``, of which heading and format may be left out, or a
    pair of a heading and a function from a row to its cell. A text may have several columns,
    separated by commas. A key that is missing, or None, is a dash.
    """
    pairs: list[tuple[str, Any]] = []
    for column in columns:
        if isinstance(column, str):
            for text in column.split(", "):
                heading, _, path = text.rpartition("=")
                pairs.append((heading or path.partition(":")[0], path))
        else:
            pairs.append(column)
    cells = [[_make_cell(row, column) for _, column in pairs] for row in rows]
    return Table([heading for heading, _ in pairs], cells)


def flatten(rows: Mapping[str, Any], key: str = "name") -> list[dict[str, Any]]:
    """Convert mappings by name to rows that include the name."""
    return [{key: name, **row} for name, row in rows.items()]


def find(row: Any, path: str) -> Any:
    """Find the value at ``path.to.key``; None if there is none."""
    for key in path.split("."):
        row = row.get(key) if isinstance(row, Mapping) else None
    return row


def _make_cell(row: Any, column: Any) -> Cell:
    if callable(column):
        value: Cell = column(row)
        return value
    path, _, style = column.partition(":")
    value = find(row, path)
    return value if value is None or not style else format(value, style)


_VERDICTS: dict[Verdict, str] = {
    True: "passed",
    False: "NOT passed",
    UNDECIDED: UNDECIDED,
    None: "not judged",
}
VERDICTS = tuple(_VERDICTS.values())
"""All that `say_verdict` says."""


def say_verdict(passed: Verdict) -> str:
    """Say whether the bars were met."""
    return _VERDICTS[passed]


def say_shortly(passed: Verdict) -> str:
    """Say the same in a cell of a table."""
    return {True: "yes", False: "NO", UNDECIDED: UNDECIDED, None: "-"}[passed]


def say_bars(bars: str, passed: Verdict) -> str:
    """Say what the bars are, and whether they were met; docs/figures.md lists these lines."""
    return f"bars: {bars}: {say_verdict(passed)}"


def judge_all(verdicts: Iterable[Verdict]) -> Verdict:
    """Whether all bars were met for which there was something to judge; None if for none.

    One that was missed decides; otherwise one that is not decided.
    """
    known = [verdict for verdict in verdicts if verdict is not None]
    if not known:
        return None
    return False if False in known else UNDECIDED if UNDECIDED in known else True


def to_text(report: Report) -> str:
    """Format a report as text for a terminal."""
    return "\n\n".join(
        part if isinstance(part, str) else format_rows(part.header, part.rows)
        for part in report
        if part
    )


def to_markdown(report: Report) -> str:
    """Format a report as Markdown; the lines of a text stay lines."""
    return "\n\n".join(_mark(part) for part in report if part)


def _mark(part: str | Table) -> str:
    if isinstance(part, str):
        return "  \n".join(line.strip() for line in part.splitlines())
    lines = [part.header, ["---"] * len(part.header)]
    lines += [[format_cell(cell).replace("|", "\\|") for cell in row] for row in part.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(result: Mapping[str, Any], path: Path) -> None:
    """Write a result as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def say(text: str) -> None:
    """Write a line of progress to stderr."""
    print(text, file=sys.stderr, flush=True)
