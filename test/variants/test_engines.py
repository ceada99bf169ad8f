# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Engines are built once; what does not fit any more is built again; nodes never build."""

from __future__ import annotations

import logging
import sys

import numpy as np
import pytest
from fake_cuda import FakeCuda
from fake_tensorrt import make_tensorrt
from networks import Classifier, make_model
from onnx_parts import make_classifier, make_exponential

from jetson_dnn_rt.backends.tensorrt.build import build_engine
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError, NotBuiltError
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.running.engines import make_runner
from jetson_dnn_rt.variants.spec import VariantSpec


@pytest.fixture
def trt(monkeypatch):
    module = make_tensorrt("8.6.1", dla_cores=1)
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    for name in ("tensorrt.runner", "cuda.owners"):
        monkeypatch.setattr(f"jetson_dnn_rt.backends.{name}.open_cuda", FakeCuda)
    return module


@pytest.fixture(scope="module")
def model():
    """Its network is of no importance: the parts are given."""
    return make_model(Classifier(), (8, 8))


def make(model, library, part, variant="full@tensorrt-fp16", **options):
    spec = VariantSpec.parse(variant)
    return make_runner(model, spec, part, threads=1, library=library, **options)


def run(runner):
    image = np.random.default_rng(0).random(runner.input_shapes[0], np.float32)
    return runner.to_host(runner.run([image]))[0].copy()


def find_engine(library):
    headers = [listing.header for listing in library.entries() if listing.header is not None]
    (key,) = (header.key for header in headers if "timing" not in header.key.options)
    return key


def test_built_once(trt, library, model):
    first = run(make(model, library, make_classifier()))
    assert len(trt.builds) == 1
    again = run(make(model, Library(library.root), make_classifier()))
    assert len(trt.builds) == 1
    np.testing.assert_array_equal(again, first)
    entry = library.load(find_engine(library))
    assert entry.facts["engine_bytes"] == len(entry.files["engine.plan"])
    assert entry.facts["build_ms"] > 0


def test_a_wrong_label_is_not_kept(trt, library, model, caplog):
    """TensorRT built FP32 where FP16 was asked for."""
    trt.computes = "Float"
    with pytest.raises(ModelError, match=r"asked for fp16, 0 of 2 layers .* \(2 in fp32\)"):
        make(model, library, make_classifier())
    assert not library.entries()
    trt.computes = ""
    with caplog.at_level(logging.INFO):
        make(model, library, make_classifier())
    assert "layers that multiply: 2 in fp16" in caplog.text
    assert library.load(find_engine(library)) is not None


def test_without_a_library_every_time(trt, model):
    for count in (1, 2):
        make(model, None, make_classifier())
        assert len(trt.builds) == count


@pytest.mark.parametrize("change", ["part", "decomposition", "precision", "version", "dla"])
def test_whatever_decides_an_engine_makes_another(trt, library, model, change, monkeypatch):
    make(model, library, make_classifier())
    part, variant = make_classifier(), "full@tensorrt-fp16"
    if change == "part":
        part = make_exponential()
    elif change == "decomposition":
        variant = "tucker-0.50@tensorrt-fp16"
    elif change == "precision":
        variant = "full@tensorrt-fp32"
    elif change == "dla":
        variant = "full@tensorrt_dla0-fp16"
    else:
        newer = make_tensorrt("8.6.2")
        newer.builds = trt.builds
        monkeypatch.setitem(sys.modules, "tensorrt", newer)
    with pytest.raises(NotBuiltError, match="run jetson-dnn-rt build"):
        make(model, library, part, variant, build=False)
    make(model, library, part, variant)
    assert len(trt.builds) == 2
    again = make(model, library, part, variant, build=False)
    assert len(trt.builds) == 2
    assert again.backend == ("tensorrt_dla0" if change == "dla" else "tensorrt")


def test_an_engine_that_does_not_load_is_built_again(trt, library, model, caplog):
    """The key fits; TensorRT refuses it all the same, say after a change of the driver."""
    make(model, library, make_classifier())
    foreign = build_engine(make_classifier(), "fp16", module=make_tensorrt("10.3.0")).engine
    library.store(find_engine(library), {"engine.plan": foreign}, {})
    with caplog.at_level(logging.WARNING):
        run(make(model, library, make_classifier()))
    assert "Version tag does not match" in caplog.text
    assert len(trt.builds) == 2
    make(model, library, make_classifier())
    assert len(trt.builds) == 2


def test_times_of_kernels_are_kept_for_the_next_build(trt, library, model):
    make(model, library, make_classifier())
    make(model, library, make_exponential(), "full@tensorrt-fp32")
    (_, first), (_, second) = trt.builds
    assert second.cache is not first.cache
    assert second.cache.data == first.cache.data


def test_without_tensorrt_it_is_said(library, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setattr("jetson_dnn_rt.backends.tensorrt.api.has_gpu", lambda: True)
    with pytest.raises(BackendUnavailableError, match=r"cannot be imported.*python3-libnvinfer"):
        make(model, library, make_classifier())


def test_other_back_ends_need_no_engine(library, model):
    runner = make(model, library, make_classifier(), "full@onnxruntime-fp32", build=False)
    assert runner.backend == "onnxruntime"
    (listing,) = library.entries()
    assert listing.header.key.backend == "onnxruntime"  # what it compiled itself
