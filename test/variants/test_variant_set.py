# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which variants get loaded, in how many stages, and what is left out and why."""

from __future__ import annotations

import logging
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from networks import calibrate, make_model, skip_on_gpu

from jetson_dnn_rt.backends import memory
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError, NotBuiltError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants import network
from jetson_dnn_rt.variants.free_cuts import FreeCuts
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring import store
from jetson_dnn_rt.variants.running import variant_set
from jetson_dnn_rt.variants.running.pipeline import Pipeline
from jetson_dnn_rt.variants.running.variant_set import LeftOutError, VariantSet

SIZE = builtin.INPUT_SIZE["segmenter"]
TORCH, ONNX = "full@torch-fp32", "full@onnxruntime-fp32"


@pytest.fixture(scope="module")
def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        module = builtin.build("segmenter").eval()
    return make_model(calibrate(module, SIZE), SIZE, builtin.labels("segmenter"))


def make_set(model, names, *, stages=1, memory_limit_mb=0.0, finest=False, **options):
    config = TaskConfig(
        variants=tuple(names), stages=stages, finest_stages=finest, memory_limit_mb=memory_limit_mb
    )
    return VariantSet(config, model, **options)


def fake_times(monkeypatch, find):
    """Let covers take as long as `find` says for a number of runs."""

    def measure(covers, runs=9):
        return {key: find(len(segments)) for key, segments in covers.items()}

    monkeypatch.setattr(network, "measure_in_turns", measure)


def run(variants, name):
    image = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), np.uint8)
    work = Work(Frame(image, "bgr8", 0, 0))
    variants.pipelines[name].run(work)
    return work.result.mask


def test_stage_names_are_those_of_all_variants(model):
    with closing(make_set(model, [TORCH, ONNX], stages=3)) as variants:
        assert variants.stage_names == (
            "preprocess", "inference-1", "inference-2", "inference-3", "decode"
        )  # fmt: skip
        for pipeline in variants.pipelines.values():
            assert sum(stage.span for stage in pipeline.stages) == 5
        # Of 76,800 pixels of noise a few lie between two classes, and back ends round differently.
        assert np.mean(run(variants, TORCH) != run(variants, ONNX)) < 1e-3


def test_the_finest_cover_that_costs_nothing_is_taken(model, monkeypatch):
    """Four runs 6 % slower than one, two runs 4 %: two."""
    times = {4: 106.0, 2: 104.0, 1: 100.0}
    fake_times(monkeypatch, times.__getitem__)
    with closing(make_set(model, [ONNX], stages=4)) as variants:
        names = [stage.name for stage in variants.pipelines[ONNX].stages]
    assert names == ["preprocess", "inference-1..2", "inference-3..4", "decode"]


def test_a_cover_that_was_chosen_before_is_taken_again(model, monkeypatch):
    """Four are as fast as one, but another cover could give other bits."""
    fake_times(monkeypatch, lambda runs: 100.0)
    for runs in (4, 2, 1):
        with closing(make_set(model, [ONNX], stages=4, runs={ONNX: runs})) as variants:
            assert len(variants.pipelines[ONNX].segments) == runs


def test_a_cover_is_measured_once(model, monkeypatch, tmp_path):
    library, times = Library(tmp_path), {4: 106.0, 2: 104.0, 1: 100.0}
    fake_times(monkeypatch, times.__getitem__)
    with closing(make_set(model, [ONNX], stages=4, library=library)) as variants:
        assert len(variants.pipelines[ONNX].segments) == 2
    times[4] = 100.0
    with closing(make_set(model, [ONNX], stages=4, library=Library(tmp_path))) as variants:
        assert len(variants.pipelines[ONNX].segments) == 2
    # What was measured with other threads or at other cuts says nothing.
    times[5] = 100.0
    for stages, threads in ((4, 2), (5, 1)):
        options = {"stages": stages, "threads": threads, "library": library}
        with closing(make_set(model, [ONNX], **options)) as variants:
            assert len(variants.pipelines[ONNX].segments) == stages


def test_the_finest_cover_is_taken_whatever_it_costs(model, monkeypatch):
    # One run alone would be much the fastest.
    fake_times(monkeypatch, lambda runs: runs**2)
    with closing(make_set(model, [ONNX], stages=4, finest=True)) as variants:
        assert [stage.span for stage in variants.pipelines[ONNX].stages] == [1] * 6


@pytest.mark.parametrize(("milliseconds", "stages"), [(0.4, 1), (6.1, 3), (100.0, 8)])
def test_automatic_stages_follow_the_time(model, monkeypatch, milliseconds, stages):
    monkeypatch.setattr(
        variant_set, "measure_segments", lambda segments, runs=9: milliseconds * 1e6
    )
    with closing(make_set(model, [TORCH], stages=0)) as variants:
        assert len(variants.stage_names) == stages + 2


def test_free_cuts_are_taken_and_kept(model, monkeypatch, tmp_path):
    chosen = []

    def choose(network, make_runner, library, key):
        assert (network.stages, library.root) == (8, tmp_path)
        assert key.backend == "onnxruntime"
        assert key.options.startswith("cuts form=2 stages=auto threads=1 cores=")
        chosen.append(FreeCuts(network.cuts[2:7:4], 0.01, {}, 100, 40))
        return chosen[-1]

    monkeypatch.setattr(variant_set, "load_free_cuts", choose)
    options = {"stages": "auto", "library": Library(tmp_path)}
    # Others run on top of the same cuts as far as they are free for them, too.
    fake_times(monkeypatch, lambda runs: 100 + 1.5 * runs)
    with closing(make_set(model, [ONNX, TORCH], **options)) as variants:
        assert variants.free_cuts is chosen[0]
        assert len(variants.stage_names) == 2 + 3
        assert len(variants.pipelines[ONNX].segments) == 3
        assert len(variants.pipelines[TORCH].segments) == 1
        with closing(make_set(model, [ONNX], like=variants, **options)) as other:
            assert other.free_cuts is chosen[0]
            assert len(other.stage_names) == 2 + 3
            np.testing.assert_array_equal(run(variants, ONNX), run(other, ONNX))
    assert len(chosen) == 1


def test_a_script_has_no_free_cuts(caplog):
    with closing(make_set(load_model("null:1"), [], stages="auto")) as variants:
        assert variants.stage_names == ("preprocess", "inference", "decode")
        assert variants.free_cuts is None
    assert not caplog.text


@pytest.mark.parametrize("stages", [-1, 65])
def test_stages_out_of_range(model, stages):
    with pytest.raises(ConfigurationError, match=r"stages must be in \[0, 64\]"):
        make_set(model, [TORCH], stages=stages)


def test_what_cannot_be_cut_is_one_stage_and_said(caplog):
    with closing(make_set(load_model("null:1"), [], stages=4)) as variants:
        assert variants.stage_names == ("preprocess", "inference", "decode")
    assert "a null model has no layers" in caplog.text


def test_cuts_and_exports_are_kept(model, monkeypatch, tmp_path):
    # The finest cover: which one is the fastest is measured, and another could give other bits.
    library = Library(tmp_path / "library")
    with closing(make_set(model, [ONNX], stages=2, finest=True, library=library)) as variants:
        expected = run(variants, ONNX)

    def refuse(*arguments):
        raise AssertionError("made again")

    monkeypatch.setattr("jetson_dnn_rt.models.graph.splitting.find_cuts", refuse)
    monkeypatch.setattr("jetson_dnn_rt.models.graph.splitting.export_onnx", refuse)
    monkeypatch.setattr("jetson_dnn_rt.models.sources.torch.export_onnx", refuse)
    again = Library(tmp_path / "library")
    with closing(make_set(model, [ONNX], stages=2, finest=True, library=again)) as variants:
        np.testing.assert_array_equal(run(variants, ONNX), expected)


def test_what_is_not_in_the_library_is_missing(model, tmp_path, caplog):
    names = ["tucker-0.50@torch-fp32", TORCH]
    library = Library(tmp_path)
    with closing(make_set(model, names, library=library)) as variants:
        assert list(variants.pipelines) == [TORCH]
        assert variants.default == TORCH
        assert variants.missing == (names[0],)
        assert "run jetson-dnn-rt build" in variants.left_out[names[0]]
        with pytest.raises(NotBuiltError):
            variants.add(names[0])
    assert caplog.text.count("is not in the library") == 1


def test_a_task_whose_only_variant_is_missing_runs_in_full(model, tmp_path, caplog):
    names = ["tucker-0.50@torch-fp32"]
    with closing(make_set(model, names, library=Library(tmp_path))) as variants:
        assert variants.default == str(variant_set.choose_default(model))
        assert variants.missing == tuple(names)
    assert "until another variant is there" in caplog.text


def test_memory_limit_leaves_out_what_does_not_fit(model, monkeypatch):
    pytest.importorskip("openvino", reason="openvino is not installed")
    skip_on_gpu("its memory counts, too")
    grown = iter([100, 150, 150, 190, 190, 250])  # before and after each build, in MB

    class Process:
        def memory_info(self):
            return type("Info", (), {"rss": next(grown) * 1_000_000})

    monkeypatch.setattr(memory.psutil, "Process", Process)
    names = [TORCH, ONNX, "full@openvino-fp32"]
    with closing(make_set(model, names, memory_limit_mb=100.0)) as variants:
        assert list(variants.pipelines) == names[:2]
        assert variants.memory_bytes == 90_000_000
        assert "takes 60 MB, 10 of 100 MB are left" in variants.left_out[names[2]]
        assert variants.missing == ()


def test_the_first_is_loaded_whatever_it_takes(model):
    with closing(make_set(model, [TORCH], memory_limit_mb=0.001)) as variants:
        assert list(variants.pipelines) == [TORCH]


def test_variants_share_their_input_and_settings(model):
    settings = DecoderSettings()
    variants = make_set(model, [ONNX, TORCH], settings=settings)
    assert list(variants.pipelines) == [ONNX, TORCH]
    assert variants.default == ONNX
    one, other = variants.pipelines.values()
    assert one.processor is other.processor  # a switch between them moves no picture
    assert variants.memory_bytes == one.memory_bytes + other.memory_bytes
    variants.close()
    variants.close()


def test_without_names_the_default_is_taken(model):
    with closing(make_set(model, [])) as variants:
        assert list(variants.pipelines) == [str(variant_set.choose_default(model))]


def test_what_was_built_is_closed_when_one_fails(model, monkeypatch):
    closed: list[str] = []
    monkeypatch.setattr(Pipeline, "close", lambda self: closed.append(str(self.spec)))
    words = "run jetson-dnn-rt build|pip install apache-tvm"
    with pytest.raises(BackendUnavailableError, match=words):
        make_set(model, [TORCH, "full@tvm-fp32"])
    assert closed == [TORCH]
    with pytest.raises(ConfigurationError, match="appears twice"):
        make_set(model, ["full@torch", TORCH])


def test_a_variant_that_measuring_refused_is_left_out(model, monkeypatch, tmp_path):
    class Refused:
        refused = "neither faster (5.0 ms against 4.0) nor lighter"
        agreement = None

    asked = []

    def load(library, model, spec, *, threads, stages, amp_lists):
        asked.append((str(spec), threads, stages))
        return Refused()

    monkeypatch.setattr(variant_set, "load_measurement", load)
    monkeypatch.setattr(variant_set, "approximates", lambda spec: spec.backend != "torch")
    library = Library(tmp_path)
    with closing(make_set(model, [TORCH, ONNX], library=library, stages=2)) as variants:
        assert list(variants.pipelines) == [TORCH]
        assert Refused.refused in variants.left_out[ONNX]
        with pytest.raises(LeftOutError):
            variants.add(ONNX)
    assert set(asked) == {(ONNX, 1, 2)}
    with closing(make_set(model, [ONNX], library=library, keep_refused=True)) as variants:
        assert list(variants.pipelines) == [ONNX]


def test_a_variant_can_be_added_and_dropped(model):
    with closing(make_set(model, [TORCH])) as variants:
        before = variants.pipelines
        pipeline = variants.add(ONNX)
        assert variants.add(ONNX) is pipeline
        assert list(before) == [TORCH]  # whoever goes through it is not disturbed
        rehearsal = variants.rehearse(ONNX)
        assert rehearsal.processor.image is not pipeline.processor.image
        variants.drop(ONNX, "of no use")
        assert list(variants.pipelines) == [TORCH]
        assert variants.left_out == {ONNX: "of no use"}


def test_the_graph_is_not_looked_at_for_one_stage(model, monkeypatch):
    def refuse(self, stages):
        raise AssertionError("split")

    monkeypatch.setattr(network.Network, "_split", refuse)
    with closing(make_set(model, [TORCH])) as variants:
        assert len(variants.stage_names) == 3


@pytest.fixture(autouse=True)
def _warnings_only(caplog):
    caplog.set_level(logging.WARNING)


def test_a_task_whose_only_full_variant_is_missing_runs_by_default(
    model, tmp_path, caplog, monkeypatch
):
    """Engines are built elsewhere; here it is as if TensorRT was there and this one was not."""

    names, make = ["full@tensorrt-fp16"], variant_set.make_runner

    def make_runner(model, spec, part, **options):
        if spec.backend == "tensorrt":
            raise NotBuiltError("the engine is not in the library")
        return make(model, spec, part, **options)

    monkeypatch.setattr(variant_set, "make_runner", make_runner)
    there = SimpleNamespace(version="10.0")
    monkeypatch.setattr(store, "require_backend", lambda backend, precision: there)
    with closing(make_set(model, names, stages=0, library=Library(tmp_path))) as variants:
        assert variants.missing == tuple(names)
        assert variants.default == str(variant_set.choose_default(model))
    assert "until another variant is there" in caplog.text
