# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Messages to frames without a copy, malformed messages each with its reason, and back."""

from __future__ import annotations

import array
from dataclasses import replace

import cv2
import hostile_images as hostile
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CompressedImage, Image

from jetson_dnn_rt.cameras.encoded_pictures import BadImageError
from jetson_dnn_rt.cameras.image_messages import MAX_FRAME_ID, decode_image, view_image
from jetson_dnn_rt.frames import Frame, FramePool
from jetson_dnn_rt.nodes.tasks.conversion import (
    DetectionsWriter,
    ImageWriter,
    compress_image,
    fill_header,
    make_palette,
    paint_mask,
    unusable_frame,
)
from jetson_dnn_rt.results import Detections


def make_message(encoding="bgr8", height=4, width=6, padding=0):
    pixel = {"bgr8": 3, "rgb8": 3, "bgra8": 4, "rgba8": 4, "8UC3": 3, "yuyv": 2}
    message = Image(height=height, width=width, encoding=encoding)
    message.step = width * pixel.get(encoding, 2 if "422" in encoding else 1) + padding
    rows = height * 3 // 2 if encoding.startswith("nv") else height
    message.data = array.array("B", (i % 251 for i in range(message.step * rows)))
    message.header.stamp.sec, message.header.stamp.nanosec = 12, 34
    message.header.frame_id = "front"
    return message


def frame_of(message):
    return view_image(message, 0)


@pytest.mark.parametrize(
    "encoding", ["bgr8", "rgb8", "bgra8", "rgba8", "mono8", "nv12", "nv21", "yuyv", "bayer_gbrg8"]
)
@pytest.mark.parametrize("padding", [0, 5])
def test_view_shows_the_pixels_and_copies_nothing(encoding, padding):
    message = make_message(encoding, padding=padding)
    frame = view_image(message, 7)
    raw = np.asarray(message.data, np.uint8).reshape(-1, message.step)
    assert (frame.height, frame.width, frame.copied_bytes) == (4, 6, 0)
    expected = raw[:, : message.step - padding].reshape(frame.image.shape)
    np.testing.assert_array_equal(frame.image, expected)
    assert np.shares_memory(frame.image, np.frombuffer(message.data, np.uint8))
    assert (frame.encoding, frame.sequence, frame.frame_id) == (encoding, 7, "front")
    assert frame.stamp_ns == 12_000_000_034
    with pytest.raises(ValueError, match="read-only"):
        frame.image[0, 0] = 0


@pytest.mark.parametrize(
    ("other", "encoding"), [("8UC3", "bgr8"), ("yuv422", "uyvy"), ("yuv422_yuy2", "yuyv")]
)
def test_other_names_of_encodings_are_known(other, encoding):
    assert frame_of(make_message(other)).encoding == encoding


@pytest.mark.parametrize(
    ("encoding", "height", "width", "text"),
    [
        ("nv12", 3, 6, "nv12: the height must be even: 6x3 pixels"),
        ("nv12", 4, 5, "the width must be even"),
        ("yuv422", 3, 5, "yuv422: the width must be even: 5x3 pixels"),
        ("bayer_rggb8", 5, 6, "the height must be even"),
        ("mono8", 1, 40000, "sides must be in"),
    ],
)
def test_sides_that_the_encoding_does_not_allow(encoding, height, width, text):
    with pytest.raises(BadImageError, match=text) as caught:
        frame_of(make_message(encoding, height, width))
    assert caught.value.reason == "size"


@pytest.mark.parametrize(
    ("changes", "reason", "text"),
    [
        ({"encoding": "mono16"}, "encoding", "encoding 'mono16' is not one of"),
        ({"encoding": ""}, "encoding", "encoding ''"),
        ({"encoding": "32FC1"}, "encoding", "encoding '32FC1'"),
        ({"height": 0}, "size", "6x0 pixels has no pixel"),
        ({"width": 0}, "size", "0x4 pixels has no pixel"),
        ({"width": 16384, "height": 16384}, "size", "16384x16384 pixels are more than"),
        ({"width": 2**32 - 1, "height": 2**32 - 1}, "size", "are more than"),
        ({"step": 17}, "step", "step 17 is shorter than a row of 6 pixels of 3 bytes"),
        ({"step": 0}, "step", "step 0"),
        ({"step": 2**32 - 1}, "step", "step 4294967295 is far longer than a row of 6 pixels"),
        ({"step": 4000}, "truncated", "72 bytes of data, 4 rows of 4000 bytes expected"),
        ({"data": array.array("B", bytes(71))}, "truncated", "71 bytes of data, 4 rows of 18"),
        ({"data": array.array("B")}, "truncated", "0 bytes of data"),
        ({"height": 5}, "truncated", "72 bytes of data, 5 rows of 18 bytes expected"),
        # Without its colours.
        ({"encoding": "nv12", "step": 18}, "truncated", "72 bytes of data, 6 rows of 18 bytes"),
    ],
)
def test_a_malformed_message_has_its_own_reason(changes, reason, text):
    message = make_message()
    for name, value in changes.items():
        setattr(message, name, value)
    with pytest.raises(BadImageError, match=text) as caught:
        frame_of(message)
    assert caught.value.reason == reason


def compress(suffix):
    image = np.arange(64 * 48 * 3, dtype=np.uint32).astype(np.uint8).reshape(48, 64, 3)
    return CompressedImage(format=suffix, data=cv2.imencode(suffix, image)[1].tobytes())


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_compressed_images_are_decoded(suffix):
    message = compress(suffix)
    frame = decode_image(message, 3)
    data = np.frombuffer(bytes(message.data), np.uint8)
    np.testing.assert_array_equal(frame.image, cv2.imdecode(data, cv2.IMREAD_COLOR))
    assert (frame.encoding, frame.sequence) == ("bgr8", 3)


def bomb(height, width):
    """Build a PNG header that promises far more pixels than follow."""
    start = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
    return start + width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes(100)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "format"),
        (b"GIF89a" + bytes(100), "format"),
        (bomb(60_000, 60_000), "size"),
        (bomb(0, 10), "size"),
        (bomb(10, 10), "truncated"),
        (b"\xff\xd8\xff", "truncated"),
        (b"\xff\xd8" + b"\xff\xe0\x00\x04ab" * 3, "truncated"),
        (bytes(compress(".png").data)[:60], "truncated"),
    ],
)
def test_a_malformed_compressed_image_has_its_own_reason(data, reason):
    with pytest.raises(BadImageError) as caught:
        decode_image(CompressedImage(data=data), 0)
    assert caught.value.reason == reason


def make_heavy(reason):
    """A message of 1 MB with up to ten pixels, that is refused for this reason."""
    message = Image()
    for name, value in hostile.heavy_fields(1)[reason].items():
        if name == "frame_id":
            message.header.frame_id = value
        elif name not in ("sec", "nanosec"):
            setattr(message, name, array.array("B", value) if name == "data" else value)
    return message


@pytest.mark.parametrize("reason", ["length", "step", "frame_id"])
def test_a_message_far_larger_than_its_picture_is_refused(reason):
    """EDGES 9: each of 60 such messages of 10 MB waited for the observers, counted as a pixel."""
    message = make_heavy(reason)
    with pytest.raises(BadImageError) as caught:
        view_image(message, 0)
    assert (caught.value.reason, len(str(caught.value)) < 100) == (reason, True)
    message.header.stamp.sec, message.header.stamp.nanosec = 12, 34
    frame = unusable_frame(message.header, 9)
    assert (frame.kept_bytes, frame.owner) == (0, None)
    assert (frame.sequence, frame.stamp_ns, frame.image.size) == (9, 12_000_000_034, 0)
    assert frame.frame_id == message.header.frame_id[: 0 if reason == "frame_id" else None]


@pytest.mark.parametrize("encoding", ["bgr8", "mono8", "nv12"])
def test_rows_and_data_may_be_padded_as_drivers_do(encoding):
    """EDGES 9: rows aligned to a page, and the height of a video to whole macroblocks."""
    message = make_message(encoding, height=8, width=6, padding=4000)
    message.data.extend(bytes(15 * message.step))
    frame = view_image(message, 0)
    assert frame.kept_bytes == len(message.data)
    assert (frame.height, frame.width) == (8, 6)


def test_the_name_of_a_frame_has_an_end_in_compressed_images_too():
    """EDGES 9: it is refused before the picture is decoded."""
    message = compress(".png")
    message.header.frame_id = "x" * MAX_FRAME_ID
    assert decode_image(message, 0).frame_id == "x" * MAX_FRAME_ID
    message.header.frame_id += "x"
    message.data = array.array("B")
    with pytest.raises(BadImageError) as caught:
        decode_image(message, 0)
    assert caught.value.reason == "frame_id"


def test_boxes_do_not_multiply_the_name_of_a_frame():
    """EDGES 9: 100 boxes with a name of 10 MB each were a message of 1 GB."""
    message = make_message()
    message.header.frame_id = "x" * MAX_FRAME_ID
    found = Detections(np.ones((100, 4), np.float32), np.ones(100, np.float32), np.zeros(100, int))
    written = serialize_message(DetectionsWriter().write(found, frame_of(message)))
    assert len(written) < 200_000
    message.header.frame_id *= 40_000
    with pytest.raises(BadImageError, match="frame_id of 10240000 characters"):
        frame_of(message)


@pytest.mark.parametrize(
    "stamp_ns", [0, 34, 12_000_000_034, -5, (2**31 - 1) * 10**9 + 999_999_999]
)
def test_stamps_come_out_as_they_went_in(stamp_ns):
    header = Image().header
    frame = Frame(np.zeros((1, 1), np.uint8), "mono8", stamp_ns, 0, "x")
    fill_header(header, frame)
    assert header.stamp.sec * 10**9 + header.stamp.nanosec == stamp_ns
    assert header.frame_id == "x"


def test_detections_are_written_in_source_pixels_best_first():
    frame = frame_of(make_message())
    writer = DetectionsWriter()
    boxes = np.array([[10, 20, 30, 60], [0, 0, 4, 2]], np.float32)
    found = Detections(boxes, np.array([0.75, 0.5], np.float32), np.array([2, 0]))
    message = writer.write(found, frame)
    assert message.header == make_message().header
    first, second = message.detections
    assert first.header == message.header
    center = first.bbox.center.position
    assert (center.x, center.y, first.bbox.size_x, first.bbox.size_y) == (20.0, 40.0, 20.0, 40.0)
    assert first.results[0].hypothesis.class_id == "2"
    assert first.results[0].hypothesis.score == 0.75
    assert second.results[0].hypothesis.class_id == "0"
    # Written anew, not appended.
    assert len(writer.write(Detections.empty(), frame).detections) == 0
    assert len(writer.write(found, frame).detections) == 2


def test_detections_name_their_classes_where_asked_to():
    frame = frame_of(make_message())
    boxes = np.array([[10, 20, 30, 60], [0, 0, 4, 2]], np.float32)
    found = Detections(boxes, np.array([0.75, 0.5], np.float32), np.array([1, 2]))
    message = DetectionsWriter(("cat", "dog")).write(found, frame)
    # The last class has no name.
    assert [one.results[0].hypothesis.class_id for one in message.detections] == ["dog", "2"]


def test_turned_boxes_and_tracks_leave_nothing_behind_in_the_message():
    frame = frame_of(make_message())
    writer = DetectionsWriter()
    boxes = np.array([[10, 20, 30, 60], [0, 0, 4, 2]], np.float32)
    plain = Detections(boxes, np.array([0.75, 0.5], np.float32), np.array([2, 0]))
    rotated = np.array([[20, 40, 44, 10, 1.25], [2, 1, 4, 2, -0.5]], np.float32)
    full = replace(plain, rotated=rotated, track_ids=np.array([12, -1]))
    first, second = writer.write(full, frame).detections
    center = first.bbox.center
    assert (center.position.x, center.position.y, center.theta) == (20.0, 40.0, 1.25)
    assert (first.bbox.size_x, first.bbox.size_y, first.id) == (44.0, 10.0, "12")
    assert (second.bbox.center.theta, second.id) == (-0.5, "")
    first, _ = writer.write(plain, frame).detections
    assert (first.bbox.size_x, first.bbox.center.theta, first.id) == (20.0, 0.0, "")


def test_instance_masks_take_two_bytes_a_pixel():
    writer = ImageWriter("mono16")
    mask = np.arange(0, 2400, 100, dtype=np.uint16).reshape(4, 6)
    message = writer.write(mask, frame_of(make_message()))
    assert (message.height, message.width, message.step, message.encoding) == (4, 6, 12, "mono16")
    assert bytes(message.data) == mask.astype("<u2").tobytes()
    assert message.is_bigendian == 0


def test_images_are_written_into_one_message():
    frame = frame_of(make_message())
    writer = ImageWriter("mono8")
    mask = np.arange(24, dtype=np.uint8).reshape(4, 6)
    message = writer.write(mask, frame)
    assert (message.height, message.width, message.step, message.encoding) == (4, 6, 6, "mono8")
    assert bytes(message.data) == mask.tobytes()
    data = message.data
    assert writer.write(mask + 1, frame).data is data
    assert bytes(data) == (mask + 1).tobytes()
    assert writer.write(mask[:2, :3], frame).step == 3


def test_a_picture_that_fills_a_buffer_of_a_camera_is_not_copied():
    pool, writer = FramePool((4, 6, 3), size=1), ImageWriter("bgr8")
    loan = pool.borrow()
    loan.buffer[:] = np.arange(72, dtype=np.uint8).reshape(4, 6, 3)
    message = writer.write(loan.buffer, frame_of(make_message()))
    assert np.shares_memory(np.frombuffer(message.data, np.uint8), loan.buffer)
    assert (message.height, message.width, message.step) == (4, 6, 18)
    assert message.header == make_message().header
    sent = deserialize_message(serialize_message(message), type(message))
    # What is smaller than the buffer, or another's, is copied, and not into that buffer.
    part = pool.borrow((2, 3, 3)).buffer
    for image in (part, np.ones((4, 6, 3), np.uint8), loan.buffer[::-1]):
        message = writer.write(image, frame_of(make_message()))
        assert not np.shares_memory(np.frombuffer(message.data, np.uint8), loan.buffer)
        assert bytes(message.data) == image.tobytes()
    again = serialize_message(writer.write(loan.buffer, frame_of(make_message())))
    assert deserialize_message(again, type(message)) == sent


def test_colours_of_a_mask_are_those_of_its_classes():
    palette = make_palette()
    # Pascal VOC: background black, aeroplane, bicycle, person.
    expected = [[0, 0, 0], [128, 0, 0], [0, 128, 0], [192, 128, 128]]
    assert palette[[0, 1, 2, 15]].tolist() == expected
    assert len(np.unique(palette, axis=0)) == 256
    mask = np.array([[0, 15], [255, 1]], np.uint8)
    out = np.zeros((2, 2, 3), np.uint8)
    paint_mask(mask, palette, out)
    np.testing.assert_array_equal(out, palette[mask])


def test_a_compressed_image_is_the_picture_again():
    bgr = np.zeros((8, 12, 3), np.uint8)
    bgr[..., 2] = 200  # red
    frame = Frame(bgr, "bgr8", 5_000_000_007, 0, "camera")
    message = compress_image(bgr, frame, "rgb8", "png")
    assert message.format == "rgb8; png compressed bgr8"
    assert (message.header.stamp.sec, message.header.stamp.nanosec) == (5, 7)
    found = decode_image(message, 3).image
    np.testing.assert_array_equal(found, bgr)
