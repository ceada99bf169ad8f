"""`bench replay`: deadlines with some pressure, and when two miss ratios agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from traced_jobs import METADATA, make_record

from benchmarks.bag_writer import read_frames, write_bag
from benchmarks.replay import PRESSURE, choose_deadlines, compare_misses
from jetson_dnn_rt.cameras.bags.image_bag import BagImage, open_image_bag
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.lab.evaluate.simulated import read_recorded
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.writer import TraceWriter

MS = 1_000_000


def test_deadlines_are_missed_now_and_then(tmp_path: Path) -> None:
    """Times that vary by half: the share that misses is found by the simulator."""
    generator = np.random.default_rng(3)
    with TraceWriter(tmp_path, METADATA) as writer:
        for place, factor in enumerate(generator.uniform(1.0, 1.5, 100)):
            stages_ns = (MS, round(8 * MS * factor))
            writer.write(make_record(place, stages_ns=stages_ns), wait=True)
    rate_hz, deadlines_ms, miss_ratio = choose_deadlines(read_recorded([open_trace(tmp_path)]))
    assert 40.0 < rate_hz < 70.0
    assert 9.0 < deadlines_ms["detector"] < 14.0
    low, high = PRESSURE
    assert low < miss_ratio < high


def ratios(detector: float, segmenter: float) -> dict[str, Any]:
    return {
        "miss_ratio": (detector + segmenter) / 2,
        "tasks": {
            "detector": {"miss_ratio": detector},
            "segmenter": {"miss_ratio": segmenter},
        },
    }


@pytest.mark.parametrize(
    ("live", "simulated", "passed"),
    [
        ((0.10, 0.20), (0.11, 0.19), True),
        ((0.10, 0.20), (0.10, 0.25), False),
        ((0.01, 0.02), (0.01, 0.02), False),  # nothing is missed: nothing is said
        ((0.60, 0.50), (0.60, 0.50), False),
    ],
)
def test_agreement(
    live: tuple[float, float], simulated: tuple[float, float], passed: bool
) -> None:
    found = compare_misses(ratios(*live), ratios(*simulated))
    assert found["passed"] is passed
    assert set(found["tasks"]) == {"all", "detector", "segmenter"}


def test_a_bag_of_a_video(tmp_path: Path) -> None:
    video = tmp_path / "video.avi"
    writer = cv2.VideoWriter(str(video), cv2.VideoWriter_fourcc(*"MJPG"), 25.0, (64, 32))
    for grey in (40, 80, 120):
        writer.write(np.full((32, 64, 3), grey, np.uint8))
    writer.release()
    bag = write_bag(tmp_path / "bag", read_frames(video, 7, height=16))
    with open_image_bag(bag) as images:
        found = [image for image in images.read() if isinstance(image, BagImage)]
    assert len(found) == 7
    assert {image.frame.image.shape for image in found} == {(16, 32, 3)}
    means = [float(image.frame.image.mean()) for image in found]
    np.testing.assert_allclose(means, [40, 80, 120, 40, 80, 120, 40], atol=4)
    assert np.diff([image.frame.stamp_ns for image in found]).tolist() == [40 * MS] * 6
    with pytest.raises(ConfigurationError, match="exists already"):
        write_bag(bag, [])
    with pytest.raises(SourceError, match="has no frame"):
        next(read_frames(tmp_path / "nothing.avi", 1, height=16))
