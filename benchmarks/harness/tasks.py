# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Frames and tasks of a benchmark: sessions, and executors where a session does not fit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.harness.processes import BenchmarkError
from jetson_dnn_rt.cameras.source import open_source
from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import NO_CACHE, TaskConfig
from jetson_dnn_rt.demo.scenes import held_out_seed, random_scene
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.runtime.task_entry import Stages
from jetson_dnn_rt.tasks import JobRecord, Work

SIZE = (480, 640)
_DRAIN_S = 30.0
_FILES = 16

# Many benchmarks overload the machine on purpose: a warning each time would be useless.
_LOG = logging.getLogger("benchmarks.session")
_LOG.setLevel(logging.ERROR)


def draw_frames(count: int, size: tuple[int, int] = SIZE) -> list[Frame]:
    """Draw held-out scenes of the built-in road as frames; height and width in pixels."""
    images = [random_scene(held_out_seed(index), size).image for index in range(count)]
    return [Frame(image, "bgr8", 0, index) for index, image in enumerate(images)]


def write_frames(folder: Path, size: tuple[int, int] = SIZE) -> Path:
    """Write uncompressed images of a synthetic drive, of a height and width, into a new folder.

    A camera that reads them costs next to nothing: drawing is Python, and would compete for the
    interpreter's lock with the measured work; a device or a video decoder does not.
    """
    folder.mkdir()
    source = open_source(f"synthetic:{size[1]}x{size[0]}")
    image = np.zeros((*size, 3), np.uint8)
    for index in range(_FILES):
        source.read(image)
        cv2.imwrite(str(folder / f"{index:03d}.bmp"), image)
    source.close()
    return folder


def configure(name: str, model: str, variants: Sequence[str] = (), **values: Any) -> TaskConfig:
    """Configure a task of any kind, with random weights, without batches and without a library.

    `variants`: none = the package's default; `values` are further fields of `TaskConfig`.
    """
    own = {"kind": "", "weights": "none", "engine_cache": NO_CACHE, "batch": "off", **values}
    return TaskConfig(name, model=model, variants=tuple(variants), **own)


@contextmanager
def open_session(
    configs: Sequence[TaskConfig], frames: Sequence[Frame] = (), threads: int = 1, **process: Any
) -> Iterator[Session]:
    """Open a running session whose tasks are loaded and timed on the frames, but not yet active.

    `process` are fields of `ProcessConfig`.

    `ConfigurationError` when a variant of a task is left out.
    """
    config = PerceptionConfig((), process=ProcessConfig(**process), threads=threads)
    with Session(config, log=_LOG) as session:
        for task in configs:
            require_variants(session.load(task, frames=frames))
        yield session


def load_task(
    stack: ExitStack,
    config: TaskConfig,
    frames: Sequence[Frame] = (),
    *,
    threads: int = 1,
    **options: Any,
) -> Task:
    """Load a task without a session, timed on the frames; `options` are those of `Task`."""
    task = Task(config, threads=threads, clock=SteadyClock(), frames=frames, **options)
    stack.callback(task.close)
    return task


def require_variants(task: Task) -> Task:
    """Return the task; `ConfigurationError` when one of its variants is left out."""
    for name, reason in task.left_out.items():
        raise ConfigurationError(f"--variant {name} is not loaded: {reason}")
    return task


def find_cost_ns(task: Task) -> float:
    """Find the median time of a frame in the first variant, alone."""
    return float(np.median([sum(run) for run in task.warm_up_times_ns[task.default]]))


def add_task(
    executor: Executor,
    task: Task,
    observe: Callable[[JobRecord, Work], None],
    *,
    stages: Stages | None = None,
    variant: str = "",
    **parameters: Any,
) -> None:
    """Add a task to an executor; `parameters` are those of `TaskConfig.for_engine`."""
    executor.add_task(
        task.config.for_engine(
            task.stage_names, task.variant_names, variant or task.default, **parameters
        ),
        stages or task.stages,
        observe,
        warm_up_times_ns=task.warm_up_times_ns,
        cancel_latencies_ns=task.cancel_latencies_ns,
    )


@contextmanager
def running(executor: Executor) -> Iterator[Executor]:
    """Start an executor, and stop it at the end."""
    executor.start()
    try:
        yield executor
    finally:
        executor.stop()


def tick(clock: Clock, period_ns: float, count: int) -> Iterator[tuple[int, int]]:
    """Sleep until each of `count` instants, the first is now; yield its number and due time."""
    begin_ns = clock.now_ns()
    for index in range(count):
        due_ns = begin_ns + round(index * period_ns)
        clock.sleep_until_ns(due_ns)
        yield index, due_ns


def drain(runner: Executor | Session, seconds: float = _DRAIN_S) -> None:
    """Wait until all jobs have ended; `BenchmarkError` when one has not."""
    if not runner.wait_idle(seconds):
        raise BenchmarkError(f"a job did not end within {seconds:g} s")
