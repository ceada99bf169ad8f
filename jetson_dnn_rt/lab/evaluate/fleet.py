"""Chunks of bags on many workers: here, on processes of this machine, or on machines through Dask.

All three run one function on one request at a time; only the way there and back differs. Every
request is answered exactly once: one whose worker is lost is given to another, and an answer that
has arrived is never asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from jetson_dnn_rt.lab.evaluate.chunk import ChunkRequest, ChunkResult
from jetson_dnn_rt.lab.evaluate.dask_workers import run_with_dask
from jetson_dnn_rt.lab.evaluate.local_workers import run_with_processes
from jetson_dnn_rt.lab.evaluate.worker import Answer, Failure, RunChunk, answer_request


def evaluate_chunks(
    requests: Sequence[ChunkRequest],
    run: RunChunk,
    *,
    scheduler: str | None = None,
    workers: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[ChunkResult]:
    """Run requests, each exactly once, in any order.

    Parameters
    ----------
    requests : sequence of ChunkRequest
        Bags by their paths as the workers see them.
    run : callable
        `evaluation.sequential.run_chunk`; a function of a module that workers can import.
    scheduler : str, optional
        Address of a Dask scheduler, ``tcp://192.168.1.5:8786``.
    workers : int
        Without a scheduler: processes on this machine, which disturb each other's times; 0 = in
        this process.
    progress : callable, optional
        Called with the number of answers and of requests, first with 0.

    Yields
    ------
    ChunkResult
        As they arrive.

    Raises
    ------
    ConfigurationError
        When Dask is missing, the scheduler does not answer, or its workers have another release.
    LostWorkersError
        When a request loses its worker `worker.ATTEMPTS` times, or no worker is left.
    SourceError, ConfigurationError, ModelError, BackendUnavailableError
        When a worker cannot open a bag, finds another number of messages in it, or cannot load a
        task; the text begins with the worker's machine.
    RuntimeError
        When `run` raises what is none of the package's errors; with the traceback of the worker.
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
        answers = _run_here(requests, run)
    if progress is not None:
        progress(0, len(requests))
    for done, answer in enumerate(answers, start=1):
        if isinstance(answer, Failure):
            raise answer.kind(answer.text)
        if progress is not None:
            progress(done, len(requests))
        yield answer


def _run_here(requests: Sequence[ChunkRequest], run: RunChunk) -> Iterator[Answer]:
    for request in requests:
        yield answer_request(run, request)
