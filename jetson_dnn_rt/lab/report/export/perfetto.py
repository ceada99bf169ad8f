# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A trace as Chrome trace events, for ui.perfetto.dev and chrome://tracing.

Each task is a process: its stages are slices, each job a bar from release to completion, its
deadline an instant, as are misses and changes of the variant; the response is a counter. The
workers are a process of their own, where the stages of all tasks share tracks and arrows join the
stages of a job; which worker ran a stage is not traced, so a stage goes on the first free track.
Clocks are counters by domain.

Format: Duvert & Sinclair, "Trace Event Format" (Google, 2016). Times are microseconds since the
first frame of each trace.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jetson_dnn_rt.lab.report.export.tables import find_origin_ns
from jetson_dnn_rt.lab.report.export.workers import Workers
from jetson_dnn_rt.traces.reader import Trace

Event = dict[str, Any]

JOBS, STAGES, EVENTS = 1, 2, 3
"""Tracks of a task."""
_TRACKS = {STAGES: "stages", EVENTS: "deadlines and switches"}
_JOB_ARGUMENTS = ("variant", "outcome", "reason", "admission", "camera", "warm_up")
_FREQUENCY = re.compile(r"([\w-]+) (?:([\d.]+) MHz|off)")
_INSTANT: dict[str, Any] = {"s": "t", "cat": "event"}
_PROCESSES = 1000
"""Process numbers for each trace."""


def write_perfetto(traces: Mapping[str, Trace], path: Path) -> list[Path]:
    """Write labelled traces, event by event; compressed where the name ends in ``.gz``.

    Each trace begins at time 0.

    Raises
    ------
    OSError
        When the file cannot be written.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        described = {name: json.loads(one.metadata.to_json()) for name, one in traces.items()}
        file.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(described)},')
        file.write('"traceEvents":[\n')
        separator = ""
        for number, (label, trace) in enumerate(traces.items()):
            prefix = f"{label}: " if len(traces) > 1 else ""
            for event in iterate_events(trace, first_process=1 + number * _PROCESSES, name=prefix):
                file.write(separator + json.dumps(event, separators=(",", ":")))
                separator = ",\n"
        file.write("\n]}\n")
    return [path]


def iterate_events(trace: Trace, *, first_process: int = 1, name: str = "") -> Iterator[Event]:
    """Yield trace events of all jobs, in no order; `name` goes before the processes' names."""
    tracks = _Tracks(find_origin_ns(trace), first_process, name)
    for batch in trace.batches():
        rows = batch.to_pylist()
        for row in rows:
            yield from tracks.job(row)
        yield from tracks.clocks(rows)
    yield from tracks.names()


class _Tracks:
    def __init__(self, origin_ns: int, first_process: int, name: str) -> None:
        self._origin_ns, self._name = origin_ns, name
        self._workers_process, self._clocks_process = first_process, first_process + 1
        self._next_process = first_process + 2
        self._processes: dict[str, int] = {}
        self._variants: dict[str, str] = {}
        self._workers = Workers()
        self._clocks = ""
        self._clocks_ns = -(1 << 63)
        self._jobs = first_process << 40

    def job(self, row: Mapping[str, Any]) -> Iterator[Event]:
        """Yield the events of one job."""
        task, stages = row["task"], row["stages"]
        process = self._processes.get(task)
        if process is None:
            process = self._processes[task] = self._next_process
            self._next_process += 1
        self._jobs += 1
        label = f"#{row['sequence']} {row['outcome']}"
        release_ns, completion_ns = row["release_ns"], row["completion_ns"]
        arguments = {
            **{name: row[name] for name in _JOB_ARGUMENTS},
            "response_ms": (completion_ns - release_ns) / 1e6,
            "lateness_ms": (completion_ns - row["absolute_deadline_ns"]) / 1e6,
            "waiting_ms": row["waiting_ns"] / 1e6,
            "lag_ms": row["lag_ns"] / 1e6,
        }
        span: dict[str, Any] = {"cat": "job", "id": self._jobs, "track": JOBS}
        yield self._event("b", process, release_ns, label, args=arguments, **span)
        yield self._event("e", process, completion_ns, label, **span)
        deadline = f"deadline of #{row['sequence']}"
        yield self._event("i", process, row["absolute_deadline_ns"], deadline, **_INSTANT)
        if row["outcome"] != "met":
            reason = f": {row['reason']}" if row["reason"] else ""
            missed = f"MISSED {label}{reason}"
            yield self._event("i", process, completion_ns, missed, **_INSTANT)
        if row["outcome"] in ("met", "late"):
            value = {"value": arguments["response_ms"]}
            yield self._event("C", process, completion_ns, "response_ms", args=value)
        cancelled_ns = row["cancelled_ns"]
        if cancelled_ns and row["outcome"] == "aborted":
            # Its network is shown as it ran: at the end of the job, on some worker. Stages that
            # made room for another frame before are counted too, but took place earlier.
            earliest_ns = stages[-1]["end_ns"] if stages else row["start_ns"]
            begin_ns = max(earliest_ns, completion_ns - cancelled_ns)
            begin = {"start_ns": begin_ns, "end_ns": completion_ns}
            ended = {"name": "cancelled", "variant": row["variant"], "clocks": "", **begin}
            ended["narrow"] = None
            stages = [*stages, ended]
        for index, stage in enumerate(stages):
            yield from self._stage(process, row, index, stage, last=index == len(stages) - 1)

    def _stage(
        self,
        process: int,
        row: Mapping[str, Any],
        index: int,
        stage: Mapping[str, Any],
        *,
        last: bool,
    ) -> Iterator[Event]:
        start_ns, end_ns, variant = stage["start_ns"], stage["end_ns"], stage["variant"]
        before = self._variants.get(row["task"], variant)
        if before != variant:
            change = f"variant {before} -> {variant}"
            yield self._event("i", process, start_ns, change, **_INSTANT)
        self._variants[row["task"]] = variant
        arguments = {"sequence": row["sequence"], "variant": variant}
        if stage["clocks"]:
            arguments["clocks"] = stage["clocks"]
        ran = {"cat": "stage", "dur": (end_ns - start_ns) / 1e3, "args": arguments}
        name = f"{stage['name']} (narrow)" if stage["narrow"] else stage["name"]
        yield self._event("X", process, start_ns, name, track=STAGES, **ran)
        workers, track = self._workers_process, self._workers.place(start_ns, end_ns)
        name = f"{row['task']} {name}"
        yield self._event("X", workers, start_ns, name, track=track, **ran)
        if index or not last:
            phase = "s" if index == 0 else "f" if last else "t"
            arrow = {"cat": "job", "id": self._jobs, **({"bp": "e"} if phase == "f" else {})}
            yield self._event(phase, workers, start_ns, "job", track=track, **arrow)

    def clocks(self, rows: list[dict[str, Any]]) -> Iterator[Event]:
        """Yield changes of the clocks, as observed where stages began."""
        process = self._clocks_process
        seen = sorted((stage["start_ns"], stage["clocks"]) for r in rows for stage in r["stages"])
        for start_ns, text in seen:
            if text and text != self._clocks and start_ns >= self._clocks_ns:
                self._clocks, self._clocks_ns = text, start_ns
                yield self._event("i", process, start_ns, text, **_INSTANT)
                for domain, megahertz in _FREQUENCY.findall(text):
                    value = {"value": float(megahertz or 0.0)}
                    yield self._event("C", process, start_ns, f"{domain} MHz", args=value)

    def names(self) -> Iterator[Event]:
        """Yield names of processes and tracks, in the order to show them."""
        processes = {f"task {task}": number for task, number in self._processes.items()}
        processes["workers"] = self._workers_process
        if self._clocks:
            processes["clocks"] = self._clocks_process
        for name, number in processes.items():
            yield _name(number, 0, "process_name", name=self._name + name)
            yield _name(number, 0, "process_sort_index", sort_index=number)
        for number in self._processes.values():
            for track, name in _TRACKS.items():
                yield _name(number, track, "thread_name", name=name)
        for number in range(1, 1 + self._workers.count):
            yield _name(self._workers_process, number, "thread_name", name=f"worker {number}")

    def _event(
        self,
        phase: str,
        process: int,
        time_ns: int,
        name: str,
        *,
        track: int = EVENTS,
        **more: Any,
    ) -> Event:
        us = (time_ns - self._origin_ns) / 1e3
        return {"name": name, "ph": phase, "pid": process, "tid": track, "ts": us, **more}


def _name(process: int, track: int, kind: str, **args: Any) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": track, "args": args}
