# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Boxes of labelled photos, judged by the lines that an evaluation writes."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.evaluate.accuracy import TruthJudge
from jetson_dnn_rt.lab.streaming.frame_names import FrameName
from jetson_dnn_rt.lab.streaming.truth import Truth

BOX = [1, 2, 30, 20]  # x, y, width, height
THERE, ELSEWHERE = [1, 2, 31, 22], [200, 100, 230, 120]


def make_task(kind="detection", variants=("a", "b")):
    spec = SimpleNamespace(name="detector", config=SimpleNamespace(variants=variants))
    return SimpleNamespace(spec=spec, kind=kind, labels=("person", "car"))


def make_line(file, variant, boxes, **more):
    found = [{"class_id": "1", "label": "car", "score": 0.9, "xyxy": box} for box in boxes]
    line = {
        "stream": "photos#",
        "frame": "abc".index(file[0]),
        "file": file,
        "task": "detector",
        "boxes": found,
    }
    return json.dumps({**line, "variant": variant, **more}) + "\n"


PHOTOS = [FrameName("photos#", number, f"{name}.jpg") for number, name in enumerate("abc")]


@pytest.fixture
def truth(tmp_path):
    """Two photos with a car each."""
    held = {
        "images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}],
        "categories": [{"id": 3, "name": "Car"}],
        "annotations": [
            {"id": number, "image_id": number, "category_id": 3, "bbox": BOX} for number in (1, 2)
        ],
    }
    (tmp_path / "labels.json").write_text(json.dumps(held), encoding="utf-8")
    return Truth(tmp_path / "labels.json", PHOTOS)


def test_each_variant_by_the_truth_of_its_frames(truth):
    judge = TruthJudge(truth, [make_task()])
    assert not judge.needs_masks
    lines = [
        make_line("a.jpg", "a", [THERE]), make_line("a.jpg", "b", [THERE]),
        make_line("b.jpg", "a", [THERE]), make_line("b.jpg", "b", [], failed="TypeError: x"),
        make_line("c.jpg", "a", [ELSEWHERE]), make_line("c.jpg", "b", [ELSEWHERE]),
    ]  # fmt: skip
    judge.add("".join(lines[:3]).encode())
    judge.add("".join(lines[3:]).encode())
    found = judge.to_dict()["detector"]
    assert found["a"] == {
        "metric": "AP", "value": 1.0, "frames": 2, "failed": 0, "judged": None,
        "classes": {"car": 1.0},
    }  # fmt: skip
    # Half of the cars: the precision is 1 at the 51 recalls up to 0.5, of 101.
    assert found["b"]["value"] == pytest.approx(51 / 101)
    assert (found["b"]["frames"], found["b"]["failed"]) == (2, 1)


def test_without_truth_for_any_task(truth):
    with pytest.raises(ConfigurationError, match="no truth of any task"):
        TruthJudge(truth, [make_task(kind="segmentation")])
