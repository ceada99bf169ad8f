# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What a reader does beyond reading its file: imports, code, other files, libraries, sockets.

Python's audit events show what Python code does; inotify, on a folder of bait beside the input,
also what native code opens.
"""

from __future__ import annotations

import ast
import ctypes
import os
import struct
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fuzzing.mutations import TRAP

_CHANGES = (
    "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir",
    "os.symlink", "os.truncate", "os.utime",
)  # fmt: skip
_PROCESSES = (
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "subprocess.Popen",
)
_IN_ACCESS, _IN_OPEN, _IN_ISDIR = 0x1, 0x20, 0x40000000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def lay_bait(folder: Path) -> None:
    """A secret, and a module and a library that nothing should load."""
    folder.mkdir()
    for name, text in (("secret", "secret\n"), (f"{TRAP}.py", "class Thing: ...\n")):
        (folder / name).write_text(text)
    (folder / f"{TRAP}.so").write_bytes(b"\x7fELF")


class Watch:
    """Notes what happens between `begin` and `end`; installed once, for good.

    `home` is the folder of input, work and bait, which is the working directory's parent.
    """

    def __init__(self, home: Path, *, starts_python: bool, imports: tuple[str, ...]) -> None:
        self._bait = home / "bait"
        self._own = tuple(f"{home / name}{os.sep}" for name in ("input", "work", "tmp"))
        places = (sys.prefix, sys.base_prefix, Path(__file__).parents[3], *sys.path)
        # Modules that are loaded late, and what libraries look up about the machine.
        self._known = (*self._own, *(f"{place}{os.sep}" for place in places if str(place)),
                       "/dev/", "/etc/", "/proc/", "/sys/", "/usr/")  # fmt: skip
        self._starts_python, self._imports = starts_python, imports
        self._text = b""
        self._on = False
        self.notes: list[str] = []
        self._opened = _watch_folder(self._bait)
        sys.addaudithook(self._hook)

    def begin(self, files: Mapping[str, bytes]) -> None:
        """Forget, and note from now on; `files` are what a reader is about to read."""
        self._text = b"\0".join(files.values())
        self.notes.clear()
        self._read_opened()
        self._on = True

    def end(self) -> list[str]:
        """What was noted: nothing, where the reader only read."""
        self._on = False
        return [*self.notes, *self._read_opened()]

    def _read_opened(self) -> list[str]:
        """Names of files of the bait that were opened."""
        names = []
        try:
            data = os.read(self._opened, 1 << 16)
        except BlockingIOError:
            return []
        while data:
            mask, length = struct.unpack_from("iIII", data)[1::2]
            name = data[16 : 16 + length].rstrip(b"\0").decode(errors="replace")
            if name and not mask & _IN_ISDIR:
                names.append(f"bait/{name} was opened")
            data = data[16 + length :]
        return sorted(set(names))

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._on:
            return
        self._on = False  # for what this function does itself
        try:
            note = self._judge(event, arguments)
            if note and len(self.notes) < 20:
                self.notes.append(note[:300])
        except Exception as error:
            self.notes.append(f"the watch failed at {event}: {error!r}"[:300])
        finally:
            self._on = True

    def _judge(self, event: str, arguments: tuple[Any, ...]) -> str:
        if event == "import":
            return self._judge_import(str(arguments[0]))
        if event == "compile":
            # Of ``ast.parse``, whose result is data: nothing that is run is called so.
            return "" if arguments[1] == "<unknown>" else self._judge_source(arguments[0])
        if event == "exec":
            return self._judge_code(arguments[0])
        if event == "open":
            if _is_below_a_folder(arguments):
                return ""
            return self._judge_path(event, arguments[0], writes=_is_writing(arguments))
        if event in _CHANGES:
            # Below an open folder the path is relative to that.
            folder = arguments[-1] if isinstance(arguments[-1], int) else -1
            is_relative = folder >= 0 and not os.path.isabs(os.fsdecode(arguments[0]))
            return "" if is_relative else self._judge_path(event, arguments[0], writes=True)
        if event == "ctypes.dlopen":
            if arguments[0] is None:  # this process itself
                return ""
            name = str(arguments[0])
            is_asked = name.encode(errors="replace") in self._text
            return f"dlopen of {name}" if is_asked or not name.startswith(self._known) else ""
        if event.startswith("socket.") and event != "socket.gethostname":
            return f"{event}{arguments[1:]!r}"
        if event.startswith(_PROCESSES):
            runs_python = self._starts_python and sys.executable in str(arguments[:2])
            return "" if runs_python else f"{event}{arguments[:2]!r}"
        if event == "pickle.find_class":
            return f"unpickling of {arguments[0]}.{arguments[1]}"
        return ""

    def _judge_import(self, name: str) -> str:
        last = name.rpartition(".")[2].encode()
        is_asked = name.encode() in self._text or (len(last) > 5 and last in self._text)
        if TRAP in name or (is_asked and name not in self._imports):
            return f"import of {name}, which the file names"
        return ""

    def _judge_code(self, code: Any) -> str:
        """Code that was made of a text; modules and what torch.fx generates have other names."""
        if getattr(code, "co_filename", "") != "<string>":
            return ""
        words = (one for one in (*code.co_names, *code.co_consts) if isinstance(one, str))
        asked = [w for w in words if len(w) > 5 and w.encode(errors="replace") in self._text]
        return f"exec of code with {asked[0]}, which is in the file" if asked else ""

    def _judge_source(self, source: Any) -> str:
        if isinstance(source, str):
            source = source.encode(errors="surrogatepass")
        if not isinstance(source, bytes):
            return ""
        is_trap = TRAP.encode() in source and _does_more_than_name(source)
        is_copy = len(source.strip()) >= 12 and source.strip() in self._text
        return f"compile of {source[:100]!r}" if is_trap or is_copy else ""

    def _judge_path(self, event: str, path: Any, *, writes: bool) -> str:
        if isinstance(path, int) or path is None:
            return ""
        given = os.fsdecode(path)
        real = os.path.abspath(given)
        if real.startswith(f"{self._bait}{os.sep}"):
            return f"{event} of {given}"
        if real.startswith(self._own) or f"{real}{os.sep}" in self._own or real == os.devnull:
            return ""
        is_asked = len(given) > 3 and given.encode(errors="surrogateescape") in self._text
        if is_asked or writes or not real.startswith(self._known):
            return f"{event} of {given}"
        return ""


def _does_more_than_name(source: bytes) -> bool:
    """Whether a text imports what the trap is named, or reads a variable of that name.

    Attributes and texts may bear it, and variables that the text sets itself: so torch.fx writes
    the names of a network's layers.
    """
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return True
    if any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in nodes):
        return True
    named = [node for node in nodes if isinstance(node, ast.Name) and TRAP in node.id]
    own = {node.id for node in named if not isinstance(node.ctx, ast.Load)}
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    texts = {one.id for one in calls if isinstance(one, ast.Name)} & {"eval", "exec", "__import__"}
    return bool(texts) or any(node.id not in own for node in named)


def _is_below_a_folder(arguments: tuple[Any, ...]) -> bool:
    """Whether ``os.open`` opens a folder, or a name in one: the event does not say in which."""
    path, mode, flags = arguments[:3]
    if mode is not None or isinstance(path, int):
        return False
    return bool(flags & (os.O_DIRECTORY | os.O_PATH)) or os.sep not in os.fsdecode(path)


def _is_writing(arguments: tuple[Any, ...]) -> bool:
    """Of ``open``: path, mode, flags."""
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str) and set(mode) & set("wax+"):
        return True
    return isinstance(flags, int) and bool(flags & _WRITING) and mode is None


def _watch_folder(folder: Path) -> int:
    """A descriptor from which openings of files in a folder can be read."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    wanted = _IN_OPEN | _IN_ACCESS
    if descriptor < 0 or libc.inotify_add_watch(descriptor, os.fsencode(folder), wanted) < 0:
        raise OSError(ctypes.get_errno(), "inotify", str(folder))
    return descriptor


def make_home(parent: Path) -> Path:
    """A folder with bait, and with the folders that a batch uses."""
    home = Path(tempfile.mkdtemp(prefix="fuzz-", dir=parent))
    lay_bait(home / "bait")
    for name in ("input", "work", "tmp", "cwd"):
        (home / name).mkdir()
    return home
