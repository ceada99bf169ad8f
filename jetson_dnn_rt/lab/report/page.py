"""The page: one HTML file with everything in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jetson_dnn_rt import __version__
from jetson_dnn_rt.lab.report.advice import describe_task
from jetson_dnn_rt.lab.report.comparison_section import show_comparisons
from jetson_dnn_rt.lab.report.glance import (
    anchor,
    judge_misses,
    show_card,
    show_cohort,
)
from jetson_dnn_rt.lab.report.markup import (
    Content,
    Markup,
    badge,
    element,
    figure,
    mark_code,
    paragraph,
    render,
    table,
)
from jetson_dnn_rt.lab.report.recording import Recording, TaskColumns
from jetson_dnn_rt.lab.report.report import Report, TaskReport
from jetson_dnn_rt.lab.report.schedulability_section import show_schedulability
from jetson_dnn_rt.lab.report.style_sheet import STYLE_SHEET
from jetson_dnn_rt.lab.report.timeline_figure import describe_timeline
from jetson_dnn_rt.lab.report.verdict import show_tests, show_verdict
from jetson_dnn_rt.lab.report.wording import (
    format_count,
    format_duration,
    format_ms,
    format_share,
)
from jetson_dnn_rt.tasks import Outcome

GLOSSARY = (
    ("frame missed", "no result within the deadline: late, skipped, aborted, superseded, failed"),
    ("p99", "99 of 100 frames take at most so long; a time that really occurred"),
    ("response", "from the release of a frame to its result, waiting included"),
    ("execution", "what a frame takes by itself, without waiting for others"),
    ("highest seen", "the slowest frame of this recording (high-water mark); no worst case"),
    (
        "pWCET",
        "a time that a frame exceeds with at most the probability beside it, said with the "
        "confidence beside it",
    ),
    ("supported", "the recording is long enough to show it"),
    ("extrapolated", "beyond what was seen; rests on the shape of the tail, whose tests passed"),
    ("unproven", "a test failed or there are too few runs: no bound is given"),
)


def make_page(report: Report) -> str:
    """The whole page as text."""
    body: list[Content] = [
        element("h1", report.title),
        paragraph(_say_headline(report), class_="headline"),
        paragraph(_say_where(report.first), class_="where"),
        _navigate(report),
        _say_how(report.first),
        _say_missing(report.first),
        element(
            "div",
            [
                show_card(t.task, t.bursts, t.campaigns[0][1] if t.campaigns else None)
                for t in report.tasks
            ],
            show_cohort(report.schedulability) if report.schedulability else "",
            class_="cards",
        ),
    ]
    if report.advice:
        items = [element("li", mark_code(text)) for text in report.advice]
        body.append(
            element("section", element("h2", "What to do"), element("ol", items), class_="advice")
        )
    body += _show_timeline(report)
    if report.shifts:
        body += show_comparisons(report)
    for task in report.tasks:
        body += _show_task(task)
    body += _show_profile(report)
    if report.schedulability and report.budgets:
        body += show_schedulability(report.schedulability, report)
    body += _show_setup(report.first)
    body += [
        element("h2", "Words", id="words"),
        table(["word", "meaning"], GLOSSARY, class_="facts"),
        paragraph(f"Made by jetson-dnn-rt {__version__}.", class_="muted"),
    ]
    return "<!DOCTYPE html>\n" + render(
        element(
            "html",
            element(
                "head",
                element("meta", charset="utf-8"),
                element("meta", name="viewport", content="width=device-width, initial-scale=1"),
                element("title", report.title),
                element("style", Markup(STYLE_SHEET)),
            ),
            element("body", body),
            lang="en",
        )
    )


def _say_headline(report: Report) -> str:
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


def _say_where(recording: Recording) -> str:
    machine, platform = recording.metadata.machine, recording.metadata.platform
    words = [f"{format_duration(recording.span_ns)} recorded"]
    if recording.metadata.source:
        words[0] += f" by {recording.metadata.source}"
    words += [str(machine[key]) for key in ("cpu", "gpu") if machine.get(key)]
    words += [str(platform[key]) for key in ("title", "power_mode") if platform.get(key)]
    return " · ".join(dict.fromkeys(words))


def _say_how(recording: Recording) -> Content:
    """Where releases are not those of a camera, a miss means something else."""
    metadata = recording.metadata
    if metadata.source != "profile" and metadata.parameters.get("mode") != "sequential":
        return ""
    return paragraph(
        "Frames ran one after the other, not as a camera brings them: a missed frame is one whose "
        "execution alone took longer than the deadline.",
        class_="muted",
    )


def _say_missing(recording: Recording) -> Content:
    """Figures of a trace with gaps are of the rest of it."""
    missing = recording.metadata.missing
    return paragraph(f"{missing}.", class_="muted") if missing else ""


def _navigate(report: Report) -> Markup:
    links = [("Timeline", "timeline")]
    if report.shifts:
        links.append(("Before and after", "comparison"))
    links += [(item.task.name, anchor(item.task.name)) for item in report.tasks]
    if report.layers:
        links.append(("Layers", "layers"))
    if report.cold:
        links.append(("Cold start", "cold"))
    if report.schedulability:
        links.append(("What fits together", "schedulability"))
    links += [("Set-up", "setup"), ("Words", "words")]
    return element("nav", [[element("a", text, href=f"#{to}"), " "] for text, to in links])


def _show_timeline(report: Report) -> list[Content]:
    caption: list[Content] = [
        "Each point is a frame; ticks below the axis are frames that gave no result. "
    ]
    if any(item.bursts.longest > 1 for item in report.tasks):
        caption.append("The shaded spell is the longest time without a result. ")
    drawn = report.tasks if len(report.tasks) <= 8 else []
    caption += [describe_timeline(item.task) + " " for item in drawn]
    return [element("h2", "Timeline", id="timeline"), figure(report.timeline, caption)]


def _show_task(report: TaskReport) -> list[Content]:
    task, pictures = report.task, report.pictures
    parts: list[Content] = [
        element("h2", task.name, " ", badge(*judge_misses(task)), id=anchor(task.name)),
        [paragraph(text) for text in describe_task(task, report.bursts)],
    ]
    if "response" in pictures:
        parts += [
            element("h3", "Response against the deadline"),
            figure(
                pictures["response"],
                "From release to result, of frames that have one. On the right, what the response "
                "is made of: the slowest frames tell whether to look at the network or at the "
                "company it keeps.",
            ),
        ]
    if "misses" in pictures:
        parts += [
            element("h3", "Misses and bursts"),
            figure(
                pictures["misses"],
                "Bars that are higher than the black marks mean that misses come together: one "
                "cause hits several frames.",
            ),
        ]
    if "variants" in pictures:
        parts += [
            element("h3", "Variants over time"),
            figure(
                pictures["variants"],
                "Share of the frames that ran in each variant; names joined by + changed at a "
                "stage boundary inside the frame.",
            ),
        ]
    for number, (sample, campaign) in enumerate(report.campaigns, start=1):
        name = ", ".join(value for key, value in sample.key if key != "task" and value)
        parts += [
            element("h3", f"Execution time: {name}"),
            show_verdict(campaign, task.period_ns),
            _say_cut_off(task),
            figure(
                pictures[f"tail-{number}"],
                "Left: what is usual. Right: the tail on a logarithmic scale; a straight fall is "
                "benign, a flat shelf means that something rare and slow happens. Filled diamonds "
                "are supported by the runs, hollow ones extrapolated.",
            ),
            show_tests(sample, campaign),
        ]
        stages = pictures.get(f"stages-{number}")
        if stages is not None:
            parts += [
                element("h3", f"Stages: {name}"),
                figure(
                    stages,
                    "Box: the middle half; line: 1 % to 99 %; circle: highest seen; all in ms. "
                    "Share: of the mean time of a frame.",
                ),
            ]
    if report.left_out:
        count = sum(len(sample) for sample in report.left_out)
        parts.append(
            paragraph(
                f"{format_count(len(report.left_out), 'further combination')} of variants and "
                f"clocks ran {format_count(count, 'frame')} in all: too few, or too many "
                "combinations, to be shown one by one.",
                class_="muted",
            )
        )
    return parts


def _say_cut_off(task: TaskColumns) -> Content:
    """Frames that were given up would have been among the slowest: their times are unknown."""
    count = task.count(Outcome.SKIPPED) + task.count(Outcome.ABORTED)
    if not count:
        return ""
    return paragraph(
        badge("cut off", "warn"),
        mark_code(
            f" {format_count(count, 'frame')} of this task were skipped or aborted: what they "
            "would have taken is not among these times, and the slowest may be missing. What is "
            "said here holds for frames that ran to their end; `jetson-dnn-rt profile` and "
            "`jetson-dnn-rt evaluate` measure every frame to its end."
        ),
    )


def _show_profile(report: Report) -> list[Content]:
    """What only a profile has: layers, and first frames of fresh processes."""
    parts: list[Content] = []
    if report.layers:
        parts.append(element("h2", "Layer by layer", id="layers"))
        parts.append(
            paragraph(
                "The networks were run once more, layer by layer: the shares are theirs, the sum "
                "is more than that of a run in one piece.",
                class_="muted",
            )
        )
        for title, picture in report.layers:
            parts += [element("h3", title), figure(picture)]
    if report.cold:
        rows: list[list[Content]] = [
            [
                sample.title,
                f"{len(times):,}",
                format_ms(float(np.median(times))),
                format_ms(float(times.max())),
            ]
            for sample, times in report.cold
        ]
        parts += [
            element("h2", "Cold start", id="cold"),
            paragraph(
                "First frames of fresh processes, kept apart from all other statistics.",
                class_="muted",
            ),
            table(["task, variant", "frames", "median", "slowest"], rows),
        ]
    return parts


def _show_setup(recording: Recording) -> list[Content]:
    metadata = recording.metadata
    rows: list[list[Content]] = []
    for title, fields in (
        ("machine", metadata.machine),
        ("platform", metadata.platform),
        ("parameters", metadata.parameters),
    ):
        rows += _flatten(title, fields)
    for name, setting in metadata.realtime.items():
        granted = setting.get("applied") if isinstance(setting, Mapping) else setting
        detail = setting.get("detail", "") if isinstance(setting, Mapping) else ""
        rows.append(
            [
                f"real time: {name}",
                [
                    badge("applied", "good") if granted else badge("not applied", "warn"),
                    f" {detail}",
                ],
            ]
        )
    for name, task in metadata.tasks.items():
        text = f"{task.model}, SHA-256 {task.model_hash[:16] or 'unknown'}, from {task.camera}"
        rows.append([f"task: {name}", text])
    if not rows:
        return [
            element("h2", "Set-up", id="setup"),
            paragraph("This trace does not say what it was measured on.", class_="muted"),
        ]
    return [
        element("h2", "Set-up", id="setup"),
        element(
            "details",
            element("summary", f"What it was measured on and with ({len(rows)} entries)"),
            table(["what", "value"], rows, class_="facts"),
        ),
    ]


def _flatten(title: str, fields: Mapping[str, Any]) -> list[list[Content]]:
    rows: list[list[Content]] = []
    for key, value in fields.items():
        if isinstance(value, Mapping):
            rows += _flatten(f"{title}: {key}", value)
        elif value not in (None, "", [], {}):
            rows.append([f"{title}: {key}", str(value)])
    return rows
