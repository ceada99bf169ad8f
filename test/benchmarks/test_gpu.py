# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`gpu` without a GPU: its error here, and its course on a made-up device."""

import sys

import benches
import pytest
from fake_cuda import FakeCuda
from fake_tensorrt import make_tensorrt

from benchmarks import gpu
from benchmarks.harness import main as harness
from jetson_dnn_rt.backends.cuda.owners import open_cuda
from jetson_dnn_rt.errors import BackendUnavailableError


@pytest.fixture
def device(monkeypatch):
    """TensorRT 8.6 with a device; torch has none."""
    module = make_tensorrt("8.6.1")
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name in ("jetson_dnn_rt.backends.cuda.owners", "jetson_dnn_rt.backends.tensorrt.runner"):
        monkeypatch.setattr(f"{name}.open_cuda", FakeCuda)
    monkeypatch.setattr(gpu, "open_cuda", FakeCuda)
    return module


def test_without_a_device_nothing_is_run(capsys):
    try:
        open_cuda().close()
    except BackendUnavailableError:
        pass
    else:
        pytest.skip("there is a device")
    assert harness.main(["gpu"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no CUDA device" in captured.err
    assert "pip install torch" in captured.err


def test_course_on_a_made_up_device(device):
    """Engines really are built, whole and in stages, and compared; torch's rows say why not."""
    _, result = benches.run("gpu", "--models detector --stages 3 --seconds 0.05")
    found = result["models"]["detector"]
    assert (found["stages"], found["input"]) == (3, [1, 3, 240, 320])
    assert found["reference"].startswith("onnxruntime")
    rows = {row["row"]: row for row in found["rows"]}
    assert list(rows) == list(gpu.ROWS)
    for name in gpu.ROWS[:3]:
        assert "has none" in rows[name]["note"]
        assert "p50_ms" not in rows[name]
    row = rows["tensorrt-fp16"]
    assert 0 < row["p50_ms"] <= row["p99_ms"]
    assert row["cuda_graph"]
    assert row["engine_mib"] > 0.1
    assert row["relative_error"] < 1e-4  # the fake computes in fp32
    assert row["agreement"] == 1.0
    assert row["staged"]["agreement"] == 1.0
    assert row["staged"]["cuda_graph"]
    assert len(device.builds) == 4
    # What was timed for one engine is there for the next.
    assert device.builds[3][1].cache is not device.builds[0][1].cache
    assert result["passed"] is None
    assert "detector (240x320), 3 stages" in benches.show("gpu", result)


def test_when_the_time_is_over_the_rest_is_named(device):
    _, result = benches.run("gpu", "--models detector segmenter --minutes 0.000001")
    for found in result["models"].values():
        assert "no time left" in found["skipped"]
    assert "segmenter: left out, no time left" in benches.show("gpu", result)
    assert not device.builds
