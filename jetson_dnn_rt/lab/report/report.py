# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Contents of a report, gathered before they are written as a page or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jetson_dnn_rt.lab.report.advice import advise_cohort, advise_load, advise_task
from jetson_dnn_rt.lab.report.budgets import LEAST_TIMES, Schedulability, analyse_recording
from jetson_dnn_rt.lab.report.conditions import Shift, find_shifts
from jetson_dnn_rt.lab.report.figures import (
    draw_budgets,
    draw_conditions,
    draw_misses,
    draw_response,
    draw_stages,
    draw_tail,
    draw_timeline,
    draw_variants,
)
from jetson_dnn_rt.lab.report.recording import Recording, TaskColumns
from jetson_dnn_rt.lab.report.style import Picture
from jetson_dnn_rt.lab.report.wording import join_words
from jetson_dnn_rt.lab.wcet.samples import Integers, Sample
from jetson_dnn_rt.lab.wcet.statement import Campaign, to_json
from jetson_dnn_rt.tasks import Outcome

MOST_CAMPAIGNS = 4
"""Maximum number of variants of a task that are judged and drawn: those that ran most."""

_VERDICT = ("schedulable", "utilization", "reason")
_CAMPAIGN = ("title", "count", "support", "hwm_ms", "p99_ms", "statement")
_BOUND = ("exceedance", "support", "upper_ms")
"""Keys of verdicts, campaigns and bounds that are in the JSON."""

Judge = Callable[[Sample], Campaign]


@dataclass(frozen=True, eq=False)
class TaskReport:
    """Findings about a task.

    Campaigns are the largest first; `left_out` are variants with too few jobs, or beyond
    `MOST_CAMPAIGNS`. Pictures are ``response``, ``misses``, ``variants``, and by campaign
    ``stages-1`` and ``tail-1``.
    """

    task: TaskColumns
    campaigns: list[tuple[Sample, Campaign]]
    left_out: list[Sample]
    pictures: dict[str, Picture]


@dataclass(frozen=True, eq=False)
class Report:
    """Findings about the first recording, and how the others compare with it.

    `schedulability` is None when nothing was measured often enough. `shifts` has one list for each
    campaign, with one entry for each other condition, and `comparisons` its picture. `layers` are
    titles and pictures of runs layer by layer, `cold` the times of the first frames of fresh
    processes.
    """

    title: str
    recordings: list[Recording]
    tasks: list[TaskReport]
    timeline: Picture
    schedulability: Schedulability | None
    budgets: Picture | None
    shifts: list[list[Shift]] = field(default_factory=list)
    comparisons: list[Picture] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    layers: list[tuple[str, Picture]] = field(default_factory=list)
    cold: list[tuple[Sample, Integers]] = field(default_factory=list)

    @property
    def first(self) -> Recording:
        """The recording that the report is about."""
        return self.recordings[0]

    @property
    def pictures(self) -> list[Picture]:
        """All figures, in the order of the page."""
        found = [self.timeline, *self.comparisons]
        for task in self.tasks:
            found += task.pictures.values()
        found += [picture for _, picture in self.layers]
        return [*found, *([self.budgets] if self.budgets else [])]


def make_report(
    recordings: Sequence[Recording],
    judge: Judge,
    *,
    title: str,
    workers: int = 1,
    layers: Recording | None = None,
    cold: Recording | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Report:
    """Judge, analyse and draw.

    The first recording is reported, the others are compared with it. `judge` gives the verdict on
    the worst case of a sample (`lab.wcet.evt.judge`); `workers` is the number of stages that run
    side by side, for the schedulability analysis; `layers` and `cold` are recordings of runs layer
    by layer and of the first frames of fresh processes.
    """
    first = recordings[0]
    judged = {}
    for name in first.tasks:
        say(f"judging the worst case of {name}")
        judged[name] = [
            (sample, judge(sample))
            for sample in first.samples_of(name)[:MOST_CAMPAIGNS]
            if len(sample) >= LEAST_TIMES
        ]
    campaigns = {s.title: campaign for pairs in judged.values() for s, campaign in pairs}
    schedulability = analyse_recording(first, campaigns, workers)
    tasks = []
    for name, pairs in judged.items():
        say(f"drawing {name}")
        tasks.append(_report_task(first, first.tasks[name], pairs))
    shifts, comparisons = _compare(recordings)
    # All first frames, whether marked as warm-up or not.
    samples = cold.samples if cold else []
    firsts = [(sample, np.concatenate([sample.warm_up_ns, sample.times_ns])) for sample in samples]
    return Report(
        title=title,
        recordings=list(recordings),
        tasks=tasks,
        timeline=draw_timeline("timeline", first),
        schedulability=schedulability,
        budgets=draw_budgets("schedulability", schedulability) if schedulability else None,
        shifts=shifts,
        comparisons=comparisons,
        advice=[
            *advise_load(first),
            *advise_cohort(schedulability),
            *_advise_tasks(tasks, schedulability),
            *_advise_setup(first),
        ],
        layers=_draw_layers(layers) if layers else [],
        cold=[pair for pair in firsts if len(pair[1])],
    )


def _report_task(
    recording: Recording, task: TaskColumns, campaigns: list[tuple[Sample, Campaign]]
) -> TaskReport:
    stem = make_stem(task.name)
    drawn: dict[str, Picture | None] = {
        "response": draw_response(f"{stem}-response", task),
        "misses": draw_misses(f"{stem}-misses", task, recording.span_ns),
        "variants": draw_variants(f"{stem}-variants", task, recording.span_ns),
    }
    for number, (sample, campaign) in enumerate(campaigns, start=1):
        drawn[f"tail-{number}"] = draw_tail(f"{stem}-tail-{number}", sample, campaign)
        stages = recording.stages_of(task.name, sample)
        if stages:
            drawn[f"stages-{number}"] = draw_stages(f"{stem}-stages-{number}", stages)
    judged = {sample.key for sample, _ in campaigns}
    return TaskReport(
        task,
        campaigns,
        [sample for sample in recording.samples_of(task.name) if sample.key not in judged],
        {name: picture for name, picture in drawn.items() if picture is not None},
    )


def _compare(recordings: Sequence[Recording]) -> tuple[list[list[Shift]], list[Picture]]:
    groups: dict[str, list[Shift]] = {}
    for shift in find_shifts(recordings):
        groups.setdefault(shift.before.title, []).append(shift)
    shifts = sorted(groups.values(), key=lambda group: (group[0].task, -len(group[0].before)))
    pictures = [
        draw_conditions(f"comparison-{number}", recordings, group)
        for number, group in enumerate(shifts, start=1)
    ]
    return shifts, pictures


def _draw_layers(layers: Recording) -> list[tuple[str, Picture]]:
    found = []
    for task in layers.tasks:
        for number, sample in enumerate(layers.samples_of(task)[:MOST_CAMPAIGNS], start=1):
            name = f"{make_stem(task)}-layers-{number}"
            found.append((sample.title, draw_stages(name, layers.stages_of(task, sample))))
    return found


def _advise_tasks(tasks: Sequence[TaskReport], schedulability: Schedulability | None) -> list[str]:
    """List advice, on the task with most misses first; advice for several tasks is given once."""
    of: dict[str, list[str]] = {}
    for report in sorted(tasks, key=lambda report: -float(report.task.missed.mean())):
        for text in advise_task(report.task, schedulability):
            of.setdefault(text, []).append(report.task.name)
    return [f"{join_words(names)}: {text}" for text, names in of.items()]


def _advise_setup(recording: Recording) -> list[str]:
    """Advise on real-time settings that the system did not grant."""
    refused = [
        f"{name} ({setting.get('detail', '')})"
        for name, setting in recording.metadata.realtime.items()
        if isinstance(setting, dict) and not setting.get("applied", True)
    ]
    if not refused:
        return []
    return [
        f"The system did not grant all of the real-time set-up: {'; '.join(refused)}. "
        "`jetson-dnn-rt doctor` says how to get it."
    ]


def make_stem(task: str) -> str:
    """Make a name for files and anchors from that of a task."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in task)


def to_dict(report: Report) -> dict[str, Any]:
    """Convert to JSON types; times in milliseconds, None for NaN."""
    result = report.schedulability
    return {
        "title": report.title,
        "seconds": report.first.span_ns / 1e9,
        "tasks": {item.task.name: _task_dict(item) for item in report.tasks},
        "schedulability": None
        if result is None
        else {
            "workers": result.workers,
            "mean_load": result.mean_load,
            "verdicts": {
                name: {key: getattr(verdict, key) for key in _VERDICT}
                for name, verdict in result.verdicts.items()
            },
            "least_deadline_ms": {
                task: {
                    name: None if least_ns is None else least_ns / 1e6
                    for name, least_ns in needs.least_deadline_ns.items()
                }
                for task, needs in result.needs.items()
            },
            "together": [choice.variants for choice in result.together],
        },
        "comparisons": [
            {
                "task": shift.task,
                "variant": shift.variant,
                "before": report.first.label,
                "after": shift.condition,
                "times_ms": {n: [a / 1e6, b / 1e6] for n, (a, b) in shift.times_ns.items()},
                "missed": list(shift.missed),
            }
            for group in report.shifts
            for shift in group
        ],
        "advice": report.advice,
    }


def _task_dict(report: TaskReport) -> dict[str, Any]:
    task = report.task
    campaigns = [to_json(campaign) for _, campaign in report.campaigns]
    return {
        "frames": len(task),
        "outcomes": {outcome.value: task.count(outcome) for outcome in Outcome},
        "missed_ratio": float(task.missed.mean()),
        "deadline_ms": task.usual_deadline_ns / 1e6,
        "deadlines_ms": [deadline_ns / 1e6 for deadline_ns in task.deadlines_ns],
        "slowest_ms": None if task.slowest is None else task.slowest[0] / 1e6,
        "slowest_variant": None if task.slowest is None else task.slowest[1],
        "longest_burst": task.bursts.longest,
        "longest_without_result_ms": task.bursts.longest_ns / 1e6,
        "campaigns": [
            {
                **{name: campaign[name] for name in _CAMPAIGN},
                "bounds": [{name: one[name] for name in _BOUND} for one in campaign["bounds"]],
                "failed_tests": [one["name"] for one in campaign["tests"] if not one["passed"]],
            }
            for campaign in campaigns
        ],
    }
