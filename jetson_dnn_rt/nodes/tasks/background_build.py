"""Builds the variants that a task lacks while it runs with the others.

The building is done by a process of its own, ``jetson-dnn-rt build`` at the lowest priority: it
would hold the interpreter's lock for long. What it put into the library is loaded and warmed up
here, on a thread that is no worker.
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
from collections import deque
from collections.abc import Sequence
from typing import IO, Any

import yaml

from jetson_dnn_rt.config.declaration import describe
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import JetsonDnnRtError, ModelError
from jetson_dnn_rt.nodes.tasks.loading import LoadedTask
from jetson_dnn_rt.runtime.realtime import Realtime
from jetson_dnn_rt.safety.children import child_environment, python_command
from jetson_dnn_rt.safety.faults import FAULTS, safe_text, start_thread

LOG_PERIOD_S = 10.0
TURN_POLL_S = 0.2
JOIN_TIMEOUT_S = 10.0


class BackgroundBuild:
    """Builds, loads and warms up what is missing, once.

    Parameters
    ----------
    task : str
        Name of the task.
    parameters : TaskConfig
        Its values.
    loaded : LoadedTask
        Takes the variants; its `missing` are those that are built.
    turn : threading.Lock
        Held while one is at it: one of a process at a time.
    realtime : Realtime
        Whose workers will run the variants.
    logger : object
        With ``info`` and ``warning``.

    Attributes
    ----------
    progress : str
        What it is at.
    """

    def __init__(
        self,
        task: str,
        parameters: TaskConfig,
        loaded: LoadedTask,
        turn: threading.Lock,
        realtime: Realtime,
        logger: Any,
    ) -> None:
        self._task, self._parameters, self._loaded = task, parameters, loaded
        self._turn, self._realtime, self._logger = turn, realtime, logger
        self.progress = "waits for its turn"
        self._ready: deque[str] = deque()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        names = ", ".join(self._loaded.missing)
        self._logger.info(
            f"not in the library: {names}; built in the background, until then the task runs "
            f"{', '.join(self._loaded.variant_names)}"
        )
        self._thread = start_thread(self._run, f"build-{self._task}")

    def take(self) -> str | None:
        """Name of a variant that became ready, each once; None when there is none now."""
        return self._ready.popleft() if self._ready else None

    def put_back(self, name: str) -> None:
        """Give a variant that could not be used yet another time."""
        self._ready.appendleft(name)

    @property
    def over(self) -> bool:
        """Whether nothing will become ready any more."""
        return not (self._thread is not None and self._thread.is_alive()) and not self._ready

    def stop(self, timeout_s: float = 0.0) -> bool:
        """End the process at once, and wait so long for the thread; False when it still runs.

        What the process was about to put into the library is lost, what it has put there stays.
        """
        self._stop.set()
        with self._lock:
            process = self._process
            if process is not None and process.returncode is None:
                # With what it has started; its group is there a moment later than itself.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # -- its thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        # Not that of the thread which started this one: it may bring frames.
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        while not self._turn.acquire(timeout=TURN_POLL_S):
            if self._stop.is_set():
                return
        try:
            self._build(self._loaded.missing)
        finally:
            self._turn.release()
            self.progress = "ended"

    def _build(self, names: Sequence[str]) -> None:
        try:
            reports = self._run_process(names)
        except Exception as error:  # whatever it is, the variants are given up with the reason
            if not isinstance(error, (JetsonDnnRtError, OSError)):
                FAULTS.note(f"build of task {self._task}", error)
            reports = {name: safe_text(error) or type(error).__name__ for name in names}
        for name in names:
            if self._stop.is_set():
                return
            reason = reports.get(name, "the build says nothing of it")
            self._give_up(name, reason) if reason else self._load(name)

    def _load(self, name: str) -> None:
        self.progress = f"loading {name}"
        try:
            # Not a worker, which others would have to wait for, and at no lower priority either:
            # whoever holds the interpreter's lock must get on.
            with self._realtime.in_background():
                self._loaded.add(name)
        except Exception as error:
            if not self._stop.is_set():
                self._give_up(name, safe_text(error) or type(error).__name__)
            return
        self._ready.append(name)

    def _give_up(self, name: str, reason: str) -> None:
        self._logger.warning(f"variant {name} is left out: {reason}")
        self._loaded.give_up(name, reason)

    def _run_process(self, names: Sequence[str]) -> dict[str, str]:
        """Run ``jetson-dnn-rt build``; returns why variants are of no use, empty where they are.

        Raises
        ------
        ModelError
            When it ended without a report.
        """
        command = python_command("jetson_dnn_rt.nodes.tasks.low_priority", str(os.getpid()))
        # What is measured beside running tasks says nothing of a kernel.
        command += ["build", "--params", "/dev/stdin", "--no-tuning", "--json"]
        command += ["--batch", str(self._loaded.batch_tasks)]
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
            item.name: item.to_ros(getattr(self._parameters, item.field))
            for item in describe(TaskConfig)
        }
        values |= {"variants": list(names), "variant": "", "threads": self._loaded.threads}
        task = self._task.rpartition("/")[2]
        return {
            "/perception": {"ros__parameters": {"tasks": [task]}},
            f"/{task}": {"ros__parameters": values},
        }

    def _follow(self, lines: IO[str]) -> str:
        """Say now and then how far the process is; returns the last that it said."""
        said_s = -LOG_PERIOD_S
        for line in lines:
            if not line.strip():
                continue
            self.progress = line.strip()
            now_s = time.monotonic()
            if now_s - said_s >= LOG_PERIOD_S:
                said_s = now_s
                self._logger.info(f"building: {self.progress}")
        return self.progress

    def _read_report(self, text: str, code: int, last: str) -> dict[str, str]:
        if code < 0 and not self._stop.is_set():
            raise ModelError(
                f"the build was killed by {signal.Signals(-code).name}; is there memory for it? "
                f"Its last words: {last}"
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
