# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Cost of switching variants between two stages of a frame.

A model in two variants runs under the real executor, stage by stage. Every frame follows a plan
of variants drawn at random, so about half of its boundaries are switches and half are not, side
by side in the same run. Two figures for both kinds of boundaries, by stage of the network:

gap    from the end of one stage to the start of the next: the decision and the hand-over
stage  the time of the next stage: after a switch with boundary tensors in another memory layout
       and with the caches of another variant

The cost of a switch is its addition to the gap: passes if the p99 gap at a switch is at most 50 us
longer than the p99 gap without one. The first switch to a variant in a process pays for
page faults; warm-up frames are not counted.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from benchmarks.harness.options import Options
from benchmarks.harness.tables import Report, flatten, say, say_bars, tabulate
from benchmarks.harness.tasks import configure, drain, draw_frames, open_session
from benchmarks.harness.timing import find_quantiles
from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.selection import StaticSelector
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import JobRecord
from jetson_dnn_rt.variants.spec import VariantSpec

BAR_US = 50.0
KINDS = ("kept", "switched")
_WARM_UP_FRAMES = 20
_DEADLINE_NS = 10_000_000_000


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--model", "builtin:segmenter")
    add(
        "--variants", "full@torch-fp32,full@torch-bf16",
        "two variants that run stage by stage", metavar="A,B",
    )  # fmt: skip
    add("--stages", 8, "of the network")
    add("--frames", 400, "measured frames")
    add("--threads", 1, "of one inference")


class _PlannedSelector(StaticSelector):
    """Selector of a fixed variant for each stage."""

    def __init__(self, plan: Sequence[str]) -> None:
        self._plan = plan

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        """Return the plan's variant of this stage."""
        return self._plan[job.next_stage]


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure.

    `ConfigurationError` when there are not two variants, or one cannot be entered at every stage.
    """
    names = [str(VariantSpec.parse(name)) for name in args.variants.split(",")]
    if len(names) != 2 or names[0] == names[1]:
        raise ConfigurationError(f"--variants must be two names: {args.variants}")
    for spec in map(VariantSpec.parse, names):
        info = inspect_backend(spec.backend)
        if spec.precision not in info.precisions:
            raise ConfigurationError(f"--variants {spec}: {info.reason or 'no such precision'}")
    config = configure("task", args.model, names, stages=args.stages)
    with open_session([config], threads=args.threads) as session:
        task = session.tasks["task"]
        for name, stages in task.stages.items():
            if len(stages) != len(task.stage_names):
                raise ConfigurationError(
                    f"--variants {name} covers several stages with one run, because that is "
                    "faster: nothing to switch there; choose one on the torch back end"
                )
        records = _drive(session, task, args.frames)
    gaps_ns, stages_ns = _sort(records)
    kept, switched = (find_quantiles(gaps_ns[kind], "p50 p99", 1e3) for kind in KINDS)
    added_us = {name: round(switched[name] - value, 1) for name, value in kept.items()}
    # Time of the stages after a switch, relative to the same stages without one.
    both = stages_ns["kept"].keys() & stages_ns["switched"].keys()
    before, after = (sum(np.median(stages_ns[kind][key]) for key in both) for kind in KINDS)
    result = {
        "model": args.model,
        "variants": names,
        "stages": len(task.stage_names),
        "frames": len(records),
        "gap_us": {
            kind: {"count": len(times), **find_quantiles(times, "p50 p99 max", 1e3, 1)}
            for kind, times in gaps_ns.items()
        },
        "stage_ratio": round(float(after / before), 3),
        "memory_mb": round(task.memory_bytes / 1e6, 1),
        "added_us": added_us,
        "bar_us": BAR_US,
    }
    return {**result, "passed": rejudge(result)}


def rejudge(result: Mapping[str, Any]) -> bool:
    """Judge a result, also one that was written before."""
    return bool(result["added_us"]["p99"] <= BAR_US)


def _drive(session: Session, task: Task, frames: int) -> list[JobRecord]:
    records: list[JobRecord] = []
    session.observe(lambda record, result: records.append(record))
    session.activate(task.name, period_ns=_DEADLINE_NS)
    session.commit()
    scenes = draw_frames(8)
    generator = random.Random(0)
    total = frames + _WARM_UP_FRAMES
    for index in range(total):
        plan = tuple(generator.choice(task.variant_names) for _ in task.stage_names)
        session.executor.set_selector(_PlannedSelector(plan))
        session.submit(Frame(scenes[index % len(scenes)].image, "bgr8", 0, index))
        drain(session, 60.0)
        if (index + 1) % 100 == 0:
            say(f"switching: {index + 1} of {total} frames")
    return records[_WARM_UP_FRAMES:]


def _sort(
    records: Sequence[JobRecord],
) -> tuple[dict[str, list[int]], dict[str, dict[tuple[str, str], list[int]]]]:
    """Sort gaps by kind of boundary, and the next stages by kind, stage and variant; in ns."""
    gaps_ns: dict[str, list[int]] = {kind: [] for kind in KINDS}
    stages_ns: dict[str, dict[tuple[str, str], list[int]]] = {kind: {} for kind in KINDS}
    for before, after in chain.from_iterable(pairwise(record.stages) for record in records):
        kind = KINDS[before.variant != after.variant]
        gaps_ns[kind].append(after.start_ns - before.end_ns)
        if after.name.startswith("inference"):
            key = (after.name, after.variant)
            stages_ns[kind].setdefault(key, []).append(after.execution_time_ns)
    return gaps_ns, stages_ns


def report(result: Mapping[str, Any]) -> Report:
    """Make a table of the gaps with and without a switch."""
    added = result["added_us"]
    return [
        f"{result['model']}, {result['stages']} stages, {result['frames']} frames, "
        f"{' and '.join(result['variants'])}",
        tabulate(
            flatten(result["gap_us"]), "boundary=name, count, gap p50 us=p50:.1f, p99:.1f, max:.1f"
        ),
        f"a stage after a switch takes {result['stage_ratio']} of its time without one\n"
        f"a switch adds {added['p50']} us at the median, {added['p99']} us at p99",
        say_bars(f"p99 <= {result['bar_us']:.0f} us", result["passed"]),
    ]
