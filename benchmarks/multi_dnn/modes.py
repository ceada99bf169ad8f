# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Modes of running networks side by side: in processes, in the paper's queue, in our executor.

Every mode keeps one frame of each network in flight; a time goes from the input on the host to the
outputs on the host.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import queue
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness.queue import FifoQueue
from benchmarks.harness.timing import Times, measure_rounds, quantile_ms
from benchmarks.multi_dnn.networks import (
    NetworkSpec,
    Prepared,
    load_module,
    load_part,
    run_outputs,
)
from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import create_runner, inspect_backend
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.graph.splitting import Split
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.safety.children import safe_spawning
from jetson_dnn_rt.tasks import JobRecord, Outcome, Stage, TaskParameters, Work
from jetson_dnn_rt.variants.decomposition import Ranks
from jetson_dnn_rt.variants.turns import compare

LEAST_RUNS = 3
"""Minimum runs of each network in a round, however short the round."""

LIMIT_S = 240.0
"""Time limit for an answer of a process, or for the end of all frames."""

_WARM_UP_RUNS = 3

Outputs = list[npt.NDArray[Any]]


# -- modes a, b and e: a process for each network ------------------------------------------------


class ProcessFailedError(JetsonDnnRtError):
    """A process exited, or failed at a request; the text is its message."""


@dataclass(frozen=True)
class Variant:
    """Variant of a network, as ``full@torch-fp16``, and its time alone."""

    form: str
    backend: str
    precision: str
    alone_ms: float = 0.0

    @property
    def name(self) -> str:
        """Name of the variant, as in the package."""
        form = "full" if self.form == "original" else self.form
        return f"{form}@{self.backend}-{self.precision}"


@dataclass(frozen=True)
class Load:
    """Network for a process to load, with its name and the ranks of decomposed layers.

    With a variant, which is of the original network, its back end runs it, and else plain torch.
    """

    spec: NetworkSpec
    form: str
    ranks: Mapping[str, Ranks]
    path: Path
    variant: Variant | None = None


class Caller:
    """Network on its device, called with an image from the host each time."""

    def __init__(self, load: Load, device: str) -> None:
        self._module = load_module(load.spec, load.ranks, load.path).to(device)
        self._device = device
        self._image = _pin(load.spec.make_image(), device)
        for _ in range(_WARM_UP_RUNS):
            self.run()

    def run(self) -> Outputs:
        """Run once, from the input on the host to the outputs on the host."""
        with torch.inference_mode():
            image = self._image.to(self._device, non_blocking=True)
            return [value.cpu().numpy() for value in run_outputs(self._module, image)]

    def close(self) -> None:
        """Release nothing: the module goes with this object."""


class BackendCaller:
    """Network on a back end of the package, without its executor."""

    def __init__(self, load: Load, threads: int) -> None:
        assert load.variant is not None
        part = load_part(load.spec, load.path)
        variant = load.variant
        self._runner = create_runner(part, variant.backend, variant.precision, threads=threads)
        self._image = _fill_input(self._runner, load.spec.make_image())
        for _ in range(_WARM_UP_RUNS):
            self.run()

    def run(self) -> Outputs:
        """Run once, from the input buffer to the outputs on the host."""
        return _run_once(self._runner, self._image)

    def close(self) -> None:
        """Release the runner."""
        self._runner.close()


def _pin(image: npt.NDArray[np.float32], device: str) -> torch.Tensor:
    tensor = torch.from_numpy(image)
    return tensor.pin_memory() if device == "cuda" else tensor


def run_for(run: Callable[[], object], seconds: float) -> Times:
    """Call repeatedly; calls that begin in time count, and at least `LEAST_RUNS`."""
    times: list[int] = []
    end_ns = time.perf_counter_ns() + round(seconds * 1e9)
    while (start_ns := time.perf_counter_ns()) < end_ns or len(times) < LEAST_RUNS:
        run()
        times.append(time.perf_counter_ns() - start_ns)
    return np.array(times, np.int64)


def serve(connection: Connection, barrier: Barrier, device: str, threads: int) -> None:
    """Serve requests of the parent until it closes the connection; target of the processes."""
    torch.set_num_threads(threads)
    callers: dict[str, Caller | BackendCaller] = {}

    def open_device() -> None:
        torch.zeros(1, device=device)

    def load(what: Load) -> None:
        plain = what.variant is None
        callers[what.form] = Caller(what, device) if plain else BackendCaller(what, threads)

    def drop() -> None:
        for caller in callers.values():
            caller.close()
        callers.clear()
        free_device_memory(device)

    def measure(form: str, seconds: float) -> Times:
        barrier.wait(LIMIT_S)
        return run_for(callers[form].run, seconds)

    answers: dict[str, Callable[..., object]] = {
        "open": open_device,
        "load": load,
        "drop": drop,
        "outputs": lambda form: callers[form].run(),
        "measure": measure,
    }
    while True:
        try:
            name, *arguments = connection.recv()
        except EOFError:  # the parent is gone
            return
        try:
            answer = answers[name](*arguments)
        except Exception:
            connection.send((False, traceback.format_exc()))
        else:
            connection.send((True, answer))


class Processes:
    """Processes of modes a, b and e; the context is entered when each has its device and imports.

    Each holds networks, and calls one repeatedly, in plain torch, kernel by kernel, or on a back
    end; all of them start a round at one barrier. They stay from row to row: the networks are
    exchanged, CUDA's context and the imports are paid for once.
    """

    def __init__(self, count: int, device: str, threads: int) -> None:
        # A CUDA context does not survive a fork.
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(count)  # kept until all have received it
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
            self.ask("open")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
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

    def ask(self, *request: object) -> list[Any]:
        """Send one request to all processes; return their answers.

        ``outputs FORM``; ``measure FORM SECONDS``, side by side: times of single inferences in
        ns; ``drop``: release all networks.
        """
        return self._ask([request] * len(self))

    def _ask(self, requests: Sequence[tuple[object, ...]]) -> list[Any]:
        answers, failed = [], ""
        try:
            for connection, request in zip(self._connections, requests, strict=True):
                connection.send(request)
            for connection in self._connections:
                if not connection.poll(LIMIT_S):
                    raise ProcessFailedError(f"a process did not answer in {LIMIT_S:g} s")
                done, answer = connection.recv()
                answers.append(answer)
                if not done:
                    failed = failed or str(answer)
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise ProcessFailedError("a process ended (see its messages above)") from error
        if failed:
            raise ProcessFailedError(f"a process failed: {failed.strip().splitlines()[-1]}")
        return answers


# -- one process: frames in flight ---------------------------------------------------------------


class MissedError(JetsonDnnRtError):
    """A frame was not met, so the times are not of finished inferences."""


class ClosedLoop:
    """Loop with one frame of each network always in flight.

    Frames are submitted by ``submit(index, number)``; whoever runs them calls `ended`.
    """

    def __init__(self, count: int, submit: Callable[[int, int], object]) -> None:
        self._submit = submit
        self._start_ns = [0] * count
        self._idle: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def run(self, seconds: float, least: int = LEAST_RUNS) -> list[Times]:
        """Run; return times from submission of a frame to its result, in ns by network."""
        self._least = least
        self._taken: list[list[int]] = [[] for _ in self._start_ns]
        self._end_ns = time.perf_counter_ns() + round(seconds * 1e9)
        for index in range(len(self._taken)):
            self._begin(index)
        try:
            errors = [self._idle.get(timeout=LIMIT_S + seconds) for _ in self._taken]
        except queue.Empty:
            raise MissedError(f"a frame did not end in {LIMIT_S + seconds:g} s") from None
        for error in filter(None, errors):
            raise error
        return [np.array(times, np.int64) for times in self._taken]

    def _begin(self, index: int) -> None:
        self._start_ns[index] = time.perf_counter_ns()
        self._submit(index, len(self._taken[index]))

    def ended(self, index: int, error: Exception | None = None) -> None:
        """Record the end of a network's frame; submit its next one, while there is time."""
        now_ns, taken = time.perf_counter_ns(), self._taken[index]
        taken.append(now_ns - self._start_ns[index])
        if error is None and (now_ns < self._end_ns or len(taken) < self._least):
            self._begin(index)
        else:
            self._idle.put(error)


# -- modes c and d: the paper's queue ------------------------------------------------------------


class QueuedNetwork:
    """Network as jobs, with its own weights on the device; runs on one image."""

    def __init__(self, split: Split, image: npt.NDArray[np.float32], device: str) -> None:
        self._split, self._device, self._parts = split, device, split.parts
        # One copy of all jobs: weights that two of them share stay shared.
        whole = torch.nn.ModuleList([part.torch_module() for part in self._parts]).to(device)
        self._modules: list[Any] = [module.eval() for module in whole]
        self._image = _pin(image, device)
        self._values: dict[str, torch.Tensor] = {}
        self.outputs: Outputs = []
        self.jobs = [partial(self._issue, job) for job in range(len(self._parts))]

    def _issue(self, job: int) -> None:
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
    """The paper's framework: a FIFO queue with at most one job of each network, and a pool.

    A job is a run of consecutive layers. A thread of the pool takes the job that has waited
    longest, issues its kernels on its own CUDA stream, sleeps until the device is done, and then
    the network's next job goes to the end of the queue (JKICE 26(6), 2022, section 3.2). There are
    two differences, both in its favour: the thread that finished a job queues the next one itself,
    where the paper signals a thread of the network first; and weights are read-only, so nothing is
    locked. `threads` are those of one inference on the CPU.
    """

    def __init__(
        self, networks: Sequence[QueuedNetwork], device: str, pool: int, threads: int
    ) -> None:
        fifo = FifoQueue(pool, around=partial(_use_stream, device, threads))

        def submit(index: int, number: int) -> None:
            fifo.submit(str(index), networks[index].jobs, partial(self._loop.ended, index))

        self._loop = ClosedLoop(len(networks), submit)
        self.close, self.measure = fifo.stop, self._loop.run
        self.measure(0.0, _WARM_UP_RUNS)


@contextmanager
def _use_stream(device: str, threads: int) -> Iterator[Callable[[], object]]:
    """Give a thread of the pool its own stream; it sleeps until the stream's work is done."""
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


# -- modes f and g: this package -----------------------------------------------------------------

BACKENDS = {"cpu": ("openvino", "onnxruntime", "torch"), "cuda": ("torch",)}
"""Back ends that modes e to g try by default; TensorRT takes minutes to build these networks."""

DEADLINES = 20
"""Relative deadline, as a multiple of the time of all networks one after the other. It is the same
for all: each submits its next frame at once, and a shorter deadline would starve the rest."""

_LEAST_DEADLINE_NS = 200_000_000

_SPLIT_S, _SPLIT_MARGIN = 10.0, 0.01
"""Time for one comparison of two splits, and the share of the time that a better one may be better
and is not taken."""


def list_variants(form: str, backends: Sequence[str]) -> list[Variant]:
    """List all variants of a form that could run here."""
    found = []
    for info in map(inspect_backend, backends):
        precisions = info.precisions if info.available else ()
        found += [Variant(form, info.name, precision) for precision in precisions]
    return found


def make_runner(prepared: Prepared, variant: Variant, threads: int) -> Runner:
    """Make a separate runner for the whole network."""
    part = prepared.part(variant.form)
    return create_runner(part, variant.backend, variant.precision, threads=threads)


def time_variants(
    prepared: Prepared, variants: Sequence[Variant], threads: int, seconds: float
) -> dict[str, float | str]:
    """Run all in turn, alone; return medians in ms by name.

    A variant that cannot run here has a text in place of the median.
    """
    image = prepared.spec.make_image()
    calls: dict[str, Callable[[], object]] = {}
    tried: dict[str, float | str] = {}
    with ExitStack() as stack:
        for variant in variants:
            try:
                runner = make_runner(prepared, variant, threads)
            except JetsonDnnRtError as error:
                tried[variant.name] = str(error)
                continue
            stack.callback(runner.close)
            calls[variant.name] = partial(_run_once, runner, _fill_input(runner, image))
        times = measure_rounds(calls, budget_s=seconds, least=3, most=200)
    return tried | {name: round(quantile_ms(taken, 0.5), 4) for name, taken in times.items()}


def time_solo(spec: NetworkSpec, path: Path, device: str, threads: int, seconds: float) -> float:
    """Run the original network in plain torch, alone; return the median in ms."""
    torch.set_num_threads(threads)
    caller = Caller(Load(spec, "original", {}, path), device)
    return quantile_ms(run_for(caller.run, seconds), 0.5)


def choose_variant(
    variants: Sequence[Variant], times_ms: Mapping[str, float | str]
) -> Variant | None:
    """Choose the fastest of the variants that ran; None where none did."""
    ran = [
        replace(variant, alone_ms=time_ms)
        for variant in variants
        if isinstance(time_ms := times_ms[variant.name], float)
    ]
    return min(ran, key=lambda variant: variant.alone_ms, default=None)


def _fill_input(runner: Runner, image: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    buffer = runner.allocate_input()
    np.copyto(buffer, image)
    return buffer


def _run_once(runner: Runner, image: npt.NDArray[np.float32]) -> Outputs:
    return list(runner.to_host(runner.queue([image])))


class ScheduledNetwork:
    """Task: a runner with weights and buffers of its own, and the last outputs."""

    def __init__(self, prepared: Prepared, variant: Variant, threads: int, name: str) -> None:
        self.name, self.variant = name, variant
        self._runner = make_runner(prepared, variant, threads)
        self.device = self._runner.device
        self.cuda_graph: bool | None = getattr(self._runner, "cuda_graph", None)
        self.close = self._runner.close
        self._image = _fill_input(self._runner, prepared.spec.make_image())
        self.outputs = _run_once(self._runner, self._image)

    def run(self, work: Work) -> None:
        """Run the only stage of the task: from the input buffer to outputs on the host."""
        self._runner.urgency = work.urgency
        self.outputs = _run_once(self._runner, self._image)


def measure_scheduled(
    networks: Sequence[ScheduledNetwork], workers: int, seconds: float
) -> list[Times]:
    """Run the executor with a task for each network; see `ClosedLoop.run`.

    A network's next frame is submitted as soon as the outputs of the last are on the host, by the
    worker that ran it, as the processes and the queue do. `MissedError` when one was not met.
    """
    # Not a session: a task here is one call of a runner, and needs only torch and numpy.
    executor = Executor(workers)
    places = {network.name: index for index, network in enumerate(networks)}
    pixel = np.zeros((1, 1, 3), np.uint8)
    missed: list[MissedError] = []

    def submit(index: int, number: int) -> None:
        frame = Frame(pixel, "rgb8", 0, number)
        executor.submit(networks[index].name, frame, executor.clock.now_ns())

    def run(index: int, work: Work) -> None:
        networks[index].run(work)
        loop.ended(index)

    def take(record: JobRecord, work: Work) -> None:
        """Observer of all tasks; called on one thread."""
        if record.outcome is not Outcome.MET:
            why = f"{record.task}: {record.outcome.value} {record.reason}".strip()
            missed.append(MissedError(f"frames that were not met: {why}"))
            loop.ended(places[record.task], missed[-1])

    total_ns = round(sum(network.variant.alone_ms for network in networks) * 1e6)
    deadline_ns = max(_LEAST_DEADLINE_NS, DEADLINES * total_ns)
    for index, network in enumerate(networks):
        variant = network.variant.name
        parameters = TaskParameters(
            network.name, deadline_ns, max(1, total_ns), ("inference",), (variant,), variant
        )
        stage = Stage("inference", partial(run, index), device=network.device)
        executor.add_task(parameters, {variant: (stage,)}, take)
    loop = ClosedLoop(len(networks), submit)
    was_enabled = gc.isenabled()
    executor.start()
    try:
        times = loop.run(seconds)
        executor.wait_idle(LIMIT_S)  # what became of the last frames is told after them
    finally:
        executor.stop()
        if was_enabled:
            gc.enable()
    if missed:
        raise missed[0]
    return times


def list_splits(device: str, count: int, cores: int) -> list[tuple[int, int]]:
    """List the pairs of workers and threads to try.

    On a GPU a worker has a stream and mostly sleeps; on a CPU their product is the cores.
    """
    if device == "cuda":
        return [(workers, 1) for workers in dict.fromkeys((count, max(1, count // 2), 2, 1))]
    return [(n, cores // n) for n in range(1, min(cores, count) + 1) if cores % n == 0]


class Ours:
    """Networks of a row, loaded once, with the workers (and threads) that did best.

    The splits of the cores are compared in turns, each for some `seconds` a round with all
    networks side by side; the first is kept unless another one is found better.
    """

    def __init__(
        self, pairs: Sequence[tuple[Prepared, Variant]], device: str, cores: int, seconds: float
    ) -> None:
        self.tried: dict[str, float] = {}
        """Mean time of a network in ms by ``workers x threads``."""
        self.decided: dict[str, bool | None] = {}
        """Whether a split is better than those before it; None = not decided."""
        self._pairs, self._seconds = pairs, seconds
        self._loaded: dict[int, list[ScheduledNetwork]] = {}  # by threads
        self.split, *others = list_splits(device, len(pairs), cores)
        try:
            for rival in others:
                if self._is_better(rival):
                    self.split = rival
            self.networks = self._load(self.split[1])
            for threads in [*self._loaded]:
                if threads != self.split[1]:
                    self._close(threads)
        except BaseException:
            self.close()
            raise

    def _is_better(self, rival: tuple[int, int]) -> bool:
        """Compare a split with the present one."""
        for split in (self.split, rival):
            self._score(split)  # networks are loaded, first runs are cold
        end_s = time.monotonic() + _SPLIT_S
        names = [f"{workers} x {threads}" for workers, threads in (self.split, rival)]
        found = compare(
            partial(self._score, self.split),
            partial(self._score, rival),
            _SPLIT_MARGIN,
            lambda: time.monotonic() < end_s,
        )
        for name, score in zip(names, (found.kept, found.rival), strict=True):
            self.tried[name] = round(math.exp(-score), 3)
        self.decided[names[1]] = found.is_better
        return found.is_better is True

    def _score(self, split: tuple[int, int]) -> float:
        """The higher, the quicker; a margin is a share of the time."""
        workers, threads = split
        times = measure_scheduled(self._load(threads), workers, self._seconds)
        return -math.log(float(np.mean([np.median(taken) for taken in times])) * 1e-6)

    def _load(self, threads: int) -> list[ScheduledNetwork]:
        if threads not in self._loaded:
            networks = self._loaded[threads] = []
            for index, pair in enumerate(self._pairs):
                networks.append(ScheduledNetwork(*pair, threads, f"dnn-{index}"))
        return self._loaded[threads]

    def _close(self, threads: int) -> None:
        for network in self._loaded.pop(threads):
            network.close()

    def measure(self, seconds: float) -> list[Times]:
        """See `measure_scheduled`."""
        return measure_scheduled(self.networks, self.split[0], seconds)

    def close(self) -> None:
        """Close all runners."""
        for threads in [*self._loaded]:
            self._close(threads)


def free_device_memory(device: str) -> int:
    """Free bytes on the device, after a garbage collection; 0 on the CPU."""
    gc.collect()
    if device != "cuda":
        return 0
    cuda: Any = torch.cuda
    cuda.synchronize()
    cuda.empty_cache()
    return int(cuda.mem_get_info()[0])
