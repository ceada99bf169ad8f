"""What stands and moves along the road, in streams.

A stream is an endless row of slots at a given spacing that travels at one speed. So things
of one lane never run into each other, every motion is continuous, and the state of any
instant can be computed without the instants before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jetson_dnn_rt.demo.scenes.classes import SMALLEST_PX, TYPICAL_HEIGHT_M, Kind
from jetson_dnn_rt.demo.scenes.plan import SLOTS, Camera, Road

__all__ = ["Stream", "Thing", "farthest_m", "plan_streams"]

_SIGHT_M = 110.0
_GREEN = {"urban": 0.35, "suburban": 0.8, "rural": 0.8, "motorway": 0.5}


@dataclass(frozen=True, slots=True)
class Thing:
    """Something at a place along the road at one instant."""

    stream: Stream
    x_m: float
    z_m: float
    looks: Sequence[float]  # 12 in [0, 1)


@dataclass(frozen=True, slots=True)
class Stream:
    """An endless row of slots; a share of `density` of them holds a thing.

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
    """Return the distance beyond which a kind is too small to be painted."""
    smallest = SMALLEST_PX[kind] * width / 640.0
    return min(_SIGHT_M, TYPICAL_HEIGHT_M[kind] * camera.focal_px / smallest)


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
        # Plain floats: arithmetic on numpy's scalars takes three times as long.
        looks = self.rng.random((SLOTS, 12)).tolist()
        self.streams.append(Stream(kind, x_m, spacing_m, density, looks, **more))

    def between(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def plan_traffic(self) -> None:
        road, between = self.road, self.between
        density = between(0.25, 0.9)
        passing = {
            "near_m": -9.0,
            "far_m": self.far_m[Kind.TRUCK],
            "sway_m": 0.15,
            "truck_share": between(0.1, 0.5),
        }
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
    """Return the direction away from the road on the left (0) or the right (1)."""
    return -1.0 if side == 0 else 1.0
