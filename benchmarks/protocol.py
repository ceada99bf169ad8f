"""What the processes of a benchmark say to each other.

A child gets its specification as JSON on its command line, prints ``ready`` on stdout when it
takes frames, and at SIGTERM writes its log and ends. Times are in the system clock, in which
frames are stamped too: a header carries no steady time.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import cast

from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.safety.children import child_environment
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running.pipeline import Pipeline
from jetson_dnn_rt.variants.running.variant_set import build_pipeline, choose_default
from jetson_dnn_rt.variants.spec import VariantSpec

READY = "ready"
START_LIMIT_S = 180.0
STOP_LIMIT_S = 15.0


class BenchmarkError(JetsonDnnRtError):
    """A process of a benchmark failed, so there is no figure."""


@dataclass(frozen=True)
class TaskSpec:
    """A model under comparison; `variant` empty = the package's default."""

    name: str
    kind: str
    model: str
    variant: str = ""
    weights: str = "none"
    input_size: tuple[int, int] | None = None

    def load(self) -> Model:
        """Load the model."""
        return load_model(
            self.model,
            kind=self.kind,  # type: ignore[arg-type]  # checked by load_model
            weights=self.weights,
            input_size=self.input_size,
        )

    def build_pipeline(self, threads: int) -> Pipeline:
        """Load the model and make its stages."""
        model = self.load()
        spec = VariantSpec.parse(self.variant) if self.variant else choose_default(model)
        return build_pipeline(model, spec, DecoderSettings(), threads=threads)


@dataclass(frozen=True)
class ConsumerSpec:
    """What a consumer of frames is told.

    Attributes
    ----------
    tasks : tuple of TaskSpec
        The models.
    topic : str
        Of the images.
    width, height : int
        Size of the images in pixels.
    threads : int
        Threads of one inference.
    deadline_ms : float
        Relative deadline of every task; a consumer without deadlines passes over it.
    output : Path
        Where the log goes.
    workers : int
        Stages that this package runs side by side; the usual node has a thread for every callback.
    """

    tasks: tuple[TaskSpec, ...]
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
            size = task.pop("input_size")
            tasks.append(TaskSpec(**task, input_size=tuple(size) if size else None))
        output = Path(fields.pop("output"))
        return ConsumerSpec(**fields, tasks=tuple(tasks), output=output)


@dataclass(frozen=True)
class FrameRow:
    """What became of one frame in one task.

    Attributes
    ----------
    task : str
        The task.
    stamp_ns : int
        Capture time in the frame's header.
    start_ns, published_ns : int or None
        When work began, and when `publish` returned; None = it did not come to that.
    admitted : bool
        Work began because the frame was expected to make its deadline. The usual node expects
        that of every frame that it takes.
    outcome : str
        In the side's own words.
    """

    task: str
    stamp_ns: int
    start_ns: int | None
    published_ns: int | None
    admitted: bool
    outcome: str


class FrameLog:
    """Rows of a consumer, kept in memory until the end.

    Parameters
    ----------
    on_first : callable
        Called with the first row: only then frames are known to arrive, since discovery takes
        its time.
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


def announce_ready() -> None:
    """Tell the parent that frames are taken from now on."""
    print(READY, flush=True)


def stop_on_term(stop: threading.Event) -> None:
    """Set `stop` at SIGTERM; SIGINT reaches the whole group and is the parent's to handle."""
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Child:
    """A process of the benchmark: entered when it is ready, ended at exit.

    Parameters
    ----------
    command : sequence of str
        What is run: of `jetson_dnn_rt.safety.children.python_command`.
    environ : mapping, optional
        Variables beside those of this process.

    Raises
    ------
    BenchmarkError
        When the process ends, or is not ready in time; what it wrote to stderr was passed on.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        # What comes after the interpreter, -c and its text: the module and its arguments.
        self.name = " ".join(command[3:] or command)[:80]
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env={**child_environment(), **(environ or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Child:
        try:
            line = self._lines.get(timeout=START_LIMIT_S)
        except queue.Empty:
            line = "no answer"
        if line != READY:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            raise BenchmarkError(f"{self.name}: did not get ready (see its messages above)")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            code = self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            code = -signal.SIGKILL
        self._reader.join()
        if code != 0 and error is None:
            raise BenchmarkError(f"{self.name}: ended with exit code {code}")

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.strip() == READY:
                    self._lines.put(READY)
                else:
                    sys.stderr.write(line)
        self._lines.put(None)
