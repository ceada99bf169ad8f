# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Chunks on workers: in this process, in processes of this machine, or on machines through Dask.

All three run one function on one request at a time; only the transport differs. Every request is
answered exactly once: one whose worker is lost is given to another, and an answer that has arrived
is never requested again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib
import multiprocessing
import platform
import signal
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from jetson_dnn_rt import __version__
from jetson_dnn_rt.errors import (
    BackendUnavailableError,
    ConfigurationError,
    JetsonDnnRtError,
    ModelError,
    SourceError,
)
from jetson_dnn_rt.lab.evaluate.chunk import ChunkRequest, ChunkResult
from jetson_dnn_rt.safety.children import safe_spawning

ATTEMPTS = 3
"""A request that has lost this many workers is assumed to kill them."""
PATIENCE_S = 60.0
"""How long to wait without a single Dask worker before giving up."""

_GRACE_S = 5.0
"""How long an idle process may take to exit."""
_CONNECT_S = 10.0
_QUEUED = 3
"""Requests submitted per Dask worker: one is running, the others wait for it."""

_TIMEOUTS = (TimeoutError, asyncio.TimeoutError)
"""Two different classes in Python 3.10."""
_CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)

RunChunk = Callable[[ChunkRequest], ChunkResult]


class LostWorkersError(JetsonDnnRtError):
    """One request lost its worker too often, or no worker is left."""


@dataclass(frozen=True)
class Failure:
    """Error of a worker as class and text: exceptions themselves cannot always be pickled."""

    kind: type[Exception]
    text: str


Answer = ChunkResult | Failure


def evaluate_chunks(
    requests: Sequence[ChunkRequest],
    run: RunChunk,
    *,
    scheduler: str | None = None,
    workers: int = 0,
) -> Iterator[ChunkResult]:
    """Run requests, each exactly once, and yield results as they arrive, in any order.

    `run` (`chunk.run_chunk`) is a function of a module that workers can import. `scheduler` is the
    address of a Dask scheduler, ``tcp://192.168.1.5:8786``; without one `workers` is the number of
    processes on this machine, which disturb each other's times; 0 = in this process.

    Raises
    ------
    ConfigurationError
        When Dask is missing, the scheduler does not answer, or its workers have another release.
    LostWorkersError
        When a request loses its worker `ATTEMPTS` times, or no worker is left.
    SourceError, ConfigurationError, ModelError, BackendUnavailableError
        When a worker cannot open a bag, finds a different number of messages in it, or cannot load
        a task; the text begins with the worker's machine.
    RuntimeError
        When `run` raises another error; contains the traceback of the worker.
    ValueError
        When `workers` is below 0.
    """
    if workers < 0:
        raise ValueError(f"workers must be >= 0: {workers}")
    if scheduler is not None:
        answers = run_with_dask(requests, run, scheduler)
    elif workers:
        answers = run_with_processes(requests, run, workers)
    else:
        answers = (answer_request(run, request) for request in requests)
    for answer in answers:
        if isinstance(answer, Failure):
            raise answer.kind(answer.text)
        yield answer


def answer_request(run: RunChunk, request: ChunkRequest) -> Answer:
    """Run a request on the worker, check that the result is complete, make errors portable."""
    machine, asked = platform.node(), describe_request(request)
    try:
        result = run(request)
    except JetsonDnnRtError as error:
        plain = (SourceError, ConfigurationError, ModelError, BackendUnavailableError)
        kind: type[Exception] = type(error) if type(error) in plain else JetsonDnnRtError
        return Failure(kind, f"{machine}: {error}")
    except Exception:  # unexpected: its traceback helps most
        return Failure(RuntimeError, f"{machine}, {asked}:\n{traceback.format_exc()}")
    found = result.frames + len(result.bad)
    if found != request.count:
        text = f"{machine}: {found} instead of {request.count} in {asked}: is its copy of the bag"
        return Failure(SourceError, f"{text} the same as here?")
    return result


def describe_request(request: ChunkRequest) -> str:
    """Describe a request: ``messages 250 to 499 of /bags/drive``."""
    last = request.first + request.count - 1
    return f"messages {request.first} to {last} of {request.bag}"


# -- Processes of this machine -------------------------------------------------------------------


@dataclass(eq=False)
class _Worker:
    process: SpawnProcess
    connection: Connection
    place: int = -1


def run_with_processes(
    requests: Sequence[ChunkRequest], run: RunChunk, count: int
) -> Iterator[Answer]:
    """Run requests on `count` processes; one that dies is replaced, and its request run again.

    Raises
    ------
    LostWorkersError
        When a request loses its worker `ATTEMPTS` times.
    """
    waiting = deque(range(len(requests)))
    lost: Counter[int] = Counter()
    workers = [_start(run) for _ in range(min(count, len(requests)))]
    try:
        while waiting or any(worker.place >= 0 for worker in workers):
            for worker in workers:
                if worker.place < 0 and waiting:
                    worker.place = waiting.popleft()
                    with contextlib.suppress(OSError):  # it died: the next read notices
                        worker.connection.send(requests[worker.place])
            busy = {w.connection: w for w in workers if w.place >= 0}
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                place, worker.place = worker.place, -1
                try:
                    answer = worker.connection.recv()
                except (EOFError, OSError):
                    workers[workers.index(worker)] = _start(run)
                    ended = _end(worker)
                    lost[place] += 1
                    if lost[place] >= ATTEMPTS:
                        raise LostWorkersError(
                            f"{describe_request(requests[place])}: {ATTEMPTS} workers in a row "
                            f"died on them ({ended})"
                        ) from None
                    waiting.appendleft(place)
                    continue
                yield answer
    finally:
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            _end(worker)


def _start(run: RunChunk) -> _Worker:
    # Spawned, not forked: neither CUDA nor threads of torch survive a fork.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, run), daemon=True)
    with safe_spawning():
        process.start()
    theirs.close()
    return _Worker(process, ours)


def _serve(connection: Connection, run: RunChunk) -> None:
    """Answer requests until the connection closes."""
    # Ctrl-C is for the parent, which then stops its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(answer_request(run, request))


def _end(worker: _Worker) -> str:
    """Wait until a process has exited; return how."""
    worker.connection.close()
    if worker.place >= 0:
        worker.process.kill()
    worker.process.join(_GRACE_S)
    if worker.process.exitcode is None:
        worker.process.kill()
        worker.process.join()
    code = worker.process.exitcode or 0
    worker.process.close()
    if code == -signal.SIGKILL:
        return "killed: often for lack of memory"
    return f"signal {-code}" if code < 0 else f"exit status {code}"


# -- Dask ----------------------------------------------------------------------------------------


def run_with_dask(
    requests: Sequence[ChunkRequest], run: RunChunk, address: str, patience_s: float = PATIENCE_S
) -> Iterator[Answer]:
    """Run requests on the workers of a scheduler; Dask gives those of a lost one to another.

    Only a few requests per worker are submitted at a time, and an answer is released on the
    cluster when it is yielded.

    Raises
    ------
    ConfigurationError
        When Dask is missing, the scheduler does not answer, or a worker has another release.
    SourceError
        When a worker does not see a bag.
    LostWorkersError
        When a request loses its worker too often, or there is no worker for `patience_s`.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        raise ConfigurationError(
            f"--scheduler needs Dask, which cannot be imported ({error}): "
            "pip install 'jetson_dnn_rt[fleet]'"
        ) from error
    with contextlib.ExitStack() as stack:
        try:
            client = stack.enter_context(
                distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
            )
        except (OSError, *_TIMEOUTS, ValueError) as error:
            raise ConfigurationError(
                f"the Dask scheduler at {address} does not answer: {error}"
            ) from error
        _wait_for_worker(client, patience_s)
        _check_workers(client, sorted({request.bag for request in requests}))
        try:
            yield from _exchange(distributed, client, requests, run, patience_s)
        except (OSError, *_CANCELLED) as error:
            raise LostWorkersError(
                f"the connection to the Dask scheduler at {address} is lost: {error}"
            ) from error


def _exchange(
    dask: Any, client: Any, requests: Sequence[ChunkRequest], run: RunChunk, patience_s: float
) -> Iterator[Answer]:
    waiting = iter(requests)
    given: dict[Any, ChunkRequest] = {}
    while True:
        room = _QUEUED * max(1, len(client.nthreads())) - len(given)
        for request in islice(waiting, max(0, room)):
            # Not pure: the same request in two evaluations is two measurements.
            future = client.submit(answer_request, run, request, pure=False)
            given[future] = request
        if not given:
            return
        try:
            with client.as_current():
                first = {"timeout": patience_s, "return_when": "FIRST_COMPLETED"}
                done = dask.wait(list(given), **first).done
        except _TIMEOUTS:
            _wait_for_worker(client, patience_s)
            continue
        for future in done:
            request = given.pop(future)
            try:
                answer: Answer = future.result()
            except dask.KilledWorker as error:
                raise LostWorkersError(
                    f"{describe_request(request)}: workers died on them, the last one "
                    f"{error.last_worker.address}"
                ) from error
            finally:
                future.release()
            yield answer


def _wait_for_worker(client: Any, patience_s: float) -> None:
    try:
        client.wait_for_workers(1, timeout=patience_s)
    except _TIMEOUTS as error:
        address = client.scheduler.address
        raise LostWorkersError(
            f"the Dask scheduler at {address} has no worker: start some with "
            f"`dask worker {address} --nthreads 1`"
        ) from error


def _check_workers(client: Any, bags: list[str]) -> None:
    """Check the workers for problems that would spoil the result or stop the run half-way."""
    try:
        seen = client.run(_describe_worker, bags)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"a worker cannot import the package ({error}): install jetson_dnn_rt[fleet,bags] "
            "there, in the environment of `dask worker`"
        ) from error
    for worker, (machine, release, missing) in seen.items():
        if release != __version__:
            raise ConfigurationError(
                f"worker {worker} on {machine} has jetson_dnn_rt {release}, here it is "
                f"{__version__}: the results would not be of one program"
            )
        if missing:
            raise SourceError(
                f"worker {worker} on {machine} does not see {', '.join(missing)}: make bags "
                "visible on all machines under the same path (a network share, a link)"
            )


def _describe_worker(bags: list[str]) -> tuple[str, str, list[str]]:
    """Return machine, release, and the bags that are not there."""
    return platform.node(), __version__, [bag for bag in bags if not Path(bag).exists()]
