# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The input pass: a camera frame written into the network's input buffer in one pass.

The source is read once, by `cv2.resize`, on views of the message's bytes; its colours are split
into planes, and each is converted straight into its plane of the input. Measured on
960x540 -> 416x416 (one x86 thread): resize 220 us, `cv2.split` 7 us, conversion of three planes
36 us plain and 57 us scaled; `cv2.LUT` takes 101 us, `cv2.dnn.blobFromImage` 1300 us.

Colour conversion (matrix of YUV, green of a Bayer block) is done after the resize,
at the small size, where it costs a tenth. Measured from 1280x720 to 416x234: NV12 resize
99 + 117 us, split, merge and matrix 105 us; `cv2.cvtColor` of the whole picture alone takes
620 us, and a resize of its three channels 380 us comes after it.

Bayer: the four samples of a block of 2x2 are resized as if they lay in its centre. Red and blue
lie half a pixel from there in each direction, which is 0.5 / 3.07 pixels of the example above; a
step along the slope brings them back. On dashcam frames that is 43.5 dB (PSNR) to the picture with
all colours against 40.9 dB without the step; bilinear interpolation of the missing colours at full
size reaches 47.4 dB and takes 810 us instead of 550.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np

from jetson_dnn_rt.frames import Frame, Image
from jetson_dnn_rt.models.input.encodings import YUV_TO_BGR, Encoding, check_frame
from jetson_dnn_rt.models.input.plans import Plans
from jetson_dnn_rt.models.input.preprocessing import Floats, Geometry, Preprocessing

_BAND_BYTES = 1 << 15
"""Bytes of one channel: both, and the rows they come from, fit into the L2 cache of any core."""


class Preprocessor:
    """Writes frames into one input buffer, C-contiguous float32 [1, 3, height, width].

    Nothing is allocated per frame: scratch and planes are made for each size and encoding of the
    source, and kept for the last of them. The padding is written when the place of the picture
    changes, so that nothing stays of a picture that was larger.

    Attributes
    ----------
    written_bytes : int
        Written into the input buffer for the last frame, without the padding.
    scratch_bytes : int
        Written elsewhere for it, all of the resized size: channels before they are converted.
    """

    def __init__(self, preprocessing: Preprocessing, destination: Floats) -> None:
        shape = (1, 3, preprocessing.height, preprocessing.width)
        if destination.shape != shape or destination.dtype != np.float32:
            raise ValueError(
                f"destination must be float32 {shape}: {destination.dtype} {destination.shape}"
            )
        if not destination.flags.c_contiguous:
            raise ValueError("destination must be C-contiguous")
        self._preprocessing = preprocessing
        self._destination = destination
        self._factors = preprocessing.factors
        self._offsets = preprocessing.offsets
        self._scaled = bool(np.any(self._factors != 1.0))
        self._shifted = bool(np.any(self._offsets != 0.0))
        # All properties that are checked: frames that agree with the last one in them are not
        # checked.
        self._prepared_for: tuple[object, ...] | None = None
        self._plans: Plans[_Plan] = Plans()
        self._padded_around: tuple[slice, slice] | None = None
        self._reader: PlaneReader
        self.written_bytes = 0
        self.scratch_bytes = 0

    @property
    def planned(self) -> int:
        """Plans made so far: once for each size and encoding, while few of them alternate."""
        return self._plans.made

    def repad(self) -> None:
        """Write the padding with the next frame: something else wrote into the input buffer."""
        self._prepared_for = self._padded_around = None

    def write(self, frame: Frame) -> Geometry:
        """Fill the input buffer from `frame`; a `FrameError` leaves it as it was."""
        image = frame.image
        key = (image.shape, image.strides, image.dtype, frame.encoding)
        if key != self._prepared_for:
            self._prepare(self._plans.find(key, lambda: self._plan(frame)))
            self._prepared_for = key
        pixels = self._reader.read(image)
        for plane, source, factor, offset in zip(
            self._planes, pixels, self._factors, self._offsets, strict=True
        ):
            np.copyto(plane, source)
            if self._scaled:
                np.multiply(plane, factor, out=plane)
            if self._shifted:
                np.add(plane, offset, out=plane)
        return self._geometry

    def _plan(self, frame: Frame) -> _Plan:
        encoding = check_frame(frame)
        geometry = Geometry.of(self._preprocessing, frame.height, frame.width)
        rows, columns = geometry.resized_height, geometry.resized_width
        top, left = geometry.offset_y, geometry.offset_x
        return _Plan(
            geometry,
            make_reader(encoding, geometry, self._preprocessing.color),
            (slice(top, top + rows), slice(left, left + columns)),
        )

    def _prepare(self, plan: _Plan) -> None:
        rows, columns = plan.place
        self._reader, self._geometry = plan.reader, plan.geometry
        self._planes = [self._destination[0, c, rows, columns] for c in range(3)]
        if plan.place != self._padded_around:
            padding = self._factors * np.float32(self._preprocessing.pad_value) + self._offsets
            whole = self._destination[0]
            for bar in (
                whole[:, : rows.start],
                whole[:, rows.stop :],
                whole[:, rows, : columns.start],
                whole[:, rows, columns.stop :],
            ):
                bar[:] = padding[:, None, None]
            self._padded_around = plan.place
        self.written_bytes = sum(plane.nbytes for plane in self._planes)
        self.scratch_bytes = plan.reader.scratch_bytes


@dataclass(frozen=True, eq=False)
class _Plan:
    """The way of pictures of one size and encoding into the input."""

    geometry: Geometry
    reader: PlaneReader
    place: tuple[slice, slice]  # rows and columns of the input that the picture fills


class PlaneReader(Protocol):
    """Reads pictures of one size and encoding; results are valid until the next call."""

    scratch_bytes: int  # written for each picture into the reader's own memory

    def read(self, image: Image) -> Sequence[Image]:
        """Three planes of the resized size from a picture that `check_frame` has passed."""


def make_reader(encoding: Encoding, geometry: Geometry, color: str) -> PlaneReader:
    """Make the reader of an encoding; `color` is the order of the planes, ``bgr`` or ``rgb``."""
    readers: dict[str, Callable[[Encoding, Geometry, str], PlaneReader]] = {
        "packed": _PackedReader, "semi_planar": _YuvReader, "paired": _YuvReader,
        "bayer": _BayerReader,
    }  # fmt: skip
    return readers[encoding.layout](encoding, geometry, color)


class _Resizer:
    """Resizes one view of the source, unless its size fits, and splits its channels."""

    def __init__(self, source: tuple[int, int], geometry: Geometry, channels: int) -> None:
        rows, columns = geometry.resized_height, geometry.resized_width
        self._size = (columns, rows)
        self._planes = _make_planes(geometry, channels)
        self._resized: Image | None = None
        self._bands: list[tuple[slice, list[Image], list[Image]]] = []
        self.nbytes = channels * rows * columns if channels > 1 else 0
        if channels == 2 and source == (2 * rows, 2 * columns):
            self._bands = _make_bands(source, self._planes)
        elif source != (rows, columns):
            shape = (rows, columns, channels) if channels > 1 else (rows, columns)
            self._resized = np.empty(shape, np.uint8)
            self.nbytes += self._resized.nbytes

    def read(self, view: Image) -> Sequence[Image]:
        """Planes of a view [H, W] or [H, W, C], overwritten by the next call."""
        if self._bands:
            for band, channels, parts in self._bands:
                cv2.split(view[band], channels)
                for channel, part in zip(channels, parts, strict=True):
                    cv2.resize(channel, part.shape[::-1], dst=part)
            return self._planes
        if self._resized is not None:
            view = cv2.resize(view, self._size, dst=self._resized, interpolation=cv2.INTER_LINEAR)
        if len(self._planes) == 1:
            return (view,)
        planes: Sequence[Image] = cv2.split(view, self._planes)
        return planes


def _make_bands(
    source: tuple[int, int], planes: Sequence[Image]
) -> list[tuple[slice, list[Image], list[Image]]]:
    """Rows of the source that are halved together: scratch for their channels, and destination.

    Half the size of two channels is the one case for which cv2.resize has no vector code: 430 us
    from 640x480, 85 us for its channels one by one. Split in bands they stay in the cache.
    """
    height, width = source
    rows = max(2, (_BAND_BYTES // width) & ~1)
    scratch = [np.empty((min(rows, height), width), np.uint8) for _ in planes]
    bands = []
    for first in range(0, height, rows):
        last = min(height, first + rows)
        channels = [channel[: last - first] for channel in scratch]
        bands.append((slice(first, last), channels, [p[first // 2 : last // 2] for p in planes]))
    return bands


class _PackedReader:
    """Reader of interleaved colours."""

    def __init__(self, encoding: Encoding, geometry: Geometry, color: str) -> None:
        self._grey = encoding.pixel_bytes == 1
        source = (geometry.source_height, geometry.source_width)
        self._resizer = _Resizer(source, geometry, encoding.pixel_bytes)
        self._order = encoding.order if color == "bgr" else encoding.order[::-1]
        self.scratch_bytes = self._resizer.nbytes

    def read(self, image: Image) -> Sequence[Image]:
        planes = self._resizer.read(image[..., 0] if self._grey and image.ndim == 3 else image)
        return [planes[place] for place in self._order]


class _YuvReader:
    """Reader of luma and chroma, resized as two views of the same bytes; the matrix follows.

    Semi-planar: Y of all pixels, and below them pairs of U and V of 2x2 pixels. Paired: pixels of
    two bytes, of which one is Y, and pairs of four bytes, of which two are U and V: every sample
    is used by one of the views, the lines of the cache are visited by both. Bands of rows that
    stay in the cache between the two were tried: 541 us instead of 505 from 1280x720 to 416x234.
    """

    def __init__(self, encoding: Encoding, geometry: Geometry, color: str) -> None:
        rows, columns = geometry.resized_height, geometry.resized_width
        self._matrix = YUV_TO_BGR if color == "bgr" else np.ascontiguousarray(YUV_TO_BGR[::-1])
        self._yuv = np.empty((rows, columns, 3), np.uint8)
        self._colours = np.empty((rows, columns, 3), np.uint8)
        self._planes = _make_planes(geometry, 3)
        height, width = geometry.source_height, geometry.source_width
        self._luma_rows = height
        if encoding.layout == "paired":
            self._chroma_row, self._chroma_shape = 0, (height, width // 2, 4)
            self._luma = _Resizer((height, width), geometry, 2)
            self._luma_at, self._u, self._v = encoding.order
        else:
            self._chroma_row, self._chroma_shape = height, (height // 2, width // 2, 2)
            self._luma = _Resizer((height, width), geometry, 1)
            self._luma_at, (self._u, self._v) = 0, encoding.order
        self._chroma = _Resizer(self._chroma_shape[:2], geometry, self._chroma_shape[2])
        self.scratch_bytes = 3 * self._yuv.nbytes + self._luma.nbytes + self._chroma.nbytes

    def read(self, image: Image) -> Sequence[Image]:
        luma = self._luma.read(image[: self._luma_rows])[self._luma_at]
        chroma = self._chroma.read(image[self._chroma_row :].reshape(self._chroma_shape))
        cv2.merge((luma, chroma[self._u], chroma[self._v]), dst=self._yuv)
        cv2.transform(self._yuv, self._matrix, dst=self._colours)
        planes: Sequence[Image] = cv2.split(self._colours, self._planes)
        return planes


class _BayerReader:
    """Reader of one colour a pixel: the two rows of the blocks as two pictures of two channels."""

    def __init__(self, encoding: Encoding, geometry: Geometry, color: str) -> None:
        blocks = (geometry.source_height // 2, geometry.source_width // 2)
        self._shape = (*blocks, 2)
        self._resizers = [_Resizer(blocks, geometry, 2) for _ in range(2)]
        self._red, self._blue = encoding.order
        self._greens = [place for place in range(4) if place not in encoding.order]
        self._kernels = [_make_shift(place, geometry) for place in encoding.order]
        self._planes = _make_planes(geometry, 3)
        self._reversed = color == "rgb"
        self.scratch_bytes = sum(resizer.nbytes for resizer in self._resizers)
        self.scratch_bytes += sum(plane.nbytes for plane in self._planes)

    def read(self, image: Image) -> Sequence[Image]:
        samples: list[Image] = []
        for row, resizer in enumerate(self._resizers):
            samples += resizer.read(image[row::2].reshape(self._shape))
        blue, green, red = self._planes
        first, second = self._greens
        for place, kernel, out in zip(
            (self._red, self._blue), self._kernels, (red, blue), strict=True
        ):
            cv2.filter2D(samples[place], -1, kernel, dst=out, borderType=cv2.BORDER_REPLICATE)
        cv2.addWeighted(samples[first], 0.5, samples[second], 0.5, 0.0, dst=green)
        return (red, green, blue) if self._reversed else (blue, green, red)


def _make_shift(place: int, geometry: Geometry) -> Floats:
    """Kernel that moves a sample of a block by half a source pixel along the slope, [3, 3]."""
    step_x = 0.5 * geometry.scale_x * (-1.0 if place % 2 else 1.0)
    step_y = 0.5 * geometry.scale_y * (-1.0 if place // 2 else 1.0)
    kernel = np.zeros((3, 3), np.float32)
    kernel[1, 1] = 1.0
    kernel[1, 2], kernel[1, 0] = step_x / 2.0, -step_x / 2.0
    kernel[2, 1], kernel[0, 1] = step_y / 2.0, -step_y / 2.0
    return kernel


def _make_planes(geometry: Geometry, count: int) -> list[Image]:
    shape = (geometry.resized_height, geometry.resized_width)
    return [np.empty(shape, np.uint8) for _ in range(count)]
