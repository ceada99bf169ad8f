"""Sky, skyline and the land beside the road, painted once per drive."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.demo.scenes.canvas import Canvas, Colour
from jetson_dnn_rt.demo.scenes.classes import Surface
from jetson_dnn_rt.demo.scenes.plan import Camera, Light, Road

__all__ = ["Backdrop", "paint_backdrop"]

Image = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Backdrop:
    """A picture larger than the frame, of which each frame shows a window.

    Attributes
    ----------
    image : numpy.ndarray
        uint8 [H + 2 * margin_y, W + 2 * margin_x, 3].
    labels : numpy.ndarray
        uint8 of the same height and width, `Surface` indices.
    margin_y, margin_x : int
        How far the window can move from the middle, in pixels.
    """

    image: Image
    labels: Image
    margin_y: int
    margin_x: int

    def copy_window(self, down: int, right: int, image: Image, labels: Image) -> None:
        """Copy the window at an offset from the middle, clipped to the margins."""
        height, width = labels.shape
        top = self.margin_y + max(-self.margin_y, min(self.margin_y, down))
        left = self.margin_x + max(-self.margin_x, min(self.margin_x, right))
        window = (slice(top, top + height), slice(left, left + width))
        np.copyto(image, self.image[window])
        np.copyto(labels, self.labels[window])


def paint_backdrop(
    rng: np.random.Generator, size: tuple[int, int], camera: Camera, light: Light, road: Road
) -> Backdrop:
    """Draw and paint the backdrop of a drive for frames of `size` (height, width)."""
    height, width = size
    margin_y, margin_x = max(4, height // 50), width // 4
    rows, columns = height + 2 * margin_y, width + 2 * margin_x
    horizon = int(camera.horizon_px) + margin_y
    image = np.empty((rows, columns, 3), np.uint8)
    image[:horizon] = _paint_sky(rng, (horizon, columns), np.array(light.haze))
    image[horizon:] = _paint_land(rng, (rows - horizon, columns), np.array(road.grass))
    labels = np.full((rows, columns), Surface.SKY, np.uint8)
    labels[horizon:] = Surface.VEGETATION
    canvas = Canvas(
        image,
        labels,
        focal_px=1.0,
        centre_px=0.0,
        horizon_px=0.0,
        camera_height_m=1.0,
        camera_x_m=0.0,
        curvature_per_m=0.0,
        haze=light.haze,
        visibility_m=light.visibility_m,
        exposure=[list(range(256))] * 3,
    )
    _paint_skyline(canvas, rng, horizon, road, np.array(light.haze))
    curve = np.array(light.exposure, np.uint8).T[None]
    exposed: Image = cv2.LUT(image, curve)
    return Backdrop(exposed, labels, margin_y, margin_x)


def _paint_sky(
    rng: np.random.Generator, shape: tuple[int, int], haze: npt.NDArray[np.float64]
) -> Image:
    """Return a clear, an overcast or a dusky sky, with or without clouds."""
    rows, columns = shape
    kind = rng.random()
    if kind < 0.55:
        zenith = np.array((215.0, 150.0, 95.0)) * rng.uniform(0.7, 1.1)
    elif kind < 0.85:
        zenith = haze * rng.uniform(0.75, 1.05)
    else:
        zenith = np.array((150.0, 110.0, 100.0)) * rng.uniform(0.5, 0.9)
    down = np.linspace(0.0, 1.0, rows)[:, None] ** 0.8
    gradient = np.clip(zenith + (haze - zenith) * down, 0, 255).astype(np.uint8)
    sky: Image = np.ascontiguousarray(np.broadcast_to(gradient[:, None], (rows, columns, 3)))
    if rng.random() < 0.3:
        return sky
    coarse = rng.random((int(rng.integers(4, 9)), int(rng.integers(5, 12)))).astype(np.float32)
    clouds = cv2.resize(coarse, (columns // 4, rows // 4 + 1), interpolation=cv2.INTER_CUBIC)
    cover = np.clip((clouds - rng.uniform(0.4, 0.7)) * 2.2, 0.0, rng.uniform(0.3, 0.9))
    cover = cv2.resize(cover.astype(np.float32), (columns, rows))
    white = np.full_like(sky, int(rng.uniform(190, 250)))
    clouded: Image = cv2.blendLinear(white, sky, cover, 1.0 - cover)
    return clouded


def _paint_land(
    rng: np.random.Generator, shape: tuple[int, int], grass: npt.NDArray[np.float64]
) -> Image:
    rows, columns = shape
    shades = cv2.resize(rng.random((24, 16)).astype(np.float32), (columns, rows))
    lit = (1.0 + 0.35 * (shades - 0.5))[:, :, None] * grass.astype(np.float32)
    land: Image = np.clip(lit, 0, 255).astype(np.uint8)
    return land


def _paint_skyline(
    canvas: Canvas,
    rng: np.random.Generator,
    horizon: int,
    road: Road,
    haze: npt.NDArray[np.float64],
) -> None:
    """Paint distant woods and, in towns, distant buildings above the horizon."""
    rows, columns = canvas.labels.shape
    ridge = np.interp(np.arange(40), np.linspace(0, 39, 9), rng.random(9))
    ridge += 0.25 * rng.random(40)
    tall = rng.uniform(0.01, 0.14) * rows
    outline = np.stack((np.linspace(0, columns, 40), horizon - 2 - tall * ridge), axis=1)
    foot = np.array([[columns, horizon + 4.0], [0.0, horizon + 4.0]])
    wood = np.array(road.grass) * rng.uniform(0.5, 0.9)
    faded = haze + (wood - haze) * rng.uniform(0.25, 0.9)
    canvas.fill_shapes(
        [np.concatenate((outline, foot)).tolist()], _colour(faded), Surface.VEGETATION
    )
    if road.setting not in ("urban", "suburban"):
        return
    for _ in range(int(rng.integers(2, 14))):
        x = rng.uniform(0, columns)
        wide, high = rng.uniform(0.03, 0.14) * columns, rng.uniform(0.03, 0.2) * rows
        low = horizon + 3.0
        corners = [(x, low), (x + wide, low), (x + wide, low - high), (x, low - high)]
        canvas.fill(corners, _colour(haze * rng.uniform(0.55, 0.9)), Surface.BACKGROUND)


def _colour(values: npt.NDArray[np.float64]) -> Colour:
    return float(values[0]), float(values[1]), float(values[2])
