"""Workers of a Dask scheduler: on this machine or on others, which may come and go."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib
import platform
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from jetson_dnn_rt import __version__
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.lab.evaluate.chunk import ChunkRequest
from jetson_dnn_rt.lab.evaluate.worker import (
    Answer,
    LostWorkersError,
    RunChunk,
    answer_request,
    describe_request,
)

PATIENCE_S = 60.0
"""So long without a single worker is waited before the rest is given up."""

_TIMEOUTS = (TimeoutError, asyncio.TimeoutError)
"""Two classes in Python 3.10."""
_CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)

_CONNECT_S = 10.0
_QUEUED = 3
"""Requests that are given out for each worker: one is done, the others wait for it."""


def run_with_dask(
    requests: Sequence[ChunkRequest], run: RunChunk, address: str, patience_s: float = PATIENCE_S
) -> Iterator[Answer]:
    """Run requests on the workers of a scheduler; Dask gives those of a lost one to another.

    Only a few requests for each worker are given out at a time, and an answer leaves the fleet's
    memory when it is yielded.

    Raises
    ------
    ConfigurationError
        When Dask is missing, the scheduler does not answer, or a worker has another release.
    SourceError
        When a worker does not see a bag.
    LostWorkersError
        When a request loses its worker `ATTEMPTS` times, or there is none for `patience_s`.
    """
    distributed = _import_distributed()
    with contextlib.ExitStack() as stack:
        try:
            client = stack.enter_context(
                distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
            )
        except (OSError, *_TIMEOUTS, ValueError) as error:
            raise ConfigurationError(
                f"the Dask scheduler at {address} does not answer: {error}"
            ) from error
        _wait_for_worker(client, address, patience_s)
        _check_workers(client, sorted({request.bag for request in requests}))
        try:
            yield from _exchange(client, requests, run, address, patience_s, distributed)
        except (OSError, *_CANCELLED) as error:
            raise LostWorkersError(
                f"the connection to the Dask scheduler at {address} is lost: {error}"
            ) from error


def _exchange(
    client: Any,
    requests: Sequence[ChunkRequest],
    run: RunChunk,
    address: str,
    patience_s: float,
    distributed: Any,
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
            done = _wait_for_some(client, list(given), patience_s, distributed)
        except _TIMEOUTS:
            _wait_for_worker(client, address, patience_s)
            continue
        for future in done:
            yield _take(future, given.pop(future), distributed)


def _wait_for_some(client: Any, futures: list[Any], timeout_s: float, distributed: Any) -> Any:
    with client.as_current():
        return distributed.wait(futures, timeout=timeout_s, return_when="FIRST_COMPLETED").done


def _take(future: Any, request: ChunkRequest, distributed: Any) -> Answer:
    """Fetch an answer, and let the fleet forget it."""
    try:
        answer: Answer = future.result()
    except distributed.KilledWorker as error:
        raise LostWorkersError(
            f"{describe_request(request)}: workers came to an end over them, the last one "
            f"{error.last_worker.address}"
        ) from error
    finally:
        future.release()
    return answer


def _wait_for_worker(client: Any, address: str, patience_s: float) -> None:
    try:
        client.wait_for_workers(1, timeout=patience_s)
    except _TIMEOUTS as error:
        raise LostWorkersError(
            f"the Dask scheduler at {address} has no worker: start some with "
            f"`dask worker {address} --nthreads 1`"
        ) from error


def _check_workers(client: Any, bags: list[str]) -> None:
    """Look beforehand at what would spoil the result or stop everything half-way."""
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
    """Machine, release, and the bags that are not there."""
    return platform.node(), __version__, [bag for bag in bags if not Path(bag).exists()]


def _import_distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise ConfigurationError(
            f"--scheduler needs Dask, which cannot be imported ({error}): "
            "pip install 'jetson_dnn_rt[fleet]'"
        ) from error
