# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A task node alone, over DDS: results, bad input, parameters."""

from __future__ import annotations

import array
import itertools
import pickle

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import CompressedImage, Image
from std_srvs.srv import SetBool
from task_bench import Bench, diagnostics_of, make_image

from jetson_dnn_rt.nodes.reports.arrivals import WINDOW
from jetson_dnn_rt.nodes.reports.diagnostics import ERROR, WARN
from jetson_dnn_rt.nodes.tasks.task_node import SegmenterNode
from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.tasks import Outcome


def test_a_frame_becomes_a_result_under_its_own_header(ros):
    bench = Bench(ros)
    results = bench.start()
    image = make_image(ros)
    bench.send(image, 1)
    message = results.wait_count(1)[0]
    assert message.header == image.header
    # Nothing was seen, and that is said.
    assert len(message.detections) == 0
    assert bench.count(Outcome.MET) == 1


def test_masks_have_the_size_of_the_source(ros):
    bench = Bench(ros, SegmenterNode, model="null:1,segmentation", kind="segmentation")
    classes = ros.listen(Image, "class_mask")
    colours = ros.listen(Image, "color_mask")
    assert bench.node.autostart()
    ros.wait(lambda: bench.images.get_subscription_count() == 1)
    (topics,) = bench.node._results.masks
    ros.wait(topics._class_publisher.get_subscription_count)
    ros.wait(topics._color_publisher.get_subscription_count)
    image = make_image(ros, (50, 70))
    bench.send(image, 1)
    mask, colour = classes.wait_count(1)[0], colours.wait_count(1)[0]
    assert (mask.height, mask.width, mask.encoding, mask.step) == (50, 70, "mono8", 70)
    assert (colour.height, colour.width, colour.encoding) == (50, 70, "rgb8")
    assert mask.header == colour.header == image.header
    assert not np.any(np.frombuffer(mask.data, np.uint8))


def test_images_of_any_size_get_masks_and_pictures_of_their_size(ros):
    bench = Bench(ros, SegmenterNode, model="null:1,segmentation", kind="segmentation")
    classes, colours = ros.listen(Image, "class_mask"), ros.listen(Image, "color_mask")
    drawn = ros.listen(Image, "debug_image", qos_profile_sensor_data)
    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
    assert bench.node.autostart()
    ros.wait(lambda: bench.images.get_subscription_count() == 1)
    (topics,) = bench.node._results.masks
    ros.wait(topics._class_publisher.get_subscription_count)
    ros.wait(topics._color_publisher.get_subscription_count)
    ros.wait(lambda: bench.node._debug_image.wanted)
    sizes = [(50, 70), (1, 1), (300, 2), (50, 70), (3, 900), (1, 1)]
    for number, size in enumerate(sizes):
        for inbox in (classes, colours, drawn):
            inbox.clear()
        bench.send(make_image(ros, size), number + 1)
        for inbox, channels in ((classes, 1), (colours, 3), (drawn, 3)):
            message = inbox.wait_count(1)[0]
            assert (message.height, message.width) == size
            assert (message.step, len(message.data)) == (
                channels * size[1],
                channels * size[0] * size[1],
            )
    assert bench.count(Outcome.FAILED) == 0
    values = diagnostics.wait(
        lambda found: [
            {one.key: one.value for one in status.values}
            for message in found
            for status in message.status
            if status.name == "/segmenter: camera_status"
            and any(one.key == "size_changes" and one.value == "5" for one in status.values)
        ],
        "the count of changes",
    )[0]
    assert values["sizes"] == "70x50, 1x1, 2x300, 900x3"
    assert not FAULTS.snapshot()


def test_masks_as_png_and_the_confidence_of_each_pixel(ros):
    given = {"model": "null:1,segmentation", "kind": "segmentation", "confidence_image": True}
    bench = Bench(ros, SegmenterNode, **given)
    classes, colours = (
        ros.listen(CompressedImage, f"{name}/compressed", qos_profile_sensor_data)
        for name in ("class_mask", "color_mask")
    )
    certain = ros.listen(Image, "confidence")
    assert bench.node.autostart()
    (topics,) = bench.node._results.masks
    ros.wait(lambda: bench.images.get_subscription_count() == 1)
    for publisher in (*topics._compressed.publishers, topics._confidence_publisher):
        ros.wait(publisher.get_subscription_count)
    image = make_image(ros, (50, 70))
    bench.send(image, 1)
    found = [inbox.wait_count(1)[0] for inbox in (classes, colours)]
    assert [m.format for m in found] == ["mono8; png compressed ", "rgb8; png compressed bgr8"]
    shapes = []
    for message in found:
        assert message.header == image.header
        data = np.frombuffer(message.data, np.uint8)
        shapes.append(cv2.imdecode(data, cv2.IMREAD_UNCHANGED).shape)
    assert shapes == [(50, 70), (50, 70, 3)]
    message = certain.wait_count(1)[0]
    assert (message.height, message.width, message.encoding) == (50, 70, "mono8")
    assert message.header == image.header
    # Equal logits: a pixel is of each class with the same probability.
    (share,) = {*message.data}
    assert 1 <= share == round(255 / len(bench.node.loaded.model.labels))


BAD = {
    "encoding": {"encoding": "mono16"},
    "step": {"step": 10},
    "size": {"height": 0, "width": 0},
    "truncated": {"data": array.array("B", bytes(100))},
}


def test_a_bad_image_fails_alone(ros):
    bench = Bench(ros)
    results = bench.start()
    huge = {"height": 16384, "width": 16384, "step": 49152}
    for number, changes in enumerate((*BAD.values(), huge)):
        bench.send(make_image(ros), 2 * number + 1)
        bench.send(make_image(ros, **changes), 2 * number + 2)
    results.wait_count(5)
    assert (bench.count(Outcome.FAILED), bench.count(Outcome.MET)) == (5, 5)
    assert bench.node.snapshot.reasons == {**dict.fromkeys(BAD, 1), "size": 2}


SELDOM = {"expected_frequency": 0.1}
"""With it the time from a frame to the status is no silence on a busy machine."""

EXTREMES = [(0, 0), (2**31 - 1, 999_999_999), (-(2**31), 0), (1, 0)]


def test_stamps_that_cannot_be_true_are_worked_on_and_handed_on(ros):
    bench = Bench(ros)
    results = bench.start()
    for number, (seconds, nanoseconds) in enumerate(EXTREMES, 1):
        image = make_image(ros)
        image.header.stamp.sec, image.header.stamp.nanosec = seconds, nanoseconds
        bench.send(image, number)
        assert results.wait_count(number)[-1].header == image.header
    (stream,) = bench.node.bridge.inputs.values()
    # Zero, in the future, back from there; the last is only old.
    assert stream.stamps.distrusted == len(EXTREMES) - 1


def test_with_a_limit_of_the_age_none_of_them_is_worked_on(ros):
    bench = Bench(ros, max_age_ms=500.0)
    bench.start()
    for number, (seconds, nanoseconds) in enumerate(EXTREMES, 1):
        image = make_image(ros)
        image.header.stamp.sec, image.header.stamp.nanosec = seconds, nanoseconds
        bench.send(image, number)
    assert bench.node.snapshot.reasons == {"stamp": 3, "stale": 1}


def test_a_frozen_camera_is_an_error_and_its_frames_are_skipped(ros):
    """R1: one stamp repeated for 14 s was 420 of 420 met, every status OK."""
    # At 10 Hz half a second is an error.
    bench = Bench(ros, max_age_ms=30_000.0, expected_frequency=10.0)
    bench.start()
    image, sent = make_image(ros), itertools.count(1)

    def send_again():
        bench.send(image, next(sent))
        status = bench.node._make_camera_status()
        return status.message.startswith("frozen: the frames of the last") and status.level

    assert ros.wait(send_again, "the error") == ERROR
    assert bench.count(Outcome.MET) == 1
    assert bench.node.snapshot.reasons == {"frozen": next(sent) - 2}


def test_frames_older_than_ten_seconds_are_stale(ros):
    """R1: above 10 s an age counted as 0; 15 of 15 were met."""
    bench = Bench(ros, max_age_ms=200.0, **SELDOM)
    bench.start()
    for number in range(1, 6):
        image = make_image(ros)
        stamp_ns = ros.probe.get_clock().now().nanoseconds - 10_500_000_000
        image.header.stamp.sec, image.header.stamp.nanosec = divmod(stamp_ns, 10**9)
        bench.send(image, number)
    assert bench.node.snapshot.reasons == {"stale": 5}
    told = bench.node._make_camera_status()
    assert told.level == ERROR
    assert "5 of the last 5 frames are skipped: older than max_age_ms 200" in told.message
    values = {item.key: item.value for item in told.values}
    assert float(values["stamp_offset_ms"]) > 10_000.0
    assert "stamp_clock to unsynchronised" in values["stamp_fault"]
    task = bench.node._make_task_status()
    assert (task.level, task.message) == (
        WARN,
        "5 of the last 5 frames were skipped for their age: camera_status says why",
    )


def test_the_same_camera_loses_no_frame_where_its_clock_is_said_to_be_unsynchronised(ros):
    bench = Bench(ros, max_age_ms=30_000.0, stamp_clock="unsynchronised")
    bench.start()
    for number in range(1, 6):
        image = make_image(ros)
        image.header.stamp.sec -= 3600
        bench.send(image, number)
    assert bench.count(Outcome.MET) == 5


def test_zero_stamps_are_a_warning_as_long_as_they_come(ros):
    """D10: one line in the log, and every status OK."""
    bench = Bench(ros, **SELDOM)
    bench.start()
    for number in range(1, 4):
        image = make_image(ros)
        image.header.stamp.sec = image.header.stamp.nanosec = 0
        bench.send(image, number)
    assert bench.count(Outcome.MET) == 3
    told = bench.node._make_camera_status()
    assert told.level == WARN
    assert "3 of the last 3 stamps are zero; the driver has to stamp its images" in told.message
    for number in range(4, 4 + WINDOW):
        bench.send(make_image(ros), number)
    assert "zero" not in bench.node._make_camera_status().message


def test_a_stamp_that_is_no_time_costs_no_frame(ros):
    """EDGES 4: more nanoseconds than a second has, carried into the seconds, fit no header."""
    bench = Bench(ros)
    results = bench.start()
    image = make_image(ros)
    image.header.stamp.sec, image.header.stamp.nanosec = 2**31 - 1, 2**32 - 1
    bench.send(image, 1)
    header = results.wait_count(1)[0].header
    assert (header.stamp.sec, header.stamp.nanosec) == (0, 0)
    assert header.frame_id == image.header.frame_id
    assert bench.node.bridge.inputs[bench.node.input_key].stamps.distrusted == 1
    assert bench.count(Outcome.MET) == 1


def test_an_old_frame_is_skipped_as_stale(ros):
    bench = Bench(ros, max_age_ms=100.0)
    bench.start()
    old = make_image(ros)
    old.header.stamp.sec -= 2
    bench.send(old, 1)
    assert bench.node.snapshot.reasons == {"stale": 1}
    assert ros.set(bench.node, max_age_ms=5000).successful
    old.header.stamp.sec += 1
    bench.send(old, 2)
    assert bench.count(Outcome.MET) == 1


def test_frames_count_while_active_and_enabled_only(ros):
    bench = Bench(ros)
    bench.start()
    bench.send(make_image(ros), 1)
    reply = ros.request(SetBool, "detector/enable", SetBool.Request(data=False))
    assert reply.success
    bench.images.publish(make_image(ros))
    bench.images.publish(make_image(ros))
    # The next request is answered after those messages were taken.
    ros.request(SetBool, "detector/enable", SetBool.Request(data=True))
    ros.request(SetBool, "detector/enable", SetBool.Request(data=True))
    bench.send(make_image(ros), 2)
    assert bench.node.snapshot.released == 2
    bench.node.trigger_deactivate()
    assert bench.node.snapshot is None
    assert bench.images.get_subscription_count() in (0, 1)  # discovery of the end takes a moment
    ros.wait(lambda: bench.images.get_subscription_count() == 0)
    assert bench.node.autostart()


BAD_VALUES = (
    ("confidence_threshold", 1.5, "confidence_threshold"),
    ("confidence_threshold", "high", "must be a number"),
    ("deadline_ms", -1.0, "deadline_ms"),
    ("late_results", "maybe", "late_results must be one of drop, publish: 'maybe'"),
    ("variant", "full@magic-fp32", "back end must be one of"),
    ("variant", "full@torch-fp32", "variant must be one of full@null"),
    ("variant", "nonsense", "must look like"),
    ("model", "null:2", "model is read when the node is configured: clean it up first"),
    ("max_detections", 0, "max_detections"),
    ("max_detections", 1.5, "Wrong parameter type"),
    ("met_of", [2, 3], "met_of is read when the node is configured: clean it up first"),
)
UNKNOWN = (
    ("dedline_ms", 50.0, "there is no parameter dedline_ms; did you mean deadline_ms?"),
    ("color", "rgb", "did you mean preprocessing.color?"),
    ("luminosity", 1.0, "docs/parameters.md lists those that there are"),
)


def test_a_bad_value_is_rejected_with_its_reason(ros):
    bench = Bench(ros)
    bench.start()
    for name, value, reason in BAD_VALUES:
        before = bench.node.get_parameter(name).value
        result = ros.set(bench.node, **{name: value})
        assert not result.successful, (name, value)
        assert reason in result.reason
        assert bench.node.get_parameter(name).value == before


def test_an_unknown_parameter_is_refused_with_the_one_that_was_meant(ros):
    bench = Bench(ros)
    for name, value, reason in UNKNOWN:
        result = ros.set_by_service("detector", **{name: value})
        assert not result.successful
        assert reason in result.reason
        assert not bench.node.has_parameter(name)


def test_parameters_change_while_running(ros):
    bench = Bench(ros, deadline_ms=9000.0)
    results = bench.start()
    bench.send(make_image(ros), 1)
    assert bench.node.snapshot.parameters.deadline_ns == 9_000_000_000
    # A whole number is a number of milliseconds too.
    assert ros.set(bench.node, deadline_ms=8000).successful
    assert bench.node.snapshot.parameters.deadline_ns == 8_000_000_000
    assert ros.set(bench.node, confidence_threshold=0.9, max_detections=3).successful
    assert bench.node.loaded.settings.confidence == 0.9
    ros.set(bench.node, max_detections=3)
    assert bench.node.loaded.settings.max_detections == 3
    bench.send(make_image(ros), 2)
    results.wait_count(2)
    bench.node.trigger_deactivate()
    bench.node.trigger_cleanup()
    assert ros.set(bench.node, model="null:2").successful


class Bomb:
    """What a weights file may hold."""

    def __reduce__(self):
        return (print, ("run from a weights file",))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"model": "onnx:{tmp}/no.onnx"}, "no.onnx"),
        ({"model": "onnx:{tmp}/empty.onnx"}, "empty"),
        ({"model": "onnx:{tmp}/short.onnx"}, "short.onnx"),
        ({"model": "onnx:{good}", "kind": "segmentation"}, "segmentation"),
        (
            {"model": "torchvision:ssdlite320_mobilenet_v3_large", "weights": "{tmp}/weights.pth"},
            "weights",
        ),
    ],
    ids=["missing", "empty", "truncated", "wrong task", "pickle"],
)
def test_a_bad_model_leaves_the_node_unconfigured_with_the_reason(
    ros, values, reason, tmp_path, shared_data
):
    pytest.importorskip("torch", reason="torch is not installed")
    good = shared_data / "models" / "yolox_nano.onnx"
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "short.onnx").write_bytes(good.read_bytes()[:100_000])
    (tmp_path / "weights.pth").write_bytes(pickle.dumps(Bomb()))
    given = {name: text.format(tmp=tmp_path, good=good) for name, text in values.items()}
    bench = Bench(ros, **given)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    assert not bench.node.autostart()
    assert bench.node.is_unconfigured
    assert reason in bench.node.fault
    found = diagnostics_of(inbox, "/detector: processing_time_status", b"\x02")
    assert found[""] == bench.node.fault
    # The fix is one parameter away.
    for name, value in {"model": "null:1", "kind": "detection"}.items():
        assert ros.set(bench.node, **{name: value}).successful
    assert bench.node.autostart(), bench.node.fault


def test_variants_are_switched_while_running(ros, shared_data):
    """EDGES 23: what ran is looked at when all observers were told, not when a result came."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("openvino", reason="openvino is not installed")
    variants = ["full@onnxruntime-fp32", "full@openvino-fp32"]
    bench = Bench(
        ros,
        model=f"onnx:{shared_data}/models/yolox_nano.onnx",
        variants=variants,
        deadline_ms=5000.0,
    )
    results = bench.start()
    bench.send(make_image(ros), 1)
    assert ros.set(bench.node, variant="full@openvino").successful
    bench.send(make_image(ros), 2)
    assert ros.set(bench.node, variant="").successful
    bench.send(make_image(ros), 3)
    results.wait_count(3)
    assert bench.seen.variants == [variants[0], variants[1], variants[0]]


@pytest.mark.parametrize(("late_results", "published"), [("drop", 0), ("publish", 1)])
def test_a_late_result_is_dropped_or_published_as_configured(ros, late_results, published):
    # Three cold and two measured runs are fast; then the last stage takes too long. Far too long,
    # and with a deadline that the measured ones keep on a busy machine too: a frame that the
    # budgets refuse is skipped, not late.
    decode = "/".join(["1"] * 5 + ["900"])
    bench = Bench(ros, model=f"null:decode={decode}", late_results=late_results)
    results = bench.start()
    bench.send(make_image(ros), 1)
    assert bench.count(Outcome.LATE) == 1
    assert bench.node.published == published
    if published:
        results.wait_count(1)


def test_a_hung_stage_fails_its_frame_and_the_task_comes_back(ros):
    bench = Bench(
        ros, model="null:" + "/".join(["1"] * 5 + ["1500"] + ["1"] * 20), stage_timeout_ms=100.0
    )
    bench.start()
    bench.send(make_image(ros), 1)
    assert bench.count(Outcome.FAILED) == 1
    ros.wait(lambda: not bench.node.snapshot.suspended, "the restart")
    numbers = itertools.count(2)

    def has_met():
        bench.send(make_image(ros), next(numbers))
        return bench.count(Outcome.MET)

    assert ros.wait(has_met, "a frame in time") == 1


def test_compressed_images_are_taken(ros):
    import cv2
    from sensor_msgs.msg import CompressedImage

    bench = Bench(ros, image_transport="compressed")
    bench.images = ros.advertise(CompressedImage, "image_raw/compressed")
    results = bench.start()
    message = CompressedImage(format="jpeg")
    message.header.stamp = ros.probe.get_clock().now().to_msg()
    message.data = cv2.imencode(".jpg", np.zeros((48, 64, 3), np.uint8))[1].tobytes()
    bench.send(message, 1)
    bench.send(CompressedImage(format="jpeg", data=message.data[:40]), 2)
    bench.send(message, 3)
    assert results.wait_count(2)[0].header == message.header
    assert bench.node.snapshot.reasons == {"truncated": 1}


def test_an_image_on_which_the_conversion_fails_counts_as_failed(ros, monkeypatch):
    """EDGES 0: an exception that the conversion does not declare ended the process (line 1)."""
    bench = Bench(ros)
    bench.start()
    bench.send(make_image(ros), 1)
    stream = bench.node.bridge.inputs[bench.node.input_key]

    def fail(message, sequence):
        raise MemoryError("40000 x 40000")

    with monkeypatch.context() as patch:
        patch.setattr(stream, "_convert", fail)
        for number in range(3):
            bench.send(make_image(ros), 2 + number)
    bench.send(make_image(ros), 5)
    assert bench.count(Outcome.FAILED) == 3
    assert bench.node.snapshot.reasons == {"unreadable": 3}
    assert [(one.kind, one.count) for one in FAULTS.snapshot()] == [
        ("image of /image_raw: MemoryError", 3)
    ]


def test_a_frame_that_cannot_be_released_counts_as_failed(ros, monkeypatch):
    """EDGES 0: an exception in `submit` ended the process."""
    bench = Bench(ros)
    bench.start()
    executor = bench.node.session.executor

    def fail(*args):
        raise KeyError("a task that is not there")

    with monkeypatch.context() as patch:
        patch.setattr(executor, "submit", fail)
        bench.send(make_image(ros), 1)
    bench.send(make_image(ros), 2)
    assert bench.count(Outcome.FAILED) == 1
    assert [one.kind for one in FAULTS.snapshot()] == ["release of a frame: KeyError"]
