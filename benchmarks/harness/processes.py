"""Processes of a benchmark: children that say when they are ready, commands, busy cores."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.safety.children import child_environment, code_command, python_command

READY = "ready"
START_LIMIT_S, STOP_LIMIT_S = 180.0, 15.0

_BUSY = """
import os, sys, time
parent, on_s, off_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
while os.getppid() == parent:
    end = time.monotonic() + on_s
    while time.monotonic() < end:
        pass
    time.sleep(off_s)
"""
"""Ends by itself when the benchmark is gone, however that ended."""


class BenchmarkError(JetsonDnnRtError):
    """A part of a benchmark failed, so there is no figure."""


def announce_ready() -> None:
    """Tell the parent that frames are taken from now on."""
    print(READY, flush=True)


def stop_on_term(stop: threading.Event) -> None:
    """Set `stop` at SIGTERM; SIGINT reaches the whole group and is the parent's to handle."""
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Child:
    """A process that prints ``ready`` on stdout: entered then, ended by SIGTERM at exit.

    `BenchmarkError` when the process fails, or is not ready in time; what it wrote to stderr was
    passed on.
    """

    def __init__(self, command: Sequence[str]) -> None:
        # What comes after the interpreter, -c and its text: the module and its arguments.
        self.name = " ".join(command[3:] or command)[:80]
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=child_environment()
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Child:
        try:
            line = self._lines.get(timeout=START_LIMIT_S)
        except queue.Empty:
            line = "no answer"
        if line != READY:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            raise BenchmarkError(f"{self.name}: did not get ready (see its messages above)")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            code = self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            code = -signal.SIGKILL
        self._reader.join()
        if code != 0 and error is None:
            raise BenchmarkError(f"{self.name}: ended with exit code {code}")

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.strip() == READY:
                    self._lines.put(READY)
                else:
                    sys.stderr.write(line)
        self._lines.put(None)


def make_command(*arguments: str) -> list[str]:
    """``jetson-dnn-rt ARGUMENTS --json`` with this interpreter."""
    return python_command("jetson_dnn_rt.cli.main", *arguments, "--json")


def run_command(*arguments: str, limit_s: float, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Run ``jetson-dnn-rt ARGUMENTS --json``; its messages go where ours go.

    `BenchmarkError` when it ends with none of `codes`, or prints nothing.
    """
    command = make_command(*arguments)
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=limit_s, env=child_environment()
    )
    return read_answer(command, done.returncode, done.stdout, codes)


def read_answer(
    command: Sequence[str], code: int, text: str, codes: tuple[int, ...]
) -> dict[str, Any]:
    """The JSON of a command that ended."""
    lines = text.splitlines()
    if code not in codes or not lines:
        raise BenchmarkError(f"{' '.join(command[3:])} ended with {code} (see above)")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


@contextmanager
def busy_cores(count: int, on_s: float = 1.0, off_s: float = 0.0) -> Iterator[tuple[int, ...]]:
    """Processes that keep a core busy each, with pauses of `off_s`; gives their ids."""
    command = code_command(_BUSY, str(os.getpid()), str(on_s), str(off_s))
    processes = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield tuple(process.pid for process in processes)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


class Phases:
    """Busy cores that come and go after a script, on a thread of its own."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pids: tuple[int, ...] = ()
        self._thread = threading.Thread()
        self._stop = threading.Event()

    def __enter__(self) -> Phases:
        return self

    def __exit__(self, *error: object) -> None:
        self.finish(now=True)

    def play(self, phases: Sequence[tuple[float, bool]]) -> None:
        """Play a script once, from now on: seconds, and whether the load is there."""
        self.finish()
        self._stop.clear()
        self._thread = threading.Thread(target=self._play, args=(tuple(phases),), daemon=True)
        self._thread.start()

    def finish(self, *, now: bool = False) -> None:
        """Wait for the script's end, or break it off; no process is left."""
        if now:
            self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _play(self, phases: tuple[tuple[float, bool], ...]) -> None:
        end_s = time.monotonic()
        for seconds, busy in phases:
            end_s += seconds
            with busy_cores(self.count if busy else 0) as self.pids:
                stopped = self._stop.wait(max(0.0, end_s - time.monotonic()))
            self.pids = ()
            if stopped:
                return
