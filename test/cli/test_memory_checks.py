"""What `doctor` says of memory: on made-up devices, and on this machine."""

from __future__ import annotations

from typing import Any

import pytest
from fake_driver import FakeDriver

from jetson_dnn_rt.backends.cuda import nvrtc
from jetson_dnn_rt.backends.cuda.driver import CudaDriver
from jetson_dnn_rt.cli import checks
from jetson_dnn_rt.cli.checks import check_memory
from jetson_dnn_rt.errors import BackendUnavailableError

# Integrated, maps host memory, compute capability.
ORIN = {18: 1, 19: 1, 75: 8, 76: 7}
TX2 = {18: 1, 19: 1, 75: 6, 76: 2}
DISCRETE = {18: 0, 19: 1, 75: 9, 76: 0}


@pytest.fixture
def have(monkeypatch: pytest.MonkeyPatch) -> Any:
    def take(attributes: dict[int, int], error: str = "") -> None:
        def load() -> None:
            if error:
                raise BackendUnavailableError(error)

        fake = FakeDriver(attributes)
        monkeypatch.setattr(checks, "CudaDriver", lambda: CudaDriver(fake))
        monkeypatch.setattr(checks, "load_kernel", load)

    return take


def test_on_an_integrated_gpu(have: Any) -> None:
    have(ORIN)
    memory, frames = check_memory()
    assert memory.ok
    assert memory.detail == "auto is mapped: the GPU is integrated, of compute capability 8.7"
    assert frames.ok
    assert "on the GPU" in frames.detail


def test_on_a_discrete_gpu_without_nvrtc(have: Any) -> None:
    have(DISCRETE, f"NVRTC cannot be used (it is not installed): {nvrtc.FIX}")
    memory, frames = check_memory()
    assert "auto is pinned: the GPU is discrete" in memory.detail
    assert (frames.ok, frames.required) == (False, False)
    assert frames.detail.endswith("(it is not installed)")
    assert frames.fix == nvrtc.FIX


def test_on_an_old_board_the_cpu_does_it(have: Any) -> None:
    have(TX2)
    (memory,) = check_memory()
    assert "auto is pageable" in memory.detail


def test_without_a_device_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> CudaDriver:
        raise BackendUnavailableError("there is no CUDA driver")

    monkeypatch.setattr(checks, "CudaDriver", fail)
    assert check_memory() == []
