"""Workers on this machine: processes that take one request after the other."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from jetson_dnn_rt.lab.evaluate.chunk import ChunkRequest
from jetson_dnn_rt.lab.evaluate.worker import (
    ATTEMPTS,
    Answer,
    LostWorkersError,
    RunChunk,
    answer_request,
    describe_request,
)
from jetson_dnn_rt.safety.children import safe_spawning

_GRACE_S = 5.0
"""So long a worker that has nothing to do may take to end."""


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
                    _send(worker, requests[worker.place])
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
                            f"came to an end over them ({ended})"
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


def _send(worker: _Worker, request: ChunkRequest) -> None:
    with contextlib.suppress(OSError):  # it has died: what is read from it next says so
        worker.connection.send(request)


def _serve(connection: Connection, run: RunChunk) -> None:
    """Answer requests until nobody asks any more."""
    # Ctrl-C is for the parent, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(answer_request(run, request))


def _end(worker: _Worker) -> str:
    """Wait until a process has ended; says how."""
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
        return "killed: often for want of memory"
    return f"signal {-code}" if code < 0 else f"exit status {code}"
