# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""doctor --tensorrt: on this machine, on a made-up one that has all, and on ones that lack."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from fake_cuda import FakeCuda
from fake_tensorrt import make_tensorrt
from onnxruntime import InferenceSession

from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.backends.tensorrt import api
from jetson_dnn_rt.backends.tensorrt import trial as tensorrt_trial
from jetson_dnn_rt.backends.tensorrt.trial import SHAPE, TrialPart, run_reference
from jetson_dnn_rt.cli import main
from jetson_dnn_rt.cli.doctor import check_tensorrt

VERSIONS = ("8.5.3.1", "11.1.0")


@pytest.fixture(params=VERSIONS)
def equipped(request, monkeypatch):
    """A machine with library and device."""
    module = make_tensorrt(request.param)
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    monkeypatch.setattr("jetson_dnn_rt.backends.cuda.owners.open_cuda", FakeCuda)
    monkeypatch.setattr("jetson_dnn_rt.backends.tensorrt.runner.open_cuda", FakeCuda)
    monkeypatch.setattr(tensorrt_trial, "_RUNS", 3)
    return module


def run_doctor(capsys):
    code = main.main(["doctor", "--tensorrt", "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def test_all_is_well(equipped, capsys):
    code, found = run_doctor(capsys)
    assert code == 0
    assert found["ok"]
    assert equipped.__version__ in found["checks"]["tensorrt"]["detail"]
    for precision in ("fp32", "fp16"):
        check = found["checks"][f"trial {precision}"]
        assert check["ok"]
        assert "p99" in check["detail"]
        assert "from the reference, allowed is" in check["detail"]
    assert len(equipped.builds) == 2
    assert main.main(["doctor", "--tensorrt"]) == 0
    assert "TensorRT works here." in capsys.readouterr().out


def test_wrong_results(equipped, capsys, monkeypatch):
    monkeypatch.setattr(tensorrt_trial, "run_reference", lambda *a: run_reference(*a) + 0.1)
    code, found = run_doctor(capsys)
    assert code == 1
    assert not found["checks"]["trial fp16"]["ok"]
    assert "off by 1.0e-01" in found["checks"]["trial fp16"]["detail"]
    assert "do not use it" in found["checks"]["trial fp16"]["fix"]


def test_a_build_that_fails(equipped, capsys):
    equipped.refuse = "Could not find any implementation for node conv1."
    code, found = run_doctor(capsys)
    assert code == 1
    assert "conv1" in found["checks"]["trial fp32"]["detail"]
    assert "raise workspace_mib" in found["checks"]["trial fp32"]["detail"]


def test_no_library(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setattr(api, "has_gpu", lambda: True)
    code, found = run_doctor(capsys)
    assert code == 1
    check = found["checks"]["tensorrt"]
    assert "cannot be imported" in check["detail"]
    assert "tensorrt==8.5.3.1" in check["fix"]
    assert check["fix"] not in check["detail"]
    assert found["checks"]["trial"]["detail"].startswith("not run, missing: tensorrt")
    assert main.main(["doctor", "--tensorrt"]) == 1
    assert "TensorRT does not work here: tensorrt" in capsys.readouterr().out
    monkeypatch.setattr(api, "has_gpu", lambda: False)
    _, found = run_doctor(capsys)
    check = found["checks"]["tensorrt"]
    assert (check["detail"], check["fix"]) == (api.NO_GPU, "")


def test_a_library_without_a_device(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", make_tensorrt("10.3.0"))
    for name in ("torch", "cuda", "cuda.bindings", "cuda.bindings.runtime", "cuda.cudart"):
        monkeypatch.setitem(sys.modules, name, None)
    code, found = run_doctor(capsys)
    assert code == 1
    assert found["checks"]["tensorrt"]["ok"]
    assert "no CUDA device" in found["checks"]["cuda device"]["detail"]
    assert found["checks"]["trial"]["detail"] == "not run, missing: cuda device"


def test_the_reference_is_what_onnxruntime_gives():
    image, part = np.random.default_rng(0).random(SHAPE, np.float32), TrialPart()
    scores = run_reference(part, image)
    assert 0.05 < scores.max() < 0.999  # a softmax that says nothing would prove nothing
    session = InferenceSession(part.onnx_model(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"image": image})[0], scores, atol=1e-5)


@pytest.mark.tensorrt
def test_tensorrt_on_this_machine():
    """The trial itself, wherever library and device are."""
    info = inspect_backend("tensorrt")
    if not info.available:
        pytest.skip(info.reason)
    checks = {check.name: check for check in check_tensorrt()}
    assert all(check.ok for check in checks.values() if check.required), checks
