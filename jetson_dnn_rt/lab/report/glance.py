"""The top of the page: every task in a card, with its response as a bar up to the deadline."""

from __future__ import annotations

import math

import numpy as np

from jetson_dnn_rt.lab.report.budget_figure import VERDICTS
from jetson_dnn_rt.lab.report.budgets import HIGHEST, P99, Schedulability
from jetson_dnn_rt.lab.report.markup import Content, Markup, badge, element, paragraph
from jetson_dnn_rt.lab.report.misses import Bursts
from jetson_dnn_rt.lab.report.recording import Integers, TaskColumns
from jetson_dnn_rt.lab.report.verdict import LEVELS
from jetson_dnn_rt.lab.report.wording import (
    format_count,
    format_exceedance,
    format_ms,
    format_share,
)
from jetson_dnn_rt.lab.wcet.statement import Campaign

VERDICT_LEVELS = {True: "good", False: "bad", None: "warn"}

MANY_MISSES = 0.01
"""From this share on the card is red."""


def judge_misses(task: TaskColumns) -> tuple[str, str]:
    """The words of the badge, and its colour."""
    missed = int(task.missed.sum())
    if not missed:
        return "no frame missed", "good"
    share = missed / len(task)
    return f"{format_share(share)} missed", "bad" if share >= MANY_MISSES else "warn"


def show_card(task: TaskColumns, bursts: Bursts, campaign: Campaign | None) -> Markup:
    """A task at a glance.

    Parameters
    ----------
    task : TaskColumns
        Which.
    bursts : Bursts
        Of its misses.
    campaign : Campaign or None
        Of the variant that ran most.
    """
    response = np.sort(task.response_ns[task.finished & ~task.warm_up])
    facts: list[tuple[str, Content]] = [
        ("frames", f"{len(task):,}"),
        ("missed", f"{int(task.missed.sum()):,}"),
    ]
    if bursts.longest:
        facts.append(("longest gap in results", format_ms(bursts.longest_ns)))
    if len(response):
        p50, p99, top = _quantiles(response)
        facts += [
            ("response, p50", format_ms(p50)),
            ("response, p99", format_ms(p99)),
            ("response, slowest", format_ms(top)),
        ]
    facts.append(("deadline", format_ms(task.usual_deadline_ns)))
    if campaign is not None:
        facts += [("execution, slowest", format_ms(campaign.hwm_ns)), _say_bound(campaign)]
    return element(
        "section",
        element(
            "h3", element("a", task.name, href=f"#{anchor(task.name)}"), badge(*judge_misses(task))
        ),
        _show_bar(task.usual_deadline_ns, response) if len(response) else "",
        element("dl", [[element("dt", name), element("dd", value)] for name, value in facts]),
        class_="card",
    )


def judge_cohort(result: Schedulability) -> tuple[str, str]:
    """The words of the badge, and its colour: frames as slow as the slowest, or usual ones."""
    if result.verdicts[HIGHEST].schedulable:
        return "fits", "good"
    fitting = [name for name, verdict in result.verdicts.items() if verdict.schedulable]
    if fitting:
        return f"fits up to {fitting[-1]}", "warn"
    verdict = result.verdicts[P99].schedulable
    return VERDICTS[verdict], VERDICT_LEVELS[verdict]


def show_cohort(result: Schedulability) -> Markup:
    """Whether all tasks fit together, by budget."""
    facts: list[Content] = [
        [
            element("dt", "mean load"),
            element("dd", format_share(result.mean_load / result.workers)),
        ]
    ]
    for name, verdict in result.verdicts.items():
        fits = badge(VERDICTS[verdict.schedulable], VERDICT_LEVELS[verdict.schedulable])
        load = f"{format_share(verdict.utilization / result.workers)} "
        facts.append([element("dt", name), element("dd", load, fits)])
    return element(
        "section",
        element(
            "h3",
            element("a", "all together", href="#schedulability"),
            badge(*judge_cohort(result)),
        ),
        element("dl", facts),
        paragraph(
            f"Load of {format_count(result.workers, 'worker')}, and whether every deadline is "
            "kept, if each frame takes as long as the budget on the left.",
            class_="muted small",
        ),
        class_="card",
    )


def anchor(task: str) -> str:
    """Identifier of a task's section."""
    return "task-" + "".join(c if c.isalnum() else "-" for c in task)


def _quantiles(ordered: Integers) -> tuple[int, int, int]:
    places = [math.ceil(q * len(ordered)) - 1 for q in (0.5, 0.99, 1.0)]
    return int(ordered[places[0]]), int(ordered[places[1]]), int(ordered[places[2]])


def _say_bound(campaign: Campaign) -> tuple[str, Content]:
    given = [bound for bound in campaign.bounds if math.isfinite(bound.upper_ns)]
    if not given:
        return "worst case", badge("unproven", "warn")
    chosen = given[len(given) // 2]
    return (
        f"pWCET, {format_exceedance(chosen.exceedance)}",
        [
            f"{format_ms(chosen.upper_ns)} ",
            badge(chosen.support.value, LEVELS[chosen.support]),
        ],
    )


def _show_bar(deadline_ns: int, response: Integers) -> Markup:
    p50, p99, top = _quantiles(response)
    full = 1.12 * max(deadline_ns, min(top, 3 * deadline_ns))

    def place(time_ns: float) -> float:
        return min(100.0, 100.0 * time_ns / full)

    # Its name goes to the side where there is room.
    limit = place(deadline_ns)
    name_place = f"right:{100.0 - limit:.1f}%" if limit > 55.0 else f"left:{limit:.1f}%"
    first = float(response[max(0, math.ceil(0.01 * len(response)) - 1)])
    return element(
        "div",
        element("i", class_="track"),
        element(
            "i",
            class_="usual",
            style=f"left:{place(first):.1f}%;width:{max(0.6, place(p99) - place(first)):.1f}%",
        ),
        element("i", class_="middle", style=f"left:{place(p50):.1f}%"),
        element("i", class_="limit", style=f"left:{limit:.1f}%"),
        element("span", "response", style="left:0"),
        element(
            "span", f"deadline {format_ms(deadline_ns)}", class_="limit-name", style=name_place
        ),
        class_="bar",
        role="img",
        aria_label=f"98 % of responses up to {format_ms(p99)}, median {format_ms(p50)}, "
        f"deadline {format_ms(deadline_ns)}",
    )
