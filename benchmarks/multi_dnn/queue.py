"""The paper's framework: one process, a FIFO queue of jobs, a pool of threads with streams.

A job is a run of consecutive layers. A thread of the pool takes the job that has waited longest,
issues its kernels on its own CUDA stream, sleeps until the device is done, and then the network's
next job goes to the end of the queue (JKICE 26(6), 2022, section 3.2). Two differences, both in
its favour: the thread that finished a job queues the next one itself, where the paper signals a
thread of the network first; and weights are not written to, so nothing is locked.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

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


@dataclass(eq=False)
class _Entry:
    network: QueuedNetwork
    job: int = 0
    start_ns: int = 0
    times: list[int] = field(default_factory=list)


class JobQueue:
    """A FIFO queue with at most one job of each network, and the pool that empties it.

    Each thread of the pool has a stream; `threads` are those of one inference on the CPU.
    """

    def __init__(
        self, networks: Sequence[QueuedNetwork], device: str, pool: int, threads: int
    ) -> None:
        self._entries = [_Entry(network) for network in networks]
        self._device, self._intra = device, threads
        self._jobs: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._end_ns = 0
        self._least = 0
        self._error: Exception | None = None
        self._threads = [
            threading.Thread(target=self._work, name=f"pool-{index}", daemon=True)
            for index in range(pool)
        ]
        for thread in self._threads:
            thread.start()
        self._run(0.0, _WARM_UP_RUNS)

    def measure(self, seconds: float) -> list[Times]:
        """Run all networks side by side: times of single inferences in ns, by network."""
        self._run(seconds, LEAST_RUNS)
        return [np.array(entry.times, np.int64) for entry in self._entries]

    def _run(self, seconds: float, least: int) -> None:
        now_ns = time.perf_counter_ns()
        self._end_ns, self._least = now_ns + round(seconds * 1e9), least
        for entry in self._entries:
            entry.times.clear()
            entry.job, entry.start_ns = 0, time.perf_counter_ns()
            self._jobs.put(entry)
        for _ in self._entries:
            self._idle.acquire()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        cuda = self._device == "cuda"
        torch.set_num_threads(self._intra)
        stream: Any = torch.cuda.Stream() if cuda else None  # type: ignore[no-untyped-call]
        done: Any = torch.cuda.Event(blocking=True) if cuda else None  # type: ignore[no-untyped-call]
        with torch.inference_mode(), torch.cuda.stream(stream):
            while (entry := self._jobs.get()) is not None:
                try:
                    entry.network.issue(entry.job)
                    if cuda:
                        done.record(stream)
                        done.synchronize()
                except Exception as error:  # raised where the round waits
                    self._error = error
                    self._idle.release()
                    continue
                self._go_on(entry)

    def _go_on(self, entry: _Entry) -> None:
        entry.job += 1
        if entry.job == entry.network.jobs:
            now_ns = time.perf_counter_ns()
            entry.times.append(now_ns - entry.start_ns)
            if now_ns >= self._end_ns and len(entry.times) >= self._least:
                self._idle.release()
                return
            entry.job, entry.start_ns = 0, now_ns
        self._jobs.put(entry)

    def close(self) -> None:
        """End the threads and give the networks back."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._entries = []
