# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A server of children without privileges, each of which runs one Python program.

Where root runs the tests it becomes ``nobody`` in a mount namespace of its own, in which the
interpreter can be read although root's home folder cannot. It imports the large libraries once;
each program runs in a fork of it, so that a hundred of them take seconds.

As a program (``python confined.py``) this is the server: requests and answers are lines of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534

# Imported by the server, where they are installed: most of a child's time otherwise.
_LARGE = (
    "jetson_dnn_rt",
    "numpy", "cv2", "yaml", "onnx", "onnxruntime", "pyarrow.parquet", "torch", "torch.export",
    "torch.export.pt2_archive._package", "torchvision", "rosbags.rosbag2", "sqlite3", "tarfile",
    "matplotlib.figure", "jinja2", "jetson_dnn_rt.cli.main", "jetson_dnn_rt.runtime.session",
    "jetson_dnn_rt.models.sources.registry", "jetson_dnn_rt.cameras.bags.image_bag",
    "jetson_dnn_rt.traces.reader", "jetson_dnn_rt.lab.report.report",
)  # fmt: skip

# Events of `sys.addaudithook` by which code in a file reaches out.
_WATCHED = (
    "os.exec", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen", "pty.spawn",
    "ctypes.dlopen", "socket.connect", "socket.getaddrinfo", "socket.sendto",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """A program text, and what it finds."""

    program: str
    folder: str  # it stands there
    home: str
    temporary: str
    modules: str  # last on its path
    programs: str  # last on the user's path
    command: list[str] = field(default_factory=list)  # a process instead of a fork
    limit_s: float = 300.0


@dataclass(frozen=True)
class Ending:
    """How a program ended."""

    code: int  # of its exit; below zero a signal, as `subprocess` has it
    output: str  # stdout and stderr
    events: list[list[str]]  # of `_WATCHED`: the name, and the arguments as text
    timed_out: bool = False


class Confinement:
    """The server, used as a context."""

    def __enter__(self) -> Confinement:
        folders = (ROOT, ROOT / "test" / "support")
        paths = [*map(os.fspath, folders), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(os.path.isabs, paths))}
        self._home = tempfile.TemporaryDirectory(prefix="jetson_dnn_rt-home-")
        os.chmod(self._home.name, 0o777)  # of a server that becomes another user
        env |= {"HOME": self._home.name, "PYTHONSAFEPATH": "1"}
        env |= {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd="/",
        )  # fmt: skip
        ready = self._ask({})
        self.user: int = ready["user"]
        """The one that programs run as; root only where it could not be left."""
        return self

    def run(self, request: Request) -> Ending:
        """Run a program to its end."""
        return Ending(**self._ask(asdict(request)))

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(message) + "\n")
        self._server.stdin.flush()
        line = self._server.stdout.readline()
        if not line:
            raise RuntimeError(f"the server of children ended: {self._server.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()
        self._home.cleanup()


# -- in the server -----------------------------------------------------------------------------

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS, _PRIVATE, _BIND = 0x20000, 0x44000, 0x5000  # CLONE_NEWNS, MS_REC with each


def leave_root() -> None:
    """Become ``nobody``, who can read interpreter and checkout wherever they are."""
    needed = {Path(p).resolve() for p in (sys.base_prefix, sys.prefix, ROOT)}
    hidden = {path: top for path in needed if (top := _find_hidden(path)) is not None}
    if hidden:
        _check(_LIBC.unshare(_NEW_MOUNTS))
        _check(_LIBC.mount(None, b"/", None, ctypes.c_ulong(_PRIVATE), None))
        opened = {path: os.open(path, os.O_PATH) for path in hidden}
        for top in set(hidden.values()):
            name = os.fsencode(top)
            _check(_LIBC.mount(b"none", name, b"tmpfs", ctypes.c_ulong(0), b"mode=755"))
        for path, fd in opened.items():
            path.mkdir(parents=True, exist_ok=True)
            source = f"/proc/self/fd/{fd}".encode()
            _check(_LIBC.mount(source, os.fsencode(path), None, ctypes.c_ulong(_BIND), None))
            os.close(fd)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _find_hidden(path: Path) -> Path | None:
    """The first folder on the way that others may not pass."""
    return next((p for p in reversed(path.parents) if not p.stat().st_mode & 0o001), None)


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), "cannot hide root's files")


def serve() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in _LARGE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        message = json.loads(line)
        answer = asdict(_run(Request(**message))) if message else {"user": os.getuid()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _run(request: Request) -> Ending:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as events:
        pid = os.fork()
        if pid == 0:
            try:
                _become(request, output.fileno(), events.fileno())
            finally:
                os._exit(99)
        code, timed_out = _wait(pid, request.limit_s)
        for file in (output, events):
            file.seek(0)
        seen = [json.loads(line) for line in events.read().splitlines()]
        text = output.read(1 << 22).decode(errors="surrogateescape")
    return Ending(code, text, seen, timed_out)


def _wait(pid: int, limit_s: float) -> tuple[int, bool]:
    """Its exit code, and whether it took too long; its whole session is ended then."""
    deadline_s, fd = time.monotonic() + limit_s, os.pidfd_open(pid)
    import select

    late = not select.select([fd], [], [], max(0.0, deadline_s - time.monotonic()))[0]
    os.close(fd)
    with contextlib.suppress(ProcessLookupError):  # also children that are left
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), late


def _become(request: Request, output: int, events: int) -> None:
    """Run the program in this process, a fork, and end it."""
    os.setpgid(0, 0)
    os.chdir(request.folder)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, standard in ((null, 0), (output, 1), (output, 2)):
        os.dup2(fd, standard)
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    os.environ |= {"HOME": request.home, "TMPDIR": request.temporary}
    os.environ["PYTHONPATH"] += os.pathsep + request.modules
    os.environ["PATH"] += os.pathsep + request.programs
    tempfile.tempdir = None
    if request.command:
        os.execv(request.command[0], request.command)
    sys.path.append(request.modules)
    importlib.invalidate_caches()
    sys.stdin = os.fdopen(0)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _WATCHED:
            words = [event, *(f"{argument!s:.300}" for argument in arguments)]
            os.write(events, (json.dumps(words) + "\n").encode())

    sys.addaudithook(note)
    code = 0
    try:
        exec(compile(request.program, "<program>", "exec"), {"__name__": "__main__"})
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 98
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    if len(sys.argv) == 1 and os.geteuid() == 0:
        with contextlib.suppress(OSError):
            leave_root()
        os.execv(sys.executable, [sys.executable, __file__, "serve"])
    serve()
