"""What runs beside while times are measured: a worst case seen on an idle board is not one.

==============  ================================================================================
``cpu``         a busy process for each core
``memory``      processes that copy blocks larger than any cache, on the cores the task leaves free
``gpu``         a process that multiplies matrices on the GPU
``cohort:N``    N - 1 other tasks, on threads of this process, without a pause
==============  ================================================================================
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.profile.interference import cpu_load
from jetson_dnn_rt.lab.profile.load_process import READY
from jetson_dnn_rt.safety.children import CHILD_FOLDER, child_environment, python_command
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running.pipeline import Pipeline

CPU, MEMORY, GPU, COHORT = "cpu", "memory", "gpu", "cohort"

_END_LIMIT_S = 10.0


@dataclass
class CoRunners:
    """A load while it lasts.

    Attributes
    ----------
    kind : str
        Of the table above.
    count : int
        Processes or threads.
    rate : float or None
        What they did together, once the load has ended; None where nothing is counted.
    unit : str
        Of the rate: ``GB/s``, ``TFLOP/s`` or ``frames/s``.
    """

    kind: str
    count: int
    rate: float | None = None
    unit: str = ""
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _failures: list[BaseException] = field(default_factory=list)

    def check(self) -> None:
        """Raise when one of them has ended: what was measured meanwhile is of no use.

        Raises
        ------
        ModelError
            With what is known of the end.
        """
        if self._failures:
            raise ModelError(f"a co-runner failed: {self._failures[0]}") from self._failures[0]
        codes = [p.poll() for p in self._processes]
        ended = [code for code in codes if code is not None]
        if ended:
            raise ModelError(
                f"{len(ended)} of {self.count} co-runners ({self.kind}) ended while times were "
                f"measured, exit code {ended[0]}"
            )


def count_processes(kind: str, threads: int) -> int:
    """How many co-runners of a kind leave the question fair on this machine.

    Parameters
    ----------
    kind : str
        ``cpu``, ``memory`` or ``gpu``.
    threads : int
        Of one inference: so many cores are the task's own, as far as there are others.
    """
    cores = len(os.sched_getaffinity(0))
    if kind == CPU:
        return cores
    return max(1, cores - threads) if kind == MEMORY else 1


@contextlib.contextmanager
def run_load(kind: str, threads: int = 1, count: int | None = None) -> Iterator[CoRunners]:
    """Keep CPU, memory or GPU busy from other processes while the context lasts.

    Parameters
    ----------
    kind : str
        ``cpu``, ``memory`` or ``gpu``.
    threads : int
        Of one inference of the task that is measured.
    count : int, optional
        Processes; by default what `count_processes` says.

    Raises
    ------
    ConfigurationError
        When there is no GPU that torch sees.
    ModelError
        When a process does not start.
    """
    load = CoRunners(kind, count or count_processes(kind, threads))
    if kind == CPU:
        with cpu_load(load.count) as processes:
            load._processes = processes
            yield load
        return
    command = python_command("jetson_dnn_rt.lab.profile.load_process", kind)
    try:
        for _ in range(load.count):
            load._processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    cwd=CHILD_FOLDER,
                    env=child_environment(),
                )
            )
        for process in load._processes:
            _wait_until_ready(process, kind)
        yield load
    finally:
        _end(load)


def _wait_until_ready(process: subprocess.Popen[bytes], kind: str) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() == READY.encode():
        return
    code = process.wait()
    if kind == GPU and code == 3:
        raise ConfigurationError("interference gpu: torch sees no CUDA device here")
    raise ModelError(f"a co-runner ({kind}) did not start, exit code {code}")


def _end(load: CoRunners) -> None:
    """Let them say what they did, and kill those that do not end."""
    rates = []
    for process in load._processes:
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.stdin = None
    for process in load._processes:
        try:
            output, _ = process.communicate(timeout=_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            continue
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = json.loads(output)
            rates.append(float(said["rate"]))
            load.unit = str(said["unit"])
    load.rate = sum(rates) if rates else None


@contextlib.contextmanager
def run_cohort(pipelines: Sequence[Pipeline], frames: Sequence[Frame]) -> Iterator[CoRunners]:
    """Keep tasks busy on threads of this process while the context lasts.

    Parameters
    ----------
    pipelines : sequence of Pipeline
        The co-runners, that share no memory with each other nor with what is measured.
    frames : sequence of Frame
        Taken in turn by each.

    Raises
    ------
    ModelError
        When one fails in its first frame; later failures are `CoRunners.check`'s.
    """
    load = CoRunners(f"{COHORT}:{len(pipelines) + 1}", len(pipelines), unit="frames/s")
    stop = threading.Event()
    ready = threading.Barrier(len(pipelines) + 1)
    ran = [0] * len(pipelines)

    def run(number: int, pipeline: Pipeline) -> None:
        try:
            pipeline.run(Work(frames[0]))
            ready.wait()
            while not stop.is_set():
                ran[number] += 1
                pipeline.run(Work(frames[ran[number] % len(frames)]))
        except threading.BrokenBarrierError:
            pass
        except Exception as error:
            load._failures.append(error)
            ready.abort()

    threads = [
        threading.Thread(target=run, args=pair, name=f"co-runner-{pair[0]}", daemon=True)
        for pair in enumerate(pipelines)
    ]
    begin_s = time.monotonic()
    for thread in threads:
        thread.start()
    try:
        with contextlib.suppress(threading.BrokenBarrierError):
            ready.wait()
        load.check()
        yield load
    finally:
        stop.set()
        ready.abort()
        for thread in threads:
            thread.join()
        load.rate = sum(ran) / (time.monotonic() - begin_s)
