# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Boxes as Foxglove's annotations, with fakes of foxglove_msgs, which is not here."""

from __future__ import annotations

import sys
import types
from dataclasses import field, make_dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from builtin_interfaces.msg import Time
from task_bench import Bench, Log

from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.tasks.annotations import MISSING, Annotations
from jetson_dnn_rt.results import Detections


def make_fake(name, fields, **constants):
    """A fake of a message class: its fields as foxglove_msgs 3.4 names them, and no others."""
    typed = [(key, Any, field(default_factory=make)) for key, make in fields.items()]
    return make_dataclass(name, typed, namespace=constants)


def make_fake_messages(**stamp):
    own = {"timestamp": Time, "metadata": list}
    return types.SimpleNamespace(
        Point2=make_fake("Point2", {"x": float, "y": float}),
        Color=make_fake("Color", dict.fromkeys("rgba", float)),
        PointsAnnotation=make_fake(
            "PointsAnnotation",
            {
                **own, "type": int, "points": list, "outline_color": object,
                "outline_colors": list, "fill_color": object, "thickness": float,
            },
            POINTS=1,
            LINE_LOOP=2,
        ),
        TextAnnotation=make_fake(
            "TextAnnotation",
            {
                **own, "position": object, "text": str, "font_size": float,
                "text_color": object, "background_color": object,
            },
        ),
        ImageAnnotations=make_fake(
            "ImageAnnotations",
            {"circles": list, "points": list, "texts": list, "metadata": list, **stamp},
        ),
    )  # fmt: skip


class FakePublisher:
    def __init__(self, subscribers):
        self.subscribers, self.messages = subscribers, []
        self.publish = self.messages.append

    def get_subscription_count(self):
        return self.subscribers


class FakeNode:
    def __init__(self, subscribers=1):
        self.publisher = FakePublisher(subscribers)

    def create_publisher(self, kind, topic, qos):
        assert (kind.__name__, topic) == ("ImageAnnotations", "annotations")
        return self.publisher


FRAME = Frame(np.zeros((48, 64, 3), np.uint8), "bgr8", 5_000_000_007, 0, "camera")
BOXES = Detections(
    np.array([[1, 2, 30, 40], [5, 6, 7, 8]], np.float32),
    np.array([0.9, 0.25], np.float32),
    np.array([0, 7]),
)


@pytest.mark.parametrize("stamp", [{}, {"timestamp": Time}])
def test_each_box_is_an_outline_and_a_text_with_the_stamp_of_the_frame(stamp):
    node = FakeNode()
    Annotations(make_fake_messages(**stamp), node, ["car"], 10).publish(BOXES, FRAME)
    (message,) = node.publisher.messages
    box, text = message.points[0], message.texts[0]
    assert [(p.x, p.y) for p in box.points] == [(1, 2), (30, 2), (30, 40), (1, 40)]
    assert (box.type, box.outline_color, text.background_color) == (2, *(box.outline_color,) * 2)
    assert [one.text for one in message.texts] == ["car 0.90", "class_7 0.25"]
    assert (text.position.x, text.position.y) == (1, 2)
    for item in (box, text, *([message] if stamp else [])):
        assert (item.timestamp.sec, item.timestamp.nanosec) == (5, 7)


def test_turned_boxes_keypoints_and_tracks():
    found = Detections(
        BOXES.boxes,
        BOXES.scores,
        BOXES.class_ids,
        rotated=np.array([[16, 20, 8, 2, 0], [6, 7, 2, 2, 0]], np.float32),
        keypoints=np.array([[[3, 4, 0.9], [5, 6, 0.1]], [[0, 0, 0], [0, 0, 0]]], np.float32),
        track_ids=np.array([12, -1]),
    )
    node = FakeNode()
    Annotations(make_fake_messages(), node, ["car"], 10).publish(found, FRAME)
    (message,) = node.publisher.messages
    assert [one.type for one in message.points] == [2, 1, 2]
    outline, points, _ = message.points
    assert [(p.x, p.y) for p in outline.points] == [(12, 19), (20, 19), (20, 21), (12, 21)]
    assert [(p.x, p.y) for p in points.points] == [(3, 4)]
    assert points.fill_color is points.outline_color is outline.outline_color
    assert (points.timestamp.sec, points.timestamp.nanosec) == (5, 7)
    assert [one.text for one in message.texts] == ["car 0.90 #12", "class_7 0.25"]
    assert (message.texts[0].position.x, message.texts[0].position.y) == (12, 19)


def test_an_empty_result_clears_the_picture_and_nobody_gets_nothing():
    node = FakeNode()
    Annotations(make_fake_messages(), node, ["car"], 10).publish(Detections.empty(), FRAME)
    assert [(m.points, m.texts) for m in node.publisher.messages] == [([], [])]
    node = FakeNode(subscribers=0)
    Annotations(make_fake_messages(), node, ["car"], 10).publish(BOXES, FRAME)
    assert node.publisher.messages == []


def test_without_foxglove_msgs_it_is_said_once_and_boxes_are_published(ros, monkeypatch):
    monkeypatch.setitem(sys.modules, "foxglove_msgs", None)
    bench = Bench(ros, annotations=True)
    log = Log(bench.node)
    bench.start()
    assert log.count(MISSING) == 1
    assert bench.node.get_publishers_info_by_topic("/annotations") == []
