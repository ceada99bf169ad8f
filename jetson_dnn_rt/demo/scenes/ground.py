"""Verge, sidewalks, asphalt and lane markings."""

from __future__ import annotations

import math

import numpy as np

from jetson_dnn_rt.demo.scenes.canvas import DEPTHS_M, Canvas, Colour, Points, shade
from jetson_dnn_rt.demo.scenes.classes import Surface
from jetson_dnn_rt.demo.scenes.plan import SLOTS, Marking, Road

__all__ = ["paint_ground", "paint_markings"]

_NEAREST_M = float(DEPTHS_M[0])
_VERGE_M = 40.0  # how far the grass beside the road is painted
_THINNEST_PX = 2.0  # of a 640-wide frame: lines end where they become thinner


def paint_ground(canvas: Canvas, road: Road, driven_m: float) -> None:
    """Paint everything flat but the markings, after `driven_m` metres of the drive."""
    left, right = road.edges_m
    for k in range(math.ceil((driven_m - 6) / 9.0), math.floor((driven_m + 60) / 9.0)):
        z = k * 9.0 - driven_m
        verge = _lay(canvas, road, left - _VERGE_M, right + _VERGE_M, z, 6.0)
        if k % 3 and verge:  # bands of other grass, so that the verge moves
            tone = shade(road.grass, 0.86 + 0.28 * road.patches[k % SLOTS][5])
            canvas.fill(verge, canvas.fade(tone, max(z, 0.0)))
    sidewalks = ((left, -road.sidewalk_m[0]), (right, road.sidewalk_m[1]))
    for kerb, width in sidewalks:
        if width:
            _pave(canvas, road, kerb, kerb + width, road.paving, Surface.SIDEWALK)
            slabs = (4.0 * i - driven_m % 4.0 for i in range(1, 7))
            joints = [_lay(canvas, road, kerb, kerb + width, z, 0.12) for z in slabs]
            canvas.fill_shapes([joint for joint in joints if joint], shade(road.paving, 0.8))
    _pave(canvas, road, left, right, road.asphalt, Surface.ROAD)
    for kerb, width in sidewalks:
        if width:
            stone = math.copysign(0.18, width)
            bright = shade(road.paving, 1.2)
            _pave(canvas, road, kerb, kerb + stone, bright, Surface.SIDEWALK)
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
    """Return a rectangle on the ground, None when it is behind the camera."""
    if z_m + length_m <= _NEAREST_M:
        return None
    near, far = max(z_m, _NEAREST_M), z_m + length_m
    return canvas.lay(road.mirror * x0_m, road.mirror * x1_m, near, far)
