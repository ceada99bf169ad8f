"""Segmentation logits to a mask of the source image's size.

The classes are decided at the network's resolution and spread by nearest neighbour. Measured to
960x540 (one x86 thread): 8 classes at 96x160 0.27 ms against 5.5 ms for interpolating the logits
first; 21 classes at 65x65 0.14 against 11 ms. The price is an edge that is off by at most half a
cell of the logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.models.heads.kinds import Outputs
from jetson_dnn_rt.models.sources.settings import DecoderSettings
from jetson_dnn_rt.results import Segmentation

if TYPE_CHECKING:  # it imports OpenCV, which a network alone does not need
    from jetson_dnn_rt.models.input.preprocessing import Geometry


class MaskDecoder:
    """Logits ``[1, C, h, w]``, 2 <= C <= 256, of any stride.

    Every source pixel takes the class of the cell of the logits in which its centre lies, so the
    padding is never looked at and a border of the image inside a cell is no special case.

    Parameters
    ----------
    input_size : tuple of int
        Height and width of the input.
    """

    def __init__(self, input_size: tuple[int, int]) -> None:
        self._input_size = input_size
        self._prepared_for: tuple[Geometry, tuple[int, ...]] | None = None

    def __call__(
        self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings
    ) -> Segmentation:
        """Decode one frame's logits; there is nothing in the settings for it."""
        logits = outputs[0][0]
        if self._prepared_for != (geometry, logits.shape):
            self._prepare(geometry, logits.shape)
            self._prepared_for = (geometry, logits.shape)
        mask = self._find_best(logits[:, self._crop_y, self._crop_x])
        return Segmentation(mask.take(self._columns, axis=1).take(self._rows, axis=0))

    def _prepare(self, geometry: Geometry, shape: tuple[int, ...]) -> None:
        _, height, width = shape
        rows = _find_cells(
            geometry.source_height,
            geometry.resized_height,
            geometry.offset_y,
            height,
            self._input_size[0],
        )
        columns = _find_cells(
            geometry.source_width,
            geometry.resized_width,
            geometry.offset_x,
            width,
            self._input_size[1],
        )
        self._crop_y = slice(int(rows[0]), int(rows[-1]) + 1)
        self._crop_x = slice(int(columns[0]), int(columns[-1]) + 1)
        self._rows, self._columns = rows - rows[0], columns - columns[0]
        cropped = (int(self._rows[-1]) + 1, int(self._columns[-1]) + 1)
        self._best = np.empty(cropped, np.float32)
        self._better = np.empty(cropped, np.bool_)
        self._mask = np.empty(cropped, np.uint8)

    def _find_best(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
        """Argmax over the first axis; half the time of ``np.argmax(axis=0)``."""
        np.copyto(self._best, logits[0])
        self._mask.fill(0)
        for class_id in range(1, len(logits)):
            np.greater(logits[class_id], self._best, out=self._better)
            np.maximum(logits[class_id], self._best, out=self._best)
            np.putmask(self._mask, self._better, class_id)
        return self._mask


def _find_cells(
    pixels: int, resized: int, offset: int, cells: int, size: int
) -> npt.NDArray[np.intp]:
    """Cell of the logits under the centre of every source pixel along one axis.

    ``floor(((i + 1/2) * resized / pixels + offset) * cells / size)``, in whole numbers: a centre
    on the border of two cells always belongs to the second.
    """
    twice = (2 * np.arange(pixels, dtype=np.int64) + 1) * resized + 2 * pixels * offset
    return cast("npt.NDArray[np.intp]", (twice * cells // (2 * pixels * size)).astype(np.intp))
