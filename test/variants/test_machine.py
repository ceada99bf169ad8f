# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Names of devices, and entries that are of no use here."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.platforms.machine import describe_cpu, describe_gpu
from jetson_dnn_rt.variants.library.library import EntryKey
from jetson_dnn_rt.variants.measuring import machine
from jetson_dnn_rt.variants.measuring.machine import device_of, find_stale


def test_devices_of_back_ends():
    assert device_of("openvino") == device_of("onnxruntime") == device_of("null") == "cpu"
    assert device_of("tensorrt") == "cuda"
    assert device_of("torch") == ("cuda" if describe_gpu() else "cpu")


@pytest.fixture
def forget():
    """Versions are looked up once for each process."""
    machine._find_version.cache_clear()
    yield
    machine._find_version.cache_clear()


def test_stale_is_what_another_version_or_device_made(forget, monkeypatch):
    version = inspect_backend("onnxruntime").version
    if not version:
        pytest.skip("ONNX Runtime is not installed")
    cpu = describe_cpu()
    key = EntryKey("a" * 64, "b" * 64, "full", "measurement", "onnxruntime", version, cpu, "fp32")
    assert find_stale(key) == ""
    old = dataclasses.replace(key, backend_version="0.1")
    assert find_stale(old) == f"made by onnxruntime 0.1, here is {version}"
    moved = dataclasses.replace(key, device="NVIDIA Tegra Orin, 8.7")
    assert find_stale(moved) == "made for NVIDIA Tegra Orin, 8.7, which is not here"
    weights = EntryKey("a" * 64, "b" * 64, "tucker-0.50", "weights")
    assert find_stale(weights) == ""
    # Another installation on this machine may have it.
    monkeypatch.setitem(sys.modules, "tvm", None)
    missing = dataclasses.replace(key, backend="tvm", backend_version="0.9")
    assert find_stale(missing) == ""


def test_kernels_of_tvm_run_where_its_library_can(monkeypatch):
    """The wheel of PyPI is built without CUDA: it uses no GPU, where there is one or not."""
    tvm = pytest.importorskip("tvm")
    assert device_of("tvm") == ("cuda" if tvm.runtime.enabled("cuda") else "cpu")
    monkeypatch.setitem(sys.modules, "tvm", None)
    assert device_of("tvm") == "cpu"


def test_a_database_for_another_board_is_not_stale():
    """A workstation keeps it for the robot; it is found by its target, not by a device."""
    version = inspect_backend("tvm").version
    target = "llvm aarch64-linux-gnu cortex-a78ae threads=1"
    key = EntryKey(
        "a" * 64, "b" * 64, "full", "tuning", "tvm", version, "", "fp32", options=target
    )
    assert find_stale(key) == ""


def test_stale_export_of_another_torch():
    torch = pytest.importorskip("torch")
    key = EntryKey("a" * 64, "b" * 64, "full", "artefact", "onnx", f"torch {torch.__version__}")
    assert find_stale(key) == ""
    assert "torch 1.0" in find_stale(dataclasses.replace(key, backend_version="torch 1.0"))
