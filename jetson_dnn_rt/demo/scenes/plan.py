# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The plan of a drive: camera, light, road, and the objects along it.

Everything is drawn from one random generator, in a fixed order.

Boxes enclose the pixels of an object that are really visible. A sign's box is its plate,
without the post; a cyclist's includes the bicycle. In the masks a cyclist with his bicycle
is ``person``; cars and trucks are ``vehicle``; grass, hedges, trees and distant woods are
``vegetation``; the kerb is ``sidewalk``; buildings, signs and posts are ``background``, the
class of everything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from jetson_dnn_rt.demo.scenes.canvas import Colour

Kind = IntEnum("Kind", "CAR TRUCK PEDESTRIAN CYCLIST SIGN", start=0)
"""Class indices of the detector."""
Surface = IntEnum(
    "Surface", "BACKGROUND ROAD LANE_MARKING SIDEWALK SKY VEGETATION VEHICLE PERSON", start=0
)
"""Class indices of the segmenter."""

DETECTOR_CLASSES = tuple(kind.name.lower() for kind in Kind)
SEGMENTER_CLASSES = tuple(surface.name.lower() for surface in Surface)

_MASKS = (Surface.VEHICLE,) * 2 + (Surface.PERSON,) * 2 + (Surface.BACKGROUND,)
MASK_OF = dict(zip(Kind, _MASKS, strict=True))
_SMALLEST_PX = dict(zip(Kind, (18.0, 26.0, 38.0, 38.0, 15.0), strict=True))
"""Height, in pixels of a 640-wide frame, below which a thing is not painted at all: what is
painted must be recognisable, or the ground truth would ask for guesses."""
_TYPICAL_HEIGHT_M = dict(zip(Kind, (1.5, 3.3, 1.7, 1.75, 0.9), strict=True))
SMALLEST_BOX_PX = 8.0
"""Boxes with a shorter side, in pixels of a 640-wide frame, are left out of the truth."""
LEAST_VISIBLE = 0.3
"""Boxes of which a smaller share is visible are left out of the truth."""

SLOTS = 64
"""The looks of objects along the road repeat after this many things."""


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

    Lateral positions are for driving on the right, x = 0 between the directions; `mirror` = -1
    mirrors them. Pairs are (left, right) and 0 where there is none.
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
        """Whether the road is a motorway: no pedestrians, cyclists or oncoming traffic."""
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
    settings = ["urban", "suburban", "rural", "motorway"]
    setting = str(rng.choice(settings, p=[0.4, 0.28, 0.14, 0.18]))
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
    paved = {"urban": 1.0, "suburban": 0.8}.get(setting, 0.0)
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
    markings = _plan_markings(rng, lane, (oncoming, ahead), setting, (white, yellow))
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
    lanes: tuple[int, int],
    setting: str,
    paints: tuple[Colour, Colour],
) -> tuple[Marking, ...]:
    (oncoming, ahead), (white, yellow) = lanes, paints
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
            markings += [Marking(x, 0.8 * width, colour) for x in (-0.22, 0.22)]
    if setting in ("rural", "motorway") or rng.random() < 0.6:
        left = yellow if setting == "motorway" and rng.random() < 0.4 else white
        markings += [
            Marking(-oncoming * lane_m, width, left),
            Marking(ahead * lane_m, width, white),
        ]
    return tuple(markings)


def _maybe(rng: np.random.Generator, chance: float, low: float, high: float) -> float:
    """A value of [low, high) with the given chance, else 0."""
    return float(rng.uniform(low, high)) if rng.random() < chance else 0.0


# -- what stands and moves along the road ------------------------------------------------

_SIGHT_M = 110.0
_GREEN = {"urban": 0.35, "suburban": 0.8, "rural": 0.8, "motorway": 0.5}


@dataclass(frozen=True, slots=True)
class Thing:
    """An object at a place along the road at one instant."""

    stream: Stream
    x_m: float
    z_m: float
    looks: Sequence[float]  # 12 in [0, 1)


@dataclass(frozen=True, slots=True)
class Stream:
    """An endless row of slots that travels at one speed; a share of `density` holds a thing.

    So things of one lane never collide, every motion is continuous, and the state of any instant
    can be computed without the instants before it.

    `speed_mps` is over ground, positive in the driving direction. `spread_m` scatters the
    things sideways; `crossing_mps` moves them to and fro over that width. With `lead_m` the
    row does not pass but keeps its place before the camera, at about that distance.
    """

    kind: str
    x_m: float
    spacing_m: float
    density: float
    looks: Sequence[Sequence[float]]  # 12 in [0, 1) for each of SLOTS
    speed_mps: float = 0.0
    near_m: float = 2.0
    far_m: float = _SIGHT_M
    spread_m: float = 0.0
    crossing_mps: float = 0.0
    sway_m: float = 0.0
    truck_share: float = 0.0
    lead_m: float | None = None

    def things(self, seconds: float, driven_m: float) -> Iterator[Thing]:
        """Yield the things in sight after `driven_m` metres, far ones first."""
        if self.lead_m is None:
            shift = self.speed_mps * seconds - driven_m
            first = math.ceil((self.near_m - shift) / self.spacing_m - 0.5)
        else:
            gap = self.lead_m * (0.35 + 0.3 * self.looks[0][11])
            shift = self.lead_m + gap * math.sin(0.4 * seconds + 6.3 * self.looks[0][10])
            first = 0
        last = math.floor((self.far_m - shift) / self.spacing_m + 0.5)
        for slot in range(last, first - 1, -1):
            u = self.looks[slot % SLOTS]
            if u[8] >= self.density:
                continue
            z = (slot + 0.4 * (u[9] - 0.5)) * self.spacing_m + shift
            if not self.near_m <= z <= self.far_m:
                continue
            across = u[10] - 0.5
            if self.crossing_mps and self.spread_m:
                turns = self.crossing_mps * seconds / self.spread_m + 2.0 * u[10]
                across = abs(turns % 2.0 - 1.0) - 0.5
            sway = self.sway_m * math.sin(0.7 * seconds + 6.3 * u[11])
            yield Thing(self, self.x_m + across * self.spread_m + sway, z, u)


def farthest_m(kind: Kind, camera: Camera, width: int) -> float:
    """The distance beyond which a kind is too small to be painted."""
    smallest = _SMALLEST_PX[kind] * width / 640.0
    return min(_SIGHT_M, _TYPICAL_HEIGHT_M[kind] * camera.focal_px / smallest)


def plan_streams(
    rng: np.random.Generator, road: Road, camera: Camera, width: int
) -> tuple[Stream, ...]:
    """Draw traffic, people, signs and scenery for a road seen in frames of `width` pixels."""
    planner = _Planner(rng, road, {kind: farthest_m(kind, camera, width) for kind in Kind})
    planner.plan_traffic()
    for side in (0, 1):
        planner.plan_people(side)
        planner.plan_furniture(side)
        planner.plan_scenery(side)
    planner.plan_crossing_people()
    return tuple(planner.streams)


class _Planner:
    """Collects the streams of one road."""

    def __init__(self, rng: np.random.Generator, road: Road, far_m: dict[Kind, float]) -> None:
        self.rng = rng
        self.road = road
        self.far_m = far_m
        self.streams: list[Stream] = []

    def add(self, kind: str, x_m: float, spacing_m: float, density: float, **more: Any) -> None:
        # Plain floats: arithmetic on numpy scalars takes three times as long.
        looks = self.rng.random((SLOTS, 12)).tolist()
        self.streams.append(Stream(kind, x_m, spacing_m, density, looks, **more))

    def between(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def plan_traffic(self) -> None:
        road, between = self.road, self.between
        density = between(0.25, 0.9)
        passing = {"near_m": -9.0, "far_m": self.far_m[Kind.TRUCK], "sway_m": 0.15}
        passing["truck_share"] = between(0.1, 0.5)
        for x in road.ahead_x_m:
            if x != road.own_lane_x_m:
                speed = road.speed_mps + between(-5.0, 5.0)
                self.add("vehicle", x, between(20, 38), density, speed_mps=speed, **passing)
            elif self.chance(0.7):
                lead = between(9.0, 30.0)
                self.add("vehicle", x, between(20, 35), 0.9, lead_m=lead, **passing)
        for x in road.oncoming_x_m:
            speed = -(road.speed_mps + between(-3.0, 3.0))
            self.add("oncoming", x, between(20, 38), density, speed_mps=speed, **passing)
        parked = {"near_m": -9.0, "far_m": self.far_m[Kind.CAR], "truck_share": 0.08}
        for side in (0, 1):
            strip = road.parking_m[side]
            if strip:
                x = road.lanes_m[side] + _outward(side) * (0.4 + strip / 2)
                facing = "oncoming" if side == 0 and road.oncoming_x_m else "vehicle"
                self.add(facing, x, between(6.5, 12.0), between(0.2, 0.9), **parked)

    def plan_people(self, side: int) -> None:
        road, between = self.road, self.between
        if road.motorway:
            return
        out = _outward(side)
        if self.chance(0.65):
            x = road.edges_m[side] - out * (road.parking_m[side] + 0.5)
            speed = between(3.0, 6.5) * (-1.0 if side == 0 and road.oncoming_x_m else 1.0)
            self.add(
                "cyclist", x, between(9, 22), between(0.3, 0.8), speed_mps=speed,
                far_m=self.far_m[Kind.CYCLIST], sway_m=0.2, spread_m=0.3,
            )  # fmt: skip
        if not road.sidewalk_m[side] and not self.chance(0.25):
            return
        room = max(1.0, road.sidewalk_m[side] - 0.6)
        for heading in (-1.0, 1.0):
            x = road.edges_m[side] + out * (0.3 + room * (0.5 + 0.22 * heading))
            speed = heading * between(0.8, 1.7)
            self.add(
                "pedestrian", x, between(3, 9), between(0.15, 0.75), speed_mps=speed,
                far_m=self.far_m[Kind.PEDESTRIAN], spread_m=0.45 * room, sway_m=0.1,
            )  # fmt: skip

    def plan_crossing_people(self) -> None:
        left, right = self.road.edges_m
        if not self.road.motorway and self.chance(0.45):
            self.add(
                "pedestrian", (left + right) / 2, self.between(9, 30), 0.6, near_m=4.0,
                far_m=self.far_m[Kind.PEDESTRIAN], spread_m=right - left,
                crossing_mps=self.between(0.9, 1.8),
            )  # fmt: skip

    def plan_furniture(self, side: int) -> None:
        """Plan signs and lamp posts."""
        road, between, out = self.road, self.between, _outward(side)
        outer = road.edges_m[side] + out * road.sidewalk_m[side]
        if self.chance(0.85):
            foot = outer if self.chance(0.5) else road.edges_m[side]
            x = foot + out * between(0.3, 0.9)
            far = self.far_m[Kind.SIGN]
            self.add("sign", x, between(14, 34), between(0.4, 0.9), far_m=far, spread_m=0.4)
        if self.chance(0.6):
            self.add("lamp", outer + out * 0.3, between(22, 40), 0.95, far_m=90.0)

    def plan_scenery(self, side: int) -> None:
        """Plan buildings, trees and bushes."""
        road, between, out = self.road, self.between, _outward(side)
        outer = road.edges_m[side] + out * road.sidewalk_m[side]
        built = road.setting == "urban" or (road.setting == "suburban" and self.chance(0.5))
        setback = between(0.3, 6.0)
        if built:
            x = outer + out * setback
            density = between(0.6, 1.0)
            self.add("building", x, between(10, 18), density, near_m=-16.0, far_m=130.0)
        if self.chance(_GREEN[road.setting]):
            x = outer + out * (between(0.4, 1.0) if built else between(0.8, 5.0))
            spread = 0.0 if built else 3.0
            self.add("tree", x, between(6, 16), between(0.4, 0.95), far_m=100.0, spread_m=spread)
        if self.chance(0.7) and not (built and setback < 2.0):
            x = outer + out * between(1.2, 2.5)
            self.add("bush", x, between(2.5, 8.0), 0.7, far_m=60.0, spread_m=1.2)


def _outward(side: int) -> float:
    """The direction away from the road on the left (0) or the right (1)."""
    return -1.0 if side == 0 else 1.0
