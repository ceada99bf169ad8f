"""A recorded run against its replay in the simulator.

The built-in detector and segmenter run stage by stage under the real executor, on frames at a
fixed rate and with deadlines that some frames miss; beside them a load on every core comes and
goes, so that execution times have bursts. The job trace of that run is then a scenario: in the
simulator the same frames arrive at the same times and take recorded times, put together anew in
blocks, seed by seed; and once in the recorded order, which shows the engine alone. With --trace
another recording is replayed, as that of `jetson-dnn-rt run --output DIR`.

Bars: the simulator's miss ratio is within 2 percentage points of the recorded one, and the p99 of
its responses within 10 %, over all frames of the run; the tasks are shown besides.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from jetson_dnn_rt.demo.scenes import held_out_seed, random_scene
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.simulate.recording import RecordedLaboratory
from jetson_dnn_rt.lab.simulate.scenario import record_scenario
from jetson_dnn_rt.lab.simulate.session import simulate
from jetson_dnn_rt.lab.simulate.tally import Tally
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.safety.children import code_command
from jetson_dnn_rt.tasks import JobRecord, TaskParameters, Work
from jetson_dnn_rt.traces.metadata import describe_run
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.summary import RunSummary, order_statistic
from jetson_dnn_rt.traces.writer import TraceWriter
from jetson_dnn_rt.variants.measuring.timing import measure_stages
from jetson_dnn_rt.variants.running.variant_set import VariantSet

MISS_BAR = 0.02
P99_BAR = 0.10
TASKS = ("detector", "segmenter")
_SIZE = (480, 640)
_SCENES = 8
_WARM_UP_RUNS = 60
_PERIOD = 1.8
"""Time between frames, relative to what both tasks take as usual."""
_DEADLINE = 1.6
"""Deadline relative to what the task takes as usual, after those that are due before it."""
_LOAD = (
    "import sys, time\n"
    "on, off = float(sys.argv[1]), float(sys.argv[2])\n"
    "while True:\n"
    "    end = time.monotonic() + on\n"
    "    while time.monotonic() < end: pass\n"
    "    time.sleep(off)\n"
)
_LOAD_ON_S, _LOAD_OFF_S = 0.5, 3.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's arguments."""
    add = parser.add_argument
    add("--seconds", type=float, default=60.0, help="of the recorded run (default 60)")
    add("--seeds", type=int, default=20, help="replays (default 20)")
    add("--stages", type=int, default=4, help="of each network (default 4)")
    add("--block-ms", type=float, default=2000.0, help="length of the blocks (default 2000)")
    add("--trace", type=Path, metavar="TRACE", help="replay this recording instead")
    add("--workers", type=int, default=1, help="of that recording (default 1)")
    add("--keep", type=Path, metavar="DIR", help="keep the recorded trace there")
    add("--quick", action="store_true", help="10 seconds, 5 replays: no bar is held")


def run(args: argparse.Namespace) -> dict[str, object]:
    """Record, replay, compare.

    Raises
    ------
    ConfigurationError
        When an option is out of range, or the recording cannot be used.
    """
    if args.seconds <= 0.0 or args.seeds < 1:
        raise ConfigurationError("--seconds and --seeds must be above 0")
    seconds, seeds = (10.0, 5) if args.quick else (args.seconds, args.seeds)
    with tempfile.TemporaryDirectory() as folder:
        path = args.trace
        if path is None:
            path = args.keep or Path(folder, "trace")
            with TraceWriter(path, describe_run("bench", {}), replace=True) as writer:
                for job in record(seconds, args.stages):
                    writer.write(job, warm_up=False, wait=True)
        try:
            records = [traced.record for traced in open_trace(path).jobs()]
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"--trace {path}: {error}") from error
        scenario = record_scenario(path, block_ms=args.block_ms, workers=args.workers)
        laboratory = RecordedLaboratory(scenario)
        tallies = [simulate(laboratory, "static", seed=seed) for seed in range(seeds)]
        # One block as long as the recording: nothing is put anew, only the engine decides anew.
        same = RecordedLaboratory(record_scenario(path, block_ms=1e12, workers=args.workers))
        in_order = [simulate(same, "static")]
    summary = RunSummary()
    for job in records:
        summary.add(job)
    rows = {"all": _compare(list(summary.tasks), summary, tallies)}
    rows |= {task: _compare([task], summary, tallies) for task in summary.tasks}
    rows["all, in order"] = _compare(list(summary.tasks), summary, in_order)
    whole = rows["all"]
    passed = whole["miss_difference"] <= MISS_BAR and whole["p99_difference"] <= P99_BAR
    return {
        "benchmark": "fidelity",
        "trace": str(args.trace) if args.trace else "recorded",
        "frames": len(records),
        "seeds": seeds,
        "block_ms": args.block_ms,
        "tasks": rows,
        "bars": {"miss_difference": MISS_BAR, "p99_difference": P99_BAR},
        "passed": None if args.quick else passed,
    }


# -- recording -----------------------------------------------------------------------------------


def record(seconds: float, stages: int) -> list[JobRecord]:
    """Run both tasks for so long; the records of all their jobs."""
    records: list[JobRecord] = []

    def observe(job: JobRecord, work: Work) -> None:
        records.append(job)

    frames = [
        Frame(random_scene(held_out_seed(index), _SIZE).image, "bgr8", 0, index)
        for index in range(_SCENES)
    ]
    executor = Executor(1)
    with ExitStack() as stack:
        variants = {task: _load(task, stages, stack) for task in TASKS}
        times = {
            task: measure_stages(
                variants[task].pipelines[variants[task].default].stages,
                frames,
                _WARM_UP_RUNS,
                executor.clock,
            )
            for task in TASKS
        }
        usual_ns = {task: float(np.median([sum(row) for row in times[task]])) for task in TASKS}
        period_ns = round(_PERIOD * sum(usual_ns.values()))
        before_ns = 0.0
        for precedence, task in enumerate(TASKS):
            before_ns += usual_ns[task]
            name = variants[task].default
            executor.add_task(
                TaskParameters(
                    name=task,
                    deadline_ns=round(_DEADLINE * before_ns),
                    period_ns=period_ns,
                    stages=variants[task].stage_names,
                    variants=(name,),
                    variant=name,
                    precedence=precedence,
                ),
                {name: variants[task].pipelines[name].stages},
                observe,
                warm_up_times_ns={name: times[task]},
            )
        executor.start()
        stack.callback(executor.stop)
        executor.realtime.freeze()
        stack.enter_context(load_that_comes_and_goes())
        _submit(executor, frames, period_ns, round(seconds * 1e9))
        if not executor.wait_idle(60.0):
            raise ConfigurationError("a frame did not end within a minute")
    return records


def _load(task: str, stages: int, stack: ExitStack) -> VariantSet:
    model = load_model(f"builtin:{task}")
    variants = VariantSet(model, ["full@torch-fp32"], DecoderSettings(), threads=1, stages=stages)
    stack.callback(variants.close)
    return variants


def _submit(executor: Executor, scenes: Sequence[Frame], period_ns: int, length_ns: int) -> None:
    """Frames at a fixed rate, as a camera sends them."""
    clock = executor.clock
    begin_ns = clock.now_ns() + period_ns
    said_ns = begin_ns
    for index in range(length_ns // period_ns):
        due_ns = begin_ns + index * period_ns
        clock.sleep_until_ns(due_ns)
        scene = scenes[index % len(scenes)]
        executor.submit(TASKS, Frame(scene.image, "bgr8", due_ns, index), due_ns)
        if due_ns - said_ns > 10_000_000_000:
            said_ns = due_ns
            seconds = (due_ns - begin_ns) / 1e9
            print(f"fidelity: {seconds:.0f} of {length_ns / 1e9:.0f} s", file=sys.stderr)


@contextmanager
def load_that_comes_and_goes() -> Iterator[None]:
    """Keep every core busy for half a second out of four."""
    command = code_command(_LOAD, str(_LOAD_ON_S), str(_LOAD_OFF_S))
    children = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


# -- comparing -----------------------------------------------------------------------------------


def _compare(
    tasks: Sequence[str], summary: RunSummary, tallies: Sequence[Tally]
) -> dict[str, float]:
    """Recorded and simulated miss ratio and p99 of some tasks together."""
    recorded = [summary.tasks[task] for task in tasks]
    simulated = [tally.tasks[task] for tally in tallies for task in tasks]
    met = sum(round((task.met_ratio or 0.0) * task.released) for task in recorded)
    miss = 1.0 - met / sum(task.released for task in recorded)
    simulated_miss = 1.0 - sum(task.met for task in simulated) / sum(
        task.released for task in simulated
    )
    p99_ns = _p99_ns(time for task in recorded for time in task.response_ns)
    simulated_p99_ns = _p99_ns(time for task in simulated for time in task.response_ns)
    return {
        "frames": sum(task.released for task in recorded),
        "miss_ratio": miss,
        "simulated_miss_ratio": simulated_miss,
        "miss_difference": abs(miss - simulated_miss),
        "p99_ms": p99_ns / 1e6,
        "simulated_p99_ms": simulated_p99_ns / 1e6,
        "p99_difference": abs(simulated_p99_ns / p99_ns - 1.0),
    }


def _p99_ns(times_ns: Iterator[int]) -> int:
    ordered = sorted(times_ns)
    if not ordered:
        raise ConfigurationError("no frame of a task ran to its end")
    return order_statistic(ordered, 0.99)


def format_table(result: dict[str, object]) -> str:
    """Return the result as a table for people."""
    rows = cast("Mapping[str, dict[str, Any]]", result["tasks"])
    lines = [
        f"{result['frames']} frames ({result['trace']}), {result['seeds']} replays in blocks of "
        f"{result['block_ms']:g} ms",
        "",
        f"{'task':<14}{'frames':>8}{'missed':>10}{'replay':>10}{'p99 ms':>10}{'replay':>10}",
    ]
    lines += [
        f"{name:<14}{row['frames']:>8}{100 * row['miss_ratio']:>8.2f} %"
        f"{100 * row['simulated_miss_ratio']:>8.2f} %{row['p99_ms']:>10.2f}"
        f"{row['simulated_p99_ms']:>10.2f}"
        for name, row in rows.items()
    ]
    verdict = {True: "passed", False: "NOT passed", None: "not held"}[
        cast("bool | None", result["passed"])
    ]
    lines += [
        "",
        f"bars: {100 * MISS_BAR:.0f} percentage points, {100 * P99_BAR:.0f} % of p99: {verdict}",
    ]
    return "\n".join(lines)
