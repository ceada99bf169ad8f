# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A real detector on real frames, through every variant, against code that shares nothing."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from networks import load_pipeline

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.results import Detections
from jetson_dnn_rt.tasks import Work

FRAMES = (1, 25, 50, 75, 100, 120, 145, 170, 195, 221)  # counted from 1
CAR = 2
CELLS = [(s, y, x) for s in (8, 16, 32) for y in range(416 // s) for x in range(416 // s)]


@pytest.fixture(scope="module")
def images(shared_data):
    capture = cv2.VideoCapture(str(shared_data / "video" / "dashcam_white_right.mp4"))
    found = {}
    for number in range(1, FRAMES[-1] + 1):
        good, image = capture.read()
        assert good
        if number in FRAMES:
            found[number] = image
    capture.release()
    return found


@pytest.fixture(scope="module")
def model(shared_data):
    return load_model(f"onnx:{shared_data}/models/yolox_nano.onnx", kind="detection")


def iou(a, b):
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return float(shared / (areas - shared))


@pytest.fixture(scope="module")
def reference(shared_data, images):
    """The way of the YOLOX repository: letterbox, run, decode cell by cell, suppress."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(
        str(shared_data / "models" / "yolox_nano.onnx"), providers=["CPUExecutionProvider"]
    )
    found = {}
    for number, image in images.items():
        ratio = 416 / max(image.shape[:2])
        resized = cv2.resize(image, (416, 234), interpolation=cv2.INTER_LINEAR)
        padded = np.full((416, 416, 3), 114, np.uint8)
        padded[:234] = resized
        tensor = padded.astype(np.float32).transpose(2, 0, 1)[None]
        output = session.run(None, {"images": tensor})[0][0]
        boxes = []
        for row, (stride, y, x) in zip(output, CELLS, strict=True):
            label = int(np.argmax(row[5:]))
            score = float(row[4] * row[5 + label])
            if score >= 0.3:
                cx, cy = (row[0] + x) * stride, (row[1] + y) * stride
                w, h = np.exp(row[2]) * stride, np.exp(row[3]) * stride
                box = np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]) / ratio
                boxes.append((label, score, box))
        boxes.sort(key=lambda entry: -entry[1])
        kept: list[tuple[int, float, np.ndarray]] = []
        for label, score, box in boxes:
            if all(other != label or iou(box, b) <= 0.45 for other, _, b in kept):
                kept.append((label, score, box))
        height, width = image.shape[:2]
        found[number] = [
            (label, score, np.clip(box, 0, [width, height, width, height]))
            for label, score, box in kept
        ]
    return found


def build(model, name):
    return load_pipeline(model, name, DecoderSettings(confidence=0.3))


def detect(pipeline, image, encoding="bgr8"):
    work = Work(Frame(image, encoding, 0, 0))
    pipeline.run(work)
    assert isinstance(work.result, Detections)
    return work.result


def test_the_reference_finds_what_is_known(reference):
    (first, second, *_) = reference[120]
    assert first[0] == second[0] == CAR
    np.testing.assert_allclose(first[2], [0, 294, 148, 384], atol=1.5)
    np.testing.assert_allclose(second[2], [184, 295, 246, 339], atol=1.5)
    assert round(first[1], 2) == 0.89
    assert round(second[1], 2) == 0.62
    sure = [entry for boxes in reference.values() for entry in boxes if entry[1] >= 0.4]
    assert len(sure) >= 10


@pytest.mark.parametrize(
    ("name", "overlap", "score_error"),
    [
        ("full@onnxruntime-fp32", 0.9, 1e-3),
        ("full@openvino-fp32", 0.9, 1e-3),
        ("full@torch-fp32", 0.9, 1e-3),
        ("full@openvino-bf16", 0.75, 0.1),
        ("full@torch-bf16", 0.75, 0.1),
    ],
)
def test_every_sure_box_is_found(model, images, reference, name, overlap, score_error):
    pipeline = build(model, name)
    for number, image in images.items():
        found = detect(pipeline, image)
        for label, score, box in reference[number]:
            if score < 0.4:
                continue
            matches = [
                abs(float(found.scores[i]) - score)
                for i in range(len(found))
                if found.class_ids[i] == label and iou(found.boxes[i], box) >= overlap
            ]
            assert matches, f"frame {number}: no {name} box for {score:.2f} {box}"
            assert min(matches) < score_error
        if name.endswith("fp32"):
            assert len(found) == len(reference[number])
    pipeline.close()


def test_encodings_agree(model, images):
    pipeline = build(model, "full@onnxruntime-fp32")
    image = images[120]
    expected = detect(pipeline, image)
    for encoding, code in (
        ("rgb8", cv2.COLOR_BGR2RGB),
        ("bgra8", cv2.COLOR_BGR2BGRA),
        ("rgba8", cv2.COLOR_BGR2RGBA),
    ):
        found = detect(pipeline, cv2.cvtColor(image, code), encoding)
        np.testing.assert_allclose(found.boxes, expected.boxes, atol=0.2)
        np.testing.assert_array_equal(found.class_ids, expected.class_ids)
