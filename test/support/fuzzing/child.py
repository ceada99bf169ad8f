# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A child process that reads spoilt inputs of one format, one after the other.

``python -m fuzzing.child seeds FORMAT FOLDER`` writes the sound and the crafted inputs of a
format; ``... read FORMAT FOLDER HOME SEED FIRST COUNT SECONDS`` reads inputs by their numbers:
the sound ones, the crafted ones, then spoilt ones. Lines of JSON on stdout tell when an
input is made, when it begins, and how it ended.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import logging
import os
import random
import resource
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzzing.formats import Files, Format, load_format, read_folder, write_folder
from fuzzing.watch import Watch

READ, REFUSED = "read", "refused"
LONGEST_TEXT = 20_000
"""Characters of an error: its text may quote from the file, but not all of it."""

MOST_BYTES = 4 << 20
"""Of one file of a spoilt input; the rest is cut off."""

# What a reader may map beyond what is mapped before: a request for more fails at once, and does
# not take the machine's memory. Of what it may use, `batches.MEMORY_MIB`, it is the double.
_ADDRESS_SPACE = 2 << 30

ERROR, REACH, TEXT = "error", "reach", "text"
"""Faults: no error of the package, something beyond the file, an error that cannot be shown."""

SOUND, CRAFTED = "sound", "crafted"

FOUND = Path(__file__).with_name("found")
"""Inputs that campaigns have found, by format: a folder each, read first in every run."""


class Corpus:
    """The inputs of a format, by number."""

    def __init__(self, format: Format, folder: Path, seed: int, name: str) -> None:
        self._format, self._seed, self._name = format, seed, name
        self.sound = _read_inputs(folder / SOUND)
        self.crafted = _read_inputs(folder / CRAFTED) | _read_inputs(FOUND / name)

    def make(self, number: int) -> tuple[str, Files]:
        """How an input is called, and its files."""
        known = [*self.sound.items(), *self.crafted.items()]
        if number < len(known):
            return known[number]
        rng = random.Random(f"{self._seed} {self._name} {number}")
        inputs = list(self.sound.values())
        files = rng.choice(inputs)
        with _deep_recursion():
            for _ in range(rng.choice((1, 1, 1, 2))):
                files = self._format.spoil(files, rng.choice(inputs), rng)
        return "", {name: data[:MOST_BYTES] for name, data in files.items()}


@contextlib.contextmanager
def _deep_recursion() -> Iterator[None]:
    """Values that are nested more deeply than a reader takes have to be made first."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * limit)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _read_inputs(folder: Path) -> dict[str, Files]:
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.name: read_folder(path) for path in paths}


def write_seeds(name: str, folder: Path) -> None:
    """Make the sound and the crafted inputs of a format."""
    made, half = load_format(name), folder.with_name(f"{folder.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    for work in ("for sound", "for crafted"):
        (half / work).mkdir(parents=True)
    sound = made.make_seeds(half / "for sound")
    inputs = {SOUND: sound, CRAFTED: made.make_crafted(half / "for crafted", sound)}
    for kind, named in inputs.items():
        for title, files in named.items():
            write_folder(half / kind / title, files)
    half.rename(folder)


def read_inputs(
    name: str, folder: Path, home: Path, seed: int, first: int, count: int, seconds: float
) -> None:
    """Read `count` inputs from number `first` on, or as many as there is time for."""
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print
    faulthandler.enable(2)
    logging.disable(logging.CRITICAL)
    format = load_format(name)
    corpus = Corpus(format, folder, seed, name)
    reader = _Reader(format, home)
    for files in corpus.sound.values():  # what is loaded late is loaded now
        reader.prepare(files)
        with contextlib.suppress(Exception):
            reader.call()
    sys.path.append(os.fspath(home / "bait"))
    reader.watch = Watch(home, starts_python=format.starts_python, imports=format.imports)
    _limit_memory()
    gc.collect()
    gc.freeze()
    number, begin = first, time.monotonic()  # without the time for imports
    while number < first + count and (number == first or time.monotonic() - begin < seconds):
        stream.write(json.dumps({"make": number}) + "\n")
        title, files = corpus.make(number)
        reader.prepare(files)
        begun = {"begin": number, "name": title, "sound": title in corpus.sound}
        stream.write(json.dumps(begun) + "\n")
        stream.write(json.dumps({"end": number, **reader.read(files)}) + "\n")
        number += 1
    stream.write(json.dumps({"next": number, "known": len(corpus.sound) + len(corpus.crafted)}))
    stream.write("\n")
    stream.flush()
    os._exit(0)  # without waiting for what readers left behind


class _Reader:
    """Calls a format's reader, and measures it."""

    def __init__(self, format: Format, home: Path) -> None:
        self._format, self._home = format, home
        self.watch: Watch | None = None

    def prepare(self, files: Files) -> None:
        """Write the input."""
        for name in ("input", "work", "tmp"):
            shutil.rmtree(self._home / name)
            (self._home / name).mkdir()
        write_folder(self._home / "input", files)

    def call(self) -> Any:
        """Read it."""
        return self._format.read(self._home / "input", self._home / "work")

    def read(self, files: Files) -> dict[str, Any]:
        """How it ended, and what it cost."""
        from jetson_dnn_rt.errors import JetsonDnnRtError

        assert self.watch is not None
        resident_kib, found, text, fault = _reset_peak(), None, "", ""
        children_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        cpu_s, start_s = _read_cpu_s(), time.monotonic()
        self.watch.begin(files)
        try:
            found = self.call()
            end = READ
        except JetsonDnnRtError as error:
            end, text = REFUSED, str(error)
        except BaseException as error:
            end = fault = f"{type(error).__name__} at {_find_place(error)}: {error}"[:500]
        notes = self.watch.end()
        used = {
            "cpu_s": round(_read_cpu_s() - cpu_s, 3),
            "wall_s": round(time.monotonic() - start_s, 3),
            "memory_mib": (_read_status("VmHWM") - resident_kib) >> 10,
        }
        grown_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        if grown_kib > children_kib:
            used["child_mib"] = grown_kib >> 10
        faults = [(ERROR, fault)] if fault else []
        faults += [(REACH, note) for note in notes]
        faults += [(TEXT, f"{what}: {text[:200]!r}") for what in find_text_faults(text)]
        safe = [(kind, _make_safe(one)) for kind, one in faults]
        return {"how": _make_safe(end), "found": found, "faults": safe, **used}


def find_text_faults(text: str) -> Iterator[str]:
    """What is wrong with the text of an error, which goes to logs, terminals and diagnostics."""
    if len(text) > LONGEST_TEXT:
        yield f"an error of {len(text)} characters"
    if any(0xD800 <= ord(c) < 0xE000 for c in text):
        yield "an error that cannot be encoded"
    if any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in text):
        yield "an error with control characters"


def _make_safe(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _find_place(error: BaseException) -> str:
    """The last line of the package, and the one that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "jetson_dnn_rt/" in frame.filename]
    chosen = [*ours[-1:], *frames[-1:]]
    places = [f"{'/'.join(Path(f.filename).parts[-2:])}:{f.lineno}" for f in chosen]
    return " < ".join(dict.fromkeys(reversed(places)))


def _read_cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _read_status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise ValueError(name)


def _reset_peak() -> int:
    """Begin a new peak of resident memory, where the kernel lets us; what is resident, in KiB."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _read_status("VmRSS")


def _limit_memory() -> None:
    """The soft limit alone: a child that has limits of its own sets those."""
    mapped = _read_status("VmSize") << 10
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (mapped + _ADDRESS_SPACE, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def main(job: str, name: str, folder: str, *rest: str) -> None:
    """Do one of the two jobs."""
    if job == "seeds":
        write_seeds(name, Path(folder))
    else:
        home, seed, first, count, seconds = rest
        read_inputs(
            name, Path(folder), Path(home), int(seed), int(first), int(count), float(seconds)
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
