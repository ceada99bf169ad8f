# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Processes forked from one that has its imports done: a start costs milliseconds, not seconds.

Each runs a function as a program of its own, to the end of its interpreter, and may be sent a
signal at a moment. Their parent adopts what they leave running, so that it is seen.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

ORPHAN_S = 2.0
"""What a process has started may run on for so long after its end."""

GIVE_UP_S = 60.0
"""A process that has not ended so long after a signal is killed."""

_SET_CHILD_SUBREAPER = 36
_NEW_NAMESPACE, _BIND, _RECURSIVE, _PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    """As `subprocess` has it: -9 after SIGKILL."""
    out: str
    err: str
    signalled: bool
    """False where it had ended before the signal came."""
    signal_ns: int
    """Steady time of the signal."""
    began_ns: int
    """Steady time of its start, or of the moment at which the file appeared."""
    took_s: float
    """From the signal to its end, or from its start where there was none."""
    gone_s: float
    """From its end until nothing was left that it had started, at most about `ORPHAN_S`."""
    orphans: tuple[str, ...]
    """Commands of what was still running then."""
    timed_out: bool


class WarmProcesses:
    """Starts processes one at a time; `modules` are imported beforehand, once.

    Of ``module:function`` the function is called, too. `preload` is a library for ``LD_PRELOAD``.
    """

    def __init__(
        self, modules: Sequence[str] = (), *, preload: Path | None = None, nice: int = 0
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm-")
        environment = dict(os.environ)
        if preload is not None:
            environment["LD_PRELOAD"] = os.fspath(preload)
        self._server = subprocess.Popen(
            [sys.executable, os.fspath(Path(__file__)), str(nice), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self._ask()  # until the imports are done

    def run(
        self,
        function: str,
        *arguments: object,
        number: signal.Signals | None = None,
        after_s: float = 0.0,
        file: Path | None = None,
        limit_s: float = GIVE_UP_S,
        environment: Mapping[str, str | None] | None = None,
        folder: Path = Path("/"),
        out: Path | None = None,
        unknown_user: bool = False,
    ) -> Ended:
        """Run ``module:function`` with arguments that JSON can hold, and wait for its end.

        Signal `number` is sent `after_s` after the start, or after `file` has appeared. Variables
        of the environment that are None are removed. `unknown_user` runs it where the system
        knows no user, as in a container.
        """
        texts = [Path(self._folder.name, name) for name in ("out", "err")]
        request = {
            "function": function,
            "arguments": arguments,
            "number": None if number is None else int(number),
            "after_s": after_s,
            "file": None if file is None else os.fspath(file),
            "limit_s": limit_s,
            "environment": dict(environment or {}),
            "folder": os.fspath(folder),
            "outputs": [os.fspath(out or texts[0]), os.fspath(texts[1])],
            "unknown_user": unknown_user,
        }
        for text in texts:
            text.unlink(missing_ok=True)
        answer = self._ask(request)
        # One that is killed before it opens them wrote nothing.
        said = [text.read_text("utf-8", "replace") if text.exists() else "" for text in texts]
        answer["orphans"] = tuple(answer["orphans"])
        return Ended(out=said[0], err=said[1], **answer)

    def close(self) -> None:
        """End the parent of all."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()
        self._folder.cleanup()

    def __enter__(self) -> WarmProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: object = None) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        if request is not None:
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
        line = self._server.stdout.readline()
        if not line:
            raise RuntimeError(f"the parent of the processes ended with {self._server.wait()}")
        return cast("dict[str, Any]", json.loads(line))


# -- the parent of all ---------------------------------------------------------------------------


def _serve(nice: int, modules: Sequence[str]) -> dict[str, Any] | None:
    """Fork a process for every request, which is returned in it; None in the parent."""
    os.nice(nice)
    for name in modules:
        module, _, function = name.partition(":")
        imported = importlib.import_module(module)
        if function:
            getattr(imported, function)()
    gc.freeze()
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    print("{}", file=answers, flush=True)
    for line in requests:
        request: dict[str, Any] = json.loads(line)
        process = os.fork()
        if not process:
            return request
        print(json.dumps(_attend(process, request)), file=answers, flush=True)
    return None


def _attend(process: int, request: Mapping[str, Any]) -> dict[str, Any]:
    """Send a process its signal, wait for its end, and for what it leaves running."""
    began_ns = time.monotonic_ns()
    watched = os.pidfd_open(process)
    limit_s = request["limit_s"]
    signal_ns = 0
    if request["number"] is not None:
        while request["file"] and not os.path.exists(request["file"]):
            if _ends_within(watched, 0.002) or time.monotonic_ns() - began_ns > limit_s * 1e9:
                break
        else:
            began_ns = time.monotonic_ns() if request["file"] else began_ns
        if not _ends_within(watched, request["after_s"]):
            signal_ns = time.monotonic_ns()
            os.kill(process, request["number"])
    timed_out = not _ends_within(watched, limit_s)
    ended_ns = time.monotonic_ns()
    os.close(watched)
    if timed_out:
        os.kill(process, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    orphans: list[str] = []
    while _has_children() and not orphans:
        if time.monotonic_ns() - ended_ns > ORPHAN_S * 1e9:
            orphans = _end_children()
        time.sleep(0.002)
    return {
        "code": code,
        "signalled": bool(signal_ns),
        "signal_ns": signal_ns,
        "began_ns": began_ns,
        "took_s": (ended_ns - (signal_ns or began_ns)) / 1e9,
        "gone_s": (time.monotonic_ns() - ended_ns) / 1e9,
        "orphans": orphans,
        "timed_out": timed_out,
    }


def _ends_within(watched: int, seconds: float) -> bool:
    return bool(select.select([watched], [], [], seconds)[0])


def _has_children() -> bool:
    """Whether a child is left; those that have ended are seen off."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _end_children() -> list[str]:
    """Kill all children; their commands."""
    commands = []
    me = os.getpid()
    for number in Path(f"/proc/{me}/task/{me}/children").read_text().split():
        command = Path("/proc", number, "cmdline").read_bytes().replace(b"\0", b" ")
        commands.append(command.decode("utf-8", "replace").strip()[:200])
        os.kill(int(number), signal.SIGKILL)
        os.waitpid(int(number), 0)
    return commands


# -- a process -----------------------------------------------------------------------------------


def _run(request: Mapping[str, Any]) -> int:
    """Be the process that was asked for."""
    for number, path in enumerate(request["outputs"], 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, number)
        os.close(file)
    for name, value in request["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.chdir(request["folder"])
    if request["unknown_user"]:
        _forget_users()
    module, _, function = request["function"].partition(":")
    return int(getattr(importlib.import_module(module), function)(*request["arguments"]) or 0)


def _forget_users() -> None:
    """Let this process see an empty list of users, as a container's is for a user of its host."""
    libc = ctypes.CDLL(None, use_errno=True)
    steps = (
        libc.unshare(_NEW_NAMESPACE),
        libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None),
        # Without the second, systemd would still tell of root.
        *(
            libc.mount(b"/dev/null", name, None, _BIND, None)
            for name in (b"/etc/passwd", b"/etc/nsswitch.conf")
        ),
    )
    if any(steps):
        raise OSError(ctypes.get_errno(), "users cannot be hidden")


if __name__ == "__main__":
    _request = _serve(int(sys.argv[1]), sys.argv[2:])
    if _request is not None:
        sys.exit(_run(_request))
