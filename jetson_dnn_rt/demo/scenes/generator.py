# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A drive along a procedural road, frame by frame, with its ground truth."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.demo.scenes import things
from jetson_dnn_rt.demo.scenes.canvas import Canvas, Image
from jetson_dnn_rt.demo.scenes.ground import paint_backdrop, paint_ground, paint_markings
from jetson_dnn_rt.demo.scenes.plan import (
    LEAST_VISIBLE,
    MASK_OF,
    SMALLEST_BOX_PX,
    Kind,
    Stream,
    Surface,
    Thing,
    farthest_m,
    plan_camera,
    plan_light,
    plan_road,
    plan_streams,
)
from jetson_dnn_rt.demo.scenes.things import Spot

_FIRST_OBJECT = len(Surface)  # label map: below it surfaces, from it on objects
_NEAREST_M = 1.2
_NOISE_MARGIN_PX = 64
# Extent of a thing sideways and away from us, where it is more than 1.6 and 0 m.
_REACH_M = {
    "vehicle": (1.6, 12.0),
    "oncoming": (1.6, 12.0),
    "tree": (3.2, 0.0),
    "bush": (2.0, 0.0),
    "building": (14.0, 18.0),
}


_SCENERY = {
    "tree": things.draw_tree, "bush": things.draw_bush, "lamp": things.draw_lamp_post,
}  # fmt: skip
_PEOPLE = {
    "pedestrian": (Kind.PEDESTRIAN, things.draw_pedestrian),
    "cyclist": (Kind.CYCLIST, things.draw_cyclist),
}


@dataclass(frozen=True, slots=True)
class Scene:
    """One painted frame and its ground truth."""

    image: Image  # [H, W, 3], BGR
    boxes: npt.NDArray[np.float32]  # [N, 4], xyxy in pixels, the visible extent of each object
    class_ids: npt.NDArray[np.int64]  # [N], indices into `DETECTOR_CLASSES`
    mask: Image  # [H, W], indices into `SEGMENTER_CLASSES`


@dataclass(frozen=True, slots=True)
class _Painted:
    """An object in the label map."""

    label: int
    kind: Kind
    extent: tuple[int, int, int, int]  # left, top, right, bottom: where its pixels can be
    pixels: int  # before anything nearer was painted


class SceneGenerator:
    """One drive along a procedural road, fixed by its seed.

    `render` keeps no state between frames: frames can be asked for in any order and are the
    same on every run. One thread at a time may use a generator.

    The same seed, not negative, gives the same pixels on every run. `size` is the (height, width)
    of the frames in pixels, each at least 64; else a `ValueError`.
    """

    def __init__(self, seed: int, size: tuple[int, int] = (480, 640)) -> None:
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        height, width = size
        if height < 64 or width < 64:
            raise ValueError(f"size must be at least 64 x 64 pixels, got {height} x {width}")
        self.seed = seed
        self.size = (height, width)
        rng = np.random.default_rng(seed)
        self._camera = plan_camera(rng, self.size)
        self._light = plan_light(rng)
        self._road = plan_road(rng)
        self._streams = plan_streams(rng, self._road, self._camera, width)
        self._backdrop = paint_backdrop(rng, self.size, self._camera, self._light, self._road)
        self._labels: Image = np.empty(self.size, np.uint8)

    def render(self, t_ns: int, out: Image | None = None) -> Scene:
        """Paint the frame at one instant of the drive, in any order.

        With `out`, uint8 [H, W, 3], C-contiguous, the image is written there and `Scene.image` is
        that array.
        """
        if t_ns < 0:
            raise ValueError(f"t_ns must not be negative, got {t_ns}")
        shape = (*self.size, 3)
        if out is None:
            out = np.empty(shape, np.uint8)
        elif out.shape != shape or out.dtype != np.uint8 or not out.flags.c_contiguous:
            raise ValueError(
                f"out must be a C-contiguous uint8 array of shape {shape}, "
                f"got {out.dtype} {out.shape}"
            )
        seconds = t_ns * 1e-9
        driven_m = self._road.speed_mps * seconds
        canvas = self._look(out, seconds)
        paint_ground(canvas, self._road, driven_m)
        paint_markings(canvas, self._road, driven_m)
        painted = self._paint_things(canvas, seconds, driven_m)
        boxes, class_ids, mask = self._read_truth(canvas, painted)
        self._develop(out, t_ns)
        return Scene(out, boxes, class_ids, mask)

    def _look(self, out: Image, seconds: float) -> Canvas:
        """Point the camera and copy the part of the backdrop that it sees."""
        camera, road = self._camera, self._road
        bounce = math.sin(7.1 * seconds) + 0.5 * math.sin(11.7 * seconds)
        winding = camera.winding_rad_s * seconds
        yaw = math.sin(0.3 * winding + 1e3 * camera.curvature_per_m)
        down = -round(camera.bounce_px * bounce)
        right = round(0.9 * self._backdrop.margin_x * yaw)
        self._backdrop.copy_window(down, right, out, self._labels)
        return Canvas(
            out,
            self._labels,
            focal_px=camera.focal_px,
            centre_px=camera.centre_px,
            horizon_px=int(camera.horizon_px) + camera.bounce_px * bounce,
            camera_height_m=camera.height_m,
            camera_x_m=road.mirror * road.own_lane_x_m + 0.15 * math.sin(0.5 * seconds),
            curvature_per_m=camera.curvature_per_m + camera.swing_per_m * math.sin(winding),
            haze=self._light.haze,
            visibility_m=self._light.visibility_m,
            exposure=self._light.exposure,
        )

    def _paint_things(self, canvas: Canvas, seconds: float, driven_m: float) -> list[_Painted]:
        """Paint buildings, then everything else, far things first; return the objects."""
        mirror = self._road.mirror
        standing: list[tuple[float, Thing]] = []
        for stream in self._streams:
            for thing in stream.things(seconds, driven_m):
                x = mirror * thing.x_m
                if not self._is_in_sight(canvas, x, thing):
                    continue
                if stream.kind == "building":
                    spot = Spot(canvas, x, thing.z_m, thing.looks, Surface.BACKGROUND)
                    things.draw_building(spot, stream.spacing_m)
                else:
                    standing.append((x, thing))
        standing.sort(key=lambda found: -found[1].z_m)
        painted: list[_Painted] = []
        for x, thing in standing:
            label = _FIRST_OBJECT + len(painted)
            spot = Spot(canvas, x, thing.z_m, thing.looks, label)
            if thing.stream.kind in _SCENERY:
                _SCENERY[thing.stream.kind](spot)
                continue
            if label > 255:
                raise RuntimeError(f"too many objects at once for the drive {self.seed}")
            canvas.begin_object(label)
            drawn = self._paint_object(spot, thing.stream, seconds)
            extent = canvas.object_extent()
            if drawn is not None and extent is not None:
                painted.append(_Painted(label, drawn, extent, canvas.count(label, extent)))
        return painted

    def _paint_object(self, spot: Spot, stream: Stream, seconds: float) -> Kind | None:
        """Paint one object and return its kind; None when it is too far away to be painted."""
        if stream.kind in _PEOPLE:
            kind, draw_person = _PEOPLE[stream.kind]
            draw_person(spot, seconds)
            return kind
        if stream.kind == "sign":
            things.draw_sign(spot)
            return Kind.SIGN
        truck = 7.3 * spot.looks[11] % 1.0 < stream.truck_share
        vehicle = Kind.TRUCK if truck else Kind.CAR
        if spot.z_m > farthest_m(vehicle, self._camera, self.size[1]):
            return None
        draw = things.draw_truck if truck else things.draw_car
        draw(spot, stream.kind == "oncoming")
        return vehicle

    def _is_in_sight(self, canvas: Canvas, x_m: float, thing: Thing) -> bool:
        """Whether any part of a thing can be within the columns of the image."""
        reach, depth = _REACH_M.get(thing.stream.kind, (1.6, 0.0))
        width = self.size[1]
        nearest = max(thing.z_m, _NEAREST_M)
        margin = reach * canvas.focal_px / nearest
        column = canvas.project(x_m, 0.0, nearest)[0]
        if -margin < column < width + margin:
            return True
        if not depth:
            return False
        # The far end can be in sight, or the near end on the left and the far on the right.
        end = canvas.project(x_m, 0.0, max(thing.z_m + depth, _NEAREST_M))[0]
        return min(column, end) - margin < width and max(column, end) + margin > 0.0

    def _read_truth(
        self, canvas: Canvas, painted: list[_Painted]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], Image]:
        """Read boxes, classes and mask out of the label map."""
        surfaces = np.arange(256, dtype=np.uint8)
        smallest = SMALLEST_BOX_PX * self.size[1] / 640.0
        boxes: list[tuple[int, int, int, int]] = []
        class_ids: list[int] = []
        for found in painted:
            surfaces[found.label] = MASK_OF[found.kind]
            left, top, right, bottom = found.extent
            visible = np.equal(canvas.labels[top:bottom, left:right], found.label).view(np.uint8)
            if cv2.countNonZero(visible) < max(1.0, LEAST_VISIBLE * found.pixels):
                continue
            x, y, w, h = cv2.boundingRect(visible)
            if min(w, h) >= smallest:
                boxes.append((left + x, top + y, left + x + w, top + y + h))
                class_ids.append(int(found.kind))
        mask = cv2.LUT(canvas.labels, surfaces).astype(np.uint8, copy=False)
        return np.array(boxes, np.float32).reshape(-1, 4), np.array(class_ids, np.int64), mask

    def _develop(self, image: Image, t_ns: int) -> None:
        """Blur and add sensor noise, in place."""
        blur, noise = self._light.blur_px, self._light.noise_sigma
        if blur:
            cv2.GaussianBlur(image, (blur, blur), 0, dst=image)
        if noise:
            height, width = self.size
            more, less = _noise_tiles(height, width, noise)
            step = (t_ns // 1_000_000) * 2_654_435_761 + self.seed * 40_503
            y, x = (step >> 8) % _NOISE_MARGIN_PX, (step >> 16) % _NOISE_MARGIN_PX
            window = (slice(y, y + height), slice(x, x + width))
            cv2.add(image, more[window], dst=image)
            cv2.subtract(image, less[window], dst=image)


@functools.lru_cache(maxsize=8)
def _noise_tiles(height: int, width: int, sigma: int) -> tuple[Image, Image]:
    """Positive and negative parts of the sensor noise, with a margin to shift it."""
    shape = (height + _NOISE_MARGIN_PX, width + _NOISE_MARGIN_PX, 3)
    noise = np.rint(np.random.default_rng(sigma).normal(0.0, sigma, shape))
    return np.clip(noise, 0, 255).astype(np.uint8), np.clip(-noise, 0, 255).astype(np.uint8)


# -- single frames of random drives: seeds for training and testing are kept apart ---------

_HELD_OUT_BASE = 1 << 40
_LONGEST_NS = 120_000_000_000


def training_seed(index: int) -> int:
    """The seed of training scene `index`; never one of `held_out_seed`."""
    return _check(index)


def held_out_seed(index: int) -> int:
    """The seed of held-out scene `index`; never one of `training_seed`."""
    return _HELD_OUT_BASE + _check(index)


def random_scene(seed: int, size: tuple[int, int] = (480, 640)) -> Scene:
    """One frame of the drive `seed`, at an instant that also depends on the seed."""
    t_ns = int(np.random.default_rng([seed, 1]).integers(0, _LONGEST_NS))
    return SceneGenerator(seed, size).render(t_ns)


def _check(index: int) -> int:
    if not 0 <= index < _HELD_OUT_BASE:
        raise ValueError(f"index must be in [0, {_HELD_OUT_BASE}), got {index}")
    return index
