"""What is asked of the CUDA driver, of a made-up one."""

from __future__ import annotations

import ctypes

import pytest
from fake_driver import FakeDriver

from jetson_dnn_rt.backends.cuda import driver as cuda_driver
from jetson_dnn_rt.backends.cuda import input as cuda_input
from jetson_dnn_rt.backends.cuda.device import CudaError, DeviceProperties
from jetson_dnn_rt.backends.cuda.driver import CudaDriver
from jetson_dnn_rt.errors import BackendUnavailableError


def test_properties() -> None:
    assert CudaDriver(FakeDriver()).properties() == DeviceProperties(True, True, (8, 7))
    discrete = FakeDriver({18: 0, 19: 1, 75: 9, 76: 0})
    assert CudaDriver(discrete).properties() == DeviceProperties(False, True, (9, 0))


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "_LIBRARY", "libnowhere.so.1")
    with pytest.raises(BackendUnavailableError, match=r"no CUDA driver.*libnowhere"):
        CudaDriver()


def test_without_a_device() -> None:
    fake = FakeDriver()
    fake.fail["cuDeviceGet"] = 100
    with pytest.raises(
        BackendUnavailableError, match=r"cuDeviceGet: CUDA_ERROR_NO_DEVICE \(100\)"
    ):
        CudaDriver(fake)


def test_where_host_memory_is_found() -> None:
    fake = FakeDriver()
    fake.mapped[0x7F0000001000] = 0x203000000
    assert CudaDriver(fake).device_address(0x7F0000001000) == 0x203000000
    fake.fail["cuMemHostGetDevicePointer_v2"] = 1
    with pytest.raises(CudaError, match="cuMemHostGetDevicePointer_v2"):
        CudaDriver(fake).device_address(0x7F0000001000)


class Arguments(ctypes.Structure):
    _fields_ = (("left", ctypes.c_int), ("right", ctypes.c_double))


def test_a_launch_hands_the_structure_over() -> None:
    fake, seen = FakeDriver(), []
    fake.on_launch = lambda address: seen.append(Arguments.from_address(address).right)
    kernel = CudaDriver(fake).load_kernel(b"image", "name")
    fake.calls.clear()
    kernel.launch((4, 3, 1), (32, 8, 1), 99, Arguments(1, 2.5))
    # A thread that never called CUDA has no current context.
    assert fake.calls == ["cuCtxSetCurrent", "cuLaunchKernel"]
    assert fake.launches == [{"function": 2, "sides": (4, 3, 1, 32, 8, 1, 0), "stream": 99}]
    assert seen == [2.5]


def test_an_image_that_the_driver_refuses() -> None:
    fake = FakeDriver()
    fake.fail["cuModuleLoadData"] = 200
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_IMAGE"):
        CudaDriver(fake).load_kernel(b"image", "name")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """The driver that `load_kernel` of the input pass finds."""
    fake = FakeDriver()
    monkeypatch.setattr(cuda_input, "CudaDriver", lambda: CudaDriver(fake))
    cuda_input.load_kernel.cache_clear()
    return fake


@pytest.fixture(autouse=True)
def forget() -> None:
    cuda_input.load_kernel.cache_clear()


def test_the_next_compiler_is_tried_where_the_driver_is_older(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def compile_twice(source: str, name: str, capability: tuple[int, int]):  # type: ignore[no-untyped-def]
        assert "input_pass" in source
        assert capability == (8, 7)
        for image in (b"of CUDA 13", b"of CUDA 12"):
            tried.append(image)
            fake.fail = {"cuModuleLoadData": 200} if image == b"of CUDA 13" else {}
            yield image

    monkeypatch.setattr(cuda_input, "compile_with_any", compile_twice)
    kernel = cuda_input.load_kernel()
    assert tried == [b"of CUDA 13", b"of CUDA 12"]
    assert cuda_input.load_kernel() is kernel  # once in a process


def test_a_driver_that_takes_none_is_told(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.fail["cuModuleLoadData"] = 200
    monkeypatch.setattr(cuda_input, "compile_with_any", lambda *arguments: iter([b"one", b"two"]))
    with pytest.raises(BackendUnavailableError, match=r"does not load input_pass\.cu: .*INVALID"):
        cuda_input.load_kernel()
