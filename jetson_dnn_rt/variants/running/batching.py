# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tasks that run one model on several cameras, and the batches that they run.

A batch of n is used where it is right and where it is faster:

* its outputs are those of the tasks one by one, within the tolerance of the precision, on frames
  of noise that differ from task to task;
* its median time is `MAX_SHARE` at most of what the n frames take one by one, side by side on as
  many workers as there are; both are measured in turn.

Sizes are tried from 2 upwards, and no further after two in a row that were of no use.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np

from jetson_dnn_rt.backends.base import HostArrays
from jetson_dnn_rt.backends.memory import used_bytes
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import JetsonDnnRtError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.tasks import Stage, Work
from jetson_dnn_rt.variants.measuring.machine import device_of
from jetson_dnn_rt.variants.running.batch_runs import BatchRuns
from jetson_dnn_rt.variants.running.frame_processor import OUTPUTS
from jetson_dnn_rt.variants.running.pipeline import Pipeline
from jetson_dnn_rt.variants.running.variant_set import VariantSet

logger = logging.getLogger(__name__)

MAX_BATCH = 8
"""Frames in a batch at most: on CPUs and small GPUs the gain ends long before."""

MAX_SHARE = 0.8
"""A batch may take this share at most of what its frames take one by one. To look for batches at
every boundary costs some percent of a worker, and frames wait longer beside a batch than beside a
single run: `python -m benchmarks batching --max-share 9` shows what less is worth."""

TOLERANCE = {"fp32": 1e-3, "fp16": 2e-2, "bf16": 5e-2, "int8": 5e-2}
"""Largest difference of an output, as a share of its largest value, or of 1 where that is less."""

_COLD_RUNS = 2
_MIN_RUNS = 5
_MEASURED_NS = 400_000_000
"""Approximate time for which one size is measured, after `_MIN_RUNS`."""


@dataclass(frozen=True)
class BatchReport:
    """Result of the trial of one size of batch in one variant."""

    variant: str
    size: int
    refusal: str  # why it is not used; empty where it is
    batch_ns: float = 0.0  # median; 0 where it was not measured
    single_ns: float = 0.0  # its frames one by one on the workers
    times_ns: tuple[tuple[int, ...], ...] = ()  # of each run and segment
    memory_bytes: int = 0  # by how much the process grew for it; 0 where it is not used

    @property
    def used(self) -> bool:
        """Whether such batches may be formed."""
        return not self.refusal

    def __str__(self) -> str:
        text = f"batches of {self.size} in {self.variant}"
        if self.batch_ns:
            text += (
                f": {self.batch_ns / 1e6:.2f} ms, one by one {self.single_ns / 1e6:.2f} ms "
                f"({self.batch_ns / self.single_ns - 1:+.0%})"
            )
        if self.used:
            return f"{text}, {self.memory_bytes / 1e6:.0f} MB"
        return f"{text}{';' if self.batch_ns else ':'} not used: {self.refusal}"


class BatchGroup:
    """Tasks of one process that run the same model; they must not run while it is made.

    Their input buffers move into one, slot by slot. `members` are at least two, of the same model,
    loaded with the same variants and stages; `reports` are the results of `prepare`.
    """

    def __init__(
        self,
        members: Mapping[str, VariantSet],
        *,
        workers: int,
        clock: Clock,
        max_share: float | None = None,
    ) -> None:
        if len(members) < 2:
            raise ValueError(f"a batch group needs two tasks: {list(members)}")
        self.tasks = tuple(members)
        self.reports: list[BatchReport] = []
        self.sets = tuple(members.values())
        self.workers, self.clock = workers, clock
        self.max_share = MAX_SHARE if max_share is None else max_share
        self._runs: dict[str, BatchRuns] = {}
        first = self.sets[0]
        runner = first.pipelines[first.default].segments[0].runner
        self._image = runner.allocate_input(len(members))
        for slot, variants in enumerate(self.sets):
            variants.move_input(self._image, slot)

    @property
    def memory_bytes(self) -> int:
        """Memory of all runners of batches."""
        return sum(report.memory_bytes for report in self.reports)

    def prepare(
        self, frame: Frame, runs: int, *, room_bytes: int | None = None
    ) -> list[BatchReport]:
        """Make, check and measure batches in all variants that all tasks have.

        Parameters
        ----------
        frame : Frame
            Of the size that the cameras deliver.
        runs : int
            Measured runs of a size, fewer where they take long; 0 = no batches, since none would
            be known to be faster.
        room_bytes : int, optional
            Memory that they may use together.
        """
        if not runs:
            return []
        for name in self.sets[0].pipelines:
            pipelines = [s.pipelines[name] for s in self.sets if name in s.pipelines]
            if len(pipelines) == len(self.sets) and pipelines[0].spec.backend != "null":
                self._prepare_variant(name, pipelines, frame, runs, room_bytes)
        return self.reports

    def close(self) -> None:
        """Close the runners of batches, not the tasks' own; a second call does nothing."""
        for runs in self._runs.values():
            runs.close()

    def _prepare_variant(
        self,
        name: str,
        pipelines: Sequence[Pipeline],
        frame: Frame,
        runs: int,
        room_bytes: int | None,
    ) -> None:
        pieces = [[segment.piece for segment in p.segments] for p in pipelines]
        layouts = [
            [(p.first, p.span, p.inputs, p.outputs, p.results) for p in own] for own in pieces
        ]
        if any(layout != layouts[0] for layout in layouts):
            refusal = "the tasks cut the network at different places, or run it in other pieces"
            self.reports.append(BatchReport(name, len(pipelines), refusal))
            return
        batches = self._runs[name] = BatchRuns(pipelines)
        for pipeline in pipelines:
            pipeline.join(batches.run)
        useless = 0
        for size in range(2, min(MAX_BATCH, len(pipelines)) + 1):
            on_device = pipelines[0].segments[0].runner.device != "cpu"
            if on_device and len(batches.pieces) > 1 and size < len(pipelines):
                continue  # boundary values of the others would be written over on the device
            room = None if room_bytes is None else room_bytes - self.memory_bytes
            report = _Trial(self, name, pipelines[:size], batches).run(frame, runs, room)
            self.reports.append(report)
            useless = 0 if report.used else useless + 1
            if useless == 2:
                break


class _Trial:
    """Makes, checks and measures one size of batch in one variant."""

    def __init__(
        self, group: BatchGroup, name: str, pipelines: Sequence[Pipeline], batches: BatchRuns
    ) -> None:
        self._group, self._name, self._pipelines = group, name, pipelines
        self._batches, self._size = batches, len(pipelines)

    def run(self, frame: Frame, runs: int, room_bytes: int | None) -> BatchReport:
        """See `BatchGroup.prepare`; a size that is of no use is dropped again."""
        device = device_of(self._pipelines[0].spec.backend)
        before = used_bytes(device)
        # Frames of noise, one for each task, as large as those that will come.
        rng, shape = np.random.default_rng(0), (self._size, frame.height, frame.width, 3)
        noise = rng.integers(0, 256, shape, np.uint8)
        frames = [Frame(image, "bgr8", 0, i) for i, image in enumerate(noise)]
        try:
            refusal = self._make(frames)
        except JetsonDnnRtError as error:
            refusal = " ".join(str(error).split())
        if refusal:
            return self._refuse(refusal)
        grown = max(0, used_bytes(device) - before)
        if room_bytes is not None and grown > room_bytes:
            return self._refuse(
                f"{grown / 1e6:.0f} MB, {max(0, room_bytes) / 1e6:.0f} MB are left "
                "(memory_limit_mb)"
            )
        times_ns, singles_ns = self._measure(frames, runs)
        batch_ns = statistics.median(map(sum, times_ns))
        single_ns = statistics.median(singles_ns)
        share = self._group.max_share
        if batch_ns > share * single_ns:
            refusal = f"saves less than {100 * (1 - share):.4g} %"
            return self._refuse(refusal, batch_ns, single_ns)
        return BatchReport(self._name, self._size, "", batch_ns, single_ns, tuple(times_ns), grown)

    def _refuse(self, reason: str, batch_ns: float = 0.0, single_ns: float = 0.0) -> BatchReport:
        if self._size in self._batches.sizes:
            self._batches.drop(self._size)
        return BatchReport(self._name, self._size, reason, batch_ns, single_ns)

    def _make(self, frames: Sequence[Frame]) -> str:
        """Make the runners; returns why they are of no use, else an empty text."""
        own = [segment.runner for pipeline in self._pipelines for segment in pipeline.segments]
        if all(runner.takes_any_batch for runner in own):
            self._batches.add(self._size, None)
            try:
                if not self._check(frames):
                    return ""
            except JetsonDnnRtError as error:
                logger.info("%s: its runners take one image each: %s", self._name, error)
            self._batches.drop(self._size)
        runners = self._group.sets[0].make_batch_runners(self._name, self._size)
        self._batches.add(self._size, runners)
        return self._check(frames)

    def _check(self, frames: Sequence[Frame]) -> str:
        """Compare with the tasks one by one; returns what differs, else an empty text."""
        expected = []
        for pipeline, frame in zip(self._pipelines, frames, strict=True):
            work = self._preprocess(pipeline, frame)
            for stage in _network(pipeline):
                stage.run(work)
            # The runner owns them, and torch may reuse their memory.
            outputs = cast(HostArrays, work.scratch[OUTPUTS])
            expected.append([np.array(output) for output in outputs])
        works = self._preprocess_all(frames)
        try:
            for stage in _network(self._pipelines[0]):
                assert stage.run_batch is not None
                stage.run_batch(works)
        except JetsonDnnRtError:
            raise
        except Exception as error:  # libraries raise their own
            raise ModelError(f"it fails: {type(error).__name__}: {error}") from error
        limit = TOLERANCE[self._pipelines[0].spec.precision]
        for work, arrays in zip(works, expected, strict=True):
            for one, other in zip(arrays, cast(HostArrays, work.scratch[OUTPUTS]), strict=True):
                if one.shape != other.shape:
                    return f"its outputs are {list(other.shape)} each, alone {list(one.shape)}"
                gap = float(np.abs(one.astype(np.float64) - other).max(initial=0.0))
                allowed = limit * max(1.0, float(np.abs(one).max(initial=0.0)))
                if not gap <= allowed:
                    return f"its outputs differ by {gap:.3g}, allowed are {allowed:.3g}"
        return ""

    def _measure(
        self, frames: Sequence[Frame], runs: int
    ) -> tuple[list[tuple[int, ...]], list[int]]:
        """Time the batch, by run and segment, and the frames one by one, by run."""
        now_ns, workers = self._group.clock.now_ns, self._group.workers
        times_ns: list[tuple[int, ...]] = []
        singles_ns: list[int] = []
        spent_ns = 0
        networks = [_network(pipeline) for pipeline in self._pipelines]
        with ThreadPoolExecutor(min(workers, self._size)) as pool:

            def measure_batch() -> int:
                works = self._preprocess_all(frames)
                stamps = [now_ns()]
                for stage in networks[0]:
                    assert stage.run_batch is not None
                    stage.run_batch(works)
                    stamps.append(now_ns())
                times_ns.append(tuple(b - a for a, b in pairwise(stamps)))
                return stamps[-1] - stamps[0]

            def measure_singles() -> int:
                works = self._preprocess_all(frames)
                start_ns = now_ns()
                if workers == 1:
                    for stages, work in zip(networks, works, strict=True):
                        _run_all(stages, work)
                else:
                    list(pool.map(_run_all, networks, works))
                singles_ns.append(now_ns() - start_ns)
                return singles_ns[-1]

            for index in range(_COLD_RUNS + runs):
                ways = (measure_batch, measure_singles)
                took_ns = sum(way() for way in (ways if index % 2 else ways[::-1]))
                spent_ns += took_ns if index >= _COLD_RUNS else 0
                if index >= _COLD_RUNS + _MIN_RUNS - 1 and spent_ns > _MEASURED_NS:
                    break
        return times_ns[_COLD_RUNS:], singles_ns[_COLD_RUNS:]

    def _preprocess(self, pipeline: Pipeline, frame: Frame) -> Work:
        work = Work(frame)
        pipeline.processor.preprocess(work)
        return work

    def _preprocess_all(self, frames: Sequence[Frame]) -> list[Work]:
        return [self._preprocess(p, f) for p, f in zip(self._pipelines, frames, strict=True)]


def _network(pipeline: Pipeline) -> tuple[Stage, ...]:
    """The stages between preprocessing and decoding."""
    return pipeline.stages[1:-1]


def _run_all(stages: Sequence[Stage], work: Work) -> None:
    for stage in stages:
        stage.run(work)
