"""Trees, bushes, lamp posts and buildings.

Each function takes the thing's place (metres) and a row `u` of uniform random numbers in
[0, 1) that fixes its looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from jetson_dnn_rt.demo.scenes.canvas import Canvas, Colour, Points, jitter, pick, shade
from jetson_dnn_rt.demo.scenes.classes import Surface

__all__ = ["draw_building", "draw_bush", "draw_lamp_post", "draw_tree"]


_NEAR_M = 1.5  # nothing is painted nearer to the camera than this
_BARE_M = 50.0  # windows farther away than this are not painted

_WALLS: Sequence[Colour] = (
    (150, 160, 170), (110, 130, 160), (90, 100, 150), (170, 180, 185), (120, 120, 120),
    (130, 160, 190), (80, 85, 95), (190, 200, 205), (100, 120, 130),
)  # fmt: skip
_LEAVES: Sequence[Colour] = (
    (50, 110, 60), (40, 85, 45), (60, 130, 95), (35, 70, 40), (50, 120, 130), (70, 140, 80),
)  # fmt: skip


def draw_tree(canvas: Canvas, x_m: float, z_m: float, u: Sequence[float]) -> None:
    """Paint a tree: a trunk and a crown of overlapping discs."""
    height = 4.0 + 5.0 * u[0]
    crown = 1.2 + 1.3 * u[1]
    trunk = canvas.fade((45, 60 + 20 * u[2], 80), z_m)
    canvas.rectangle(
        (x_m - 0.18, x_m + 0.18), (0.0, height - crown), z_m, trunk, Surface.VEGETATION
    )
    leaves = canvas.fade(jitter(pick(_LEAVES, u[3]), u[4]), z_m)
    scale = canvas.focal_px / z_m
    column, row = canvas.project(x_m, height - crown, z_m)
    clumps = (
        (-0.55, 0.15, 0.75, 0.8),
        (0.6, 0.05, 0.7, 0.72),
        (0.0, -0.5 - 0.3 * u[5], 0.85, 1.0),
        (0.15 - 0.3 * u[6], 0.3, 0.65, 0.9),
    )
    for dx, dy, size, tone in clumps if crown * scale > 14.0 else clumps[2:]:
        canvas.disc(
            column + dx * crown * scale,
            row + dy * crown * scale,
            size * crown * scale,
            shade(leaves, tone),
            Surface.VEGETATION,
        )


def draw_bush(canvas: Canvas, x_m: float, z_m: float, u: Sequence[float]) -> None:
    """Paint a low bush."""
    size = 0.5 + 0.7 * u[0]
    leaves = canvas.fade(jitter(pick(_LEAVES, u[3]), u[4]), z_m)
    scale = canvas.focal_px / z_m
    column, row = canvas.project(x_m, 0.6 * size, z_m)
    canvas.disc(
        column - 0.7 * size * scale,
        row,
        0.7 * size * scale,
        shade(leaves, 0.8),
        Surface.VEGETATION,
    )
    canvas.disc(column + 0.6 * size * scale, row, 0.75 * size * scale, leaves, Surface.VEGETATION)


def draw_lamp_post(canvas: Canvas, x_m: float, z_m: float, u: Sequence[float]) -> None:
    """Paint a lamp post that leans its arm over the road."""
    height = 5.0 + 3.0 * u[0]
    colour = canvas.fade((95 + 60 * u[1], 100 + 55 * u[1], 105 + 50 * u[1]), z_m)
    arm = -math.copysign(1.4, x_m - canvas.camera_x_m)
    canvas.rectangle((x_m - 0.08, x_m + 0.08), (0.0, height), z_m, colour, Surface.BACKGROUND)
    ends = (min(x_m, x_m + arm), max(x_m, x_m + arm))
    canvas.rectangle(ends, (height - 0.1, height + 0.05), z_m, colour, Surface.BACKGROUND)


def draw_building(
    canvas: Canvas, x_m: float, z_m: float, length_m: float, u: Sequence[float]
) -> None:
    """Paint a house whose wall stands along the road at `x_m` from `z_m` on."""
    near, far = max(z_m, _NEAR_M), z_m + length_m
    if far <= near + 0.5:
        return
    height = 4.0 + 12.0 * u[0]
    wall = canvas.fade(jitter(pick(_WALLS, u[1]), u[2]), near)
    outward = math.copysign(14.0, x_m - canvas.camera_x_m)
    canvas.along(
        x_m,
        ((near, 0.0), (near, height), (far, height), (far, 0.0)),
        shade(wall, 0.85),
        Surface.BACKGROUND,
    )
    if z_m >= _NEAR_M:
        ends = (min(x_m, x_m + outward), max(x_m, x_m + outward))
        canvas.rectangle(ends, (0.0, height), near, wall, Surface.BACKGROUND)
    storeys, bays = int(height / 3.0), int(length_m / 3.0)
    glass = canvas.fade((75 + 60 * u[3], 65 + 60 * u[3], 55 + 60 * u[3]), near)
    windows: list[Points] = []
    for storey in range(storeys):
        low, high = 3.0 * storey + 1.0, 3.0 * storey + 2.4
        for bay in range(bays):
            z0 = z_m + 3.0 * bay + 0.9
            if z0 < near or z0 > _BARE_M:
                continue
            z1 = z0 + 1.3
            windows.append(
                (
                    canvas.project(x_m, low, z0),
                    canvas.project(x_m, high, z0),
                    canvas.project(x_m, high, z1),
                    canvas.project(x_m, low, z1),
                )
            )
    canvas.fill_shapes(windows, glass)
