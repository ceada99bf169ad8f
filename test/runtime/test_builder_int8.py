# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""INT8 variants built, measured, refused and loaded, as `build` and nodes do it."""

from __future__ import annotations

import sys
from contextlib import closing

import numpy as np
import onnx
import pytest
from fake_cuda import FakeCuda
from fake_tensorrt import make_tensorrt
from networks import Classifier, make_model

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.lab.quantize import quantization, quantizers
from jetson_dnn_rt.lab.quantize.search import Found
from jetson_dnn_rt.models.graph.quantized_part import list_quantized
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.runtime.building import builder as building
from jetson_dnn_rt.runtime.building.builder import BuildSettings, TaskBuilder, TaskPlan
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames
from jetson_dnn_rt.variants.measuring.store import load_measurement
from jetson_dnn_rt.variants.quantized import load_quantized, read_quantization
from jetson_dnn_rt.variants.running.variant_set import VariantSet
from jetson_dnn_rt.variants.spec import VariantSpec

ORT, ORT8, OV8 = "full@onnxruntime-fp32", "full@onnxruntime-int8", "full@openvino-int8"


@pytest.fixture(autouse=True)
def onnxruntime_is_the_default(monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(building, "choose_default", lambda model: VariantSpec.parse(ORT))


@pytest.fixture(scope="module")
def detector():
    return load_model("builtin:detector")


@pytest.fixture
def library(tmp_path):
    return Library(tmp_path / "cache")


@pytest.fixture
def quantized(monkeypatch):
    """The agreement that was asked for, each time that a network was quantized."""
    asked = []
    quantize = quantization.quantize

    def spy(*args, **options):
        asked.append(options.get("agreement"))
        return quantize(*args, **options)

    monkeypatch.setattr(quantization, "quantize", spy)
    return asked


def make_builder(model, library, *names, stages=1, **settings):
    plan = TaskPlan(TaskConfig("task", variants=names, stages=stages), model, 1)
    settings = {"frames": "synthetic", "frame_count": 16, "runs": 3, **settings}
    return TaskBuilder(plan, Library(library.root), BuildSettings(**settings), SteadyClock())


def build_all(builder):
    return {str(spec): builder.build(spec) for spec in builder.order}


def load(model, library, *names, stages=1):
    config = TaskConfig(variants=names, stages=stages, finest_stages=stages > 1)
    return VariantSet(config, model, library=library)


def test_an_int8_variant_is_built_once_and_runs(detector, library, quantized, monkeypatch):
    # Two runs on a busy machine say nothing of which is faster: that is tested elsewhere.
    monkeypatch.setattr(building, "decide", lambda candidate, reference: "")
    reports = build_all(make_builder(detector, library, ORT8, agreement=0.9))
    assert {name: r.state for name, r in reports.items()} == {ORT: "built", ORT8: "built"}
    measurement = reports[ORT8].measurement
    assert measurement.agreement.value >= 0.9
    assert measurement.agreement.reference == ORT
    assert measurement.parameter_bytes == measurement.parameters
    spec = VariantSpec.parse(ORT8)
    found = load_measurement(library, detector, spec, threads=1, stages=1)
    assert found == measurement
    assert quantized == [0.9]

    again = make_builder(detector, library, ORT8)
    assert again.list_missing() == ()
    assert {r.state for r in build_all(again).values()} == {"present"}
    assert quantized == [0.9]
    # Another figure, or other frames where they are named, are work to do.
    stricter = make_builder(detector, library, ORT8, agreement=0.85)
    assert stricter.list_missing() == (spec,)
    others = {"frames": "synthetic:3", "any_frames": False}
    assert spec in make_builder(detector, library, ORT8, **others).list_missing()
    build_all(stricter)
    assert quantized == [0.9, 0.85]
    entry = load_quantized(detector, spec, library, staged=False)
    assert read_quantization(entry).asked == 0.85

    (frame,) = open_frames("synthetic:2", 1)
    with closing(load(detector, library, ORT, ORT8)) as variants:
        assert variants.left_out == {}
        assert variants.pipelines[ORT8].segments[0].runner.precision == "int8"
        boxes = []
        for name in (ORT, ORT8):
            work = Work(frame)
            variants.pipelines[name].run(work)
            boxes.append(work.result.boxes)
    assert len(boxes[0]) > 0
    assert abs(len(boxes[0]) - len(boxes[1])) <= 1


@pytest.mark.parametrize("variant", [ORT8, OV8])
def test_an_int8_variant_in_stages(detector, library, variant, monkeypatch):
    if variant == OV8:
        pytest.importorskip("openvino")
        pytest.importorskip("nncf", reason="pip install -r requirements/int8.txt")
    monkeypatch.setattr(building, "decide", lambda candidate, reference: "")
    builder = make_builder(detector, library, variant, stages=2, agreement=0.8)
    reports = build_all(builder)
    assert reports[variant].state == "built"
    (frame,) = open_frames("synthetic:2", 1)
    with closing(load(detector, library, ORT, variant, stages=2)) as variants:
        pipeline = variants.pipelines[variant]
        assert len(pipeline.segments) == 2
        assert variants.stage_names == ("preprocess", "inference-1", "inference-2", "decode")
        work, mixed = Work(frame), Work(frame)
        pipeline.run(work)
        # Boundary values are float32: stages of other variants take them.
        stages = [*pipeline.stages[:2], *variants.pipelines[ORT].stages[2:]]
        for stage in stages:
            stage.run(mixed)
    assert len(work.result.boxes) > 0
    assert abs(len(work.result.boxes) - len(mixed.result.boxes)) <= 2


def test_a_node_leaves_it_out_until_it_is_built(detector, library):
    with closing(load(detector, library, ORT, ORT8)) as variants:
        assert variants.missing == (ORT8,)
        assert "run jetson-dnn-rt build, which calibrates it" in variants.left_out[ORT8]


def test_one_quantized_for_a_single_stage_is_not_cut(detector, library, monkeypatch):
    monkeypatch.setattr(building, "decide", lambda candidate, reference: "")
    build_all(make_builder(detector, library, ORT8, agreement=0.5))
    with closing(load(detector, library, ORT, ORT8, stages=2)) as variants:
        assert variants.missing == (ORT8,)


def test_one_that_cannot_agree_is_refused_with_the_best_figure(
    detector, library, quantized, monkeypatch
):
    monkeypatch.setattr(quantization, "search", lambda *a, **o: Found((), 0.731, 21, False))
    builder = make_builder(detector, library, ORT8)
    reports = build_all(builder)
    reason = (
        "int8 agrees 0.731 mAP@0.5 with fp32 at best, 0.98 is asked for (--agreement), with 0 of "
        "20 products in fp32"
    )
    assert (reports[ORT8].state, reports[ORT8].reason) == ("refused", reason)
    assert reports[ORT8].note == "20 of 20 products in int8, 0 stay in fp32"
    assert reports[ORT].note == ""
    again = build_all(make_builder(detector, library, ORT8))
    assert (again[ORT8].state, again[ORT8].fresh) == ("refused", False)
    assert quantized == [None]
    with closing(load(detector, library, ORT, ORT8)) as variants:
        assert variants.missing == ()
        assert reason in variants.left_out[ORT8]


def test_the_measured_agreement_is_held_against_it_as_well(detector, library, monkeypatch):
    """What ran while it was searched may differ from what was measured in the end."""
    monkeypatch.setattr(quantization, "search", lambda *a, **o: Found((), 1.0, 1, True))
    make_reader = quantizers._make_reader
    # Ranges of dark pictures: on some CPUs the network agrees everywhere otherwise.
    monkeypatch.setattr(
        quantizers,
        "_make_reader",
        lambda name, images: make_reader(name, [0.3 * i for i in images]),
    )
    reports = build_all(make_builder(detector, library, ORT8, agreement=1.0))
    value = reports[ORT8].measurement.agreement.value
    assert value < 1.0
    expected = f"int8 agrees {value:.3f} mAP@0.5 with {ORT}, 1 is asked for (--agreement)"
    assert reports[ORT8].reason == expected


def test_a_decomposed_network_in_int8(library, tmp_path, monkeypatch):
    """It is measured with its own form in fp32: that it differs from the full one is known."""
    monkeypatch.setattr(building, "decide", lambda candidate, reference: "")
    model = make_model(Classifier().eval(), (32, 48))
    name = "tucker-ratio-0.50@onnxruntime-int8"
    reports = build_all(make_builder(model, library, name, agreement=0.5))
    assert reports[name].state == "built"
    entry = load_quantized(model, VariantSpec.parse(name), library, staged=False)
    facts = read_quantization(entry)
    network = onnx.load_model_from_string(entry.files["model.onnx"])
    assert facts.products == len(list_quantized(network)) + len(facts.kept)
    with closing(load(model, library, ORT, name)) as variants:
        assert list(variants.pipelines) == [ORT, name]
    # Of a decomposed network that is not there, neither is there one in int8.
    other = VariantSpec.parse("tucker-ratio-0.25@onnxruntime-int8")
    assert load_quantized(model, other, library, staged=False) is None


def test_without_the_lab_it_is_told_how(detector, library, monkeypatch):
    monkeypatch.setattr(building, "collect", lambda table: {})
    builder = make_builder(detector, library, ORT8)
    report = builder.build(VariantSpec.parse(ORT8))
    assert report.state == "failed"
    assert "int8 networks cannot be made here, as jetson_dnn_rt.lab is not" in report.reason


def test_without_nncf_it_is_told_what_to_install(detector, library, monkeypatch):
    pytest.importorskip("openvino")
    monkeypatch.setitem(sys.modules, "nncf", None)
    report = make_builder(detector, library, OV8).build(VariantSpec.parse(OV8))
    assert report.state == "failed"
    assert "pip install nncf" in report.reason


def test_tensorrt_builds_its_engines_of_the_quantized_network(detector, library, monkeypatch):
    """On the made-up library, whose engines ONNX Runtime runs."""
    trt = make_tensorrt("10.3.0")
    monkeypatch.setitem(sys.modules, "tensorrt", trt)
    for module in ("tensorrt.runner", "cuda.owners"):
        monkeypatch.setattr(f"jetson_dnn_rt.backends.{module}.open_cuda", FakeCuda)
    name = "full@tensorrt-int8"
    builder = make_builder(detector, library, name, agreement=0.8)
    spec = VariantSpec.parse(name)
    builder._quantize(spec)
    entry = builder._load_quantized(spec)
    assert read_quantization(entry).reached >= 0.8
    prepared = builder._open_prepared(spec)
    parts = builder._list_parts(spec)
    assert not prepared.is_built(parts)
    runner = prepared.make(parts[0], build=True)
    assert runner.precision == "int8"
    ((network, config),) = trt.builds
    assert network.data == entry.files["model.onnx"]
    assert trt.BuilderFlag.INT8 in config.set
    assert prepared.is_built(parts)
    image = np.random.default_rng(0).random(detector.input_shape, np.float32)
    boxes, scores = runner.to_host(runner.run([image]))
    assert np.isfinite(boxes).all()
    assert ((scores >= 0) & (scores <= 1)).all()
    runner.close()
