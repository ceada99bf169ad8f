# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""An executable of the package in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
END_TIMEOUT_S = 60.0


class Process:
    """One of the executables, with what it says; `prelude` is code that runs in it before."""

    def __init__(self, executable: str, *arguments: str, prelude: str = "") -> None:
        code = f"from jetson_dnn_rt.nodes.process.main import {executable}; {executable}()"
        code = f"{prelude}\n{code}"
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", code, "--ros-args", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._condition = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._condition:
                self.lines.append(line)
                self._condition.notify_all()

    def wait_for(self, text: str) -> None:
        with self._condition:
            found = self._condition.wait_for(
                lambda: any(text in line for line in self.lines), timeout=60.0
            )
            assert found, "".join(self.lines)

    def end(self, *signals: int) -> int:
        for number in signals:
            self._process.send_signal(number)
        code = self._process.wait(END_TIMEOUT_S)
        self._reader.join(END_TIMEOUT_S)
        return code

    @property
    def said(self) -> str:
        """Everything so far."""
        with self._condition:
            return "".join(self.lines)

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def descendants(self) -> list[Path]:
        """Folders in /proc of the processes that it started."""
        children = Path("/proc").glob(f"{self._process.pid}/task/*/children")
        pids = " ".join(file.read_text() for file in children).split()
        return [Path("/proc", pid) for pid in pids]

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join(END_TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
