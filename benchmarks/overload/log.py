"""What the processes of `overload` and `overhead` tell each other.

A child gets its specification as JSON on its command line, prints ``ready`` on stdout when it
takes frames, and at SIGTERM writes its log and ends. Times are in the system clock, in which
frames are stamped too: a header carries no steady time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.tasks import Work

NODES = "benchmarks.overload.nodes"
"""The module that is run; its first argument is one of ``camera listener naive ours``."""


@dataclass(frozen=True)
class ConsumerSpec:
    """The specification of a consumer of frames; one without deadlines ignores them.

    `workers` are stages that this package runs side by side; the usual node has a thread for every
    callback.
    """

    tasks: tuple[TaskConfig, ...]
    topic: str
    width: int
    height: int
    threads: int
    deadline_ms: float
    output: Path
    workers: int = 1

    def to_json(self) -> str:
        """For a command line."""
        return json.dumps({**asdict(self), "output": str(self.output)})

    @staticmethod
    def from_json(text: str) -> ConsumerSpec:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        tasks = []
        for task in fields.pop("tasks"):
            values: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in task.items()
            }
            tasks.append(TaskConfig(**values))
        output = Path(fields.pop("output"))
        return ConsumerSpec(**fields, tasks=tuple(tasks), output=output)


@dataclass(frozen=True)
class FrameRow:
    """What became of one frame in one task.

    `start_ns` and `published_ns` (when `publish` returned) are None where it did not come to that.
    `admitted` says that work began because the frame was expected to make its deadline; the usual
    node expects that of every frame that it takes. `outcome` is in the side's own words.
    """

    task: str
    stamp_ns: int
    start_ns: int | None
    published_ns: int | None
    admitted: bool
    outcome: str


class FrameLog:
    """Rows of a consumer, kept in memory until the end.

    `on_first` is called with the first row: only then frames are known to arrive, since discovery
    takes its time.
    """

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        self._on_first = on_first
        self._lock = threading.Lock()
        self._rows: list[FrameRow] = []

    def add(self, row: FrameRow) -> None:
        """Note what became of one frame."""
        with self._lock:
            self._rows.append(row)
            first = len(self._rows) == 1
        if first:
            self._on_first()

    def write(self, path: Path) -> None:
        """Write all rows as JSON."""
        with self._lock:
            path.write_text(json.dumps([asdict(row) for row in self._rows]), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> list[FrameRow]:
        """Read what `write` wrote."""
        return [FrameRow(**row) for row in json.loads(path.read_text(encoding="utf-8"))]


def read_stamps_ns(path: Path) -> list[int]:
    """Stamps of the frames that were sent; a last line cut short by the end is left out."""
    lines = path.read_text(encoding="ascii").split("\n")
    return [int(line) for line in lines[:-1]]


def published_ns(work: Work) -> int:
    """When the result of a job had been published, on the steady clock; for observers."""
    return cast(int, work.scratch["published_ns"])
