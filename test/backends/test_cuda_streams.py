"""Streams of threads and of deadline classes, one wait for the last stage, nothing allocated."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from fake_cudart import FakeCudart
from fake_tensorrt import make_tensorrt
from onnx_parts import make_classifier

from jetson_dnn_rt.backends.cuda.owners import POOL_SIZE, PythonCuda, StreamPool, ThreadStreams
from jetson_dnn_rt.backends.tensorrt.runner import TensorRtRunner


def run_in_thread(work: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def create(cuda: FakeCuda, *, cuda_graph: bool = True) -> TensorRtRunner:
    return TensorRtRunner(
        make_classifier(), "fp32", cuda=cuda, module=make_tensorrt("10.3.0"), cuda_graph=cuda_graph
    )


def test_a_thread_has_one_stream_for_each_class() -> None:
    made: list[int] = []

    def make(urgency: int) -> object:
        made.append(urgency)
        return object()

    streams = ThreadStreams(make)
    mine = [streams.get(urgency) for urgency in (0, 1, 0, 1)]
    assert mine[0] is mine[2] is not mine[1] is mine[3]
    assert run_in_thread(lambda: streams.get(0)) is not mine[0]
    assert made == [0, 1, 0]


class PooledStream:
    """As torch's: another object each time, of one of a few streams."""

    def __init__(self, handle: int) -> None:
        self.handle = handle


def test_a_reserved_stream_is_given_to_nobody_else() -> None:
    handles = itertools.cycle(range(POOL_SIZE))
    pool = StreamPool(lambda priority: PooledStream(next(handles)), lambda stream: stream.handle)
    mine = pool.take(0, reserve=True)
    others = [pool.take(0, reserve=True) for _ in range(POOL_SIZE - 2)]
    assert len({mine.handle, *(stream.handle for stream in others)}) == POOL_SIZE - 1
    assert {pool.take(0, reserve=False).handle for _ in range(3)} == {POOL_SIZE - 1}
    last = pool.take(0, reserve=True)
    assert last.handle == POOL_SIZE - 1
    # All are reserved: one is shared, and stays reserved when the second user is gone.
    shared = pool.take(0, reserve=True).handle
    assert shared in {mine.handle, last.handle, *(stream.handle for stream in others)}
    del mine
    gc.collect()
    assert {pool.take(0, reserve=False).handle for _ in range(3)} == {0}


def test_priorities_end_where_the_device_s_do() -> None:
    runtime = FakeCudart()
    cuda = PythonCuda(runtime)
    for urgency in (0, 1, 2, 7):
        cuda.use_thread_stream(urgency)
        cuda.synchronize()
    # Its own, and four of this thread; the fake's range is 0 to -2.
    assert list(runtime.priorities.values()) == [0, 0, -1, -2, -2]
    cuda.close()


def test_a_thread_s_streams_end_with_it_and_with_who_uses_them() -> None:
    runtime = FakeCudart()
    cuda = PythonCuda(runtime)
    before = set(runtime.alive)
    run_in_thread(lambda: cuda.use_thread_stream(0))
    (left,) = runtime.alive - before  # the thread is gone, the runner still uses its stream
    cuda.use_own_stream()
    assert left not in runtime.alive
    cuda.close()
    assert not runtime.alive


def test_a_graph_is_launched_on_the_stream_of_whoever_runs_it() -> None:
    cuda = FakeCuda()
    runner = create(cuda)
    assert cuda.used == [None]  # captured on its own
    buffer = runner.allocate_input()
    runner.run([buffer])
    runner.urgency = 2
    other = run_in_thread(lambda: (runner.run([buffer]), threading.get_ident())[1])
    assert cuda.used[1:] == [(threading.get_ident(), 0), (other, 2)]


def test_without_a_graph_the_stream_stays() -> None:
    cuda = FakeCuda()
    runner = create(cuda, cuda_graph=False)
    runner.run([runner.allocate_input()])
    assert cuda.used == [None]


def test_the_last_stage_waits_once() -> None:
    cuda = FakeCuda()
    runner = create(cuda)
    buffer = runner.allocate_input()
    buffer[:] = np.random.default_rng(3).random(buffer.shape, np.float32)
    expected = [value.copy() for value in runner.to_host(runner.run([buffer]))]
    waits: list[int] = []
    wait = cuda.synchronize

    def count() -> None:
        waits.append(len(cuda.queue))
        wait()

    cuda.synchronize = count  # type: ignore[method-assign]
    given = runner.to_host(runner.queue([buffer]))
    assert waits == [4]  # the input, the graph, two outputs
    for value, other in zip(given, expected, strict=True):
        np.testing.assert_array_equal(value, other)
    waits.clear()
    runner.to_host(runner.run([buffer]))
    assert len(waits) == 2


@pytest.mark.parametrize("cuda_graph", [True, False])
def test_nothing_is_allocated_after_the_warm_up(
    cuda_graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = FakeCuda()
    runner = create(cuda, cuda_graph=cuda_graph)
    buffer = runner.allocate_input()
    runner.to_host(runner.run([buffer]))

    def refuse(*arguments: object, **keywords: object) -> None:
        raise AssertionError("allocated on the hot path")

    for name in ("allocate", "allocate_host", "allocate_mapped", "capture"):
        monkeypatch.setattr(cuda, name, refuse)
    for _ in range(3):
        runner.to_host(runner.run([buffer]))
        run_in_thread(lambda: runner.to_host(runner.queue([buffer])))
