# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Objects along the road: vehicles, people, signs, trees, lamp posts, buildings.

Each function paints at one `Spot`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from jetson_dnn_rt.demo.scenes.canvas import Canvas, Colour, Points, Span, jitter, pick, shade
from jetson_dnn_rt.demo.scenes.plan import Surface

Looks = Sequence[float]


class Spot(NamedTuple):
    """Where and how a thing is painted."""

    canvas: Canvas
    x_m: float
    z_m: float
    looks: Looks  # 12 uniform random numbers in [0, 1)
    label: int  # identifier of a ground-truth object in the label map


_NEAR_M = 1.5  # nothing is painted nearer to the camera than this
_BARE_M = 50.0  # windows farther away than this are not painted
_DETAIL_PX = 16.0  # vehicles lower than this get no windows and lights
_OCTAGON = [(math.cos(a), math.sin(a)) for a in (i * math.pi / 4 for i in range(8))]

_PAINTS: Sequence[Colour] = (
    (235, 235, 235), (30, 30, 30), (150, 150, 155), (90, 90, 95), (40, 40, 170), (150, 70, 30),
    (60, 110, 50), (60, 180, 220), (200, 200, 190), (30, 60, 120), (110, 40, 40), (20, 20, 90),
)  # fmt: skip
_CLOTHES: Sequence[Colour] = (
    (40, 40, 45), (160, 80, 40), (50, 50, 180), (210, 210, 210), (60, 150, 60), (40, 160, 220),
    (150, 60, 140), (110, 100, 90), (30, 110, 230), (90, 60, 30), (200, 160, 60),
)  # fmt: skip
_SKINS: Sequence[Colour] = ((160, 185, 225), (120, 150, 200), (80, 110, 160), (50, 70, 110))
_WALLS: Sequence[Colour] = (
    (150, 160, 170), (110, 130, 160), (90, 100, 150), (170, 180, 185), (120, 120, 120),
    (130, 160, 190), (80, 85, 95), (190, 200, 205), (100, 120, 130),
)  # fmt: skip
_LEAVES: Sequence[Colour] = (
    (50, 110, 60), (40, 85, 45), (60, 130, 95), (35, 70, 40), (50, 120, 130), (70, 140, 80),
)  # fmt: skip


# -- vehicles ----------------------------------------------------------------------------


def _paint_wheels(
    canvas: Canvas, x_m: float, z_m: Sequence[float], radius_m: float, colour: Colour, label: int
) -> None:
    """Paint wheels seen from the side."""
    for z in z_m:
        if radius_m * canvas.focal_px / z >= 1.0:
            corners = [(z + radius_m * dz, radius_m * (1.0 + dy)) for dz, dy in _OCTAGON]
            canvas.along(x_m, corners, colour, label)


def _paint_lights(
    canvas: Canvas, x_m: float, half_m: float, y_m: float, z_m: float, oncoming: bool, lit: bool
) -> None:
    """Paint head lights (towards us) or tail lights on a face of half-width `half_m`."""
    colour: Colour
    if oncoming:
        colour = (225, 250, 255) if lit else (190, 200, 200)
    else:
        colour = (40, 40, 250) if lit else (30, 30, 130)
    for side in (-0.78, 0.78):
        x = x_m + side * half_m
        canvas.bar(x, 0.17 * half_m, (y_m - 0.09, y_m + 0.09), z_m, colour)


def _find_flank(canvas: Canvas, x_m: float, half_m: float, near_m: float) -> float:
    """Position of the flank that faces the camera, the only visible one."""
    bend = 0.5 * canvas.curvature_per_m * near_m * near_m
    return x_m - half_m if x_m + bend > canvas.camera_x_m else x_m + half_m


def draw_car(spot: Spot, oncoming: bool) -> None:
    """Paint a car, its near face `z_m` metres ahead, as seen from behind or from the front."""
    canvas, x_m, z_m, u, label = spot
    width = 1.65 + 0.3 * u[0]
    height = 1.38 + 0.55 * u[1]
    length = 3.8 + 1.0 * u[2]
    if z_m + length <= _NEAR_M + 0.2:
        return
    half = width / 2
    near, far = max(z_m, _NEAR_M), z_m + length
    paint = canvas.fade(jitter(pick(_PAINTS, u[3]), u[4]), near)
    dark = canvas.fade((22, 22, 22), near)
    glass = canvas.fade((70 + 50 * u[5], 60 + 40 * u[5], 45 + 35 * u[5]), near)
    belt, sill = 0.56 * height, 0.16 * height
    cabin_near = max(z_m + (0.26 if oncoming else 0.04 + 0.16 * u[6]) * length, near)
    cabin_far = z_m + (0.94 if oncoming else 0.74) * length
    canvas.fill(canvas.lay(x_m - half - 0.1, x_m + half + 0.1, near, far), dark)  # shadow
    flank = _find_flank(canvas, x_m, half, near)
    roof_half = 0.76 * half
    roof_flank = x_m + math.copysign(roof_half, flank - x_m)
    if cabin_far > cabin_near:
        roof_far = cabin_far - 0.16 * (cabin_far - cabin_near)
        windows = [
            canvas.project(flank, belt, cabin_near),
            canvas.project(roof_flank, height, cabin_near),
            canvas.project(roof_flank, height, roof_far),
            canvas.project(flank, belt, cabin_far),
        ]
        canvas.fill(windows, shade(glass, 0.8), label)
    body = ((near, sill), (near, belt), (far, belt * 0.97), (far, sill))
    canvas.along(flank, body, shade(paint, 0.72), label)
    wheels = [z for z in (z_m + 0.19 * length, z_m + 0.8 * length) if z > _NEAR_M + 0.4]
    _paint_wheels(canvas, flank, wheels, 0.31, dark, label)
    if z_m < _NEAR_M:
        return
    bonnet = [
        canvas.project(x_m - half, belt, near), canvas.project(x_m + half, belt, near),
        canvas.project(x_m + half * 0.95, belt, cabin_near),
        canvas.project(x_m - half * 0.95, belt, cabin_near),
    ]  # fmt: skip
    canvas.fill(bonnet, shade(paint, 1.15), label)
    canvas.trapezium(x_m, (0.93 * half, belt), (roof_half, height), cabin_near, paint, label)
    front = (
        (x_m - half, sill), (x_m + half, sill), (x_m + half, 0.8 * belt),
        (x_m + 0.92 * half, belt), (x_m - 0.92 * half, belt), (x_m - half, 0.8 * belt),
    )  # fmt: skip
    canvas.upright(front, near, shade(paint, 0.92), label)
    tyre = 0.24 * half
    for side in (-1.0, 1.0):
        edge = x_m + side * 0.96 * half
        inner = edge - side * tyre
        canvas.rectangle((min(edge, inner), max(edge, inner)), (0.0, sill), near, dark, label)
    if height * canvas.focal_px / near < _DETAIL_PX:
        return
    low, high = (0.8 * half, belt + 0.08 * height), (0.64 * half, 0.94 * height)
    canvas.trapezium(x_m, low, high, cabin_near, glass)
    _paint_lights(canvas, x_m, half, 0.78 * belt, near, oncoming, u[7] < 0.4)
    plate: Span = (0.5 * belt, 0.5 * belt + 0.12)
    canvas.bar(x_m, 0.26, plate, near, (205, 215, 215))
    canvas.bar(x_m, 0.8 * half, (sill, 0.36 * belt), near, dark)


def draw_truck(spot: Spot, oncoming: bool) -> None:
    """Paint a lorry, its near face `z_m` metres ahead."""
    canvas, x_m, z_m, u, label = spot
    half = 1.15 + 0.15 * u[0]
    height = 2.9 + 0.9 * u[1]
    length = 6.0 + 6.0 * u[2]
    if z_m + length <= _NEAR_M + 0.2:
        return
    near, far = max(z_m, _NEAR_M), z_m + length
    paint = canvas.fade(jitter(pick(_PAINTS, u[3]), u[4]), near)
    dark = canvas.fade((25, 25, 25), near)
    floor = 0.95
    canvas.fill(canvas.lay(x_m - half - 0.15, x_m + half + 0.15, near, far), dark)  # shadow
    flank = _find_flank(canvas, x_m, half, near)
    cab_far = min(z_m + 2.2, far) if oncoming else near
    if cab_far < far:
        first = max(near, cab_far)
        box = ((first, floor), (first, height), (far, height), (far, floor))
        canvas.along(flank, box, shade(paint, 0.7), label)
    skirt = ((near, 0.45), (near, floor), (far, floor), (far, 0.45))
    canvas.along(flank, skirt, shade(dark, 1.6), label)
    axles = (z_m + 0.14 * length, z_m + 0.72 * length, z_m + 0.86 * length)
    _paint_wheels(canvas, flank, [z for z in axles if z > _NEAR_M + 0.6], 0.48, dark, label)
    if oncoming and cab_far > near:
        cab = canvas.fade(jitter(pick(_PAINTS, u[5]), u[6]), near)
        cab_height = 0.82 * height
        if z_m >= _NEAR_M:  # the cargo box above and behind the cab
            canvas.bar(x_m, half, (floor, height), cab_far, paint, label)
        side = ((near, 0.5), (near, cab_height), (cab_far, cab_height), (cab_far, 0.5))
        canvas.along(flank, side, shade(cab, 0.75), label)
    else:
        cab, cab_height = paint, height
    if z_m < _NEAR_M:
        return
    for edge in (-1.0, 1.0):
        outer, inner = x_m + edge * 0.95 * half, x_m + edge * 0.6 * half
        canvas.rectangle((min(outer, inner), max(outer, inner)), (0.0, 0.6), near, dark, label)
    canvas.bar(x_m, half, (0.45, cab_height), near, cab, label)
    if height * canvas.focal_px / near < _DETAIL_PX:
        return
    if oncoming:
        glass = canvas.fade((80, 70, 60), near)
        canvas.bar(x_m, 0.88 * half, (0.52 * height, 0.52 * height + 0.85), near, glass)
        canvas.bar(x_m, 0.55 * half, (0.75, 1.25), near, dark)
    else:
        canvas.bar(x_m, 0.93 * half, (1.0, height - 0.12), near, shade(paint, 0.9))
        canvas.bar(x_m, 0.03, (1.0, height - 0.12), near, shade(paint, 0.55))
        canvas.bar(x_m, half, (0.5, 0.72), near, dark)
    _paint_lights(canvas, x_m, half, 0.85, near, oncoming, u[7] < 0.5)


# -- people and signs --------------------------------------------------------------------


def _dress(canvas: Canvas, z_m: float, u: Looks) -> tuple[Colour, Colour, Colour]:
    """Colours of coat, trousers and skin."""
    coat = canvas.fade(jitter(pick(_CLOTHES, u[2]), u[3]), z_m)
    trousers = canvas.fade(jitter(pick(_CLOTHES, u[4]), u[5]), z_m)
    return coat, trousers, canvas.fade(pick(_SKINS, u[6]), z_m)


def draw_pedestrian(spot: Spot, seconds: float) -> None:
    """Paint a walking person."""
    canvas, x_m, z_m, u, label = spot
    height = 1.5 + 0.4 * u[0]
    girth = 0.2 + 0.08 * u[1]
    coat, trousers, skin = _dress(canvas, z_m, u)
    stride = 0.26 * math.sin(7.0 * seconds + 6.3 * u[11]) * (0.4 + 0.6 * u[7])
    hip, shoulder = 0.48 * height, 0.83 * height
    for foot in (stride, -stride):
        leg = (
            (x_m + foot - 0.09, 0.0), (x_m + foot + 0.11, 0.0),
            (x_m + 0.13, hip), (x_m - 0.13, hip),
        )  # fmt: skip
        canvas.upright(leg, z_m, trousers, label)
    for hand in (stride, -stride):
        side = math.copysign(girth, hand if hand else 1.0)
        swing = hand * 0.6
        arm = (
            (x_m + side * 0.8, shoulder), (x_m + side * 1.15, shoulder - 0.05),
            (x_m + side * 1.2 + swing, hip - 0.05), (x_m + side * 0.9 + swing, hip - 0.05),
        )  # fmt: skip
        canvas.upright(arm, z_m, shade(coat, 0.8), label)
    canvas.trapezium(x_m, (girth * 0.85, hip - 0.08), (girth, shoulder), z_m, coat, label)
    column, row = canvas.project(x_m, 0.92 * height, z_m)
    head = 0.075 * height * canvas.focal_px / z_m
    canvas.disc(column, row, head, skin, label)
    if head > 3.0:
        canvas.disc(column, row - 0.45 * head, 0.75 * head, shade(trousers, 0.5))


def draw_cyclist(spot: Spot, seconds: float) -> None:
    """Paint a rider with his bicycle, turned by up to 50 degrees to the road."""
    canvas, x_m, z_m, u, label = spot
    turn = (u[1] - 0.5) * 1.6
    height = 1.65 + 0.2 * u[0]
    coat, trousers, skin = _dress(canvas, z_m, u)
    tyre = canvas.fade((25, 25, 25), z_m)
    reach = 0.52 * math.sin(turn)  # half the wheel base, as seen from the camera
    wide = max(0.05, 0.34 * abs(math.sin(turn)))
    for hub in (-reach, reach):
        angles = (i * math.pi / 5 for i in range(10))
        wheel = [(x_m + hub + wide * math.cos(a), 0.34 + 0.34 * math.sin(a)) for a in angles]
        canvas.upright(wheel, z_m, tyre, label)
    frame = canvas.fade(pick(_PAINTS, u[7]), z_m)
    ends = (x_m - abs(reach) - 0.03, x_m + abs(reach) + 0.03)
    canvas.rectangle(ends, (0.4, 0.62), z_m, frame, label)
    knee = 0.12 * math.sin(8.0 * seconds + 6.3 * u[11])
    for side, lift in ((-0.13, knee), (0.13, -knee)):
        canvas.bar(x_m + side, 0.08, (0.3 + lift, 0.98), z_m, trousers, label)
    canvas.bar(x_m, 0.32, (0.98, 1.05), z_m, tyre, label)  # handlebar
    lean = 0.3 * math.sin(turn)
    back = (
        (x_m - 0.17, 0.9), (x_m + 0.17, 0.9),
        (x_m + lean + 0.23, 0.86 * height), (x_m + lean - 0.23, 0.86 * height),
    )  # fmt: skip
    canvas.upright(back, z_m, coat, label)
    column, row = canvas.project(x_m + 1.15 * lean, 0.95 * height, z_m)
    head = 0.13 * canvas.focal_px / z_m
    canvas.disc(column, row, head, skin, label)
    if head > 2.5:
        canvas.disc(column, row - 0.4 * head, 0.9 * head, frame)  # helmet


def draw_sign(spot: Spot) -> None:
    """Paint a traffic sign on a post; only the plate carries `label`."""
    canvas, x_m, z_m, u, label = spot
    size = 0.36 + 0.18 * u[0]
    y = 2.1 + 0.7 * u[1]
    canvas.bar(x_m, 0.05, (0.0, y), z_m, canvas.fade((120, 120, 120), z_m), Surface.BACKGROUND)
    red = canvas.fade((40, 35, 200), z_m)
    white = canvas.fade((235, 235, 235), z_m)
    dark = canvas.fade((30, 30, 30), z_m)
    kind = int(u[2] * 5)
    column, row = canvas.project(x_m, y, z_m)
    radius = size * canvas.focal_px / z_m
    if kind == 0:  # speed limit
        canvas.disc(column, row, radius, red, label)
        canvas.disc(column, row, 0.72 * radius, white)
        bar = 0.3 * size
        for ends in ((x_m - bar, x_m - 0.05), (x_m + 0.05, x_m + bar)):
            canvas.rectangle(ends, (y - bar, y + bar), z_m, dark)
    elif kind == 1:  # warning
        for scale, colour, mark in ((1.15, red, label), (0.7, white, None)):
            arm = scale * size
            corners = [(x_m - arm, y - 0.6 * arm), (x_m + arm, y - 0.6 * arm), (x_m, y + arm)]
            canvas.upright(corners, z_m, colour, mark)
    elif kind == 2:  # stop
        for scale, colour, mark in ((1.1, white, label), (1.0, red, None)):
            corners = [
                (x_m + scale * size * math.cos(a), y + scale * size * math.sin(a))
                for a in ((2 * i + 1) * math.pi / 8 for i in range(8))
            ]
            canvas.upright(corners, z_m, colour, mark)
        canvas.bar(x_m, 0.7 * size, (y - 0.09, y + 0.09), z_m, white)
    elif kind == 3:  # mandatory direction
        canvas.disc(column, row, radius, canvas.fade((190, 90, 20), z_m), label)
        canvas.bar(x_m, 0.05, (y - 0.6 * size, y + 0.6 * size), z_m, white)
    else:  # guide board
        wide = size * (1.0 + 0.8 * u[3])
        board = canvas.fade((150, 80, 20) if u[4] < 0.5 else (70, 110, 20), z_m)
        canvas.bar(x_m, wide, (y - size, y + size), z_m, white, label)
        canvas.bar(x_m, 0.92 * wide, (y - 0.88 * size, y + 0.88 * size), z_m, board)
        canvas.bar(x_m, 0.6 * wide, (y, y + 0.2 * size), z_m, white)


# -- scenery -----------------------------------------------------------------------------


def draw_tree(spot: Spot) -> None:
    """Paint a tree: a trunk and a crown of overlapping discs."""
    canvas, x_m, z_m, u, _ = spot
    height = 4.0 + 5.0 * u[0]
    crown = 1.2 + 1.3 * u[1]
    trunk = canvas.fade((45, 60 + 20 * u[2], 80), z_m)
    canvas.bar(x_m, 0.18, (0.0, height - crown), z_m, trunk, Surface.VEGETATION)
    leaves = canvas.fade(jitter(pick(_LEAVES, u[3]), u[4]), z_m)
    scale = canvas.focal_px / z_m
    column, row = canvas.project(x_m, height - crown, z_m)
    clumps = (
        (-0.55, 0.15, 0.75, 0.8), (0.6, 0.05, 0.7, 0.72),
        (0.0, -0.5 - 0.3 * u[5], 0.85, 1.0), (0.15 - 0.3 * u[6], 0.3, 0.65, 0.9),
    )  # fmt: skip
    for dx, dy, size, tone in clumps if crown * scale > 14.0 else clumps[2:]:
        x, y = column + dx * crown * scale, row + dy * crown * scale
        canvas.disc(x, y, size * crown * scale, shade(leaves, tone), Surface.VEGETATION)


def draw_bush(spot: Spot) -> None:
    """Paint a low bush."""
    canvas, x_m, z_m, u, _ = spot
    size = 0.5 + 0.7 * u[0]
    leaves = canvas.fade(jitter(pick(_LEAVES, u[3]), u[4]), z_m)
    scale = canvas.focal_px / z_m
    column, row = canvas.project(x_m, 0.6 * size, z_m)
    left, right = column - 0.7 * size * scale, column + 0.6 * size * scale
    canvas.disc(left, row, 0.7 * size * scale, shade(leaves, 0.8), Surface.VEGETATION)
    canvas.disc(right, row, 0.75 * size * scale, leaves, Surface.VEGETATION)


def draw_lamp_post(spot: Spot) -> None:
    """Paint a lamp post that leans its arm over the road."""
    canvas, x_m, z_m, u, _ = spot
    height = 5.0 + 3.0 * u[0]
    colour = canvas.fade((95 + 60 * u[1], 100 + 55 * u[1], 105 + 50 * u[1]), z_m)
    arm = -math.copysign(1.4, x_m - canvas.camera_x_m)
    canvas.bar(x_m, 0.08, (0.0, height), z_m, colour, Surface.BACKGROUND)
    ends = (min(x_m, x_m + arm), max(x_m, x_m + arm))
    canvas.rectangle(ends, (height - 0.1, height + 0.05), z_m, colour, Surface.BACKGROUND)


def draw_building(spot: Spot, length_m: float) -> None:
    """Paint a house whose wall stands along the road at `x_m` from `z_m` on."""
    canvas, x_m, z_m, u, _ = spot
    near, far = max(z_m, _NEAR_M), z_m + length_m
    if far <= near + 0.5:
        return
    height = 4.0 + 12.0 * u[0]
    wall = canvas.fade(jitter(pick(_WALLS, u[1]), u[2]), near)
    outward = math.copysign(14.0, x_m - canvas.camera_x_m)
    corners = ((near, 0.0), (near, height), (far, height), (far, 0.0))
    canvas.along(x_m, corners, shade(wall, 0.85), Surface.BACKGROUND)
    if z_m >= _NEAR_M:
        ends = (min(x_m, x_m + outward), max(x_m, x_m + outward))
        canvas.rectangle(ends, (0.0, height), near, wall, Surface.BACKGROUND)
    glass = canvas.fade((75 + 60 * u[3], 65 + 60 * u[3], 55 + 60 * u[3]), near)
    windows: list[Points] = []
    for storey in range(int(height / 3.0)):
        low, high = 3.0 * storey + 1.0, 3.0 * storey + 2.4
        for bay in range(int(length_m / 3.0)):
            z0 = z_m + 3.0 * bay + 0.9
            if near <= z0 <= _BARE_M:
                frame = ((low, z0), (high, z0), (high, z0 + 1.3), (low, z0 + 1.3))
                windows.append([canvas.project(x_m, y, z) for y, z in frame])
    canvas.fill_shapes(windows, glass)
