# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Classes that a task wants, with a score of each: as if boxes were chosen afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from jetson_dnn_rt.config.task import TaskConfig, parse_class_threshold
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.heads.class_filter import resolve_thresholds
from jetson_dnn_rt.models.heads.end_to_end import decode_rows
from jetson_dnn_rt.models.heads.yolo import decode_yolov5, decode_yolov8
from jetson_dnn_rt.models.input.preprocessing import Geometry

LABELS = ("person", "car", "7", "traffic light", "car")
SIDE = 64


def decode_as_v5(rows, scores):
    outputs = np.concatenate([rows, np.ones((len(rows), 1), np.float32), scores], axis=1)
    return decode_yolov5, outputs[None]


def decode_as_v8(rows, scores):
    return decode_yolov8, np.concatenate([rows, scores], axis=1).T[None]


def decode_as_rows(rows, scores):
    corners = np.concatenate([rows[:, :2] - rows[:, 2:] / 2, rows[:, :2] + rows[:, 2:] / 2], 1)
    best = scores.argmax(1)
    columns = [corners, scores.max(1)[:, None], best[:, None].astype(np.float32)]
    return decode_rows, np.concatenate(columns, axis=1)[None]


HEADS = (decode_as_v5, decode_as_v8, decode_as_rows)


def decode(head, rows, scores, settings):
    decoder, outputs = head(rows, scores)
    geometry = Geometry(SIDE, SIDE, SIDE, SIDE, 0, 0)
    return decoder((np.ascontiguousarray(outputs, np.float32),), geometry, settings)


grid = st.integers(1, 15).map(lambda n: n * 4.0)
hundredths = st.integers(0, 100).map(lambda n: n / 100)
pictures = st.integers(0, 12).flatmap(
    lambda count: st.tuples(
        arrays.arrays(np.float32, (count, 4), elements=grid),
        arrays.arrays(
            np.float32,
            (count, len(LABELS)),
            elements=hundredths.map(lambda x: float(np.float32(x))),
        ),
    )
)
names = st.sampled_from(["person", "car", "7", "traffic light", "0", "1", "3"])


@given(
    pictures,
    st.sampled_from(HEADS),
    hundredths,
    st.sets(names),
    st.dictionaries(st.sampled_from(["person", "car", "7", "traffic light"]), hundredths),
)
def test_the_result_is_that_of_choosing_afterwards(picture, head, confidence, classes, given_):
    rows, scores = picture
    texts = [f"{name}={score}" for name, score in given_.items()]
    lowest, thresholds = resolve_thresholds(LABELS, confidence, sorted(classes), texts)
    settings = DecoderSettings(confidence=lowest, thresholds=thresholds)
    found = decode(head, rows, scores, settings)
    everything = decode(head, rows, scores, DecoderSettings(confidence=0.0))

    wanted_of = {"person": {0}, "car": {1, 4}, "7": {2}, "traffic light": {3},
                 "0": {0}, "1": {1}, "3": {3}}  # fmt: skip
    wanted = set().union(*(wanted_of[name] for name in classes)) if classes else set(range(5))
    limits = [given_.get(label, confidence) for label in LABELS]
    kept = [
        row
        for row, (class_id, score) in enumerate(
            zip(everything.class_ids.tolist(), everything.scores, strict=True)
        )
        if class_id in wanted and score >= np.float32(limits[class_id])
    ]
    assert np.array_equal(found.boxes, everything.boxes[kept])
    assert np.array_equal(found.scores, everything.scores[kept])
    assert np.array_equal(found.class_ids, everything.class_ids[kept])


def test_decoders_are_told_the_lowest_score_that_is_wanted():
    lowest, thresholds = resolve_thresholds(
        LABELS, 0.3, ["person", "2", "traffic light"], ["car=0.1", "person=0.25", "3=0.9"]
    )
    assert lowest == 0.25
    assert thresholds.dtype == np.float32
    # The name "7" goes before a number, "2" is one; the car's threshold waits until it is wanted.
    expected = np.array([0.25, np.inf, 0.3, 0.9, np.inf], np.float32)
    assert np.array_equal(thresholds, expected)


def test_all_with_one_threshold_needs_no_table():
    assert resolve_thresholds(LABELS, 0.3, (), ()) == (0.3, None)


@pytest.mark.parametrize("head", HEADS)
def test_a_score_that_is_the_threshold_is_enough(head):
    rows = np.array([[20, 20, 8, 8], [40, 40, 8, 8]], np.float32)
    for limit in np.arange(1, 100, dtype=np.float32) / np.float32(100):
        scores = np.zeros((2, len(LABELS)), np.float32)
        scores[0, 1], scores[1, 1] = limit, np.nextafter(limit, np.float32(0))
        lowest, thresholds = resolve_thresholds(LABELS, 0.005, ["car"], [f"car={limit:.2f}"])
        found = decode(head, rows, scores, DecoderSettings(lowest, thresholds=thresholds))
        assert found.scores.tolist() == [limit]


def test_other_classes_suppress_where_that_is_asked_for():
    rows = np.array([[20, 20, 8, 8], [20, 20, 8, 8], [40, 40, 8, 8]], np.float32)
    scores = np.zeros((3, len(LABELS)), np.float32)
    scores[0, 0], scores[1, 1], scores[2, 1] = 0.6, 0.8, 0.7
    for agnostic, expected in ((False, [1, 1, 0]), (True, [1, 1])):
        settings = DecoderSettings(class_agnostic=agnostic)
        assert decode(decode_as_v8, rows, scores, settings).class_ids.tolist() == expected
    # An unwanted class suppresses nothing.
    lowest, thresholds = resolve_thresholds(LABELS, 0.3, ["person"], [])
    settings = DecoderSettings(lowest, class_agnostic=True, thresholds=thresholds)
    assert decode(decode_as_v8, rows, scores, settings).class_ids.tolist() == [0]


@pytest.mark.parametrize(
    ("classes", "thresholds", "message"),
    [
        (["truck"], [], "classes: the model has no class 'truck'; fix: a number from 0 to 4, or "
                        "one of person, car, 7, traffic light, car"),
        (["5"], [], "no class '5'"),
        (["-1"], [], "no class '-1'"),
        (["Car"], [], "no class 'Car'"),
        ([], ["bus=0.5"], "class_thresholds: the model has no class 'bus'"),
        ([], ["car=0.5", "1=0.5"], "'car' two thresholds: 'car=0.5' and '1=0.5'"),
    ],
)  # fmt: skip
def test_what_the_model_does_not_have_is_an_error(classes, thresholds, message):
    with pytest.raises(ConfigurationError, match=message):
        resolve_thresholds(LABELS, 0.3, classes, thresholds)


def test_of_very_many_classes_the_first_are_listed():
    with pytest.raises(ConfigurationError, match=r"class_99, \.\.\. \(1000 in all\)$"):
        resolve_thresholds([f"class_{i}" for i in range(1000)], 0.3, ["cat"], ())


@pytest.mark.parametrize(
    "text", ["car", "car=", "=0.5", "car=high", "car=1.5", "car=-0.1", "car=nan", "car:0.5", ""]
)
def test_a_threshold_is_a_class_and_a_score(text):
    with pytest.raises(ConfigurationError, match="CLASS=SCORE"):
        TaskConfig(class_thresholds=(text,))


def test_a_name_may_hold_the_sign():
    assert parse_class_threshold(" a=b = 0.5") == ("a=b", 0.5)


def test_a_misspelt_class_is_guessed():
    with pytest.raises(
        ConfigurationError, match=r"no class 'cars'; did you mean car\?; fix: a num"
    ):
        resolve_thresholds(LABELS, 0.3, ["cars"], ())
    with pytest.raises(ConfigurationError, match=r"no class 'Person'; did you mean person\?"):
        resolve_thresholds(LABELS, 0.3, (), ["Person=0.5"])
    with pytest.raises(ConfigurationError, match="no class 'car'; its classes have no names: set"):
        resolve_thresholds(("class_0", "class_1"), 0.3, ["car"], ())
