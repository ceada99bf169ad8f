# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Processes that change clocks of a made-up board and are ended at random moments (EDGES 6)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from cohort_tables import make_clocks, write_clock_tables
from sysfs_trees import TREES, write_tree

from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.files import WRITABLE
from jetson_dnn_rt.safety.children import ROOT

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
# From the signal until the clocks are back, from the end of the process until nothing is left.
LIMIT_S = 2.0
# A process or a change of clocks that takes longer is reported as it is then.
GIVE_UP_S = 20.0

PLAIN = """
import random, sys
from pathlib import Path
from jetson_dnn_rt.platforms.detect import detect

numbers = random.Random(int(sys.argv[2]))
while True:
    with detect(Path(sys.argv[1]), allow_writes=True) as platform:
        assert platform.writable, platform.reason
        for _ in range(numbers.randrange(1, 400)):
            platform.apply(numbers.randrange(len(platform.space)))
            print("set", flush=True)
            if numbers.random() < 0.05:
                platform.restore()
"""
"""Opens, writes, restores and closes without a pause; signals do what Python makes of them."""

NODE = """
import random, sys, time
from pathlib import Path
from jetson_dnn_rt.coordinator import basis
from jetson_dnn_rt.nodes.process.running import run_node
from jetson_dnn_rt.platforms.detect import detect

root, tables, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
seed, busy_s = int(sys.argv[4]), float(sys.argv[5])
numbers = random.Random(seed)
basis.detect = lambda **options: detect(root, **options)

def make(context, args):
    if kind == "perception":
        from jetson_dnn_rt.nodes.perception import PerceptionNode

        node = PerceptionNode(context=context, arguments=args)
        coordinator = node.coordinator
    else:
        from jetson_dnn_rt.nodes.coordinator.coordinator_node import CoordinatorNode

        node = coordinator = CoordinatorNode(context=context)

    def change():
        clocks = coordinator.clocks
        if clocks is None:
            return
        clocks.request(numbers.randrange(2) if clocks.position else 1, time.monotonic_ns())
        if clocks.writes:
            print("set", flush=True)
            time.sleep(busy_s)

    node.create_timer(0.01, change)
    return node

values = {
    f"{kind}:autostart": True, "coordinator:allow_clock_writes": True,
    "coordinator:tables": f"['{tables}']",
}
if kind == "perception":
    values |= {
        "perception:tasks": "[detector]", "detector:model": "null:1",
        "camera:source": "synthetic:64x64",
    }
arguments = [part for name, value in values.items() for part in ("-p", f"{name}:={value}")]
run_node(make, ["--ros-args", *arguments])
"""
"""A node, "coordinator" or the composed "perception", with tables of the board's clocks.

A callback on its ROS thread asks for other clocks and is busy for so many seconds at a time.
"""

KINDS = ("coordinator", "perception")


class Board:
    """The files of a TX2 below `folder`, and what was in them."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "board"
        write_tree(self.root, TREES["tx2"])
        space = detect(self.root, switch_cores=False).space
        self.tables = write_clock_tables(folder, make_clocks(space))
        self._paths = [
            path
            for path in self.root.rglob("*")
            if not path.is_symlink()
            and any(rule.fullmatch(path.relative_to(self.root).as_posix()) for rule in WRITABLE)
        ]
        self.before = self.read()

    def read(self) -> dict[Path, str]:
        """Everything that may be written, now."""
        return {path: path.read_text().strip() for path in self._paths}

    @property
    def is_restored(self) -> bool:
        """Whether all clocks are as they were at first."""
        return self.read() == self.before

    def find_processes(self, module: str = "") -> list[int]:
        """Numbers of the processes that work on this board: its name is in their command."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(self.root) in command and module.encode() in command:
                found.append(int(folder.name))
        return found

    def find_guardian(self) -> int:
        """The number of the one guardian that there is."""
        (number,) = self.find_processes("jetson_dnn_rt.platforms.guardian")
        return number


class Writer:
    """A process that changes the clocks of a board: Python source, run with the board's root."""

    def __init__(self, board: Board, program: str, *arguments: object) -> None:
        self.board = board
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
            # A shell lets what it starts in the background ignore it, and children inherit that.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in `close`
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", program, os.fspath(board.root), *map(str, arguments)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def wait_for(self, word: str) -> None:
        """Return when it has said this."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == word:
                return
        raise AssertionError(self.errors)

    @property
    def errors(self) -> str:
        """What it and its guardian said on stderr up to now."""
        self._errors.seek(0)
        return self._errors.read()

    def end(self, number: signal.Signals) -> tuple[float, float]:
        """Send a signal and wait until the clocks are back and no process is left.

        Returns the seconds from the signal to the last look at which some clock was changed, and
        from the end of the process to the last look at which its guardian was still there.
        """
        begin_s = time.monotonic()
        self.process.send_signal(number)
        back_s = gone_s = 0.0
        ended_s: float | None = None
        while (now_s := time.monotonic()) < begin_s + GIVE_UP_S:
            if not self.board.is_restored:
                back_s = now_s - begin_s
            if ended_s is None and self.process.poll() is not None:
                ended_s = now_s
            if ended_s is not None:
                if self.board.find_processes():
                    gone_s = now_s - ended_s
                elif self.board.is_restored:
                    return back_s, gone_s
            if self.process.stdout is not None and ended_s is None:
                _drain(self.process.stdout.fileno())
            time.sleep(0.002)
        return back_s, gone_s if ended_s is not None else GIVE_UP_S

    def end_in_time(self, number: signal.Signals) -> None:
        """Send a signal: the clocks are back, and the guardian gone, within the limit."""
        assert max(self.end(number)) <= LIMIT_S
        assert self.board.is_restored

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _drain(descriptor: int) -> None:
    """A writer must not wait for somebody who reads what it says."""
    os.set_blocking(descriptor, False)
    try:
        while os.read(descriptor, 1 << 16):
            pass
    except BlockingIOError:
        pass


@dataclass(frozen=True)
class Ending:
    """One end of one process, and what came of it."""

    kind: str
    moment: str
    back_s: float
    gone_s: float
    is_restored: bool
    errors: str


def end_one(number: signal.Signals, draw: random.Random, *, is_node: bool) -> Ending:
    """End a process that changes clocks, or a node, at a random moment.

    Half of the nodes keep their ROS thread busy for 5 s.
    """
    with tempfile.TemporaryDirectory() as folder:
        board = Board(Path(folder))
        if is_node:
            busy_s = draw.choice([0.0, 5.0])
            node = draw.choice(KINDS)
            kind = f"{node}, ROS thread busy for {busy_s:g} s"
            writer = Writer(board, NODE, board.tables, node, draw.getrandbits(30), busy_s)
        else:
            kind, writer = "platform", Writer(board, PLAIN, draw.getrandbits(30))
        with writer:
            # From its first instant on, or while it writes.
            early = draw.random() < 0.25
            delay_s = draw.uniform(0.0, 0.6)
            if not early:
                writer.wait_for("set")
            time.sleep(delay_s)
            since = "its start" if early else "its first write"
            back_s, gone_s = writer.end(number)
            moment = f"{delay_s:.3f} s after {since}"
            return Ending(kind, moment, back_s, gone_s, board.is_restored, writer.errors)
