# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Compression of a model, and the library entry that it leaves."""

from __future__ import annotations

import json
import weakref
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from networks import calibrate, make_model
from torch import nn

from jetson_dnn_rt.backends import registry
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.compress import compression
from jetson_dnn_rt.lab.compress.compression import _read_frames, compress
from jetson_dnn_rt.models.graph.splitting import split
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.decomposition import (
    DECOMPOSITION_FILE,
    WEIGHTS_FILE,
    encode_weights,
    load_reduced,
    stored_steps,
    weights_key,
)
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames, prepare_inputs
from jetson_dnn_rt.variants.running.variant_set import VariantSet
from jetson_dnn_rt.variants.spec import DecompositionSpec

HALF = DecompositionSpec.parse("tucker-0.50")


def make_network(channels=32):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        layers = (
            *(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)),
            *(nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(channels, 5, 1), nn.Upsample(scale_factor=2)),
        )
    return make_model(calibrate(nn.Sequential(*layers), (48, 64)), (48, 64))


@pytest.fixture(scope="module")
def model():
    return make_network()


@pytest.fixture(scope="module")
def frames():
    return list(open_frames("synthetic", 6))


def compress_quickly(model, frames, **more):
    given = {"recover_steps": 4, "keep_slower": True, "backend": "torch", **more}
    return compress(model, HALF, frames=frames, source="synthetic", **given)


def run_graph(graph, image):
    with torch.inference_mode():
        return graph(torch.from_numpy(image)).numpy()


def test_a_model_becomes_smaller_and_is_reported(model, frames, tmp_path, caplog):
    phases: list[str] = []
    library = Library(tmp_path)
    found = compress_quickly(
        model, frames, library=library, progress=lambda phase, *_: phases.append(phase)
    )
    report = json.loads(json.dumps(found.to_json()))
    assert report["macs_after"] <= 0.5 * report["macs_before"]
    assert report["macs_reduction"] == pytest.approx(
        1.0 - report["macs_after"] / report["macs_before"]
    )
    assert report["parameters_after"] < report["parameters_before"]
    assert {layer["name"] for layer in report["layers"]} == set("0368")
    assert any(layer["kept"] and layer["metric"] == "output" for layer in report["layers"])
    assert 0.0 <= report["agreement"] <= 1.0
    assert (report["agreement_metric"], report["agreement_frames"]) == ("mIoU", 3)
    assert report["recovery"]["loss_after"] <= report["recovery"]["loss_before"]
    assert report["variant"] == "tucker-0.50@torch-fp32"
    assert list(dict.fromkeys(phases)) == [
        "covariance", "sensitivity", "analyse", "factorise", "recovery", "agreement",
    ]  # fmt: skip
    assert found.entry.facts["recover_steps"] == 4
    assert found.entry.facts["agreement"] == report["agreement"]
    assert list(tmp_path.glob("recovery/*")) == []
    assert "6 frames of synthetic are few" in caplog.text


class ScoresFirst(nn.Module):
    """Computes its scores before its boxes, and returns them behind."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2)
            self.body = nn.Sequential(nn.Conv2d(3, 32, 8, 8), nn.ReLU())
            self.scores, self.boxes = nn.Conv2d(32, 5, 3, padding=1), nn.Conv2d(32, 4, 1)

    def forward(self, image):
        found = self.body(image)
        scores = self.scores(found).flatten(2).transpose(1, 2).sigmoid()
        boxes = self.boxes(found).flatten(2).transpose(1, 2)
        corner = boxes[..., :2].abs() * 20
        return torch.cat([corner, corner + 10 + boxes[..., 2:].abs()], 2), scores


def test_outputs_are_decoded_in_the_order_of_the_network(frames):
    """The graph gives them as they are computed: boxes were read as scores, or it crashed."""
    model = make_model(ScoresFirst().eval(), (48, 64))
    assert model.kind == "detection"
    spec = DecompositionSpec.parse("tucker-0.99")
    found = compress(
        model, spec, frames=frames, keep_slower=True, backend="torch",
        settings=DecoderSettings(confidence=0.1, nms_iou=0.5, max_detections=50),
    )  # fmt: skip
    assert found.agreement.evidence > 0
    assert found.agreement.value > 0.7


def test_what_was_kept_comes_back(model, frames, tmp_path):
    library = Library(tmp_path)
    assert load_reduced(model, HALF, library) is None
    assert stored_steps(model, HALF, library) == -1
    found = compress_quickly(model, frames, library=library)
    loaded = load_reduced(model, HALF, Library(tmp_path))
    assert not loaded.training
    names = [node.name for node in split(model, 1).graph.graph.nodes]
    assert [node.name for node in loaded.graph.nodes] == names
    (image,) = prepare_inputs(model, frames[:1])
    np.testing.assert_array_equal(run_graph(loaded, image), run_graph(found.fit.graph, image))
    assert stored_steps(model, HALF, library) == 4
    other = DecompositionSpec.parse("tucker-0.60")
    assert load_reduced(model, other, library) is None


def test_a_task_runs_what_was_kept(model, frames, tmp_path):
    library = Library(tmp_path)
    settings, name = DecoderSettings(), "tucker-0.50@torch-fp32"
    config = TaskConfig(variants=(name,))
    with closing(VariantSet(config, model, settings, library=library)) as variants:
        assert "jetson-dnn-rt compress" in variants.left_out[name]
    found = compress_quickly(model, frames, library=library)
    options = {"library": library, "keep_refused": True}
    with closing(VariantSet(config, model, settings, **options)) as variants:
        work = Work(frames[0])
        variants.pipelines[name].run(work)
    buffer = np.empty(model.input_shape, np.float32)
    geometry = Preprocessor(model.preprocessing, buffer).write(frames[0])
    expected = model.create_decoder()((run_graph(found.fit.graph, buffer),), geometry, settings)
    np.testing.assert_array_equal(work.result.mask, expected.mask)


def stop_in(phase, at):
    def progress(found, done, total):
        if (found, done) == (phase, at):
            raise KeyboardInterrupt

    return progress


def test_a_stopped_recovery_goes_on(model, frames, tmp_path):
    whole = compress_quickly(model, frames, recover_steps=40)
    library = Library(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        compress_quickly(
            model, frames, library=library, recover_steps=40, progress=stop_in("recovery", 21)
        )
    assert load_reduced(model, HALF, library) is None
    found = compress_quickly(model, frames, library=library, recover_steps=40)
    assert found.fit.recovery.resumed_from == 20
    assert encode_weights(found.fit.graph) == encode_weights(whole.fit.graph)


def test_each_network_is_made_once(model, frames, monkeypatch):
    made: list[str] = []

    def create_runner(part, *names, **options):
        made.append(part.name)
        return registry.create_runner(part, *names, **options)

    monkeypatch.setattr(compression, "create_runner", create_runner)
    compress_quickly(model, frames, data_aware=False, recover_steps=0)
    assert len(made) == 2


def test_a_budget_out_of_reach_is_refused_before_a_frame_is_read(model):
    def read():
        pytest.fail("a frame was read")
        yield

    with pytest.raises(ConfigurationError, match=r"tucker-0\.005: cannot keep 0\.005"):
        compress(model, DecompositionSpec.parse("tucker-0.005"), frames=read(), backend="torch")


def test_without_frames_deciding_the_weights_do(model, frames):
    found = compress_quickly(model, frames, data_aware=False, recover_steps=0)
    assert {layer.metric for layer in found.fit.decomposition.layers} == {"weight"}
    assert found.fit.recovery is None
    assert found.entry is None


def test_layers_that_are_not_faster_stay(model, frames, monkeypatch):
    asked: list[tuple[str, int]] = []

    def keep_faster(backend, threads):
        asked.append((backend, threads))
        return lambda name, *_: (name != "6", "not faster: 2 ms against 1")

    monkeypatch.setattr(compression, "keep_faster", keep_faster)
    spec = DecompositionSpec.parse("tucker-ratio-0.50")
    found = compress(model, spec, frames=frames, backend="torch", threads=2)
    layers = {layer.name: layer for layer in found.fit.decomposition.layers}
    assert asked == [("torch", 2)]
    assert not layers["6"].kept
    assert layers["6"].reason == "not faster: 2 ms against 1"
    assert layers["3"].kept


@pytest.mark.parametrize("damage", ["weights", "structure", "shape", "nothing there"])
def test_weights_that_do_not_fit_are_logged_and_not_used(model, frames, tmp_path, caplog, damage):
    library = Library(tmp_path)
    files = dict(compress_quickly(model, frames, library=library, recover_steps=0).entry.files)
    files = {
        "weights": {**files, WEIGHTS_FILE: b"no weights"},
        "structure": {**files, DECOMPOSITION_FILE: b'{"layers": []}'},
        "shape": {**files, WEIGHTS_FILE: encode_weights(split(model, 1).graph)},
        "nothing there": {},
    }[damage]
    library.store(weights_key(model, HALF), files, {})
    assert load_reduced(model, HALF, library) is None
    assert "does not fit test:network" in caplog.text


def test_weights_of_another_network_of_the_same_name_are_not_used(model, frames, tmp_path, caplog):
    library = Library(tmp_path)
    compress_quickly(model, frames, library=library, recover_steps=0)
    assert load_reduced(make_network(40), HALF, library) is None
    assert "does not fit" in caplog.text


@pytest.mark.parametrize(("count", "held_out"), [(2, 1), (10, 5), (41, 20), (100, 20), (256, 26)])
def test_the_last_frames_are_held_out_and_the_others_let_go(model, count, held_out):
    alive: list[weakref.ref[Any]] = []

    def read():
        for i in range(count):
            frame = Frame(np.full((8, 8, 3), i % 256, np.uint8), "bgr8", 0, i)
            alive.append(weakref.ref(frame.image))
            yield frame
            del frame
            assert sum(reference() is not None for reference in alive) <= 2 + max(40, i // 4)

    inputs, kept = _read_frames(model, read())
    assert len(inputs) == count
    assert [frame.sequence for frame in kept] == list(range(count - held_out, count))


class Branching(nn.Module):
    def forward(self, image):
        return image if image.mean() > 0.5 else image * 2.0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"count": 1}, "two frames at least: 1"),
        ({"recover_steps": -1}, "recover_steps must be >= 0: -1"),
        ({"backend": "caffe"}, "back end must be one of"),
    ],
)
def test_unusable_input_is_an_error(model, frames, options, text):
    count = options.get("count", len(frames))
    given = {name: value for name, value in options.items() if name != "count"}
    with pytest.raises(ConfigurationError, match=text):
        compress_quickly(model, frames[:count], **given)


def test_a_network_that_cannot_be_traced_is_an_error(frames):
    with pytest.raises(ModelError, match="cannot be traced"):
        compress_quickly(make_model(Branching(), (48, 64)), frames)
