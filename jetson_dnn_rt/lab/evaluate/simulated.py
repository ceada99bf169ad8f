# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""``evaluate --mode simulated``: measured times through the simulator, without running a network.

Answers what would happen with other deadlines, rates, policies or cohorts. The times come from a
job trace of an earlier evaluation or run: a ``realtime`` one with its arrivals and overheads, or a
``sequential`` one with the arrivals of the bag and no overheads, since nothing waited there.
"""

from __future__ import annotations

import argparse
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from jetson_dnn_rt.config.nodes import COORDINATOR, PERCEPTION
from jetson_dnn_rt.config.task import AUTO
from jetson_dnn_rt.errors import ConfigurationError, SourceError, naming
from jetson_dnn_rt.lab.evaluate.command import SEQUENTIAL
from jetson_dnn_rt.lab.evaluate.plan import STATIC
from jetson_dnn_rt.lab.evaluate.report import format_replay, miss_ratio, summarize_jobs
from jetson_dnn_rt.lab.evaluate.streams import TRACE, Integers, inspect_bags, plan_arrivals
from jetson_dnn_rt.lab.simulate.recording import (
    RecordedLaboratory,
    RecordedTask,
    Timeline,
    read_task,
    read_warm_up,
)
from jetson_dnn_rt.lab.simulate.scenario import record_scenario
from jetson_dnn_rt.lab.simulate.session import simulate
from jetson_dnn_rt.lab.simulate.sharing import Sharing
from jetson_dnn_rt.lab.simulate.tally import Tally
from jetson_dnn_rt.tasks import JobRecord
from jetson_dnn_rt.traces.metadata import describe_run
from jetson_dnn_rt.traces.reader import Trace, open_trace
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import NARROW_SLOWDOWNS, SHARING, TracedJob, TracedTask
from jetson_dnn_rt.traces.summary import RunSummary
from jetson_dnn_rt.traces.writer import TraceWriter

logger = logging.getLogger(__name__)

IN_ORDER_MS = 1e12
"""A block longer than any recording: every frame uses its own recorded times."""

OPEN = (None, 0, AUTO)  # what `threads` of a task is where the process decides


@dataclass(frozen=True)
class WhatIf:
    """Changes to the recording; the defaults change nothing."""

    deadlines_ns: Mapping[str, int] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)
    """Variants by task, unless the policy chooses others."""
    cohort: tuple[str, ...] = ()
    """Tasks that run, a name twice for two copies; empty = those recorded."""
    speed: float = 1.0
    rate_hz: float = 0.0
    policy: str = STATIC
    workers: int = 1
    helpers: int = 0
    discipline: str = "edf"
    seeds: int = 0
    """0 = once, every frame with its own times; otherwise the number of runs with the times drawn
    in blocks of `block_ms`."""
    block_ms: float = 2000.0
    budget_quantile: float = 0.99


def read_recorded(
    traces: Sequence[Trace], arrivals_ns: Mapping[str, Integers] | None = None
) -> list[RecordedTask]:
    """Read the tasks of job traces in the trace's order, which decides among equal deadlines.

    The traces are all sequential, or none is. For sequential ones `arrivals_ns` gives by stream
    (``camera``) when each message of the topic was logged; without it the stamps of the frames are
    used.

    Raises
    ------
    ConfigurationError
        When there is no job, no frame ran to its end, or the kinds are mixed.
    """
    kinds = {trace.metadata.parameters.get("mode") == SEQUENTIAL for trace in traces}
    if len(kinds) > 1:
        raise ConfigurationError("traces of sequential evaluations and of others cannot be mixed")
    jobs = [job for trace in traces for job in trace.jobs()]
    if not jobs:
        raise ConfigurationError(f"{', '.join(str(t.path) for t in traces)}: holds no job")
    metadata = traces[0].metadata
    by_task: dict[str, list[JobRecord]] = defaultdict(list)
    for job in jobs:
        by_task[job.record.task].append(job.record)
    try:
        timeline = Timeline.of((job.record for job in jobs), metadata)
        runs_of = read_warm_up(metadata)
        if kinds == {True}:
            tasks = _read_sequential(jobs, timeline, arrivals_ns or {})
        else:
            tasks = [read_task(by_task[name], timeline) for name in sorted(by_task)]
    except ValueError as error:
        raise ConfigurationError(f"{traces[0].path}: {error}") from error
    order = {name: place for place, name in enumerate(metadata.tasks)}
    tasks.sort(key=lambda task: (order.get(task.name, len(order)), task.name))
    return [replace(task, warm_up_ns=runs_of.get(task.name, {})) for task in tasks]


def _read_sequential(
    jobs: Sequence[TracedJob], timeline: Timeline, arrivals_ns: Mapping[str, Integers]
) -> list[RecordedTask]:
    found: dict[str, dict[str, list[TracedJob]]] = defaultdict(lambda: defaultdict(list))
    seen = set()
    for job in jobs:
        record = job.record
        # Only the first repetition: the others are the same frames again.
        place = record.task, record.variant, job.camera, record.sequence
        if not job.warm_up and place not in seen:
            seen.add(place)
            found[record.task][record.variant].append(job)
    return [_join_variants(found[name], timeline, arrivals_ns) for name in sorted(found)]


def _join_variants(
    variants: Mapping[str, list[TracedJob]],
    timeline: Timeline,
    arrivals_ns: Mapping[str, Integers],
) -> RecordedTask:
    """Join a task's variants: every frame deviates from the median as in the first of them."""
    tasks = [read_task([job.record for job in jobs], timeline) for jobs in variants.values()]
    first, jobs = tasks[0], next(iter(variants.values()))
    if any(task.stages != first.stages for task in tasks):
        raise ValueError(f"variants of task {first.name!r} differ in their stages")
    jobs = sorted(jobs, key=lambda job: job.record.release_ns)
    recorded = np.concatenate([[0], _arrived(jobs, arrivals_ns)]).astype(np.int64)[1:]
    arrivals = plan_arrivals(recorded, period_ns=first.period_ns)
    return replace(
        first,
        variants=tuple(name for task in tasks for name in task.variants),
        spans={name: spans for task in tasks for name, spans in task.spans.items()},
        base_ns=np.concatenate([task.base_ns for task in tasks]),
        releases_ns=arrivals.times_ns,
        captures_ns=arrivals.times_ns,
        sequences=np.arange(len(jobs)),
        period_ns=arrivals.period_ns,
        overhead_ns=np.zeros_like(first.overhead_ns),
        wake_ns=np.zeros_like(first.wake_ns),
        report_ns=np.zeros_like(first.report_ns),
    )


def _arrived(jobs: Iterable[TracedJob], arrivals_ns: Mapping[str, Integers]) -> list[int]:
    times = []
    for job in jobs:
        known, frame = arrivals_ns.get(job.camera), job.record.sequence
        if known is not None and not 0 <= frame < len(known):
            raise ValueError(
                f"{job.camera} has {len(known)} messages, and no frame {frame} as the trace has; "
                "fix: give the bag that the trace was made of"
            )
        time_ns = job.stamp_ns if known is None else int(known[frame])
        if time_ns is None:
            raise ValueError("the trace has no times of its frames; fix: give the bag, too")
        times.append(time_ns)
    return times


def change(tasks: Sequence[RecordedTask], what_if: WhatIf) -> list[RecordedTask]:
    """Change the recorded tasks.

    Raises
    ------
    ConfigurationError
        When a named task or variant was not recorded, or there is no period.
    """
    by_name = {task.name: task for task in tasks}
    cohort = what_if.cohort or tuple(by_name)
    named = {"cohort": cohort, "deadline": what_if.deadlines_ns, "variant": what_if.variants}
    for option, names in named.items():
        for name in names:
            if name not in by_name:
                raise ConfigurationError(
                    f"{option}: task {name!r} was not recorded, but {', '.join(by_name)}"
                )
    return [
        replace(_change_task(by_name[name], what_if), name=title)
        for title, name in _name_cohort(cohort).items()
    ]


def _name_cohort(cohort: Sequence[str]) -> dict[str, str]:
    """Recorded names by those they run under: ``detector``, and ``detector-2`` of a second one."""
    titles = {}
    for place, name in enumerate(cohort):
        before = cohort[:place].count(name)
        titles[f"{name}-{before + 1}" if before else name] = name
    return titles


def _change_task(task: RecordedTask, what_if: WhatIf) -> RecordedTask:
    if task.name in what_if.variants:
        task = _put_first(task, what_if.variants[task.name])
    deadline_ns = what_if.deadlines_ns.get(task.name, task.deadline_ns)
    if what_if.speed == 1.0 and not what_if.rate_hz:
        return replace(task, deadline_ns=deadline_ns)
    origin_ns = task.releases_ns[0]
    rate = {"speed": what_if.speed, "rate_hz": what_if.rate_hz}
    arrivals = plan_arrivals(task.releases_ns - origin_ns, **rate, period_ns=task.period_ns)
    releases = origin_ns + arrivals.times_ns
    return replace(
        task,
        deadline_ns=deadline_ns,
        releases_ns=releases,
        captures_ns=releases - (task.releases_ns - task.captures_ns),
        period_ns=arrivals.period_ns,
    )


def _put_first(task: RecordedTask, variant: str) -> RecordedTask:
    if variant not in task.variants:
        raise ConfigurationError(
            f"variant: {task.name} was not recorded in {variant}, but in "
            f"{', '.join(task.variants)}"
        )
    place = task.variants.index(variant)
    order = [place, *(other for other in range(len(task.variants)) if other != place)]
    return replace(
        task,
        variants=tuple(task.variants[i] for i in order),
        base_ns=task.base_ns[order],
        narrow=None if task.narrow is None else task.narrow[order],
    )


def simulate_recorded(
    tasks: Sequence[RecordedTask], what_if: WhatIf, observer: Callable[[JobRecord], None]
) -> list[Tally]:
    """Run the engine on recorded tasks, changed or not; return a tally for each seed.

    The observer is called with the record of every job, of all seeds.

    Raises
    ------
    ConfigurationError
        See `change`; or there is no such policy.
    """
    block_ms = what_if.block_ms if what_if.seeds else IN_ORDER_MS
    names = ("workers", "discipline", "helpers")
    given: dict[str, Any] = {name: getattr(what_if, name) for name in names}
    scenario = record_scenario(Path("evaluation"), block_ms=block_ms, **given)
    scenario = replace(scenario, budget_quantile=what_if.budget_quantile)
    changed = change(tasks, what_if)
    laboratory = RecordedLaboratory(scenario, changed)

    def observe(frame: Any) -> None:
        observer(frame.record)

    return [
        simulate(laboratory, what_if.policy, seed=seed, observer=observe)
        for seed in range(max(1, what_if.seeds))
    ]


# -- The command ---------------------------------------------------------------------------------


def evaluate(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Simulate; return the summary, and a text for people."""
    for option in ("task", "set", "params"):
        if getattr(args, option):
            raise ConfigurationError(
                f"--{option}: tasks of --mode simulated are those of the trace: see --cohort, "
                "--variant and --deadline"
            )
    traces, bags = _sort_out(args)
    arrivals: dict[str, Integers] = {}
    if bags:
        args.bags = bags
        arrivals = {stream.name: stream.log_times_ns for stream in inspect_bags(args)}
    recorded = read_recorded(traces, arrivals)
    what_if = read_what_if(args, traces)
    sharing = Sharing.of(traces[0].metadata)
    _warn_of_narrow(recorded, traces[0], sharing, what_if)
    summary = RunSummary()
    with ExitStack() as stack:
        writer = _open_writer(args, recorded, traces, what_if, stack)

        def observe(record: JobRecord) -> None:
            summary.add(record)
            if writer is not None:
                writer.write(record, warm_up=False, wait=True)

        tallies = simulate_recorded(recorded, what_if, observe)
    if writer is not None and (writer.lost or writer.error):
        raise SourceError(f"the trace is incomplete: {writer.lost} jobs lost, {writer.error}")
    result = {
        "mode": args.mode,
        **_describe(traces, what_if),
        "narrow": sorted(task.name for task in recorded if task.narrow is not None),
        "frames": max((task.released for task in summary.tasks.values()), default=0),
        "tasks": summarize_jobs(summary),
        "miss_ratio": miss_ratio(summary),
        "miss_ratios": [tally.miss_ratio for tally in tallies],
        "switches": sum(tally.switches for tally in tallies),
        "passed": bool(summary.tasks),
    }
    return result, _format(result)


def read_what_if(args: argparse.Namespace, traces: Sequence[Trace]) -> WhatIf:
    """Read what the options change; policy and what the engine has default to the trace's.

    The first trace has been read: `read_recorded`.
    """
    parameters = traces[0].metadata.parameters
    sharing = Sharing.of(traces[0].metadata)
    helpers = sharing.helpers if args.helpers is None else args.helpers
    if helpers is None:
        logger.warning(
            "%s does not tell its number of helpers: taken as 0; fix: --helpers", traces[0].path
        )
    # Traces of `run` and the nodes have a node's parameters under its name.
    of_nodes = [parameters.get(name, {}) for name in (COORDINATOR, PERCEPTION)]
    if not all(isinstance(values, Mapping) for values in of_nodes):
        raise ConfigurationError(
            f"{traces[0].path}: parameters of {COORDINATOR} and {PERCEPTION} must have names"
        )
    decided = of_nodes[0].get("policy", STATIC)
    recorded = {"policy": decided, **of_nodes[1], **parameters}
    # The highest where the recorded tasks differ.
    quantiles = [
        float(values["budget_quantile"])
        for values in parameters.values()
        if isinstance(values, Mapping) and "budget_quantile" in values
    ]
    return WhatIf(
        deadlines_ns={task: int(ms * 1e6) for task, ms in args.deadline},
        variants=dict(args.variant),
        cohort=tuple(name for name in (args.cohort or "").split(",") if name),
        speed=args.speed or 1.0,
        rate_hz=args.rate or 0.0,
        policy=args.policy or str(recorded["policy"]),
        workers=args.workers or sharing.workers,
        helpers=helpers or 0,
        discipline=args.discipline or str(recorded.get("discipline", "edf")),
        seeds=args.seeds or 0,
        block_ms=args.block_ms or 2000.0,
        budget_quantile=max(quantiles, default=WhatIf.budget_quantile),
    )


def _warn_of_narrow(
    tasks: Sequence[RecordedTask], trace: Trace, sharing: Sharing, what_if: WhatIf
) -> None:
    """Log which tasks were to run narrow where they can, and cannot here."""
    threads: dict[str, Any] = {}
    for task in tasks:
        values = trace.metadata.parameters.get(task.name)
        threads[task.name] = values.get("threads") if isinstance(values, Mapping) else None
    if not what_if.helpers or AUTO not in (sharing.threads, *threads.values()):
        return
    if sharing.narrow_slowdowns is not None:
        return  # measured: those that it does not name do not run narrow
    # A task with its own number of threads is never narrow, or always: that of a single core.
    unknown = [task.name for task in tasks if task.narrow is None and threads[task.name] in OPEN]
    if unknown:
        logger.warning(
            "threads: auto: narrow networks of %s are not modelled, all of them run wide: the "
            "trace has no times of narrow ones",
            ", ".join(unknown),
        )


def _sort_out(args: argparse.Namespace) -> tuple[list[Trace], list[Path]]:
    """Return traces and bags: without ``--trace`` the positional arguments are the traces."""
    paths, bags = (args.trace, args.bags) if args.trace else (args.bags, [])
    try:
        return [open_trace(path.expanduser()) for path in paths], bags
    except ValueError as error:
        hint = "" if args.trace else "; a bag needs --trace, which has the measured times"
        raise ConfigurationError(f"{error}{hint}") from error


def _open_writer(
    args: argparse.Namespace,
    recorded: Sequence[RecordedTask],
    traces: Sequence[Trace],
    what_if: WhatIf,
    stack: ExitStack,
) -> TraceWriter | None:
    if not args.output:
        return None
    tasks = {
        task.name: TracedTask(
            variants=task.variants,
            stages=task.stages,
            deadline_ns=what_if.deadlines_ns.get(task.name, task.deadline_ns),
            period_ns=task.period_ns,
        )
        for task in recorded
    }
    parameters = {
        "mode": args.mode,
        **_describe(traces, what_if),
        SHARING: _describe_sharing(recorded, Sharing.of(traces[0].metadata), what_if),
    }
    metadata = describe_run("evaluate", tasks, parameters=parameters)
    with naming(args.output):
        room = TraceRoom(args.trace_limit_mb, ring=False)
        writer = TraceWriter(args.output / TRACE, metadata, room=room, replace=True)
        return stack.enter_context(writer)


def _describe(traces: Sequence[Trace], what_if: WhatIf) -> dict[str, Any]:
    names = ("policy", "workers", "helpers", "discipline", "speed", "rate_hz", "seeds")
    return {
        "traces": [str(trace.path) for trace in traces],
        **{name: getattr(what_if, name) for name in names},
        "cohort": list(what_if.cohort),
        "block_ms": what_if.block_ms if what_if.seeds else None,
    }


def _describe_sharing(
    recorded: Sequence[RecordedTask], sharing: Sharing, what_if: WhatIf
) -> dict[str, Any]:
    """Describe how the simulated tasks shared the cores, with what was measured before the run."""
    described = {
        "workers": what_if.workers,
        "helpers": what_if.helpers,
        "threads": sharing.threads,
    }
    measured = sharing.narrow_slowdowns
    if measured is None:
        return described
    names = _name_cohort(what_if.cohort or [task.name for task in recorded])
    slowdowns = {title: measured[name] for title, name in names.items() if name in measured}
    return {**described, NARROW_SLOWDOWNS: slowdowns}


def _format(result: dict[str, Any]) -> str:
    line = (
        f"{result['policy']}, {result['workers']} worker{'s' if result['workers'] > 1 else ''}, "
        f"{result['discipline']}: {100 * (result['miss_ratio'] or 0.0):.2f} % missed"
    )
    if len(result["miss_ratios"]) > 1:
        low, high = min(result["miss_ratios"]), max(result["miss_ratios"])
        line += f" ({100 * low:.2f} to {100 * high:.2f} in {len(result['miss_ratios'])} runs)"
    return f"{format_replay(result)}\n{line}"
