# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Objects keep their numbers: over skipped frames, past each other, and until they are lost."""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("trackforge", reason="trackforge is not installed")

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.tracking import Tracker
from jetson_dnn_rt.results import Detections

PERIOD_NS = 33_333_333
SECOND_NS = 1_000_000_000
PICTURE = np.zeros((2, 2, 3), np.uint8)
WIDTH, HEIGHT = 1920.0, 1080.0


def make_tracker(lost_ns=SECOND_NS, start_score=0.5, period_ns=PERIOD_NS):
    tracker = Tracker(lost_ns, start_score)
    tracker.start(period_ns)
    return tracker


def frame(number, stamp_ns=None):
    return Frame(PICTURE, "bgr8", number * PERIOD_NS if stamp_ns is None else stamp_ns, number)


def detect(boxes, scores=None, class_ids=None):
    boxes = np.asarray(boxes, np.float32).reshape(-1, 4)
    count = len(boxes)
    return Detections(
        boxes,
        np.full(count, 0.9, np.float32) if scores is None else np.asarray(scores, np.float32),
        np.zeros(count, np.int64) if class_ids is None else np.asarray(class_ids, np.int64),
    )


class Scene:
    """Objects with constant speeds, seen by a detector that is not exact.

    `starts`, `speeds` and `sizes` are [N, 2] in pixels, speeds per frame. Scores fall below the
    one that begins a track now and then, and classes flicker between 0 and 1.
    """

    def __init__(self, starts, speeds, sizes, seed=0):
        self.starts, self.speeds, self.sizes = (
            np.asarray(value, float) for value in (starts, speeds, sizes)
        )
        self.random = np.random.default_rng(seed)

    def look(self, number):
        """Which objects are seen in a frame, in the order of their scores, and their boxes."""
        centres = self.starts + number * self.speeds
        boxes = np.concatenate([centres - self.sizes / 2, centres + self.sizes / 2], axis=1)
        sides = np.concatenate([self.sizes, self.sizes], axis=1)
        boxes += self.random.normal(0.0, 0.015, boxes.shape) * sides
        boxes = np.clip(boxes, 0.0, [WIDTH, HEIGHT, WIDTH, HEIGHT])
        seen = np.flatnonzero(np.all(boxes[:, 2:] - boxes[:, :2] > 4.0, axis=1))
        scores = self.random.uniform(0.6, 0.95, len(self.starts))
        scores[self.random.random(len(scores)) < (0.15 if number else 0.0)] = 0.35
        seen = seen[np.argsort(-scores[seen])]
        classes = (self.random.random(len(seen)) < 0.1).astype(int)
        return seen, detect(boxes[seen], scores[seen], classes)


def choose_frames(total, dropped_of_6, seed):
    """Numbers of the frames that are answered: of each six so many are dropped at random."""
    random = np.random.default_rng(seed)
    return [
        first + place
        for first in range(0, total, 6)
        for place in sorted(random.permutation(6)[dropped_of_6:])
        if first + place < total
    ]


def follow(tracker, scene, numbers):
    """The ids of each object, in the order in which it got them."""
    ids = defaultdict(list)
    for number in numbers:
        seen, detections = scene.look(number)
        tracked = tracker.update(detections, frame(number))
        for thing, track in zip(seen.tolist(), tracked.track_ids.tolist(), strict=True):
            if track != (ids[thing] or [None])[-1]:
                ids[thing].append(track)
    return dict(ids)


def make_traffic(seed):
    """Twelve objects in as many lanes, none of which leaves the picture within 200 frames."""
    random = np.random.default_rng(seed)
    lanes = np.arange(12) * 85.0 + 70.0
    speeds = random.uniform(0.5, 4.0, 12) * random.choice([-1, 1], 12)
    starts = np.where(speeds > 0, random.uniform(100, 900, 12), random.uniform(1000, 1800, 12))
    sizes = random.uniform((60, 50), (160, 80), (12, 2))
    return Scene(
        np.stack([starts, lanes], 1), np.stack([speeds, random.uniform(-0.1, 0.1, 12)], 1), sizes,
        seed,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dropped", [0, 1, 2, 5])
def test_an_object_keeps_its_number_over_skipped_frames(dropped, seed):
    ids = follow(make_tracker(), make_traffic(seed), choose_frames(200, dropped, seed))
    assert len(ids) == 12
    # What scored too little at first had no number then, and one ever since.
    tracks = [[track for track in found if track >= 0] for found in ids.values()]
    assert all(len(found) == 1 for found in tracks), ids
    assert len({found[0] for found in tracks}) == 12


@pytest.mark.parametrize(("speed", "step"), [(25, 2), (15, 3), (8, 6), (6, 10)])
def test_a_car_is_looked_for_where_its_speed_takes_it(speed, step):
    """Most of the frames are skipped from the sixth on: its next box hardly touches its last."""
    scene = Scene([(100, 500)], [(speed, 0)], [(60, 60)])
    numbers = [*range(6), *range(6, 66, step)]
    assert follow(make_tracker(), scene, numbers) == {0: [1]}


@pytest.mark.parametrize("dropped", [0, 1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_crossing_objects_keep_theirs(dropped, seed):
    scene = Scene(
        [(200, 400), (1700, 420), (960, 100), (950, 900)],
        [(8, 0), (-7, 0), (0, 4), (0, -3)],
        [(120, 90), (150, 100), (60, 110), (70, 120)],
        seed,
    )
    numbers = [*range(12), *(n for n in choose_frames(186, dropped, seed) if n > 11)]
    ids = follow(make_tracker(), scene, numbers)
    assert sorted(ids.values()) == [[1], [2], [3], [4]]


def test_what_leaves_does_not_give_its_number_to_what_comes():
    """The second enters where the first has left, two seconds later."""
    first = Scene([(1700, 500)], [(6, 0)], [(100, 80)])
    second = Scene([(2200, 500)], [(-6, 0)], [(100, 80)])
    tracker = make_tracker()
    assert follow(tracker, first, range(120)) == {0: [1]}
    assert follow(tracker, second, range(120, 200)) == {0: [2]}


@pytest.mark.parametrize(("missed", "expected"), [(5, 1), (25, 1), (40, 2)])
def test_an_object_that_is_hidden_comes_back_within_the_time_it_may_be_lost(missed, expected):
    """Frames without it are answered, too: the others go on."""
    tracker, still = make_tracker(), (900, 900, 1000, 1000)
    for number in range(20):
        tracked = tracker.update(detect([(100, 100, 200, 200), still]), frame(number))
    for number in range(20, 20 + missed):
        tracked = tracker.update(detect([still]), frame(number))
        assert tracked.track_ids.tolist() == [2]
    tracked = tracker.update(detect([(100, 100, 200, 200), still]), frame(20 + missed))
    assert tracked.track_ids.tolist() == [{1: 1, 2: 3}[expected], 2]


@pytest.mark.parametrize("gap_ms", [900, 1000])
def test_a_gap_shorter_than_that_is_bridged(gap_ms):
    tracker = make_tracker()
    for number in range(10):
        tracker.update(detect([(100 + number, 100, 200 + number, 200)]), frame(number))
    later = frame(10, 9 * PERIOD_NS + gap_ms * 1_000_000)
    moved = 9 + gap_ms / 33.333
    assert tracker.update(
        detect([(100 + moved, 100, 200 + moved, 200)]), later
    ).track_ids.tolist() == [1]


@pytest.mark.parametrize("stamp_ns", [-1, -5 * SECOND_NS, SECOND_NS + 2 * PERIOD_NS, 1 << 62])
def test_all_is_forgotten_when_time_jumps(stamp_ns):
    """Back, as a bag that is played again, or far ahead; numbers are never given twice."""
    tracker = make_tracker()
    start_ns = 10 * SECOND_NS
    boxes = detect([(100, 100, 200, 200), (400, 400, 500, 500)])
    for number in range(5):
        tracked = tracker.update(boxes, frame(number, start_ns + number * PERIOD_NS))
    assert sorted(tracked.track_ids.tolist()) == [1, 2]
    after_ns = start_ns + 4 * PERIOD_NS + stamp_ns
    for number in range(5, 8):
        stamp = after_ns + (number - 5) * PERIOD_NS
        tracked = tracker.update(boxes, frame(number, stamp))
        assert sorted(tracked.track_ids.tolist()) == [3, 4]


def test_start_forgets_too():
    tracker, boxes = make_tracker(), detect([(100, 100, 200, 200)])
    assert tracker.update(boxes, frame(0)).track_ids.tolist() == [1]
    tracker.start(PERIOD_NS)
    assert tracker.update(boxes, frame(1)).track_ids.tolist() == [2]


@pytest.mark.parametrize("lost_ns", [0, 60 * SECOND_NS])
def test_any_time_that_an_object_may_be_lost_keeps_one_that_is_seen(lost_ns):
    tracker = make_tracker(lost_ns)
    scene = Scene([(100, 500)], [(8, 0)], [(60, 60)])
    assert follow(tracker, scene, range(100)) == {0: [1]}


def test_frames_without_stamps_are_counted():
    """Every third one is answered; its box is beside the last one."""
    tracker = make_tracker()
    for number in [*range(8), *range(8, 80, 3)]:
        x = 100 + 20 * number
        tracked = tracker.update(detect([(x, 100, x + 50, 150)]), frame(number, 0))
        assert tracked.track_ids.tolist() == [1]


def test_only_a_sure_box_begins_a_track_and_any_box_continues_one():
    tracker = make_tracker(start_score=0.5)
    box = [(100, 100, 200, 200)]
    given = [0.49, 0.5, 0.31, 0.05, 0.9]
    found = [tracker.update(detect(box, [s]), frame(n)).track_ids[0] for n, s in enumerate(given)]
    assert found == [-1, 1, 1, 1, 1]


coordinates = st.floats(0.0, 500.0, width=32)
objects = st.lists(
    st.tuples(coordinates, coordinates, st.floats(0.25, 400.0, width=32), coordinates,
              st.floats(0.0, 1.0, width=32)),
    max_size=8,
)  # fmt: skip


@given(st.lists(st.tuples(objects, st.integers(-2 * SECOND_NS, 3 * SECOND_NS)), max_size=12))
def test_whatever_comes_no_two_boxes_of_a_frame_have_one_number(frames):
    tracker, stamp_ns, highest = make_tracker(), 0, 0
    for number, (things, step_ns) in enumerate(frames):
        stamp_ns += step_ns
        corners = [(x, y, x + side, y + side + high) for x, y, side, high, _ in things]
        detections = detect(corners, [thing[-1] for thing in things])
        tracked = tracker.update(detections, frame(number, stamp_ns))
        assert tracked.boxes is detections.boxes
        assert tracked.scores is detections.scores
        ids = tracked.track_ids
        assert ids.dtype == np.int64
        assert ids.shape == (len(things),)
        numbered = ids[ids >= 0].tolist()
        assert len(set(numbered)) == len(numbered)
        assert 0 not in numbered
        new = [track for track in numbered if track > highest]
        assert new == [] or min(new) == highest + 1
        highest = max([highest, *numbered])


def test_without_the_library_the_fix_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "trackforge", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'jetson_dnn_rt\[tracking\]'"):
        Tracker(SECOND_NS, 0.5)
