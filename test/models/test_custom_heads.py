# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Decoders of users, and the one in ``examples/``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from networks import make_onnx

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.models.heads.base import DecoderSettings, Inspected
from jetson_dnn_rt.models.heads.registry import recognise_head
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.results import Classification, Detections

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

MODULE = """
import numpy as np
from jetson_dnn_rt.results import Classification, Detections


class Brightest:
    kind = "classification"
    preprocessing = {"resize": "stretch", "color": "bgr", "scale": 1.0}

    def __init__(self, network):
        self.classes = network.outputs[0].shape[1]
        if network.input_size == (64, 64):
            raise ValueError("not for 64x64")

    def __call__(self, outputs, geometry, settings):
        means = outputs[0][0].mean(axis=(1, 2))
        best = np.argsort(-means)
        return Classification(best, means[best].astype(np.float32))


class Wrong(Brightest):
    kind = "detection"


class NoKind:
    pass
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    name = f"decoders_{abs(hash(tmp_path)):x}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_a_decoder_of_the_user(module, tmp_path):
    path = make_onnx(tmp_path / "m.onnx")
    head = f"{module}:Brightest"
    model = load_model(f"onnx:{path}", kind="classification", head=head)
    assert (model.head.name, model.head.classes, model.kind) == (head, 5, "classification")
    assert model.preprocessing == Preprocessing(32, 48, "stretch", color="bgr", scale=1.0)
    assert model.assumed == ()  # the class has said it
    assert len(model.labels) == 5
    maps = np.random.default_rng(0).random((1, 5, 8, 12), np.float32)
    geometry = Geometry.of(model.preprocessing, 32, 48)
    result = model.create_decoder()([maps], geometry, DecoderSettings())
    assert isinstance(result, Classification)
    assert result.class_ids[0] == maps[0].mean(axis=(1, 2)).argmax()
    # Two tasks of one model are alike, however often the class was made.
    assert model.head == load_model(f"onnx:{path}", head=head).head


@pytest.mark.parametrize(
    ("head", "error", "words"),
    [
        ("{}:Wrong", ModelError, "returns Classification, its kind 'detection' needs Detections"),
        ("{}:NoKind", ConfigurationError, "must be a class with a `kind`"),
        ("{}:Missing", ConfigurationError, "has no Missing; it has"),
        (
            "no_such_module:X",
            ConfigurationError,
            "there is no module no_such_module; add its folder",
        ),
        ("../x:Y", ConfigurationError, "must have the form package.module:Class"),
        ("{}:Brightest", ModelError, "fails on outputs .*not for 64x64"),
    ],
)
def test_what_is_wrong_is_said(module, tmp_path, head, error, words):
    size = (64, 64) if head.endswith("Brightest") else (32, 48)
    path = make_onnx(tmp_path / "m.onnx", shape=(1, 3, *size))
    with pytest.raises(error, match=words):
        load_model(f"onnx:{path}", head=head.format(module))


def test_the_task_must_be_the_decoder_s(module, tmp_path):
    path = make_onnx(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="needs a model for detection, this one is for classif"):
        load_model(f"onnx:{path}", kind="detection", head=f"{module}:Brightest")


def test_the_example_decodes_fastestdet(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    rows, columns, classes = 11, 22, 80
    output = np.full((1, 5 + classes, rows, columns), 1e-6, np.float32)
    # One car: cell 3, 5, a box of a quarter of the input's width and half of its height.
    output[0, 0, 3, 5], output[0, 5 + 2, 3, 5] = 0.9, 0.8
    logit = np.log(0.25 / 0.75)
    output[0, 1:5, 3, 5] = (np.arctanh(0.5), np.arctanh(-0.5), logit, 0.0)
    seen = Inspected([output], (176, 352))
    head = recognise_head(seen, "fastestdet:FastestDet")
    assert (head.kind, head.classes) == ("detection", classes)
    geometry = Geometry(352, 704, 176, 352, 0, 0)
    found = head.make_decoder()([output], geometry, DecoderSettings())
    assert isinstance(found, Detections)
    assert found.class_ids.tolist() == [2]
    np.testing.assert_allclose(found.scores, [0.9**0.6 * 0.8**0.4], rtol=1e-5)
    x, y = 5.5 / columns * 704, 2.5 / rows * 352
    expected = np.clip([[x - 88, y - 88, x + 88, y + 88]], 0, (704, 352, 704, 352))
    np.testing.assert_allclose(found.boxes, expected, atol=1e-3)


def test_the_example_finds_what_fastestdet_s_own_code_finds(monkeypatch):
    """Real weights and a real picture; its code truncates boxes to whole pixels.

    Its suppression adds a pixel to each side, so the last of the eight is another.
    """
    monkeypatch.syspath_prepend(EXAMPLES)
    with np.load(Path(__file__).parent / "exports" / "fastestdet.npz") as file:
        arrays = {key: file[key] for key in file.files}
    output = arrays["output_0"].astype(np.float32)
    picture = json.loads(str(arrays["meta"]))["picture"]
    sides = picture["width"], picture["height"]
    head = recognise_head(Inspected([output], (128, 224)), "fastestdet:FastestDet")
    settings = DecoderSettings(confidence=0.3, nms_iou=0.45, class_agnostic=True)
    found = head.make_decoder()([output], Geometry(sides[1], sides[0], 128, 224, 0, 0), settings)
    assert len(found) == len(arrays["ref_scores"]) == 8
    order = np.argsort(-arrays["ref_scores"], kind="stable")[:7]
    np.testing.assert_allclose(found.scores[:7], arrays["ref_scores"][order], atol=2e-3)
    np.testing.assert_array_equal(found.class_ids[:7], arrays["ref_classes"][order])
    expected = np.clip(arrays["ref_boxes"][order], 0, sides * 2)
    np.testing.assert_allclose(found.boxes[:7], expected, atol=1.1)
