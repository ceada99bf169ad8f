# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Measure the overhead of the package on a frame: everything but execution and waiting.

Two tasks of the null back end (5 ms each, sleeping), a camera that reads files at 30 Hz; a process
subscribes to the results. Two figures for each job, both less the execution of its stages and less
the time it was ready while the worker ran the other task:

- end to end: from the frame's capture (complete in the camera) to the return of `publish`;
- response: from its release to the end of its last stage, as in the JSON of `run`.

1. composed: camera and tasks in one process, as in the launch file;
2. bare: the camera in another process, images over DDS with the shipped profile to a callback of
   rclpy that does nothing: what no node in Python can do without;
3. two processes: the same with the tasks; lost images are counted, with their times since the
   first that arrived.

Parts take turns, round by round. The bars apply to the end-to-end figures at every size, by the
95 % interval of the rounds' quantiles. A second table has the parts of these figures, which add up
to them frame by frame:

- camera: from the capture to the call that publishes the image, or to the release of the jobs;
- serialise: rclpy makes a C structure of the message and CDR of that, until DDS stamps it;
- transport: DDS, through shared memory, until the last fragment is in the reader's history;
- wake-up and take: until the callback has a Python object;
- topic: these three, and the release of the jobs;
- executor: response, as above;
- delivery: from the job's end to its first `publish`; publish: until its results are published.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.intervals import LEAST_ROUNDS, Interval, show_interval
from benchmarks.harness.options import Options, echo, read_size
from benchmarks.harness.processes import Child
from benchmarks.harness.tables import Report, Verdict, judge_all, say_bars, tabulate
from benchmarks.harness.tasks import SIZE, write_frames
from benchmarks.harness.timing import take_turns
from benchmarks.overhead.parts import OWNERS, Received, Watch, summarize_parts
from benchmarks.overload.bench import NODES, read_sent_ns
from jetson_dnn_rt.safety.children import python_command
from jetson_dnn_rt.traces.summary import summarize_ms

COMPOSED_BARS_MS = {"p50": 0.5, "p99": 2.0}
TWO_PROCESSES_BARS_MS = {"p50": 2.5}
SIZES = [SIZE, (720, 1280)]
RATE_HZ = 30.0
MODELS = {"detector": "null:5", "segmenter": "null:5,segmentation"}


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add(
        "--size", SIZES, "of the frames in pixels (default 640x480 1280x720)",
        kind=read_size, metavar="WxH",
    )  # fmt: skip
    add("--rounds", LEAST_ROUNDS, "of each part, at each size", least=1)
    add("--seconds", 20.0, "of each part in a round", above=0)
    add("--sched-fifo", False, "real-time scheduling class, where granted")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure both parts; `BenchmarkError` when the camera's or the listener's process fails."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        received = Path(name, "received")
        with Child(python_command(NODES, "listener", str(received))):
            for size in args.size:
                text = f"{size[1]}x{size[0]}"
                source = f"images:{write_frames(Path(name, text), size)}"
                rounds: dict[str, list[Measured]] = {part: [] for part in PARTS}
                for part in take_turns(PARTS, args.rounds, f"overhead: {text}"):
                    measure, _ = PARTS[part]
                    rounds[part].append(measure(args, Setting(source, size, Path(name, part))))
                rows += [
                    {"size": text, "part": part, **describe(rounds[part], bars_ms)}
                    for part, (_, bars_ms) in PARTS.items()
                ]
    result = {"rows": rows, **echo(args, "sched_fifo rounds seconds")}
    return {**result, "passed": rejudge(result)}


def rejudge(result: Mapping[str, Any]) -> Verdict:
    """Judge a result, also one that was written before."""
    return judge_all(map(is_within, result["rows"]))


def is_within(row: Mapping[str, Any]) -> Verdict:
    """Whether a row keeps its bars, and lost no image."""
    figures, bars_ms = row["overhead_ms"], row["bars_ms"]
    if row["jobs"] == 0 or row.get("lost") or row.get("empty_rounds"):
        return False
    if "by_round" not in row:  # earlier results
        return all(figures[key] <= bars_ms[key] for key in bars_ms)
    verdicts = (
        Interval.of(row["by_round"][key]).judge(most=bar_ms) for key, bar_ms in bars_ms.items()
    )
    return judge_all([True, *verdicts])


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each part, and a table of the parts of their times."""

    def show_bars(row: Mapping[str, Any]) -> str:
        return ", ".join(f"{key} <= {bar:g}" for key, bar in row["bars_ms"].items())

    def show_round(row: Mapping[str, Any], key: str) -> str | None:
        if key not in row["bars_ms"] or not (by_round := row.get("by_round")):
            return None
        return show_interval(Interval.of(by_round[key]).to_dict(), ".3f")

    rows = result["rows"]
    parts = [
        {"size": row["size"], "part": row["part"], "of": name, "owner": owner, **figures}
        for row in rows
        for name, owner in OWNERS.items()
        if (figures := row["parts_ms"].get(name)) is not None
    ]
    return [
        tabulate(
            rows,
            "size, part, jobs, p50 ms=overhead_ms.p50:.3f, p99 ms=overhead_ms.p99:.3f",
            "max ms=overhead_ms.max:.3f",
            ("bars ms", show_bars),
            ("p50 by round", lambda row: show_round(row, "p50")),
            ("p99 by round", lambda row: show_round(row, "p99")),
            "response p50=response_overhead_ms.p50:.3f, p99=response_overhead_ms.p99:.3f, lost",
        ),
        say_bars(
            f"composed p50 <= {COMPOSED_BARS_MS['p50']:g} ms, p99 <= {COMPOSED_BARS_MS['p99']:g} "
            f"ms; two processes p50 <= {TWO_PROCESSES_BARS_MS['p50']:g} ms; no image lost",
            result["passed"],
        ),
        tabulate(
            parts, "size, part, of the time=of, whose=owner", "p50 ms=p50:.3f, p99 ms=p99:.3f"
        ),
    ]


class Setting(NamedTuple):
    """Frames of a part, and a file for its processes."""

    source: str
    size: tuple[int, int]
    file: Path


class Measured(NamedTuple):
    """What one part found in one round; of a bare subscription there are no jobs to respond."""

    overheads_ns: Sequence[int]
    responses_ns: Sequence[int]
    parts: Sequence[Mapping[str, int]]
    sent: int | None = None
    lost_at_s: Sequence[float] = ()


def describe(rounds: Sequence[Measured], bars_ms: Mapping[str, float]) -> dict[str, Any]:
    """Make the row of a part: figures over the frames of all rounds, and those of each round."""

    def collect(name: str) -> list[Any]:
        return [value for one in rounds for value in getattr(one, name)]

    overheads_ns, responses_ns = collect("overheads_ns"), collect("responses_ns")
    found = {
        "jobs": len(overheads_ns),
        "overhead_ms": summarize_ms(overheads_ns),
        "parts_ms": summarize_parts(collect("parts")),
        "bars_ms": dict(bars_ms),
    }
    if responses_ns:
        found["response_overhead_ms"] = summarize_ms(responses_ns)
    of_rounds = [summarize_ms(one.overheads_ns) for one in rounds if one.overheads_ns]
    found["by_round"] = {key: [one[key] for one in of_rounds] for key in ("p50", "p99")}
    if empty := len(rounds) - len(of_rounds):
        found["empty_rounds"] = empty
    counts = [one.sent for one in rounds if one.sent is not None]
    if counts:
        lost_at_s = collect("lost_at_s")
        found |= {"sent": sum(counts), "lost": len(lost_at_s), "lost_at_s": lost_at_s}
    return found


def _run_tasks(args: argparse.Namespace, overrides: Mapping[str, Mapping[str, object]]) -> Watch:
    """Run both tasks and watch them."""
    from jetson_dnn_rt.nodes.process.graph import run_graph

    watch = Watch()
    given: dict[str, dict[str, object]] = {t: {"model": model} for t, model in MODELS.items()}
    for name, values in overrides.items():
        given[name] = {**given.get(name, {}), **values}
    given.setdefault("perception", {})["realtime.sched_fifo"] = args.sched_fifo
    with watch.on_publishers():
        run_graph(None, given, frames=None, seconds=args.seconds, observer=watch.observe)
    return watch


def _take(watch: Watch, sent_ns: Mapping[int, int]) -> Measured:
    return Measured(
        [job.overhead_ns for job in watch.jobs],
        [job.response_overhead_ns for job in watch.jobs],
        [job.split(sent_ns.get(job.stamp_ns)) for job in watch.jobs],
    )


def _measure_composed(args: argparse.Namespace, setting: Setting) -> Measured:
    camera: dict[str, object] = {"source": setting.source, "rate": RATE_HZ}
    return _take(_run_tasks(args, {"camera": camera}), {})


def _run_camera(setting: Setting) -> Child:
    return Child(python_command(NODES, "camera", setting.source, repr(RATE_HZ), str(setting.file)))


def _measure_bare(args: argparse.Namespace, setting: Setting) -> Measured:
    received = setting.file.with_suffix(".received")
    with _run_camera(setting), Child(python_command(NODES, "bare", str(received))):
        time.sleep(args.seconds)
    images = [Received(*row) for row in json.loads(received.read_text(encoding="utf-8"))]
    sent_ns = read_sent_ns(setting.file)
    measured = Measured(
        [image.callback_ns - image.stamp_ns for image in images],
        [],
        [image.split(sent_ns[image.stamp_ns]) for image in images],
    )
    return _count_lost(measured, sent_ns, {image.stamp_ns for image in images})


def _measure_two_processes(args: argparse.Namespace, setting: Setting) -> Measured:
    height, width = setting.size
    expected = {"image_height": height, "image_width": width}
    with _run_camera(setting):
        tasks: dict[str, dict[str, object]] = {name: {**expected} for name in MODELS}
        watch = _run_tasks(args, {"perception": {"cameras": [""]}, **tasks})
    sent_ns = read_sent_ns(setting.file)
    return _count_lost(_take(watch, sent_ns), sent_ns, watch.arrived)


def _count_lost(measured: Measured, sent_ns: Iterable[int], arrived_ns: set[int]) -> Measured:
    lost, first_ns = find_lost(sent_ns, arrived_ns), min(arrived_ns, default=0)
    return measured._replace(
        sent=len(arrived_ns) + len(lost),
        lost_at_s=[(stamp_ns - first_ns) / 1e9 for stamp_ns in lost],
    )


def find_lost(sent_ns: Iterable[int], arrived_ns: set[int]) -> list[int]:
    """Find the stamps that were sent between the first and the last arrival, and did not come."""
    if not arrived_ns:
        return list(sent_ns)
    first_ns, last_ns = min(arrived_ns), max(arrived_ns)
    return [s for s in sent_ns if first_ns < s < last_ns and s not in arrived_ns]


_Measure = Callable[[argparse.Namespace, Setting], Measured]
PARTS: dict[str, tuple[_Measure, dict[str, float]]] = {
    "composed": (_measure_composed, COMPOSED_BARS_MS),
    "bare": (_measure_bare, {}),
    "two processes": (_measure_two_processes, TWO_PROCESSES_BARS_MS),
}
"""How each part is measured, and its bars."""
