# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Advice on a recording, in words, most urgent first."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from jetson_dnn_rt.cameras.stamps import FROZEN, STAMP
from jetson_dnn_rt.lab.report.budgets import HIGHEST, Needs, Schedulability
from jetson_dnn_rt.lab.report.recording import Recording, TaskColumns, split_response
from jetson_dnn_rt.lab.report.wording import (
    format_count,
    format_deadlines,
    format_ms,
    format_share,
    join_words,
)
from jetson_dnn_rt.tasks import Outcome

CLUSTERED = 3.0
"""Ratio of P(miss | miss) to the share of misses above which misses count as bursts."""
VARYING = 2.0
"""Ratio of the execution's p99 to its median above which execution counts as varying."""

_VARIES = (
    f"the same work takes more than {VARYING:g} times its median in one of a hundred frames. "
    "Fixed clocks, no other load on its cores and real-time priority reduce that: "
    "`jetson-dnn-rt doctor` lists what is missing."
)
_FEW = 5

_MEANINGS = {
    "budget": "the measured time did not fit before the deadline any more",
    "blocking": "a stage that had begun would have run too long before it",
    "stale": "the frame was too old when it arrived",
    FROZEN: "the frame had the stamp of the one before",
    STAMP: "the frame's stamp did not tell its age",
    "deactivated": "the node was deactivated",
    "shutdown": "the node shut down",
    "restarting": "a worker was being restarted",
}


def describe_task(task: TaskColumns) -> list[str]:
    """Describe the outcomes of a task's frames, in sentences."""
    bursts = task.bursts
    count, missed = len(task), int(task.missed.sum())
    deadline = format_deadlines(task.deadlines_ns)
    if len(task.deadlines_ns) > 1:
        deadline = f"the deadline of its time ({deadline})"
    if not missed:
        lines = [f"All {format_count(count, 'frame')} had their result within {deadline}."]
    else:
        counts = [(o.value, task.count(o)) for o in Outcome if o is not Outcome.MET]
        outcomes = join_words([f"{times:,} {outcome}" for outcome, times in counts if times])
        lines = [
            f"{missed:,} of {format_count(count, 'frame')} had no result within {deadline} "
            f"({format_share(missed / count)}): {outcomes}.",
            *_list_reasons(task),
            f"At most {format_count(bursts.longest, 'frame')} in a row; the longest time without "
            f"a result was {format_ms(bursts.longest_ns)}, from "
            f"{bursts.longest_start_ns / 1e9:.1f} s on.",
        ]
        if _is_clustered(task):
            lines.append(
                f"Misses come in bursts: after a miss the next frame is missed too in "
                f"{format_share(bursts.after_miss)} of the cases."
            )
    warm_up = task.response_ns[task.warm_up & task.finished]
    if len(warm_up):
        lines.append(
            f"The first {format_count(len(warm_up), 'result')} count as warm-up and are in no "
            f"statistics of times; the slowest of them took {format_ms(float(warm_up.max()))}."
        )
    return lines


def _list_reasons(task: TaskColumns) -> list[str]:
    """List why frames were dropped, the most frequent reason first."""
    reasons: Counter[str] = Counter()
    for reason, times in task.reasons.items():
        word = reason.partition(": ")[2]
        reasons[_MEANINGS.get(word, f"“{word}”")] += times
    reasons["a newer frame came first"] += task.count(Outcome.SUPERSEDED)
    reasons = +reasons
    if not reasons:
        return []
    words = [
        f"{'once' if times == 1 else f'{times:,} times'} {text}"
        for text, times in reasons.most_common(4)
    ]
    return [f"Why they were dropped: {join_words(words)}."]


def _is_clustered(task: TaskColumns) -> bool:
    missed, bursts = int(task.missed.sum()), task.bursts
    return (
        missed >= _FEW
        and math.isfinite(bursts.after_miss)
        and bursts.after_miss > CLUSTERED * missed / len(task)
        and bursts.longest > 2
    )


def advise_task(task: TaskColumns, schedulability: Schedulability | None) -> list[str]:
    """Advise on the misses of a task, without its name."""
    missed = int(task.missed.sum())
    if not missed:
        return []
    advice = []
    failed = task.count(Outcome.FAILED)
    if failed:
        reason = next((r for r in task.reasons if r.startswith("failed")), "failed")
        advice.append(
            f"{format_count(failed, 'frame')} ended in an error, first of all "
            f"“{reason.partition(': ')[2]}”: fix that before looking at times."
        )
    old = sum(task.reasons.get(f"skipped: {why}", 0) for why in ("stale", FROZEN, STAMP))
    if 2 * old > missed:
        advice.append(
            "most missed frames were too old on arrival, or did not tell their age: look at the "
            "camera driver, its clock, the transport and max_age_ms, not at the network."
        )
    elif missed > failed and not _is_overload(schedulability):
        advice.append(_find_cause(task, schedulability))
    if missed > failed and _varies(task) and _VARIES not in advice:
        advice.append(_VARIES)
    if _is_clustered(task):
        advice.append(
            f"what uses its results must do without them for {format_ms(task.bursts.longest_ns)}; "
            f"look for the cause at {task.bursts.longest_start_ns / 1e9:.1f} s in the timeline."
        )
    return advice


def _is_overload(schedulability: Schedulability | None) -> bool:
    return schedulability is not None and schedulability.mean_load > schedulability.workers


def advise_load(recording: Recording) -> list[str]:
    """Advise if frames were missed on a machine that was busy before the recording began."""
    machine = recording.metadata.machine
    load, cores = machine.get("load_average_1min"), machine.get("cores")
    simulated = recording.metadata.source == "simulate"
    if simulated or not load or not cores or load < cores:
        return []
    if not any(task.missed.any() for task in recording.tasks.values()):
        return []
    return [
        f"The machine was under other load: when the recording began, {load:.1f} programs on "
        f"average wanted its {format_count(cores, 'core')}. Times below may include waiting "
        "for them: end them, or give the tasks cores of their own, and record again before "
        "looking for another cause."
    ]


def advise_cohort(schedulability: Schedulability | None) -> list[str]:
    """Advise if more work arrives than the machine can do."""
    if schedulability is None or not _is_overload(schedulability):
        return []
    workers, load = schedulability.workers, schedulability.mean_load
    needs, budget = schedulability.needs, schedulability.least_careful
    longest = max(needs, key=lambda task: needs[task].budgets_ns[budget] / needs[task].period_ns)
    return [
        f"More work arrives than {format_count(workers, 'worker')} can do: {format_share(load)} "
        f"of one, on average. Any of these helps: all frame rates at "
        f"{math.floor(100 * workers / load)} % of what they are; a faster variant, above all of "
        f"{longest}; one more worker where there are cores for it."
    ]


def _find_cause(task: TaskColumns, schedulability: Schedulability | None) -> str:
    deadline_ns = task.usual_deadline_ns
    needs = schedulability.needs.get(task.name) if schedulability else None
    budget = schedulability.least_careful if schedulability else ""
    if needs and needs.budgets_ns[budget] > deadline_ns:
        return (
            f"it alone needs {format_ms(needs.budgets_ns[budget])} ({budget}) of its "
            f"{'usual ' if len(task.deadlines_ns) > 1 else ''}{format_ms(deadline_ns)}. A faster "
            "variant, higher clocks or a longer deadline; "
            "scheduling cannot help."
        )
    spent = split_response(task)
    if len(spent) > 1 and spent[1].waiting_ns > 0.25 * spent[1].response_ns:
        return (
            f"its slow frames wait {format_ms(spent[1].waiting_ns)} of "
            f"{format_ms(spent[1].response_ns)} for other tasks. Finer stages of the others, a "
            f"second worker, or a faster variant of the longest task{_fitting(needs)}."
        )
    if spent and spent[1].other_ns > 0.25 * spent[1].response_ns:
        return (
            f"{format_ms(spent[1].other_ns)} of {format_ms(spent[1].response_ns)} "
            "of its slow frames are neither running nor waiting for another task: other "
            "processes take the cores. Real-time priority, CPU affinity, `jetson-dnn-rt doctor`."
        )
    if _varies(task):
        return _VARIES
    if _fitting(needs):
        return f"its usual times fit, its slowest do not{_fitting(needs)}."
    return "its usual times fit: the misses come from single moments, see the timeline."


def _varies(task: TaskColumns) -> bool:
    times = task.execution_ns[task.finished & ~task.warm_up]
    return len(times) > 0 and bool(np.quantile(times, 0.99) > VARYING * np.median(times))


def _fitting(needs: Needs | None) -> str:
    if needs is not None:
        least = needs.least_deadline_ns.get(HIGHEST)
        if least is not None and least > needs.deadline_ns:
            return f"; a deadline of {format_ms(least)} would fit with all that was seen"
    return ""
