# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Visible progress and readable failures for the set-up scripts (standard library only)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
# A step that prints nothing for this long shows that it is still alive.
HEARTBEAT_S = 10.0
LOG_TAIL_LINES = 30


class SetupError(Exception):
    """The set-up cannot continue; the message says why and what to do."""


class Progress:
    """Progress of the set-up: prints steps with the elapsed time, and logs all output."""

    def __init__(self, name: str, log: Path) -> None:
        self._start = time.monotonic()
        self._name = name
        self.log = log

    @classmethod
    def of(cls, prefix: Path) -> Progress:
        """Of the set-up of an environment; its log is in ``build/``."""
        return cls(f"set-up of {prefix.name}", ROOT / "build" / f"setup{prefix.name}.log")

    def start_log(self) -> None:
        """Empty the log for a new set-up."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text("", encoding="utf-8")

    def say(self, text: str) -> None:
        """Print one line with the elapsed time in seconds."""
        print(f"[{self._name} {time.monotonic() - self._start:6.1f} s] {text}", flush=True)

    def run(
        self,
        title: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        hint: str = "",
    ) -> None:
        """Run a command under a title and show that it is alive.

        SetupError, with the end of its output and `hint`, if it fails.
        """
        self.say(title)
        started = time.monotonic()
        lines: list[str] = []
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            log.flush()
            try:
                process = subprocess.Popen(
                    list(command),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    env=None if env is None else dict(env),
                    cwd=None if cwd is None else os.fspath(cwd),
                    text=True,
                    errors="replace",
                )
            except OSError as error:
                raise SetupError(f"{title}: cannot start {command[0]}: {error}\n{hint}") from error
            done = threading.Event()
            beat = threading.Thread(target=self._beat, args=(done, title, lines), daemon=True)
            beat.start()
            with process:
                try:
                    assert process.stdout is not None
                    _copy_output(process.stdout, log, lines)
                    code = process.wait()
                except BaseException:
                    process.terminate()
                    raise
                finally:
                    done.set()
                    beat.join()
        if code != 0:
            tail = "\n".join("    " + line for line in lines[-LOG_TAIL_LINES:])
            raise SetupError(
                f"{title}: exit code {code}\n{tail}\n{hint}\nThe whole log: {self.log}"
            )
        self.say(f"    done in {time.monotonic() - started:.1f} s")

    def _beat(self, done: threading.Event, title: str, lines: list[str]) -> None:
        while not done.wait(HEARTBEAT_S):
            last = lines[-1].strip()[:90] if lines else title
            self.say(f"    ... {last}")


def _copy_output(source: IO[str], log: IO[str], lines: list[str]) -> None:
    for line in source:
        log.write(line)
        if line.strip():
            lines.append(line.rstrip())
            del lines[:-200]


def fail(error: SetupError) -> int:
    """Print a set-up error and return the exit code for it."""
    print(f"\nset-up failed: {error}", file=sys.stderr, flush=True)
    return 1
