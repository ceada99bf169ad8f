# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The procedural drives: the same on every run, true to their ground truth, continuous."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jetson_dnn_rt.demo.scenes import (
    DETECTOR_CLASSES,
    SEGMENTER_CLASSES,
    SceneGenerator,
    held_out_seed,
    random_scene,
    training_seed,
)
from jetson_dnn_rt.demo.scenes.plan import MASK_OF, SMALLEST_BOX_PX, Kind, Surface
from jetson_dnn_rt.models.heads.boxes import iou_matrix

FRAME_NS = 33_333_333
SOME_SEEDS = range(24)


def digest(scene):
    parts = (scene.image, scene.boxes, scene.class_ids, scene.mask)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@pytest.fixture(scope="module")
def scenes():
    return [random_scene(held_out_seed(i)) for i in SOME_SEEDS]


def test_frames_depend_on_seed_and_time_alone():
    assert DETECTOR_CLASSES == ("car", "truck", "pedestrian", "cyclist", "sign")
    surfaces = "background road lane_marking sidewalk sky vegetation vehicle person"
    assert tuple(surfaces.split()) == SEGMENTER_CLASSES
    times = [0, 5_000_000_000, 1_000_000_000, 4 * 3600 * 1_000_000_000]
    first, second = SceneGenerator(7), SceneGenerator(7)
    out = np.full((480, 640, 3), 77, np.uint8)  # is written in place
    forwards = {t: digest(first.render(t, out)) for t in times}
    backwards = {t: digest(second.render(t)) for t in reversed(times)}
    assert forwards == backwards
    assert len(set(forwards.values())) == len(times)
    assert digest(SceneGenerator(8).render(0)) != forwards[0]
    late = first.render(times[-1], out)  # the drive goes on for hours
    assert late.image is out
    assert set(np.unique(late.mask)) > {Surface.ROAD, Surface.SKY}


def test_another_process_paints_the_same_pixels():
    program = (
        "import test_scenes; from jetson_dnn_rt.demo.scenes import random_scene;"
        "print(test_scenes.digest(random_scene(3)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "123"},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == digest(random_scene(3))


@pytest.mark.parametrize("size", [(64, 64), (240, 320), (360, 640), (540, 960)])
def test_any_size(size):
    scene = random_scene(11, size)
    assert scene.image.shape == (*size, 3)
    assert scene.mask.shape == size
    assert (scene.boxes >= 0).all()
    assert (scene.boxes[:, 2:] <= np.array(size[::-1])).all()


def test_types_and_ranges(scenes):
    for scene in scenes:
        assert scene.image.dtype == np.uint8
        assert scene.boxes.dtype == np.float32
        assert scene.boxes.shape == (len(scene.class_ids), 4)
        assert scene.class_ids.dtype == np.int64
        assert scene.mask.dtype == np.uint8
        assert scene.mask.max() < len(SEGMENTER_CLASSES)
        assert scene.class_ids.max(initial=0) < len(DETECTOR_CLASSES)
        assert scene.image.std() > 5.0


def test_boxes_are_tight_around_the_pixels_of_their_kind(scenes):
    checked = 0
    for scene in scenes:
        for box, class_id in zip(scene.boxes.astype(int), scene.class_ids, strict=True):
            x0, y0, x1, y1 = box
            assert min(x1 - x0, y1 - y0) >= SMALLEST_BOX_PX
            own = scene.mask[y0:y1, x0:x1] == MASK_OF[Kind(class_id)]
            assert all(side.any() for side in (own[0], own[-1], own[:, 0], own[:, -1]))
            checked += 1
    assert checked > 5 * len(scenes)


@pytest.mark.parametrize(
    ("surface", "kinds"),
    [(Surface.VEHICLE, (Kind.CAR, Kind.TRUCK)), (Surface.PERSON, (Kind.PEDESTRIAN, Kind.CYCLIST))],
)
def test_nearly_all_vehicles_and_people_of_the_mask_have_a_box(scenes, surface, kinds):
    boxed = total = 0
    for scene in scenes:
        inside = np.zeros(scene.mask.shape, bool)
        for (x0, y0, x1, y1), class_id in zip(
            scene.boxes.astype(int), scene.class_ids, strict=True
        ):
            if class_id in kinds:
                inside[y0:y1, x0:x1] = True
        own = scene.mask == surface
        boxed += np.count_nonzero(own & inside)
        total += np.count_nonzero(own)
    assert total > 0
    assert boxed > 0.95 * total


def test_every_class_occurs(scenes):
    kinds = np.concatenate([scene.class_ids for scene in scenes])
    surfaces = np.bincount(
        np.concatenate([scene.mask.ravel() for scene in scenes]), minlength=len(Surface)
    )
    assert set(kinds) == set(range(len(DETECTOR_CLASSES)))
    assert (surfaces > 0).all()


def test_motion_is_continuous():
    """From one frame to the next each object moves a little; it neither jumps nor changes."""
    followed = lost = moved = 0
    for seed in range(10):
        generator = SceneGenerator(seed)
        before = generator.render(3_000_000_000)
        after = generator.render(3_000_000_000 + FRAME_NS)
        moved += not np.array_equal(before.mask, after.mask)
        inner = (before.boxes[:, :2] > 8).all(1) & (before.boxes[:, 2:] < (632, 472)).all(1)
        for box, class_id in zip(before.boxes[inner], before.class_ids[inner], strict=True):
            others = after.boxes[after.class_ids == class_id]
            best = iou_matrix(box[None], others).max(initial=0.0)
            followed += 1
            lost += best < 0.5
    assert moved == 10
    assert followed > 30
    # A box may vanish when something passes before it.
    assert lost <= 0.05 * followed


def test_training_and_held_out_seeds_are_apart():
    last = (1 << 40) - 1
    assert training_seed(last) < held_out_seed(0)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (training_seed, (-1,), "index must be in"),
        (held_out_seed, (1 << 40,), "index must be in"),
        (SceneGenerator, (-1,), "seed must not be negative"),
        (SceneGenerator, (0, (480, 63)), "size must be at least 64 x 64"),
        (SceneGenerator(0).render, (-1,), "t_ns must not be negative"),
        (SceneGenerator(0).render, (0, np.zeros((480, 640), np.uint8)), "out must be a C-contig"),
        (SceneGenerator(0).render, (0, np.zeros((480, 640, 3))), "out must be a C-contiguous"),
        (
            SceneGenerator(0).render,
            (0, np.zeros((480, 1280, 3), np.uint8)[:, ::2]),
            "out must be a C-contiguous uint8 array",
        ),
    ],
)
def test_bad_arguments_are_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
