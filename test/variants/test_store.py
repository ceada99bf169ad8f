# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The agreement of a variant, found whatever threads and stages it was measured with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jetson_dnn_rt.backends.registry import require_backend
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.agreement import Agreement
from jetson_dnn_rt.variants.measuring.measurement import Measurement, TimeDistribution
from jetson_dnn_rt.variants.measuring.store import (
    find_agreement,
    load_measurement,
    measurement_key,
    store_measurement,
)
from jetson_dnn_rt.variants.running import variant_set
from jetson_dnn_rt.variants.running.variant_set import VariantSet
from jetson_dnn_rt.variants.spec import VariantSpec

NAME = "full@openvino-fp32"
SPEC = VariantSpec.parse(NAME)
CONDITIONS = {"threads": 1, "stages": 4}


@pytest.fixture(scope="module")
def model():
    require_backend("onnxruntime", "fp32")
    pytest.importorskip("openvino", reason="two back ends are compared")
    return load_model("builtin:detector")


@pytest.fixture
def library(tmp_path):
    return Library(tmp_path)


def make_measurement(value, *, date="2026-01-01", evidence=9, **changes):
    agreement = Agreement(value, "mAP@0.5", 4, evidence, "full@onnxruntime-fp32")
    total = TimeDistribution.of("total", (5, 1, 2))
    return replace(
        Measurement(
            NAME, total, (total,), 0, 0, None, None, None, agreement, "video:a.mp4", (480, 640), 2,
            {}, f"{date}T00:00:00+00:00",
        ),
        **changes,
    )  # fmt: skip


def store(library, model, measurement, *, threads=2, stages=0, **changes):
    key = measurement_key(model, SPEC, model.graph_hash, threads=threads, stages=stages)
    store_measurement(library, replace(key, **changes), measurement, model)


def find(library, model, **more):
    measured = load_measurement(library, model, SPEC, **CONDITIONS)
    return find_agreement(library, model, SPEC, measured, **CONDITIONS, **more)


@pytest.mark.parametrize("conditions", [{"threads": 2, "stages": 4}, {"threads": 1, "stages": 0}])
def test_threads_and_stages_change_no_agreement(library, model, conditions):
    assert find(library, model) is None
    store(library, model, make_measurement(0.8), **conditions)
    assert load_measurement(library, model, SPEC, **CONDITIONS) is None  # its times are others'
    assert find(library, model).value == 0.8
    store(library, model, make_measurement(0.7), **CONDITIONS)
    assert find(library, model).value == 0.7


@pytest.mark.parametrize(
    "other",
    [
        {"precision": "bf16"},
        {"backend": "onnxruntime"},
        {"backend_version": "0.1"},
        {"device": "another CPU"},
        {"shapes": ((1, 3, 480, 640),)},
        {"graph_hash": "0" * 64},
        {"model_hash": "0" * 64},
        {"decomposition": "tucker-0.50"},
        {"options": "threads=2 stages=0 read=0123456789ab"},
        {"options": "threads=2 stages=0"},
        {"kind": "tuning"},
    ],
)
def test_what_is_of_something_else_is_never_taken(library, model, other):
    store(library, model, make_measurement(0.8), **other)
    assert find(library, model) is None


def test_other_frames_are_another_agreement_where_they_are_named(library, model):
    store(library, model, make_measurement(0.8))
    store(library, model, make_measurement(0.6, date="2026-03-01", frames="video:b.mp4"), stages=2)
    assert find(library, model, frames="video:a.mp4").value == 0.8
    assert find(library, model, frames="video:c.mp4") is None
    assert find(library, model).value == 0.6  # the newest


def test_what_shows_nothing_is_unknown_and_what_was_not_compared_is_passed_over(library, model):
    store(library, model, make_measurement(1.0, evidence=0))
    assert find(library, model).value is None
    later = make_measurement(0.5, date="2026-03-01", agreement=None)
    store(library, model, later, stages=2)
    assert find(library, model).evidence == 0


def test_a_task_leaves_out_what_agrees_too_little_with_other_threads(library, model, monkeypatch):
    monkeypatch.setattr(variant_set, "approximates", lambda spec: spec == SPEC)
    monkeypatch.setattr(
        "jetson_dnn_rt.variants.measuring.measurement.approximates", lambda spec: spec == SPEC
    )
    store(library, model, make_measurement(0.8))
    names = ("full@onnxruntime-fp32", NAME)
    for frames, left in (("", True), ("video:a.mp4", True), ("video:b.mp4", False)):
        config = TaskConfig(variants=names, stages=1, build_frames=frames)
        variants = VariantSet(config, model, threads=1, library=library)
        variants.close()
        assert (NAME in variants.left_out) is left
