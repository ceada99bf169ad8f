# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The stages of a task: every kind of model in every variant, and what the stages promise."""

from __future__ import annotations

import functools
import sys
import threading

import numpy as np
import pytest
import torch
from networks import calibrate, load_pipeline, make_model

from jetson_dnn_rt.backends.base import RunnerClosedError
from jetson_dnn_rt.clock import VirtualClock
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import BackendUnavailableError, FrameError, RunCancelledError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.results import Classification, Detections, Segmentation
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running import variant_set
from jetson_dnn_rt.variants.running.variant_set import choose_default

OTHERS = ("full@onnxruntime-fp32", "full@openvino-fp32", "full@torch-bf16", "full@openvino-bf16")


def make_frame(seed=0, height=120, width=200):
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Frame(image, "bgr8", 0, seed)


def run(pipeline, frame=None):
    work = Work(frame or make_frame())
    for stage in pipeline.stages:
        assert work.result is None
        stage.run(work)
    return work.result


NETWORKS = {
    "classifier": ("mobilenet_v3_small", (64, 64)),
    "segmenter": ("lraspp_mobilenet_v3_large", (64, 96)),
    "detector": ("ssdlite320_mobilenet_v3_large", (320, 320)),
}


@pytest.fixture(scope="module")
def load_network(tmp_path_factory):
    """Loads architectures of torchvision with weights that tell one pixel from the other."""
    from torchvision.models import get_model

    @functools.cache
    def load(kind):
        name, size = NETWORKS[kind]
        keywords = {} if kind == "classifier" else {"weights_backbone": None}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = get_model(name, weights=None, **keywords).eval()
        calibrate(module, size, as_list=kind == "detector")
        path = tmp_path_factory.mktemp("weights") / "w.pth"
        torch.save(module.state_dict(), path)
        size = None if kind == "detector" else size
        return load_model(f"torchvision:{name}", weights=str(path), input_size=size)

    return load


@pytest.fixture
def classifier(load_network):
    return load_network("classifier")


@pytest.fixture
def segmenter(load_network):
    return load_network("segmenter")


@pytest.fixture
def detector(load_network):
    return load_network("detector")


@pytest.mark.parametrize("name", OTHERS)
def test_classification_agrees(classifier, name):
    settings = DecoderSettings(top_k=1000)
    scores = [np.empty(1000), np.empty(1000)]
    for row, variant in zip(scores, ("full@torch-fp32", name), strict=True):
        result = run(load_pipeline(classifier, variant, settings))
        row[result.class_ids] = result.scores
    assert np.ptp(scores[0]) > 1e-4  # the classes do differ
    if name.endswith("fp32"):
        np.testing.assert_allclose(scores[1], scores[0], atol=1e-5)
    else:
        assert np.corrcoef(scores)[0, 1] > 0.99


@pytest.mark.parametrize("name", OTHERS)
def test_segmentation_agrees(segmenter, name):
    one, two = (run(load_pipeline(segmenter, each)) for each in ("full@torch-fp32", name))
    assert one.mask.shape == (120, 200)
    assert len(np.unique(one.mask)) >= 3  # the pixels do differ
    assert np.mean(one.mask == two.mask) >= (0.999 if name.endswith("fp32") else 0.9)


@pytest.mark.parametrize("name", OTHERS)
def test_detection_agrees(detector, name):
    settings = DecoderSettings(confidence=0.0, max_detections=50)
    one, two = (run(load_pipeline(detector, each, settings)) for each in ("full@torch-fp32", name))
    assert len(one) == len(two) == 50
    assert np.ptp(one.scores) > 0.005  # the boxes do differ
    assert np.all(one.boxes >= 0)
    assert np.all(one.boxes <= [200, 120, 200, 120])
    if not name.endswith("fp32"):
        np.testing.assert_allclose(two.scores[:10], one.scores[:10], rtol=0.1)
        return
    np.testing.assert_allclose(two.scores, one.scores, atol=1e-4)
    # Scores of random weights lie so near each other that two boxes may change places.
    gaps = np.abs(one.boxes[:10, None] - two.boxes[None]).max(axis=2)
    same = (gaps < 0.1) & (one.class_ids[:10, None] == two.class_ids[None])
    assert same.any(axis=1).sum() >= 8


@pytest.mark.parametrize("kind", ["detector", "segmenter"])
@pytest.mark.parametrize("name", OTHERS)
def test_builtin_networks_agree(kind, name):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        module = builtin.build(kind).eval()
    size = builtin.INPUT_SIZE[kind]
    model = make_model(calibrate(module, size), size, builtin.labels(kind))
    pipelines = load_pipeline(model, "full@torch-fp32"), load_pipeline(model, name)
    one, two = map(run, pipelines)
    short = name.endswith("bf16")
    if kind == "segmenter":
        assert np.mean(one.mask == two.mask) >= (0.9 if short else 0.999)
        return
    (boxes, scores), (other_boxes, other_scores) = (
        runner.to_host(runner.run([p.processor.image]))
        for p in pipelines
        for runner in (p.segments[0].runner,)
    )
    np.testing.assert_allclose(other_scores, scores, atol=0.02 if short else 1e-5)
    # Around x = 300 bf16 has steps of 2: the corners must be added up in fp32.
    np.testing.assert_allclose(other_boxes, boxes, atol=0.5 if short else 1e-3)


def test_an_exported_program_gives_what_its_module_gives(tmp_path, classifier):
    program = torch.export.export(classifier.torch_module(), (torch.zeros(1, 3, 64, 64),))
    torch.export.save(program, tmp_path / "m.pt2")
    settings = DecoderSettings(top_k=1000)
    preprocessing = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    model = load_model(f"exported:{tmp_path / 'm.pt2'}", preprocessing=preprocessing)
    expected = run(load_pipeline(classifier, "full@torch-fp32", settings))
    for name in ("full@torch-fp32", "full@onnxruntime-fp32", "full@openvino-bf16"):
        found = run(load_pipeline(model, name, settings))
        if name.endswith("fp32"):
            np.testing.assert_array_equal(found.class_ids[:5], expected.class_ids[:5])
        tolerance = 1e-5 if name.endswith("fp32") else 2e-3
        np.testing.assert_allclose(found.scores, expected.scores, atol=tolerance)


@pytest.mark.parametrize("name", ["full@torch-fp32", *OTHERS])
def test_results_outlive_the_next_frame(segmenter, name):
    pipeline = load_pipeline(segmenter, name)
    first = run(pipeline, make_frame(0))
    before = first.mask.copy()
    second = run(pipeline, make_frame(1))
    np.testing.assert_array_equal(first.mask, before)
    assert not np.array_equal(first.mask, second.mask)


def test_a_bad_frame_fails_alone(classifier):
    pipeline = load_pipeline(classifier, "full@onnxruntime-fp32")
    expected = run(pipeline)
    with pytest.raises(FrameError):
        run(pipeline, Frame(np.zeros((4, 4), np.uint8), "bgr8", 0, 1))
    again = run(pipeline)
    np.testing.assert_array_equal(again.scores, expected.scores)


@pytest.mark.parametrize("name", ["full@onnxruntime-fp32", "full@openvino-fp32"])
def test_a_stage_that_was_cancelled_begins_again(segmenter, name, monkeypatch):
    pipeline = load_pipeline(segmenter, name)
    expected = run(pipeline)
    runner, emptied = pipeline.segments[0].runner, []

    def cancelled(values):
        emptied.append(values.pop())  # a runner may
        raise RunCancelledError("told to end")

    first, inference, last = pipeline.stages
    work = Work(make_frame())
    first.run(work)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run", cancelled)
        patch.setattr(runner, "queue", cancelled)
        for _ in range(2):
            with pytest.raises(RunCancelledError):
                inference.run(work)
    inference.run(work)
    last.run(work)
    assert len(emptied) == 2
    assert np.array_equal(work.result.mask, expected.mask)


def test_closed_pipeline(classifier):
    pipeline = load_pipeline(classifier, "full@torch-fp32")
    pipeline.close()
    pipeline.close()
    with pytest.raises(RunnerClosedError):
        run(pipeline)


def test_the_frame_is_not_written_to(detector):
    frame = make_frame(height=320, width=320)  # no resize: the source itself is converted
    before = frame.image.copy()
    frame.image.flags.writeable = False
    run(load_pipeline(detector, "full@torch-fp32"), frame)
    np.testing.assert_array_equal(frame.image, before)


# ---- null


def test_scripted_times_of_every_stage():
    clock = VirtualClock()
    model = load_model("null:preprocess=1;inference=10/20;decode=2")
    pipeline = load_pipeline(model, "full@null", clock=clock)
    ends: list[int] = []

    def work():
        for _ in range(2):
            item = Work(make_frame())
            for stage in pipeline.stages:
                stage.run(item)
                ends.append(clock.now_ns() // 1_000_000)
        clock.leave()

    clock.participate()
    thread = threading.Thread(target=work)
    thread.start()
    clock.run_until(100_000_000)
    thread.join()
    assert ends == [1, 11, 13, 14, 34, 36]


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        ("detection", Detections),
        ("segmentation", Segmentation),
        ("classification", Classification),
    ],
)
def test_null_results_look_like_the_tasks(kind, result):
    pipeline = load_pipeline(load_model(f"null:0,{kind}"), "full@null")
    found = run(pipeline)
    assert isinstance(found, result)
    if kind == "detection":
        assert len(found) == 0
    if kind == "segmentation":
        assert found.mask.shape == (120, 200)


# ---- which variants can be had


def test_default_variant(monkeypatch, classifier):
    assert str(choose_default(load_model("null:1"))) == "full@null"
    pytest.importorskip("openvino", reason="openvino is not installed")
    monkeypatch.setattr(variant_set, "describe_gpu", lambda: "")
    found = []
    for hidden in ("", "openvino", "onnxruntime", "torch"):
        if hidden:
            monkeypatch.setitem(sys.modules, hidden, None)
        try:
            found.append(str(choose_default(classifier)))
        except BackendUnavailableError as error:
            found.append(str(error))
    assert found[:3] == ["full@openvino-fp32", "full@onnxruntime-fp32", "full@torch-fp32"]
    assert "no back end is installed: pip install onnxruntime" in found[3]
