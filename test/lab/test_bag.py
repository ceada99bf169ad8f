# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A bag of a video or of photos holds its frames with their times; what cannot be made is said."""

from __future__ import annotations

import json
import sqlite3

import cv2
import numpy as np
import pytest

from jetson_dnn_rt.cameras.bags.image_bag import BagImage, open_image_bag
from jetson_dnn_rt.cli.main import main
from jetson_dnn_rt.lab import bag as bag_module


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """Six frames of 64x32 pixels at 25 Hz, each of another grey."""
    path = tmp_path_factory.mktemp("video") / "drive.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 25.0, (64, 32))
    for grey in range(6):
        writer.write(np.full((32, 64, 3), 40 * grey, np.uint8))
    writer.release()
    return path


def read(path):
    with open_image_bag(path) as bag:
        assert bag.notes == []
        images = list(bag.read())
        assert all(isinstance(image, BagImage) for image in images)
        return bag.topic, images, np.diff(bag.log_times_ns)


@pytest.mark.parametrize(
    ("options", "topic", "count", "step_ms"),
    [
        ([], "/camera/image_raw", 6, 40),
        (["--frames", "15"], "/camera/image_raw", 15, 40),  # over and over
        (["--jpeg", "--rate", "10"], "/camera/image_raw/compressed", 6, 100),
        (["--format", "mcap", "--zstd", "storage", "--topic", "/left"], "/left", 6, 40),
        (["--frames", "4", "--zstd", "message"], "/camera/image_raw", 4, 40),
        (["--jpeg", "--zstd", "file"], "/camera/image_raw/compressed", 6, 40),
        (["--format", "mcap", "--jpeg"], "/camera/image_raw/compressed", 6, 40),
    ],
)
def test_frames_come_with_the_times_of_the_video(
    video, tmp_path, capsys, options, topic, count, step_ms
):
    path = tmp_path / "bag"
    assert main(["bag", str(video), "-o", str(path), "--height", "16", "--json", *options]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    size = sum(file.stat().st_size for file in path.iterdir())
    assert report == {"bag": str(path), "topic": topic, "frames": count, "bytes": size}
    found, images, steps = read(path)
    assert (found, len(images)) == (topic, count)
    assert (steps == step_ms * 1_000_000).all()
    for place, image in enumerate(images):
        assert image.log_time_ns - image.frame.stamp_ns == 3_000_000
        assert image.frame.image.shape == (16, 32, 3)
        assert abs(float(image.frame.image.mean()) - 40 * (place % 6)) < 3.0


def test_photos_come_by_name_ten_a_second_in_their_sizes(tmp_path):
    folder, path = tmp_path / "photos", tmp_path / "bag"
    folder.mkdir()
    sizes = [(8, 12), (30, 20), (8, 12)]
    for place, size in enumerate(sizes):
        cv2.imwrite(str(folder / f"{place}.png"), np.full((*size, 3), 50 * place, np.uint8))
    assert main(["bag", str(folder), "-o", str(path)]) == 0
    _, images, steps = read(path)
    assert [image.frame.image.shape[:2] for image in images] == sizes
    assert [int(image.frame.image.mean()) for image in images] == [0, 50, 100]
    assert (steps == 100_000_000).all()


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("none.avi", [], "none.avi is not there"),
        ("text.avi", [], "cannot be read as a video"),
        ("empty", [], "holds no image"),
        ("drive.avi", ["--zstd", "storage"], "does not support storage-side compression"),
        ("drive.avi", ["--topic", "a b"], "a b"),
        ("drive.avi", ["-o", "{video}/x"], "cannot write"),
    ],
)
def test_what_cannot_be_made_is_said_and_leaves_nothing(
    video, tmp_path, capsys, source, options, said
):
    (video.parent / "empty").mkdir(exist_ok=True)
    (video.parent / "text.avi").write_text("no video")
    options = [option.format(video=video) for option in options]
    command = ["bag", str(video.with_name(source)), "-o", str(tmp_path / "bag"), *options]
    assert main(command) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(video, tmp_path, capsys):
    (tmp_path / "mine").touch()
    assert main(["bag", str(video), "-o", str(tmp_path)]) == 2
    assert f"{tmp_path} exists already: give another name" in capsys.readouterr().err
    assert (tmp_path / "mine").exists()


def test_a_full_disk_is_said_and_leaves_nothing(video, tmp_path, monkeypatch, capsys):
    """EDGES, campaign 5: what writes sqlite raises errors of its own."""

    def fail(*args):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("rosbags.rosbag2.Writer.write", fail)
    assert main(["bag", str(video), "-o", str(tmp_path / "bag")]) == 2
    assert "database or disk is full" in capsys.readouterr().err
    assert not (tmp_path / "bag").exists()


def test_a_bag_that_is_interrupted_is_removed(video, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(bag_module, "_make_raw", interrupt)
    assert main(["bag", str(video), "-o", str(tmp_path / "bag")]) == 130
    assert not (tmp_path / "bag").exists()
