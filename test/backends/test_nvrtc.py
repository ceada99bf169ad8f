"""The compiler library of CUDA: it needs no device, so the real one is asked where it is."""

from __future__ import annotations

from typing import Any

import pytest

from jetson_dnn_rt.backends.cuda import input as cuda_input
from jetson_dnn_rt.backends.cuda import nvrtc
from jetson_dnn_rt.backends.cuda.nvrtc import Nvrtc, compile_with_any, open_libraries
from jetson_dnn_rt.errors import BackendUnavailableError


@pytest.fixture(scope="module")
def library() -> Nvrtc:
    found = next(open_libraries(), None)
    if found is None:
        pytest.skip("NVRTC is not installed")
    return Nvrtc(found)


def test_the_input_pass_compiles_for_a_device(library: Nvrtc) -> None:
    newest = library.architectures()[-1]
    source = cuda_input.SOURCE.read_text(encoding="utf-8")
    image = library.compile(source, cuda_input.SOURCE.name, (newest // 10, newest % 10))
    assert image.startswith(b"\x7fELF")
    assert cuda_input.NAME.encode() in image


SMALL = 'extern "C" __global__ void fill(float *out) { out[threadIdx.x] = 2.0f; }'


def test_a_device_that_it_does_not_know_gets_what_the_driver_translates(library: Nvrtc) -> None:
    newest = library.architectures()[-1]
    image = library.compile(SMALL, "small.cu", (newest // 10 + 1, 0))
    assert f".target sm_{newest}".encode() in image
    assert image.endswith(b"\0")


def test_a_device_that_is_too_old(library: Nvrtc) -> None:
    with pytest.raises(BackendUnavailableError, match=r"does not compile for .* \(1, 0\)"):
        library.compile(SMALL, "small.cu", (1, 0))


def test_a_fault_in_the_source_is_told_in_the_compilers_words(library: Nvrtc) -> None:
    with pytest.raises(BackendUnavailableError, match=r"bad\.cu.*COMPILATION.*nowhere"):
        library.compile("__device__ int f() { return nowhere; }", "bad.cu", (9, 0))


def test_without_any_the_fix_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "open_libraries", lambda: iter(()))
    with pytest.raises(BackendUnavailableError, match=r"not installed.*pip install"):
        next(compile_with_any("", "x.cu", (8, 7)))


def test_one_that_lacks_functions_is_passed_over() -> None:
    class Old:
        """NVRTC of CUDA 11.0, by the functions it has."""

    with pytest.raises(BackendUnavailableError, match="nvrtcGetNumSupportedArchs"):
        next(compile_with_any("", "x.cu", (8, 7), [Old()]))


def test_libraries_that_cannot_be_loaded_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "find_libraries", lambda: iter(["/nowhere/libnvrtc.so"]))
    found: list[Any] = list(open_libraries())
    assert not found
