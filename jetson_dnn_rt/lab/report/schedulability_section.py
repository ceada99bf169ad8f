"""The part of the page that says what fits together."""

from __future__ import annotations

from jetson_dnn_rt.lab.report.budgets import HIGHEST, P99, Schedulability
from jetson_dnn_rt.lab.report.glance import judge_cohort
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
from jetson_dnn_rt.lab.report.wording import format_count, format_ms, format_share
from jetson_dnn_rt.tasks import Outcome


def show_schedulability(result: Schedulability, report: Report) -> list[Content]:
    """Verdicts by budget, deadlines that would fit, and combinations that do."""
    assert report.budgets is not None
    verdict = result.verdicts[HIGHEST]
    aborted = sum(item.task.count(Outcome.ABORTED) for item in report.tasks)
    parts: list[Content] = [
        element("h2", "What fits together on this machine", id="schedulability"),
        element(
            "p",
            badge(*judge_cohort(result)),
            f" With the highest time seen as the budget of every task: {verdict}.",
            class_="statement",
        ),
        paragraph(
            "A verdict holds for frames that stay inside their budget. Deadlines and frame rates "
            "are those of the recording; execution only, the camera and the transport come on "
            "top.",
            f" {format_count(aborted, 'frame')} were aborted: budgets of frames that ran to their "
            "end may be too small."
            if aborted
            else "",
            class_="muted",
        ),
        figure(report.budgets),
        element("h3", "Which deadline would fit"),
        _show_needs(result),
    ]
    if len(result.choices) > 1:
        parts += [
            element("h3", "In which variants"),
            table(
                ["variants", "fits with", "load, highest seen"],
                [
                    [
                        ", ".join(f"{task} {v}" for task, v in choice.variants.items()),
                        _say_careful(choice.most_careful, choice.verdicts[HIGHEST].schedulable),
                        format_share(choice.verdicts[HIGHEST].utilization),
                    ]
                    for choice in result.choices
                ],
            ),
        ]
    if result.together:
        parts += [
            element("h3", "What does fit, with the highest times seen"),
            element(
                "ul",
                [
                    element(
                        "li",
                        ", ".join(f"{task} ({variant})" for task, variant in c.variants.items()),
                        f": load {format_share(c.verdicts[HIGHEST].utilization)}",
                    )
                    for c in result.together
                ],
            ),
        ]
    elif not verdict.schedulable:
        parts.append(paragraph("Not even a single task fits with the highest time seen."))
    return parts


def _say_careful(budget: str, highest: bool | None) -> Markup:
    if not budget:
        return badge("nothing", "bad")
    return badge(f"budgets up to {budget}", "good" if highest else "warn")


def _show_needs(result: Schedulability) -> Markup:
    header = ["task", "every", "deadline", *(f"budget {name}" for name in result.verdicts)]
    header += [f"least deadline, {P99}", f"least deadline, {HIGHEST}"]
    rows: list[list[Content]] = []
    for task, needs in result.needs.items():
        rows.append(
            [
                f"{task}, {needs.variant}",
                format_ms(needs.period_ns),
                format_ms(needs.deadline_ns),
                *(format_ms(needs.budgets_ns[name]) for name in result.verdicts),
                _say_least(needs.least_deadline_ns[P99], needs.deadline_ns),
                _say_least(needs.least_deadline_ns[HIGHEST], needs.deadline_ns),
            ]
        )
    return table(header, rows)


def _say_least(least_ns: int | None, deadline_ns: int) -> Content:
    if least_ns is None:
        return badge("none would fit", "bad")
    return badge(format_ms(least_ns), "good" if least_ns <= deadline_ns else "bad")
