"""The part of the page that compares recordings with the first one."""

from __future__ import annotations

from jetson_dnn_rt.lab.report.conditions import Shift
from jetson_dnn_rt.lab.report.markup import (
    Content,
    Markup,
    badge,
    element,
    figure,
    paragraph,
    table,
)
from jetson_dnn_rt.lab.report.report import Report
from jetson_dnn_rt.lab.report.wording import format_digits, format_ms, format_share
from jetson_dnn_rt.lab.wcet.comparison import Change, Comparison

_CHANGES = {
    Change.WORSE: ("tail is worse", "bad"),
    Change.NO_WORSE: ("tail is no worse", "good"),
    Change.UNDECIDED: ("undecided", "warn"),
}


def show_comparisons(report: Report) -> list[Content]:
    """Each campaign that is in several recordings: verdict, tails, quantiles."""
    first, others = report.recordings[0], report.recordings[1:]
    parts: list[Content] = [
        element("h2", "Before and after", id="comparison"),
        paragraph(
            "Compared with ",
            element("b", first.label),
            ": ",
            ", ".join(recording.label for recording in others),
            ". Ratios above 1 mean slower. Execution times only: waiting for other tasks is not "
            "in them, what these do to memory, caches and clocks is.",
        ),
    ]
    for group, picture in zip(report.shifts, report.comparisons, strict=True):
        parts += [
            element("h3", f"{group[0].task}, {group[0].variant}"),
            element("ul", [element("li", _say_shift(shift)) for shift in group]),
            figure(picture),
            _show_shift_table(first.label, group),
        ]
    return parts


def _say_shift(shift: Shift) -> list[Content]:
    words: list[Content] = [element("b", shift.condition), ": "]
    if shift.comparison is None:
        words.append("too few frames to say whether the tail is worse.")
    else:
        text, level = _CHANGES[shift.comparison.verdict]
        words += [badge(text, level), f" {_without_verdict(shift.comparison)}."]
    if shift.missed != (0.0, 0.0):
        words.append(
            f" Frames missed: {format_share(shift.missed[0])} → {format_share(shift.missed[1])}."
        )
    return words


def _without_verdict(comparison: Comparison) -> str:
    """The statement; its first words are the badge before it."""
    return comparison.statement.removeprefix(f"{comparison.verdict.value}: ")


def _show_shift_table(label: str, group: list[Shift]) -> Markup:
    names = list(dict.fromkeys(name for shift in group for name in shift.times_ns))
    rows: list[list[Content]] = [
        [
            label,
            f"{len(group[0].before):,}",
            *(
                format_ms(group[0].times_ns[name][0]) if name in group[0].times_ns else "–"
                for name in names
            ),
            format_share(group[0].missed[0]),
        ]
    ]
    for shift in group:
        cells: list[Content] = [
            f"{format_ms(shift.times_ns[name][1])} (×{format_digits(shift.ratio(name))})"
            if name in shift.times_ns
            else "–"
            for name in names
        ]
        rows.append(
            [shift.condition, f"{len(shift.after):,}", *cells, format_share(shift.missed[1])]
        )
    return table(["condition", "runs", *names, "missed"], rows)
