# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A bag of a video holds its frames, over and over; and what cannot be made is said."""

from __future__ import annotations

import cv2
import make_bag
import numpy as np
import pytest

from jetson_dnn_rt.cameras.bags.image_bag import BagImage, open_image_bag


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """Six frames of 64x32 pixels, each of another grey."""
    path = tmp_path_factory.mktemp("video") / "drive.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 25.0, (64, 32))
    for grey in range(6):
        writer.write(np.full((32, 64, 3), 40 * grey, np.uint8))
    writer.release()
    return path


@pytest.mark.parametrize(
    ("options", "topic"),
    [
        ([], "/camera/image_raw"),
        (["--compressed"], "/camera/image_raw/compressed"),
        (["--storage", "mcap", "--zstd", "storage", "--topic", "/left"], "/left"),
        (["--zstd", "message"], "/camera/image_raw"),
        (["--compressed", "--zstd", "file"], "/camera/image_raw/compressed"),
    ],
)
def test_frames_come_over_and_over(video, tmp_path, options, topic):
    path = tmp_path / "bag"
    command = [str(video), str(path), "--frames", "15", "--rate", "10", "--height", "16"]
    assert make_bag.main([*command, *options]) == 0
    with open_image_bag(path) as bag:
        assert (bag.topic, bag.count, bag.notes) == (topic, 15, [])
        assert (np.diff(bag.log_times_ns) == 100_000_000).all()
        images = list(bag.read())
    for place, image in enumerate(images):
        assert isinstance(image, BagImage)
        assert image.log_time_ns - image.frame.stamp_ns == 3_000_000
        assert image.frame.image.shape == (16, 32, 3)
        assert abs(float(image.frame.image.mean()) - 40 * (place % 6)) < 3.0


@pytest.mark.parametrize(
    ("video_name", "options", "said"),
    [
        ("none.avi", [], "none.avi has no frame"),
        ("drive.avi", ["--rate", "0"], "the rate > 0 Hz"),
        ("drive.avi", ["--zstd", "storage"], "does not support storage-side compression"),
    ],
)
def test_what_cannot_be_made_is_said(video, tmp_path, capsys, video_name, options, said):
    command = [str(video.with_name(video_name)), str(tmp_path / "bag"), "--frames", "2"]
    assert make_bag.main([*command, *options]) == 2
    assert said in capsys.readouterr().err


def test_nothing_is_written_over(video, tmp_path, capsys):
    assert make_bag.main([str(video), str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        make_bag.main([str(video), str(tmp_path / "bag"), "--frames", "0"])
