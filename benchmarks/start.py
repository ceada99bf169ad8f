# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""From the start of the nodes to their first result, by part, in turns.

cold    with an empty library: networks are compiled
second  with the library that another start left

Two ways to start: ``ros2 launch`` with perception.launch.py, where that is installed, and the
executable ``perception`` itself. The end is when a subscriber in this process gets the first
result of any task. The parts are those that the node logs; ``launcher`` is the rest, ``ros2
launch`` itself and the way of the message. Python's bytecode is there in both cases, as after an
installation, and what the system has read from the disk, too: after a reboot a start takes longer.

Passes if a second start by ``ros2 launch`` takes at most 3 s, as median; by the executable, where
there is no ``ros2 launch``.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.options import Options, echo
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import Report, say, say_bars, tabulate
from benchmarks.harness.timing import take_turns
from jetson_dnn_rt.cli.environment import choose_profile, find_shared_file
from jetson_dnn_rt.cli.run import PARAMETERS
from jetson_dnn_rt.config.parameter_file import read_parameter_file
from jetson_dnn_rt.config.perception import read_config
from jetson_dnn_rt.config.result_topics import list_results
from jetson_dnn_rt.safety.children import child_environment

BAR_S = 3.0
SIDES = ("cold", "second")
WAYS = ("launch", "executable")
LIMIT_S, STOP_LIMIT_S = 120.0, 20.0
MAX_LOG_BYTES = 1 << 20

LAUNCHER = "launcher"
_LINE = re.compile(r"first result after ([0-9.]+) s: ([^\x1b\n]*)")
_PART = re.compile(r"([^,()]+?) ([0-9.]+)(?: \(([^)]*)\))?(?:, |$)")
_EXECUTABLE = "from jetson_dnn_rt.nodes.process.main import perception; perception()"


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--ways", list(WAYS), "default: both", choices=WAYS)
    add("--params", None, f"parameter file (default: {PARAMETERS})", kind=Path, metavar="FILE")
    add("--rounds", 9, "of every way and side", least=1)
    add("--quick", False, "one round: nothing is judged")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the starts; `BenchmarkError` when one brings no result."""
    rounds = 1 if args.quick else args.rounds
    params = args.params or find_shared_file(PARAMETERS)
    if params is None:
        raise BenchmarkError(f"{PARAMETERS} is not installed: give --params")
    ways = [way for way in args.ways if way != "launch" or shutil.which("ros2")]
    if not ways:
        raise BenchmarkError("ros2 launch is not installed: --ways executable")
    starts: dict[str, dict[str, list[dict[str, Any]]]] = {
        way: {side: [] for side in SIDES} for way in ways
    }
    turns = [(way, side) for way in ways for side in SIDES]
    with tempfile.TemporaryDirectory(prefix="start-") as name, _listening(params) as wait:
        folder = Path(name)
        for way in ways:  # leaves bytecode and a library
            _start(way, params, folder, folder / "second", wait)
        for way, side in take_turns(turns, rounds, "start"):
            library = folder / side
            if side == "cold":
                shutil.rmtree(library, ignore_errors=True)
            starts[way][side].append(_start(way, params, folder, library, wait))
    rows = [{"way": way, "side": side, **_summarize(starts[way][side])} for way, side in turns]
    result = {**echo(args, "rounds"), "bar_s": BAR_S, "starts": rows}
    return {**result, "passed": None if args.quick else rejudge(result)}


def rejudge(result: Mapping[str, Any]) -> bool:
    """Judge a result, also one that was written before."""
    return all(
        row["total_s"]["median"] <= BAR_S for row in result["starts"] if row["side"] == "second"
    )


def report(result: Mapping[str, Any]) -> Report:
    """Make a table of the starts, and one of their parts."""
    rows = result["starts"]
    parts = list(dict.fromkeys(part for row in rows for part in row["parts_s"]))
    columns = [
        (f"{row['way']} {row['side']}", lambda part, row=row: _tell(row["parts_s"].get(part)))
        for row in rows
    ]
    return [
        f"from the start to the first result, in s, of {result['rounds']} starts each",
        tabulate(
            rows,
            "way, library=side, median=total_s.median:.2f, least=total_s.least:.2f",
            "most=total_s.most:.2f",
        ),
        "parts, medians in s",
        tabulate(parts, ("part", lambda part: part.replace("/", " - ")), *columns),
        say_bars(f"second start <= {result['bar_s']:g} s", result["passed"]),
    ]


def _tell(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.2f}"


def read_parts(line: str) -> tuple[float, dict[str, float]]:
    """Seconds to the first result, and of the parts, as the node logs them.

    A part within a part is named ``part/inner``. ValueError for any other text.
    """
    found = _LINE.search(line)
    if found is None:
        raise ValueError(f"not the line of a start: {line!r}")
    parts: dict[str, float] = {}
    for part in _PART.finditer(found[2]):
        parts[part[1]] = float(part[2])
        for inner in filter(None, (part[3] or "").split(", ")):
            name, _, seconds = inner.rpartition(" ")
            parts[f"{part[1]}/{name}"] = float(seconds)
    return float(found[1]), parts


def _summarize(starts: list[dict[str, Any]]) -> dict[str, Any]:
    totals = [start["total_s"] for start in starts]
    names = dict.fromkeys(part for start in starts for part in start["parts_s"])
    return {
        "total_s": {"median": median(totals), "least": min(totals), "most": max(totals)},
        # A part that is too short to be logged took nothing.
        "parts_s": {
            name: median(start["parts_s"].get(name, 0.0) for start in starts) for name in names
        },
    }


def _start(way: str, params: Path, folder: Path, library: Path, wait: Any) -> dict[str, Any]:
    environment = child_environment()
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment |= {
        **choose_profile(environment),
        "XDG_CACHE_HOME": os.fspath(library),
        "PYTHONPYCACHEPREFIX": os.fspath(folder / "bytecode"),
        "RCUTILS_LOGGING_BUFFERED_STREAM": "0",
        "RCUTILS_COLORIZED_OUTPUT": "0",
    }
    if way == "launch":
        command = ["ros2", "launch", "jetson_dnn_rt", "perception.launch.py"]
        command.append(f"params_file:={params.resolve()}")
    else:
        values = ["--params-file", os.fspath(params), "-p", "perception:autostart:=true"]
        command = [sys.executable, "-c", _EXECUTABLE, "--ros-args", *values]
    with tempfile.TemporaryFile("w+") as output:
        begin_s = time.monotonic()
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            end_s = wait(begin_s + LIMIT_S)
            # The node logs the result after it was sent.
            until_s = time.monotonic() + STOP_LIMIT_S
            while end_s is not None and time.monotonic() < until_s:
                if _LINE.search(os.pread(output.fileno(), MAX_LOG_BYTES, 0).decode()):
                    break
                time.sleep(0.01)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        text = output.read()
    if end_s is None:
        raise BenchmarkError(f"no result of {way} within {LIMIT_S:g} s:\n{text[-2000:]}")
    total_s = end_s - begin_s
    try:
        own_s, parts = read_parts(text)
    except ValueError as error:
        raise BenchmarkError(f"{way} logged no times:\n{text[-2000:]}") from error
    say(f"start: {way}: {total_s:.2f} s")
    return {"total_s": total_s, "parts_s": {LAUNCHER: max(0.0, total_s - own_s), **parts}}


@contextmanager
def _listening(params: Path) -> Iterator[Any]:
    """Subscribe to the results; yields what waits for the first, until a time, and returns when.

    None when none came.
    """
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.qos import QoSProfile
    from sensor_msgs.msg import Image
    from vision_msgs.msg import Classification, Detection2DArray

    kinds = {
        "detection": Detection2DArray,
        "segmentation": Image,
        "classification": Classification,
    }
    config = read_config(read_parameter_file(params), {}, namespace="/")
    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node("start_listener", context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    arrived: list[float] = []
    for task in config.tasks:
        node.create_subscription(
            kinds[task.kind],
            posixpath.join("/", posixpath.dirname(task.name), list_results(task)[0]),
            lambda message: arrived.append(time.monotonic()),
            QoSProfile(depth=1),
        )

    def wait(until_s: float) -> float | None:
        for _ in config.tasks:  # the last results of a process that has ended
            executor.spin_once(timeout_sec=0.0)
        arrived.clear()
        while not arrived and time.monotonic() < until_s:
            executor.spin_once(timeout_sec=0.05)
        return arrived[0] if arrived else None

    try:
        yield wait
    finally:
        executor.shutdown()
        node.destroy_node()
        context.try_shutdown()
