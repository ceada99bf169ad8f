# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Batches on a CUDA device that is a fake: what is copied to it, and engines of their own."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import closing

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="the fake TensorRT computes with it")

from batch_cameras import FRAME, Cameras, make_frame
from fake_cuda import FakeCuda, IntegratedCuda
from fake_tensorrt import make_tensorrt
from networks import Classifier, make_model

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.runtime.building import builder as building
from jetson_dnn_rt.runtime.building.builder import BuildSettings, TaskBuilder, TaskPlan
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.running import batching
from jetson_dnn_rt.variants.running.variant_set import VariantSet
from jetson_dnn_rt.variants.spec import VariantSpec

SIZE = (32, 48)
NAME = "full@tensorrt-fp32"


@pytest.fixture(autouse=True)
def trt(monkeypatch):
    """Every size is used, however long it takes."""
    monkeypatch.setattr(batching, "MAX_SHARE", float("inf"))
    module = make_tensorrt("8.6.1", dla_cores=1)
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    for name in ("tensorrt.runner", "cuda.owners"):
        monkeypatch.setattr(f"jetson_dnn_rt.backends.{name}.open_cuda", FakeCuda)
    return module


@pytest.fixture(scope="module")
def model():
    return make_model(Classifier().eval(), SIZE)


def run(cameras, slots, together):
    works = [cameras.work(slot, NAME) for slot in slots]
    if together:
        cameras.run_batch(NAME, works, slots[0])
    for slot, work in zip(slots, works, strict=True):
        for stage in cameras.stages(slot, NAME)[2 if together else 1 :]:
            stage.run(work)
    return works


@pytest.fixture
def cameras(model):
    with closing(Cameras(model, [NAME], 3)) as made:
        made.group.prepare(FRAME, 1)
        yield made


@pytest.mark.parametrize("slots", [(0, 1, 2), (2, 1, 0), (1, 2), (2, 0)])
def test_results_are_those_of_each_alone(cameras, slots):
    assert [(report.size, report.used) for report in cameras.group.reports] == [
        (2, True),
        (3, True),
    ]
    alone = [run(cameras, (slot,), together=False)[0].result for slot in slots]
    for one, work in zip(alone, run(cameras, slots, together=True), strict=True):
        np.testing.assert_array_equal(work.result.class_ids, one.class_ids)
        np.testing.assert_allclose(work.result.scores, one.scores, rtol=1e-5)


@pytest.mark.parametrize(("slots", "copied"), [((0, 1, 2), 0), ((1, 2), 1), ((2, 0), 1)])
def test_of_mapped_memory_a_full_batch_copies_nothing(model, monkeypatch, slots, copied):
    """An integrated GPU reads the buffer of all slots in place."""
    for name in ("backends.tensorrt.runner", "backends.cuda.owners"):
        monkeypatch.setattr(f"jetson_dnn_rt.{name}.open_cuda", IntegratedCuda)
    with closing(Cameras(model, [NAME], 3)) as cameras:
        assert all(report.used for report in cameras.group.prepare(FRAME, 1))
        alone = [run(cameras, (slot,), together=False)[0] for slot in slots]
        image = cameras.sets["camera_0"].pipelines[NAME].processor.image
        for one, work in zip(alone, run(cameras, slots, together=True), strict=True):
            # Besides the input the outputs, which the next batch of that size writes over.
            more = copied * (image.nbytes + 7 * 4)
            assert work.copied_bytes - one.copied_bytes == more
            np.testing.assert_array_equal(work.result.class_ids, one.result.class_ids)


def test_stages_are_on_their_device(model, cameras):
    assert [stage.device for stage in cameras.stages(0, NAME)] == ["cpu", "cuda", "cpu"]


def test_engines_of_batches_are_built_once_and_never_by_a_node(model, trt, tmp_path):
    library = Library(tmp_path)
    with closing(VariantSet(TaskConfig(variants=(NAME,)), model, library=library, build=True)):
        assert len(trt.builds) == 1
    with closing(Cameras(model, [NAME], 2, library=library)) as cameras:
        (report,) = cameras.group.prepare(FRAME, 1)
        assert "x2 for full@tensorrt-fp32 is not in the library" in report.refusal
        assert "run jetson-dnn-rt build" in report.refusal
    with closing(Cameras(model, [NAME], 2, library=library, build=True)) as cameras:
        assert [report.used for report in cameras.group.prepare(FRAME, 1)] == [True]
    assert len(trt.builds) == 2
    with closing(Cameras(model, [NAME], 2, library=library)) as cameras:
        assert [report.used for report in cameras.group.prepare(FRAME, 1)] == [True]
    assert len(trt.builds) == 2


def test_of_several_stages_only_full_batches_are_formed(model):
    """Values between stages stay on the device, where the next batch would write over them."""
    with closing(Cameras(model, [NAME], 3, stages=2)) as cameras:
        reports = cameras.group.prepare(FRAME, 1)
        assert [(report.size, report.refusal) for report in reports] == [(3, "")]


def test_build_makes_the_engines_of_batches(model, trt, tmp_path, caplog, monkeypatch):
    """As many as tasks that may run as one batch; one that cannot be built is no failure."""
    # No other back end to compare with, whose import takes seconds.
    monkeypatch.setattr(building, "choose_default", lambda model: VariantSpec.parse(NAME))
    cv2 = pytest.importorskip("cv2")
    for index in range(4):
        cv2.imwrite(str(tmp_path / f"{index}.png"), make_frame(index).image)
    library = Library(tmp_path / "library")
    plan = TaskPlan(TaskConfig("a", variants=(NAME,)), model, 1, batch=3)
    settings = BuildSettings(frames=f"images:{tmp_path}", runs=1)
    report = TaskBuilder(plan, library, settings, SteadyClock()).build(plan.variants[0])
    assert (report.state, report.reason) == ("built", "")
    assert len(trt.builds) == 3
    again = TaskBuilder(plan, library, settings, SteadyClock()).build(plan.variants[0])
    assert again.state == "present"
    assert len(trt.builds) == 3
    with closing(Cameras(model, [NAME], 3, library=library)) as cameras:
        assert [report.used for report in cameras.group.prepare(FRAME, 1)] == [True, True]
    assert len(trt.builds) == 3
    trt.refuse = "no tactic for this batch"
    plan = dataclasses.replace(plan, batch=4)
    more = TaskBuilder(plan, library, settings, SteadyClock()).build(plan.variants[0])
    assert more.state == "present"
    assert "no batches in full@tensorrt-fp32" in caplog.text
    assert "no tactic for this batch" in caplog.text
