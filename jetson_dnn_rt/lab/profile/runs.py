"""Timed frames as a journal keeps them: piece by piece, each under one condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jetson_dnn_rt.lab.profile.journal import Journal
from jetson_dnn_rt.variants.measuring.timing import TimedRun

ALONE = "none"
"""The condition in which nothing else runs."""

_RUNS = "runs"


@dataclass(frozen=True)
class RunsKey:
    """Which frames of a profile.

    Attributes
    ----------
    condition : str
        What ran beside: `ALONE`, ``cpu``, ``memory``, ``gpu``, ``cohort:N``.
    clocks : str
        Configuration that was asked for: its number, or ``current``.
    task : str
        All of its variants ran in turn.
    first : int
        Number of the first frame that counts.
    """

    condition: str
    clocks: str
    task: str
    first: int

    def __str__(self) -> str:
        return "|".join((_RUNS, self.condition, self.clocks, self.task, str(self.first)))


@dataclass(frozen=True)
class Chunk:
    """Some frames in all variants of a task.

    Attributes
    ----------
    key : RunsKey
        Which.
    description : str
        The clocks as they were read back, in words; empty where nothing reads them.
    runs : dict of str to list of TimedRun
        By variant, the cold ones first.
    """

    key: RunsKey
    description: str
    runs: Mapping[str, Sequence[TimedRun]]

    def to_json(self) -> dict[str, Any]:
        """For a journal."""
        return {
            "clocks": self.description,
            "runs": {
                variant: [[r.sequence, r.stamp_ns, int(r.cold), *r.stamps_ns] for r in runs]
                for variant, runs in self.runs.items()
            },
        }

    @staticmethod
    def from_json(key: RunsKey, value: Mapping[str, Any]) -> Chunk:
        """Read what `to_json` made."""
        runs = {
            variant: [TimedRun(row[0], row[1], bool(row[2]), tuple(row[3:])) for row in rows]
            for variant, rows in value["runs"].items()
        }
        return Chunk(key, value["clocks"], runs)


def load_chunk(journal: Journal, key: RunsKey) -> Chunk | None:
    """A chunk that was measured; None when it was not."""
    value = journal.get(str(key))
    return None if value is None else Chunk.from_json(key, value)


def list_chunks(journal: Journal, condition: str) -> Iterator[Chunk]:
    """All chunks of a condition, in the order in which they were measured."""
    for name, value in journal.items(f"{_RUNS}|{condition}|"):
        _, _, clocks, task, first = name.split("|")
        yield Chunk.from_json(RunsKey(condition, clocks, task, int(first)), value)
