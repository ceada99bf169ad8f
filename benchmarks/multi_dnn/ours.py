"""The networks as this package runs them: measured variants, CUDA graphs, the executor with EDF.

The variant of each network is the one that was fastest when all of them ran in turn, alone: in
full or decomposed, in each precision and on each back end that is here. How many workers there
are (and, on a CPU, how many threads each) is tried with all networks side by side.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness.timing import Times, measure_rounds, quantile_ms
from benchmarks.multi_dnn.networks import NetworkSpec, Prepared
from benchmarks.multi_dnn.processes import LEAST_RUNS, Outputs
from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import create_runner, inspect_backend
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.tasks import JobRecord, Outcome, Stage, TaskParameters, Work

BACKENDS = {"cpu": ("openvino", "onnxruntime", "torch"), "cuda": ("torch",)}
"""What is tried unless asked otherwise; TensorRT takes minutes to build these networks."""

DEADLINES = 20
"""The relative deadline, in times that all networks take one after the other. It is the same for
all: each hands in its next frame at once, and one of a shorter deadline would starve the rest."""

_LEAST_DEADLINE_NS = 200_000_000
_WAIT_S = 240.0


class MissedError(JetsonDnnRtError):
    """A frame ended otherwise than met, so the times are not of finished inferences."""


@dataclass(frozen=True)
class Variant:
    """How a network runs: ``full@torch-fp16``, and its time alone."""

    form: str
    backend: str
    precision: str
    alone_ms: float = 0.0

    @property
    def name(self) -> str:
        """As the package names variants."""
        return f"{'full' if self.form == 'original' else 'tucker'}@{self.backend}-{self.precision}"


def list_variants(prepared: Prepared, backends: Sequence[str]) -> list[Variant]:
    """All that could run here."""
    forms = ("original", "tucker") if prepared.ranks else ("original",)
    found = []
    for backend in backends:
        info = inspect_backend(backend)
        precisions = info.precisions if info.available else ()
        found += [Variant(form, backend, precision) for precision in precisions for form in forms]
    return found


def make_runner(prepared: Prepared, variant: Variant, threads: int) -> Runner:
    """A runner of one's own for the whole network."""
    part = prepared.part(variant.form)
    return create_runner(part, variant.backend, variant.precision, threads=threads)


def choose_variant(
    prepared: Prepared, variants: Sequence[Variant], threads: int, seconds: float
) -> tuple[Variant, dict[str, float | str]]:
    """Run all in turn, alone: the fastest by the median, and medians in ms by name.

    A variant that cannot run here has a text instead.
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
    medians = {name: quantile_ms(taken, 0.5) for name, taken in times.items()}
    tried.update({name: round(value, 4) for name, value in medians.items()})
    best = min(medians, key=medians.__getitem__)
    chosen = next(variant for variant in variants if variant.name == best)
    return replace(chosen, alone_ms=medians[best]), tried


def _fill_input(runner: Runner, image: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    buffer = runner.allocate_input()
    np.copyto(buffer, image)
    return buffer


def _run_once(runner: Runner, image: npt.NDArray[np.float32]) -> Outputs:
    return list(runner.to_host(runner.queue([image])))


class ScheduledNetwork:
    """A task: a runner with weights and buffers of its own, and the last outputs."""

    def __init__(self, prepared: Prepared, variant: Variant, threads: int, name: str) -> None:
        self.name, self.variant = name, variant
        self._runner = make_runner(prepared, variant, threads)
        self.device = self._runner.device
        self.cuda_graph: bool | None = getattr(self._runner, "cuda_graph", None)
        self.close = self._runner.close
        self._image = _fill_input(self._runner, prepared.spec.make_image())
        self.outputs: Outputs = []
        self.run(Work(_make_frame(0)))

    def run(self, work: Work) -> None:
        """The one stage of the task: from the input buffer to outputs on the host."""
        self._runner.urgency = work.urgency
        self.outputs = _run_once(self._runner, self._image)


def measure_scheduled(
    networks: Sequence[ScheduledNetwork], workers: int, seconds: float
) -> list[Times]:
    """Run the executor with a task for each network, each with one frame in flight all the time.

    Times are from handing in a frame to its result, by network; `MissedError` when a frame was not
    met.
    """
    # Not a session: a task here is one call of a runner, and torch and numpy are all there is.
    executor = Executor(workers)
    times: dict[str, list[int]] = {network.name: [] for network in networks}
    start_ns: dict[str, int] = {}
    missed: list[str] = []
    done = threading.Semaphore(0)
    end_ns = 0

    def submit(name: str) -> None:
        frame = _make_frame(len(times[name]))
        start_ns[name] = time.perf_counter_ns()
        executor.submit(name, frame, executor.clock.now_ns())

    def take(record: JobRecord, work: Work) -> None:
        """Observer of all tasks; called on one thread."""
        now_ns = time.perf_counter_ns()
        taken = times[record.task]
        taken.append(now_ns - start_ns[record.task])
        if record.outcome is not Outcome.MET:
            missed.append(f"{record.task}: {record.outcome.value} {record.reason}".strip())
        if not missed and (now_ns < end_ns or len(taken) < LEAST_RUNS):
            submit(record.task)
        else:
            done.release()

    total_ns = round(sum(network.variant.alone_ms for network in networks) * 1e6)
    deadline_ns = max(_LEAST_DEADLINE_NS, DEADLINES * total_ns)
    for network in networks:
        variant = network.variant.name
        parameters = TaskParameters(
            network.name, deadline_ns, max(1, total_ns), ("inference",), (variant,), variant
        )
        stage = Stage("inference", network.run, device=network.device)
        executor.add_task(parameters, {variant: (stage,)}, take)
    was_enabled = gc.isenabled()
    executor.start()
    try:
        end_ns = time.perf_counter_ns() + round(seconds * 1e9)
        for name in times:
            submit(name)
        for _ in times:
            if not done.acquire(timeout=_WAIT_S + seconds):
                raise MissedError(f"the executor did not end in {_WAIT_S + seconds:g} s")
    finally:
        executor.stop()
        if was_enabled:
            gc.enable()
    if missed:
        raise MissedError(f"frames that were not met: {missed[-1]}")
    return [np.array(taken, np.int64) for taken in times.values()]


def _make_frame(sequence: int) -> Frame:
    return Frame(np.zeros((1, 1, 3), np.uint8), "rgb8", 0, sequence)


def list_splits(device: str, count: int, cores: int) -> list[tuple[int, int]]:
    """Pairs of workers and threads that are tried.

    On a GPU a worker has a stream and mostly sleeps; on a CPU their product is the cores.
    """
    if device == "cuda":
        return [(workers, 1) for workers in dict.fromkeys((count, max(1, count // 2), 2, 1))]
    return [
        (workers, cores // workers)
        for workers in range(1, min(cores, count) + 1)
        if cores % workers == 0
    ]


class Ours:
    """All networks of a row, loaded once, with the workers that did best.

    Each split of the cores is tried for so many `seconds`.
    """

    def __init__(
        self,
        prepared: Sequence[Prepared],
        variants: Mapping[NetworkSpec, Variant],
        device: str,
        cores: int,
        seconds: float,
    ) -> None:
        self.tried: dict[str, float] = {}
        """Mean time of a network in ms by ``workers x threads``."""
        self.networks: list[ScheduledNetwork] = []
        self._threads = 0
        self._make = [
            partial(ScheduledNetwork, network, variants[network.spec], name=f"dnn-{index}")
            for index, network in enumerate(prepared)
        ]
        found: list[tuple[float, tuple[int, int]]] = []
        for split in list_splits(device, len(prepared), cores):
            self._load(split[1])
            times = measure_scheduled(self.networks, split[0], seconds)
            mean_ms = float(np.mean([np.median(taken) for taken in times])) * 1e-6
            self.tried[f"{split[0]} x {split[1]}"] = round(mean_ms, 3)
            found.append((mean_ms, split))
        self.split = min(found)[1]
        self._load(self.split[1])

    def _load(self, threads: int) -> None:
        if self.networks and self._threads == threads:
            return
        self.close()
        self._threads = threads
        for make in self._make:
            self.networks.append(make(threads=threads))

    def measure(self, seconds: float) -> list[Times]:
        """See `measure_scheduled`."""
        return measure_scheduled(self.networks, self.split[0], seconds)

    def close(self) -> None:
        """Give all runners back."""
        for network in self.networks:
            network.close()
        self.networks.clear()


def free_device_memory(device: str) -> int:
    """Bytes that are free on the device, after a collection of garbage; 0 on the CPU."""
    gc.collect()
    if device != "cuda":
        return 0
    cuda: Any = torch.cuda
    cuda.synchronize()
    cuda.empty_cache()
    return int(cuda.mem_get_info()[0])
