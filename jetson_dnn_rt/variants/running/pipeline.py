# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The stages of one task in one variant: preprocess, the network in one or more parts, decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from jetson_dnn_rt.backends.base import Array, Runner
from jetson_dnn_rt.backends.null import NullRunner
from jetson_dnn_rt.backends.registry import TENSORRT
from jetson_dnn_rt.errors import NotANumberError
from jetson_dnn_rt.tasks import SHARED_STAGES, Stage, Work, stage_name
from jetson_dnn_rt.variants.network import Segment, run_piece
from jetson_dnn_rt.variants.running.frame_processor import (
    OUTPUTS,
    VALUES,
    FrameProcessor,
    holds_nan,
)
from jetson_dnn_rt.variants.spec import VariantSpec

RunBatch = Callable[[int, Sequence[Work]], None]
"""Runs a segment, by its number, for frames of several tasks."""


def name_stages(count: int) -> tuple[str, ...]:
    """Names of a task's stages whose network is cut into `count`."""
    inner = [f"inference-{i + 1}" for i in range(count)] if count > 1 else ["inference"]
    first, last = SHARED_STAGES
    return (first, *inner, last)


class Pipeline:
    """Stages that a task runs for each frame in one variant, with all the memory they need.

    The frame's pixels are read once, by the preprocessor, which writes into the input buffer. The
    result owns its arrays; everything between belongs to the runners and is written over by the
    next frame. One frame at a time, of all pipelines that share a frame processor. The pipeline
    closes its runners, not the processor. `memory_bytes` is the growth of the process when it was
    made: with what the back end needed for compiling and keeps, which a network that was compiled
    in an earlier start does not have (`CompiledNetwork`).
    """

    def __init__(
        self,
        spec: VariantSpec,
        processor: FrameProcessor,
        segments: Sequence[Segment],
        names: Sequence[str],
        memory_bytes: int = 0,
        narrow: Sequence[Runner] = (),
    ) -> None:
        self.spec = spec
        self.processor = processor
        self.segments = tuple(segments)
        self.narrow = tuple(narrow)
        self.runs_narrow = False  # whatever `Work.narrow` says, where there are narrow runners
        self.memory_bytes = memory_bytes
        runner = segments[0].runner
        self._script = runner if isinstance(runner, NullRunner) else None
        self._names = tuple(names)
        self.stages = self._make_stages(None)

    def join(self, run_batch: RunBatch) -> None:
        """Let the stages of the network run as batches too; replaces `stages`."""
        self.stages = self._make_stages(run_batch)

    def _make_stages(self, run_batch: RunBatch | None) -> tuple[Stage, ...]:
        return (
            Stage("preprocess", self._run_preprocess),
            *(
                self._make_stage(
                    segment,
                    self.narrow[index] if self.narrow else segment.runner,
                    run_batch and partial(run_batch, index),
                )
                for index, segment in enumerate(self.segments)
            ),
            Stage("decode", self._run_decode),
        )

    def _run_preprocess(self, work: Work) -> None:
        self.processor.preprocess(work)
        if self._script is not None:
            self._script.take_time("preprocess")

    def _make_stage(
        self, segment: Segment, narrow: Runner, run_batch: Callable[[Sequence[Work]], None] | None
    ) -> Stage:
        (piece, wide), processor = segment, self.processor
        results, is_last = piece.results, piece.is_last
        name = stage_name(self._names, piece.first + 1, piece.span)

        def run(work: Work) -> None:
            values = cast("dict[str, Array]", work.scratch[VALUES])
            runner = narrow if work.narrow or self.runs_narrow else wide
            runner.urgency = work.urgency
            # The last one waits for the device once, for the network and the copy to the host.
            wait = processor.suspicious or not is_last
            given = run_piece(piece, runner, values, wait=wait)
            if processor.suspicious and holds_nan(given):
                raise NotANumberError(f"stage {name} of {self.spec} gives NaN", name)
            if is_last:
                last = [values[key] for key in results] if results else given
                work.scratch[OUTPUTS] = runner.to_host(last)
            work.copied_bytes += runner.copied_bytes

        core = TENSORRT.get(self.spec.backend)
        device = wide.device if core is None else f"dla{core}"

        def cancel() -> None:
            for runner in {wide, narrow}:
                runner.cancel()

        return Stage(name, run, piece.span, device, cancel if wide.can_cancel else None, run_batch)

    def _run_decode(self, work: Work) -> None:
        self.processor.decode(work)
        if self._script is not None:
            self._script.take_time("decode")

    def run(self, work: Work) -> None:
        """Run all stages in turn, for callers that schedule nothing."""
        for stage in self.stages:
            stage.run(work)

    def close(self) -> None:
        """Close the runners; a second call does nothing."""
        for runner in (*(segment.runner for segment in self.segments), *self.narrow):
            runner.close()
