"""Messages to frames and results to messages, without copying pixels where a view will do.

Reading: the image is a view of the message's own buffer (1 us). Writing: messages are made once
and filled through views of their data; assigning an array to ``Image.data`` would be checked
element by element (95 ms for one VGA image, against 0.02 ms).
"""

from __future__ import annotations

import array
import struct
from typing import TYPE_CHECKING

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import FrameError
from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.models.preprocessing import ENCODINGS
from jetson_dnn_rt.results import Detections

if TYPE_CHECKING:
    from sensor_msgs.msg import CompressedImage as CompressedImageMessage
    from sensor_msgs.msg import Image as ImageMessage
    from std_msgs.msg import Header
    from vision_msgs.msg import Detection2DArray

MAX_PIXELS = 1 << 26
"""64 megapixels: more is refused before anything is looked at or allocated."""

CHANNELS = {name: channels for name, (channels, _) in ENCODINGS.items()} | {
    "8UC1": 1,
    "8UC3": 3,
    "8UC4": 4,
}
"""Channels of the encodings that are read."""

_SAME_AS = {"8UC1": "mono8", "8UC3": "bgr8", "8UC4": "bgra8"}


class BadImageError(FrameError):
    """A message that is no image.

    Parameters
    ----------
    reason : str
        One word for the counts: ``encoding``, ``size``, ``step``, ``truncated``, ``format``.
    text : str
        What is wrong, with the figures.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def stamp_to_ns(header: Header) -> int:
    """Nanoseconds of a header's stamp."""
    return int(header.stamp.sec) * 1_000_000_000 + int(header.stamp.nanosec)


def fill_header(header: Header, frame: Frame) -> None:
    """Write the frame's stamp and coordinate frame: what came in goes out unchanged."""
    header.stamp.sec, header.stamp.nanosec = divmod(frame.stamp_ns, 1_000_000_000)
    header.frame_id = frame.frame_id


def view_image(message: ImageMessage, sequence: int) -> Frame:
    """View an image message as a frame; nothing is copied, padded rows stay where they are.

    Parameters
    ----------
    message : sensor_msgs.msg.Image
        Stays alive as long as the frame does, and must not be written to.
    sequence : int
        Number of the frame in its stream.

    Raises
    ------
    BadImageError
        When encoding, size, step or length of the data are wrong.
    """
    height, width, step = message.height, message.width, message.step
    _check_size(height, width)
    channels = CHANNELS.get(message.encoding)
    if channels is None:
        raise BadImageError(
            "encoding",
            f"encoding {message.encoding!r} is not one of {', '.join(sorted(CHANNELS))}",
        )
    if step < width * channels:
        raise BadImageError(
            "step",
            f"step {step} is shorter than a row of {width} pixels of {channels} bytes",
        )
    data = message.data
    if len(data) < step * height:
        raise BadImageError(
            "truncated", f"{len(data)} bytes of data, {height} rows of {step} bytes expected"
        )
    shape: tuple[int, ...] = (height, width)
    strides: tuple[int, ...] = (step, channels)
    if channels > 1:
        shape, strides = (*shape, channels), (*strides, 1)
    image: Image = np.ndarray(shape, np.uint8, buffer=data, strides=strides)
    image.flags.writeable = False
    return Frame(
        image=image,
        encoding=_SAME_AS.get(message.encoding, message.encoding),
        stamp_ns=stamp_to_ns(message.header),
        sequence=sequence,
        frame_id=message.header.frame_id,
        owner=message,
    )


def decode_image(message: CompressedImageMessage, sequence: int) -> Frame:
    """Decode a JPEG or PNG message into a frame.

    Raises
    ------
    BadImageError
        When it is neither, too large, or damaged. The size is read from the file's header before
        anything is allocated.
    """
    data = np.frombuffer(message.data, np.uint8)
    _check_size(*_encoded_size(data))
    image = cv2.imdecode(data, cv2.IMREAD_COLOR)
    if image is None:
        raise BadImageError("truncated", f"{len(data)} bytes of compressed image are damaged")
    return Frame(
        image=image,
        encoding="bgr8",
        stamp_ns=stamp_to_ns(message.header),
        sequence=sequence,
        frame_id=message.header.frame_id,
        owner=image,
    )


def unusable_frame(header: Header, sequence: int) -> Frame:
    """Stand for a message that is no image: it is counted, not looked at."""
    empty: Image = np.zeros((0, 0), np.uint8)
    return Frame(empty, "", stamp_to_ns(header), sequence, header.frame_id)


class DetectionsWriter:
    """Fills one reused `Detection2DArray`; publishing serializes it before the next call."""

    def __init__(self) -> None:
        from vision_msgs.msg import Detection2D, Detection2DArray, ObjectHypothesisWithPose

        self._make_detection = Detection2D
        self._make_hypothesis = ObjectHypothesisWithPose
        self.message: Detection2DArray = Detection2DArray()
        self._pool: list = []

    def write(self, detections: Detections, frame: Frame) -> Detection2DArray:
        """Write boxes in pixels of the source image; an empty array is a result too."""
        fill_header(self.message.header, frame)
        count = len(detections)
        while len(self._pool) < count:
            item = self._make_detection()
            item.results.append(self._make_hypothesis())
            self._pool.append(item)
        corners = detections.boxes.tolist()
        for item, (x1, y1, x2, y2), score, class_id in zip(
            self._pool,
            corners,
            detections.scores.tolist(),
            detections.class_ids.tolist(),
            strict=False,  # the pool may hold more
        ):
            fill_header(item.header, frame)
            box = item.bbox
            box.center.position.x, box.center.position.y = (x1 + x2) / 2.0, (y1 + y2) / 2.0
            box.size_x, box.size_y = x2 - x1, y2 - y1
            hypothesis = item.results[0].hypothesis
            hypothesis.class_id, hypothesis.score = str(class_id), score
        self.message.detections = self._pool[:count]
        return self.message


class ImageWriter:
    """Fills one reused `Image` message through a view of its data.

    Parameters
    ----------
    encoding : str
        Of the images to be written.
    """

    def __init__(self, encoding: str) -> None:
        from sensor_msgs.msg import Image as ImageMessage

        self._channels = CHANNELS[encoding]
        self.message: ImageMessage = ImageMessage(encoding=encoding)
        self._view: Image = np.zeros((0, 0), np.uint8)

    def prepare(self, height: int, width: int, frame: Frame) -> Image:
        """Write the header and return the pixels to be filled, [H, W] or [H, W, C]."""
        shape = (height, width) if self._channels == 1 else (height, width, self._channels)
        if self._view.shape != shape:
            message = self.message
            message.height, message.width = height, width
            message.step = width * self._channels
            message.data = array.array("B", bytes(height * message.step))
            self._view = np.frombuffer(message.data, np.uint8).reshape(shape)
        fill_header(self.message.header, frame)
        return self._view

    def write(self, image: Image, frame: Frame) -> ImageMessage:
        """Copy an image into the message."""
        self.prepare(image.shape[0], image.shape[1], frame)[:] = image
        return self.message


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


def _check_size(height: int, width: int) -> None:
    if height < 1 or width < 1:
        raise BadImageError("size", f"an image of {width}x{height} pixels has no pixel")
    if height * width > MAX_PIXELS:
        raise BadImageError(
            "size", f"{width}x{height} pixels are more than the {MAX_PIXELS} accepted"
        )


def _encoded_size(data: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Height and width in the header of a PNG or JPEG file."""
    head = data[:24].tobytes()
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) == 24:
        width, height = struct.unpack(">II", head[16:24])
        return height, width
    if head.startswith(b"\xff\xd8"):
        return _jpeg_size(data)
    raise BadImageError("format", f"compressed image of {len(data)} bytes is no JPEG and no PNG")


def _jpeg_size(data: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Follow the segments of a JPEG file to its start-of-frame marker."""
    position = 2
    while position + 9 <= len(data):
        if data[position] != 0xFF:
            break
        marker = int(data[position + 1])
        if marker == 0xFF:  # padding
            position += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[position + 5 : position + 9].tobytes())
            return height, width
        elif marker == 0x01 or 0xD0 <= marker <= 0xD7:  # no length
            position += 2
        else:
            position += 2 + int(data[position + 2]) * 256 + int(data[position + 3])
    raise BadImageError("truncated", f"JPEG of {len(data)} bytes ends before its size is said")
