"""What it costs to switch variants between two stages of a frame.

A model in two variants runs under the real executor, stage by stage. Every frame follows a plan
of variants drawn at random, so about half of its boundaries are switches and half are not, side
by side in the same run. Two figures for both kinds of boundaries, by stage of the network:

gap    from the end of one stage to the start of the next: the decision and the hand-over
stage  what the next stage takes: with boundary tensors in another memory layout and with caches
       that another variant has left, where it was a switch

What a switch costs is what it adds to the gap: passes when the p99 gap at a switch is at most
50 us longer than the p99 gap without one. The first switch to a variant in a process pays for
page faults; warm-up frames are not counted.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.harness.options import Options
from benchmarks.harness.tables import Report, flatten, say, say_verdict, tabulate
from benchmarks.harness.tasks import (
    BenchTask,
    add_task,
    drain,
    draw_frames,
    load_variants,
    make_executor,
    make_task,
    running,
)
from benchmarks.harness.timing import find_quantiles
from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.selection import StaticSelector
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import JobRecord
from jetson_dnn_rt.variants.spec import VariantSpec

BAR_US = 50.0
_WARM_UP_FRAMES = 20
_DEADLINE_NS = 10_000_000_000


def add_arguments(add: Options) -> None:
    """Options of the benchmark."""
    add("--model", "builtin:segmenter")
    add(
        "--variants", "full@torch-fp32,full@torch-bf16",
        "two variants that run stage by stage", metavar="A,B",
    )  # fmt: skip
    add("--stages", 8, "of the network")
    add("--frames", 400, "measured frames")
    add("--threads", 1, "of one inference")


class _PlannedSelector(StaticSelector):
    """A fixed variant for each stage."""

    def __init__(self, plan: Sequence[str]) -> None:
        self._plan = plan

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        """Return the plan's variant of this stage."""
        return self._plan[job.next_stage]


@dataclass
class _Boundaries:
    """Times at the boundaries of one kind, in nanoseconds."""

    gaps: list[int] = field(default_factory=list)
    stages: dict[tuple[str, str], list[int]] = field(default_factory=dict)


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
    with ExitStack() as stack:
        variants = load_variants(
            stack, args.model, names, threads=args.threads, stages=args.stages
        )
        for name, pipeline in variants.pipelines.items():
            if len(pipeline.stages) != len(variants.stage_names):
                raise ConfigurationError(
                    f"--variants {name} covers several stages with one run, because that is "
                    "faster: nothing to switch there; choose one on the torch back end"
                )
        records = _drive(make_task("task", variants), args.frames)
        memory_bytes = variants.memory_bytes
    kept, switched = _sort(records)
    sides = [find_quantiles(kind.gaps, "p50 p99", 1e3) for kind in (kept, switched)]
    added_us = {name: round(sides[1][name] - value, 1) for name, value in sides[0].items()}
    return {
        "model": args.model,
        "variants": names,
        "stages": len(variants.stage_names),
        "frames": len(records),
        "gap_us": {"kept": _describe(kept.gaps), "switched": _describe(switched.gaps)},
        "stage_ratio": _find_stage_ratio(kept, switched),
        "memory_mb": round(memory_bytes / 1e6, 1),
        "added_us": added_us,
        "bar_us": BAR_US,
        "passed": added_us["p99"] <= BAR_US,
    }


def _drive(task: BenchTask, frames: int) -> list[JobRecord]:
    records: list[JobRecord] = []
    task.period_ns = task.deadline_ns = _DEADLINE_NS
    executor = make_executor(1)
    add_task(executor, task, lambda record, work: records.append(record))
    scenes = draw_frames(8)
    names = list(task.stages)
    generator = random.Random(0)
    total = frames + _WARM_UP_FRAMES
    with running(executor, freeze=True):
        for index in range(total):
            plan = tuple(generator.choice(names) for _ in task.stage_names)
            executor.set_selector(_PlannedSelector(plan))
            frame = Frame(scenes[index % len(scenes)].image, "bgr8", 0, index)
            executor.submit(task.name, frame, executor.clock.now_ns())
            drain(executor, 60.0)
            if (index + 1) % 100 == 0:
                say(f"switching: {index + 1} of {total} frames")
    return records[_WARM_UP_FRAMES:]


def _sort(records: Sequence[JobRecord]) -> tuple[_Boundaries, _Boundaries]:
    kept, switched = _Boundaries(), _Boundaries()
    for record in records:
        for before, after in zip(record.stages, record.stages[1:], strict=False):
            kind = kept if before.variant == after.variant else switched
            kind.gaps.append(after.start_ns - before.end_ns)
            if after.name.startswith("inference"):
                key = (after.name, after.variant)
                kind.stages.setdefault(key, []).append(after.execution_time_ns)
    return kept, switched


def _describe(times_ns: list[int]) -> dict[str, float]:
    return {"count": len(times_ns), **find_quantiles(times_ns, "p50 p99 max", 1e3, 1)}


def _find_stage_ratio(kept: _Boundaries, switched: _Boundaries) -> float:
    """Time of the stages after a switch, over that of the same stages without one."""
    both = kept.stages.keys() & switched.stages.keys()
    before, after = (
        sum(float(np.median(kind.stages[key])) for key in both) for kind in (kept, switched)
    )
    return round(after / before, 3)


def report(result: Mapping[str, Any]) -> Report:
    """Gaps with and without a switch."""
    added = result["added_us"]
    return [
        f"{result['model']}, {result['stages']} stages, {result['frames']} frames, "
        f"{' and '.join(result['variants'])}",
        tabulate(
            flatten(result["gap_us"]), "boundary=name, count, gap p50 us=p50:.1f, p99:.1f, max:.1f"
        ),
        f"a stage after a switch takes {result['stage_ratio']} of its time without one\n"
        f"a switch adds {added['p50']} us at the median, {added['p99']} us at p99, bar "
        f"{result['bar_us']:.0f} us: {say_verdict(result['passed'])}",
    ]
