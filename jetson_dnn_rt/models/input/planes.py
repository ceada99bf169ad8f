"""From a frame to three planes of the resized size: one reader for every layout of pixels.

The source is read by `cv2.resize` alone, on views of the message's bytes: what the colours of a
pixel need (matrix of YUV, green of a Bayer block) is done afterwards at the small size, where it
costs a tenth. Measured from 1280x720 to 416x234 (one x86 thread): NV12 resize 99 + 117 us, split,
merge and matrix 105 us; `cv2.cvtColor` of the whole picture alone takes 620 us, and a resize of
its three channels 380 us comes after it.

Bayer: the four samples of a block of 2x2 are resized as if they lay in its centre. Red and blue
lie half a pixel from there in each direction, which is 0.5 / 3.07 pixels of the example above; a
step along the slope brings them back. On dashcam frames that is 43.5 dB (PSNR) to the picture with
all colours against 40.9 dB without the step; bilinear interpolation of the missing colours at full
size reaches 47.4 dB and takes 810 us instead of 550.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.frames import Image
from jetson_dnn_rt.models.input.encodings import YUV_TO_BGR, Encoding
from jetson_dnn_rt.models.input.preprocessing import Geometry

_BAND_BYTES = 1 << 15
"""Of one channel: both, and the rows they come from, lie in the second cache of any core."""


class PlaneReader(Protocol):
    """Reads pictures of one size and encoding; what it returns is written over by the next call.

    Attributes
    ----------
    scratch_bytes : int
        Written for each picture into memory of the reader's own, all of it of the resized size.
    """

    scratch_bytes: int

    def read(self, image: Image) -> Sequence[Image]:
        """Resize a picture and part its colours.

        Parameters
        ----------
        image : ndarray of uint8
            As `Encoding.shape` says, checked by `check_frame`.

        Returns
        -------
        three ndarrays of uint8, [h, w]
            In the order asked for.
        """
        ...


def make_reader(encoding: Encoding, geometry: Geometry, color: str) -> PlaneReader:
    """Make the reader of an encoding.

    Parameters
    ----------
    encoding : Encoding
        Of the frames.
    geometry : Geometry
        Sizes of source and resized picture.
    color : {"bgr", "rgb"}
        Order of the planes.
    """
    makers: dict[str, Callable[[Encoding, Geometry, str], PlaneReader]] = {
        "packed": PackedReader,
        "semi_planar": SemiPlanarReader,
        "paired": PairedReader,
        "bayer": BayerReader,
    }
    return makers[encoding.layout](encoding, geometry, color)


class _Resizer:
    """Resizes one view of the source and parts its channels; what fits is read as it is."""

    def __init__(self, source: tuple[int, int], geometry: Geometry, channels: int) -> None:
        rows, columns = geometry.resized_height, geometry.resized_width
        self._size = (columns, rows)
        self._planes = [np.empty((rows, columns), np.uint8) for _ in range(channels)]
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
        """Planes of a view [H, W] or [H, W, C], written over by the next call."""
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
    """Rows of the source that are halved together: scratch for their channels, and where to.

    Half the size of two channels is the one case for which cv2.resize has no vector code: 430 us
    from 640x480, 85 us for its channels one by one. Parted in bands they do not leave the cache.
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


class PackedReader:
    """Colours that lie together."""

    def __init__(self, encoding: Encoding, geometry: Geometry, color: str) -> None:
        self._grey = encoding.pixel_bytes == 1
        self._resizer = _Resizer(
            (geometry.source_height, geometry.source_width), geometry, encoding.pixel_bytes
        )
        self._order = encoding.order if color == "bgr" else encoding.order[::-1]
        self.scratch_bytes = self._resizer.nbytes

    def read(self, image: Image) -> Sequence[Image]:
        """See `PlaneReader`."""
        planes = self._resizer.read(image[..., 0] if self._grey and image.ndim == 3 else image)
        return [planes[place] for place in self._order]


class _YuvReader:
    """What the two forms of luma and chroma share: the matrix at the small size."""

    def __init__(self, geometry: Geometry, color: str) -> None:
        rows, columns = geometry.resized_height, geometry.resized_width
        self._matrix = YUV_TO_BGR if color == "bgr" else np.ascontiguousarray(YUV_TO_BGR[::-1])
        self._yuv = np.empty((rows, columns, 3), np.uint8)
        self._colours = np.empty((rows, columns, 3), np.uint8)
        self._planes = _make_planes(geometry, 3)
        self.scratch_bytes = 3 * self._yuv.nbytes

    def _convert(self, luma: Image, u: Image, v: Image) -> Sequence[Image]:
        cv2.merge((luma, u, v), dst=self._yuv)
        cv2.transform(self._yuv, self._matrix, dst=self._colours)
        planes: Sequence[Image] = cv2.split(self._colours, self._planes)
        return planes


class SemiPlanarReader(_YuvReader):
    """Y of all pixels, and below them pairs of U and V of 2x2 pixels."""

    def __init__(self, encoding: Encoding, geometry: Geometry, color: str) -> None:
        super().__init__(geometry, color)
        height, width = geometry.source_height, geometry.source_width
        self._height = height
        self._chroma_shape = (height // 2, width // 2, 2)
        self._luma = _Resizer((height, width), geometry, 1)
        self._chroma = _Resizer((height // 2, width // 2), geometry, 2)
        self._order = encoding.order
        self.scratch_bytes += self._luma.nbytes + self._chroma.nbytes

    def read(self, image: Image) -> Sequence[Image]:
        """See `PlaneReader`."""
        (luma,) = self._luma.read(image[: self._height])
        pair = self._chroma.read(image[self._height :].reshape(self._chroma_shape))
        return self._convert(luma, pair[self._order[0]], pair[self._order[1]])


class PairedReader(_YuvReader):
    """U and V of two neighbours between their Y.

    Two views of the same bytes are resized: pixels of two bytes, of which one is Y, and pairs of
    four bytes, of which two are U and V. Every sample is used by one of them, the lines of the
    cache are visited by both. Bands of rows that stay in the cache between the two were tried:
    541 us instead of 505 from 1280x720 to 416x234.
    """

    def __init__(self, encoding: Encoding, geometry: Geometry, color: str) -> None:
        super().__init__(geometry, color)
        height, width = geometry.source_height, geometry.source_width
        self._chroma_shape = (height, width // 2, 4)
        self._luma = _Resizer((height, width), geometry, 2)
        self._chroma = _Resizer((height, width // 2), geometry, 4)
        self._places = encoding.order
        self.scratch_bytes += self._luma.nbytes + self._chroma.nbytes

    def read(self, image: Image) -> Sequence[Image]:
        """See `PlaneReader`."""
        luma, u, v = self._places
        halves = self._luma.read(image)
        quarters = self._chroma.read(image.reshape(self._chroma_shape))
        return self._convert(halves[luma], quarters[u], quarters[v])


class BayerReader:
    """One colour a pixel: the two rows of the blocks as two pictures of two channels."""

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
        """See `PlaneReader`."""
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


def _make_shift(place: int, geometry: Geometry) -> npt.NDArray[np.float32]:
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
