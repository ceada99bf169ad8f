# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Work that is killed at random moments, and what has to be whole afterwards (EDGES, campaign 4).

The functions with a name of their own run in the processes that are killed, see `warm_processes`.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import random
import shutil
import signal
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from clock_ends import SIGNALS, end_one
from library_entries import make_key
from traced_jobs import METADATA, make_record
from warm_processes import Ended, WarmProcesses

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.room import TraceRoom
from jetson_dnn_rt.traces.writer import TraceWriter
from jetson_dnn_rt.variants.library.entry import Entry
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.library.transfer import export_entries, import_entries

POLITE, HARD = signal.SIGTERM, signal.SIGKILL
KEYS = 6
MAIN = "jetson_dnn_rt.cli.main:main"


@dataclass
class Kill:
    """One process that was killed, and what it left."""

    subject: str
    number: signal.Signals
    moment: str
    counts: bool = True
    """False where it had ended before the signal came."""
    faults: list[str] = field(default_factory=list)
    """What is damaged or lost."""
    lost_s: float = 0.0
    """Age of the oldest job that is not in the trace, when the signal came."""
    gone_s: float = 0.0
    """From its end until none of its children was left."""
    back_s: float = 0.0
    """From the signal until the clocks were back."""

    def __str__(self) -> str:
        return f"{self.subject}, {self.number.name} {self.moment}: {'; '.join(self.faults)}"


class Subject:
    """Work of one kind, killed again and again below a folder."""

    name: ClassVar[str]
    modules: ClassVar[tuple[str, ...]] = ()
    signals: ClassVar[tuple[signal.Signals, ...]] = (POLITE, HARD)

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng = folder, rng
        self.processes = WarmProcesses(self.modules)

    def kill(self, number: signal.Signals) -> Kill:
        """Begin, send the signal at a random moment, and look at what is left."""
        raise NotImplementedError

    def close(self) -> list[str]:
        """End; what is wrong with all that is left."""
        self.processes.close()
        return []

    def _kill(
        self, number: signal.Signals, after_s: float, function: str, *arguments: object, **how: Any
    ) -> tuple[Kill, Ended]:
        ended = self.processes.run(function, *arguments, number=number, after_s=after_s, **how)
        since = "its file appeared" if how.get("file") else "its start"
        kill = Kill(self.name, number, f"{after_s:.4f} s after {since}", ended.signalled)
        kill.gone_s = math.inf if ended.orphans else ended.gone_s
        kill.faults += [f"still running: {command}" for command in ended.orphans]
        if ended.timed_out:
            kill.faults.append("it did not end")
        return kill, ended


def _explain(ended: Ended) -> str:
    return f"exit code {ended.code}: {(ended.err or ended.out)[-400:]}"


# -- the library ---------------------------------------------------------------------------------


def make_content(number: int, generation: int) -> dict[str, bytes]:
    """Files of an entry, which follow from its number and generation."""
    draw = random.Random(f"{number}/{generation}")
    size = int(10 ** draw.uniform(0.0, 6.0))
    return {"weights.safetensors": draw.randbytes(size), "notes.txt": draw.randbytes(40)}


def store_entry(library: Library, number: int, generation: int) -> None:
    """Store an entry of this content, in the place of the one with its number."""
    plain = {"backend": "", "backend_version": "", "device": "", "precision": ""}
    key = make_key(graph_hash=f"{number:064x}", kind="weights", **plain)
    facts = {"number": number, "generation": generation}
    entry = library.store(key, make_content(number, generation), facts, model="test:network")
    assert entry.path is not None


def read_library(root: Path) -> tuple[list[Entry], list[str]]:
    """All entries, loaded as a node does; what is wrong with those that the library offers."""
    library, entries, faults = Library(root), [], []
    for listing in library.entries():
        entry = library.load(listing.header.key) if listing.header else None
        if listing.problem or entry is None:
            faults.append(f"damaged: {listing.path.name[:12]}: {listing.problem or 'not loaded'}")
        else:
            entries.append(entry)
    return entries, faults


def check_entries(root: Path) -> tuple[dict[int, int], list[str]]:
    """Generations of the entries of `store_entry` by number, and what is wrong with them."""
    entries, faults = read_library(root)
    found: dict[int, int] = {}
    for entry in entries:
        number, generation = entry.facts["number"], entry.facts["generation"]
        found[number] = generation
        if dict(entry.files) != make_content(number, generation):
            faults.append(f"served with other bytes: entry {number} of generation {generation}")
    return found, faults


def store_for_ever(root: str, seed: int, journal: str) -> None:
    """Store entries, and say of each when it begins and when it is done."""
    draw, library = random.Random(seed), Library(Path(root))
    said = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        number, generation = draw.randrange(KEYS), draw.getrandbits(40)
        os.write(said, b"begins %d %d\n" % (number, generation))
        store_entry(library, number, generation)
        os.write(said, b"done %d %d\n" % (number, generation))


class StoreKills(Subject):
    """Entries are stored in the place of others: the old or the new one has to be there."""

    name = "store"
    modules = ("kill_subjects",)

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self._root, self._journal = folder / "library", folder / "journal"
        self._known: dict[int, int] = {}

    def kill(self, number: signal.Signals) -> Kill:
        self._journal.unlink(missing_ok=True)
        given = os.fspath(self._root), self.rng.getrandbits(30), os.fspath(self._journal)
        after_s = self.rng.uniform(0.0, 0.15)
        kill, ended = self._kill(number, after_s, "kill_subjects:store_for_ever", *given)
        if not ended.signalled:
            kill.faults.append(_explain(ended))
        expected = {one: {generation} for one, generation in self._known.items()}
        optional = set(range(KEYS)) - set(expected)
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        for what, one, generation in map(str.split, lines):
            if what == "done":
                expected[int(one)] = {int(generation)}
                optional.discard(int(one))
            else:
                expected.setdefault(int(one), set()).add(int(generation))
        self._known, faults = check_entries(self._root)
        kill.faults += faults
        for one, generations in expected.items():
            if one not in self._known and one not in optional:
                kill.faults.append(f"lost: entry {one}, which had been stored")
            elif one in self._known and self._known[one] not in generations:
                kill.faults.append(f"entry {one} is of an older generation")
        return kill

    def close(self) -> list[str]:
        """What the dead left half-done is removed when it is a day old."""
        super().close()
        left = self._root / ".tmp"
        for path in left.iterdir():
            os.utime(path, (0, 0))
        Library(self._root).prune(unused_days=1e6)
        faults = [f"never removed: {path.name}" for path in left.iterdir()]
        return faults + check_entries(self._root)[1]


def transfer_for_ever(root: str, exported: str, *files: str) -> int:
    """Import files in turns, each time in the place of all entries, and export what is there."""
    from jetson_dnn_rt.cli.main import main

    cache = ("--engine-cache", root)
    while True:
        for file in files:
            code = main(["library", "import", file, *cache, "--trust", "--replace"])
            code = code or main(["library", "export", exported, *cache])
            if code:
                return code


class ImportKills(Subject):
    """`library import` in the place of all entries, `library export` in the place of a file."""

    name = "import"
    modules = ("kill_subjects", "jetson_dnn_rt.cli.library", "jetson_dnn_rt.cli.main")

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self._files = []
        for generation in range(2):
            library = Library(folder / f"library{generation}")
            for number in range(KEYS):
                store_entry(library, number, generation)
            self._files.append(folder / f"{generation}.tar")
            export_entries(library, self._files[-1], lambda listing: True)
        self._root, self._exported = folder / "imported", folder / "exported.tar"

    def kill(self, number: signal.Signals) -> Kill:
        given = map(os.fspath, (self._root, self._exported, *self._files))
        after_s = self.rng.uniform(0.0, 0.25)
        kill, ended = self._kill(number, after_s, "kill_subjects:transfer_for_ever", *given)
        if not ended.signalled:
            kill.faults.append(_explain(ended))
        found, faults = check_entries(self._root)
        kill.faults += faults
        if self._exported.exists():  # so all had been imported
            if missing := set(range(KEYS)) - set(found):
                kill.faults.append(f"lost: entries {sorted(missing)}, which had been imported")
            kill.faults += self._check_export()
        return kill

    def _check_export(self) -> list[str]:
        scratch = self.folder / "scratch"
        try:
            taken = import_entries(Library(scratch), self._exported)
        except ConfigurationError as error:
            return [f"damaged: {error}"]
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        left_out = [one.reason for one in taken if one.reason]
        return [f"exported file: {left_out}"] if left_out or len(taken) > KEYS else []


def build_for_ever(root: str, params: str) -> int:
    """Build and measure all variants of a file again and again."""
    from jetson_dnn_rt.cli.main import main

    while True:
        code = main(["build", *_build_arguments(root, params), "--again"])
        if code:
            return code


def _build_arguments(root: str, params: str) -> tuple[str, ...]:
    return ("--params", params, "--engine-cache", root, "--runs", "2", "--json")


class BuildKills(Subject):
    """`build` with two back ends, from an empty library and again."""

    name = "build"
    # Not the back ends: they have threads, which do not survive a fork.
    modules = ("kill_subjects", "jetson_dnn_rt.cli.build", "jetson_dnn_rt.cli.main", "cv2")
    variants = "[full@onnxruntime-fp32, full@openvino-fp32]"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        from networks import make_onnx
        from photos import write_photos

        self._root, self._params = os.fspath(folder / "library"), os.fspath(folder / "tasks.yaml")
        write_photos(folder / "photos", 4)
        network = make_onnx(folder / "network.onnx")
        Path(self._params).write_text(
            "perception: {ros__parameters: {tasks: [front]}}\n"
            f"/**/front: {{ros__parameters: {{model: 'onnx:{network}', kind: segmentation, "
            f"build_frames: 'images:{folder / 'photos'}', threads: 1, "
            f"variants: {self.variants}}}}}\n"
        )
        begin_s = time.monotonic()
        self._build()
        self._span_s = 1.2 * (time.monotonic() - begin_s)

    def kill(self, number: signal.Signals) -> Kill:
        if self.rng.random() < 0.4:
            shutil.rmtree(self._root, ignore_errors=True)
        after_s = self.rng.uniform(0.0, self._span_s)
        given = self._root, self._params
        kill, ended = self._kill(number, after_s, "kill_subjects:build_for_ever", *given)
        if not ended.signalled:
            kill.faults.append(_explain(ended))
        kill.faults += read_library(Path(self._root))[1]
        return kill

    def close(self) -> list[str]:
        """The next build goes on from what is there."""
        faults = self._build() + read_library(Path(self._root))[1]
        return faults + super().close()

    def _build(self) -> list[str]:
        ended = self.processes.run(MAIN, ["build", *_build_arguments(self._root, self._params)])
        return [] if ended.code == 0 else [f"build afterwards: {_explain(ended)}"]


# -- traces --------------------------------------------------------------------------------------

MOST_JOBS = 1 << 19
_RATES_HZ = (30.0, 300.0, 3000.0, 0.0)


def trace_for_ever(folder: str, rate_hz: float, times: str) -> None:
    """Trace jobs, and note when each was given to the writer, as nanoseconds in a file.

    Without a rate as many as the disk takes, within a limit at which the oldest make room.
    """
    with open(times, "r+b") as file:
        noted = mmap.mmap(file.fileno(), 8 * MOST_JOBS)
    room = TraceRoom(0 if rate_hz else 1)
    writer = TraceWriter(Path(folder), METADATA, room=room, part_bytes=60_000)
    begin_s = time.monotonic()
    for sequence in range(MOST_JOBS):
        writer.write(make_record(sequence), wait=not rate_hz)
        struct.pack_into("q", noted, 8 * sequence, time.monotonic_ns())
        if rate_hz:
            time.sleep(max(0.0, begin_s + sequence / rate_hz - time.monotonic()))


def read_column(folder: Path, name: str) -> list[int]:
    """A column of a trace, empty where nothing can be read; ValueError when it is damaged."""
    try:
        trace = open_trace(folder)
    except ValueError:
        return []
    batches = trace.batches([name])
    return [one for batch in batches for one in batch.column(0).to_pylist()]


class TraceKills(Subject):
    """Job traces, while parts are written, turned into Parquet, and make room for new ones."""

    name = "trace"
    modules = ("kill_subjects", "jetson_dnn_rt.traces.writer:load_libraries")

    def kill(self, number: signal.Signals) -> Kill:
        folder, times = self.folder / "trace", self.folder / "times"
        shutil.rmtree(folder, ignore_errors=True)
        times.unlink(missing_ok=True)
        with times.open("wb") as file:
            file.truncate(8 * MOST_JOBS)
        rate_hz = self.rng.choice(_RATES_HZ)
        longer = self.rng.random() < 0.1
        after_s = self.rng.uniform(1.0, 3.0) if longer else self.rng.uniform(0.0, 0.4)
        given = os.fspath(folder), rate_hz, os.fspath(times)
        kill, ended = self._kill(number, after_s, "kill_subjects:trace_for_ever", *given)
        kill.moment += f", {rate_hz:g} Hz"
        if not ended.signalled:
            kill.faults.append(_explain(ended))
        noted = [one for (one,) in struct.iter_unpack("q", times.read_bytes()) if one]
        try:
            found = read_column(folder, "sequence")
        except ValueError as error:
            kill.faults.append(f"damaged: {error}")
            return kill
        if found != list(range(found[0], found[-1] + 1) if found else []):
            kill.faults.append("jobs are missing in between, or twice in the trace")
        if found and found[0] and rate_hz:
            kill.faults.append(f"the first {found[0]} jobs are missing")
        first_missing = found[-1] + 1 if found else 0
        if first_missing < len(noted):
            kill.lost_s = max(0.0, (ended.signal_ns - noted[first_missing]) / 1e9)
        return kill


# -- a whole run ---------------------------------------------------------------------------------

_RUN = (
    *("run", "--source", "synthetic:128x96", "--rate", "100", "--detector", "null:1"),
    *("--segmenter", "none", "--set", "detector.warmup_runs=2", "--video", "none", "--json"),
)


class RunKills(Subject):
    """The composed graph: signals end it in order, `kill -9` costs the last second."""

    name = "run"
    # Not rclpy: a fork of a process that has loaded Fast DDS crashes at its end.
    modules = ("kill_subjects", "jetson_dnn_rt.cli.main")

    def kill(self, number: signal.Signals) -> Kill:
        output = self.folder / "output"
        shutil.rmtree(output, ignore_errors=True)
        file = output / "trace" / "jobs-0000.arrows"
        early = self.rng.random() < 0.2
        after_s = self.rng.uniform(0.0, 0.5) if early else self.rng.uniform(0.0, 2.0)
        how: Mapping[str, Any] = {} if early else {"file": file}
        arguments = [*_RUN, "--output", os.fspath(output)]
        kill, ended = self._kill(number, after_s, MAIN, arguments, **how)
        jobs = self._read(kill, output)
        if "Traceback" in ended.err:
            kill.faults.append(f"a traceback: {ended.err[-600:]}")
        if number is HARD and not early and ended.signalled:
            last_ns = max(jobs, default=ended.began_ns)
            kill.lost_s = (ended.signal_ns - last_ns) / 1e9
        if number is POLITE and ended.code != (0 if not early else ended.code):
            kill.faults.append(_explain(ended))
        if number is POLITE and ended.code == 0 and ended.out.strip():
            (task,) = json.loads(ended.out.splitlines()[-1])["tasks"].values()
            if task["released"] != len(jobs):
                kill.faults.append(f"{task['released']} frames, {len(jobs)} jobs in the trace")
        return kill

    def _read(self, kill: Kill, output: Path) -> list[int]:
        try:
            return read_column(output / "trace", "completion_ns")
        except ValueError as error:
            kill.faults.append(f"damaged: {error}")
            return []


# -- clocks --------------------------------------------------------------------------------------


class ClockKills(Subject):
    """Clocks of a made-up board; a fifth of the processes are nodes, half of them busy."""

    name = "clocks"
    signals = SIGNALS

    def kill(self, number: signal.Signals) -> Kill:
        ending = end_one(number, self.rng, is_node=self.rng.random() < 0.2)
        kill = Kill(self.name, number, f"{ending.kind}, {ending.moment}")
        kill.back_s, kill.gone_s = ending.back_s, ending.gone_s
        if not ending.is_restored:
            kill.faults.append(f"clocks are not back: {ending.errors[-400:]}")
        return kill


SUBJECTS: dict[str, Callable[[Path, random.Random], Subject]] = {
    one.name: one
    for one in (StoreKills, ImportKills, BuildKills, TraceKills, RunKills, ClockKills)
}
