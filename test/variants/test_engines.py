"""Engines are built once; what does not fit any more is built again."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from fake_tensorrt import make_tensorrt
from onnx_parts import make_classifier, make_exponential

from jetson_dnn_rt.backends.tensorrt import TensorRtRunner
from jetson_dnn_rt.backends.tensorrt_build import build_engine
from jetson_dnn_rt.variants.engines import Engines
from jetson_dnn_rt.variants.library import Library

MODEL_HASH = "a" * 64


@pytest.fixture
def trt(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = make_tensorrt("8.6.1", dla_cores=1)
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    monkeypatch.setattr("jetson_dnn_rt.backends.tensorrt.open_cuda", FakeCuda)
    return module


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path)


def make_engines(library: Library, **options: Any) -> Engines:
    return Engines(library, MODEL_HASH, "test:network", **options)


def run(runner: TensorRtRunner) -> np.ndarray:
    image = np.random.default_rng(0).random(runner.input_shapes[0], np.float32)
    return runner.to_host(runner.run([image]))[0].copy()


def test_built_once(trt: Any, library: Library) -> None:
    part = make_classifier()
    engines = make_engines(library)
    assert not engines.has(part, "full", "fp16")
    first = run(engines.open(part, "full", "fp16"))
    assert engines.has(part, "full", "fp16")
    assert len(trt.builds) == 1
    again = run(make_engines(library).open(part, "full", "fp16"))
    assert len(trt.builds) == 1
    np.testing.assert_array_equal(again, first)
    entry = library.load(engines.key(part, "full", "fp16"))
    assert entry is not None
    assert entry.facts["engine_bytes"] == len(entry.files["model.engine"])
    assert entry.facts["build_ms"] > 0


@pytest.mark.parametrize(
    "change", ["part", "decomposition", "precision", "workspace", "dla", "version"]
)
def test_whatever_decides_an_engine_makes_another(
    trt: Any, library: Library, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_engines(library).open(make_classifier(), "full", "fp16")
    engines, part, decomposition, precision = (
        make_engines(library),
        make_classifier(),
        "full",
        "fp16",
    )
    if change == "part":
        part = make_exponential()
    elif change == "decomposition":
        decomposition = "tucker-0.50"
    elif change == "precision":
        precision = "fp32"
    elif change == "version":
        newer = make_tensorrt("8.6.2")
        newer.builds = trt.builds
        monkeypatch.setitem(sys.modules, "tensorrt", newer)
    else:
        options = {"workspace": {"workspace_mib": 64}, "dla": {"dla_core": 0}}[change]
        engines = make_engines(library, **options)
    assert not engines.has(part, decomposition, precision)
    engines.open(part, decomposition, precision)
    assert len(trt.builds) == 2


def test_an_engine_that_does_not_load_is_built_again(
    trt: Any, library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    """The key fits; TensorRT refuses it all the same, say after a change of the driver."""
    part, engines = make_classifier(), make_engines(library)
    foreign = build_engine(part, "fp16", module=make_tensorrt("10.3.0")).engine
    library.store(engines.key(part, "full", "fp16"), {"model.engine": foreign}, {})
    with caplog.at_level(logging.WARNING):
        run(engines.open(part, "full", "fp16"))
    assert "its engine is built again" in caplog.text
    assert "Version tag does not match" in caplog.text
    assert len(trt.builds) == 1
    make_engines(library).open(part, "full", "fp16")
    assert len(trt.builds) == 1


def test_times_of_kernels_are_kept_for_the_next_build(trt: Any, library: Library) -> None:
    engines = make_engines(library)
    engines.open(make_classifier(), "full", "fp16")
    _, first = trt.builds[-1]
    engines.open(make_exponential(), "full", "fp16")
    _, second = trt.builds[-1]
    assert second.cache is not first.cache
    assert second.cache.data == first.cache.data
