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
import sys
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.demo.scenes import held_out_seed, random_scene
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.scheduling.selection import PlannedSelector
from jetson_dnn_rt.tasks import JobRecord, TaskParameters, Work
from jetson_dnn_rt.variants.running.variant_set import VariantSet
from jetson_dnn_rt.variants.spec import VariantSpec

BAR_US = 50.0
_WARM_UP_FRAMES = 20
_DEADLINE_NS = 10_000_000_000
_SCENES = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's arguments."""
    add = parser.add_argument
    add("--model", default="builtin:segmenter", help="default builtin:segmenter")
    add(
        "--variants",
        default="full@torch-fp32,full@torch-bf16",
        metavar="A,B",
        help="two variants that run stage by stage (default full@torch-fp32,full@torch-bf16)",
    )
    add("--stages", type=int, default=8, help="of the network (default 8)")
    add("--frames", type=int, default=400, help="measured frames (default 400)")
    add("--threads", type=int, default=1, help="of one inference (default 1)")


@dataclass
class _Boundaries:
    """Times at the boundaries of one kind, in nanoseconds."""

    gaps: list[int] = field(default_factory=list)
    stages: dict[tuple[str, str], list[int]] = field(default_factory=dict)


def run(args: argparse.Namespace) -> dict[str, object]:
    """Measure.

    Raises
    ------
    ConfigurationError
        When there are not two variants, or one cannot be entered at every stage.
    """
    names = [str(VariantSpec.parse(name)) for name in args.variants.split(",")]
    if len(names) != 2 or names[0] == names[1]:
        raise ConfigurationError(f"--variants must be two names: {args.variants}")
    for spec in map(VariantSpec.parse, names):
        info = inspect_backend(spec.backend)
        if spec.precision not in info.precisions:
            raise ConfigurationError(f"--variants {spec}: {info.reason or 'no such precision'}")
    model = load_model(args.model, weights="none")
    variants = VariantSet(
        model, names, DecoderSettings(), threads=args.threads, stages=args.stages
    )
    try:
        if variants.left_out:
            missing = "; ".join(variants.left_out.values())
            raise ConfigurationError(f"--variants are not loaded: {missing}")
        for name, pipeline in variants.pipelines.items():
            if len(pipeline.stages) != len(variants.stage_names):
                raise ConfigurationError(
                    f"--variants {name} covers several stages with one run, because that is "
                    "faster: nothing to switch there; choose one on the torch back end"
                )
        records = _drive(args, variants, names)
    finally:
        variants.close()
    kept, switched = _sort(records)
    added_us = {
        f"p{quantile}": round(
            float(np.percentile(switched.gaps, quantile) - np.percentile(kept.gaps, quantile))
            / 1e3,
            1,
        )
        for quantile in (50, 99)
    }
    return {
        "benchmark": "switching",
        "model": args.model,
        "variants": names,
        "stages": len(variants.stage_names),
        "frames": len(records),
        "gap_us": {"kept": _figures(kept.gaps), "switched": _figures(switched.gaps)},
        "stage_ratio": _stage_ratio(kept, switched),
        "memory_mb": round(variants.memory_bytes / 1e6, 1),
        "added_us": added_us,
        "bar_us": BAR_US,
        "passed": added_us["p99"] <= BAR_US,
    }


def _drive(args: argparse.Namespace, variants: VariantSet, names: list[str]) -> list[JobRecord]:
    records: list[JobRecord] = []

    def observe(record: JobRecord, work: Work) -> None:
        records.append(record)

    executor = Executor(1)
    executor.add_task(
        TaskParameters(
            "task", _DEADLINE_NS, _DEADLINE_NS, variants.stage_names, tuple(names), names[0]
        ),
        {name: pipeline.stages for name, pipeline in variants.pipelines.items()},
        observe,
    )
    executor.start()
    executor.realtime.freeze()
    scenes = [random_scene(held_out_seed(i), (480, 640)).image for i in range(_SCENES)]
    generator = random.Random(0)
    total = args.frames + _WARM_UP_FRAMES
    try:
        for index in range(total):
            plan = tuple(generator.choice(names) for _ in variants.stage_names)
            executor.set_selector(PlannedSelector({"task": plan}))
            frame = Frame(scenes[index % _SCENES], "bgr8", 0, index)
            executor.submit("task", frame, executor.clock.now_ns())
            if not executor.wait_idle(60.0):
                raise ConfigurationError("a frame did not end within a minute")
            if (index + 1) % 100 == 0:
                print(f"switching: {index + 1} of {total} frames", file=sys.stderr, flush=True)
    finally:
        executor.stop()
    return records[_WARM_UP_FRAMES:]


def _sort(records: list[JobRecord]) -> tuple[_Boundaries, _Boundaries]:
    kept, switched = _Boundaries(), _Boundaries()
    for record in records:
        for before, after in zip(record.stages, record.stages[1:], strict=False):
            kind = kept if before.variant == after.variant else switched
            kind.gaps.append(after.start_ns - before.end_ns)
            if after.name.startswith("inference"):
                key = (after.name, after.variant)
                kind.stages.setdefault(key, []).append(after.execution_time_ns)
    return kept, switched


def _figures(times_ns: list[int]) -> dict[str, float]:
    return {
        "count": len(times_ns),
        "p50": round(float(np.median(times_ns)) / 1e3, 1),
        "p99": round(float(np.percentile(times_ns, 99)) / 1e3, 1),
        "max": round(max(times_ns) / 1e3, 1),
    }


def _stage_ratio(kept: _Boundaries, switched: _Boundaries) -> float:
    """Time of the stages after a switch, over that of the same stages without one."""
    both = kept.stages.keys() & switched.stages.keys()
    total = {
        name: sum(float(np.median(kind.stages[key])) for key in both)
        for name, kind in (("kept", kept), ("switched", switched))
    }
    return round(total["switched"] / total["kept"], 3)


def format_table(result: dict[str, object]) -> str:
    """Return the result as a table for people."""
    gaps = cast("dict[str, dict[str, float]]", result["gap_us"])
    added = cast("dict[str, float]", result["added_us"])
    lines = [
        f"{result['model']}, {result['stages']} stages, {result['frames']} frames, "
        f"{' and '.join(cast('list[str]', result['variants']))}",
        "",
        f"{'boundary':<12}{'count':>8}{'gap p50':>12}{'p99':>12}{'max':>12}",
    ]
    lines += [
        f"{kind:<12}{figures['count']:>8.0f}"
        + "".join(f"{figures[key]:>9.1f} us" for key in ("p50", "p99", "max"))
        for kind, figures in gaps.items()
    ]
    lines += [
        "",
        f"a stage after a switch takes {result['stage_ratio']} of its time without one",
        f"a switch adds {added['p50']} us at the median, {added['p99']} us at p99, bar "
        f"{result['bar_us']:.0f} us: " + ("passed" if result["passed"] else "NOT passed"),
    ]
    return "\n".join(lines)
