"""Everything that is said about some recordings, gathered before it is written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from jetson_dnn_rt.lab.report.advice import advise_cohort, advise_task
from jetson_dnn_rt.lab.report.budget_figure import draw_budgets
from jetson_dnn_rt.lab.report.budgets import Schedulability, analyse_recording
from jetson_dnn_rt.lab.report.condition_figure import draw_conditions
from jetson_dnn_rt.lab.report.conditions import Shift, find_shifts
from jetson_dnn_rt.lab.report.miss_figure import draw_misses
from jetson_dnn_rt.lab.report.misses import Bursts, find_task_bursts
from jetson_dnn_rt.lab.report.recording import Integers, Recording, TaskColumns
from jetson_dnn_rt.lab.report.response_figure import draw_response
from jetson_dnn_rt.lab.report.stage_figure import draw_stages
from jetson_dnn_rt.lab.report.style import Picture
from jetson_dnn_rt.lab.report.tail_figure import draw_tail
from jetson_dnn_rt.lab.report.timeline_figure import draw_timeline
from jetson_dnn_rt.lab.report.variant_figure import draw_variants
from jetson_dnn_rt.lab.report.wording import join_words
from jetson_dnn_rt.lab.wcet.samples import Sample
from jetson_dnn_rt.lab.wcet.statement import Campaign

LEAST_TIMES = 20
"""Campaigns with fewer are counted, and not judged."""

MOST_CAMPAIGNS = 4
"""Variants of a task that are judged and drawn: those that ran most."""

Judge = Callable[[Sample], Campaign]
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class TaskReport:
    """What is said about a task.

    Attributes
    ----------
    task : TaskColumns
        Its jobs.
    bursts : Bursts
        Of its misses.
    campaigns : list of (Sample, Campaign)
        Largest first.
    left_out : list of Sample
        Variants with too few jobs, or too many of them.
    pictures : dict of str to Picture
        ``response``, ``misses``, ``variants``; ``stages-1`` and ``tail-1`` by campaign.
    """

    task: TaskColumns
    bursts: Bursts
    campaigns: list[tuple[Sample, Campaign]]
    left_out: list[Sample]
    pictures: dict[str, Picture]


@dataclass(frozen=True, eq=False)
class Report:
    """What is said about the first recording, and what the others add to it.

    Attributes
    ----------
    title : str
        Of the page.
    recordings : list of Recording
        The first is the one reported; the others are compared with it.
    tasks : list of TaskReport
        Of the first recording.
    timeline : Picture
        All tasks.
    schedulability : Schedulability or None
        None when nothing was measured often enough.
    budgets : Picture or None
        Drawn of it.
    shifts : list of list of Shift
        One list for each campaign, with one entry for each other condition.
    comparisons : list of Picture
        Of each of them.
    advice : list of str
        What to do, most urgent first.
    layers : list of (str, Picture)
        Task and variant, and the times of its layers.
    cold : list of (Sample, int64 [N])
        Times of the first frames of fresh processes.
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
        """The recording that is reported."""
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
    say: Say = lambda text: None,
) -> Report:
    """Judge, analyse and draw.

    Parameters
    ----------
    recordings : sequence of Recording
        The first is reported, the others are compared with it.
    judge : callable
        Says what is known of the worst case of a sample (`wcet.evt.judge`).
    title : str
        Of the page.
    workers : int
        Stages that run side by side, for the schedulability analysis.
    layers, cold : Recording, optional
        Runs layer by layer, and first frames of fresh processes.
    say : callable
        Told what is being done.
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
            *advise_cohort(schedulability),
            *_advise_tasks(tasks, schedulability),
            *_advise_setup(first),
        ],
        layers=_draw_layers(layers) if layers else [],
        cold=_gather_cold(cold) if cold else [],
    )


def _report_task(
    recording: Recording, task: TaskColumns, campaigns: list[tuple[Sample, Campaign]]
) -> TaskReport:
    stem = _file_stem(task.name)
    drawn: dict[str, Picture | None] = {
        "response": draw_response(f"{stem}-response", task),
        "misses": draw_misses(f"{stem}-misses", task, recording.span_ns),
        "variants": draw_variants(f"{stem}-variants", task, recording.span_ns),
    }
    for number, (sample, campaign) in enumerate(campaigns, start=1):
        drawn[f"tail-{number}"] = draw_tail(f"{stem}-tail-{number}", sample, campaign)
        stages = _stages_of(recording, sample)
        if stages:
            drawn[f"stages-{number}"] = draw_stages(f"{stem}-stages-{number}", stages)
    judged = {sample.key for sample, _ in campaigns}
    return TaskReport(
        task,
        find_task_bursts(task),
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
            name = f"{_file_stem(task)}-layers-{number}"
            found.append((sample.title, draw_stages(name, _stages_of(layers, sample))))
    return found


def _gather_cold(cold: Recording) -> list[tuple[Sample, Integers]]:
    """All times, whether they are marked as warm-up or not."""
    pairs = [(s, np.concatenate([s.warm_up_ns, s.times_ns])) for s in cold.samples]
    return [(sample, times) for sample, times in pairs if len(times)]


def _stages_of(recording: Recording, sample: Sample) -> list[Sample]:
    key = dict(sample.key)
    return [
        stage
        for stage in recording.stages_of(key["task"])
        if all(dict(stage.key).get(name) == value for name, value in key.items())
    ]


def _advise_tasks(tasks: Sequence[TaskReport], schedulability: Schedulability | None) -> list[str]:
    """Of the task with most misses first; what holds for several is said once."""
    of: dict[str, list[str]] = {}
    for report in sorted(tasks, key=lambda report: -float(report.task.missed.mean())):
        for text in advise_task(report.task, report.bursts, schedulability):
            of.setdefault(text, []).append(report.task.name)
    return [f"{join_words(names)}: {text}" for text, names in of.items()]


def _advise_setup(recording: Recording) -> list[str]:
    """Real-time settings that the system did not grant."""
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


def _file_stem(task: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in task)
