# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A trace as a flame graph, for speedscope: where the time of each worker went.

A profile for each worker; which worker ran a stage is not traced, so a stage goes on the first
that is free. A stage, with its variant, stands on its task.

speedscope also opens the Perfetto export, but takes a slice's arguments for a part of its name,
so that no two frames add up, and ends of slices, which it computes in floating point, for later
than the beginning of the next one. Times here are integers, in ns.

Format: https://www.speedscope.app/file-format-schema.json.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jetson_dnn_rt.lab.report.export.tables import find_origin_ns
from jetson_dnn_rt.lab.report.export.workers import Workers
from jetson_dnn_rt.traces.reader import Trace

SCHEMA = "https://www.speedscope.app/file-format-schema.json"

Span = tuple[int, int, tuple[int, int]]
"""Start and end of a stage, in ns, and the frames of its task and of the stage."""


def write_speedscope(traces: Mapping[str, Trace], path: Path) -> list[Path]:
    """Write labelled traces, compressed where the name ends in ``.gz``; each begins at time 0.

    Raises
    ------
    OSError
        When the file cannot be written.
    """
    frames: dict[str, int] = {}
    profiles = [
        _make_profile(f"{label}: {name}" if len(traces) > 1 else name, spans)
        for label, trace in traces.items()
        for name, spans in _list_workers(trace, frames).items()
    ]
    whole = {
        "$schema": SCHEMA,
        "exporter": "jetson_dnn_rt",
        "name": ", ".join(traces),
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
    }
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.write(json.dumps(whole, separators=(",", ":")) + "\n")
    return [path]


def _list_workers(trace: Trace, frames: dict[str, int]) -> dict[str, list[Span]]:
    """List the stages of each worker, in the order of their start."""
    workers, spans = Workers(), defaultdict[str, list[Span]](list)
    origin_ns = find_origin_ns(trace)
    for batch in trace.batches(["task", "stages"]):
        for row in batch.to_pylist():
            for stage in row["stages"]:
                start_ns, end_ns = stage["start_ns"] - origin_ns, stage["end_ns"] - origin_ns
                width = " (narrow)" if stage["narrow"] else ""
                names = row["task"], f"{stage['name']}{width} {stage['variant']}"
                task, own = (frames.setdefault(name, len(frames)) for name in names)
                worker = f"worker {workers.place(start_ns, end_ns)}"
                spans[worker].append((start_ns, end_ns, (task, own)))
    return {name: sorted(spans[name]) for name in sorted(spans)}


def _make_profile(name: str, spans: list[Span]) -> dict[str, Any]:
    return {
        "type": "evented",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": spans[-1][1],
        "events": list(_iterate_events(spans)),
    }


def _iterate_events(spans: list[Span]) -> Iterator[dict[str, Any]]:
    for start_ns, end_ns, stack in spans:
        yield from ({"type": "O", "frame": frame, "at": start_ns} for frame in stack)
        yield from ({"type": "C", "frame": frame, "at": end_ns} for frame in reversed(stack))
