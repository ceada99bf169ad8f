# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""CUDA memory and streams by cuda-python on a made-up runtime, and who is asked first."""

from __future__ import annotations

import gc
import inspect
import itertools
import re
import sys
import threading
from typing import Any

import numpy as np
import onnxruntime
import pytest
from fake_cuda import FakeCuda
from fake_cudart import FakeCudart, Status
from fake_tensorrt import make_tensorrt
from onnx_parts import make_classifier

from jetson_dnn_rt.backends.cuda.device import (
    CudaError,
    DeviceProperties,
    MappedRegions,
    address_of,
    choose_memory,
    regions,
)
from jetson_dnn_rt.backends.cuda.owners import (
    POOL_SIZE,
    PythonCuda,
    StreamPool,
    ThreadStreams,
    import_runtime,
    open_cuda,
)
from jetson_dnn_rt.backends.tensorrt.runner import TensorRtRunner
from jetson_dnn_rt.config.task import MEMORY_KINDS
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError


@pytest.fixture
def runtime():
    return FakeCudart()


@pytest.fixture
def cuda(runtime):
    return PythonCuda(runtime)


@pytest.mark.parametrize("transposed", [False, True])
def test_there_and_back(cuda, transposed):
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    values = values.T if transposed else values
    device, host = (make(values.shape, np.float32) for make in (cuda.allocate, cuda.allocate_host))
    assert not host.any()
    assert device.__cuda_array_interface__["shape"] == values.shape
    assert device.__cuda_array_interface__["typestr"] == "<f4"
    host[:] = 3
    cuda.copy(host, device)
    cuda.synchronize()
    assert not host.any()  # the device's memory begins as zeros
    cuda.copy(device, values)
    gc.collect()  # what was put in order must live until it is copied
    cuda.copy(host, device)
    assert not host.any()  # queued, not done
    cuda.synchronize()
    np.testing.assert_array_equal(host, values)


class Strided:
    shape = (1, 2, 2, 2)
    __cuda_array_interface__ = {  # noqa: RUF012 - the interface's form
        "shape": shape,
        "typestr": "<f4",
        "data": (4096, False),
        "strides": (32, 4, 16, 8),
        "version": 3,
    }


def test_a_device_array_in_another_order_is_refused(cuda):
    with pytest.raises(CudaError, match=r"channels are last .* torch"):
        cuda.copy(cuda.allocate(Strided.shape, np.float32), Strided())


def test_strides_of_c_order_are_taken(cuda):
    device, host = cuda.allocate((2, 3), np.float32), cuda.allocate_host((2, 3), np.float32)

    class Explicit:
        __cuda_array_interface__ = {**device.__cuda_array_interface__, "strides": (12, 4)}  # noqa: RUF012

    cuda.copy(host, Explicit())


def test_sizes_must_agree(cuda):
    with pytest.raises(CudaError, match="48 bytes do not fit where 24 are expected"):
        cuda.copy(cuda.allocate((6,), np.float32), np.zeros(6))


def test_rows_of_device_memory(cuda, runtime):
    device, host = cuda.allocate((4, 3), np.int32), cuda.allocate_host((4, 3), np.int32)
    values = np.arange(6, dtype=np.int32).reshape(2, 3)
    cuda.copy(device[1:3], values)
    cuda.copy(host, device)
    cuda.synchronize()
    np.testing.assert_array_equal(host[1:3], values)
    assert not host[0].any()
    assert not host[3].any()
    assert device[3:9].shape == (1, 3)
    with pytest.raises(ValueError, match="must be contiguous"):
        device[::2]
    part, count = device[2:], len(runtime.memory)
    del device
    gc.collect()
    assert len(runtime.memory) == count  # the whole lives as long as its rows
    del part
    gc.collect()
    assert len(runtime.memory) == count - 1


def test_memory_is_given_back(runtime):
    cuda = PythonCuda(runtime)
    device, host = cuda.allocate((4,), np.float32), cuda.allocate_host((4,), np.float32)
    view = host[1:]
    cuda.close()
    cuda.close()
    assert not runtime.alive  # stream and event
    assert len(runtime.memory) == 2
    del device, host
    gc.collect()
    assert len(runtime.memory) == 1  # a view of it is still held
    view[0] = 1.0
    del view
    gc.collect()
    assert not runtime.memory


def test_waiting_does_not_spin(runtime):
    PythonCuda(runtime)
    assert runtime.event_flags & FakeCudart.cudaEventBlockingSync


def test_a_graph(cuda, runtime):
    source = np.zeros(3, np.float32)
    host = cuda.allocate_host((3,), np.float32)

    def work(stream):
        assert stream > 0
        cuda.copy(host, source)
        return "result"

    launch, result = cuda.capture(work)
    assert result == "result"
    assert not any(runtime.queues.values())  # recorded, not done
    for value in (1.0, 2.0):
        source[:] = value
        launch()
        cuda.synchronize()
        np.testing.assert_array_equal(host, np.full(3, value))
    cuda.close()
    assert not runtime.alive


def test_a_capture_that_fails_is_ended(cuda, runtime):
    with pytest.raises(CudaError, match="cudaErrorStreamCaptureUnsupported"):
        cuda.capture(lambda stream: cuda.synchronize())
    assert runtime.recorded is None
    cuda.synchronize()


def test_an_error_of_queued_work_comes_with_the_wait_and_stays(cuda, runtime):
    """As an illegal access does; what is there can still be closed."""
    host, device = cuda.allocate_host((3,), np.float32), cuda.allocate((3,), np.float32)
    launch, _ = cuda.capture(lambda stream: cuda.copy(host, device))
    launch()
    runtime.submit(lambda: Status.cudaErrorIllegalAddress, cuda._stream)
    for _ in range(2):
        with pytest.raises(CudaError, match="cudaErrorIllegalAddress"):
            cuda.synchronize()
    with pytest.raises(CudaError, match="cudaErrorIllegalAddress"):
        cuda.copy(host, device)
    with pytest.raises(CudaError, match="cudaErrorIllegalAddress"):
        cuda.close()
    cuda.close()
    assert not runtime.alive


def test_streams_do_not_wait_for_each_other(cuda, runtime):
    host = cuda.allocate_host((3,), np.float32)
    cuda.synchronize()
    cuda.copy(host, np.ones(3, np.float32))
    cuda.use_thread_stream(0)
    cuda.synchronize()
    assert not host.any()
    cuda.use_own_stream()
    cuda.synchronize()
    assert host.all()


def test_no_memory(cuda):
    with pytest.raises(CudaError, match="cudaMalloc: cudaErrorMemoryAllocation"):
        cuda.allocate((1 << 30,), np.float32)


def test_no_device():
    with pytest.raises(BackendUnavailableError, match="lists no device"):
        PythonCuda(FakeCudart(devices=0))


class EngineStream:
    """Hands what a fake engine queues to the fake runtime."""

    def __init__(self, runtime, handle):
        self._runtime, self._handle = runtime, handle

    @property
    def recorded(self):
        return self._runtime.recorded

    def submit(self, name, work):
        self._runtime.submit(work, self._handle)


def test_a_tensorrt_runner_without_torch(runtime, monkeypatch):
    cuda = PythonCuda(runtime)
    streams = {handle: EngineStream(runtime, handle) for handle in runtime.alive}
    monkeypatch.setattr(FakeCuda, "streams", streams)
    part = make_classifier()
    runner = TensorRtRunner(part, "fp32", cuda=cuda, module=make_tensorrt("8.5.3.1"))
    assert runner.cuda_graph
    session = onnxruntime.InferenceSession(part.data, providers=["CPUExecutionProvider"])
    buffer = runner.allocate_input()
    for seed in range(3):
        buffer[:] = np.random.default_rng(seed).random(buffer.shape, np.float32)
        scores, best = runner.to_host(runner.run([buffer]))
        expected = session.run(None, {"image": buffer})
        np.testing.assert_allclose(scores, expected[0], atol=1e-6)
        np.testing.assert_array_equal(best, expected[1])
    runner.close()
    # The stream of this thread stays with it; the runner's own, its event and graph are gone.
    assert len(runtime.alive) == 1


def test_without_any_owner_both_are_named(monkeypatch):
    for name in ("torch", "cuda", "cuda.bindings", "cuda.bindings.runtime", "cuda.cudart"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BackendUnavailableError) as caught:
        open_cuda()
    for part in ("no CUDA device", "torch cannot be imported", "cuda-python cannot be imported"):
        assert part in str(caught.value)
    assert "pip install torch" in str(caught.value)


def test_the_fake_is_like_cuda_python():
    """Names, and parameters where its functions name them."""
    try:
        real: Any = import_runtime()
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    for name, member in vars(FakeCudart).items():
        if name.startswith("cuda"):
            assert hasattr(real, name), name
        if not name.startswith("cuda") or not callable(member):
            continue
        first = (getattr(real, name).__doc__ or "").splitlines()[0]
        found = re.match(rf"{name}\((.*)\)", first)
        if found is None:
            continue
        parameters = [text.split()[-1].split("=")[0] for text in found[1].split(",") if text]
        expected = list(inspect.signature(member).parameters)[1:]
        if all(re.fullmatch(r"\w+", text) for text in parameters):
            plain = [text.split(":")[0] for text in parameters]
            assert len(plain) == len(expected), (name, plain, expected)
    assert hasattr(real.cudaMemcpyKind, "cudaMemcpyDefault")
    assert hasattr(real.cudaStreamCaptureMode, "cudaStreamCaptureModeThreadLocal")


ORIN = DeviceProperties(integrated=True, maps_host_memory=True, capability=(8, 7))

TX2 = DeviceProperties(integrated=True, maps_host_memory=True, capability=(6, 2))

DISCRETE = DeviceProperties(integrated=False, maps_host_memory=True, capability=(9, 0))

UNMAPPED = DeviceProperties(integrated=False, maps_host_memory=False, capability=(9, 0))


@pytest.mark.parametrize(
    ("properties", "kind"),
    [(ORIN, "mapped"), (TX2, "pageable"), (DISCRETE, "pinned"), (UNMAPPED, "pinned")],
)
def test_the_device_decides(properties, kind):
    assert choose_memory("auto", properties) == kind


@pytest.mark.parametrize("kind", MEMORY_KINDS[1:])
def test_the_user_may_decide(kind):
    assert choose_memory(kind, TX2) == kind


def test_what_the_device_cannot_do_is_refused():
    with pytest.raises(ConfigurationError, match="does not read host memory in place; use pinned"):
        choose_memory("mapped", UNMAPPED)
    with pytest.raises(ConfigurationError, match="memory must be one of auto, mapped"):
        choose_memory("managed", ORIN)


def test_a_region_is_known_with_its_views_until_it_is_gone():
    known = MappedRegions()
    memory = np.zeros((4, 8), np.float32)
    address = memory.ctypes.data
    known.add(memory, address, memory.nbytes, 0x1000)
    assert known.find(memory) == 0x1000
    assert known.find(memory[2]) == 0x1000 + 64
    assert known.find(np.zeros(3)) == 0
    view = memory[3:]
    del memory
    gc.collect()
    assert known.find(view) == 0x1000 + 96
    del view
    gc.collect()
    assert not known._regions


def test_mapped_memory_of_cuda_python():
    runtime = FakeCudart()
    cuda = PythonCuda(runtime)
    assert cuda.properties() == ORIN
    host = cuda.allocate_mapped((2, 3), np.float32)
    assert host.shape == (2, 3)
    assert not host.any()
    there = cuda.view(regions.find(host), (2, 3), np.float32)
    assert address_of(there) == regions.find(host) != 0
    host[1, 2] = 5.0
    copy = cuda.allocate_host((2, 3), np.float32)
    cuda.copy(copy, there)
    cuda.synchronize()
    np.testing.assert_array_equal(copy, host)
    assert regions.find(copy) == 0  # page-locked, not mapped
    view, address = host[1:], host.ctypes.data
    del host, there
    gc.collect()
    assert regions.find(view) == address + 12
    del view
    gc.collect()
    assert address not in runtime.memory


def run_in_thread(work):
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def create(cuda, *, cuda_graph=True):
    return TensorRtRunner(
        make_classifier(), "fp32", cuda=cuda, module=make_tensorrt("10.3.0"), cuda_graph=cuda_graph
    )


def test_a_thread_has_one_stream_for_each_class():
    made: list[int] = []

    def make(urgency):
        made.append(urgency)
        return object()

    streams = ThreadStreams(make)
    mine = [streams.get(urgency) for urgency in (0, 1, 0, 1)]
    assert mine[0] is mine[2] is not mine[1] is mine[3]
    assert run_in_thread(lambda: streams.get(0)) is not mine[0]
    assert made == [0, 1, 0]


class PooledStream:
    """As torch's: another object each time, of one of a few streams."""

    def __init__(self, handle):
        self.handle = handle


def test_a_reserved_stream_is_given_to_nobody_else():
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


def test_priorities_end_where_the_device_s_do():
    runtime = FakeCudart()
    cuda = PythonCuda(runtime)
    for urgency in (0, 1, 2, 7):
        cuda.use_thread_stream(urgency)
        cuda.synchronize()
    # Its own, and four of this thread; the fake's range is 0 to -2.
    assert list(runtime.priorities.values()) == [0, 0, -1, -2, -2]
    cuda.close()


def test_a_thread_s_streams_end_with_it_and_with_who_uses_them():
    runtime = FakeCudart()
    cuda = PythonCuda(runtime)
    before = set(runtime.alive)
    run_in_thread(lambda: cuda.use_thread_stream(0))
    (left,) = runtime.alive - before  # the thread is gone, the runner still uses its stream
    cuda.use_own_stream()
    assert left not in runtime.alive
    cuda.close()
    assert not runtime.alive


def test_a_graph_is_launched_on_the_stream_of_whoever_runs_it():
    cuda = FakeCuda()
    runner = create(cuda)
    assert cuda.used == [None]  # captured on its own
    buffer = runner.allocate_input()
    runner.run([buffer])
    runner.urgency = 2
    other = run_in_thread(lambda: (runner.run([buffer]), threading.get_ident())[1])
    assert cuda.used[1:] == [(threading.get_ident(), 0), (other, 2)]


def test_without_a_graph_the_stream_stays():
    cuda = FakeCuda()
    runner = create(cuda, cuda_graph=False)
    runner.run([runner.allocate_input()])
    assert cuda.used == [None]


def test_the_last_stage_waits_once():
    cuda = FakeCuda()
    runner = create(cuda)
    buffer = runner.allocate_input()
    buffer[:] = np.random.default_rng(3).random(buffer.shape, np.float32)
    expected = [value.copy() for value in runner.to_host(runner.run([buffer]))]
    waits: list[int] = []
    wait = cuda.synchronize

    def count():
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
def test_nothing_is_allocated_after_the_warm_up(cuda_graph, monkeypatch):
    cuda = FakeCuda()
    runner = create(cuda, cuda_graph=cuda_graph)
    buffer = runner.allocate_input()
    runner.to_host(runner.run([buffer]))

    def refuse(*arguments, **keywords):
        raise AssertionError("allocated on the hot path")

    for name in ("allocate", "allocate_host", "allocate_mapped", "capture"):
        monkeypatch.setattr(cuda, name, refuse)
    for _ in range(3):
        runner.to_host(runner.run([buffer]))
        run_in_thread(lambda: runner.to_host(runner.queue([buffer])))
