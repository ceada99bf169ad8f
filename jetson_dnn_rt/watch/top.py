# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Watch the tasks of a running graph: live in the terminal, once for a script, or as a web page.

Every task of the ROS domain is found by its topics, wherever it runs. Exit code 0 when at least
one task runs at the end, else 1; Ctrl-C is an ordinary end.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from jetson_dnn_rt.cli.environment import prepare_environment
from jetson_dnn_rt.cli.options import parse_positive
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.watch.graph import Graph
from jetson_dnn_rt.watch.json_view import to_dict
from jetson_dnn_rt.watch.table import format_view, open_console, render_view
from jetson_dnn_rt.watch.web import Page

if TYPE_CHECKING:
    from rich.console import Console

HELP = "watch the tasks of a running graph, in the terminal or as a web page"

REFRESH_S = 0.5
"""Between two pictures on a terminal."""

PRINT_S = 5.0
"""Between two tables in a file or pipe."""

ONCE_S = 3.0
"""A table for a script is over so long, from the first frames on."""

FIND_S = 15.0
"""Tasks are found, and their first frames come, within a second or two; on a machine that is busy
later. So long is waited for that."""

SETTLE_S = 1.0
"""Tasks are found one after the other: none has been found for so long."""

POLL_S = 0.05

NICENESS = 10
"""On the machine of the tasks these go first."""

LOCAL = "127.0.0.1"


Wait = Callable[[float], bool]
"""Waits for some seconds; false when that was the last time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add = parser.add_argument
    add("--namespace", default="/", metavar="NS", help="only tasks below this ROS namespace")
    text = f"one table over --seconds (default {ONCE_S:g}), from the first frames on"
    add("--once", action="store_true", help=text)
    add("--seconds", type=parse_positive, metavar="S", help="end then (default: with Ctrl-C)")
    add("--ascii", action="store_true", help="no signs that a terminal may lack")
    add("--web", type=_parse_port, metavar="PORT", help="serve a page with plots; 0 = any port")
    add("--host", help=f"address of the page (default {LOCAL}: this machine only)")
    add("--json", action="store_true", help="as --once, with one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Run the command."""
    once = args.once or args.json
    if args.web is not None and once:
        raise ConfigurationError("--web serves until it ends: leave out --once and --json")
    if args.web is None and args.host is not None:
        raise ConfigurationError("--host is the address of the page: add --web PORT")
    # Names from other machines may hold signs that this one's terminal lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="ascii" if args.ascii else None, errors="replace")
    show = _choose(args, once)
    prepare_environment()
    try:
        from jetson_dnn_rt.nodes.process.running import stop_on_signals
        from jetson_dnn_rt.watch.subscriber import watching
    except ImportError as error:
        raise JetsonDnnRtError(
            f"ROS 2 is not there ({error}): source its set-up file, such as "
            "/opt/ros/jazzy/setup.sh"
        ) from error
    seconds = args.seconds or (ONCE_S if once else math.inf)
    os.nice(NICENESS)
    graph, stop = Graph(), threading.Event()
    with stop_on_signals(stop), watching(graph, args.namespace):
        if once:
            find_end_s = time.monotonic() + FIND_S
            wait_for_frames(graph, lambda period_s: _wait(stop, period_s, find_end_s))
        end_s = time.monotonic() + seconds
        show(graph, lambda period_s: _wait(stop, period_s, end_s))
        view = graph.snapshot()
    if once:
        print(format_view(view), file=sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(to_dict(view)))
    return 0 if any(task.present for task in view.tasks) else 1


def _parse_port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} must be a port, 0 to 65535")
    return int(text)


def _wait(stop: threading.Event, period_s: float, end_s: float) -> bool:
    left_s = min(period_s, end_s - time.monotonic())
    return not stop.wait(max(0.0, left_s)) and time.monotonic() < end_s


def _choose(args: argparse.Namespace, once: bool) -> Callable[[Graph, Wait], None]:
    """Choose what to do while the graph is watched; raises before that what cannot work."""
    if once:
        return _collect
    if args.web is not None:
        page = Page(args.host or LOCAL, args.web)
        print(f"{page.url} (Ctrl-C ends)", flush=True)
        return page.serve
    if not sys.stdout.isatty():
        return _print_tables
    return partial(_draw, open_console())


def wait_for_frames(graph: Graph, wait: Wait) -> None:
    """Wait until tasks are found and each has had a frame, as far as `wait` goes on."""
    found: set[str] = set()
    quiet_polls = 0
    while True:
        tasks = [task for task in graph.snapshot().tasks if task.present]
        names = {task.name for task in tasks}
        quiet_polls = quiet_polls + 1 if names == found else 0
        found = names
        silent = [task.name for task in tasks if math.isnan(task.age_s)]
        if tasks and not silent and quiet_polls * POLL_S >= SETTLE_S:
            return
        if not wait(POLL_S):
            break
    if not tasks:
        print(f"no task was found within {FIND_S:g} s", file=sys.stderr)
    for name in silent:
        print(f"{name}: no frame within {FIND_S:g} s", file=sys.stderr)


def _collect(graph: Graph, wait: Wait) -> None:
    while wait(ONCE_S):
        pass


def _print_tables(graph: Graph, wait: Wait) -> None:
    """Print a table now and then, for files and pipes."""
    going_on = True
    while going_on:
        going_on = wait(PRINT_S)
        print(f"{time.strftime('%H:%M:%S')}\n{format_view(graph.snapshot())}\n", flush=True)


def _draw(console: Console, graph: Graph, wait: Wait) -> None:
    """Draw the table again and again; the last one stays on the terminal."""
    from rich.live import Live

    with Live(console=console, screen=True, auto_refresh=False) as live:
        going_on = True
        while going_on:
            live.update(render_view(graph.snapshot(), console), refresh=True)
            going_on = wait(REFRESH_S)
    console.print(render_view(graph.snapshot(), console))
