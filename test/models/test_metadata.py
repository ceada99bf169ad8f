# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What exporters write beside the graph, and what strangers may write there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.models.metadata import SILENT, Metadata, read_metadata

POSE = {
    "author": "Ultralytics",
    "version": "8.4.190",
    "stride": "32",
    "task": "pose",
    "head": "Pose",
    "batch": "1",
    "imgsz": "[96, 160]",
    "names": "{0: 'person'}",
    "kpt_shape": "[17, 3]",
    "end2end": "False",
    "args": "{'batch': 1, 'nms': None}",
}


def test_an_export_of_ultralytics():
    found = read_metadata(POSE)
    assert found == Metadata(
        exporter="ultralytics 8.4.190",
        task="pose",
        head="Pose",
        names=("person",),
        image_size=(96, 160),
        keypoint_shape=(17, 3),
        end_to_end=False,
        batch=1,
        values=tuple(sorted(POSE.items())),
    )
    assert found.is_ultralytics


@pytest.mark.parametrize(
    ("values", "end_to_end"),
    [
        ({"end2end": "True"}, True),
        ({"end2end": "true"}, True),
        ({"end2end": "False", "args": "{'nms': True}"}, True),  # as 8.4.190 writes it
        ({"end2end": "False", "args": "{'nms': False}"}, False),
        ({"end2end": "perhaps"}, None),
        ({}, None),
    ],
)
def test_whether_the_graph_suppresses(values, end_to_end):
    assert read_metadata({**POSE, **values}).end_to_end is (end_to_end if values else False)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("classes", '["car", "road sign"]'),
        ("labels", '{"0": "car", "1": "road sign"}'),
        ("class_names", "('car', 'road sign')"),
        ("label_list", "car\nroad sign\n"),
    ],
)
def test_names_of_classes(key, text):
    found = read_metadata({key: text, "author": "me"})
    assert (found.names, found.likely_names) == (None, ("car", "road sign"))


@pytest.mark.parametrize("text", ["80", "car", "{'a': 'car'}", "[]"])
def test_what_is_no_list_of_names(text):
    assert read_metadata({"classes": text}).likely_names is None


def test_a_file_that_says_nothing():
    assert read_metadata({}) == SILENT
    assert not SILENT.is_ultralytics


def test_a_task_of_another_exporter_means_something_else():
    found = read_metadata({"task": "detect", "author": "me"})
    assert (found.task, found.exporter) == ("", "me")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("names", "__import__('os').system('true')"),
        ("names", "[1, 2]"),
        ("names", "{" * 5000),
        ("names", "{-1: 'a'}"),
        ("kpt_shape", "[17]"),
        ("kpt_shape", "[0, 3]"),
        ("imgsz", "'large'"),
        ("batch", "True, 4"),
        ("names", "{[]: 1}"),
        ("names", "{True: 'a'}"),
        ("imgsz", "[10000000000000000000, 640]"),
        ("names", "{" + "0: 'a'," * 20000 + "}"),
    ],
)
def test_what_is_not_understood_is_as_good_as_none(key, text):
    found = read_metadata({**POSE, key: text})
    field = {"kpt_shape": "keypoint_shape", "imgsz": "image_size"}.get(key, key)
    assert getattr(found, field) in (None, 0)


@given(st.dictionaries(st.sampled_from([*POSE, "other"]), st.text()))
def test_any_text_is_read(values):
    found = read_metadata(values)
    assert found.values == tuple(sorted(values.items()))
