# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Report page: one self-contained HTML file, and its figures as files."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jetson_dnn_rt import __version__
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.report.advice import describe_task
from jetson_dnn_rt.lab.report.budgets import HIGHEST
from jetson_dnn_rt.lab.report.conditions import Shift
from jetson_dnn_rt.lab.report.figures import VERDICTS
from jetson_dnn_rt.lab.report.recording import Recording, TaskColumns, quantile
from jetson_dnn_rt.lab.report.report import Report, make_stem
from jetson_dnn_rt.lab.report.style import NARROW, WIDE
from jetson_dnn_rt.lab.report.wording import (
    format_count,
    format_deadlines,
    format_digits,
    format_duration,
    format_every,
    format_exceedance,
    format_ms,
    format_share,
)
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.summary import has_quantile

if TYPE_CHECKING:
    from markupsafe import Markup

PAGE, FIGURES = "report.html", "figures"

_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|µs|s|min|h)\b|%)")
Cell = str | tuple[str, ...]
"""A text, or text, level and remainder of a badge."""
Rows = list[list[Cell]]


def require_jinja2() -> Any:
    """Import jinja2; ConfigurationError with the install line when it is missing."""
    try:
        import jinja2
    except ImportError as error:
        raise ConfigurationError(
            "reports need jinja2, which is not installed: pip install 'jetson_dnn_rt[plots]'"
        ) from error
    return jinja2


def write_report(report: Report, folder: Path) -> tuple[Path, list[Path]]:
    """Write page and figures; files of an earlier report with the same names are replaced.

    Raises
    ------
    ConfigurationError
        When the folder cannot be written.
    """
    try:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
        files = []
        for picture in report.pictures:
            file = folder / FIGURES / f"{picture.name}.png"
            file.write_bytes(picture.wide)
            files.append(file)
        page = folder / PAGE
        page.write_text(make_page(report), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigurationError(f"cannot write {folder}: {error.strerror}") from error
    return page, files


def make_page(report: Report) -> str:
    """Fill in ``page.html``; everything that is not `Markup` is escaped."""
    jinja2 = require_jinja2()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: keep_units(value) if type(value) is str else value,
    )
    environment.tests["finite"] = math.isfinite
    environment.filters |= {
        "base64": lambda png: base64.b64encode(png).decode("ascii"),
        "behind": lambda text, first: first + text,
        "capital": lambda text: text[:1].upper() + text[1:],
        "code": mark_code,
        "deadlines": format_deadlines,
        "digits": format_digits,
        "every": format_every,
        "median": np.median,
        "ms": format_ms,
        "p_value": format_p_value,
        "rarity": format_exceedance,
        "share": format_share,
        "stem": make_stem,
        "thousands": lambda number: f"{number:,}",
    }
    environment.globals |= {
        "count": format_count,
        "count_cut_off": lambda task: task.count(Outcome.SKIPPED) + task.count(Outcome.ABORTED),
        "describe_task": describe_task,
        "has_quantile": has_quantile,
        "highest": HIGHEST,
        "narrow_px": NARROW.width_px,
        "summarize_response": _summarize_response,
        "tabulate_shifts": _tabulate_shifts,
        "verdicts": VERDICTS,
        "version": __version__,
        "wide_px": WIDE.width_px,
    }
    page = environment.get_template("page.html").render(
        report=report,
        first=report.first,
        headline=_describe_misses(report),
        where=_describe_recording(report.first),
        met={
            item.task.name: (item.task.count(Outcome.MET), len(item.task)) for item in report.tasks
        },
        aborted=sum(item.task.count(Outcome.ABORTED) for item in report.tasks),
        setup=_list_setup(report.first),
    )
    return str(page).lstrip()


# -- Text ----------------------------------------------------------------------------------------


def keep_units(text: str) -> str:
    """Put no-break spaces between numbers and their units."""
    return _UNIT.sub("\u00a0", text)


def mark_code(text: str) -> Markup:
    """Mark commands between backquotes as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(keep_units(text)))))


def format_p_value(value: float) -> str:
    """Format a p value; small ones only as an upper limit."""
    if not math.isfinite(value):
        return "–"
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _describe_misses(report: Report) -> str:
    tasks = [item.task for item in report.tasks]
    count, missed = sum(map(len, tasks)), sum(int(task.missed.sum()) for task in tasks)
    of = f"{format_count(count, 'frame')} of {format_count(len(tasks), 'task')}"
    if not missed:
        return f"All {of} had their result in time."
    text = f"{missed:,} of {of} had no result in time ({format_share(missed / count)})"
    worst = max(tasks, key=lambda task: float(task.missed.mean()))
    if len(tasks) > 1:
        text += f"; {worst.name} misses most, {format_share(float(worst.missed.mean()))}"
    return text + "."


def _describe_recording(recording: Recording) -> str:
    machine, platform = recording.metadata.machine, recording.metadata.platform
    words = [f"{format_duration(recording.span_ns)} recorded"]
    if recording.metadata.source:
        words[0] += f" by {recording.metadata.source}"
    words += [str(machine[key]) for key in ("cpu", "gpu") if machine.get(key)]
    words += [str(platform[key]) for key in ("title", "power_mode") if platform.get(key)]
    return " · ".join(dict.fromkeys(words))


def _summarize_response(task: TaskColumns) -> dict[str, Any] | None:
    """Compute quantiles of the response, and the places of the card's bar."""
    response = np.sort(task.response_ns[task.finished & ~task.warm_up])
    if not len(response):
        return None
    p1, p50, p99, slowest = (quantile(response, q) for q in (0.01, 0.5, 0.99, 1.0))
    deadline = task.usual_deadline_ns
    full = 1.12 * max(deadline, min(slowest, 3 * deadline))
    left, middle, right, limit = (min(100.0, 100.0 * t / full) for t in (p1, p50, p99, deadline))
    return {
        "p50": p50,
        "p99": p99 if has_quantile(len(response), 0.99) else None,
        "count": len(response),
        "slowest": slowest,
        "left": f"{left:.1f}%",
        "width": f"{max(0.6, right - left):.1f}%",
        "middle": f"{middle:.1f}%",
        "limit": f"{limit:.1f}%",
        # The deadline's name goes on the side that has room for it.
        "limit_name": f"right:{100.0 - limit:.1f}%" if limit > 55.0 else f"left:{limit:.1f}%",
    }


def _tabulate_shifts(label: str, group: list[Shift]) -> tuple[list[str], Rows]:
    names = list(dict.fromkeys(name for shift in group for name in shift.times_ns))

    def list_cells(condition: str, runs: int, times: dict[str, str], missed: float) -> list[Cell]:
        cells = [times.get(name, "–") for name in names]
        return [condition, f"{runs:,}", *cells, format_share(missed)]

    first = group[0]
    before = {name: format_ms(time_ns) for name, (time_ns, _) in first.times_ns.items()}
    rows = [list_cells(label, len(first.before), before, first.missed[0])]
    for shift in group:
        after = {
            name: f"{format_ms(time_ns)} (×{format_digits(shift.ratio(name))})"
            for name, (_, time_ns) in shift.times_ns.items()
        }
        rows.append(list_cells(shift.condition, len(shift.after), after, shift.missed[1]))
    return ["condition", "runs", *names, "missed"], rows


def _list_setup(recording: Recording) -> Rows:
    metadata = recording.metadata
    groups = ("machine", "platform", "parameters")
    rows = [row for group in groups for row in _flatten(group, getattr(metadata, group))]
    for name, setting in metadata.realtime.items():
        granted, detail = setting, ""
        if isinstance(setting, Mapping):
            granted, detail = setting.get("applied"), setting.get("detail", "")
        pill = ("applied", "good") if granted else ("not applied", "warn")
        rows.append([f"real time: {name}", (*pill, f" {detail}")])
    for name, task in metadata.tasks.items():
        text = f"{task.model}, SHA-256 {task.model_hash[:16] or 'unknown'}, from {task.camera}"
        rows.append([f"task: {name}", text])
    return rows


def _flatten(title: str, fields: Mapping[str, Any]) -> Rows:
    rows: Rows = []
    for key, value in fields.items():
        if isinstance(value, Mapping):
            rows += _flatten(f"{title}: {key}", value)
        elif value not in (None, "", [], {}):
            rows.append([f"{title}: {key}", str(value)])
    return rows
