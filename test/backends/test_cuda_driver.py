# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The CUDA driver and the compiler library, made-up and real."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from fake_driver import FakeDriver

from jetson_dnn_rt.backends.cuda import driver as cuda_driver
from jetson_dnn_rt.backends.cuda import input as cuda_input
from jetson_dnn_rt.backends.cuda import nvrtc
from jetson_dnn_rt.backends.cuda.device import CudaError, DeviceProperties
from jetson_dnn_rt.backends.cuda.driver import CudaDriver
from jetson_dnn_rt.backends.cuda.nvrtc import Nvrtc, compile_with_any, open_libraries
from jetson_dnn_rt.errors import BackendUnavailableError


def test_properties():
    assert CudaDriver(FakeDriver()).properties() == DeviceProperties(True, True, (8, 7))
    discrete = FakeDriver({18: 0, 19: 1, 75: 9, 76: 0})
    assert CudaDriver(discrete).properties() == DeviceProperties(False, True, (9, 0))


def test_without_a_driver(monkeypatch):
    monkeypatch.setattr(cuda_driver, "_LIBRARY", "libnowhere.so.1")
    with pytest.raises(BackendUnavailableError, match=r"no CUDA driver.*libnowhere"):
        CudaDriver()


def test_without_a_device():
    fake = FakeDriver()
    fake.fail["cuDeviceGet"] = 100
    with pytest.raises(
        BackendUnavailableError, match=r"cuDeviceGet: CUDA_ERROR_NO_DEVICE \(100\)"
    ):
        CudaDriver(fake)


def test_where_host_memory_is_found():
    fake = FakeDriver()
    fake.mapped[0x7F0000001000] = 0x203000000
    assert CudaDriver(fake).device_address(0x7F0000001000) == 0x203000000
    fake.fail["cuMemHostGetDevicePointer_v2"] = 1
    with pytest.raises(CudaError, match="cuMemHostGetDevicePointer_v2"):
        CudaDriver(fake).device_address(0x7F0000001000)


class Arguments(ctypes.Structure):
    _fields_ = (("left", ctypes.c_int), ("right", ctypes.c_double))


def test_a_launch_hands_the_structure_over():
    fake, seen = FakeDriver(), []
    fake.on_launch = lambda address: seen.append(Arguments.from_address(address).right)
    kernel = CudaDriver(fake).load_kernel(b"image", "name")
    fake.calls.clear()
    kernel.launch((4, 3, 1), (32, 8, 1), 99, Arguments(1, 2.5))
    # A thread that never called CUDA has no current context.
    assert fake.calls == ["cuCtxSetCurrent", "cuLaunchKernel"]
    assert fake.launches == [{"function": 2, "sides": (4, 3, 1, 32, 8, 1, 0), "stream": 99}]
    assert seen == [2.5]


def test_an_image_that_the_driver_refuses():
    fake = FakeDriver()
    fake.fail["cuModuleLoadData"] = 200
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_IMAGE"):
        CudaDriver(fake).load_kernel(b"image", "name")


@pytest.fixture
def fake(monkeypatch):
    """The driver that `load_kernel` of the input pass finds."""
    fake = FakeDriver()
    monkeypatch.setattr(cuda_input, "CudaDriver", lambda: CudaDriver(fake))
    cuda_input.load_kernel.cache_clear()
    return fake


@pytest.fixture(autouse=True)
def forget():
    cuda_input.load_kernel.cache_clear()


def test_the_next_compiler_is_tried_where_the_driver_is_older(fake, monkeypatch):
    tried = []

    def compile_twice(source, name, capability):  # type: ignore[no-untyped-def]
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


def test_a_driver_that_takes_none_is_told(fake, monkeypatch):
    fake.fail["cuModuleLoadData"] = 200
    monkeypatch.setattr(cuda_input, "compile_with_any", lambda *arguments: iter([b"one", b"two"]))
    with pytest.raises(BackendUnavailableError, match=r"does not load input_pass\.cu: .*INVALID"):
        cuda_input.load_kernel()


@pytest.fixture(scope="module")
def library():
    found = next(open_libraries(), None)
    if found is None:
        pytest.skip("NVRTC is not installed")
    return Nvrtc(found)


def test_the_input_pass_compiles_for_a_device(library):
    newest = library.architectures()[-1]
    source = cuda_input.SOURCE.read_text(encoding="utf-8")
    image = library.compile(source, cuda_input.SOURCE.name, (newest // 10, newest % 10))
    assert image.startswith(b"\x7fELF")
    assert cuda_input.NAME.encode() in image


SMALL = 'extern "C" __global__ void fill(float *out) { out[threadIdx.x] = 2.0f; }'


def test_a_device_that_it_does_not_know_gets_what_the_driver_translates(library):
    newest = library.architectures()[-1]
    image = library.compile(SMALL, "small.cu", (newest // 10 + 1, 0))
    assert f".target sm_{newest}".encode() in image
    assert image.endswith(b"\0")


def test_a_device_that_is_too_old(library):
    with pytest.raises(BackendUnavailableError, match=r"does not compile for .* \(1, 0\)"):
        library.compile(SMALL, "small.cu", (1, 0))


def test_a_fault_in_the_source_is_told_in_the_compilers_words(library):
    with pytest.raises(BackendUnavailableError, match=r"bad\.cu.*COMPILATION.*nowhere"):
        library.compile("__device__ int f() { return nowhere; }", "bad.cu", (9, 0))


def test_without_any_the_fix_is_said(monkeypatch):
    monkeypatch.setattr(nvrtc, "open_libraries", lambda: iter(()))
    with pytest.raises(BackendUnavailableError, match=r"not installed.*pip install"):
        next(compile_with_any("", "x.cu", (8, 7)))


def test_one_that_lacks_functions_is_passed_over():
    class Old:
        """NVRTC of CUDA 11.0, by the functions it has."""

    with pytest.raises(BackendUnavailableError, match="nvrtcGetNumSupportedArchs"):
        next(compile_with_any("", "x.cu", (8, 7), [Old()]))


def test_libraries_that_cannot_be_loaded_are_passed_over(monkeypatch):
    monkeypatch.setattr(nvrtc, "find_libraries", lambda: iter(["/nowhere/libnvrtc.so"]))
    found: list[Any] = list(open_libraries())
    assert not found
