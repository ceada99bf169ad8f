# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Builds the variants that a task lacks, while it runs with the others.

The building is done by a process of its own, ``jetson-dnn-rt build`` at the lowest priority: it
would hold the interpreter's lock for long. Variants that it put into the library are loaded and
warmed up here, on a thread that is not a worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Protocol

import yaml

from jetson_dnn_rt.config.declaration import describe
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import JetsonDnnRtError, ModelError
from jetson_dnn_rt.runtime.realtime import Realtime, trim_memory
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.safety.children import child_environment, python_command
from jetson_dnn_rt.safety.faults import FAULTS, safe_text, start_thread

NICE = 19
"""The least: beside busy cores a build waits, and the tasks do not."""

LOG_PERIOD_S = 10.0
TURN_POLL_S = 0.2
JOIN_TIMEOUT_S = 10.0


class Log(Protocol):
    """Log of a session and its parts."""

    def info(self, text: str, /) -> object:
        """Log progress."""

    def warning(self, text: str, /) -> object:
        """Log a problem that the session copes with."""

    def error(self, text: str, /) -> object:
        """Log a problem that needs attention."""


class BackgroundBuild:
    """Builds, loads and warms up the missing variants of a task, once.

    One build of a process at a time holds `turn`; the workers of `realtime` will run the variants.
    `on_ready` is called with a variant that became ready, on the thread of the build, and again
    after a moment if it returns False. `progress` describes the present step.
    """

    def __init__(
        self,
        task: Task,
        turn: threading.Lock,
        realtime: Realtime,
        log: Log,
        on_ready: Callable[[str], bool],
    ) -> None:
        self._task, self._turn, self._realtime, self._log = task, turn, realtime, log
        self._on_ready = on_ready
        self.progress = "waits for its turn"
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        names = ", ".join(self._task.missing)
        self._log.info(
            f"not in the library: {names}; built in the background, until then the task runs "
            f"{', '.join(self._task.variant_names)}"
        )
        self._thread = start_thread(self._run, f"build-{self._task.name}")

    @property
    def over(self) -> bool:
        """Whether the build has ended: no further variant will become ready."""
        return self._thread is None or not self._thread.is_alive()

    def stop(self, timeout_s: float = 0.0) -> bool:
        """Kill the process, and wait `timeout_s` for the thread; False when it still runs.

        An entry that was not yet stored is lost; those stored stay in the library.
        """
        self._stop.set()
        with self._lock:
            process = self._process
            if process is not None and process.returncode is None:
                # With its children; its process group exists a moment later than the process.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # -- its thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        # Not that of the thread which started this one: it may deliver frames.
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        while not self._turn.acquire(timeout=TURN_POLL_S):
            if self._stop.is_set():
                return
        try:
            self._build(self._task.missing)
        finally:
            self._turn.release()
            self.progress = "ended"

    def _build(self, names: Sequence[str]) -> None:
        try:
            reports = self._run_process(names)
        except Exception as error:  # whatever it is, the variants are given up with the reason
            if not isinstance(error, (JetsonDnnRtError, OSError)):
                FAULTS.note(f"build of task {self._task.name}", error)
            reports = {name: safe_text(error) or type(error).__name__ for name in names}
        for name in names:
            if self._stop.is_set():
                return
            reason = reports.get(name, "the build does not report it")
            self._give_up(name, reason) if reason else self._load(name)

    def _load(self, name: str) -> None:
        self.progress = f"loading {name}"
        try:
            # Not a worker, which others would have to wait for, and at no lower priority either:
            # a thread that holds the interpreter's lock must not be held up.
            with self._realtime.in_background():
                self._task.add(name)
            trim_memory()
        except Exception as error:
            if not self._stop.is_set():
                self._give_up(name, safe_text(error) or type(error).__name__)
            return
        while not self._on_ready(name) and not self._stop.wait(TURN_POLL_S):
            pass

    def _give_up(self, name: str, reason: str) -> None:
        self._log.warning(f"variant {name} is left out: {reason}")
        self._task.give_up(name, reason)

    def _run_process(self, names: Sequence[str]) -> dict[str, str]:
        """Run ``jetson-dnn-rt build``; returns why variants cannot be used, empty where they can.

        ModelError when it ended without a report.
        """
        command = python_command(
            "jetson_dnn_rt.runtime.building.low_priority", str(os.getpid()), str(NICE)
        )
        # Kernels cannot be compared by times measured beside running tasks.
        command += ["build", "--params", "/dev/stdin", "--no-tuning", "--json"]
        command += ["--batch", str(self._task.batch_tasks)]
        # Files without names: nothing is left behind, however this process ends.
        with tempfile.TemporaryFile("w+") as values, tempfile.TemporaryFile("w+") as report:
            yaml.safe_dump(self._make_params(names), values)
            values.seek(0)
            with self._lock:
                if self._stop.is_set():
                    return {}
                self.progress = "starts"
                process = self._process = subprocess.Popen(
                    command,
                    stdin=values,
                    stdout=report,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=child_environment(),
                )
            assert process.stderr is not None
            with process.stderr as lines:
                last = self._follow(lines)
            code = process.wait()
            report.seek(0)
            return self._read_report(report.read(), code, last)

    def _make_params(self, names: Sequence[str]) -> dict[str, Any]:
        """A parameter file of the task as it is now, for the variants that it lacks."""
        values = {
            item.name: item.to_ros(getattr(self._task.config, item.field))
            for item in describe(TaskConfig)
        }
        values |= {"variants": list(names), "variant": "", "threads": self._task.threads}
        task = self._task.name.rpartition("/")[2]
        return {
            "/perception": {"ros__parameters": {"tasks": [task]}},
            f"/{task}": {"ros__parameters": values},
        }

    def _follow(self, lines: IO[str]) -> str:
        """Log the progress of the process now and then; returns the last line."""
        said_s = -LOG_PERIOD_S
        for line in lines:
            if not line.strip():
                continue
            self.progress = line.strip()
            now_s = time.monotonic()
            if now_s - said_s >= LOG_PERIOD_S:
                said_s = now_s
                self._log.info(f"building: {self.progress}")
        return self.progress

    def _read_report(self, text: str, code: int, last: str) -> dict[str, str]:
        if code < 0 and not self._stop.is_set():
            raise ModelError(
                f"the build was killed by {signal.Signals(-code).name}; is there enough memory? "
                f"Its last output: {last}"
            )
        lines = text.strip().splitlines()
        try:
            variants = json.loads(lines[-1])["variants"]
            return {
                entry["variant"]: entry["reason"] or f"the build says: {entry['state']}"
                if entry["state"] not in ("built", "present")
                else ""
                for entry in variants
            }
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise ModelError(f"the build ended with exit code {code}: {last}") from error
