"""Networks in processes of their own, as they run without a scheduler: modes a and b.

Each process holds one network, and calls it again and again, kernel by kernel, as torch comes.
All of them start a round at one barrier. The processes stay from round to round and from row to
row: what is loaded is exchanged, CUDA's context and the imports are paid for once.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness.timing import Times
from benchmarks.multi_dnn.networks import NetworkSpec, load_module, run_outputs
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.safety.children import safe_spawning
from jetson_dnn_rt.variants.decomposition import Ranks

LEAST_RUNS = 3
"""Of each network in a round, however short that is."""

ANSWER_LIMIT_S = 240.0
_WARM_UP_RUNS = 3

Outputs = list[npt.NDArray[Any]]


class ProcessFailedError(JetsonDnnRtError):
    """A process ended, or failed at a request; the text is its message."""


@dataclass(frozen=True)
class Load:
    """What a process loads, under which name, with the ranks of decomposed layers."""

    spec: NetworkSpec
    form: str
    ranks: Mapping[str, Ranks]
    path: Path


class Caller:
    """A network on its device, called with an image that comes from the host each time."""

    def __init__(self, load: Load, device: str) -> None:
        self._module = load_module(load.spec, load.ranks, load.path).to(device)
        self._device = device
        self._image = torch.from_numpy(load.spec.make_image())
        if device == "cuda":
            self._image = self._image.pin_memory()
        for _ in range(_WARM_UP_RUNS):
            self.run()

    def run(self) -> Outputs:
        """From the host to the host."""
        with torch.inference_mode():
            image = self._image.to(self._device, non_blocking=True)
            return [value.cpu().numpy() for value in run_outputs(self._module, image)]


def run_for(run: Callable[[], object], seconds: float) -> Times:
    """Call again and again; a call that begins in time counts, and `LEAST_RUNS` in any case."""
    times: list[int] = []
    end_ns = time.perf_counter_ns() + round(seconds * 1e9)
    while (start_ns := time.perf_counter_ns()) < end_ns or len(times) < LEAST_RUNS:
        run()
        times.append(time.perf_counter_ns() - start_ns)
    return np.array(times, np.int64)


def serve(connection: Connection, barrier: Barrier, device: str, threads: int) -> None:
    """Do what the parent asks, until it asks no more; the target of the processes."""
    torch.set_num_threads(threads)
    callers: dict[str, Caller] = {}
    while True:
        try:
            name, *arguments = connection.recv()
        except EOFError:  # the parent is gone
            return
        try:
            answer: object = None
            if name == "open":
                torch.zeros(1, device=device)
            elif name == "load":
                callers[arguments[0].form] = Caller(arguments[0], device)
            elif name == "drop":
                callers.clear()
                gc.collect()
                if device == "cuda":
                    torch.cuda.empty_cache()
            elif name == "outputs":
                answer = callers[arguments[0]].run()
            elif name == "measure":
                form, seconds = arguments
                caller = callers[form]
                barrier.wait(ANSWER_LIMIT_S)
                answer = run_for(caller.run, seconds)
            else:
                return
        except Exception:
            connection.send((False, traceback.format_exc()))
        else:
            connection.send((True, answer))


class Processes:
    """So many processes, entered when each has its device and its imports."""

    def __init__(self, count: int, device: str, threads: int) -> None:
        # A CUDA context does not survive a fork.
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(count)
        self._processes = []
        self._connections: list[Connection] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=serve, args=(theirs, self._barrier, device, threads), daemon=True
            )
            with safe_spawning():
                process.start()
            theirs.close()
            self._processes.append(process)
            self._connections.append(ours)

    def __len__(self) -> int:
        return len(self._processes)

    def __enter__(self) -> Processes:
        try:
            self._ask([("open",)] * len(self))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def _end(self) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(1.0 if process.is_alive() else None)
            if process.is_alive():
                process.kill()
                process.join()

    def load(self, loads: Sequence[Load]) -> None:
        """Give each process a network, and warm it up."""
        self._ask([("load", load) for load in loads])

    def drop(self) -> None:
        """Give all networks back."""
        self._ask([("drop",)] * len(self))

    def outputs(self, form: str) -> list[Outputs]:
        """What each process' network gives."""
        return self._ask([("outputs", form)] * len(self))

    def measure(self, form: str, seconds: float) -> list[Times]:
        """Run all of them side by side: times of single inferences in ns, by process."""
        return self._ask([("measure", form, seconds)] * len(self))

    def _ask(self, requests: Sequence[tuple[object, ...]]) -> list[Any]:
        answers, failed = [], ""
        try:
            for connection, request in zip(self._connections, requests, strict=True):
                connection.send(request)
            for connection in self._connections:
                if not connection.poll(ANSWER_LIMIT_S):
                    raise ProcessFailedError(f"a process did not answer in {ANSWER_LIMIT_S:g} s")
                done, answer = connection.recv()
                answers.append(answer)
                if not done:
                    failed = failed or str(answer)
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise ProcessFailedError("a process ended (see its messages above)") from error
        if failed:
            raise ProcessFailedError(f"a process failed: {failed.strip().splitlines()[-1]}")
        return answers
