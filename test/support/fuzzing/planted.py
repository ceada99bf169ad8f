# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A reader with every fault that a campaign has to find, to show that it does."""

from __future__ import annotations

import ctypes
import importlib
import os
import pickle
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fuzzing.formats import Files, Format
from fuzzing.mutations import SECRET, TRAP
from jetson_dnn_rt.errors import SourceError


class _RudeError(SourceError):
    def __str__(self) -> str:
        return "\x1b[2J"


class _LongError(SourceError):
    def __str__(self) -> str:
        return "x" * 30_000


_LIBC = ctypes.CDLL(None)


def _open_natively(word: str) -> None:
    """As C++ code does, of which Python is not told."""
    os.close(_LIBC.open(word.encode(), os.O_RDONLY))


def _raise(error: BaseException) -> Callable[[str], None]:
    def read(word: str) -> None:
        raise error

    return read


def _compute(word: str) -> None:
    end_s = time.process_time() + 1.0
    while time.process_time() < end_s:
        pass


def _load_library(word: str) -> None:
    try:
        ctypes.CDLL(word)
    except OSError:
        raise SourceError("no library") from None


READERS: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "its own error": ("", "x", _raise(SourceError("it is refused"))),
    "a foreign error": ("error", "x", _raise(KeyError("x"))),
    "an exit": ("error", "x", _raise(SystemExit(1))),
    "an error of the size of the file": ("text", "x", _raise(_LongError())),
    "an error that moves the cursor": ("text", "x", _raise(_RudeError())),
    "an import": ("reach", TRAP, importlib.import_module),
    "code": ("reach", f"{TRAP} = 1", exec),
    "a file": ("reach", SECRET, lambda word: Path(word).read_text()),
    "a file that only native code sees": ("reach", SECRET, _open_natively),
    "a file that is written": ("reach", "../cwd/new", lambda word: Path(word).write_text("x")),
    "a library": ("reach", f"../bait/{TRAP}.so", _load_library),
    "a socket": ("reach", "x", lambda word: socket.socket().close()),
    "a process": ("reach", "x", lambda word: subprocess.run(["/bin/true"], check=True)),
    "an object": ("reach", "x", lambda word: pickle.loads(pickle.dumps(os.getcwd))),
    "memory": ("memory", "x", lambda word: len(b"x" * (200 << 20))),
    "time": ("time", "x", _compute),
    "a crash": ("end", "x", lambda word: ctypes.string_at(0)),
}
"""By name: the kind of the fault that has to be found, the file's text, the reader."""


class Planted(Format):
    """Files whose name says what their reader does."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        return {"sound": {"sound": b"x"}}

    def make_crafted(self, folder: Path, sound: Mapping[str, Files]) -> dict[str, Files]:
        return {name: {name: text.encode()} for name, (_, text, _) in READERS.items()}

    def read(self, folder: Path, work: Path) -> None:
        (path,) = folder.iterdir()
        if path.name in READERS:
            READERS[path.name][2](path.read_text())
