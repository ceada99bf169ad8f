"""The plan of a drive: camera, light and road, all drawn from one random generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from jetson_dnn_rt.demo.scenes.canvas import Colour

__all__ = ["SLOTS", "Camera", "Light", "Marking", "Road", "plan_camera", "plan_light", "plan_road"]

SLOTS = 64
"""The looks of what stands and moves along the road repeat after this many things."""


@dataclass(frozen=True)
class Camera:
    """A pinhole camera behind the windscreen.

    `curvature_per_m` is that of the road ahead, positive to the right; it swings by
    `swing_per_m` with `winding_rad_s`.
    """

    focal_px: float
    centre_px: float
    horizon_px: float
    height_m: float
    bounce_px: float
    curvature_per_m: float
    swing_per_m: float
    winding_rad_s: float


@dataclass(frozen=True)
class Light:
    """Weather, exposure and sensor."""

    exposure: list[list[int]]
    noise_sigma: int
    blur_px: int
    haze: Colour
    visibility_m: float


@dataclass(frozen=True)
class Marking:
    """A line along the road; `period_m` 0 is a solid one."""

    x_m: float
    width_m: float
    colour: Colour
    period_m: float = 0.0
    dash_m: float = 0.0


@dataclass(frozen=True)
class Road:
    """The cross-section of the road and its colours.

    Lateral positions are for driving on the right, x = 0 between the directions; `mirror`
    -1 turns them round. Pairs are (left, right) and 0 where there is none.
    """

    setting: str  # urban, suburban, rural, motorway
    mirror: float
    lane_m: float
    own_lane_x_m: float
    ahead_x_m: tuple[float, ...]
    oncoming_x_m: tuple[float, ...]
    parking_m: tuple[float, float]
    lanes_m: tuple[float, float]  # where the lanes end
    edges_m: tuple[float, float]  # where the asphalt ends
    sidewalk_m: tuple[float, float]
    speed_mps: float
    asphalt: Colour
    paving: Colour
    grass: Colour
    white: Colour
    markings: tuple[Marking, ...]
    crossing_every_m: float  # 0: there are no crossings
    crossing_phase_m: float
    patches: Sequence[Sequence[float]] = field(repr=False)  # 6 in [0, 1) for each of SLOTS

    @property
    def motorway(self) -> bool:
        """Without pedestrians, cyclists and oncoming traffic."""
        return self.setting == "motorway"


def plan_camera(rng: np.random.Generator, size: tuple[int, int]) -> Camera:
    """Draw a camera for frames of `size` (height, width)."""
    height, width = size
    return Camera(
        focal_px=width * rng.uniform(0.75, 1.15),
        centre_px=width * rng.uniform(0.46, 0.54),
        horizon_px=height * rng.uniform(0.36, 0.56),
        height_m=rng.uniform(1.15, 1.9),
        bounce_px=height * rng.uniform(0.0, 0.006),
        curvature_per_m=rng.normal(0.0, 1.3e-3),
        swing_per_m=rng.uniform(0.0, 1.2e-3),
        winding_rad_s=rng.uniform(0.05, 0.25),
    )


def plan_light(rng: np.random.Generator) -> Light:
    """Draw exposure (a quarter of the drives is dark), haze, noise and blur."""
    gain = rng.choice([rng.uniform(0.85, 1.15), rng.uniform(0.45, 0.85)], p=[0.75, 0.25])
    tint = rng.uniform(0.9, 1.1, 3)
    gamma = rng.uniform(0.8, 1.25)
    levels = np.linspace(0.0, 1.0, 256)[:, None] ** gamma
    curve = 255.0 * np.clip(levels * gain * tint + rng.uniform(0.0, 0.05), 0.0, 1.0)
    noise = int(rng.choice([0, 2, 4, 7], p=[0.2, 0.35, 0.3, 0.15]))
    blur = int(rng.choice([0, 3, 5], p=[0.55, 0.35, 0.1]))
    grey = rng.uniform(150, 235)
    haze = (grey * rng.uniform(0.98, 1.06), grey, grey * rng.uniform(0.9, 1.02))
    visibility = rng.choice([rng.uniform(50, 120), rng.uniform(150, 600)], p=[0.3, 0.7])
    return Light(curve.astype(int).T.tolist(), noise, blur, haze, float(visibility))


def plan_road(rng: np.random.Generator) -> Road:
    """Draw the road: its setting, lanes, parking strips, sidewalks, colours and markings."""
    setting = str(
        rng.choice(["urban", "suburban", "rural", "motorway"], p=[0.4, 0.28, 0.14, 0.18])
    )
    motorway = setting == "motorway"
    mirror = 1.0 if rng.random() < 0.75 else -1.0
    lane = rng.uniform(3.0, 3.7)
    ahead = int(rng.integers(2, 4) if motorway else rng.integers(1, 3))
    oncoming = 0 if motorway or rng.random() < 0.12 else int(rng.integers(1, 3))
    if setting == "rural":
        ahead = oncoming = 1
    own = int(rng.integers(0, ahead))
    parking = (0.0, 0.0)
    if setting in ("urban", "suburban"):
        parking = (_maybe(rng, 0.5, 2.0, 2.4), _maybe(rng, 0.5, 2.0, 2.4))
    shoulder = rng.uniform(0.8, 2.5) if motorway else rng.uniform(0.3, 0.8)
    lanes = (-oncoming * lane, ahead * lane)
    paved = {"urban": 1.0, "suburban": 0.8, "rural": 0.0, "motorway": 0.0}[setting]
    sidewalk = (_maybe(rng, paved, 1.8, 4.0), _maybe(rng, paved, 1.8, 4.0))
    speed = rng.uniform(20.0, 31.0) if motorway else rng.uniform(6.0, 15.0)

    grey = rng.uniform(55, 125)
    asphalt = (grey * rng.uniform(0.95, 1.08), grey, grey * rng.uniform(0.95, 1.05))
    stone = max(rng.uniform(120, 185), grey + 30)  # the sidewalk is lighter than the road
    paving = (stone * rng.uniform(0.8, 1.02), stone, stone * rng.uniform(0.98, 1.1))
    tone, hue = rng.uniform(0.6, 1.3), rng.random()
    fresh = rng.uniform(0.65, 1.0)
    white = (235 * fresh, 238 * fresh, 240 * fresh)
    yellow = (70 * fresh, 195 * fresh, 230 * fresh)
    markings = _plan_markings(rng, lane, ahead, oncoming, setting, white, yellow)
    walks = setting == "urban" or (setting == "suburban" and rng.random() < 0.4)
    return Road(
        setting=setting,
        mirror=mirror,
        lane_m=lane,
        own_lane_x_m=(own + 0.5) * lane,
        ahead_x_m=tuple((i + 0.5) * lane for i in range(ahead)),
        oncoming_x_m=tuple(-(i + 0.5) * lane for i in range(oncoming)),
        parking_m=parking,
        lanes_m=lanes,
        edges_m=(lanes[0] - shoulder - parking[0], lanes[1] + shoulder + parking[1]),
        sidewalk_m=sidewalk,
        speed_mps=speed,
        asphalt=asphalt,
        paving=paving,
        grass=(55 * tone, (110 + 20 * hue) * tone, (60 + 75 * hue) * tone),
        white=white,
        markings=markings,
        crossing_every_m=rng.uniform(45.0, 110.0) if walks else 0.0,
        crossing_phase_m=rng.uniform(0.0, 100.0),
        patches=rng.random((SLOTS, 6)).tolist(),
    )


def _plan_markings(
    rng: np.random.Generator,
    lane_m: float,
    ahead: int,
    oncoming: int,
    setting: str,
    white: Colour,
    yellow: Colour,
) -> tuple[Marking, ...]:
    width = rng.uniform(0.2, 0.34)
    period, dash = rng.uniform(8.0, 13.0), rng.uniform(3.0, 5.0)
    between = [i * lane_m for i in range(1 - oncoming, ahead) if i]
    markings = [Marking(x, width, white, period, dash) for x in between]
    if oncoming:
        colour = yellow if rng.random() < 0.4 else white
        style = rng.random()
        if style < 0.45:
            markings.append(Marking(0.0, width, colour, period, dash))
        elif style < 0.75:
            markings.append(Marking(0.0, width, colour))
        else:
            markings.append(Marking(-0.22, 0.8 * width, colour))
            markings.append(Marking(0.22, 0.8 * width, colour))
    if setting in ("rural", "motorway") or rng.random() < 0.6:
        left = yellow if setting == "motorway" and rng.random() < 0.4 else white
        markings.append(Marking(-oncoming * lane_m, width, left))
        markings.append(Marking(ahead * lane_m, width, white))
    return tuple(markings)


def _maybe(rng: np.random.Generator, chance: float, low: float, high: float) -> float:
    """Return a value of [low, high) with the given chance, else 0."""
    return float(rng.uniform(low, high)) if rng.random() < chance else 0.0
