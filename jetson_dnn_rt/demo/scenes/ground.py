# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Static parts of a scene: sky, skyline, verges, asphalt and lane markings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.demo.scenes.canvas import DEPTHS_M, Canvas, Colour, Image, Points, shade
from jetson_dnn_rt.demo.scenes.plan import SLOTS, Camera, Light, Marking, Road, Surface

Shades = npt.NDArray[np.float64]

_NEAREST_M = float(DEPTHS_M[0])
_VERGE_M = 40.0  # width of the grass beside the road
_THINNEST_PX = 2.0  # of a 640-wide frame: lines end where they become thinner


@dataclass(frozen=True)
class Backdrop:
    """A picture larger than the frame, painted once per drive; each frame shows a window."""

    image: Image  # [H + 2 * margin_y, W + 2 * margin_x, 3]
    labels: Image  # of the same height and width, `Surface` indices
    margin_y: int  # how far the window can move from the middle, in pixels
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
        image, labels, focal_px=1.0, centre_px=0.0, horizon_px=0.0, camera_height_m=1.0,
        camera_x_m=0.0, curvature_per_m=0.0, haze=light.haze, visibility_m=light.visibility_m,
        exposure=[list(range(256))] * 3,
    )  # fmt: skip
    _paint_skyline(canvas, rng, horizon, road, np.array(light.haze))
    exposed: Image = cv2.LUT(image, np.array(light.exposure, np.uint8).T[None])
    return Backdrop(exposed, labels, margin_y, margin_x)


def _paint_sky(rng: np.random.Generator, shape: tuple[int, int], haze: Shades) -> Image:
    """Paint a clear, an overcast or a dusky sky, with or without clouds."""
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


def _paint_land(rng: np.random.Generator, shape: tuple[int, int], grass: Shades) -> Image:
    rows, columns = shape
    shades = cv2.resize(rng.random((24, 16)).astype(np.float32), (columns, rows))
    lit = (1.0 + 0.35 * (shades - 0.5))[:, :, None] * grass.astype(np.float32)
    land: Image = np.clip(lit, 0, 255).astype(np.uint8)
    return land


def _paint_skyline(
    canvas: Canvas, rng: np.random.Generator, horizon: int, road: Road, haze: Shades
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
    shape = np.concatenate((outline, foot)).tolist()
    canvas.fill_shapes([shape], _colour(faded), Surface.VEGETATION)
    if road.setting not in ("urban", "suburban"):
        return
    for _ in range(int(rng.integers(2, 14))):
        x = rng.uniform(0, columns)
        wide, high = rng.uniform(0.03, 0.14) * columns, rng.uniform(0.03, 0.2) * rows
        low = horizon + 3.0
        corners = [(x, low), (x + wide, low), (x + wide, low - high), (x, low - high)]
        canvas.fill(corners, _colour(haze * rng.uniform(0.55, 0.9)), Surface.BACKGROUND)


def _colour(values: Shades) -> Colour:
    return float(values[0]), float(values[1]), float(values[2])


def paint_ground(canvas: Canvas, road: Road, driven_m: float) -> None:
    """Paint everything flat except the markings, after `driven_m` metres of the drive."""
    left, right = road.edges_m
    for k in range(math.ceil((driven_m - 6) / 9.0), math.floor((driven_m + 60) / 9.0)):
        z = k * 9.0 - driven_m
        verge = _lay(canvas, road, left - _VERGE_M, right + _VERGE_M, z, 6.0)
        if k % 3 and verge:  # bands of different grass make motion visible
            tone = shade(road.grass, 0.86 + 0.28 * road.patches[k % SLOTS][5])
            canvas.fill(verge, canvas.fade(tone, max(z, 0.0)))
    sidewalks = [(left, -road.sidewalk_m[0]), (right, road.sidewalk_m[1])]
    sidewalks = [(kerb, width) for kerb, width in sidewalks if width]
    for kerb, width in sidewalks:
        _pave(canvas, road, kerb, kerb + width, road.paving, Surface.SIDEWALK)
        slabs = (4.0 * i - driven_m % 4.0 for i in range(1, 7))
        joints = [_lay(canvas, road, kerb, kerb + width, z, 0.12) for z in slabs]
        canvas.fill_shapes([joint for joint in joints if joint], shade(road.paving, 0.8))
    _pave(canvas, road, left, right, road.asphalt, Surface.ROAD)
    for kerb, width in sidewalks:
        stone = kerb + math.copysign(0.18, width)
        _pave(canvas, road, kerb, stone, shade(road.paving, 1.2), Surface.SIDEWALK)
    _patch(canvas, road, driven_m)


def paint_markings(canvas: Canvas, road: Road, driven_m: float) -> None:
    """Paint the lines along the road and the pedestrian crossing that is in sight."""
    for line in road.markings:
        _mark(canvas, road, line, driven_m)
    if not road.crossing_every_m:
        return
    z = road.crossing_every_m - (driven_m + road.crossing_phase_m) % road.crossing_every_m
    if z > 30.0:
        return
    left, right = road.edges_m
    for x in np.arange(left + 0.5, right - 0.6, 1.1).tolist():
        bar = _lay(canvas, road, x, x + 0.55, z - 2.0, 3.0)
        if bar:
            canvas.fill(bar, canvas.fade(road.white, z), Surface.LANE_MARKING)


def _mark(canvas: Canvas, road: Road, line: Marking, driven_m: float) -> None:
    scale = canvas.labels.shape[1] / 640.0
    far = min(70.0, line.width_m * canvas.focal_px / (_THINNEST_PX * scale))
    x0, x1 = line.x_m - line.width_m / 2, line.x_m + line.width_m / 2
    if line.period_m:
        for start in np.arange(-(driven_m % line.period_m), far, line.period_m).tolist():
            dash = _lay(canvas, road, x0, x1, start, line.dash_m)
            if dash:
                faded = canvas.fade(line.colour, max(start, 0.0))
                canvas.fill(dash, faded, Surface.LANE_MARKING)
    else:
        end = int(np.searchsorted(DEPTHS_M, far))
        left = canvas.trace(road.mirror * x0)[:end]
        right = canvas.trace(road.mirror * x1)[:end]
        canvas.fill_between(left, right, line.colour, Surface.LANE_MARKING)


def _patch(canvas: Canvas, road: Road, driven_m: float) -> None:
    """Paint repairs, stains and the shadows of things out of sight; some cross the road."""
    left, right = road.edges_m
    for k in range(math.ceil((driven_m - 5) / 7.0), math.floor((driven_m + 55) / 7.0)):
        u = road.patches[k % SLOTS]
        if u[0] >= 0.55:
            continue
        z = k * 7.0 + 3.0 * u[1] - driven_m
        x0 = left + u[2] * (right - left) * 0.8
        x1 = min(right, x0 + 0.6 + u[3] * 4.0)
        if u[0] < 0.08:
            x0, x1 = left, right
        patch = _lay(canvas, road, x0, x1, z, 0.5 + 4.0 * u[5])
        if patch:
            tone = shade(road.asphalt, 0.72 + 0.45 * u[4])
            canvas.fill(patch, canvas.fade(tone, max(z, 0.0)))


def _pave(
    canvas: Canvas, road: Road, x0_m: float, x1_m: float, colour: Colour, surface: Surface
) -> None:
    """Fill the ground between two lines along the road, fading in the distance."""
    left, right = canvas.trace(road.mirror * x0_m), canvas.trace(road.mirror * x1_m)
    for low, high in ((20, 30), (12, 21), (0, 13)):
        faded = canvas.fade(colour, float(DEPTHS_M[low]))
        canvas.fill_between(left[low:high], right[low:high], faded, surface)


def _lay(
    canvas: Canvas, road: Road, x0_m: float, x1_m: float, z_m: float, length_m: float
) -> Points | None:
    """A rectangle on the ground, None when it is behind the camera."""
    if z_m + length_m <= _NEAREST_M:
        return None
    near, far = max(z_m, _NEAREST_M), z_m + length_m
    return canvas.lay(road.mirror * x0_m, road.mirror * x1_m, near, far)
