# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What tasks publish, over DDS: networks with constant outputs, exact values in the messages."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from constant_networks import SIZE, make_classifier, make_masks, make_obb, make_pose, make_seg
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import CompressedImage, Image, PointCloud2, PointField
from task_bench import Bench, make_image
from vision_msgs.msg import Classification, Detection2DArray, LabelInfo

from jetson_dnn_rt.nodes.perception import PerceptionNode
from jetson_dnn_rt.nodes.tasks.task_node import ClassifierNode, DetectorNode, SegmenterNode
from jetson_dnn_rt.results import Detections, Segmentation
from jetson_dnn_rt.tasks import Outcome

LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
VARIANTS = ["full@onnxruntime-fp32"]

# The dog and the cat of `make_seg`; the dog is the better one and on top.
INSTANCES = np.zeros((SIZE, SIZE), np.uint16)
INSTANCES[32:60, 32:60] = 2
INSTANCES[8:40, 8:40] = 1


class Stage:
    """A task node that is active, and inboxes for its topics."""

    def __init__(self, ros, kind, model, topics, **values):
        self.ros = ros
        given = {"model": model, "variants": VARIANTS, "engine_cache": "none", **values}
        self.bench = Bench(ros, kind, **given)
        self.inboxes = {
            name: ros.listen(message, name, qos) for name, (message, qos) in topics.items()
        }
        assert self.bench.node.autostart(), self.bench.node.fault
        ros.wait(lambda: self.bench.images.get_subscription_count() == 1, "the subscription")
        for name, inbox in self.inboxes.items():
            ros.wait(inbox.subscription.get_publisher_count, f"the publisher of {name}")
        for publisher in self.node.publishers:
            name = publisher.topic_name.removeprefix("/")
            if name in self.inboxes:
                ros.wait(publisher.get_subscription_count, f"the subscriber of {name}")

    @property
    def node(self):
        return self.bench.node

    def send(self):
        """Send a picture; returns it and the message on each topic."""
        image = make_image(self.ros, (SIZE, SIZE))
        self.bench.send(image, 1)
        assert self.bench.count(Outcome.MET) == 1
        found = {name: inbox.wait_count(1)[-1] for name, inbox in self.inboxes.items()}
        for name, message in found.items():
            if not isinstance(message, LabelInfo):
                assert message.header == image.header, name
        return found


def topics_of(node):
    return {publisher.topic_name.removeprefix("/") for publisher in node.publishers}


def read_image(message, dtype=np.uint8):
    assert message.step == message.width * np.dtype(dtype).itemsize
    return np.frombuffer(message.data, dtype).reshape(message.height, message.width)


def read_labels(message):
    assert [one.class_id for one in message.class_map] == [*range(len(message.class_map))]
    return [one.class_name for one in message.class_map]


@pytest.mark.parametrize(
    ("class_id", "ids"), [("number", ["2", "0", "1"]), ("name", ["cow", "cat", "dog"])]
)
def test_a_classifier_publishes_its_classes_best_first(ros, tmp_path, class_id, ids):
    stage = Stage(
        ros,
        ClassifierNode,
        make_classifier(tmp_path),
        {"classification": (Classification, 10), "label_info": (LabelInfo, LATCHED)},
        labels=["cat", "dog", "cow"],
        class_id=class_id,
    )
    assert stage.node.get_name() == "classifier"
    found = stage.send()
    results = found["classification"].results
    assert [one.class_id for one in results] == ids
    scores = [one.score for one in results]
    assert scores == pytest.approx([4 / 5.999, 1 / 5.999, 0.999 / 5.999], abs=1e-6)
    assert read_labels(found["label_info"]) == ["cat", "dog", "cow"]
    assert stage.node._make_result_status().name == "/classification"
    assert not topics_of(stage.node) & {"detections", "class_mask"}


def test_instance_masks_count_the_detections_of_the_same_header(ros, tmp_path):
    stage = Stage(
        ros,
        DetectorNode,
        make_seg(tmp_path),
        {
            "detections": (Detection2DArray, 10),
            "instance_mask": (Image, 10),
            "instance_mask/compressed": (CompressedImage, qos_profile_sensor_data),
        },
    )
    found = stage.send()
    dog, cat = found["detections"].detections
    assert (dog.results[0].hypothesis.class_id, cat.results[0].hypothesis.class_id) == ("1", "0")
    assert (dog.bbox.center.position.x, dog.bbox.size_x, dog.bbox.center.theta) == (24, 32, 0)
    assert (dog.id, cat.id) == ("", "")
    mask = found["instance_mask"]
    assert (mask.height, mask.width, mask.encoding, mask.is_bigendian) == (SIZE, SIZE, "mono16", 0)
    np.testing.assert_array_equal(read_image(mask, "<u2"), INSTANCES)
    packed = found["instance_mask/compressed"]
    assert packed.format == "mono16; png compressed "
    decoded = cv2.imdecode(np.frombuffer(packed.data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert decoded.dtype == np.uint16
    np.testing.assert_array_equal(decoded, INSTANCES)
    assert "keypoints" not in topics_of(stage.node)


def read_keypoints_as_documented():
    """The function that docs/topics.md shows."""
    text = (Path(__file__).parents[2] / "docs" / "topics.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(import numpy.*?def read_keypoints.*?)```", text, re.DOTALL)
    space = {}
    exec(code, space)
    return space["read_keypoints"]


def test_keypoints_are_rows_of_an_organised_cloud(ros, tmp_path):
    stage = Stage(
        ros,
        DetectorNode,
        make_pose(tmp_path),
        {"detections": (Detection2DArray, 10), "keypoints": (PointCloud2, 10)},
    )
    found = stage.send()
    cloud = found["keypoints"]
    assert len(found["detections"].detections) == cloud.height == 2
    assert (cloud.width, cloud.point_step, cloud.row_step) == (3, 12, 36)
    assert [(f.name, f.offset, f.datatype, f.count) for f in cloud.fields] == [
        (name, 4 * i, PointField.FLOAT32, 1) for i, name in enumerate(("x", "y", "score"))
    ]
    assert struct.unpack("<9f", cloud.data[:36]) == (10, 12, 0.75, 30, 12.5, 1, -4, 70, 0.25)
    points = read_keypoints_as_documented()(cloud)
    assert points.shape == (2, 3, 3)
    assert points[1].tolist() == [[40, 41, 1], [42, 43, 1], [44, 45, 1]]
    assert not {t for t in topics_of(stage.node) if t.startswith("instance_mask")}


def test_without_an_object_there_is_a_mask_and_a_cloud_without_points(ros, tmp_path):
    """The threshold is above every score: an empty result is a result too."""
    topics = {"detections": (Detection2DArray, 10)}
    for make, name, message in (
        (make_seg, "instance_mask", Image),
        (make_pose, "keypoints", PointCloud2),
    ):
        stage = Stage(
            ros,
            DetectorNode,
            make(tmp_path),
            {**topics, name: (message, 10)},
            confidence_threshold=0.95,
        )
        found = stage.send()
        assert len(found["detections"].detections) == 0
        if name == "keypoints":
            assert (found[name].height, found[name].width, len(found[name].data)) == (0, 3, 0)
            assert read_keypoints_as_documented()(found[name]).shape == (0, 3, 3)
        else:
            assert not read_image(found[name], "<u2").any()
        stage.node.trigger_shutdown()


def test_a_turned_box_has_its_angle(ros, tmp_path):
    stage = Stage(ros, DetectorNode, make_obb(tmp_path), {"detections": (Detection2DArray, 10)})
    (dog,) = stage.send()["detections"].detections
    center = dog.bbox.center
    assert (center.position.x, center.position.y) == pytest.approx((32, 30))
    assert (dog.bbox.size_x, dog.bbox.size_y) == pytest.approx((40, 10))
    assert center.theta == pytest.approx(0.5)


MASKS = ["da", "ll"]


def test_several_masks_have_a_set_of_topics_each(ros, tmp_path):
    names = ("class_mask", "color_mask", "confidence")
    topics = {f"{mask}/{name}": (Image, 10) for mask in MASKS for name in names}
    topics |= {f"{mask}/label_info": (LabelInfo, LATCHED) for mask in MASKS}
    topics |= {
        f"{mask}/class_mask/compressed": (CompressedImage, qos_profile_sensor_data)
        for mask in MASKS
    }
    topics["label_info"] = (LabelInfo, LATCHED)
    stage = Stage(
        ros,
        SegmenterNode,
        make_masks(tmp_path, *MASKS),
        topics,
        outputs=MASKS,
        confidence_image=True,
    )
    assert stage.node.fault == ""
    found = stage.send()
    for number, mask in enumerate(MASKS):
        expected = np.zeros((SIZE, SIZE), np.uint8)
        expected[16 * number : 16 * number + 16] = 1
        np.testing.assert_array_equal(read_image(found[f"{mask}/class_mask"]), expected)
        colours = np.frombuffer(found[f"{mask}/color_mask"].data, np.uint8).reshape(SIZE, SIZE, 3)
        np.testing.assert_array_equal(colours, expected[..., None] * np.uint8([128, 0, 0]))
        # Softmax of 1 and 3, of 1 and 0.
        sure = np.where(expected, round(255 / (1 + np.exp(-2))), round(255 / (1 + np.exp(-1))))
        np.testing.assert_array_equal(read_image(found[f"{mask}/confidence"]), sure)
        packed = np.frombuffer(found[f"{mask}/class_mask/compressed"].data, np.uint8)
        np.testing.assert_array_equal(cv2.imdecode(packed, cv2.IMREAD_UNCHANGED), expected)
        assert read_labels(found[f"{mask}/label_info"]) == ["background", mask]
    assert read_labels(found["label_info"]) == ["background", "da"]
    # The main topic is the first one's; the plain names are not there.
    assert stage.node._make_result_status().name == "/da/class_mask"
    assert not topics_of(stage.node) & {"class_mask", "color_mask", "confidence"}


def test_labels_of_the_user_are_those_of_every_mask(ros, tmp_path):
    stage = Stage(
        ros,
        SegmenterNode,
        make_masks(tmp_path, *MASKS),
        {f"{mask}/label_info": (LabelInfo, LATCHED) for mask in MASKS},
        outputs=MASKS,
        labels=["nothing", "lane"],
    )
    for inbox in stage.inboxes.values():
        assert read_labels(inbox.wait_count(1)[-1]) == ["nothing", "lane"]


def test_names_of_outputs_become_names_that_ros_allows(ros, tmp_path):
    names = ["/model.9/Conv:0", "769"]
    model = make_masks(tmp_path, *names)
    bench = Bench(ros, SegmenterNode, model=model, variants=VARIANTS, outputs=names)
    assert bench.node.autostart(), bench.node.fault
    assert {"model_9_Conv_0/class_mask", "mask_769/class_mask"} <= topics_of(bench.node)


def test_a_name_that_gives_no_topic_is_refused_and_named(ros, tmp_path):
    names = ["da", "道路"]
    model = make_masks(tmp_path, *names)
    bench = Bench(ros, SegmenterNode, model=model, variants=VARIANTS, outputs=names)
    assert not bench.node.autostart()
    assert "output '道路' gives no name for a topic" in bench.node.fault
    assert bench.node.state_name == "unconfigured"


def test_two_outputs_on_one_topic_are_refused_and_named(ros, tmp_path):
    names = ["a.b", "a:b"]
    model = make_masks(tmp_path, *names)
    bench = Bench(ros, SegmenterNode, model=model, variants=VARIANTS, outputs=names)
    assert not bench.node.autostart()
    assert "'a.b' and 'a:b' would both be on topics a_b/" in bench.node.fault


class OwnDecoder:
    """A user's decoder, which says what it gives: one box in a frame, with a point."""

    kind = "detection"
    parts = ("keypoints",)
    classes = 1

    def __init__(self, network):
        assert network.shapes == [(1, 3)]

    def __call__(self, outputs, geometry, settings):
        box = np.array([[1, 2, 3, 4]], np.float32)
        found = Detections(box, np.ones(1, np.float32), np.zeros(1, np.int64))
        found.keypoints = np.array([[[2, 3, 1]]], np.float32)
        found.track_ids = np.array([7])
        return found


def test_a_decoder_of_the_user_names_its_parts_and_tracks_are_ids(ros, tmp_path):
    stage = Stage(
        ros,
        DetectorNode,
        make_classifier(tmp_path),
        {"detections": (Detection2DArray, 10), "keypoints": (PointCloud2, 10)},
        head=f"{__name__}:OwnDecoder",
    )
    found = stage.send()
    assert [one.id for one in found["detections"].detections] == ["7"]
    assert struct.unpack("<3f", found["keypoints"].data) == (2, 3, 1)


class Misspelt(OwnDecoder):
    parts = ("keypoint",)


def test_a_part_that_does_not_exist_is_refused(ros, tmp_path):
    head = f"{__name__}:Misspelt"
    bench = Bench(ros, model=make_classifier(tmp_path), variants=VARIANTS, head=head)
    assert not bench.node.autostart()
    assert "`parts` name ['keypoint'], there are instance_mask and keypoints" in bench.node.fault


class OwnMasks:
    """A user's decoder of several masks."""

    kind = "segmentation"
    masks = (("da", 2), ("lane.types", 3))
    classes = 0

    def __init__(self, network):
        pass

    def __call__(self, outputs, geometry, settings):
        mask = np.full((geometry.source_height, geometry.source_width), 2, np.uint8)
        return Segmentation(mask, name="da", others=(Segmentation(mask, name="lane.types"),))


def test_a_decoder_of_the_user_names_its_masks(ros, tmp_path):
    stage = Stage(
        ros,
        SegmenterNode,
        make_classifier(tmp_path),
        {"lane_types/class_mask": (Image, 10), "lane_types/label_info": (LabelInfo, LATCHED)},
        head=f"{__name__}:OwnMasks",
        labels=["nothing", "solid", "dashed"],
    )
    found = stage.send()
    assert {*found["lane_types/class_mask"].data} == {2}
    assert read_labels(found["lane_types/label_info"]) == ["nothing", "solid", "dashed"]


def test_all_kinds_of_tasks_run_in_one_process(ros, tmp_path):
    quick = {"variants": VARIANTS, "warmup_runs": 1, "engine_cache": "none", "deadline_ms": 500.0}
    overrides = {
        "perception": {
            "tasks": ["detector", "segmenter", "classifier"],
            "cameras": [""],
            "coordinator": False,
        },
        "detector": {"model": make_pose(tmp_path), **quick},
        "segmenter": {"model": make_masks(tmp_path, *MASKS), "outputs": MASKS, **quick},
        "classifier": {"model": make_classifier(tmp_path), **quick},
    }
    node = ros.make(PerceptionNode, overrides=overrides)
    inboxes = [
        ros.listen(message, name)
        for message, name in (
            (PointCloud2, "keypoints"),
            (Image, "ll/class_mask"),
            (Classification, "classification"),
        )
    ]
    images = ros.advertise(Image, "image_raw")
    assert node.autostart(), node.fault
    ros.wait(images.get_subscription_count)
    wanted = {"/keypoints", "/ll/class_mask", "/classification"}
    publishers = [p for task in node.tasks.values() for p in task.publishers]
    for publisher in publishers:
        if publisher.topic_name in wanted:
            ros.wait(publisher.get_subscription_count)
    image = make_image(ros, (SIZE, SIZE))
    images.publish(image)
    for inbox in inboxes:
        assert inbox.wait_count(1)[0].header == image.header


def test_two_tasks_with_the_same_mask_are_refused(ros, tmp_path):
    model = make_masks(tmp_path, *MASKS)
    task = {"kind": "segmentation", "model": model, "variants": VARIANTS}
    overrides = {
        "perception": {"tasks": ["left", "right"], "cameras": [""], "coordinator": False},
        "left": {"outputs": MASKS, **task},
        "right": {"outputs": MASKS[::-1], **task},
    }
    node = ros.make(PerceptionNode, overrides=overrides)
    assert not node.autostart()
    assert "tasks left and right both publish /ll/class_mask" in node.fault
