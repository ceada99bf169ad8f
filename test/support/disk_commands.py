# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Every command of ``jetson-dnn-rt`` on a disk with a fault (EDGES, campaign 5).

Each command is run on a sound disk first. With a fault it either writes the same files, whole, or
ends with one line that says what is wrong; there is no traceback.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kill_subjects import read_library
from small_disk import PAGE, fill, make_read_only, small_disk
from warm_processes import Ended, WarmProcesses
from whole_files import find_damage

MAIN = "jetson_dnn_rt.cli.main:main"
DISK_BYTES = 48 << 20
LIMIT_S = 300.0

MODULES = (
    *("disk_commands", "jetson_dnn_rt.cli.library", "rosbags.rosbag2", "pandas", "cv2"),
    *("jetson_dnn_rt.traces.writer:load_libraries", "matplotlib.figure", "scipy.stats"),
)
"""What many commands import anyway. Not ROS or a back end, whose threads do not survive a fork."""

COMMANDS = {
    "run": "--source synthetic:128x96 --rate 50 --detector builtin:detector --segmenter none "
    "--deadline detector=5000 --set detector.warmup_runs=2 --frames 8 "
    "--results {out}/found.jsonl --output {out}/run --json",
    "build": "--params {in}/build.yaml --runs 2 --engine-cache {disk}/built --json",
    "library list": "--engine-cache {disk}/library --json",
    "library prune": "--engine-cache {disk}/library --json",
    "library export": "{out}/all.tar --engine-cache {disk}/library --json",
    "library import": "{in}/all.tar --trust --engine-cache {disk}/imported --json",
    "inspect": "builtin:detector --frames images:{in}/frames --count 2 --output {out}/sheets "
    "--json",
    "doctor": "--json",
    "bench": "overload",
    "compress": "--model builtin:detector --ranks macs:0.6 --frames synthetic:2 --frames-limit 4 "
    "--recover-steps 1 --keep-slower --least-agreement 0 --backend torch "
    "--engine-cache {disk}/compressed --output {out}/compressed --json",
    "profile": "--model camera=null:0.1 --runs 4 --frames images:{in}/frames --operators 0 "
    "--output {out}/profile --json",
    "profile, tables": "--model camera=null:0.1 --runs 4 --frames images:{in}/frames "
    "--output {out}/tables.json --json",
    "evaluate": "{in}/drive --params {in}/tasks.yaml --output {out}/replay --json",
    "evaluate, realtime": "{in}/drive --params {in}/tasks.yaml --mode realtime --rate 200 "
    "--output {out}/live --json",
    "evaluate, simulated": "{in}/live --mode simulated --output {out}/simulated --json",
    "bag": "{in}/frames --output {out}/bag --json",
    "bag, mcap": "{in}/frames --format mcap --jpeg --output {out}/bag --json",
    "agree": "{in}/a.jsonl {in}/b.jsonl --output {out}/pictures --json",
    "wcet": "{in}/first --exceedance 1e-2 --json",
    "compare": "{in}/first {in}/second --json",
    "report": "{in}/timing --output {out}/report --json",
    "export, csv": "{in}/first --output {out}/jobs.csv --json",
    "export, xlsx": "{in}/first --output {out}/jobs.xlsx --json",
    "export, perfetto": "{in}/first --output {out}/jobs.json.gz --json",
    "export, speedscope": "{in}/first --format speedscope --output {out}/jobs.json --json",
    "simulate": "--scenario tx2_cohort4 --policy static --frames 40 --trace {out}/trace --json",
    "simulate, plots": "--scenario greedy_imbalance --policies static,horizon --frames 30 "
    "--plot {out}/plots --json",
    "top": "--seconds 0.5 --json",
    # Not one stage of several: where a network is cut depends on measured times.
    "export-c": "--model builtin:detector --stages 1 --engine-cache none --name whole "
    "--output {out}/sources --json",
}
"""Arguments of each command by its words, which a comma separates from what is special here."""

NEEDED = {"export-c": "tvm", "run": "rclpy", "top": "rclpy", "export, xlsx": "xlsxwriter"}


def words_of(case: str) -> list[str]:
    """Command and action of a case."""
    return case.partition(",")[0].split()


def list_words() -> set[str]:
    """Every command of the parser, with each of its actions."""
    from jetson_dnn_rt.cli.main import build_parser

    return set(_walk(build_parser()))


def _walk(parser: argparse.ArgumentParser, before: str = "") -> list[str]:
    inner = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    found = [before] if before and not inner else []
    for action in inner:
        for name, one in action.choices.items():
            found += _walk(one, f"{before} {name}".strip())
    return found


# -- what the commands read ----------------------------------------------------------------------


def prepare_inputs(place: str) -> int:
    """Write all that the commands read into a folder."""
    import json

    import cv2
    import numpy as np
    from bags import make_image, write_bag
    from kill_subjects import store_entry
    from library_entries import store
    from timing_traces import make_jobs, write_trace_of
    from traced_jobs import make_record, write_parquet_trace

    from jetson_dnn_rt.cli.main import main
    from jetson_dnn_rt.variants.library.library import Library

    folder = Path(place)
    (folder / "frames").mkdir()
    for index in range(4):
        picture = np.full((48, 64, 3), 60 * index, np.uint8)
        cv2.imwrite(str(folder / "frames" / f"{index}.png"), picture)
    write_bag(folder / "drive", [make_image(number) for number in range(6)])
    for seed, name in enumerate(("first", "second")):
        drawn = np.random.default_rng(seed).standard_exponential(1500)
        times = ((2_000_000, int(1e7 + 1e6 * one)) for one in drawn)
        jobs = [make_record(index, stages_ns=one) for index, one in enumerate(times)]
        write_parquet_trace(folder / name, jobs)
    write_trace_of(folder / "timing", make_jobs(400))
    for name, left in (("a", 10), ("b", 40)):
        box = {"class_id": "2", "label": "car", "score": 0.9, "xyxy": [left, 10, left + 40, 50]}
        line = {"frame": 0, "task": "detector", "outcome": "met", "boxes": [box]}
        line |= {"stamp_ns": 0, "width": 128, "height": 96}
        (folder / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    task = "{model: 'null:0.1', deadline_ms: 5000.0, engine_cache: none, warmup_runs: 3}"
    (folder / "tasks.yaml").write_text(
        "perception: {ros__parameters: {tasks: [detector], realtime: {gc_freeze: false}}}\n"
        f"/**/detector: {{ros__parameters: {task}}}\n"
    )
    (folder / "build.yaml").write_text(
        "perception: {ros__parameters: {tasks: [detector]}}\n"
        "/**/detector: {ros__parameters: {model: 'builtin:detector', threads: 1, "
        "variants: [full@onnxruntime-fp32, full@openvino-fp32], "
        f"build_frames: 'images:{folder}/frames'}}}}\n"
    )
    library = Library(folder / "library")
    for number in range(3):
        store_entry(library, number, number)
    store(library, kind="tuning", graph_hash="e" * 64)  # of a device that is not here
    cache, live = ("--engine-cache", f"{folder}/library"), f"{folder}/live"
    tasks = ("--params", f"{folder}/tasks.yaml", "--mode", "realtime", "--rate", "200")
    return main(["library", "export", f"{folder}/all.tar", *cache]) or main(
        ["evaluate", f"{folder}/drive", *tasks, "--output", live]
    )


# -- faults --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """What is wrong with the disk: done to it, or set for the process."""

    name: str
    apply: Callable[[Path, random.Random], object] = lambda disk, draw: None
    failing: str = ""
    """For `failing_disk.c`: which calls fail, with which error, after how many bytes."""
    is_input: bool = False
    """Whether the inputs are on the failing disk, not the outputs."""
    out: str = ""
    """A file in the place of stdout."""
    no_user: bool = False
    environment: Mapping[str, str | None] = field(default_factory=dict)
    is_fresh: bool = False
    """Whether its imports are part of it."""


_NO_HOME: dict[str, str | None] = {"HOME": None, "XDG_CACHE_HOME": None}

FAULTS = (
    Fault("full", lambda disk, draw: fill(disk)),
    Fault("nearly full", lambda disk, draw: fill(disk, PAGE * draw.randrange(1, 60))),
    Fault("read-only", lambda disk, draw: make_read_only(disk)),
    Fault("EIO in write", failing="write 5 0"),
    Fault("EIO in a later write", failing="write 5 {later}"),
    Fault("ENOSPC in a later write", failing="write 28 {later}"),
    Fault("EIO in fsync", failing="sync 5 0"),
    Fault("EIO in read", failing="read 5 0", is_input=True),
    Fault("stdout on a full disk", out="/dev/full"),
    Fault("no home, unknown user", no_user=True, environment=_NO_HOME, is_fresh=True),
    Fault(
        "home cannot be written",
        environment={"HOME": "/proc/nobody", "XDG_CACHE_HOME": None},
        is_fresh=True,
    ),
)
# `apply` needs to mount; `no_user`, to be root.


@dataclass
class Outcome:
    """A command on a disk with a fault."""

    case: str
    fault: str
    ended: Ended
    given: set[str]
    files: set[str]
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.case}, {self.fault}: {'; '.join(self.faults)}"


class Commands:
    """Runs commands on disks with faults."""

    def __init__(self, folder: Path, shim: Path | None) -> None:
        self._folder = folder
        self._inputs = folder / "inputs"
        self._inputs.mkdir()
        self._sound: dict[str, tuple[Path, Outcome]] = {}
        self._fresh = WarmProcesses(preload=shim)
        self._warm = WarmProcesses(MODULES, preload=shim)
        prepared = self._fresh.run(
            "disk_commands:prepare_inputs", os.fspath(self._inputs), limit_s=LIMIT_S
        )
        assert prepared.code == 0, prepared.err

    def run(self, case: str, fault: Fault, draw: random.Random) -> Outcome:
        """Run a command, on a sound disk before if that has not been done, and judge it."""
        if case not in self._sound:
            kept = self._folder / f"sound-{case}"
            outcome = self._run(case, Fault("none"), draw, kept)
            self._sound[case] = kept, outcome
        kept, sound = self._sound[case]
        return self._run(case, fault, draw, kept, sound)

    def close(self) -> None:
        """End the parents of the processes."""
        self._warm.close()
        self._fresh.close()

    def _run(
        self,
        case: str,
        fault: Fault,
        draw: random.Random,
        kept: Path,
        sound: Outcome | None = None,
    ) -> Outcome:
        with small_disk(self._folder / "disk", DISK_BYTES) as disk:
            shutil.copytree(self._inputs / "library", disk / "library")
            for name in ("home", "tmp", "out"):
                (disk / name).mkdir()
            given = _list_files(disk)
            fault.apply(disk, draw)
            places = {"in": self._inputs, "out": disk / "out", "disk": disk}
            words = shlex.split(COMMANDS[case].format(**places))
            environment: dict[str, str | None] = {
                "HOME": f"{disk}/home", "XDG_CACHE_HOME": f"{disk}/cache",
                "TMPDIR": f"{disk}/tmp", "ROS_LOG_DIR": None, "MPLCONFIGDIR": None,
            }  # fmt: skip
            if fault.failing:
                failing = fault.failing.format(later=int(10 ** draw.uniform(2.0, 5.0)))
                below = self._inputs if fault.is_input else disk
                environment["FAILING_DISK"] = f"{failing} {below}"
            processes = self._fresh if fault.is_fresh else self._warm
            ended = processes.run(
                MAIN,
                [*words_of(case), *words],
                environment={**environment, **fault.environment},
                folder=disk / "out",
                out=Path(fault.out) if fault.out else None,
                unknown_user=fault.no_user,
                limit_s=LIMIT_S,
            )
            outcome = Outcome(case, fault.name, ended, given, _list_files(disk))
            if sound is None:
                shutil.copytree(disk, kept, dirs_exist_ok=True)
            judge(outcome, fault, disk, kept, sound or outcome)
            return outcome


_HASH = re.compile(r"[0-9a-f]{64}")


def _list_files(disk: Path) -> set[str]:
    """Files that a command wrote, but for what is not asked for: caches, logs, configurations.

    A star stands for the digest of a library's entry.
    """
    found = {file.relative_to(disk) for file in disk.rglob("*") if file.is_file()}
    aside = ("home", "tmp", "cache", "filler")
    return {_HASH.sub("*", os.fspath(file)) for file in found if file.parts[0] not in aside}


ERROR = re.compile(r"^jetson-dnn-rt [\w-]+: error: .+", re.MULTILINE)
REASONS = (
    "No space left", "Read-only file system", "Input/output error", "disk", "home folder",
    "Not a directory", "No such file",
)  # fmt: skip


def judge(outcome: Outcome, fault: Fault, disk: Path, kept: Path, sound: Outcome) -> None:
    """Add what is wrong to an outcome."""
    ended, add = outcome.ended, outcome.faults.append
    if ended.timed_out or ended.code < 0:
        add(f"ended by a signal or not at all: {ended.code}: {ended.err[-300:]}")
    for word in ("Traceback", "Exception ignored", "Fatal Python error", "terminate called"):
        if word in ended.err:
            add(f"{word} on stderr: {ended.err[-700:]}")
    if ended.orphans:
        add(f"left running: {ended.orphans}")
    if ended.code == sound.ended.code:
        outcome.faults += _compare(outcome, fault, disk, kept, sound)
        return
    lines = ERROR.findall(ended.err)
    if len(lines) != 1 or "None" in lines[0] or not any(one in lines[0] for one in REASONS):
        add(f"exit code {ended.code} without one clear line of error: {ended.err[-500:]}")
    home = fault.no_user or "HOME" in fault.environment
    if sound.files == sound.given and not (fault.out or fault.is_input or home):
        add(f"writes nothing, and fails all the same: {ended.err[-300:]}")


def _compare(
    outcome: Outcome, fault: Fault, disk: Path, kept: Path, sound: Outcome
) -> Iterator[str]:
    """What is missing although the exit code is as on a sound disk."""
    code = f"exit code {outcome.ended.code}, and"
    if fault.out and sound.ended.out.strip() and not ERROR.search(outcome.ended.err):
        yield f"{code} nothing could be printed"
    if missing := sorted(sound.files - outcome.files):
        yield f"{code} these are missing: {missing[:5]}"
    if left := sorted(outcome.files - sound.files):
        yield f"{code} these should not be there: {left[:5]}"
    for name in sorted(sound.files & outcome.files):
        if "*" not in name and (damage := find_damage(disk / name, kept / name)):
            yield f"{code} {name} is damaged: {damage}"
    for library in {name.partition("/")[0] for name in outcome.files if "*" in name}:
        yield from read_library(disk / library)[1]
