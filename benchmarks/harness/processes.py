# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Processes of a benchmark, children, commands, busy cores; and those that are not its own."""

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
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.safety.children import child_environment, code_command, python_command

READY = "ready"
START_LIMIT_S, STOP_LIMIT_S = 180.0, 60.0
STACKS_LIMIT_S = 10.0
"""A child that does not answer writes the stacks of its threads within this time."""
FOREIGN_STOP_LIMIT_S = 20.0
"""Long, for a process that is killed may leave a lock in shared memory that others wait for."""

_BUSY = """
import os, sys, time
parent, on_s, off_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
while os.getppid() == parent:
    end = time.monotonic() + on_s
    while time.monotonic() < end:
        pass
    time.sleep(off_s)
"""
"""Program that exits when the benchmark is gone, however that ended."""


class BenchmarkError(JetsonDnnRtError):
    """A part of a benchmark failed, so there is no figure."""


class NotReadyError(BenchmarkError):
    """A child was not ready in time."""


def announce_ready() -> None:
    """Tell the parent that this process is ready for frames."""
    print(READY, flush=True)


def stop_on_term(stop: threading.Event) -> None:
    """Set `stop` at SIGTERM; SIGINT reaches the whole group and is the parent's to handle."""
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Neighbours:
    """Other programs on the machine, from when this is made.

    Children of this process that have not ended yet count as others.
    """

    def __init__(self) -> None:
        self._began = self._read()

    def find_cores(self) -> float:
        """Find how many cores they kept busy, on average; what a hypervisor took counts, too."""
        busy_s, own_s, wall_s = (
            now - then for now, then in zip(self._read(), self._began, strict=True)
        )
        return max(0.0, busy_s - own_s) / wall_s if wall_s else 0.0

    @staticmethod
    def _read() -> tuple[float, float, float]:
        machine, own = psutil.cpu_times(), os.times()
        idle_s = machine.idle + machine.iowait
        # What guests take is in `user` and `nice` already.
        busy_s = sum(machine) - idle_s - machine.guest - machine.guest_nice
        own_s = own.user + own.system + own.children_user + own.children_system
        return busy_s, own_s, own.elapsed


class Child:
    """Child process that prints ``ready`` on stdout; the context ends it by SIGTERM.

    `BenchmarkError` when the process fails, `NotReadyError` when it is not ready in time; its
    stderr is passed on. One that is not ready, or not gone, in time writes the stacks of its
    threads there before it is killed.
    """

    def __init__(self, command: Sequence[str]) -> None:
        # Arguments after the interpreter, -c and its text: the module and its arguments.
        self.name = " ".join(command[3:] or command)[:80]
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        env = {**child_environment(), "PYTHONFAULTHANDLER": "1"}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Child:
        try:
            line = self._lines.get(timeout=START_LIMIT_S)
        except queue.Empty:
            self._end_hanging()
            self._reader.join()
            raise NotReadyError(
                f"{self.name}: was not ready after {START_LIMIT_S:g} s (see its stacks above)"
            ) from None
        if line != READY:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            raise BenchmarkError(f"{self.name}: did not become ready (see its messages above)")
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._process.terminate()
        try:
            code = self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._end_hanging()
            code = -signal.SIGKILL
        self._reader.join()
        if code != 0 and error is None:
            raise BenchmarkError(f"{self.name}: ended with exit code {code}")

    def _end_hanging(self) -> None:
        """End the process, which first writes the stacks of its threads if it still can."""
        self._process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STACKS_LIMIT_S)
        self._process.kill()
        self._process.wait()

    def wait(self) -> None:
        """Wait until the process ends by itself."""
        self._process.wait()

    def find_cpu_s(self, *, own: bool = True) -> float:
        """Find the CPU time of the process and of those that it started, or of these alone."""
        found = 0.0
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(self._process.pid)
            started = process.children(recursive=True)
            for one in [process, *started] if own else started:
                with suppress(psutil.NoSuchProcess):
                    times = one.cpu_times()
                    found += times.user + times.system
        return found

    @property
    def ended(self) -> bool:
        """Whether the process has exited."""
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


@contextmanager
def foreign_program(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run somebody else's program in a session of its own; all of it ends with the context.

    What it prints goes to stderr. It may import what lies beside it, as where its user starts it.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    process = subprocess.Popen(command, stdout=sys.stderr, env=env, start_new_session=True)
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            end_s = time.monotonic() + FOREIGN_STOP_LIMIT_S
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(FOREIGN_STOP_LIMIT_S)
                # A shell ends before what it started, which needs its time, too.
                while number == signal.SIGTERM and time.monotonic() < end_s:
                    os.killpg(process.pid, 0)
                    time.sleep(0.01)


def make_command(*arguments: str) -> list[str]:
    """Make the command ``jetson-dnn-rt ARGUMENTS --json`` for this interpreter."""
    return python_command("jetson_dnn_rt.cli.main", *arguments, "--json")


def run_command(*arguments: str, limit_s: float, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Run ``jetson-dnn-rt ARGUMENTS --json``; its messages go to our stderr.

    `BenchmarkError` when it exits with a code not in `codes`, or prints nothing.
    """
    command = make_command(*arguments)
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=limit_s, env=child_environment()
    )
    return read_answer(command, done.returncode, done.stdout, codes)


def read_answer(
    command: Sequence[str], code: int, text: str, codes: tuple[int, ...]
) -> dict[str, Any]:
    """Read the JSON of a finished command."""
    lines = text.splitlines()
    if code not in codes or not lines:
        raise BenchmarkError(f"{' '.join(command[3:])} ended with {code} (see above)")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


@contextmanager
def busy_cores(count: int, on_s: float = 1.0, off_s: float = 0.0) -> Iterator[tuple[int, ...]]:
    """Run processes that keep one core each busy, with pauses of `off_s`; yields their ids."""
    command = code_command(_BUSY, str(os.getpid()), str(on_s), str(off_s))
    processes = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield tuple(process.pid for process in processes)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@contextmanager
def busy_phases(count: int, phases: Sequence[tuple[float, bool]]) -> Iterator[None]:
    """Run busy cores that come and go by a script of seconds and whether the load is on.

    The script begins now; the exit of the context waits for its end, unless there is an error.
    """
    stop = threading.Event()

    def play() -> None:
        end_s = time.monotonic()
        for seconds, busy in phases:
            end_s += seconds
            with busy_cores(count if busy else 0):
                if stop.wait(max(0.0, end_s - time.monotonic())):
                    return

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        stop.set()
        raise
    finally:
        thread.join()
