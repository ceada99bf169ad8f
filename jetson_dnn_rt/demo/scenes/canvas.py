"""Paint the parts of a road scene: vehicles, people, signs, trees, buildings.

Every part is painted twice with the same polygons: in colour into the image, and as an
identifier into a label map, so the ground truth is what was painted and nothing else.
Distances are in metres in the camera's road frame: X to the right, Y up from the road,
Z forward.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

__all__ = ["DEPTHS_M", "Canvas", "Colour", "Points", "jitter", "pick", "shade"]

Colour = tuple[float, float, float]
"""Blue, green, red, each 0 to 255."""
Points = Sequence[tuple[float, float]]
"""Corners as (column, row) in pixels."""

_SHIFT = 4  # fractional bits of OpenCV's fixed-point coordinates
_ONE = 1 << _SHIFT
DEPTHS_M = np.geomspace(1.2, 160.0, 30)
"""Where lines along the road are sampled, in metres ahead."""


def shade(colour: Colour, factor: float) -> Colour:
    """Return `colour` made darker (factor < 1) or lighter (> 1), clipped to 255."""
    return (
        min(255.0, colour[0] * factor),
        min(255.0, colour[1] * factor),
        min(255.0, colour[2] * factor),
    )


def jitter(colour: Colour, u: float) -> Colour:
    """Return `colour` made darker or lighter by up to a quarter, for u in [0, 1)."""
    return shade(colour, 0.75 + 0.5 * u)


def pick(colours: Sequence[Colour], u: float) -> Colour:
    """Return one of the colours, for u in [0, 1)."""
    return colours[int(u * len(colours))]


class Canvas:
    """An image and its label map, seen through a pinhole camera over a bent road.

    Parameters
    ----------
    image : numpy.ndarray
        uint8 [H, W, 3] BGR, painted in place.
    labels : numpy.ndarray
        uint8 [H, W], painted in place with identifiers.
    focal_px, centre_px, horizon_px : float
        Focal length, column of the optical axis, row of the horizon, in pixels.
    camera_height_m, camera_x_m : float
        Camera position above the road and across it.
    curvature_per_m : float
        Curvature of the road ahead (1/radius), positive to the right.
    haze : tuple of float
        Colour that distant things fade to.
    visibility_m : float
        Distance at which 63 % of a thing's colour has faded into the haze.
    exposure : sequence of three sequences of int
        What the camera makes of each level of blue, green and red.
    """

    def __init__(
        self,
        image: npt.NDArray[np.uint8],
        labels: npt.NDArray[np.uint8],
        *,
        focal_px: float,
        centre_px: float,
        horizon_px: float,
        camera_height_m: float,
        camera_x_m: float,
        curvature_per_m: float,
        haze: Colour,
        visibility_m: float,
        exposure: Sequence[Sequence[int]],
    ) -> None:
        self.image = image
        self.labels = labels
        self.focal_px = focal_px
        self.centre_px = centre_px
        self.horizon_px = horizon_px
        self.camera_height_m = camera_height_m
        self.camera_x_m = camera_x_m
        self.curvature_per_m = curvature_per_m
        self.haze = haze
        self.visibility_m = visibility_m
        self._exposure = exposure
        inverse = focal_px / DEPTHS_M
        self._inverse_depths = inverse
        self._bend = centre_px + 0.5 * focal_px * curvature_per_m * DEPTHS_M
        self._rows = horizon_px + camera_height_m * inverse
        self._object_label = -1
        self._object_bounds: list[int] | None = None

    def begin_object(self, label: int) -> None:
        """Start to note the extent of what is painted with `label`."""
        self._object_label = label
        self._object_bounds = None

    def object_extent(self) -> tuple[int, int, int, int] | None:
        """Return (left, top, right, bottom) pixels inside the image, None when outside."""
        if self._object_bounds is None:
            return None
        height, width = self.labels.shape
        left, top, right, bottom = self._object_bounds
        left, top = max(0, left), max(0, top)
        right, bottom = min(width, right), min(height, bottom)
        if left >= right or top >= bottom:
            return None
        return left, top, right, bottom

    def count(self, label: int, extent: tuple[int, int, int, int]) -> int:
        """Return how many pixels within `extent` carry `label`."""
        left, top, right, bottom = extent
        same = np.equal(self.labels[top:bottom, left:right], label)
        return cv2.countNonZero(same.view(np.uint8))

    def _note(self, left: int, top: int, right: int, bottom: int) -> None:
        """Widen the extent of the object by a rectangle in fixed point."""
        left, top = (left >> _SHIFT) - 1, (top >> _SHIFT) - 1
        right, bottom = (right >> _SHIFT) + 2, (bottom >> _SHIFT) + 2
        bounds = self._object_bounds
        if bounds is None:
            self._object_bounds = [left, top, right, bottom]
        else:
            bounds[0] = min(bounds[0], left)
            bounds[1] = min(bounds[1], top)
            bounds[2] = max(bounds[2], right)
            bounds[3] = max(bounds[3], bottom)

    def _stand(self, z_m: float) -> tuple[float, float, float]:
        """Return scale, column of X = 0 and row of the road at `z_m`, in fixed point."""
        scale = self.focal_px / z_m
        bend = 0.5 * self.focal_px * self.curvature_per_m * z_m
        column = self.centre_px - self.camera_x_m * scale + bend
        row = self.horizon_px + self.camera_height_m * scale
        return scale * _ONE, column * _ONE, row * _ONE

    def project(self, x_m: float, y_m: float, z_m: float) -> tuple[float, float]:
        """Return the pixel (column, row) of a point; `z_m` must be positive."""
        focal = self.focal_px
        column = (
            self.centre_px
            + focal * (x_m - self.camera_x_m) / z_m
            + focal * 0.5 * self.curvature_per_m * z_m
        )
        row = self.horizon_px + focal * (self.camera_height_m - y_m) / z_m
        return column, row

    def trace(self, x_m: float) -> npt.NDArray[np.float64]:
        """Return the pixels of the line along the road at `x_m`: float64 [len(DEPTHS_M), 2]."""
        points = np.empty((len(DEPTHS_M), 2))
        np.multiply(self._inverse_depths, x_m - self.camera_x_m, out=points[:, 0])
        points[:, 0] += self._bend
        points[:, 1] = self._rows
        return points

    def lay(self, x0_m: float, x1_m: float, z0_m: float, z1_m: float) -> Points:
        """Return the pixels of a rectangle on the ground."""
        project = self.project
        return (
            project(x0_m, 0.0, z0_m),
            project(x1_m, 0.0, z0_m),
            project(x1_m, 0.0, z1_m),
            project(x0_m, 0.0, z1_m),
        )

    def fade(self, colour: Colour, z_m: float) -> Colour:
        """Return `colour` as seen through the haze from `z_m` metres away."""
        keep = math.exp(-z_m / self.visibility_m)
        haze = self.haze
        return (
            haze[0] + (colour[0] - haze[0]) * keep,
            haze[1] + (colour[1] - haze[1]) * keep,
            haze[2] + (colour[2] - haze[2]) * keep,
        )

    def expose(self, colour: Colour) -> Colour:
        """Return what the camera makes of a colour."""
        blue, green, red = self._exposure
        return blue[int(colour[0])], green[int(colour[1])], red[int(colour[2])]

    def fill(self, points: Points, colour: Colour, label: int | None = None) -> None:
        """Fill a convex polygon; `label` None leaves the label map alone."""
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
                self._note(x, y, x + w, y + h)

    def fill_shapes(
        self, shapes: Sequence[Points], colour: Colour, label: int | None = None
    ) -> None:
        """Fill polygons of one colour that do not overlap each other, convex or not."""
        if not shapes:
            return
        fixed = [(np.asarray(shape) * _ONE).astype(np.int32) for shape in shapes]
        cv2.fillPoly(self.image, fixed, self.expose(colour), cv2.LINE_AA, _SHIFT)
        if label is not None:
            cv2.fillPoly(self.labels, fixed, (label,), cv2.LINE_8, _SHIFT)

    def fill_between(
        self,
        left: npt.NDArray[np.float64],
        right: npt.NDArray[np.float64],
        colour: Colour,
        label: int | None = None,
    ) -> None:
        """Fill the ground between two lines, float64 [N, 2] pixels each."""
        outline = (np.concatenate((left, right[::-1])) * _ONE).astype(np.int32)
        cv2.fillPoly(self.image, [outline], self.expose(colour), cv2.LINE_AA, _SHIFT)
        if label is not None:
            cv2.fillPoly(self.labels, [outline], (label,), cv2.LINE_8, _SHIFT)

    def disc(
        self, column: float, row: float, radius_px: float, colour: Colour, label: int | None
    ) -> None:
        """Fill a disc given in pixels."""
        centre = (int(column * _ONE), int(row * _ONE))
        radius = max(1, int(radius_px * _ONE))
        cv2.circle(self.image, centre, radius, self.expose(colour), -1, cv2.LINE_AA, _SHIFT)
        if label is not None:
            cv2.circle(self.labels, centre, radius, (label,), -1, cv2.LINE_8, _SHIFT)
            if label == self._object_label:
                x, y = centre
                self._note(x - radius, y - radius, x + radius, y + radius)

    def upright(
        self, corners: Points, z_m: float, colour: Colour, label: int | None = None
    ) -> None:
        """Fill a convex polygon of (X, Y) metres standing across the road at `z_m`."""
        scale, column, row = self._stand(z_m)
        fixed = [(int(column + x * scale), int(row - y * scale)) for x, y in corners]
        self._fill_fixed(fixed, colour, label)

    def along(self, x_m: float, corners: Points, colour: Colour, label: int | None = None) -> None:
        """Fill a convex polygon of (Z, Y) metres standing along the road at `x_m`."""
        self.fill([self.project(x_m, y, z) for z, y in corners], colour, label)

    def rectangle(
        self,
        x_m: tuple[float, float],
        y_m: tuple[float, float],
        z_m: float,
        colour: Colour,
        label: int | None = None,
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
            if label == self._object_label:
                self._note(left, top, right, bottom)
