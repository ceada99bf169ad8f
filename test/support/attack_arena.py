# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The place of an attack: what came from outside, what is precious, and what tells of a success.

An attack is a function that lays a hostile file and returns a `Hostile`; `attack` registers it for
a kind of file. Every way into the package that takes this kind (`boundary_ways`) can be given it.
"""

from __future__ import annotations

import os
import random
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confined import ROOT, Confinement, Ending, Request
from kernel_watch import KernelWatch

TRAPPED = "trapped"
"""A module that every Python here can import; importing it counts as an execution."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ANSWERS = (0, 1, 2)
"""Exit codes of a program that has said what is wrong."""


@dataclass(frozen=True)
class Hostile:
    """What an attack has laid."""

    given: str
    """What the user gives to the package: a path, or the name of a model."""
    control: str = ""
    """A program that reads it without care. It must come to harm: else the attack is none."""
    named: tuple[str, ...] = ()
    """Names of files in the folder that may be opened besides `given`."""
    sees: bool = True
    """Whether the package has to open it before it can refuse it."""
    check: Callable[[Path, Ending], list[str]] | None = None
    """More that must hold afterwards, given the folder; it returns faults."""
    needs_root: bool = False
    """Whether only root can lay it: it belongs to another user."""


@dataclass(frozen=True)
class Attack:
    """One kind of hostile file."""

    kind: str
    name: str
    lay: Callable[[Arena], Hostile | None]
    edge: int
    """Number in EDGES.md; 0: none."""
    slow: bool


ATTACKS: list[Attack] = []


def attack(
    kind: str, name: str, *, edge: int = 0, slow: bool = False
) -> Callable[[Callable[[Arena], Hostile | None]], Callable[[Arena], Hostile | None]]:
    """Register a function that lays a hostile file; it returns None where this machine cannot."""

    def register(lay: Callable[[Arena], Hostile | None]) -> Callable[[Arena], Hostile | None]:
        ATTACKS.append(Attack(kind, name, lay, edge, slow))
        return lay

    return register


@dataclass
class Arena:
    """Folders of one attack, below a folder that all may read."""

    root: Path
    user: int
    """Who runs the package."""
    rng: random.Random
    port: int
    """On this machine, where connections are counted."""
    inside: Path = field(init=False)
    """What came from outside, and where the user stands."""
    outside: Path = field(init=False)
    """What nothing in `inside` may lead to."""

    def __post_init__(self) -> None:
        self.root.chmod(0o755)
        self.inside, self.outside = self.root / "downloads", self.root / "elsewhere"
        for name in ("downloads", "elsewhere", "home/.ssh", "tmp", "modules", "marks", "bin"):
            (self.root / name).mkdir(parents=True)
        self.token = f"precious{self.rng.getrandbits(64):016x}"
        self.marker = self.root / "marks" / "executed"
        (self.root / "modules" / f"{TRAPPED}.py").write_text(
            f"import enum, pathlib\npathlib.Path({os.fspath(self.marker)!r}).touch()\n"
            "class Kind(enum.Enum):\n    ONE = 1\n"
        )
        (self.root / "home" / ".ssh" / "id_rsa").write_text(self.token)

    def write(self, name: str, data: bytes | str) -> Path:
        """A file that came from outside."""
        path = self.inside / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def secret(self, name: str, data: bytes = b"") -> Path:
        """A precious file elsewhere; it can be read, but nobody has named it."""
        path = self.outside / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data or self.token.encode())
        return path

    def program(self, name: str) -> Path:
        """A program on the user's path; running it counts as an execution."""
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n: > {self.marker}\nexit 1\n")
        path.chmod(0o755)
        return path

    def give_away(self) -> None:
        """Let everything belong to the user, unless it was given to somebody else."""
        if os.geteuid() or not self.user:
            return
        for folder, folders, files in os.walk(self.root):
            for name in (".", *folders, *files):
                path = os.path.join(folder, name)
                if os.lstat(path).st_uid == 0:
                    os.lchown(path, self.user, self.user)


@dataclass(frozen=True)
class Verdict:
    """What came of one program."""

    executed: bool
    reads: tuple[str, ...]
    """Files that were opened and not named, from the arena's folder."""
    reached: tuple[str, ...]
    """Programs, libraries and addresses."""
    faults: tuple[str, ...]
    """Anything else that should not be: a traceback, a signal, terminal commands."""
    ending: Ending

    @property
    def harm(self) -> bool:
        """Whether the attack came to something."""
        return self.executed or bool(self.reads) or bool(self.reached)


class Listener:
    """A port of this machine; connections to it are counted and closed."""

    def __enter__(self) -> Listener:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.connections = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def attempt(
    confinement: Confinement,
    listener: Listener,
    arena: Arena,
    hostile: Hostile,
    program: str,
    *,
    command: list[str] | None = None,
    limit_s: float = 300.0,
) -> Verdict:
    """Run a program where an attack was laid, and judge it."""
    request = Request(
        program=program,
        folder=os.fspath(arena.inside),
        home=os.fspath(arena.root / "home"),
        temporary=os.fspath(arena.root / "tmp"),
        modules=os.fspath(arena.root / "modules"),
        programs=os.fspath(arena.root / "bin"),
        command=command or [],
        limit_s=limit_s,
    )
    _remove(arena.marker)
    before = listener.connections
    folders = (arena.inside, arena.outside, arena.root / "home")
    made = set(arena.inside.rglob("*"))  # what the program writes itself it may read
    with KernelWatch(folders) as watch:
        ending = confinement.run(request)
        opened = watch.read_opened()
    given = Path(hostile.given.partition(":")[2] or hostile.given)
    allowed = {given, *(Path(os.path.normpath(arena.inside / n)) for n in hostile.named)}
    strange = {
        path
        for path in opened - allowed
        if path in made or not path.is_relative_to(arena.inside)
        if not any(one in allowed for one in path.parents)
        if ".cache" not in path.parts and ".config" not in path.parts
    }
    reads = tuple(sorted(os.fspath(path.relative_to(arena.root)) for path in strange))
    reached = list(find_reached(ending, arena))
    reached += [f"port {listener.port}"] * (listener.connections - before)
    faults = list(find_faults(ending, arena))
    if hostile.sees and not any(path == given or given in path.parents for path in opened):
        faults.append("the file was not opened: the attack never got as far")
    if hostile.check is not None:
        faults += hostile.check(arena.inside, ending)
    executed = os.path.lexists(arena.marker)
    return Verdict(executed, reads, tuple(reached), tuple(faults), ending)


def _remove(marker: Path) -> None:
    if marker.is_dir():
        marker.rmdir()
    marker.unlink(missing_ok=True)


def expect(words: str) -> Callable[[Path, Ending], list[str]]:
    """A check that a refusal says why."""

    def check(folder: Path, ending: Ending) -> list[str]:
        text = " ".join(ending.output.split())
        return [] if words in text else [f"it does not say {words!r}: {text[-300:]}"]

    return check


def find_reached(ending: Ending, arena: Arena) -> list[str]:
    """Programs and libraries of the arena, and other machines, that Python code turned to."""
    found = []
    for event, *words in ending.events:
        if event.startswith("socket."):
            if "AF_UNIX" not in words[0] and not words[-1].startswith("/"):
                found.append(" ".join((event, *words))[:200])
        elif any(os.fspath(arena.root) in word for word in words[:1]):
            found.append(" ".join((event, *words))[:200])
    return found


def _shorten(text: str) -> str:
    """Without the checkout's place."""
    return text.replace(f"{ROOT}{os.sep}", "")


def find_faults(ending: Ending, arena: Arena) -> list[str]:
    """What a clear refusal does not have."""
    faults = []
    if ending.timed_out:
        faults.append("it did not end")
    elif ending.code not in _ANSWERS:
        faults.append(f"exit code {ending.code}: {_shorten(ending.output[-300:])}")
    if "Traceback (most recent call last)" in ending.output:
        faults.append(f"a traceback: {ending.output.strip().splitlines()[-1][:300]}")
    if arena.token in ending.output:
        faults.append("it printed what is precious")
    if found := _CONTROL.search(ending.output):
        place = ending.output[max(0, found.start() - 60) : found.end() + 20]
        faults.append(f"a command to the terminal: {place!r}")
    return faults
