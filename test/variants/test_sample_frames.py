# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Frames out of videos, folders, real bags and the generator; and what is said of bad ones."""

from __future__ import annotations

import importlib.util
import sqlite3

import cv2
import numpy as np
import pytest
from photos import write_photos
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from jetson_dnn_rt.demo.scenes import random_scene, training_seed
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames, prepare_inputs, spread

STORE = get_typestore(Stores.ROS2_HUMBLE)
HEIGHT, WIDTH = 8, 12


def grey(value):
    return np.full((HEIGHT, WIDTH, 3), value, np.uint8)


def raw_message(image, encoding="bgr8"):
    return STORE.types["sensor_msgs/msg/Image"](
        header(),
        image.shape[0],
        image.shape[1],
        encoding,
        0,
        image.shape[1] * 3,
        image.reshape(-1),
    )


def compressed_message(data, form="png"):
    return STORE.types["sensor_msgs/msg/CompressedImage"](header(), form, data)


def header():
    stamp = STORE.types["builtin_interfaces/msg/Time"](3, 5)
    return STORE.types["std_msgs/msg/Header"](stamp, "front")


def write_bag(path, topics, plugin=StoragePlugin.MCAP):
    with Writer(path, version=9, storage_plugin=plugin) as writer:
        for topic, messages in topics.items():
            kind = messages[0].__msgtype__
            connection = writer.add_connection(topic, kind, typestore=STORE)
            for i, message in enumerate(messages):
                data = STORE.serialize_cdr(message, kind)
                writer.write(connection, 1_000_000 * (i + 1), data)
    return path


@pytest.mark.parametrize(
    ("count", "limit", "chosen"),
    [(3, 5, [0, 1, 2]), (10, 4, [0, 3, 6, 9]), (7, 1, [3]), (5, 5, [0, 1, 2, 3, 4])],
)
def test_spread_goes_from_the_first_to_the_last(count, limit, chosen):
    assert spread(count, limit) == chosen


def test_a_video_gives_its_frames_at_their_places(shared_data):
    path = shared_data / "video" / "dashcam_white_right.mp4"
    frames = list(open_frames(f"video:{path}", 4))
    assert [frame.sequence for frame in frames] == [0, 73, 147, 220]
    capture = cv2.VideoCapture(str(path))
    everything = [capture.read()[1] for _ in range(221)]
    capture.release()
    for frame in frames:
        np.testing.assert_array_equal(frame.image, everything[frame.sequence])


def test_a_folder_gives_images_of_any_size(tmp_path):
    for i in range(5):
        cv2.imwrite(str(tmp_path / f"{i}.png"), np.full((4 + i, 6, 3), i, np.uint8))
    frames = list(open_frames(f"images:{tmp_path}", 3))
    assert [(f.height, int(f.image[0, 0, 0])) for f in frames] == [(4, 0), (6, 2), (8, 4)]


def test_files_that_are_no_images_are_passed_over_and_said(tmp_path, caplog):
    sizes = write_photos(tmp_path, 3)
    for name in ("000a.jpg", "000b.png"):
        (tmp_path / name).write_bytes(b"no picture")
    frames = list(open_frames(f"images:{tmp_path}", 9))
    assert [frame.sequence for frame in frames] == [0, 3, 4]
    assert [(frame.height, frame.width) for frame in frames] == sizes
    assert "2 of 5 are passed over" in caplog.text
    assert "000a.jpg cannot be decoded" in caplog.text
    model = load_model("null:1")
    fresh = [prepare_inputs(model, [frame])[0] for frame in frames]
    for one, other in zip(prepare_inputs(model, frames), fresh, strict=True):
        np.testing.assert_array_equal(one, other)
    for file in tmp_path.iterdir():
        file.write_bytes(b"")
    with pytest.raises(SourceError, match=r"000\.jpg cannot be decoded"):
        list(open_frames(f"images:{tmp_path}", 9))


@pytest.mark.parametrize("plugin", [StoragePlugin.SQLITE3, StoragePlugin.MCAP])
def test_a_bag_gives_its_images(tmp_path, plugin):
    bag = write_bag(
        tmp_path / "bag", {"/camera/image_raw": [raw_message(grey(i)) for i in range(9)]}, plugin
    )
    frames = list(open_frames(f"bag:{bag}", 3))
    assert [(f.sequence, int(f.image[0, 0, 0])) for f in frames] == [(0, 0), (4, 4), (8, 8)]
    assert frames[0].frame_id == "front"
    assert frames[0].stamp_ns == 3_000_000_005
    assert frames[0].image.shape == (HEIGHT, WIDTH, 3)


def test_a_bag_gives_compressed_images_of_the_topic_that_is_named(tmp_path):
    png = cv2.imencode(".png", grey(77))[1].reshape(-1)
    bag = write_bag(
        tmp_path / "bag",
        {"/left/compressed": [compressed_message(png)], "/right": [raw_message(grey(1))]},
    )
    (frame,) = open_frames(f"bag:{bag}#/left/compressed", 9)
    assert int(frame.image[0, 0, 0]) == 77
    with pytest.raises(ConfigurationError, match=r"/left/compressed, /right: say which"):
        open_frames(f"bag:{bag}", 9)
    with pytest.raises(ConfigurationError, match="no images on '/up', but on /left"):
        open_frames(f"bag:{bag}#/up", 9)


def test_messages_that_are_no_images_are_passed_over_and_said(tmp_path, caplog):
    messages = [raw_message(grey(0)), raw_message(grey(1), "16UC1"), raw_message(grey(2))]
    bag = write_bag(tmp_path / "bag", {"/image": messages})
    assert [frame.sequence for frame in open_frames(f"bag:{bag}", 3)] == [0, 2]
    assert "1 of 3 messages" in caplog.text
    assert "16UC1" in caplog.text
    bad = write_bag(tmp_path / "bad", {"/image": messages[1:2]})
    with pytest.raises(SourceError, match=r"no image that can be read.*16UC1"):
        list(open_frames(f"bag:{bad}", 3))


def test_a_bag_without_images_and_a_damaged_one_are_refused(tmp_path):
    bag = write_bag(tmp_path / "bag", {"/header": [header()]})
    with pytest.raises(SourceError, match="holds no sensor_msgs Image"):
        open_frames(f"bag:{bag}", 3)
    damaged = write_bag(
        tmp_path / "damaged", {"/image": [raw_message(grey(0))]}, StoragePlugin.SQLITE3
    )
    (file,) = damaged.glob("*.db3")
    with sqlite3.connect(file) as database:
        database.execute("DROP TABLE messages")
    database.close()
    why = r"nothing can be read of damaged\.db3: 'messages' is not a table"
    with pytest.raises(SourceError, match=why):
        list(open_frames(f"bag:{damaged}", 3))


def test_without_rosbags_the_fix_is_said(tmp_path, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "rosbags" else find_spec(name)
    )
    with pytest.raises(ConfigurationError, match="pip install 'jetson_dnn_rt"):
        open_frames(f"bag:{tmp_path}", 3)


def test_synthetic_frames_are_training_scenes_of_the_seed():
    frames = list(open_frames("synthetic:3", 2))
    expected = random_scene(training_seed(3_000_001), (480, 640)).image
    np.testing.assert_array_equal(frames[1].image, expected)
    (default,) = open_frames("synthetic", 1)
    assert not np.array_equal(default.image, frames[0].image)


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        ("film:x", ConfigurationError, "video:PATH, images:DIR, bag:PATH"),
        ("video", ConfigurationError, "'video'"),
        ("video:", ConfigurationError, "'video:'"),
        ("synthetic:", ConfigurationError, "'synthetic:'"),
        ("synthetic:x", ConfigurationError, "whole number"),
        ("synthetic:99999999999", ConfigurationError, "index"),
        ("video:/no/such.mp4", SourceError, "/no/such.mp4 is not there"),
        ("images:/no/such", SourceError, "/no/such does not exist; give a folder"),
        ("bag:/no/such", SourceError, "/no/such is not there"),
    ],
)
def test_bad_sources_are_refused_at_once(source, error, text):
    with pytest.raises(error, match=text):
        open_frames(source, 5)


def test_no_frames_are_wanted():
    with pytest.raises(ConfigurationError, match="at least 1"):
        open_frames("synthetic", 0)


def test_inputs_are_what_the_model_wants():
    model = load_model("builtin:detector")
    inputs = prepare_inputs(model, open_frames("synthetic", 2))
    assert [(x.shape, x.dtype) for x in inputs] == [((1, 3, 240, 320), np.float32)] * 2
    assert 0.0 <= inputs[0].min() < inputs[0].max() <= 1.0
    assert not np.array_equal(*inputs)
    with pytest.raises(SourceError, match="not one frame"):
        prepare_inputs(model, [])
