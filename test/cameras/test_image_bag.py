# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bags read by place: every storage and compression, every message in its place."""

from __future__ import annotations

import importlib
import importlib.util
import struct
import subprocess
import sys
import tempfile

import cv2
import numpy as np
import pytest
from bags import (
    PERIOD_NS,
    STORE,
    TOPIC,
    CompressionMode,
    StoragePlugin,
    Writer,
    find_file,
    make_compressed,
    make_header,
    make_image,
    write_bag,
    write_ros1,
)
from hypothesis import given
from hypothesis import strategies as st
from rosbags.typesys import Stores, get_typestore

from jetson_dnn_rt.cameras.bags import compression
from jetson_dnn_rt.cameras.bags.image_bag import BagImage, open_image_bag
from jetson_dnn_rt.cameras.bgr import copy_as_bgr
from jetson_dnn_rt.errors import ConfigurationError, SourceError

STORAGES = [
    (plugin, compression)
    for plugin in StoragePlugin
    for compression in CompressionMode
    if (plugin, compression) != (StoragePlugin.SQLITE3, CompressionMode.STORAGE)
]
SQLITE3, MCAP = StoragePlugin.SQLITE3, StoragePlugin.MCAP


def read_values(bag, first=0, count=None):
    """Grey values of the images, and what is said of the others."""
    return [
        int(message.frame.image[0, 0, 0]) if isinstance(message, BagImage) else message.reason
        for message in bag.read(first, count)
    ]


@pytest.mark.parametrize(("plugin", "compression"), STORAGES)
def test_every_message_is_in_its_place(tmp_path, plugin, compression):
    messages = [make_image(i) for i in range(60)]
    path = write_bag(tmp_path / "bag", messages, plugin=plugin, compression=compression)
    with open_image_bag(path) as bag:
        assert (bag.topic, bag.count, bag.missing, bag.notes) == (TOPIC, 60, 0, [])
        np.testing.assert_array_equal(bag.log_times_ns, np.arange(60) * PERIOD_NS)
        assert read_values(bag) == list(range(60))
        assert read_values(bag, 58, 10) == [58, 59]
        image = bag.read_one(9)
    assert isinstance(image, BagImage)
    assert (image.index, image.log_time_ns) == (9, 9 * PERIOD_NS)
    frame = image.frame
    assert (frame.sequence, frame.stamp_ns, frame.frame_id) == (9, 9 * PERIOD_NS, "front")
    assert (frame.image == 9).all()  # stays when the bag is closed


@pytest.fixture(scope="module", params=[SQLITE3, MCAP])
def long_bag(request, tmp_path_factory):
    # An MCAP chunk is closed at 1 MiB: nine images of 129,600 bytes.
    messages = [make_image(i, rows=3600) for i in range(20)]
    path = write_bag(tmp_path_factory.mktemp("bags") / "bag", messages, plugin=request.param)
    with open_image_bag(path) as bag:
        yield bag


@given(st.integers(0, 30), st.one_of(st.none(), st.integers(0, 30)))
def test_any_part_is_that_of_the_whole(long_bag, first, count):
    end = None if count is None else first + count
    assert read_values(long_bag, first, count) == list(range(20))[first:end]


def test_places_that_are_none_are_refused(long_bag):
    with pytest.raises(ValueError, match="places begin at 0: -1"):
        long_bag.read(-1)
    with pytest.raises(IndexError, match="message 20 of 20"):
        long_bag.read_one(20)


def test_compressed_images_and_topics_that_are_none(tmp_path):
    data = cv2.imencode(".png", np.full((4, 6, 3), 200, np.uint8))[1]
    messages = [make_compressed(data), make_header(3), make_image(1)]
    path = write_bag(tmp_path / "bag", messages, topic=["/left", "/header", "/right"])
    with open_image_bag(path, "/left") as bag:
        assert read_values(bag) == [200]
    with pytest.raises(ConfigurationError, match=r"images on /left, /right: say which.* /left"):
        open_image_bag(path)
    with pytest.raises(ConfigurationError, match=r"'/header' \(std_msgs.*, but on /left, /right"):
        open_image_bag(path, "/header")


def test_the_format_of_compressed_images_is_read(tmp_path):
    """A mosaic that begins with red is one in a bag, too."""
    mosaic = np.zeros((8, 8), np.uint8)
    mosaic[::2, ::2] = 200
    data = cv2.imencode(".png", mosaic)[1]
    message = make_compressed(data, form="bayer_rggb8; png compressed ")
    with open_image_bag(write_bag(tmp_path / "bag", [message])) as bag:
        frame = bag.read_one(0).frame  # type: ignore[union-attr]
    assert frame.encoding == "bayer_rggb8"
    assert copy_as_bgr(frame)[4, 4].tolist() == [0, 0, 200]


def test_topics_without_a_message_do_not_make_the_choice_ambiguous(tmp_path):
    """A recorder of all topics writes down those of cameras that publish nothing."""
    path = tmp_path / "bag"
    with Writer(path, version=9) as writer:
        topics = ("/a", "/b", "/c/compressed")
        for topic, kind in zip(topics, ("Image", "Image", "CompressedImage"), strict=True):
            writer.add_connection(topic, f"sensor_msgs/msg/{kind}", typestore=STORE)
        connection = writer.connections[1]
        writer.write(connection, 5, STORE.serialize_cdr(make_image(7), connection.msgtype))
    with open_image_bag(path) as bag:
        assert (bag.topic, read_values(bag)) == ("/b", [7])
    with open_image_bag(path, "/a") as bag:
        assert (bag.count, bag.notes) == (0, ["no message is on /a"])


def test_a_topic_of_another_type_is_named_with_its_type(tmp_path):
    path = write_bag(tmp_path / "bag", [make_header(3), make_image(1)], topic=["/imu", "/image"])
    with pytest.raises(ConfigurationError, match=r"'/imu' \(std_msgs/msg/Header\), but on /image"):
        open_image_bag(path, "/imu")


def write_mcap(path, schema, encoding, data):
    """An MCAP file of one message, as other recorders write it: without a profile of ROS 2."""

    def text(value):
        return struct.pack("<I", len(value)) + value.encode()

    def record(code, content):
        return struct.pack("<BQ", code, len(content)) + content

    path.write_bytes(
        b"\x89MCAP0\r\n"
        + record(1, text("") + text("a recorder"))
        + record(3, struct.pack("<H", 1) + text(schema) + text("") + struct.pack("<I", 0))
        + record(4, struct.pack("<HH", 1, 1) + text("/cam") + text(encoding) + bytes(4))
        + record(5, struct.pack("<HIQQ", 1, 0, 5, 5) + data)
    )
    return path


@pytest.mark.parametrize("encoding", ["cdr", "ros1"])
def test_mcap_with_the_type_names_of_ros_1(tmp_path, encoding):
    """``sensor_msgs/Image``: of converters, whose messages are those of ROS 2 or of ROS 1."""
    kind = "sensor_msgs/msg/Image"
    data = STORE.serialize_cdr(make_image(9), kind)
    if encoding == "ros1":
        old = get_typestore(Stores.ROS1_NOETIC)
        header = old.types["std_msgs/msg/Header"](
            0, old.types["builtin_interfaces/msg/Time"](0, 0), "front"
        )
        pixels = np.full(12, 9, np.uint8)
        data = old.serialize_ros1(old.types[kind](header, 2, 2, "bgr8", 0, 6, pixels), kind)
    with open_image_bag(write_mcap(tmp_path / "a.mcap", "sensor_msgs/Image", encoding, data)) as b:
        assert (b.kind, read_values(b)) == (kind, [9])


def test_mcap_of_another_middleware_says_what_is_in_it(tmp_path):
    path = write_mcap(tmp_path / "a.mcap", "foxglove.CompressedImage", "protobuf", b"?")
    words = (
        r"/cam \(foxglove.CompressedImage\) is in 'protobuf': messages of ROS are read, in 'cdr'"
    )
    with pytest.raises(SourceError, match=words):
        open_image_bag(path)


def split_in_two(tmp_path, plugin=SQLITE3):
    """A bag of two files: 3 images, then 2."""
    whole = tmp_path / "whole"
    whole.mkdir()
    for number, values in ((9, range(3)), (10, range(3, 5))):  # 10 is behind 9
        part = tmp_path / f"part_{number}"
        file = find_file(write_bag(part, [make_image(i) for i in values], plugin=plugin))
        file.rename(whole / f"drive_{number}{file.suffix}")
    return whole


@pytest.mark.parametrize("plugin", [SQLITE3, MCAP])
def test_split_files_without_metadata(tmp_path, plugin):
    with open_image_bag(split_in_two(tmp_path, plugin)) as bag:
        assert read_values(bag) == [0, 1, 2, 3, 4]
        assert read_values(bag, 2, 2) == [2, 3]
        assert bag.notes[0].startswith(
            "metadata.yaml is missing: the files are taken in the order"
        )
        assert bag.missing == 0


METADATA = """
rosbag2_bagfile_information:
  version: 5
  relative_file_paths: [whole/drive_9.db3{second}]
  topics_with_message_count:
    - {{topic_metadata: {{name: {topic}, type: sensor_msgs/msg/Image}}, message_count: 5}}
"""
GONE = [
    "drive_11.db3 is not there, though metadata.yaml names it",
    f"metadata.yaml says 5 messages on {TOPIC}, 3 are there: 2 are lost",
]
UNNAMED = ["metadata.yaml does not name drive_10.db3: read all the same"]


@pytest.mark.parametrize(
    ("second", "values", "notes"),
    [(", whole/drive_11.db3", [0, 1, 2], GONE), ("", [0, 1, 2, 3, 4], UNNAMED)],
)
def test_files_that_are_gone_or_not_named(tmp_path, second, values, notes):
    """A recorder that is killed leaves its last file out of the metadata."""
    path = split_in_two(tmp_path)
    (path / "metadata.yaml").write_text(METADATA.format(second=second, topic=TOPIC))
    if second:
        (path / "drive_10.db3").unlink()
    with open_image_bag(path) as bag:
        assert read_values(bag) == values
        assert bag.missing == 5 - len(values)
        assert bag.notes[: len(notes)] == notes


@pytest.mark.parametrize("text", ["", "a: [", "rosbag2_bagfile_information: 3", "\x00"])
def test_damaged_metadata_are_left_out(tmp_path, text):
    path = write_bag(tmp_path / "bag", [make_image(i) for i in range(3)])
    (path / "metadata.yaml").write_text(text)
    with open_image_bag(path) as bag:
        assert read_values(bag) == [0, 1, 2]
        assert bag.notes[0].startswith("metadata.yaml cannot be read and is left out: ")


@pytest.mark.parametrize("plugin", list(StoragePlugin))
def test_a_single_file_is_a_bag(tmp_path, plugin):
    path = write_bag(tmp_path / "bag", [make_image(i) for i in range(3)], plugin=plugin)
    for file in (find_file(path), path / "metadata.yaml"):
        with open_image_bag(file) as bag:
            assert read_values(bag) == [0, 1, 2]


def test_messages_stay_in_the_order_of_recording_when_clocks_jump(tmp_path):
    second = 1_000_000_000
    stamps = [10 * second, 11 * second, 2 * second, 3 * second, 103 * second]
    logs = [20 * second, 21 * second, 22 * second, 5 * second, 6 * second]
    messages = [make_image(i, stamp_ns=stamp) for i, stamp in enumerate(stamps)]
    for plugin in StoragePlugin:
        path = write_bag(tmp_path / plugin.name, messages, plugin=plugin, log_times_ns=logs)
        with open_image_bag(path) as bag:
            assert read_values(bag) == [0, 1, 2, 3, 4]
            assert bag.log_times_ns.tolist() == logs
            assert bag.notes == [
                "log times go back by 17.000 s at message 3",
                "header stamps go back by 9.000 s at message 2",
                "header stamps go ahead by 100.000 s at message 4",
            ]
            read_values(bag)
            assert len(bag.notes) == 3  # said once
        with open_image_bag(path) as bag:
            assert read_values(bag, 2, 2) == [2, 3]  # what begins at a jump sees it
            assert bag.notes[1:] == ["header stamps go back by 9.000 s at message 2"]


def test_endless_jumps_are_named_up_to_a_number(tmp_path):
    times = [(i % 2) * PERIOD_NS for i in range(100)]
    messages = [make_image(i, stamp_ns=time) for i, time in enumerate(times)]
    with open_image_bag(write_bag(tmp_path / "bag", messages, log_times_ns=times)) as bag:
        assert len(read_values(bag)) == 100
        assert bag.notes[20] == "log times jump 49 times in all"
        assert bag.notes[-1] == "header stamps jump more than 20 times"
        assert len(bag.notes) == 42


def test_what_is_no_image_keeps_its_place_and_its_reason(tmp_path):
    messages = [make_image(0), make_image(1, encoding="16UC1"), make_image(2)]
    messages[2].data = messages[2].data[:9]
    with open_image_bag(write_bag(tmp_path / "bag", [*messages, make_image(3)])) as bag:
        found = list(bag.read())
    assert [isinstance(message, BagImage) for message in found] == [True, False, False, True]
    assert all(message.index == place for place, message in enumerate(found))
    assert found[1].reason.startswith("encoding '16UC1' is not one of")
    assert "9 bytes of data" in found[2].reason


def test_a_file_is_unpacked_once_and_the_next_bag_takes_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    paths = [
        write_bag(tmp_path / name, [make_image(7)], compression=CompressionMode.FILE)
        for name in ("a", "b")
    ]
    with open_image_bag(paths[0]), open_image_bag(paths[0]):
        assert len(list(tmp_path.glob("jetson_dnn_rt_bag_*"))) == 1
    with open_image_bag(paths[0]) as first, open_image_bag(paths[1]) as second:
        assert len(list(tmp_path.glob("jetson_dnn_rt_bag_*"))) == 1
        assert read_values(first) == read_values(second) == [7]
    compression.remove_unpacked()
    assert not list(tmp_path.glob("jetson_dnn_rt_bag_*"))


def test_no_room_for_an_unpacked_file_is_said(tmp_path, monkeypatch):
    path = write_bag(tmp_path / "bag", [make_image(7)], compression=CompressionMode.FILE)

    def fill_the_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compression, "_decompress_file", fill_the_disk)
    with pytest.raises(SourceError, match=r"does not fit into .* set TMPDIR"):
        open_image_bag(path)


def test_without_rosbags_or_its_decompressors_the_fix_is_said(tmp_path, monkeypatch):
    path = write_bag(tmp_path / "bag", [make_image(0)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'jetson_dnn_rt\[bags\]'"):
        open_image_bag(path)

    def find_nothing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", find_nothing)
    for name in ("zstd", "lz4"):
        with pytest.raises(ConfigurationError, match=r"pip install 'jetson_dnn_rt\[bags\]'"):
            compression.decompress(b"", compression=name)


@pytest.mark.parametrize("plugin", StoragePlugin)
def test_what_a_bag_holds_is_read_without_rosbags(tmp_path, plugin):
    """As by replay.launch.py, which runs on the Python of ROS."""
    path = write_bag(tmp_path / "bag", [make_image(0)], plugin=plugin)
    program = (
        "import sys; sys.modules['rosbags'] = None\n"
        "from jetson_dnn_rt.cameras.bags.image_bag import open_image_bag\n"
        "with open_image_bag(sys.argv[1], messages=False) as bag:\n"
        "    print(bag.topic, bag.kind, bag.count)"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [TOPIC, "sensor_msgs/msg/Image", "1"], done.stderr


def test_bags_of_ros_1(tmp_path):
    images = [np.full(12, i, np.uint8) for i in range(6)]
    path = write_ros1(tmp_path / "old.bag", images)
    with open_image_bag(path) as bag:
        assert (bag.count, bag.topic, bag.notes) == (6, TOPIC, [])
        assert read_values(bag, 4, 2) == [4, 5]
        assert read_values(bag) == [0, 1, 2, 3, 4, 5]
        assert bag.log_times_ns.tolist() == [i * PERIOD_NS for i in range(6)]
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(SourceError, match=r"nothing can be read of old\.bag"):
        open_image_bag(path)


def test_a_bag_without_images_says_what_it_has(tmp_path):
    path = write_bag(tmp_path / "bag", [make_header(3)], topic="/header")
    with pytest.raises(SourceError, match=r"no CompressedImage, but /header \(std_msgs/msg/Head"):
        open_image_bag(path)


def test_what_is_no_bag_is_refused(tmp_path):
    with pytest.raises(SourceError, match="/no/bag is not there"):
        open_image_bag("/no/bag")
    for content, words in (
        (None, r"holds no \.db3, \.mcap or \.bag file"),
        (b"", r"a\.db3: it is empty"),
        (b"what is this?", "neither SQLite, MCAP nor a bag of ROS 1"),
    ):
        if content is not None:
            (tmp_path / "a.db3").write_bytes(content)
        with pytest.raises(SourceError, match=words):
            open_image_bag(tmp_path)
