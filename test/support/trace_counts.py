# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What the traces of a process say of its frames, and whether each is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.traces.reader import open_trace

COLUMNS = (
    *("task", "outcome", "sequence", "capture_ns", "release_ns", "completion_ns"),
    *("absolute_deadline_ns", "stages"),
)
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TracedFrames:
    """The jobs of a task in all traces of a process, in the order of their release."""

    outcomes: tuple[str, ...]
    sequences: Numbers
    capture_ns: Numbers
    release_ns: Numbers
    completion_ns: Numbers
    deadline_ns: Numbers  # absolute
    longest_ns: Numbers  # of its stages; 0 = none ran

    def __len__(self) -> int:
        return len(self.outcomes)

    @property
    def breaks(self) -> list[tuple[int, int]]:
        """Neighbours that do not follow each other: a frame that is missing, or there twice.

        A camera that is configured again counts from 0.
        """
        pairs = zip(self.sequences[:-1].tolist(), self.sequences[1:].tolist(), strict=True)
        return [(one, next_) for one, next_ in pairs if next_ not in (one + 1, 0)]

    def count(self, last: int | None = None) -> Counter[str]:
        """How many of the frames, or of the last ones, ended how."""
        return Counter(self.outcomes if last is None else self.outcomes[len(self) - last :])


def read_traces(folder: Path, tasks: Sequence[str]) -> dict[str, TracedFrames]:
    """Read all traces below a folder."""
    rows: dict[str, list[tuple[str, ...]]] = {task: [] for task in tasks}
    for trace in sorted(folder.iterdir()):
        for batch in open_trace(trace).batches(COLUMNS):
            columns = [batch.column(name).to_pylist() for name in COLUMNS]
            for task, outcome, *numbers, stages in zip(*columns, strict=True):
                if task in rows:
                    times_ns = [stage["end_ns"] - stage["start_ns"] for stage in stages]
                    rows[task].append((outcome, *numbers, max(times_ns, default=0)))
    return {task: _arrange(found) for task, found in rows.items()}


def _arrange(rows: list[tuple[str, ...]]) -> TracedFrames:
    outcomes = [row[0] for row in rows]
    numbers = np.array([row[1:] for row in rows], np.int64).reshape(-1, 6)
    order = np.argsort(numbers[:, 2], kind="stable")
    return TracedFrames(tuple(outcomes[i] for i in order), *numbers[order].T)
