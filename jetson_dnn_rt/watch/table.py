# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The tasks of a graph as a table: plain text for files, colours and bars for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jetson_dnn_rt.cli.text import Cell, format_cell, format_rows
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.watch.graph import CoordinatorView, GraphView, TaskView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

BAR_WIDTH = 12
"""Characters from 0 to the deadline."""

OVERRUN_WIDTH = 4
"""Characters past the deadline."""

GAP = 2
"""Characters between two columns."""

NEAR = 0.8
"""Share of the deadline from which on a response is shown as close to it."""

NO_TASK = "no task found yet: does the graph run, with this ROS_DOMAIN_ID and namespace?"


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    title: str
    value: Callable[[TaskView], Cell]
    rank: int = 0
    """Where a terminal is too narrow for all columns those with the highest are left out."""
    miss: bool = False  # a number other than 0 is bad
    optional: bool = False  # left out where no task has a value


def _count(outcome: Outcome) -> Callable[[TaskView], Cell]:
    return lambda task: task.counts[outcome.value]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _number(key: str) -> Callable[[TaskView], Cell]:
    return lambda task: _known(getattr(task, key))


BAR = "response / deadline"

COLUMNS = (
    Column("task", lambda task: task.name),
    Column("Hz", _number("rate_hz")),
    Column("met", _count(Outcome.MET)),
    Column("late", _count(Outcome.LATE), miss=True),
    Column("skipped", _count(Outcome.SKIPPED), miss=True),
    Column("aborted", _count(Outcome.ABORTED), miss=True),
    Column("failed", _count(Outcome.FAILED), miss=True),
    Column("superseded", _count(Outcome.SUPERSEDED), 9),
    Column("violated", lambda task: task.violations, 10, miss=True, optional=True),
    Column("p50 ms", _number("p50_ms"), 7),
    Column("p99 ms", _number("p99_ms"), 3),
    Column("max ms", _number("hwm_ms"), 6),
    Column("deadline", _number("deadline_ms"), 2),
    Column(BAR, lambda task: _known(task.response_ms), 4),
    Column("variant", lambda task: task.variant or None, 5),
    Column("budget", _number("budget_ms"), 8),
    Column("age s", lambda task: _known(task.age_s) if task.present else "gone", 1),
)


def format_view(view: GraphView) -> str:
    """Format everything as plain text, without colours and bars."""
    lines = [line for line, _ in _notes(view)]
    if view.tasks:
        columns = _choose(view)
        rows = [[column.value(task) for column in columns] for task in view.tasks]
        lines = [format_rows([column.title for column in columns], rows), *lines]
    return "\n".join(lines)


def _choose(view: GraphView) -> list[Column]:
    """Choose the columns that have something to say."""
    return [
        column
        for column in COLUMNS
        if not column.optional or any(column.value(task) is not None for task in view.tasks)
    ]


def _notes(view: GraphView) -> list[tuple[str, str]]:
    """Lines below the table, each with its style."""
    lines = [] if view.tasks else [(NO_TASK, "yellow")]
    lines += [(describe_coordinator(one), "") for one in view.coordinators]
    lines += [
        (f"{one.level} {one.name}: {one.message}", "red" if one.level == "ERROR" else "yellow")
        for one in view.warnings
    ]
    if view.dropped:
        reasons = ", ".join(f"{count} ({reason})" for reason, count in view.dropped.items())
        lines.append((f"messages not used: {reasons}", "yellow"))
    return lines


def describe_coordinator(one: CoordinatorView) -> str:
    """Describe what a coordinator decided, in a line."""
    parts = [f"{one.name}: {one.policy or '-'}"]
    parts += [f"{task} {variant}" for task, variant in one.choices.items()]
    if one.clocks:
        parts.append(f"clocks {one.clocks}")
    if not math.isnan(one.power_w):
        parts.append(f"{one.power_w:.1f} W")
    if not math.isnan(one.decisions_per_s):
        parts.append(f"{one.decisions_per_s:.0f} decisions/s")
    return "; ".join(parts)


def open_console() -> Console:
    """Open the terminal; rich is imported here, since only this needs it."""
    try:
        from rich.console import Console
    except ImportError as error:
        raise JetsonDnnRtError(
            "the live table needs rich, which is not installed: pip install "
            "'jetson_dnn_rt[watch]', or apt install python3-rich; --once, --json and --web do "
            "without it"
        ) from error
    return Console(highlight=False, markup=False, emoji=False)


def render_view(view: GraphView, console: Console) -> RenderableType:
    """Render everything for a terminal, with the columns that it has room for."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    plain = console.options.ascii_only
    columns = _choose(view)
    cells = {
        column: [_render_cell(column, task, plain) for task in view.tasks] for column in columns
    }
    widths = {
        column: GAP + max(len(column.title), *(text.cell_len for text in texts), 0)
        for column, texts in cells.items()
    }
    room = console.width
    shown = set()
    for column in sorted(columns, key=lambda column: column.rank):
        if (room := room - widths[column]) < 0:
            break
        shown.add(column)
    table = Table(box=None, padding=(0, GAP, 0, 0), header_style="bold underline")
    for column in (column for column in columns if column in shown):
        words = column.title in ("task", "variant", BAR)
        table.add_column(column.title, justify="left" if words else "right", no_wrap=True)
    for row in zip(*(cells[column] for column in columns if column in shown), strict=True):
        table.add_row(*row)
    head = Text("jetson-dnn-rt top", style="bold")
    head.append(f"  {len(view.tasks)} tasks, last 60 s (max: since first seen); Ctrl-C ends\n")
    return Group(head, table, "", *(Text(line, style=style) for line, style in _notes(view)))


def _render_cell(column: Column, task: TaskView, plain: bool) -> Text:
    from rich.text import Text

    text = format_cell(column.value(task))
    if column.title == BAR:
        return _render_bar(task, plain)
    style = ""
    if not task.present:
        style = "dim"
    elif column.miss and text not in ("0", "-"):
        style = "bold red"
    elif column.title == "task" and task.age_s > max(1.0, 5.0 / (task.rate_hz or 1.0)):
        style = "yellow"
    return Text(text, style=style)


def _render_bar(task: TaskView, plain: bool) -> Text:
    """Draw the last response time, with a mark at the deadline, and in figures."""
    from rich.text import Text

    ratio = task.response_ms / task.deadline_ms if task.deadline_ms else math.nan
    if math.isnan(ratio):
        return Text("-")
    full, empty, mark = ("#", ".", "|") if plain else ("█", "·", "│")
    width = BAR_WIDTH + OVERRUN_WIDTH
    length = min(width, math.ceil(ratio * BAR_WIDTH))
    bar = full * length + empty * (width - length)
    style = "red" if ratio > 1.0 else "yellow" if ratio > NEAR else "green"
    if not task.present:
        style = "dim"
    past = bar[BAR_WIDTH:].replace(empty, " ")
    figure = f"{format_cell(task.response_ms):>7}"
    return Text.assemble((bar[:BAR_WIDTH], style), (mark, "bold"), (past, style), figure)
