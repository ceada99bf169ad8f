# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Variants built beforehand: once, measured, compared, and kept with what they are worth."""

from __future__ import annotations

import logging
import sys

import cv2
import numpy as np
import pytest
from networks import Classifier, make_model

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.lab.compress import compression
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.runtime.building import builder as building
from jetson_dnn_rt.runtime.building.builder import BuildSettings, TaskBuilder, TaskPlan
from jetson_dnn_rt.variants.decomposition import load_reduced
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.store import load_measurement
from jetson_dnn_rt.variants.spec import DecompositionSpec, VariantSpec

TORCH, ONNX = "full@torch-fp32", "full@onnxruntime-fp32"
TUCKER = "tucker-ratio-0.50@torch-fp32"


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    """Eight pictures of noise, half of which are held out."""
    folder = tmp_path_factory.mktemp("frames")
    rng = np.random.default_rng(0)
    for index in range(8):
        image = rng.integers(0, 255, (24, 40, 3), np.uint8)
        cv2.imwrite(str(folder / f"{index}.png"), image)
    return f"images:{folder}"


@pytest.fixture(scope="module")
def model():
    return make_model(Classifier().eval(), (32, 48))


@pytest.fixture
def library(tmp_path):
    return Library(tmp_path / "cache")


@pytest.fixture(autouse=True)
def torch_is_the_default(monkeypatch):
    monkeypatch.setattr(building, "choose_default", lambda model: VariantSpec.parse(TORCH))


def make_builder(model, library, frames, *names, stages=1, **settings):
    plan = TaskPlan(TaskConfig("task", variants=names, stages=stages), model, 1)
    settings = {"frames": frames, "runs": 5, **settings}
    return TaskBuilder(plan, Library(library.root), BuildSettings(**settings), SteadyClock())


def build_all(builder):
    return {str(spec): builder.build(spec) for spec in builder.order}


def states(reports):
    return {name: (report.state, report.fresh) for name, report in reports.items()}


def test_full_networks_come_first_and_references_are_added(model, library, frames):
    names = ("tucker-0.50@onnxruntime-fp32", "full@openvino-bf16", "full@openvino-fp32")
    builder = make_builder(model, library, frames, *names)
    assert [str(spec) for spec in builder.plan.references] == [TORCH, ONNX]
    assert [str(spec) for spec in builder.order] == [TORCH, ONNX, names[2], names[0], names[1]]
    alone = make_builder(model, library, frames, TORCH)
    assert alone.plan.references == ()


def test_what_was_built_is_found(model, library, frames, monkeypatch):
    pytest.importorskip("onnxruntime")
    builder = make_builder(model, library, frames, ONNX, stages=2)
    assert [str(spec) for spec in builder.list_missing()] == [TORCH, ONNX]
    first = build_all(builder)
    assert states(first) == {TORCH: ("built", True), ONNX: ("built", True)}
    for report in first.values():
        measurement = report.measurement
        assert measurement.total.count == 5
        assert measurement.stages[0].name == "preprocess"
        assert measurement.stages[-1].name == "decode"
        assert measurement.agreement.value == 1.0
        assert measurement.agreement.frames == 4
        assert measurement.agreement.reference == TORCH
        assert measurement.parameters == 3 * 16 * 9 + 16 + 2 * 16 + 16 * 7 + 7
        assert measurement.macs == 3 * 16 * 9 * 16 * 24 + 16 * 7
        assert measurement.frames == frames
        assert measurement.frame_size == (24, 40)

    def fail(*args, **options):
        raise AssertionError("built again")

    monkeypatch.setattr(building, "Task", fail)
    again = make_builder(model, library, frames, ONNX, stages=2)
    assert again.list_missing() == ()
    second = build_all(again)
    assert states(second) == {TORCH: ("present", False), ONNX: ("present", False)}
    assert [r.measurement for r in second.values()] == [r.measurement for r in first.values()]
    found = load_measurement(library, model, VariantSpec.parse(ONNX), threads=1, stages=2)
    assert found == first[ONNX].measurement
    assert load_measurement(library, model, VariantSpec.parse(ONNX), threads=2, stages=2) is None


def test_without_the_lab_a_decomposed_variant_fails_with_what_to_do(
    model, library, frames, monkeypatch
):
    monkeypatch.setattr(building, "collect", lambda table: {})
    builder = make_builder(model, library, frames, "tucker-0.50@torch-fp32")
    report = builder.build(builder.plan.variants[0])
    assert (report.state, report.measurement) == ("failed", None)
    assert "jetson_dnn_rt.lab is not installed; fix: " in report.reason
    assert "jetson-dnn-rt library import" in report.reason


def test_a_decomposed_variant_is_compressed_once(model, library, frames, monkeypatch):
    pytest.importorskip("onnxruntime")
    compressed = []
    compress = compression.compress

    def spy(*args, **options):
        compressed.append(options["recover_steps"])
        return compress(*args, **{**options, "keep_slower": True})

    monkeypatch.setattr(compression, "compress", spy)
    names = (TUCKER, "tucker-ratio-0.50@onnxruntime-fp32")
    reports = build_all(make_builder(model, library, frames, *names))
    assert compressed == [0]
    for name in names:
        assert reports[name].state in ("built", "refused")
        measurement = reports[name].measurement
        assert measurement.agreement.reference == TORCH
        full = reports[TORCH].measurement
        assert (measurement.macs or 0) < (full.macs or 0)
    spec = DecompositionSpec.parse("tucker-ratio-0.50")
    assert load_reduced(model, spec, library) is not None
    again = make_builder(model, library, frames, *names)
    assert again.list_missing() == ()
    assert not any(report.fresh for report in build_all(again).values())
    assert compressed == [0]
    # Measuring again does not throw away what was trained.
    build_all(make_builder(model, library, frames, *names, again=True))
    assert compressed == [0]
    # More steps than it was trained with are work to do; fewer are not.
    trained = make_builder(model, library, frames, *names, recover_steps=2)
    assert [str(spec) for spec in trained.list_missing()] == list(names)
    build_all(trained)
    assert compressed == [0, 2]
    fewer = make_builder(model, library, frames, *names, recover_steps=1)
    assert fewer.list_missing() == ()


def test_a_refused_variant_stays_listed_with_its_figures(model, library, frames, monkeypatch):
    asked = []

    def refuse(candidate, reference):
        asked.append((candidate.variant, reference.variant))
        return "of no use" if candidate.variant == TUCKER else ""

    monkeypatch.setattr(building, "decide", refuse)
    first = build_all(make_builder(model, library, frames, TUCKER))
    assert asked == [(TUCKER, TORCH)]
    again = make_builder(model, library, frames, TUCKER)
    assert again.list_missing() == ()
    second = build_all(again)
    for reports, fresh in ((first, True), (second, False)):
        report = reports[TUCKER]
        assert (report.state, report.reason, report.fresh) == ("refused", "of no use", fresh)
        assert report.measurement.refused == "of no use"
        assert report.measurement.total.p50_ns > 0
    assert {listing.header.key.variant for listing in library.entries() if listing.header} >= {
        TUCKER
    }


def test_what_cannot_be_built_is_said_and_the_others_go_on(
    model, library, frames, caplog, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tvm", None)
    builder = make_builder(model, library, frames, "full@tvm-fp32", TORCH)
    assert "full@tvm-fp32" in map(str, builder.list_missing())
    reports = build_all(builder)
    failed = reports["full@tvm-fp32"]
    assert (failed.state, failed.measurement) == ("failed", None)
    assert "pip install apache-tvm==" in failed.reason
    assert reports[TORCH].state == "built"
    assert "full@tvm-fp32" in caplog.text


def test_where_the_default_fails_another_full_network_is_the_measure(
    model, library, frames, monkeypatch, caplog
):
    pytest.importorskip("onnxruntime")
    make = building.Task

    def fail_torch(config, **options):
        if config.variants == (TORCH,):
            raise ModelError("no memory")
        return make(config, **options)

    monkeypatch.setattr(building, "Task", fail_torch)
    reports = build_all(make_builder(model, library, frames, ONNX))
    assert reports[TORCH].reason == "no memory"
    measurement = reports[ONNX].measurement
    assert measurement.agreement.reference == ONNX


def test_a_variant_that_is_not_there_is_not_replaced_by_another(model, library, frames):
    builder = make_builder(model, library, frames, TORCH)
    with pytest.raises(BackendUnavailableError, match="not in the library"):
        builder._open(VariantSpec.parse(TUCKER))


def test_again_measures_what_is_there(model, library, frames):
    build_all(make_builder(model, library, frames, TORCH))
    again = make_builder(model, library, frames, TORCH, again=True)
    assert [str(spec) for spec in again.list_missing()] == [TORCH]
    assert states(build_all(again)) == {TORCH: ("built", True)}
    assert len(library.entries()) == 1


def test_other_frames_are_another_measurement_only_where_they_were_named(
    model, library, frames, tmp_path
):
    build_all(make_builder(model, library, frames, TORCH))
    folder = tmp_path / "others"
    folder.mkdir()
    cv2.imwrite(str(folder / "only.png"), np.zeros((10, 10, 3), np.uint8))
    others = f"images:{folder}"
    assert make_builder(model, library, others, TORCH).list_missing() == ()
    named = make_builder(model, library, others, TORCH, any_frames=False)
    report = build_all(named)[TORCH]
    assert report.fresh
    assert report.measurement.agreement.frames == 1


def test_a_measurement_that_cannot_be_read_is_made_anew(model, library, frames, caplog):
    build_all(make_builder(model, library, frames, TORCH))
    (listing,) = library.entries()
    library.store(listing.header.key, {}, {**listing.header.facts, "threads": "two"})
    caplog.set_level(logging.WARNING)
    builder = make_builder(model, library, frames, TORCH)
    assert [str(spec) for spec in builder.list_missing()] == [TORCH]
    assert "threads must be a whole number" in caplog.text
    assert build_all(builder)[TORCH].fresh


def test_no_frame_is_no_measurement(model, library, tmp_path):
    reports = build_all(make_builder(model, library, f"images:{tmp_path / 'none'}", TORCH))
    assert reports[TORCH].state == "failed"
    assert "none" in reports[TORCH].reason


def test_progress_names_what_is_done(model, library, frames):
    phases = []
    builder = make_builder(model, library, frames, TORCH)
    builder.build(builder.order[0], lambda phase, done, total: phases.append(phase))
    assert {"reading frames", "measuring"} <= set(phases)


def test_a_null_model_is_built_too(library, frames, monkeypatch):
    null = VariantSpec("full", "null")
    monkeypatch.setattr(building, "choose_default", lambda model: null)
    report = build_all(make_builder(load_model("null:0.1"), library, frames, str(null)))[str(null)]
    assert report.state == "built"
    assert report.measurement.macs is None
    assert report.measurement.total.p50_ns >= 100_000
