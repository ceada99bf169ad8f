# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Painting into an image and its label map, seen through a pinhole camera over a bent road.

Every part is painted twice with the same polygons: in colour into the image, and as an
identifier into a label map, so the ground truth is what was painted and nothing else.
Distances are in metres in the camera's road frame: X to the right, Y up from the road,
Z forward.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
Line = npt.NDArray[np.float64]
"""Pixels (column, row) along the road, [N, 2]."""
Colour = tuple[float, float, float]
"""Blue, green, red, each 0 to 255."""
Points = Sequence[tuple[float, float]]
"""Corners as (column, row) in pixels."""
Span = tuple[float, float]

_SHIFT = 4  # fractional bits of OpenCV's fixed-point coordinates
_ONE = 1 << _SHIFT
DEPTHS_M = np.geomspace(1.2, 160.0, 30)
"""Where lines along the road are sampled, in metres ahead."""


def shade(colour: Colour, factor: float) -> Colour:
    """Make a colour darker (factor < 1) or lighter (> 1), clipped to 255."""
    blue, green, red = colour
    return min(255.0, blue * factor), min(255.0, green * factor), min(255.0, red * factor)


def jitter(colour: Colour, u: float) -> Colour:
    """Make a colour darker or lighter by up to a quarter, for u in [0, 1)."""
    return shade(colour, 0.75 + 0.5 * u)


def pick(colours: Sequence[Colour], u: float) -> Colour:
    """One of the colours, for u in [0, 1)."""
    return colours[int(u * len(colours))]


@dataclass(eq=False)
class Canvas:
    """An image and its label map under one camera."""

    image: Image  # [H, W, 3] BGR, painted in place
    labels: Image  # [H, W], painted in place with identifiers
    focal_px: float
    centre_px: float  # column of the optical axis
    horizon_px: float  # row of the horizon
    camera_height_m: float
    camera_x_m: float  # across the road
    curvature_per_m: float  # of the road ahead (1/radius), positive to the right
    haze: Colour  # colour that distant objects fade to
    visibility_m: float  # distance where 63 % of an object's colour has faded into the haze
    exposure: Sequence[Sequence[int]]  # tone curves of blue, green and red

    def __post_init__(self) -> None:
        inverse = self.focal_px / DEPTHS_M
        self._inverse_depths = inverse
        self._bend = self.centre_px + 0.5 * self.focal_px * self.curvature_per_m * DEPTHS_M
        self._rows = self.horizon_px + self.camera_height_m * inverse
        self._object_label = -1
        self._object_bounds: tuple[int, int, int, int] | None = None

    # -- objects -------------------------------------------------------------------------

    def begin_object(self, label: int) -> None:
        """Start to track the extent of what is painted with `label`."""
        self._object_label = label
        self._object_bounds = None

    def object_extent(self) -> tuple[int, int, int, int] | None:
        """The object's (left, top, right, bottom) pixels inside the image, None when outside."""
        if self._object_bounds is None:
            return None
        height, width = self.labels.shape
        left, top, right, bottom = self._object_bounds
        left, top = max(0, left), max(0, top)
        right, bottom = min(width, right), min(height, bottom)
        return None if left >= right or top >= bottom else (left, top, right, bottom)

    def count(self, label: int, extent: tuple[int, int, int, int]) -> int:
        """Number of pixels within `extent` with `label`."""
        left, top, right, bottom = extent
        same = np.equal(self.labels[top:bottom, left:right], label)
        return cv2.countNonZero(same.view(np.uint8))

    def _widen(self, label: int, left: int, top: int, right: int, bottom: int) -> None:
        """Widen the extent of the object, if it is painted, by a rectangle in fixed point."""
        if label != self._object_label:
            return
        left, top = (left >> _SHIFT) - 1, (top >> _SHIFT) - 1
        right, bottom = (right >> _SHIFT) + 2, (bottom >> _SHIFT) + 2
        if self._object_bounds is not None:
            x0, y0, x1, y1 = self._object_bounds
            left, top, right, bottom = min(x0, left), min(y0, top), max(x1, right), max(y1, bottom)
        self._object_bounds = (left, top, right, bottom)

    # -- projection and colour -----------------------------------------------------------

    def project(self, x_m: float, y_m: float, z_m: float) -> tuple[float, float]:
        """The pixel (column, row) of a point; `z_m` must be positive."""
        focal = self.focal_px
        column = (
            self.centre_px
            + focal * (x_m - self.camera_x_m) / z_m
            + focal * 0.5 * self.curvature_per_m * z_m
        )
        row = self.horizon_px + focal * (self.camera_height_m - y_m) / z_m
        return column, row

    def trace(self, x_m: float) -> Line:
        """The pixels of the line along the road at `x_m`, at each of `DEPTHS_M`."""
        points = np.empty((len(DEPTHS_M), 2))
        np.multiply(self._inverse_depths, x_m - self.camera_x_m, out=points[:, 0])
        points[:, 0] += self._bend
        points[:, 1] = self._rows
        return points

    def lay(self, x0_m: float, x1_m: float, z0_m: float, z1_m: float) -> Points:
        """The pixels of a rectangle on the ground."""
        corners = ((x0_m, z0_m), (x1_m, z0_m), (x1_m, z1_m), (x0_m, z1_m))
        return [self.project(x, 0.0, z) for x, z in corners]

    def fade(self, colour: Colour, z_m: float) -> Colour:
        """A colour as seen through the haze from `z_m` metres away."""
        keep = math.exp(-z_m / self.visibility_m)
        blue, green, red = self.haze
        return (
            blue + (colour[0] - blue) * keep,
            green + (colour[1] - green) * keep,
            red + (colour[2] - red) * keep,
        )

    def expose(self, colour: Colour) -> Colour:
        """A colour as exposed by the camera."""
        blue, green, red = self.exposure
        return blue[int(colour[0])], green[int(colour[1])], red[int(colour[2])]

    # -- shapes; `label` None leaves the label map alone -----------------------------------

    def fill(self, points: Points, colour: Colour, label: int | None = None) -> None:
        """Fill a convex polygon."""
        self._fill_fixed([(int(x * _ONE), int(y * _ONE)) for x, y in points], colour, label)

    def _fill_fixed(
        self, points: list[tuple[int, int]], colour: Colour, label: int | None
    ) -> None:
        fixed = np.array(points, np.int32)
        cv2.fillConvexPoly(self.image, fixed, self.expose(colour), cv2.LINE_AA, _SHIFT)
        if label is not None:
            cv2.fillConvexPoly(self.labels, fixed, (label,), cv2.LINE_8, _SHIFT)
            if label == self._object_label:
                x, y, w, h = cv2.boundingRect(fixed)
                self._widen(label, x, y, x + w, y + h)

    def fill_shapes(
        self, shapes: Sequence[Points], colour: Colour, label: int | None = None
    ) -> None:
        """Fill polygons of one colour that do not overlap each other, convex or not."""
        if shapes:
            self._fill_all([np.asarray(shape) for shape in shapes], colour, label)

    def fill_between(
        self, left: Line, right: Line, colour: Colour, label: int | None = None
    ) -> None:
        """Fill the ground between two lines."""
        self._fill_all([np.concatenate((left, right[::-1]))], colour, label)

    def _fill_all(self, shapes: Sequence[Line], colour: Colour, label: int | None) -> None:
        fixed = [(shape * _ONE).astype(np.int32) for shape in shapes]
        cv2.fillPoly(self.image, fixed, self.expose(colour), cv2.LINE_AA, _SHIFT)
        if label is not None:
            cv2.fillPoly(self.labels, fixed, (label,), cv2.LINE_8, _SHIFT)

    def disc(
        self, column: float, row: float, radius_px: float, colour: Colour, label: int | None = None
    ) -> None:
        """Fill a disc given in pixels."""
        x, y = centre = (int(column * _ONE), int(row * _ONE))
        radius = max(1, int(radius_px * _ONE))
        cv2.circle(self.image, centre, radius, self.expose(colour), -1, cv2.LINE_AA, _SHIFT)
        if label is not None:
            cv2.circle(self.labels, centre, radius, (label,), -1, cv2.LINE_8, _SHIFT)
            self._widen(label, x - radius, y - radius, x + radius, y + radius)

    def _stand(self, z_m: float) -> tuple[float, float, float]:
        """Scale, column of X = 0 and row of the road at `z_m`, in fixed point."""
        scale = self.focal_px / z_m
        bend = 0.5 * self.focal_px * self.curvature_per_m * z_m
        column = self.centre_px - self.camera_x_m * scale + bend
        row = self.horizon_px + self.camera_height_m * scale
        return scale * _ONE, column * _ONE, row * _ONE

    def upright(
        self, corners: Points, z_m: float, colour: Colour, label: int | None = None
    ) -> None:
        """Fill a convex polygon of (X, Y) metres standing across the road at `z_m`."""
        scale, column, row = self._stand(z_m)
        fixed = [(int(column + x * scale), int(row - y * scale)) for x, y in corners]
        self._fill_fixed(fixed, colour, label)

    def trapezium(
        self, x_m: float, low: Span, high: Span, z_m: float, colour: Colour,
        label: int | None = None,
    ) -> None:  # fmt: skip
        """Fill a trapezium about `x_m` across the road; `low` and `high` are (half width, Y)."""
        (w0, y0), (w1, y1) = low, high
        corners = ((x_m - w0, y0), (x_m + w0, y0), (x_m + w1, y1), (x_m - w1, y1))
        self.upright(corners, z_m, colour, label)

    def along(self, x_m: float, corners: Points, colour: Colour, label: int | None = None) -> None:
        """Fill a convex polygon of (Z, Y) metres standing along the road at `x_m`."""
        self.fill([self.project(x_m, y, z) for z, y in corners], colour, label)

    def rectangle(
        self, x_m: Span, y_m: Span, z_m: float, colour: Colour, label: int | None = None
    ) -> None:
        """Fill a rectangle across the road at `z_m`, from x[0] to x[1] and y[0] to y[1]."""
        scale, column, row = self._stand(z_m)
        left, right = int(column + x_m[0] * scale), int(column + x_m[1] * scale)
        top, bottom = int(row - y_m[1] * scale), int(row - y_m[0] * scale)
        corner, opposite = (left, top), (right, bottom)
        exposed = self.expose(colour)
        cv2.rectangle(self.image, corner, opposite, exposed, -1, cv2.LINE_AA, _SHIFT)
        if label is not None:
            cv2.rectangle(self.labels, corner, opposite, (label,), -1, cv2.LINE_8, _SHIFT)
            self._widen(label, left, top, right, bottom)

    def bar(
        self, x_m: float, half_m: float, y_m: Span, z_m: float, colour: Colour,
        label: int | None = None,
    ) -> None:  # fmt: skip
        """Fill a rectangle about `x_m`, see `rectangle`."""
        self.rectangle((x_m - half_m, x_m + half_m), y_m, z_m, colour, label)
