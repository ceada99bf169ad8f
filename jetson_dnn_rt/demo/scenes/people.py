"""People and traffic signs.

Each function takes the thing's place (metres), a row `u` of uniform random numbers in [0, 1)
that fixes its looks, and the identifier to leave in the label map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jetson_dnn_rt.demo.scenes.canvas import Canvas, Colour, jitter, pick, shade
from jetson_dnn_rt.demo.scenes.classes import Surface
from jetson_dnn_rt.demo.scenes.vehicles import PAINTS

__all__ = ["draw_cyclist", "draw_pedestrian", "draw_sign"]


_CLOTHES: Sequence[Colour] = (
    (40, 40, 45), (160, 80, 40), (50, 50, 180), (210, 210, 210), (60, 150, 60), (40, 160, 220),
    (150, 60, 140), (110, 100, 90), (30, 110, 230), (90, 60, 30), (200, 160, 60),
)  # fmt: skip
_SKINS: Sequence[Colour] = ((160, 185, 225), (120, 150, 200), (80, 110, 160), (50, 70, 110))


def draw_pedestrian(
    canvas: Canvas, x_m: float, z_m: float, u: Sequence[float], phase: float, label: int
) -> None:
    """Paint somebody walking; `phase` in radians swings the legs."""
    height = 1.5 + 0.4 * u[0]
    girth = 0.2 + 0.08 * u[1]
    coat = canvas.fade(jitter(pick(_CLOTHES, u[2]), u[3]), z_m)
    trousers = canvas.fade(jitter(pick(_CLOTHES, u[4]), u[5]), z_m)
    skin = canvas.fade(pick(_SKINS, u[6]), z_m)
    stride = 0.26 * math.sin(phase) * (0.4 + 0.6 * u[7])
    hip, shoulder = 0.48 * height, 0.83 * height
    for foot in (stride, -stride):
        canvas.upright(
            (
                (x_m + foot - 0.09, 0.0),
                (x_m + foot + 0.11, 0.0),
                (x_m + 0.13, hip),
                (x_m - 0.13, hip),
            ),
            z_m,
            trousers,
            label,
        )
    for hand in (stride, -stride):
        side = math.copysign(girth, hand if hand else 1.0)
        canvas.upright(
            (
                (x_m + side * 0.8, shoulder),
                (x_m + side * 1.15, shoulder - 0.05),
                (x_m + side * 1.2 + hand * 0.6, hip - 0.05),
                (x_m + side * 0.9 + hand * 0.6, hip - 0.05),
            ),
            z_m,
            shade(coat, 0.8),
            label,
        )
    canvas.upright(
        (
            (x_m - girth * 0.85, hip - 0.08),
            (x_m + girth * 0.85, hip - 0.08),
            (x_m + girth, shoulder),
            (x_m - girth, shoulder),
        ),
        z_m,
        coat,
        label,
    )
    column, row = canvas.project(x_m, 0.92 * height, z_m)
    head = 0.075 * height * canvas.focal_px / z_m
    canvas.disc(column, row, head, skin, label)
    if head > 3.0:
        canvas.disc(column, row - 0.45 * head, 0.75 * head, shade(trousers, 0.5), None)


def draw_cyclist(
    canvas: Canvas, x_m: float, z_m: float, u: Sequence[float], phase: float, label: int
) -> None:
    """Paint a rider with his bicycle, turned by up to 50 degrees to the road."""
    turn = (u[1] - 0.5) * 1.6
    height = 1.65 + 0.2 * u[0]
    coat = canvas.fade(jitter(pick(_CLOTHES, u[2]), u[3]), z_m)
    trousers = canvas.fade(jitter(pick(_CLOTHES, u[4]), u[5]), z_m)
    skin = canvas.fade(pick(_SKINS, u[6]), z_m)
    tyre = canvas.fade((25, 25, 25), z_m)
    reach = 0.52 * math.sin(turn)  # half the wheel base, as seen from the camera
    wide = max(0.05, 0.34 * abs(math.sin(turn)))
    for hub in (-reach, reach):
        canvas.upright(
            [
                (x_m + hub + wide * math.cos(a), 0.34 + 0.34 * math.sin(a))
                for a in (i * math.pi / 5 for i in range(10))
            ],
            z_m,
            tyre,
            label,
        )
    frame = canvas.fade(pick(PAINTS, u[7]), z_m)
    canvas.rectangle(
        (x_m - abs(reach) - 0.03, x_m + abs(reach) + 0.03), (0.4, 0.62), z_m, frame, label
    )
    knee = 0.12 * math.sin(phase)
    for side, lift in ((-0.13, knee), (0.13, -knee)):
        canvas.rectangle(
            (x_m + side - 0.08, x_m + side + 0.08), (0.3 + lift, 0.98), z_m, trousers, label
        )
    canvas.rectangle((x_m - 0.32, x_m + 0.32), (0.98, 1.05), z_m, tyre, label)  # handlebar
    lean = 0.3 * math.sin(turn)
    canvas.upright(
        (
            (x_m - 0.17, 0.9),
            (x_m + 0.17, 0.9),
            (x_m + lean + 0.23, 0.86 * height),
            (x_m + lean - 0.23, 0.86 * height),
        ),
        z_m,
        coat,
        label,
    )
    column, row = canvas.project(x_m + 1.15 * lean, 0.95 * height, z_m)
    head = 0.13 * canvas.focal_px / z_m
    canvas.disc(column, row, head, skin, label)
    if head > 2.5:
        canvas.disc(column, row - 0.4 * head, 0.9 * head, frame, None)  # helmet


def draw_sign(canvas: Canvas, x_m: float, z_m: float, u: Sequence[float], label: int) -> None:
    """Paint a traffic sign on a post; only the plate carries `label`."""
    size = 0.36 + 0.18 * u[0]
    y = 2.1 + 0.7 * u[1]
    post = canvas.fade((120, 120, 120), z_m)
    canvas.rectangle((x_m - 0.05, x_m + 0.05), (0.0, y), z_m, post, Surface.BACKGROUND)
    red = canvas.fade((40, 35, 200), z_m)
    white = canvas.fade((235, 235, 235), z_m)
    dark = canvas.fade((30, 30, 30), z_m)
    kind = int(u[2] * 5)
    column, row = canvas.project(x_m, y, z_m)
    radius = size * canvas.focal_px / z_m
    if kind == 0:  # speed limit
        canvas.disc(column, row, radius, red, label)
        canvas.disc(column, row, 0.72 * radius, white, None)
        bar = 0.3 * size
        canvas.rectangle((x_m - bar, x_m - 0.05), (y - bar, y + bar), z_m, dark)
        canvas.rectangle((x_m + 0.05, x_m + bar), (y - bar, y + bar), z_m, dark)
    elif kind == 1:  # warning
        for scale, colour, mark in ((1.15, red, label), (0.7, white, None)):
            arm = scale * size
            canvas.upright(
                ((x_m - arm, y - 0.6 * arm), (x_m + arm, y - 0.6 * arm), (x_m, y + arm)),
                z_m,
                colour,
                mark,
            )
    elif kind == 2:  # stop
        for scale, colour, mark in ((1.1, white, label), (1.0, red, None)):
            corners = [
                (x_m + scale * size * math.cos(a), y + scale * size * math.sin(a))
                for a in ((2 * i + 1) * math.pi / 8 for i in range(8))
            ]
            canvas.upright(corners, z_m, colour, mark)
        canvas.rectangle((x_m - 0.7 * size, x_m + 0.7 * size), (y - 0.09, y + 0.09), z_m, white)
    elif kind == 3:  # mandatory direction
        canvas.disc(column, row, radius, canvas.fade((190, 90, 20), z_m), label)
        canvas.rectangle((x_m - 0.05, x_m + 0.05), (y - 0.6 * size, y + 0.6 * size), z_m, white)
    else:  # guide board
        wide = size * (1.0 + 0.8 * u[3])
        board: Colour = (150, 80, 20) if u[4] < 0.5 else (70, 110, 20)
        canvas.rectangle((x_m - wide, x_m + wide), (y - size, y + size), z_m, white, label)
        canvas.rectangle(
            (x_m - 0.92 * wide, x_m + 0.92 * wide),
            (y - 0.88 * size, y + 0.88 * size),
            z_m,
            canvas.fade(board, z_m),
        )
        canvas.rectangle((x_m - 0.6 * wide, x_m + 0.6 * wide), (y, y + 0.2 * size), z_m, white)
