# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Execution and response times read from traces, as arrays for the statistics.

One campaign = one (task, variant, clocks): times of different ones are never mixed. Warm-up jobs
are kept apart. Jobs that changed their variant within a frame form campaigns of their own
(``full@x+tucker@x``), and so do those that ran together with others (``full@x (batch of 2)``) or
with few threads beside others (``full@x (narrow)``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import JobTraceError
from jetson_dnn_rt.traces.reader import Trace

if TYPE_CHECKING:
    import pyarrow as pa

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]

KEYS = ("task", "variant", "stage", "clocks")
"""Keys by which times are grouped; the task is always one of them."""

EXECUTION, RESPONSE = "execution", "response"
FINISHED = ("met", "late")

_TIMES = ("release_ns", "completion_ns", "absolute_deadline_ns")
KIND_COLUMNS = ("batch", "stages")
"""Columns that tell usual jobs from those that ran in a batch, or narrow."""
_COLUMNS = ("task", "variant", "outcome", "warm_up", *KIND_COLUMNS, *_TIMES)


@dataclass(frozen=True, eq=False)
class Sample:
    """Times of one campaign (jobs or one stage), in the order in which they were measured.

    The key is like ``(("task", "detector"), ("variant", "full@torch-fp32"))``. Warm-up times are
    not in `times_ns`. `deadline_ns` is the usual relative deadline of the task; 0 = unknown.
    `deadlines_ns` has that of each job: it can be changed while a task runs.
    """

    key: tuple[tuple[str, str], ...]
    times_ns: Integers
    release_ns: Integers
    warm_up_ns: Integers
    deadline_ns: int = 0
    deadlines_ns: Integers | None = None

    def __len__(self) -> int:
        return len(self.times_ns)

    @property
    def deadline_title(self) -> str:
        """What `deadline_ns` is to be called: the only deadline, or the usual one of several."""
        several = self.deadlines_ns is not None and len(np.unique(self.deadlines_ns)) > 1
        return "usual deadline" if several else "deadline"

    @property
    def title(self) -> str:
        """Name for people: ``detector, full@torch-fp32``."""
        return ", ".join(value or "clocks not read" for _, value in self.key)

    @property
    def subtitle(self) -> str:
        """Name without the task: ``full@torch-fp32, gpu 900 MHz``."""
        return ", ".join(value for name, value in self.key if name != "task" and value)


Keys = list[tuple[list[str], Integers]]
"""For each key, its distinct texts, and for each row the index of its text."""


def read_samples(
    traces: Iterable[Trace], by: Sequence[str] = ("task", "variant"), times: str = EXECUTION
) -> list[Sample]:
    """Group the times of finished jobs; samples are sorted by their keys.

    Traces follow one another: campaigns with the same key are concatenated. With ``stage``
    in `by` the execution times are those of single stages, of all jobs that ran them. `times` is
    ``execution`` (without waiting) or ``response`` (release to completion).

    Raises
    ------
    ValueError
        For an unknown key or kind of time.
    """
    unknown = [name for name in by if name not in KEYS]
    if unknown:
        raise ValueError(f"by must be some of {', '.join(KEYS)}: {unknown[0]!r}")
    if times not in (EXECUTION, RESPONSE):
        raise ValueError(f"times must be {EXECUTION} or {RESPONSE}: {times!r}")
    names = [name for name in KEYS if name == "task" or name in by]
    gathered: dict[tuple[str, ...], list[Integers]] = {}
    for trace in traces:
        for batch in trace.batches(_COLUMNS):
            rows = _stage_rows(batch, names) if "stage" in by else _job_rows(batch, names, times)
            _gather(*rows, gathered)
    samples = []
    for key, parts in sorted(gathered.items()):
        times_ns, release_ns, deadline_ns, warm_up = np.concatenate(parts, axis=1)
        usual = warm_up == 0
        samples.append(
            Sample(
                tuple(zip(names, key, strict=True)),
                times_ns[usual],
                release_ns[usual],
                times_ns[~usual],
                find_usual(deadline_ns[usual]),
                deadline_ns[usual],
            )
        )
    return samples


def find_usual(values: Integers) -> int:
    """Return the median, one of the values: 40 of 20, 40, 80 and 320; 0 of none."""
    return int(np.sort(values)[(len(values) - 1) // 2]) if len(values) else 0


def _job_rows(batch: pa.RecordBatch, names: list[str], times: str) -> tuple[Keys, Integers]:
    """Read keys and (time, release, deadline, warm-up) [4, N] of a batch's finished jobs."""
    finished = np.isin(np.array(batch.column("outcome").to_pylist(), np.str_), FINISHED)
    release_ns, completion_ns, deadline_ns = (read_numbers(batch, name) for name in _TIMES)
    stages, offsets = read_stages(batch)
    response = times == RESPONSE
    times_ns = completion_ns - release_ns if response else sum_stages(stages, offsets)
    keys = []
    for name in names:
        if name == "clocks":
            texts, codes = _join_clocks(*encode(stages["clocks"]), offsets)
        else:
            texts, codes = encode(campaign_names(batch, name))
        keys.append((texts, codes[finished]))
    values = np.stack([times_ns, release_ns, deadline_ns - release_ns, read_warm_up(batch)])
    return keys, values[:, finished]


def _stage_rows(batch: pa.RecordBatch, names: list[str]) -> tuple[Keys, Integers]:
    """Read keys and (time, release, 0, warm-up) [4, N] of a batch's stages."""
    stages, offsets = read_stages(batch)
    jobs = np.repeat(np.arange(batch.num_rows), np.diff(offsets))
    kinds = _read_kinds(batch)
    keys = []
    for name in names:
        if name == "task":
            texts, codes = encode(batch.column("task"))
            keys.append((texts, codes[jobs]))
        elif name == "variant" and kinds is not None:
            keys.append(encode(_mark(stages["variant"], kinds[jobs])))
        else:
            keys.append(encode(stages["name" if name == "stage" else name]))
    times_ns = stages["end_ns"] - stages["start_ns"]
    release_ns, warm_up = read_numbers(batch, "release_ns"), read_warm_up(batch)
    return keys, np.stack([times_ns, release_ns[jobs], np.zeros_like(times_ns), warm_up[jobs]])


def _gather(keys: Keys, values: Integers, gathered: dict[tuple[str, ...], list[Integers]]) -> None:
    group = np.zeros(values.shape[1], np.int64)
    for texts, codes in keys:
        group = group * len(texts) + codes
    order = np.argsort(group, kind="stable")
    for chosen in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        if len(chosen):
            key = tuple(texts[codes[chosen[0]]] for texts, codes in keys)
            gathered.setdefault(key, []).append(values[:, chosen])


def read_numbers(batch: pa.RecordBatch, name: str) -> Integers:
    """Read a column of integers."""
    return np.asarray(batch.column(name).to_numpy(), np.int64)


def campaign_names(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column of texts; variants of jobs that ran in a batch, or narrow, are marked.

    For the variants the batch has the columns `KIND_COLUMNS`, too.
    """
    kinds = _read_kinds(batch) if name == "variant" else None
    column = batch.column(name)
    return column if kinds is None else _mark(column, kinds)


def _read_kinds(batch: pa.RecordBatch) -> Texts | None:
    """`describe_kind` of each job; None if all are usual ones."""
    from jetson_dnn_rt.traces.schema import describe_kind

    sizes = np.asarray(batch.column("batch").fill_null(1).to_numpy(), np.int64)
    stages, offsets = read_stages(batch)
    flags = stages["narrow"].fill_null(False).to_numpy(zero_copy_only=False)
    counts = np.concatenate([[0], np.cumsum(flags)])
    narrow = counts[offsets[1:]] > counts[offsets[:-1]]
    if not (narrow.any() or (sizes > 1).any()):
        return None
    jobs = zip(sizes.tolist(), narrow.tolist(), strict=True)
    return np.array([describe_kind(size, narrow=one) for size, one in jobs], np.object_)


def _mark(variants: pa.Array, kinds: Texts) -> pa.Array:
    from jetson_dnn_rt.traces.schema import require_pyarrow

    marked = [a + b for a, b in zip(variants.to_pylist(), kinds.tolist(), strict=True)]
    return require_pyarrow().array(marked)


def read_warm_up(batch: pa.RecordBatch) -> Flags:
    """Read which jobs are marked as warm-up."""
    return np.asarray(batch.column("warm_up").to_numpy(zero_copy_only=False), np.bool_)


def read_stages(batch: pa.RecordBatch) -> tuple[dict[str, Any], Integers]:
    """Return the columns of all stages, and the first stage of each job [jobs + 1]."""
    column = batch.column("stages")
    offsets = np.asarray(column.offsets.to_numpy(), np.int64)
    values = column.flatten()
    arrays = dict(zip([f.name for f in values.type], values.flatten(), strict=True))
    for name in ("start_ns", "end_ns"):
        if arrays[name].null_count:
            raise JobTraceError(f"{arrays[name].null_count} stages have no {name}")
        arrays[name] = np.asarray(arrays[name].to_numpy(), np.int64)
    return arrays, offsets - offsets[0]


def sum_stages(stages: dict[str, Any], offsets: Integers) -> Integers:
    """Sum the execution of each job over its stages."""
    ends_ns = np.concatenate([[0], np.cumsum(stages["end_ns"] - stages["start_ns"])])
    return np.asarray(ends_ns[offsets[1:]] - ends_ns[offsets[:-1]])


def encode(column: pa.Array) -> tuple[list[str], Integers]:
    """Return the distinct texts of a column, and for each row the index of its text."""
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), np.asarray(encoded.indices.to_numpy(), np.int64)


def _join_clocks(
    texts: list[str], codes: Integers, offsets: Integers
) -> tuple[list[str], Integers]:
    """Join the clocks of each job; clocks that changed between stages are joined by ``+``."""
    known: dict[str, int] = {"": 0}
    joined = np.zeros(len(offsets) - 1, np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    # Stages between two changes have the same clocks; a job may span several such stretches.
    stretch = np.concatenate([[0], np.cumsum(codes[1:] != codes[:-1])]) if len(codes) else codes
    some = np.flatnonzero(ends > starts)
    same = stretch[starts[some]] == stretch[ends[some] - 1]
    numbers = np.array([known.setdefault(text, len(known)) for text in texts], np.int64)
    alike, mixed = some[same], some[~same]
    joined[alike] = numbers[codes[starts[alike]]]
    for job in mixed.tolist():
        distinct = dict.fromkeys(texts[code] for code in codes[starts[job] : ends[job]].tolist())
        text = "+".join(filter(None, distinct))
        joined[job] = known.setdefault(text, len(known))
    return list(known), joined
