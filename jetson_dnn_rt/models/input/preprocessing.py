# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Input format of a network, and the place of a picture in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.input.encodings import MAX_SIDE

ResizeMode = Literal["letterbox_topleft", "letterbox_center", "stretch"]
ColorOrder = Literal["bgr", "rgb"]
Floats = npt.NDArray[np.float32]

# Networks use values between 1/65025 and 255. With the widest values a pixel of 255 becomes
# 2.6e10: every number stays finite in float32, which NaN, 1e308 or a std of 1e-300 would not.
SCALE_RANGE = (1e-6, 1e3)
MEAN_RANGE = (-1e4, 1e4)
STD_RANGE = (1e-5, 1e4)
_RANGES = {
    "height": (1, MAX_SIDE), "width": (1, MAX_SIDE), "pad_value": (0, 255),
    "scale": SCALE_RANGE, "mean": MEAN_RANGE, "std": STD_RANGE,
}  # fmt: skip


@dataclass(frozen=True)
class Preprocessing:
    """Input format of a network: ``(pixel * scale - mean) / std`` per channel."""

    height: int
    width: int
    # Keep the aspect ratio and pad right and below, pad all around, or distort.
    resize: ResizeMode = "letterbox_topleft"
    pad_value: int = 114  # pixel value of the padding before scaling, 0 to 255
    color: ColorOrder = "rgb"
    scale: float = 1.0 / 255.0  # within `SCALE_RANGE`
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)  # in the order of `color`
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        for key, choices in (("resize", get_args(ResizeMode)), ("color", get_args(ColorOrder))):
            if getattr(self, key) not in choices:
                raise ValueError(f"{key} must be one of {choices}: {getattr(self, key)!r}")
        if len(self.mean) != 3 or len(self.std) != 3:
            raise ValueError(f"mean and std must be three values each: {self.mean}, {self.std}")
        for key, (least, most) in _RANGES.items():
            value, named = getattr(self, key), {}
            if key in ("mean", "std"):
                named = {f"{key}[{index}]": number for index, number in enumerate(value)}
            for name, number in (named or {key: value}).items():
                if not least <= number <= most:  # NaN is in no range
                    raise ValueError(f"{name} must be in [{least:g}, {most:g}]: {number}")

    @property
    def factors(self) -> Floats:
        """Per channel ``a`` of ``a * pixel + b``, [3]."""
        return np.asarray([self.scale / s for s in self.std], np.float32)

    @property
    def offsets(self) -> Floats:
        """Per channel ``b`` of ``a * pixel + b``, [3]."""
        return np.asarray([-m / s for m, s in zip(self.mean, self.std, strict=True)], np.float32)

    def override(self, values: Mapping[str, Any]) -> Preprocessing:
        """Replace fields by those of a configuration.

        `ConfigurationError` where a key is not a field or a value is out of range.
        """
        known = [f.name for f in fields(self)]
        for key in values:
            if key not in known:
                raise ConfigurationError(f"preprocessing.{key} is unknown, known are {known}")
        try:
            ready: dict[str, Any] = {
                k: tuple(v) if k in ("mean", "std") else v for k, v in values.items()
            }
            return replace(self, **ready)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"preprocessing: {error}") from error


imagenet_input = partial(
    Preprocessing, resize="stretch", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
)


@dataclass(frozen=True)
class Geometry:
    """Where the source image lies in the network's input, to the pixel.

    A point of the source (edges, not pixel centres) is at ``x * scale_x + offset_x`` of the
    input. The scales are those of the actual resize, sides rounded to whole pixels,
    so undoing it leaves no systematic shift.
    """

    source_height: int
    source_width: int
    resized_height: int
    resized_width: int
    offset_y: int
    offset_x: int

    @property
    def scale_x(self) -> float:
        """Input pixels per source pixel, horizontally."""
        return self.resized_width / self.source_width

    @property
    def scale_y(self) -> float:
        """Input pixels per source pixel, vertically."""
        return self.resized_height / self.source_height

    @staticmethod
    def of(preprocessing: Preprocessing, height: int, width: int) -> Geometry:
        """Lay a source image of `height` x `width` pixels into the input."""
        rows, columns = preprocessing.height, preprocessing.width
        if preprocessing.resize == "stretch":
            return Geometry(height, width, rows, columns, 0, 0)
        ratio = min(rows / height, columns / width)
        high = min(rows, max(1, round(height * ratio)))
        wide = min(columns, max(1, round(width * ratio)))
        if preprocessing.resize == "letterbox_topleft":
            return Geometry(height, width, high, wide, 0, 0)
        return Geometry(height, width, high, wide, (rows - high) // 2, (columns - wide) // 2)

    def to_source(self, boxes: Floats) -> Floats:
        """Map xyxy boxes [N, 4] of the input to the source image, clipped to it: a new array."""
        offsets = np.asarray([self.offset_x, self.offset_y] * 2, np.float32)
        scales = np.asarray([self.scale_x, self.scale_y] * 2, np.float32)
        limits = np.asarray([self.source_width, self.source_height] * 2, np.float32)
        return cast("Floats", np.clip((boxes - offsets) / scales, 0.0, limits))
