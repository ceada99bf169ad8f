# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""``evaluate --mode sequential``: in this process, on several, or on a fleet."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from jetson_dnn_rt.backends.memory import used_bytes
from jetson_dnn_rt.cli.progress import PhaseProgress
from jetson_dnn_rt.errors import SourceError, naming
from jetson_dnn_rt.lab.evaluate.accuracy import TruthJudge
from jetson_dnn_rt.lab.evaluate.campaign import CHUNK_FRAMES, Campaign, TraceParts, split_stream
from jetson_dnn_rt.lab.evaluate.chunk import (
    ChunkRequest,
    ChunkResult,
    VariantChunk,
    release,
    run_chunk,
)
from jetson_dnn_rt.lab.evaluate.plan import FixedTask, TaskFile, fix_task, read_task_file
from jetson_dnn_rt.lab.evaluate.report import describe_stream, describe_times, format_sequential
from jetson_dnn_rt.lab.evaluate.streams import (
    RESULTS,
    TRACE,
    Stream,
    find_usual_period_ns,
    inspect_bags,
    name_frames,
)
from jetson_dnn_rt.lab.streaming.truth import Truth
from jetson_dnn_rt.traces.metadata import describe_run
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import require_pyarrow


def evaluate(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Evaluate; return the summary, and a text for people."""
    require_pyarrow()
    file = read_task_file(args)
    streams = inspect_bags(args)
    truth = Truth(args.truth.expanduser(), name_frames(streams)) if args.truth else None
    with PhaseProgress() as progress:
        progress.say(f"loading {', '.join(task.name for task in file.tasks)}")
        tasks = [fix_task(spec) for spec in file.make_specs(find_usual_period_ns(streams))]
        for task in tasks:
            for reason in task.left_out.values():
                progress.say(f"{task.spec.name}: {reason}")
        specs = [task.spec for task in tasks]
        judge = None if truth is None else TruthJudge(truth, tasks)
        for note in () if truth is None else truth.notes:
            progress.say(note)
        masks = bool(args.masks or (judge and judge.needs_masks))
        given: dict[str, Any] = {"repeats": args.repeat or 1, "masks": masks}
        given["frames"] = args.chunk or CHUNK_FRAMES
        requests = [
            request
            for stream in streams
            for request in split_stream(stream.bag, stream.topic, stream.messages, specs, **given)
        ]
        memory: list[int] = []
        try:
            with ExitStack() as stack:
                campaign = _open_campaign(args, file, streams, tasks, requests, stack)
                total = sum(request.count for request in requests)
                done = 0
                progress.begin("evaluate")

                def step(frames: int) -> None:
                    progress("frames", done + frames, total)

                for result in _run(args, requests, step):
                    done += result.request.count
                    progress("frames", done, total)
                    campaign.add(result)
                    if judge is not None:
                        judge.add(result.lines)
                    memory.append(used_bytes())
        except OSError as error:
            raise SourceError(f"results or trace are incomplete: {error}") from error
    summary = _summarize(args, streams, tasks, campaign)
    # Resident memory of this process after the first chunk, at its peak, and at the end.
    shown = {"first": memory[0], "highest": max(memory), "last": memory[-1]} if memory else {}
    summary["memory_mb"] = {name: round(value / 1e6, 1) for name, value in shown.items()}
    if judge is not None:
        summary["accuracy"] = judge.to_dict()
    return summary, format_sequential(summary)


def _open_campaign(
    args: argparse.Namespace,
    file: TaskFile,
    streams: Sequence[Stream],
    tasks: Sequence[FixedTask],
    requests: Sequence[ChunkRequest],
    stack: ExitStack,
) -> Campaign:
    if not args.output:
        return Campaign(requests)
    camera = ", ".join(stream.name for stream in streams)
    described = {task.spec.name: task.describe(camera) for task in tasks}
    bags = [stream.to_dict() for stream in streams]
    parameters = {"mode": args.mode, "bags": bags, "repeat": args.repeat or 1, **file.to_dict()}
    metadata = describe_run("evaluate", described, parameters=parameters)
    with naming(args.output):
        room = TraceRoom(args.trace_limit_mb, ring=False)
        parts = stack.enter_context(TraceParts(args.output / TRACE, metadata, room=room))
        lines = stack.enter_context((args.output / RESULTS).open("wb"))
    return Campaign(requests, parts.write, lines.write)


def _run(
    args: argparse.Namespace, requests: Sequence[ChunkRequest], step: Callable[[int], object]
) -> Iterator[ChunkResult]:
    if args.scheduler or args.workers:
        from jetson_dnn_rt.lab.evaluate.fleet import evaluate_chunks

        workers = args.workers or 0
        yield from evaluate_chunks(requests, run_chunk, scheduler=args.scheduler, workers=workers)
        return
    try:
        for request in requests:
            yield run_chunk(request, step)
    finally:
        release()


def _summarize(
    args: argparse.Namespace,
    streams: Sequence[Stream],
    tasks: Sequence[FixedTask],
    campaign: Campaign,
) -> dict[str, Any]:
    described = []
    for stream in streams:
        count = campaign.streams[stream.bag, stream.topic]
        notes = [*stream.notes, *(n for n in count.notes if n not in stream.notes)]
        bag = describe_stream(stream, count.frames, count.bad)
        described.append({**bag, "unreadable": count.unreadable, "notes": notes})
    frames = sum(stream["frames"] for stream in described)
    return {
        "mode": args.mode,
        "frames": frames,
        "messages": sum(stream.messages for stream in streams),
        "unreadable": sum(stream["unreadable"] for stream in described),
        "missing": sum(stream.missing for stream in streams),
        "lost": campaign.lost,
        "repeats": args.repeat or 1,
        "identical": campaign.identical,
        "bags": described,
        "tasks": {
            task.spec.name: {
                "deadline_ms": task.spec.deadline_ns / 1e6,
                "left_out": task.left_out,
                "variants": {
                    variant: _describe_variant(campaign, streams, task, variant)
                    for variant in task.spec.config.variants
                },
            }
            for task in tasks
        },
        "machines": campaign.machines,
        "passed": bool(frames)
        and not campaign.lost
        and campaign.identical is not False
        and all(variant.execution.count for variant in campaign.variants.values()),
    }


def _describe_variant(
    campaign: Campaign, streams: Sequence[Stream], task: FixedTask, variant: str
) -> dict[str, Any]:
    key = task.spec.name, variant
    found = campaign.variants.get(key, VariantChunk())
    return {
        "runs": found.execution.count,
        "failed": campaign.failed[key],
        "failures": dict(found.failed),
        "over_deadline": found.execution.count_above(task.spec.deadline_ns),
        "execution_ms": describe_times(found.execution),
        "stages_ms": {name: describe_times(found.stages[name]) for name in found.stages},
        "longest": [{"frame": at, "ms": time_ns / 1e6} for time_ns, at in found.largest[:10]],
        "digests": {s.name: campaign.digest((s.bag, s.topic), key) for s in streams},
        "differing": {"frames": campaign.differences[key], "first": campaign.differing[key]},
    }
