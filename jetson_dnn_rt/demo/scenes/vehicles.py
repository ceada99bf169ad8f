"""Cars and lorries, painted as boxes in perspective.

Each function takes the vehicle's place (metres), a row `u` of uniform random numbers in
[0, 1) that fixes its looks, and the identifier to leave in the label map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jetson_dnn_rt.demo.scenes.canvas import Canvas, Colour, jitter, pick, shade

__all__ = ["PAINTS", "draw_car", "draw_truck"]


_NEAR_M = 1.5  # nothing is painted nearer to the camera than this
_OCTAGON = [(math.cos(a), math.sin(a)) for a in (i * math.pi / 4 for i in range(8))]
_DETAIL_PX = 16.0  # vehicles lower than this get no windows and lights

PAINTS: Sequence[Colour] = (
    (235, 235, 235), (30, 30, 30), (150, 150, 155), (90, 90, 95), (40, 40, 170), (150, 70, 30),
    (60, 110, 50), (60, 180, 220), (200, 200, 190), (30, 60, 120), (110, 40, 40), (20, 20, 90),
)  # fmt: skip


def _wheel(
    canvas: Canvas, x_m: float, z_m: float, radius_m: float, colour: Colour, label: int
) -> None:
    """Fill a wheel seen from the side."""
    if radius_m * canvas.focal_px / z_m < 1.0:
        return
    corners = [(z_m + radius_m * dz, radius_m * (1.0 + dy)) for dz, dy in _OCTAGON]
    canvas.along(x_m, corners, colour, label)


def _ground_shadow(
    canvas: Canvas, x_m: tuple[float, float], z_m: tuple[float, float], colour: Colour
) -> None:
    (x0, x1), (z0, z1) = x_m, z_m
    canvas.fill(canvas.lay(x0, x1, z0, z1), colour)


def _lights(
    canvas: Canvas, x_m: float, half_m: float, y_m: float, z_m: float, oncoming: bool, lit: bool
) -> None:
    """Paint head lights (towards us) or tail lights on a face of half-width `half_m`."""
    colour: Colour
    if oncoming:
        colour = (225, 250, 255) if lit else (190, 200, 200)
    else:
        colour = (40, 40, 250) if lit else (30, 30, 130)
    size = 0.17 * half_m
    for side in (-0.78, 0.78):
        x = x_m + side * half_m
        canvas.rectangle((x - size, x + size), (y_m - 0.09, y_m + 0.09), z_m, colour)


def draw_car(
    canvas: Canvas, x_m: float, z_m: float, u: Sequence[float], oncoming: bool, label: int
) -> None:
    """Paint a car, its near face `z_m` metres ahead, as seen from behind or from the front."""
    width = 1.65 + 0.3 * u[0]
    height = 1.38 + 0.55 * u[1]
    length = 3.8 + 1.0 * u[2]
    if z_m + length <= _NEAR_M + 0.2:
        return
    half = width / 2
    near, far = max(z_m, _NEAR_M), z_m + length
    paint = canvas.fade(jitter(pick(PAINTS, u[3]), u[4]), near)
    dark = canvas.fade((22, 22, 22), near)
    glass = canvas.fade((70 + 50 * u[5], 60 + 40 * u[5], 45 + 35 * u[5]), near)
    belt, sill = 0.56 * height, 0.16 * height
    cabin_near = max(z_m + (0.26 if oncoming else 0.04 + 0.16 * u[6]) * length, near)
    cabin_far = z_m + (0.94 if oncoming else 0.74) * length
    _ground_shadow(canvas, (x_m - half - 0.1, x_m + half + 0.1), (near, far), dark)

    # Seen from the camera only the flank that faces it is visible.
    bend = 0.5 * canvas.curvature_per_m * near * near
    flank = x_m - half if x_m + bend > canvas.camera_x_m else x_m + half
    roof_half = 0.76 * half
    roof_flank = x_m + math.copysign(roof_half, flank - x_m)
    if cabin_far > cabin_near:
        roof_far = cabin_far - 0.16 * (cabin_far - cabin_near)
        canvas.fill(
            [
                canvas.project(flank, belt, cabin_near),
                canvas.project(roof_flank, height, cabin_near),
                canvas.project(roof_flank, height, roof_far),
                canvas.project(flank, belt, cabin_far),
            ],
            shade(glass, 0.8),
            label,
        )
    body = ((near, sill), (near, belt), (far, belt * 0.97), (far, sill))
    canvas.along(flank, body, shade(paint, 0.72), label)
    for wheel_z in (z_m + 0.19 * length, z_m + 0.8 * length):
        if wheel_z > _NEAR_M + 0.4:
            _wheel(canvas, flank, wheel_z, 0.31, dark, label)
    if z_m < _NEAR_M:
        return

    canvas.fill(  # bonnet or boot
        [
            canvas.project(x_m - half, belt, near),
            canvas.project(x_m + half, belt, near),
            canvas.project(x_m + half * 0.95, belt, cabin_near),
            canvas.project(x_m - half * 0.95, belt, cabin_near),
        ],
        shade(paint, 1.15),
        label,
    )
    canvas.upright(
        (
            (x_m - 0.93 * half, belt),
            (x_m + 0.93 * half, belt),
            (x_m + roof_half, height),
            (x_m - roof_half, height),
        ),
        cabin_near,
        paint,
        label,
    )
    canvas.upright(
        (
            (x_m - half, sill),
            (x_m + half, sill),
            (x_m + half, 0.8 * belt),
            (x_m + 0.92 * half, belt),
            (x_m - 0.92 * half, belt),
            (x_m - half, 0.8 * belt),
        ),
        near,
        shade(paint, 0.92),
        label,
    )
    tyre = 0.24 * half
    for side in (-1.0, 1.0):
        edge = x_m + side * 0.96 * half
        inner = edge - side * tyre
        canvas.rectangle((min(edge, inner), max(edge, inner)), (0.0, sill), near, dark, label)
    if height * canvas.focal_px / near < _DETAIL_PX:
        return
    canvas.upright(
        (
            (x_m - 0.8 * half, belt + 0.08 * height),
            (x_m + 0.8 * half, belt + 0.08 * height),
            (x_m + 0.64 * half, 0.94 * height),
            (x_m - 0.64 * half, 0.94 * height),
        ),
        cabin_near,
        glass,
    )
    _lights(canvas, x_m, half, 0.78 * belt, near, oncoming, u[7] < 0.4)
    canvas.rectangle(
        (x_m - 0.26, x_m + 0.26), (0.5 * belt, 0.5 * belt + 0.12), near, (205, 215, 215)
    )
    canvas.rectangle((x_m - 0.8 * half, x_m + 0.8 * half), (sill, 0.36 * belt), near, dark)


def draw_truck(
    canvas: Canvas, x_m: float, z_m: float, u: Sequence[float], oncoming: bool, label: int
) -> None:
    """Paint a lorry, its near face `z_m` metres ahead."""
    half = 1.15 + 0.15 * u[0]
    height = 2.9 + 0.9 * u[1]
    length = 6.0 + 6.0 * u[2]
    if z_m + length <= _NEAR_M + 0.2:
        return
    near, far = max(z_m, _NEAR_M), z_m + length
    paint = canvas.fade(jitter(pick(PAINTS, u[3]), u[4]), near)
    dark = canvas.fade((25, 25, 25), near)
    floor = 0.95
    _ground_shadow(canvas, (x_m - half - 0.15, x_m + half + 0.15), (near, far), dark)
    bend = 0.5 * canvas.curvature_per_m * near * near
    flank = x_m - half if x_m + bend > canvas.camera_x_m else x_m + half
    cab_far = min(z_m + 2.2, far) if oncoming else near
    if cab_far < far:
        box = (
            (max(near, cab_far), floor),
            (max(near, cab_far), height),
            (far, height),
            (far, floor),
        )
        canvas.along(flank, box, shade(paint, 0.7), label)
    skirt = ((near, 0.45), (near, floor), (far, floor), (far, 0.45))
    canvas.along(flank, skirt, shade(dark, 1.6), label)
    for wheel_z in (z_m + 0.14 * length, z_m + 0.72 * length, z_m + 0.86 * length):
        if wheel_z > _NEAR_M + 0.6:
            _wheel(canvas, flank, wheel_z, 0.48, dark, label)
    if oncoming and cab_far > near:
        cab = canvas.fade(jitter(pick(PAINTS, u[5]), u[6]), near)
        cab_height = 0.82 * height
        if z_m >= _NEAR_M:  # the cargo box above and behind the cab
            canvas.rectangle((x_m - half, x_m + half), (floor, height), cab_far, paint, label)
        side = ((near, 0.5), (near, cab_height), (cab_far, cab_height), (cab_far, 0.5))
        canvas.along(flank, side, shade(cab, 0.75), label)
    else:
        cab, cab_height = paint, height
    if z_m < _NEAR_M:
        return
    for edge in (-1.0, 1.0):
        outer, inner = x_m + edge * 0.95 * half, x_m + edge * 0.6 * half
        canvas.rectangle((min(outer, inner), max(outer, inner)), (0.0, 0.6), near, dark, label)
    canvas.rectangle((x_m - half, x_m + half), (0.45, cab_height), near, cab, label)
    if height * canvas.focal_px / near < _DETAIL_PX:
        return
    if oncoming:
        glass = canvas.fade((80, 70, 60), near)
        canvas.rectangle(
            (x_m - 0.88 * half, x_m + 0.88 * half),
            (0.52 * height, 0.52 * height + 0.85),
            near,
            glass,
        )
        canvas.rectangle((x_m - 0.55 * half, x_m + 0.55 * half), (0.75, 1.25), near, dark)
    else:
        canvas.rectangle(
            (x_m - 0.93 * half, x_m + 0.93 * half), (1.0, height - 0.12), near, shade(paint, 0.9)
        )
        canvas.rectangle((x_m - 0.03, x_m + 0.03), (1.0, height - 0.12), near, shade(paint, 0.55))
        canvas.rectangle((x_m - half, x_m + half), (0.5, 0.72), near, dark)
    _lights(canvas, x_m, half, 0.85, near, oncoming, u[7] < 0.5)
