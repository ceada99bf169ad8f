"""Tunes the networks of the table within one budget, and continues where it was stopped."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.tables import say
from jetson_dnn_rt.cli.progress import format_duration
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.tvm.database import FILES, HEADER, TuningDatabase
from jetson_dnn_rt.tvm.lowering import lower
from jetson_dnn_rt.tvm.target import TvmTarget
from jetson_dnn_rt.tvm.tuning import TuningBudget, count_tuned, tune

SPENT = "spent.json"
"""Beside a database: seconds that its tuning took, with lowering and all, over all runs."""

_LOCK = "lock"
_SAY_PERIOD_S = 15.0

# The last batch of a network ends after its time.
_KEPT_BACK = 0.01


@dataclass(frozen=True)
class Job:
    """One network in one precision, and its share of the time, in (0, 1]."""

    network: str
    precision: str
    share: float

    @property
    def name(self) -> str:
        """Of its folder, and in messages."""
        return f"{self.network}-{self.precision}"


def plan_jobs(shares: Mapping[str, Mapping[str, float]]) -> list[Job]:
    """From shares by network and precision: fp32 first; what is left out goes to the others."""
    wanted = [
        (name, precision, own.get(precision, 0.0))
        for precision in ("fp32", "fp16")
        for name, own in shares.items()
    ]
    total = sum(share for _, _, share in wanted)
    return [Job(name, precision, share / total) for name, precision, share in wanted if share]


def find_allowance_s(
    jobs: list[Job], index: int, spent_s: Mapping[str, float], budget_s: float
) -> float:
    """Seconds that the job at `index` may take now; `spent_s` is by name, of earlier runs too.

    What the ones before it left over is added, what they or it spent already is subtracted, and no
    job gets more than is left of the whole.
    """
    usable_s = budget_s * (1.0 - _KEPT_BACK)
    so_far = jobs[: index + 1]
    due_s = usable_s * sum(job.share for job in so_far)
    left_s = usable_s - sum(spent_s.get(job.name, 0.0) for job in jobs)
    return max(0.0, min(left_s, due_s - sum(spent_s.get(job.name, 0.0) for job in so_far)))


class DatabaseFolder:
    """A folder with one tuning database for each job, all for one target."""

    def __init__(self, folder: Path, target: TvmTarget) -> None:
        self._folder, self._target = folder, target
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, job: Job) -> TuningDatabase:
        """The database of a job; `DatabaseError` when it is for another target, or damaged."""
        place = self._folder / job.name
        if not (place / HEADER).is_file():
            return TuningDatabase(self._target)
        files = {name: (place / name).read_bytes() for name in FILES if (place / name).is_file()}
        return TuningDatabase.from_files(files, self._target)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs from tuning here; `ConfigurationError` when another one does."""
        with open(self._folder / _LOCK, "a", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigurationError(
                    f"another run tunes into {self._folder}: wait for it, or give another folder"
                ) from error
            yield

    def find_spent_s(self, job: Job) -> float:
        """Seconds that a job took so far."""
        path = self._folder / job.name / SPENT
        if not path.is_file():
            return 0.0
        try:
            return float(json.loads(path.read_text(encoding="utf-8"))["seconds"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{path} is damaged: {error!r}; remove its folder") from error

    def store(self, job: Job, database: TuningDatabase, spent_s: float) -> None:
        """Keep a database.

        Workloads and records only grow, and the later file speaks of the earlier one: an
        interruption between two of them does no harm.
        """
        place = self._folder / job.name
        place.mkdir(exist_ok=True)
        spent = json.dumps({"seconds": round(spent_s, 3)}) + "\n"
        files = database.to_files()
        contents = {name: files[name] for name in FILES} | {SPENT: spent.encode()}
        for name, content in contents.items():
            fresh = place / f"{name}.new"
            fresh.write_bytes(content)
            fresh.replace(place / name)


def tune_all(
    jobs: list[Job],
    find_part: Callable[[str], Part],
    folder: DatabaseFolder,
    target: TvmTarget,
    *,
    minutes: float,
    trials: int,
) -> dict[str, dict[str, Any]]:
    """Tune the jobs in their order; one that fails has a note, and the next one follows.

    Parameters
    ----------
    find_part : callable
        From the name of a network to it.
    minutes : float
        For all of them, earlier runs included; 0 tunes nothing and counts what is there.
    trials : int
        Most candidates of a kernel.

    Returns
    -------
    dict
        By job: kernels, how many of them are tuned, trials, seconds, or why it failed.

    `ConfigurationError` when another run tunes into the same folder.
    """
    found: dict[str, dict[str, Any]] = {}
    with folder.lock() if minutes else nullcontext():
        spent_s = {job.name: folder.find_spent_s(job) for job in jobs}
        for index, job in enumerate(jobs):
            allowed_s = find_allowance_s(jobs, index, spent_s, 60.0 * minutes)
            reporter = _Reporter(job, index, len(jobs), allowed_s)
            try:
                part = find_part(job.network)
                found[job.name] = _tune(
                    job, part, folder, target, spent_s, allowed_s, trials, reporter
                )
            except Exception as error:  # TVM's errors have no class in common
                found[job.name] = {"note": f"{type(error).__name__}: {error}"[:400]}
                reporter.say(f"failed: {found[job.name]['note']}")
            found[job.name]["seconds"] = round(spent_s[job.name], 1)
    return found


def _tune(
    job: Job,
    part: Part,
    folder: DatabaseFolder,
    target: TvmTarget,
    spent_s: dict[str, float],
    allowed_s: float,
    trials: int,
    reporter: _Reporter,
) -> dict[str, Any]:
    began_s, before_s = time.monotonic(), spent_s[job.name]
    database = folder.load(job)
    module = lower(part, job.precision, target)
    if allowed_s <= 0.0:
        return asdict(count_tuned(module, target, database))

    def keep(now: TuningDatabase) -> None:
        spent_s[job.name] = before_s + time.monotonic() - began_s
        folder.store(job, now, spent_s[job.name])

    left_s = allowed_s - (time.monotonic() - began_s)
    if left_s > 0.0:
        budget = TuningBudget(trials, left_s / 60.0)
        tune(module, target, database, budget, progress=reporter, checkpoint=keep)
    keep(database)
    state = count_tuned(module, target, database)
    reporter.say(
        f"{state.tuned} of {state.kernels} kernels, {state.trials} trials, "
        f"{format_duration(spent_s[job.name])} in all"
    )
    return asdict(state)


class _Reporter:
    """Lines on stderr with the time left."""

    def __init__(self, job: Job, index: int, count: int, allowed_s: float) -> None:
        self._head = f"paper003: {job.name} ({index + 1} of {count})"
        self._end_s = time.monotonic() + allowed_s
        self._said_s = time.monotonic()

    def __call__(self, phase: str, done: int, total: int) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s >= _SAY_PERIOD_S:
            self._said_s = now_s
            left = format_duration(max(0.0, self._end_s - now_s))
            self.say(f"{phase}, {done} of at most {total} trials, {left} left")

    def say(self, line: str) -> None:
        """Write a line."""
        say(f"{self._head}: {line}")
