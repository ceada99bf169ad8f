# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What is said of back ends that are there, that are missing and that cannot do a precision."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_cuda import FakeCuda
from fake_tensorrt import make_tensorrt
from networks import Classifier, make_model

from jetson_dnn_rt.backends import openvino as openvino_backend
from jetson_dnn_rt.backends import torch as torch_backend
from jetson_dnn_rt.backends.registry import BACKENDS, create_runner, inspect_backend, list_backends
from jetson_dnn_rt.backends.tensorrt import api as tensorrt_api
from jetson_dnn_rt.backends.tensorrt.api import NO_GPU
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.tvm.target import TVM_FIX


def test_every_back_end_is_listed_with_what_to_do():
    infos = {info.name: info for info in list_backends()}
    missing_cores = {"tensorrt_dla0", "tensorrt_dla1"} - set(infos)
    assert tuple(infos) == tuple(name for name in BACKENDS if name not in missing_cores)
    assert infos["null"].available
    assert infos["torch"].available
    assert "fp32" in infos["torch"].precisions
    for info in infos.values():
        assert info.available == bool(info.precisions)
        assert info.available == bool(info.version)
        # Where there is no GPU nothing helps TensorRT, and the reason says so.
        assert info.available or info.reason
        assert info.available or info.fix or info.reason == NO_GPU


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "torch", "tensorrt", "tvm"])
def test_missing_library(monkeypatch, name):
    monkeypatch.setattr(tensorrt_api, "has_gpu", lambda: True)
    model = make_model(Classifier(), (8, 8))
    monkeypatch.setitem(sys.modules, name, None)
    info = next(info for info in list_backends() if info.name == name)
    assert not info.available
    wheel = {"tvm": "apache-tvm==0.27"}.get(name, name)
    assert f"pip install {wheel}" in info.fix
    with pytest.raises(BackendUnavailableError, match=f"{name}.*pip install {wheel}"):
        create_runner(model, name, "fp32", threads=1)


def test_broken_library(monkeypatch):
    real = importlib.import_module

    def fail(name, package=None):
        if name == "openvino":
            raise OSError("libtbb.so.12: cannot open shared object file")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", fail)
    info = next(info for info in list_backends() if info.name == "openvino")
    assert not info.available
    assert "libtbb.so.12" in info.reason


def test_untuned_tvm_is_never_run():
    pytest.importorskip("tvm")
    part = make_model(Classifier(), (8, 8))
    for precision in ("fp32", "fp16"):
        with pytest.raises(BackendUnavailableError, match="run jetson-dnn-rt build"):
            create_runner(part, "tvm", precision, threads=1)
    with pytest.raises(BackendUnavailableError, match=r"computes in fp32, fp16 .* not in bf16"):
        create_runner(part, "tvm", "bf16", threads=1)


def test_the_install_line_of_tvm_is_what_the_extra_holds():
    file = Path(__file__).resolve().parents[2] / "requirements" / "tvm.txt"
    lines = [line for line in file.read_text().splitlines() if line and line[0] != "#"]
    assert TVM_FIX.startswith(f"pip install {' '.join(lines)} ")


@pytest.mark.parametrize(
    ("version", "runtime", "words"),
    [
        ("0.27.0.post1", "0.1.15", "apache-tvm-ffi 0.1.15 is installed, with which TVM 0.27"),
        ("0.26.0", "0.1.14.post1", "TVM 0.26.0 is installed"),
        ("0.27.0.post1", "0.1.14.post1", ""),
        ("0.27.0", "0.1.14", ""),
    ],
)
def test_releases_of_tvm_that_do_not_hold_together(version, runtime, words, monkeypatch):
    monkeypatch.setitem(sys.modules, "tvm", SimpleNamespace(__version__=version))  # type: ignore[misc]
    monkeypatch.setitem(sys.modules, "tvm_ffi", SimpleNamespace(__version__=runtime))  # type: ignore[misc]
    info = inspect_backend("tvm")
    assert info.available is not bool(words)
    assert info.reason.startswith(words)
    assert info.fix == (TVM_FIX if words else "")


def test_what_tvm_runs_without_is_said(monkeypatch):
    pytest.importorskip("tvm")
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "xgboost" else real(name)
    )
    monkeypatch.setattr("jetson_dnn_rt.tvm.backend.find_linker", lambda: "")
    info = inspect_backend("tvm")
    assert info.available
    assert "cannot tune: pip install xgboost-cpu; compiles at every start" in info.reason
    assert "sudo apt install g++" in info.reason


def test_tensorrt_without_a_device(monkeypatch):
    """The library alone is of no use; both who could own memory on a device are named."""
    monkeypatch.setitem(sys.modules, "tensorrt", make_tensorrt("8.6.1"))
    for name in ("torch", "cuda", "cuda.bindings", "cuda.bindings.runtime", "cuda.cudart"):
        monkeypatch.setitem(sys.modules, name, None)
    info = inspect_backend("tensorrt")
    assert not info.available
    assert "TensorRT 8.6.1 is installed, no CUDA device: torch cannot be" in info.reason
    assert info.fix not in info.reason
    assert "pip install torch" in info.fix


def test_dla_cores_are_back_ends_of_their_own(monkeypatch):
    """Of two, one is there, say on a Jetson Orin NX 8GB."""
    trt = make_tensorrt("8.6.1", dla_cores=1)
    monkeypatch.setitem(sys.modules, "tensorrt", trt)
    monkeypatch.setattr("jetson_dnn_rt.backends.cuda.owners.open_cuda", FakeCuda)
    monkeypatch.setattr("jetson_dnn_rt.backends.tensorrt.runner.open_cuda", FakeCuda)
    listed = {info.name: info for info in list_backends()}
    assert listed["tensorrt_dla0"].precisions == ("fp16",)
    assert "tensorrt_dla1" not in listed
    part = make_model(Classifier(), (8, 8))
    runner = create_runner(part, "tensorrt_dla0", "fp16", threads=1)
    assert runner.backend == "tensorrt_dla0"
    assert trt.builds[-1][1].DLA_core == 0
    with pytest.raises(
        BackendUnavailableError, match="this machine has 1 DLA cores; use tensorrt"
    ):
        create_runner(part, "tensorrt_dla1", "fp16", threads=1)
    with pytest.raises(BackendUnavailableError, match="computes in fp16 on this machine, not in"):
        create_runner(part, "tensorrt_dla0", "fp32", threads=1)


def test_tensorrt_with_a_device(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", make_tensorrt("10.3.0"))
    monkeypatch.setattr("jetson_dnn_rt.backends.cuda.owners.open_cuda", FakeCuda)
    monkeypatch.setattr("jetson_dnn_rt.backends.tensorrt.runner.open_cuda", FakeCuda)
    info = inspect_backend("tensorrt")
    assert (info.version, info.precisions) == ("10.3.0", ("fp32", "fp16", "int8"))
    model = make_model(Classifier(), (8, 8))
    runner = create_runner(model, "tensorrt", "fp16", threads=1)
    assert (runner.backend, runner.version, runner.device) == ("tensorrt", "10.3.0", "cuda")
    with pytest.raises(
        BackendUnavailableError, match=r"computes in fp32, fp16, int8 .* not in bf16"
    ):
        create_runner(model, "tensorrt", "bf16", threads=1)


def test_bf16_without_the_instructions_is_refused(monkeypatch):
    """Both libraries would run all the same: emulated, or in fp32 without a word."""
    model = make_model(Classifier(), (8, 8))
    for backend, module in (("torch", torch_backend), ("openvino", openvino_backend)):
        pytest.importorskip(backend)
        monkeypatch.setattr(module, "supports_bf16", lambda: False)
        monkeypatch.setattr(torch_backend, "choose_device", lambda: "cpu")
        with pytest.raises(BackendUnavailableError, match=r"not in bf16 \(no bf16"):
            create_runner(model, backend, "bf16", threads=1)


@pytest.mark.parametrize(
    ("backend", "precision"), [("onnxruntime", "bf16"), ("openvino", "fp16"), ("null", "int8")]
)
def test_precision_that_a_back_end_has_not(backend, precision):
    if not (info := inspect_backend(backend)).available:
        pytest.skip(f"{backend}: {info.reason}")
    with pytest.raises(BackendUnavailableError, match="computes in fp32"):
        create_runner(make_model(Classifier(), (8, 8)), backend, precision, threads=1)


@pytest.mark.parametrize(
    ("backend", "precision", "threads", "words"),
    [
        ("caffe", "fp32", 1, "back end 'caffe' is unknown"),
        ("torch", "fp8", 1, "precision 'fp8' is unknown"),
        ("torch", "fp32", 0, "threads must be >= 1"),
    ],
)
def test_bad_arguments(backend, precision, threads, words):
    with pytest.raises(ConfigurationError, match=words):
        create_runner(make_model(Classifier(), (8, 8)), backend, precision, threads=threads)
