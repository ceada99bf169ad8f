# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Work of tests of fleets: functions of a module that other processes can import."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path
from typing import Any

from jetson_dnn_rt.cameras.bags.image_bag import BagImage, open_image_bag
from jetson_dnn_rt.config.task import NO_CACHE, TaskConfig
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.lab.evaluate.chunk import ChunkRequest, ChunkResult, VariantChunk
from jetson_dnn_rt.lab.evaluate.plan import TaskSpec

KEY = ("task", "variant")


def make_spec(
    model: str = "null:1",
    *variants: str,
    name: str = "detector",
    deadline_ns: int = 40_000_000,
    period_ns: int = 33_000_000,
    **values: Any,
) -> TaskSpec:
    """A task that computes on one thread and keeps nothing."""
    values = {"kind": "", "threads": 1, "engine_cache": NO_CACHE, **values}
    config = TaskConfig(name, model=model, variants=variants, **values)
    return TaskSpec(config, deadline_ns, period_ns)


def look_at_frames(request: ChunkRequest) -> ChunkResult:
    """A result as an evaluation has it: a digest of every frame, times that are their places."""
    variant = VariantChunk()
    bad = []
    with open_image_bag(request.bag, request.topic) as bag:
        for message in bag.read(request.first, request.count):
            if isinstance(message, BagImage):
                pixels = message.frame.image.tobytes()
                variant.digests[message.index] = hashlib.sha256(pixels).digest()
                variant.execution.record(message.index + 1)
            else:
                bad.append(message)
    return ChunkResult(request, len(variant.digests), bad, {KEY: variant})


def die_once_then_look(request: ChunkRequest) -> ChunkResult:
    """The third chunk kills the first worker that takes it, as the kernel does without memory."""
    died = Path(request.bag, "died")
    if request.first == 2 * request.count and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return look_at_frames(request)


def die_always(request: ChunkRequest) -> ChunkResult:
    """No worker survives the second chunk."""
    if request.first == request.count:
        os.kill(os.getpid(), signal.SIGKILL)
    return look_at_frames(request)


def lack_the_model(request: ChunkRequest) -> ChunkResult:
    """The model is not on this machine."""
    raise ModelError("model weights.pt is not there")


def stumble(request: ChunkRequest) -> ChunkResult:
    """An error that nobody foresaw."""
    raise ZeroDivisionError("of all things")


def see_less(request: ChunkRequest) -> ChunkResult:
    """Another bag under the same path."""
    result = look_at_frames(request)
    result.frames -= 1
    return result
