# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Batches of inputs in child processes, and what is wrong with how they end."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzzing.child import READ, REFUSED
from fuzzing.formats import load_format
from fuzzing.watch import make_home

MEMORY_MIB = 1024
"""What one input may take, beyond what the process had before; so may a child of the reader."""

CPU_S = 10.0
"""Computing time of one input, of all threads and children: it does not grow with the load."""

END, TIME, MEMORY = "end", "time", "memory"
"""Faults that are seen from outside, besides those of `child`: the process died or hung, ..."""

_MOST_ALIKE = 5

_HANG_S = 120.0
"""Wall time after which a reader that says nothing is ended."""

_SUPPORT = Path(__file__).parents[1]
_ROOT = _SUPPORT.parents[1]


@dataclass
class Tally:
    """How the inputs of one format ended."""

    inputs: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    """Each begins with the format and the number of its input, which repeat it."""
    kinds: Counter[str] = field(default_factory=Counter)
    alike: Counter[str] = field(default_factory=Counter)
    """Faults by how they begin, of which the first few are in `faults`."""
    cpu_s: float = 0.0
    memory_mib: int = 0
    child_mib: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)
    """What the child said of each input that has a name."""
    next: int = 0
    seconds: float = 0.0

    def find(self, name: str) -> dict[str, Any]:
        """What became of a sound or a crafted input."""
        return next(line for line in self.lines if line["name"] == name)


class Campaign:
    """Formats that are read in child processes; to be used as a context, which removes its files.

    `keep` is a folder for an input that ended badly, if its process died of it or was to read it
    alone: otherwise that has gone on to the next one meanwhile.
    """

    def __init__(
        self,
        seed: int,
        keep: Path | None = None,
        *,
        memory_mib: int = MEMORY_MIB,
        cpu_s: float = CPU_S,
    ) -> None:
        self.seed, self._keep = seed, keep
        self._memory_mib, self._cpu_s = memory_mib, cpu_s
        self._home = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.tallies: dict[str, Tally] = {}

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._home, ignore_errors=True)

    def run(
        self, name: str, *, first: int | None = None, count: int = 1 << 40, seconds: float = 1e9
    ) -> Tally:
        """Read inputs of a format: from where the last call ended, unless told otherwise."""
        tally = self.tallies.setdefault(name, Tally())
        begin_s = time.monotonic()
        seeds = self._make_seeds(name)
        number = tally.next if first is None else first
        end, end_s = number + count, time.monotonic() + seconds
        while number < end and (left_s := end_s - time.monotonic()) > 0:
            number = self._run_batch(name, seeds, tally, number, end - number, left_s)
        tally.next = number
        tally.seconds += time.monotonic() - begin_s
        return tally

    def _make_seeds(self, name: str) -> Path:
        folder = self._home / f"{name}-inputs"
        if not folder.exists():
            command = [sys.executable, "-m", "fuzzing.child", "seeds", name, str(folder)]
            done = subprocess.run(
                command, env=_environment(self._home), cwd=self._home, capture_output=True
            )
            if done.returncode:
                raise RuntimeError(f"no inputs of {name}: {done.stderr.decode()[-2000:]}")
        return folder

    def _run_batch(
        self, name: str, seeds: Path, tally: Tally, first: int, count: int, seconds: float
    ) -> int:
        """Read inputs with one child; the number of the next input."""
        home = make_home(self._home)
        arguments = [name, seeds, home, self.seed, first, count, seconds]
        command = [sys.executable, "-m", "fuzzing.child", "read", *map(str, arguments)]
        environment = _environment(home / "tmp")
        with open(home / "errors", "w+b") as errors:
            child = subprocess.Popen(
                command, env=environment, cwd=home / "cwd", stdout=subprocess.PIPE, stderr=errors,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            begun: dict[str, Any] = {}
            following, making = -1, -1
            try:
                for line in _read_lines(child):
                    if "make" in line:
                        making = line["make"]
                    elif "begin" in line:
                        begun = line
                    elif "end" in line:
                        self._count(name, tally, {**begun, **line}, home if count == 1 else None)
                        begun = {}
                    else:
                        following = line["next"]
            finally:
                # With the session all children of a reader, too.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                code = child.wait()
                assert child.stdout is not None
                child.stdout.close()
            errors.seek(0)
            said = errors.read()[-3000:].decode(errors="replace")
        if begun:
            how = "no end in time" if code == -signal.SIGKILL else f"the process ended with {code}"
            faults = [(END, f"{how}: {_summarise(said)}")]
            line = {**begun, "how": how, "found": None, "faults": faults}
            self._count(name, tally, line, home)
            following = begun["begin"] + 1
        elif following < 0 <= making:  # a library died of what it was to spoil
            tally.ends["not made"] += 1
            following = making + 1
        shutil.rmtree(home, ignore_errors=True)
        if following < 0:
            raise RuntimeError(f"the child for {name} ended with {code}: {said}")
        return following

    def _count(self, name: str, tally: Tally, line: dict[str, Any], home: Path | None) -> None:
        faults = list(line["faults"])
        cpu_s, memory_mib = line.get("cpu_s", 0.0), line.get("memory_mib", 0)
        child_mib = line.get("child_mib", 0)
        if cpu_s > self._cpu_s:
            faults.append((TIME, f"{cpu_s} s of computing"))
        if max(memory_mib, child_mib) > self._memory_mib:
            faults.append((MEMORY, f"{memory_mib} MiB, {child_mib} MiB in a child"))
        tally.inputs += 1
        tally.cpu_s = max(tally.cpu_s, cpu_s)
        tally.memory_mib = max(tally.memory_mib, memory_mib)
        tally.child_mib = max(tally.child_mib, child_mib)
        tally.ends[line["how"] if line["how"] in (READ, REFUSED) else "fault"] += 1
        if line["name"]:
            tally.lines.append(line)
        title = f" ({line['name']})" if line["name"] else ""
        for kind, text in faults:
            tally.kinds[kind] += 1
            tally.alike[f"{kind}: {text[:60]}"] += 1
            if tally.alike[f"{kind}: {text[:60]}"] <= _MOST_ALIKE:
                tally.faults.append(f"{name}:{line['begin']}{title}: {kind}: {text}")
        if faults and self._keep is not None and home is not None:
            kept = self._keep / f"{name}-{self.seed}-{line['begin']}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(home / "input", kept)


def list_missing(name: str) -> list[str]:
    """Packages that a format needs and that are not installed."""
    with contextlib.suppress(ModuleNotFoundError):
        return [one for one in load_format(name).packages if not importlib.util.find_spec(one)]
    return ["a package of its module"]


def _environment(temporary: Path) -> dict[str, str]:
    """Of a child: it imports nothing from its folder, writes nothing beside its own."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("MKL", "OMP", "OPENBLAS")}
    given = [path for path in sys.path if os.path.isabs(path)]
    paths = dict.fromkeys(map(str, (_ROOT, _SUPPORT, *given)))
    own = {
        "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(temporary), "HOME": str(temporary),
        "XDG_CACHE_HOME": str(temporary), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
    }  # fmt: skip
    return {**os.environ, **threads, **own}


def _read_lines(child: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Lines of a child, until it ends or is silent for too long."""
    assert child.stdout is not None
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.select(_HANG_S):
            chunk = os.read(child.stdout.fileno(), 1 << 16)
            if not chunk:
                child.wait(_HANG_S)
                return
            *lines, rest = (rest + chunk).split(b"\n")
            yield from map(json.loads, lines)


def _summarise(said: str) -> str:
    """The end of what a child printed: a signal's traceback, or an exception."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    fatal = [place for place, line in enumerate(lines) if line.startswith("Fatal Python error")]
    kept = lines[fatal[-1] : fatal[-1] + 12] if fatal else lines[-3:]
    return " | ".join(kept)[:700]
