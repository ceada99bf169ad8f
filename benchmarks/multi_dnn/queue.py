"""The paper's framework: one process, a FIFO queue of jobs, a pool of threads with streams.

A job is a run of consecutive layers. A thread of the pool takes the job that has waited longest,
issues its kernels on its own CUDA stream, sleeps until the device is done, and then the network's
next job goes to the end of the queue (JKICE 26(6), 2022, section 3.2). Two differences, both in
its favour: the thread that finished a job queues the next one itself, where the paper signals a
thread of the network first; and weights are not written to, so nothing is locked.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness.queue import FifoQueue
from benchmarks.harness.timing import Times
from benchmarks.multi_dnn.processes import LEAST_RUNS, Outputs
from jetson_dnn_rt.models.graph.splitting import Split, StagePart

_WARM_UP_RUNS = 3


class QueuedNetwork:
    """A network as jobs, with weights of its own on the device; runs on one image."""

    def __init__(self, split: Split, image: npt.NDArray[np.float32], device: str) -> None:
        self._split, self._device = split, device
        self._parts: tuple[StagePart, ...] = split.parts
        # One copy of all jobs: what two of them share stays shared.
        whole = torch.nn.ModuleList([part.torch_module() for part in self._parts]).to(device)
        self._modules: list[Any] = [module.eval() for module in whole]
        self._image = torch.from_numpy(image)
        if device == "cuda":
            self._image = self._image.pin_memory()
        self._values: dict[str, torch.Tensor] = {}
        self.outputs: Outputs = []

    @property
    def jobs(self) -> int:
        """How many jobs an inference has."""
        return len(self._parts)

    def issue(self, job: int) -> None:
        """Queue a job's kernels on the current stream; the last one also waits for its outputs."""
        part = self._parts[job]
        if job == 0:
            image = self._image.to(self._device, non_blocking=True)
            self._values = {self._split.image: image}
        given = self._modules[job](*[self._values[name] for name in part.inputs])
        self._values.update(zip(part.outputs, given, strict=True))
        if job == len(self._parts) - 1:
            self.outputs = [self._values[name].cpu().numpy() for name in self._split.outputs]
            self._values = {}


class JobQueue:
    """A FIFO queue with at most one job of each network, and the pool that empties it.

    Each thread of the pool has a stream; `threads` are those of one inference on the CPU.
    """

    def __init__(
        self, networks: Sequence[QueuedNetwork], device: str, pool: int, threads: int
    ) -> None:
        self._networks = [
            [partial(network.issue, job) for job in range(network.jobs)] for network in networks
        ]
        self._queue = FifoQueue(pool, around=partial(_use_stream, device, threads))
        self._idle: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self.close = self._queue.stop
        self._run(0.0, _WARM_UP_RUNS)

    def measure(self, seconds: float) -> list[Times]:
        """Run all networks side by side: times of single inferences in ns, by network."""
        return [np.array(times, np.int64) for times in self._run(seconds, LEAST_RUNS)]

    def _run(self, seconds: float, least: int) -> list[list[int]]:
        end_ns = time.perf_counter_ns() + round(seconds * 1e9)
        taken: list[list[int]] = [[] for _ in self._networks]

        def begin(index: int) -> None:
            start_ns = time.perf_counter_ns()
            go_on = partial(end, index, start_ns)
            self._queue.submit(str(index), self._networks[index], go_on)

        def end(index: int, start_ns: int, error: Exception | None) -> None:
            now_ns = time.perf_counter_ns()
            taken[index].append(now_ns - start_ns)
            if error is None and (now_ns < end_ns or len(taken[index]) < least):
                begin(index)
            else:
                self._idle.put(error)

        for index in range(len(taken)):
            begin(index)
        errors = [self._idle.get() for _ in taken]
        for error in filter(None, errors):
            raise error
        return taken


@contextmanager
def _use_stream(device: str, threads: int) -> Iterator[Callable[[], object]]:
    """A thread of the pool: with a stream of its own, whose work it sleeps until the end of."""
    torch.set_num_threads(threads)
    if device != "cuda":
        with torch.inference_mode():
            yield lambda: None
        return
    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    done: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    def settle() -> None:
        done.record(stream)
        done.synchronize()

    with torch.inference_mode(), torch.cuda.stream(stream):
        yield settle
