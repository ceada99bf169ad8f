"""The page: one HTML file with everything in it, and its figures as files."""

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
from jetson_dnn_rt.lab.report.budgets import HIGHEST, P99, Schedulability
from jetson_dnn_rt.lab.report.conditions import Shift
from jetson_dnn_rt.lab.report.figures import VERDICTS
from jetson_dnn_rt.lab.report.recording import Recording, TaskColumns, quantile
from jetson_dnn_rt.lab.report.report import Report
from jetson_dnn_rt.lab.report.style import NARROW, WIDE
from jetson_dnn_rt.lab.report.wording import (
    format_count,
    format_digits,
    format_duration,
    format_every,
    format_exceedance,
    format_ms,
    format_share,
)
from jetson_dnn_rt.lab.wcet.comparison import Change
from jetson_dnn_rt.lab.wcet.statement import Campaign, Support
from jetson_dnn_rt.scheduling.analysis import Verdict
from jetson_dnn_rt.tasks import Outcome

if TYPE_CHECKING:
    from markupsafe import Markup

PAGE, FIGURES = "report.html", "figures"

PHONE_PX = 700
"""Up to this width the narrow figures are shown."""
MANY_MISSES = 0.01
"""Share of misses from which the badge is red."""
SINGLE_CLUSTERS = 0.8
"""Extremal index from which clusters are not worth mentioning."""

LEVELS = {Support.SUPPORTED: "good", Support.EXTRAPOLATED: "info", Support.UNPROVEN: "warn"}
MEANINGS = {
    Support.SUPPORTED: "The runs themselves reach this far: enough of them were this slow.",
    Support.EXTRAPOLATED: (
        "All tests passed, but frames this slow were hardly or never seen: the figure rests on "
        "the curve that was fitted to the tail."
    ),
    Support.UNPROVEN: (
        "A condition that every bound rests on does not hold, or there are too few runs. No bound "
        "is given: the highest time seen is all that is known, and it is no worst case."
    ),
}
CHANGES = {
    Change.WORSE: ("tail is worse", "bad"),
    Change.NO_WORSE: ("tail is no worse", "good"),
    Change.UNDECIDED: ("undecided", "warn"),
}

_UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|µs|s|min|h)\b|%)")
Rows = list[list[str]]


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
        page.write_text(make_page(report), encoding="utf-8")
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
        "anchor": anchor,
        "capital": lambda text: text[:1].upper() + text[1:],
        "code": mark_code,
        "digits": format_digits,
        "ms": format_ms,
        "png": _data_address,
        "rarity": format_exceedance,
        "share": format_share,
        "thousands": lambda number: f"{number:,}",
    }
    environment.globals |= {
        "badge": badge,
        "changes": CHANGES,
        "count": format_count,
        "count_cut_off": lambda task: task.count(Outcome.SKIPPED) + task.count(Outcome.ABORTED),
        "describe_task": describe_task,
        "highest": HIGHEST,
        "judge_cohort": judge_cohort,
        "judge_misses": judge_misses,
        "levels": LEVELS,
        "list_bounds": _list_bounds,
        "list_choices": _list_choices,
        "list_cold": _list_cold,
        "list_tests": _list_tests,
        "meanings": MEANINGS,
        "narrow_px": NARROW.width_px,
        "phone_px": PHONE_PX,
        "single_clusters": SINGLE_CLUSTERS,
        "summarize_response": _summarize_response,
        "tabulate_needs": _tabulate_needs,
        "tabulate_shifts": _tabulate_shifts,
        "verdict_badge": _verdict_badge,
        "version": __version__,
        "wide_px": WIDE.width_px,
    }
    page = environment.get_template("page.html").render(
        report=report,
        first=report.first,
        headline=_describe_misses(report),
        where=_describe_recording(report.first),
        aborted=sum(item.task.count(Outcome.ABORTED) for item in report.tasks),
        setup=_list_setup(report.first),
    )
    return str(page).lstrip()


# -- Text ----------------------------------------------------------------------------------------


def keep_units(text: str) -> str:
    """Put no-break spaces between numbers and their units."""
    return _UNIT.sub("\u00a0", text)


def badge(text: str, level: str, after: str = "") -> Markup:
    """Make a coloured pill, with text after it; levels are good, warn, bad and info."""
    from markupsafe import Markup

    pill = Markup('<span class="badge {}">{}</span>').format(level, keep_units(text))
    return pill + keep_units(after)


def mark_code(text: str) -> Markup:
    """Mark commands between backquotes as code."""
    from markupsafe import Markup, escape

    pieces = [escape(keep_units(piece)) for piece in text.split("`")]
    pieces[1::2] = [Markup("<code>{}</code>").format(piece) for piece in pieces[1::2]]
    return Markup("").join(pieces)


def _data_address(png: bytes) -> Markup:
    from markupsafe import Markup

    return Markup("data:image/png;base64," + base64.b64encode(png).decode("ascii"))


def anchor(task: str) -> str:
    """Identify a task's section."""
    return "task-" + "".join(c if c.isalnum() else "-" for c in task)


def format_p_value(value: float) -> str:
    """Write a p value; small ones only as being small."""
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


# -- Judgements and places -----------------------------------------------------------------------


def judge_misses(task: TaskColumns) -> tuple[str, str]:
    """Return text and level of the badge of a task."""
    missed = int(task.missed.sum())
    if not missed:
        return "no frame missed", "good"
    share = missed / len(task)
    return f"{format_share(share)} missed", "bad" if share >= MANY_MISSES else "warn"


def judge_cohort(result: Schedulability) -> tuple[str, str]:
    """Return text and level of the badge of all tasks together."""
    if result.verdicts[HIGHEST].schedulable:
        return "fits", "good"
    fitting = [name for name, verdict in result.verdicts.items() if verdict.schedulable]
    if fitting:
        return f"fits up to {fitting[-1]}", "warn"
    verdict = result.verdicts[P99].schedulable
    return VERDICTS[verdict], "warn" if verdict is None else "bad"


def _verdict_badge(verdict: Verdict) -> Markup:
    level = {True: "good", False: "bad", None: "warn"}[verdict.schedulable]
    return badge(VERDICTS[verdict.schedulable], level)


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
        "p99": p99,
        "slowest": slowest,
        "left": f"{left:.1f}%",
        "width": f"{max(0.6, right - left):.1f}%",
        "middle": f"{middle:.1f}%",
        "limit": f"{limit:.1f}%",
        # The deadline's name stands on the side that has room for it.
        "limit_name": f"right:{100.0 - limit:.1f}%" if limit > 55.0 else f"left:{limit:.1f}%",
    }


# -- Tables --------------------------------------------------------------------------------------


def _list_bounds(campaign: Campaign, period_ns: int) -> Rows:
    from markupsafe import Markup

    return [
        [
            format_exceedance(bound.exceedance),
            Markup("<b>{}</b>").format(keep_units(format_ms(bound.upper_ns))),
            format_ms(bound.estimate_ns),
            badge(bound.support.value, LEVELS[bound.support], f" {bound.method}"),
            format_every(bound.exceedance, period_ns) or "–",
        ]
        for bound in campaign.bounds
    ]


def _list_tests(campaign: Campaign) -> Rows:
    return [
        [
            test.name,
            badge("passed", "good") if test.passed else badge("failed", "bad"),
            test.meaning,
            format_p_value(test.p_value),
        ]
        for test in sorted(campaign.tests, key=lambda test: test.passed)
    ]


def _list_cold(report: Report) -> Rows:
    return [
        [
            sample.title,
            f"{len(times):,}",
            format_ms(float(np.median(times))),
            format_ms(float(times.max())),
        ]
        for sample, times in report.cold
    ]


def _tabulate_shifts(label: str, group: list[Shift]) -> tuple[list[str], Rows]:
    names = list(dict.fromkeys(name for shift in group for name in shift.times_ns))
    first = group[0]
    before = {name: format_ms(times_ns[0]) for name, times_ns in first.times_ns.items()}
    cells = [before.get(name, "–") for name in names]
    rows = [[label, f"{len(first.before):,}", *cells, format_share(first.missed[0])]]
    for shift in group:
        after = {
            name: f"{format_ms(times_ns[1])} (×{format_digits(shift.ratio(name))})"
            for name, times_ns in shift.times_ns.items()
        }
        cells = [after.get(name, "–") for name in names]
        missed = format_share(shift.missed[1])
        rows.append([shift.condition, f"{len(shift.after):,}", *cells, missed])
    return ["condition", "runs", *names, "missed"], rows


def _tabulate_needs(result: Schedulability) -> tuple[list[str], Rows]:
    def describe(least_ns: int | None, deadline_ns: int) -> Markup:
        if least_ns is None:
            return badge("none would fit", "bad")
        return badge(format_ms(least_ns), "good" if least_ns <= deadline_ns else "bad")

    header = ["task", "every", "deadline", *(f"budget {name}" for name in result.verdicts)]
    header += [f"least deadline, {name}" for name in (P99, HIGHEST)]
    rows = [
        [
            f"{task}, {needs.variant}",
            format_ms(needs.period_ns),
            format_ms(needs.deadline_ns),
            *(format_ms(needs.budgets_ns[name]) for name in result.verdicts),
            *(describe(needs.least_deadline_ns[b], needs.deadline_ns) for b in (P99, HIGHEST)),
        ]
        for task, needs in result.needs.items()
    ]
    return header, rows


def _list_choices(result: Schedulability) -> Rows:
    rows = []
    for choice in result.choices:
        verdict, budget = choice.verdicts[HIGHEST], choice.most_careful
        level = "good" if verdict.schedulable else "warn"
        fits = badge(f"budgets up to {budget}", level) if budget else badge("nothing", "bad")
        names = ", ".join(f"{task} {variant}" for task, variant in choice.variants.items())
        rows.append([names, fits, format_share(verdict.utilization)])
    return rows


def _list_setup(recording: Recording) -> Rows:
    metadata = recording.metadata
    rows = [
        *_flatten("machine", metadata.machine),
        *_flatten("platform", metadata.platform),
        *_flatten("parameters", metadata.parameters),
    ]
    for name, setting in metadata.realtime.items():
        granted, detail = setting, ""
        if isinstance(setting, Mapping):
            granted, detail = setting.get("applied"), setting.get("detail", "")
        pill = ("applied", "good") if granted else ("not applied", "warn")
        rows.append([f"real time: {name}", badge(*pill, f" {detail}")])
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
