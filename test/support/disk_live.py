# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Running graphs whose disk fails for a while (EDGES, campaign 5).

A fault of the disk costs jobs of the trace, which are counted, and nothing else: when it is over
the trace goes on.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from disk_commands import ERROR
from kill_subjects import read_column
from small_disk import fill, small_disk

from jetson_dnn_rt.traces.reader import open_trace

DISK_BYTES = 64 << 20
TIMEOUT_S = 300.0

FULL, EIO = "full", "EIO in write"
PROGRAMS = ("run", "perception")

_RUN = (
    *("-m", "jetson_dnn_rt.cli.main", "run", "--source", "synthetic:128x96", "--rate", "100"),
    *("--detector", "null:1", "--segmenter", "none", "--set", "detector.warmup_runs=2"),
    *("--video", "none", "--json"),
)
_NODE = (
    "-c",
    "from jetson_dnn_rt.nodes.process.main import perception; perception()",
    "--ros-args",
)
_PARAMETERS = {
    "perception:autostart": "true", "perception:tasks": "[detector]", "detector:model": "'null:1'",
    "camera:source": "'synthetic:128x96'", "camera:rate": "100.0", "detector:warmup_runs": "2",
}  # fmt: skip

_LOST = re.compile(r"(\d+) jobs are not in the trace")
_CLOSED = re.compile(r"trace .+: (\d+) jobs(?:, (\d+) lost)?")


@dataclass
class Endured:
    """What became of a graph whose disk failed for a while."""

    program: str
    fault: str
    jobs: int = 0
    written: int = 0
    lost: int = 0
    recovered_s: float = 0.0
    """From the end of the fault until a new job was in the trace."""
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.program}, {self.fault} for a while: {'; '.join(self.faults)}"


def endure(
    folder: Path, program: str, fault: str, shim: Path | None, draw: random.Random
) -> Endured:
    """Run a graph that traces, let its disk fail, let it recover, end the graph and count."""
    found = Endured(program, fault)
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "disk", DISK_BYTES))
        gate, errors = folder / "gate", stack.enter_context((folder / "err").open("w+"))
        environment = {**os.environ, "ROS_LOG_DIR": f"{folder}/log"}
        if fault == EIO:
            environment |= {
                "LD_PRELOAD": str(shim), "FAILING_DISK": f"write 5 0 {disk}",
                "FAILING_DISK_SWITCH": str(gate),
            }  # fmt: skip
        out = stack.enter_context((folder / "out").open("w+"))
        process = subprocess.Popen(
            [sys.executable, *_list_arguments(program, disk)],
            env=environment,
            stdout=out,
            stderr=errors,
        )
        stack.callback(process.wait)
        stack.callback(process.kill)

        def read_last() -> int:
            columns = [read_column(one, "sequence") for one in _find_traces(disk)]
            return max((max(column, default=-1) for column in columns), default=-1)

        def said() -> str:
            return (folder / "err").read_text("utf-8", "replace")

        _wait(lambda: read_last() >= 0, process, said)
        filler = fill(disk) if fault == FULL else None
        gate.touch()
        _wait(lambda: "trace " in said().replace("tracing into", ""), process, said)
        time.sleep(draw.uniform(0.2, 2.0))
        before, begin_s = read_last(), time.monotonic()
        gate.unlink()
        if filler is not None:
            filler.unlink()
        _wait(lambda: read_last() > before, process, said)
        found.recovered_s = time.monotonic() - begin_s
        process.send_signal(signal.SIGTERM)
        code = process.wait(TIMEOUT_S)
        out.seek(0)
        _judge(found, code, out.read(), said(), _find_traces(disk))
    return found


def _list_arguments(program: str, disk: Path) -> list[str]:
    if program == "run":
        return [*_RUN, "--output", f"{disk}/run"]
    given = {**_PARAMETERS, "perception:trace_dir": f"'{disk}/traces'"}
    words = (("-p", f"{name}:={value}") for name, value in given.items())
    return [*_NODE, *chain.from_iterable(words)]


def _find_traces(disk: Path) -> list[Path]:
    return sorted({file.parent for file in disk.rglob("jobs-*")})


def _wait(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], said: Callable[[], str]
) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while not condition():
        if process.poll() is not None or time.monotonic() > end_s:
            raise AssertionError(f"exit code {process.returncode}: {said()[-2000:]}")
        time.sleep(0.02)


def _judge(found: Endured, code: int, out: str, said: str, traces: list[Path]) -> None:
    add = found.faults.append
    (trace,) = traces
    found.written = len(read_column(trace, "sequence"))
    if "Traceback" in said:
        add(f"a traceback: {said[-700:]}")
    if found.program == "run":
        (task,) = json.loads(out.splitlines()[-1])["tasks"].values()
        found.jobs = task["released"]
        lost = _LOST.search(said)
        found.lost = int(lost[1]) if lost else 0
        lines = ERROR.findall(said)
        if (code, len(lines)) != ((1, 1) if found.lost else (0, 0)):
            add(f"exit code {code}, {found.lost} jobs lost, {lines}")
    else:
        found.jobs = max(read_column(trace, "sequence")) + 1
        closed = _CLOSED.search(said)
        found.lost = int(closed[2] or 0) if closed else 0
        if code != 0 or not closed or int(closed[1]) != found.written:
            add(f"exit code {code}, {closed and closed[0]}, {found.written} in the trace")
    stated = open_trace(trace).metadata.lost
    if found.program == "run" and stated != found.lost:
        add(f"{found.lost} jobs lost, {stated} by the trace")
    if found.written + found.lost != found.jobs:
        add(f"{found.written} written + {found.lost} lost, {found.jobs} jobs")
