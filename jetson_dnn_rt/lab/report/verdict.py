"""Verdicts on the worst case in words a roboticist understands."""

from __future__ import annotations

import math

from jetson_dnn_rt.lab.report.markup import (
    Content,
    Markup,
    badge,
    element,
    mark_code,
    paragraph,
    table,
)
from jetson_dnn_rt.lab.report.wording import (
    format_count,
    format_digits,
    format_every,
    format_exceedance,
    format_ms,
)
from jetson_dnn_rt.lab.wcet.samples import Sample
from jetson_dnn_rt.lab.wcet.statement import Bound, Campaign, Support

LEVELS = {Support.SUPPORTED: "good", Support.EXTRAPOLATED: "info", Support.UNPROVEN: "warn"}

_SINGLE = 0.8
"""Extremal index from which on clusters are not worth a word."""

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


def show_verdict(campaign: Campaign, period_ns: int) -> list[Content]:
    """Statement, bounds and advice of a campaign.

    Parameters
    ----------
    campaign : Campaign
        What is said about it.
    period_ns : int
        Of the task, to say how often a probability comes true; 0 = unknown.
    """
    parts: list[Content] = [
        element(
            "p",
            badge(campaign.support.value, LEVELS[campaign.support]),
            " ",
            _without_support(campaign),
            class_="statement",
        ),
        paragraph(MEANINGS[campaign.support], class_="muted"),
    ]
    if any(math.isfinite(bound.upper_ns) for bound in campaign.bounds):
        parts.append(_show_bounds(campaign, period_ns))
    if campaign.advice and campaign.support is not Support.SUPPORTED:
        parts += [
            paragraph(element("b", "What to do")),
            element(
                "ul",
                [
                    element("li", mark_code(text[:1].upper() + text[1:]))
                    for text in campaign.advice
                ],
            ),
        ]
    return parts


def _without_support(campaign: Campaign) -> str:
    """The statement; its first word is the badge before it."""
    text = campaign.statement.removeprefix(f"{campaign.support.value}: ")
    return text[:1].upper() + text[1:]


def format_p_value(value: float) -> str:
    """Small ones only say that they are small."""
    if not math.isfinite(value):
        return "–"
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _show_bounds(campaign: Campaign, period_ns: int) -> Markup:
    confidence = f"{100 * campaign.confidence:.0f} %"
    header = [
        "longer with probability",
        f"pWCET (upper {confidence})",
        "estimate",
        "backed by",
        "at this frame rate",
    ]
    rows = [_bound_row(bound, period_ns) for bound in campaign.bounds]
    return table(header, rows)


def _bound_row(bound: Bound, period_ns: int) -> list[Content]:
    return [
        format_exceedance(bound.exceedance),
        element("b", format_ms(bound.upper_ns)),
        format_ms(bound.estimate_ns),
        [badge(bound.support.value, LEVELS[bound.support]), f" {bound.method}"],
        format_every(bound.exceedance, period_ns) or "–",
    ]


def show_tests(sample: Sample, campaign: Campaign) -> Markup:
    """What was tested, and what is known without any model."""
    failed = [test for test in campaign.tests if not test.passed]
    rows = [
        [
            test.name,
            badge("passed", "good") if test.passed else badge("failed", "bad"),
            test.meaning,
            format_p_value(test.p_value),
        ]
        for test in sorted(campaign.tests, key=lambda test: test.passed)
    ]
    facts = [
        f"{campaign.count:,} runs: best {format_ms(campaign.best_ns)}, mean "
        f"{format_ms(campaign.mean_ns)}, p99 {format_ms(campaign.p99_ns)}, highest seen "
        f"{format_ms(campaign.hwm_ns)}."
    ]
    if math.isfinite(campaign.rule_of_three):
        facts.append(
            f" Without any model: a frame is longer than the highest seen with a probability of "
            f"at most {format_exceedance(campaign.rule_of_three)} "
            f"(confidence {100 * campaign.confidence:.0f} %)."
        )
    if campaign.extremal_index >= _SINGLE:
        facts.append(" Slow frames come one by one.")
    elif campaign.extremal_index > 0.0:
        facts.append(
            f" Slow frames come in clusters of about "
            f"{format_digits(1.0 / campaign.extremal_index, 2)}, not always right after each "
            f"other; directly in a row above p99: at most {campaign.longest_burst:,}."
        )
    if len(sample.warm_up_ns):
        facts.append(
            f" Warm-up, kept apart: up to {format_ms(float(sample.warm_up_ns.max()))} in "
            f"{len(sample.warm_up_ns):,} runs."
        )
    behind = format_count(len(campaign.tests), "test")
    title = (
        f"{behind} behind it: {len(failed)} failed ("
        + "; ".join(test.name for test in failed)
        + ")"
        if failed
        else f"{behind} behind it: all passed"
    )
    words: list[Content] = [paragraph(*facts)]
    if rows:
        return element(
            "div",
            words,
            element(
                "details",
                element("summary", title),
                table(["condition", "result", "what it means", "p-value"], rows),
            ),
        )
    return element("div", words)
