"""``evaluate --mode simulated``: measured times through the simulator, no net runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from jetson_dnn_rt.config.nodes import COORDINATOR, PERCEPTION
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.lab.evaluate.arrivals import Integers
from jetson_dnn_rt.lab.evaluate.command_bags import TRACE, inspect_bags
from jetson_dnn_rt.lab.evaluate.command_realtime import miss_ratio, summarize_jobs
from jetson_dnn_rt.lab.evaluate.command_tasks import STATIC
from jetson_dnn_rt.lab.evaluate.report import format_replay
from jetson_dnn_rt.lab.evaluate.simulated import WhatIf, read_recorded, simulate_recorded
from jetson_dnn_rt.lab.simulate.recording import RecordedTask
from jetson_dnn_rt.lab.simulate.tally import Tally
from jetson_dnn_rt.tasks import JobRecord
from jetson_dnn_rt.traces.metadata import describe_run
from jetson_dnn_rt.traces.reader import Trace, open_trace
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.schema import TracedTask
from jetson_dnn_rt.traces.summary import RunSummary
from jetson_dnn_rt.traces.writer import TraceWriter


def evaluate(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Simulate; the summary, and the text for people."""
    begin_s = time.monotonic()
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
    result = _summarize(args, traces, what_if, summary, tallies)
    result["seconds"] = round(time.monotonic() - begin_s, 1)
    return result, _format(result)


def read_what_if(args: argparse.Namespace, traces: Sequence[Trace]) -> WhatIf:
    """What the options change; workers, discipline and policy are the trace's otherwise."""
    parameters = traces[0].metadata.parameters
    # As `run` and the nodes have it, a node's parameters are by its name.
    decided = parameters.get(COORDINATOR, {}).get("policy", STATIC)
    recorded = {"policy": decided, **parameters.get(PERCEPTION, {}), **parameters}
    return WhatIf(
        deadlines_ns={task: int(ms * 1e6) for task, ms in args.deadline},
        variants=dict(args.variant),
        cohort=tuple(name for name in (args.cohort or "").split(",") if name),
        speed=args.speed or 1.0,
        rate_hz=args.rate or 0.0,
        policy=args.policy or str(recorded["policy"]),
        workers=args.workers or int(recorded.get("workers", 1)),
        discipline=args.discipline or str(recorded.get("discipline", "edf")),
        seeds=args.seeds or 0,
        block_ms=args.block_ms or 2000.0,
        budget_quantile=_find_quantile(parameters),
    )


def _find_quantile(parameters: Mapping[str, Any]) -> float:
    """Of the budgets of the recorded tasks; their highest where they differ."""
    given = [
        float(values["budget_quantile"])
        for values in parameters.values()
        if isinstance(values, Mapping) and "budget_quantile" in values
    ]
    return max(given, default=WhatIf.budget_quantile)


def _sort_out(args: argparse.Namespace) -> tuple[list[Trace], list[Path]]:
    """Traces, and bags: without ``--trace`` what is named first is the trace itself."""
    try:
        if args.trace:
            return [open_trace(path.expanduser()) for path in args.trace], args.bags
        return [open_trace(path.expanduser()) for path in args.bags], []
    except ValueError as error:
        hint = "" if args.trace else "; a bag needs --trace, which says the measured times"
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
    metadata = describe_run(
        "evaluate", tasks, parameters={"mode": args.mode, **_describe(traces, what_if)}
    )
    try:
        room = TraceRoom(args.trace_limit_mb, ring=False)
        return stack.enter_context(
            TraceWriter(args.output / TRACE, metadata, room=room, replace=True)
        )
    except OSError as error:
        raise ConfigurationError(f"cannot write {error.filename}: {error.strerror}") from error


def _describe(traces: Sequence[Trace], what_if: WhatIf) -> dict[str, Any]:
    return {
        "traces": [str(trace.path) for trace in traces],
        "policy": what_if.policy,
        "workers": what_if.workers,
        "discipline": what_if.discipline,
        "cohort": list(what_if.cohort),
        "speed": what_if.speed,
        "rate_hz": what_if.rate_hz,
        "seeds": what_if.seeds,
        "block_ms": what_if.block_ms if what_if.seeds else None,
    }


def _summarize(
    args: argparse.Namespace,
    traces: Sequence[Trace],
    what_if: WhatIf,
    summary: RunSummary,
    tallies: Sequence[Tally],
) -> dict[str, Any]:
    return {
        "mode": args.mode,
        **_describe(traces, what_if),
        "frames": max((task.released for task in summary.tasks.values()), default=0),
        "tasks": summarize_jobs(summary),
        "miss_ratio": miss_ratio(summary),
        "miss_ratios": [tally.miss_ratio for tally in tallies],
        "switches": sum(tally.switches for tally in tallies),
        "passed": bool(summary.tasks),
    }


def _format(result: dict[str, Any]) -> str:
    line = (
        f"{result['policy']}, {result['workers']} worker{'s' if result['workers'] > 1 else ''}, "
        f"{result['discipline']}: {100 * (result['miss_ratio'] or 0.0):.2f} % missed"
    )
    if len(result["miss_ratios"]) > 1:
        low, high = min(result["miss_ratios"]), max(result["miss_ratios"])
        line += f" ({100 * low:.2f} to {100 * high:.2f} in {len(result['miss_ratios'])} runs)"
    return f"{format_replay(result)}\n{line}"
