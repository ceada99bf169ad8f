# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Memory of the host and of a device that is open."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from fake_cuda import FakeCuda

from jetson_dnn_rt.backends import memory
from jetson_dnn_rt.errors import BackendUnavailableError

MIB = 1 << 20


@pytest.fixture
def resident(monkeypatch):
    """A process of 100 MiB."""
    info = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=100 * MIB))
    monkeypatch.setattr(psutil, "Process", lambda: info)
    for name in ("torch", "cuda.bindings.runtime", "cuda.cudart"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return 100 * MIB


def make_torch(*, opened, shared):
    cuda = SimpleNamespace(
        is_initialized=lambda: opened,
        mem_get_info=lambda: (700 * MIB, 1000 * MIB),
        get_device_properties=lambda index: SimpleNamespace(is_integrated=shared),
    )
    return SimpleNamespace(cuda=cuda)


def make_runtime(status=0, *, shared=False, driver=True):
    def info():
        if not driver:
            raise RuntimeError("Failed to dlopen libcuda.so.1")
        return status, 700 * MIB, 1000 * MIB

    return SimpleNamespace(
        cudaMemGetInfo=info,
        cudaDeviceAttr=SimpleNamespace(cudaDevAttrIntegrated=18),
        cudaDeviceGetAttribute=lambda kind, device: (0, int(shared)),
    )


@pytest.mark.parametrize(
    ("name", "module", "expected_mib"),
    [
        ("torch", make_torch(opened=False, shared=False), 100),
        ("torch", make_torch(opened=True, shared=False), 400),
        ("torch", make_torch(opened=True, shared=True), 300),
        ("cuda.bindings.runtime", make_runtime(), 400),
        ("cuda.cudart", make_runtime(shared=True), 300),
        ("cuda.cudart", make_runtime(100), 100),
        ("cuda.cudart", make_runtime(driver=False), 100),
    ],
)
def test_by_hand(resident, name, module, expected_mib, monkeypatch):
    monkeypatch.setattr(memory, "open_cuda", FakeCuda)
    monkeypatch.setitem(sys.modules, name, module)
    assert memory.used_bytes() == resident
    assert memory.used_bytes("cuda") == expected_mib * MIB


def test_without_a_device_the_host_counts(resident, monkeypatch):
    def fail():
        raise BackendUnavailableError("no CUDA device")

    monkeypatch.setattr(memory, "open_cuda", fail)
    assert memory.used_bytes("cuda") == resident


def test_what_this_process_takes_is_seen():
    before = memory.used_bytes()
    block = np.ones(64 * MIB, np.uint8)
    assert memory.used_bytes() - before > 32 * MIB
    del block
