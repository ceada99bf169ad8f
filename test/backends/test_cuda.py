"""Memory and streams through cuda-python, on a made-up runtime; and who is asked for a device."""

from __future__ import annotations

import gc
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from fake_cuda import FakeCuda
from fake_cudart import FakeCudart
from fake_tensorrt import make_tensorrt
from onnx_parts import make_classifier

from jetson_dnn_rt.backends.cuda.device import CudaError, address_of
from jetson_dnn_rt.backends.cuda.owners import PythonCuda, import_runtime, open_cuda
from jetson_dnn_rt.backends.tensorrt.runner import TensorRtRunner
from jetson_dnn_rt.errors import BackendUnavailableError


@pytest.fixture
def runtime() -> FakeCudart:
    return FakeCudart()


@pytest.fixture
def cuda(runtime: FakeCudart) -> PythonCuda:
    return PythonCuda(runtime)


def test_there_and_back(cuda: PythonCuda) -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    device, host = cuda.allocate((2, 3, 4), np.float32), cuda.allocate_host((2, 3, 4), np.float32)
    assert not host.any()
    assert device.__cuda_array_interface__["shape"] == (2, 3, 4)
    assert device.__cuda_array_interface__["typestr"] == "<f4"
    cuda.copy(device, values)
    cuda.copy(host, device)
    assert not host.any()  # queued, not done
    cuda.synchronize()
    np.testing.assert_array_equal(host, values)


def test_device_memory_begins_as_zeros(cuda: PythonCuda) -> None:
    device, host = cuda.allocate((5,), np.int64), cuda.allocate_host((5,), np.int64)
    host[:] = 3
    cuda.copy(host, device)
    cuda.synchronize()
    np.testing.assert_array_equal(host, np.zeros(5))


def test_a_host_array_in_another_order(cuda: PythonCuda) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3).T
    device, host = cuda.allocate((3, 2), np.float32), cuda.allocate_host((3, 2), np.float32)
    cuda.copy(device, values)
    gc.collect()  # what was put in order must live until it is copied
    cuda.copy(host, device)
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


def test_a_device_array_in_another_order_is_refused(cuda: PythonCuda) -> None:
    with pytest.raises(CudaError, match=r"channels are last .* torch"):
        cuda.copy(cuda.allocate(Strided.shape, np.float32), Strided())


def test_strides_of_c_order_are_taken(cuda: PythonCuda) -> None:
    device, host = cuda.allocate((2, 3), np.float32), cuda.allocate_host((2, 3), np.float32)

    class Explicit:
        __cuda_array_interface__ = {**device.__cuda_array_interface__, "strides": (12, 4)}  # noqa: RUF012

    cuda.copy(host, Explicit())


def test_sizes_must_agree(cuda: PythonCuda) -> None:
    with pytest.raises(CudaError, match="48 bytes do not fit where 24 are expected"):
        cuda.copy(cuda.allocate((6,), np.float32), np.zeros(6))


def test_rows_of_device_memory(cuda: PythonCuda, runtime: FakeCudart) -> None:
    device, host = cuda.allocate((4, 3), np.int32), cuda.allocate_host((4, 3), np.int32)
    values = np.arange(6, dtype=np.int32).reshape(2, 3)
    cuda.copy(device[1:3], values)
    cuda.copy(host, device)
    cuda.synchronize()
    np.testing.assert_array_equal(host[1:3], values)
    assert not host[0].any()
    assert not host[3].any()
    assert device[3:9].shape == (1, 3)
    with pytest.raises(ValueError, match="one after the other"):
        device[::2]
    part, count = device[2:], len(runtime.memory)
    del device
    gc.collect()
    assert len(runtime.memory) == count  # the whole lives as long as its rows
    del part
    gc.collect()
    assert len(runtime.memory) == count - 1


def test_memory_is_given_back(runtime: FakeCudart) -> None:
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


def test_waiting_does_not_spin(runtime: FakeCudart) -> None:
    PythonCuda(runtime)
    assert runtime.event_flags & FakeCudart.cudaEventBlockingSync


def test_a_graph(cuda: PythonCuda, runtime: FakeCudart) -> None:
    source = np.zeros(3, np.float32)
    host = cuda.allocate_host((3,), np.float32)

    def work(stream: int) -> str:
        assert stream > 0
        cuda.copy(host, source)
        return "result"

    launch, result = cuda.capture(work)
    assert result == "result"
    assert not runtime.queue  # recorded, not done
    for value in (1.0, 2.0):
        source[:] = value
        launch()
        cuda.synchronize()
        np.testing.assert_array_equal(host, np.full(3, value))
    cuda.close()
    assert not runtime.alive


def test_a_capture_that_fails_is_ended(cuda: PythonCuda, runtime: FakeCudart) -> None:
    with pytest.raises(CudaError, match="cudaErrorStreamCaptureUnsupported"):
        cuda.capture(lambda stream: cuda.synchronize())
    assert runtime.recorded is None
    cuda.synchronize()


def test_no_memory(cuda: PythonCuda) -> None:
    with pytest.raises(CudaError, match="cudaMalloc: cudaErrorMemoryAllocation"):
        cuda.allocate((1 << 30,), np.float32)


def test_no_device() -> None:
    with pytest.raises(BackendUnavailableError, match="lists no device"):
        PythonCuda(FakeCudart(devices=0))


class EngineStream:
    """Hands what a fake engine queues to the fake runtime."""

    def __init__(self, runtime: FakeCudart) -> None:
        self._runtime = runtime

    def submit(self, name: str, work: Callable[[], None]) -> None:
        self._runtime.submit(work)


def test_a_tensorrt_runner_without_torch(
    runtime: FakeCudart, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = PythonCuda(runtime)
    streams = dict.fromkeys(runtime.alive, EngineStream(runtime))
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


def test_without_any_owner_both_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "cuda", "cuda.bindings", "cuda.bindings.runtime", "cuda.cudart"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BackendUnavailableError) as caught:
        open_cuda()
    for part in ("no CUDA device", "torch cannot be imported", "cuda-python cannot be imported"):
        assert part in str(caught.value)
    assert "pip install torch" in str(caught.value)


def test_addresses() -> None:
    array = np.zeros(3)
    assert address_of(array) == array.ctypes.data
    assert address_of(Strided()) == 4096


def test_the_fake_is_like_cuda_python() -> None:
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
