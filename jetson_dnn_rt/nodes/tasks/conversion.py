# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Results to messages, made once and filled through views of their data.

Assigning an array to ``Image.data`` would be checked element by element (95 ms for one VGA image,
against 0.02 ms). The way from images to frames is `jetson_dnn_rt.cameras.image_messages`.
"""

from __future__ import annotations

import array
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.image_messages import MAX_FRAME_ID, stamp_to_ns
from jetson_dnn_rt.frames import Frame, Image, find_owner
from jetson_dnn_rt.results import Classification, Detections

if TYPE_CHECKING:
    from builtin_interfaces.msg import Time
    from sensor_msgs.msg import CompressedImage, PointCloud2
    from sensor_msgs.msg import Image as ImageMessage
    from std_msgs.msg import Header
    from vision_msgs.msg import Classification as ClassificationMessage
    from vision_msgs.msg import Detection2DArray

_BIG_ENDIAN = sys.byteorder == "big"

_FORMS: dict[str, tuple[type[np.generic], int]] = {
    "mono8": (np.uint8, 1),
    "mono16": (np.uint16, 1),
    "bgr8": (np.uint8, 3),
    "rgb8": (np.uint8, 3),
}
"""Type and channels of the pixels of images that are published, by their encoding."""

POINT_FIELDS = ("x", "y", "score")
"""Of a keypoint, float32 each."""


def fill_header(header: Header, frame: Frame) -> None:
    """Write the frame's stamp and coordinate frame: both are passed on unchanged."""
    fill_stamp(header.stamp, frame)
    header.frame_id = frame.frame_id


def fill_stamp(stamp: Time, frame: Frame) -> None:
    """Write the frame's stamp."""
    stamp.sec, stamp.nanosec = divmod(frame.stamp_ns, 1_000_000_000)


def unusable_frame(header: Header, sequence: int, doubt: str = "") -> Frame:
    """A frame in place of a message that is not an image: it is counted, not processed."""
    empty: Image = np.zeros((0, 0), np.uint8)
    # A shortened name would be another coordinate frame; a long one would live as long as the
    # record.
    frame_id = header.frame_id if len(header.frame_id) <= MAX_FRAME_ID else ""
    return Frame(empty, "", stamp_to_ns(header), sequence, frame_id, doubt=doubt)


def name_class(class_id: int, names: Sequence[str]) -> str:
    """Text of a class in a message: its name, its number where there is none."""
    return names[class_id] if class_id < len(names) else str(class_id)


class DetectionsWriter:
    """Fills one reused `Detection2DArray`; publishing serializes it before the next call.

    `names` are what ``class_id`` says in place of the numbers of the classes.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        from vision_msgs.msg import Detection2D, Detection2DArray, ObjectHypothesisWithPose

        self._names = names
        self._make_detection = Detection2D
        self._make_hypothesis = ObjectHypothesisWithPose
        self.message: Detection2DArray = Detection2DArray()
        self._pool: list = []

    def write(self, detections: Detections, frame: Frame) -> Detection2DArray:
        """Write boxes in pixels of the source image; an empty array is a result too.

        The box is the turned one where the network gives it.
        """
        fill_header(self.message.header, frame)
        count = len(detections)
        while len(self._pool) < count:
            item = self._make_detection()
            item.results.append(self._make_hypothesis())
            self._pool.append(item)
        if detections.rotated is None:
            boxes = [
                ((x1 + x2) / 2.0, (y1 + y2) / 2.0, x2 - x1, y2 - y1, 0.0)
                for x1, y1, x2, y2 in detections.boxes.tolist()
            ]
        else:
            boxes = detections.rotated.tolist()
        tracks = [-1] * count if detections.track_ids is None else detections.track_ids.tolist()
        for item, (x, y, width, height, angle), track, score, class_id in zip(
            self._pool,
            boxes,
            tracks,
            detections.scores.tolist(),
            detections.class_ids.tolist(),
            strict=False,  # the pool may hold more
        ):
            fill_header(item.header, frame)
            item.id = "" if track < 0 else str(track)
            box = item.bbox
            box.center.position.x, box.center.position.y, box.center.theta = x, y, angle
            box.size_x, box.size_y = width, height
            hypothesis = item.results[0].hypothesis
            hypothesis.class_id, hypothesis.score = name_class(class_id, self._names), score
        self.message.detections = self._pool[:count]
        return self.message


class ClassificationWriter:
    """Fills one reused `Classification`, as `DetectionsWriter` does."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        from vision_msgs.msg import Classification as ClassificationMessage
        from vision_msgs.msg import ObjectHypothesis

        self._names = names
        self._make_hypothesis = ObjectHypothesis
        self.message: ClassificationMessage = ClassificationMessage()

    def write(self, result: Classification, frame: Frame) -> ClassificationMessage:
        """Write the classes, best first."""
        fill_header(self.message.header, frame)
        self.message.results = [
            self._make_hypothesis(class_id=name_class(class_id, self._names), score=score)
            for class_id, score in zip(
                result.class_ids.tolist(), result.scores.tolist(), strict=True
            )
        ]
        return self.message


class KeypointsWriter:
    """Fills one reused `PointCloud2`: row k holds the keypoints of the k-th object."""

    def __init__(self) -> None:
        from sensor_msgs.msg import PointCloud2, PointField

        self.message: PointCloud2 = PointCloud2(
            fields=[
                PointField(name=name, offset=4 * i, datatype=PointField.FLOAT32, count=1)
                for i, name in enumerate(POINT_FIELDS)
            ],
            is_bigendian=_BIG_ENDIAN,
            point_step=4 * len(POINT_FIELDS),
            is_dense=True,
        )

    def write(self, keypoints: npt.NDArray[np.float32], frame: Frame) -> PointCloud2:
        """Write the keypoints of all objects, [N, K, 3]; no object is a result too."""
        message = self.message
        fill_header(message.header, frame)
        message.height, message.width = keypoints.shape[:2]
        message.row_step = message.width * message.point_step
        message.data = array.array("B", keypoints.astype(np.float32, copy=False).tobytes())
        return message


class ImageWriter:
    """Fills one reused `Image` message, through a view of its data where it has to copy.

    Parameters
    ----------
    encoding : str
        Of the images to be written: ``mono8``, ``mono16``, ``bgr8`` or ``rgb8``.
    """

    def __init__(self, encoding: str) -> None:
        from jetson_dnn_rt.nodes.process.distribution import make_image

        self._dtype, self._channels = _FORMS[encoding]
        self.message: ImageMessage = make_image(encoding)
        self.message.is_bigendian = int(_BIG_ENDIAN)
        self._data = array.array("B")
        self._view: npt.NDArray[Any] = np.zeros((0, 0), self._dtype)

    def prepare(self, height: int, width: int, frame: Frame) -> npt.NDArray[Any]:
        """Write the header and return the pixels to be filled, [H, W] or [H, W, C]."""
        shape = (height, width) if self._channels == 1 else (height, width, self._channels)
        if self._view.shape != shape:
            self._data = array.array("B", bytes(math.prod(shape) * self._view.itemsize))
            self._view = np.frombuffer(self._data, self._dtype).reshape(shape)
        self._describe(height, width, self._data, frame)
        return self._view

    def write(self, image: npt.NDArray[Any], frame: Frame) -> ImageMessage:
        """Put an image into the message.

        It is not copied where it fills an `array.array`, as in a camera's buffers: 0.2 ms for a
        VGA image. The message must be published before the image changes.
        """
        height, width = image.shape[:2]
        data = find_owner(image)
        if (
            isinstance(data, array.array)
            and data.typecode == "B"
            and image.dtype == self._dtype
            and image.flags.c_contiguous
            and len(data) == image.nbytes
        ):
            self._describe(height, width, data, frame)
        else:
            self.prepare(height, width, frame)[:] = image
        return self.message

    def _describe(self, height: int, width: int, data: array.array[int], frame: Frame) -> None:
        message = self.message
        message.height, message.width = height, width
        message.step = width * self._channels * self._view.itemsize
        message.data = data
        fill_header(message.header, frame)


def compress_image(
    image: npt.NDArray[Any], frame: Frame, encoding: str, kind: str, options: Sequence[int] = ()
) -> CompressedImage:
    """Make the message that image_transport expects on ``<topic>/compressed``.

    `image` is grey or BGR, `encoding` that of the raw topic, `kind` ``jpeg`` or ``png``, `options`
    those of ``cv2.imencode``. cv2.error when the picture cannot be encoded.
    """
    from sensor_msgs.msg import CompressedImage

    _, data = cv2.imencode(f".{kind}", image, options)
    target = "bgr8" if image.ndim == 3 else ""
    message = CompressedImage(format=f"{encoding}; {kind} compressed {target}")
    fill_header(message.header, frame)
    # Humble checks each byte of `bytes`, twice.
    message.data = array.array("B", data.tobytes())
    return message


def make_palette() -> npt.NDArray[np.uint8]:
    """Colours of 256 classes, uint8 [256, 3] RGB; class 0 is black (Pascal VOC's colour map)."""
    palette = np.zeros((256, 3), np.uint8)
    indices = np.arange(256)
    for bit in range(8):
        for channel in range(3):
            palette[:, channel] |= (((indices >> channel) & 1) << (7 - bit)).astype(np.uint8)
        indices >>= 3
    return palette


def paint_mask(mask: Image, palette: npt.NDArray[np.uint8], out: Image) -> None:
    """Write the colour of every pixel's class, [H, W] to [H, W, 3]."""
    # Every index of a uint8 mask is in the palette; "clip" only spares numpy a buffered copy.
    np.take(palette, mask, axis=0, out=out, mode="clip")
