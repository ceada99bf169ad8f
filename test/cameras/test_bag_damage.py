# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Damaged files of bags: what is readable is read, and nothing that was never recorded."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sqlite3
import struct
import tempfile
from pathlib import Path

import bags
import hostile_bags
import lz4.frame
import numpy as np
import pytest
from bags import STORE, TOPIC, CompressionMode, StoragePlugin, make_header, make_image, write_bag
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.cameras.bags.image_bag import BagImage, open_image_bag
from jetson_dnn_rt.errors import SourceError

SQLITE3, MCAP = StoragePlugin.SQLITE3, StoragePlugin.MCAP
COUNT = 120  # images of 14,400 bytes
NONE, FILE, MESSAGE, STORAGE = (CompressionMode[n] for n in ("NONE", "FILE", "MESSAGE", "STORAGE"))
KINDS = [(SQLITE3, NONE), (SQLITE3, MESSAGE), (SQLITE3, FILE), (MCAP, NONE), (MCAP, STORAGE)]


def read_values(path):
    """Grey values of all images, the number of places, and the notes."""
    with open_image_bag(path) as bag:
        images = [message for message in bag.read() if isinstance(message, BagImage)]
        return [int(image.frame.image[0, 0, 0]) for image in images], bag.count, bag.notes


def read_spoilt(folder, name, data):
    """The same of a file with these bytes."""
    (folder / name).write_bytes(data)
    return read_values(folder)


@pytest.mark.parametrize("plugin", [SQLITE3, MCAP])
@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_of_a_broken_end_nearly_all_that_was_written_is_read(tmp_path, plugin, share):
    name, data = bags.make_file(plugin, NONE, COUNT, 400)
    values, count, notes = read_spoilt(tmp_path, name, data[: int(share * len(data))])
    assert values == list(range(len(values)))
    # The last image may be cut, and an SQLite page may hold the way to some that are there.
    assert share * COUNT - 8 <= len(values) <= share * COUNT
    assert count - len(values) <= 1
    assert any("malformed" in note or "has no end" in note for note in notes)


def spoil(data, content, zeros):
    """Damage a file at a drawn place; returns the kind of damage, too."""
    place = data.draw(st.integers(0, len(content) - 1), label="place")
    damage = data.draw(st.sampled_from(["cut", "zeros", "flip"]), label="damage")
    spoilt = bytearray(content)
    if damage == "cut":
        del spoilt[place:]
    elif damage == "zeros":
        spoilt[place : place + zeros] = bytes(len(spoilt[place : place + zeros]))
    else:
        spoilt[place] ^= 0xFF
    return spoilt, damage


@pytest.mark.parametrize(("plugin", "compression"), KINDS)
@settings(max_examples=20)
@given(data=st.data())
def test_whatever_is_damaged_is_either_readable_or_said(plugin, compression, data):
    name, content = bags.make_file(plugin, compression, COUNT, 400)
    spoilt, damage = spoil(data, content, 5000)
    with tempfile.TemporaryDirectory() as folder:
        try:
            values, count, notes = read_spoilt(Path(folder), name, spoilt)
        except SourceError:
            values, count, notes = [], 0, ["nothing", "at all"]
    assert len(values) <= count <= COUNT
    if damage == "cut":
        # Nothing was altered: what is there is what was recorded. SQLite may have lost the way to
        # the first rows.
        assert values == sorted(set(values))
        assert plugin == SQLITE3 or values == list(range(len(values)))
        # The first note says that metadata are missing.
        assert len(values) == COUNT or len(notes) > 1 or len(values) < count


def test_rows_behind_a_damaged_page_are_found(tmp_path):
    name, content = bags.make_file(SQLITE3, NONE, COUNT, 400)
    spoilt = bytearray(content)
    (size,) = struct.unpack_from(">H", content, 16)
    # A page that is the inside of an image becomes something else; then one with a row's head.
    middle = 40 * len(content) // 100 // size * size
    head = next(place for place in range(middle, len(content), size) if content[place] == 0x0D)
    spoilt[head : head + size] = b"\xff" * size
    values, count, notes = read_spoilt(tmp_path, name, spoilt)
    assert values == sorted(values)
    assert values[-1] == COUNT - 1
    assert COUNT - 4 <= len(values) < COUNT
    assert count < COUNT
    assert any("rows from" in note and "up to row" in note for note in notes)


def test_other_messages_around_images_in_mcap(tmp_path):
    pairs = ((make_header(i), make_image(i, rows=3600)) for i in range(30))
    messages = itertools.chain.from_iterable(pairs)
    write_bag(tmp_path / "bag", messages, topic=["/imu", "/image"], plugin=MCAP)
    values, count, notes = read_values(tmp_path / "bag")
    assert (values, count, notes) == (list(range(30)), 30, [])


def split_records(content):
    """Kind, place and bytes of the records of an MCAP file, up to the end of its data."""
    place = 8
    while content[place] != 0x0F:
        (length,) = struct.unpack_from("<Q", content, place + 1)
        yield content[place], place, content[place : place + 9 + length]
        place += 9 + length


def unchunk(content):
    """The records of all chunks of an uncompressed file, without their chunks."""
    kept = [content[:8]]
    for code, _, data in split_records(content):
        if code == 0x06:
            (letters,) = struct.unpack_from("<I", data, 9 + 28)
            kept.append(data[9 + 32 + letters + 8 :])
    return b"".join(kept)


@pytest.mark.parametrize("compression", [NONE, STORAGE])
def test_chunks_behind_a_damaged_one_are_found_by_the_summary(tmp_path, compression):
    name, content = bags.make_file(MCAP, compression, COUNT, 400)
    first, second = (place for code, place, _ in split_records(content) if code == 0x06)
    spoilt = bytearray(content)
    spoilt[first] = 0x00  # no kind of record
    values, count, notes = read_spoilt(tmp_path, name, spoilt)
    assert values == list(range(COUNT - len(values), COUNT))
    assert 0 < len(values) == count < COUNT
    text = f"{name}: cannot be read from byte {first} to byte {second}: 0x00 is not a kind"
    assert any(note.startswith(text) for note in notes)
    assert any(f"the summary says {COUNT} messages on {TOPIC}" in note for note in notes)


def test_a_chunk_with_a_wrong_checksum_is_not_believed(tmp_path):
    name, content = bags.make_file(MCAP, NONE, COUNT, 400)
    first = next(place for code, place, _ in split_records(content) if code == 0x06)
    spoilt = bytearray(content)
    struct.pack_into("<I", spoilt, first + 9 + 24, 12345)  # where 0 says that there is none
    values, count, _ = read_spoilt(tmp_path, name, spoilt)
    assert count == COUNT
    assert values == list(range(COUNT - len(values), COUNT))
    with open_image_bag(tmp_path) as bag:
        assert "checksum is wrong" in bag.read_one(0).reason  # type: ignore[union-attr]


@pytest.mark.parametrize("compression", [NONE, MESSAGE, STORAGE])
def test_chunks_without_an_index_are_looked_through(tmp_path, compression):
    """Neither a summary nor the index of a chunk: as a crash leaves a file."""
    name, content = bags.make_file(MCAP, compression, COUNT, 400)
    kept = [data for code, _, data in split_records(content) if code != 0x07]
    values, count, notes = read_spoilt(tmp_path, name, content[:8] + b"".join(kept))
    assert values == list(range(COUNT))
    assert count == COUNT
    assert any("has no end" in note for note in notes)


@pytest.mark.parametrize("cut", [0, 7_000])
def test_messages_outside_of_chunks(tmp_path, cut):
    name, content = bags.make_file(MCAP, NONE, COUNT, 400)
    records = unchunk(content)
    values, _, _ = read_spoilt(tmp_path, name, records[: len(records) - cut])
    assert values == list(range(COUNT if cut == 0 else COUNT - 1))


def test_lz4_as_far_as_it_goes(tmp_path):
    name, content = bags.make_file(MCAP, NONE, COUNT, 400)
    records = unchunk(content)[8:]
    chunk = hostile_bags.chunk(lz4.frame.compress(records), "lz4", len(records))
    packed = content[:8] + chunk
    assert read_spoilt(tmp_path, name, packed)[0] == list(range(COUNT))
    values = read_spoilt(tmp_path, name, packed[: len(packed) // 2])[0]
    assert values == list(range(len(values)))
    assert 20 < len(values) < COUNT
    with pytest.raises(SourceError, match="compression 'zpq' is not known"):
        read_spoilt(tmp_path, name, packed.replace(b"lz4", b"zpq", 1))


ROS1 = ("", "BZ2", "LZ4")


def split_ros1(content):
    """Kind, place and bytes of the records of a bag of ROS 1."""
    place = 13
    while place < len(content):
        (head,) = struct.unpack_from("<I", content, place)
        code = content[content.index(b"op=", place) + 3]
        (data,) = struct.unpack_from("<I", content, place + 4 + head)
        yield code, place, content[place : place + 8 + head + data]
        place += 8 + head + data


def make_ros1(tmp_path, compression="", count=20):
    """Bytes of a sound bag of ROS 1, each image in a chunk of its own."""
    images = [np.full(30, i, np.uint8) for i in range(count)]
    return bags.write_ros1(tmp_path / "sound.bag", images, compression).read_bytes()


def take_index(content):
    """What a killed recorder leaves: no index, and a head that points to none."""
    end = next(place for code, place, _ in split_ros1(content) if code == 0x07)
    spoilt = bytearray(content[:end])
    place = spoilt.index(b"index_pos=") + 10
    spoilt[place : place + 8] = bytes(8)
    return bytes(spoilt)


@pytest.mark.parametrize("compression", ROS1)
def test_a_ros_1_bag_of_a_killed_recorder_is_read(tmp_path, compression):
    """``.bag.active``: no index, though every chunk is whole."""
    content = take_index(make_ros1(tmp_path, compression))
    folder = tmp_path / "killed"
    folder.mkdir()
    values, count, notes = read_spoilt(folder, "a.bag.active", content)
    assert (values, count) == (list(range(20)), 20)
    assert "a.bag.active has no end: it was not closed, or is cut off" in notes
    with open_image_bag(folder / "a.bag.active", messages=False) as bag:
        assert (bag.topic, bag.count) == (TOPIC, 20)


@pytest.mark.parametrize("compression", ROS1)
def test_chunks_of_ros_1_without_an_index_are_looked_through(tmp_path, compression):
    content = make_ros1(tmp_path, compression)
    kept = [data for code, _, data in split_ros1(take_index(content)) if code != 0x04]
    (tmp_path / "a.bag").write_bytes(content[:13] + b"".join(kept))
    values, count, notes = read_values(tmp_path / "a.bag")
    assert (values, count) == (list(range(20)), 20)
    assert notes == ["a.bag has no end: it was not closed, or is cut off"]


@pytest.mark.parametrize("compression", ROS1)
def test_a_chunk_that_a_recorder_of_ros_1_did_not_close(tmp_path, compression):
    """Its head says that it is empty; its records are behind it, as far as they were written."""
    records = list(split_ros1(take_index(make_ros1(tmp_path, compression))))
    places = [place for place, (code, _, _) in enumerate(records) if code == 0x05]
    last = bytearray(records[places[-1]][2])
    (head,) = struct.unpack_from("<I", last)
    struct.pack_into("<I", last, 4 + head, 0)
    struct.pack_into("<I", last, last.index(b"size=") + 5, 0)
    whole = b"#ROSBAG V2.0\n" + b"".join(data for _, _, data in records[: places[-1]]) + last
    (tmp_path / "a.bag.active").write_bytes(whole)
    values, count, notes = read_values(tmp_path / "a.bag.active")
    assert (values, count) == (list(range(20)), 20)
    assert notes == ["a.bag.active has no end: it was not closed, or is cut off"]
    (tmp_path / "a.bag.active").write_bytes(whole[:-60])
    values, _, _ = read_values(tmp_path / "a.bag.active")
    assert values == list(range(19))


@pytest.mark.parametrize("compression", ROS1)
@settings(max_examples=20)
@given(data=st.data())
def test_of_ros_1_too_whatever_is_damaged_is_either_readable_or_said(compression, data):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content = make_ros1(folder, compression)
        spoilt, damage = spoil(data, content, 200)
        (folder / "a.bag").write_bytes(spoilt)
        try:
            values, count, notes = read_values(folder / "a.bag")
        except SourceError:
            return
    assert len(values) <= count
    if damage == "cut":
        assert values == list(range(len(values)))
        assert len(values) == 20 or notes or len(values) < count


def test_chunks_of_ros_1_behind_a_damaged_one_are_found_by_the_index(tmp_path):
    content = bytearray(make_ros1(tmp_path))
    third, fourth = [place for code, place, _ in split_ros1(content) if code == 0x05][2:4]
    content[third : third + 4] = b"\xff\xff\xff\x7f"
    (tmp_path / "a.bag").write_bytes(content)
    values, count, notes = read_values(tmp_path / "a.bag")
    assert (values, count) == ([i for i in range(20) if i != 2], 19)
    assert notes[0].startswith(f"a.bag: cannot be read from byte {third} to byte {fourth}: ")
    assert any(f"20 messages on {TOPIC}, 19 are there: 1 are lost" in note for note in notes)


def test_messages_in_a_write_ahead_log_are_read(tmp_path):
    """A recording whose recorder was killed: the last image is in the write-ahead log alone."""
    name, content = bags.make_file(SQLITE3, NONE, COUNT, 400)
    live, dead = tmp_path / "live", tmp_path / "dead"
    live.mkdir()
    (live / name).write_bytes(content)
    with contextlib.closing(sqlite3.connect(live / name)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(
            "INSERT INTO messages (topic_id, timestamp, data) "
            "SELECT topic_id, timestamp + 1, data FROM messages WHERE id = 8"
        )
        database.commit()
        shutil.copytree(live, dead)
    values, count, _ = read_values(dead)
    assert (values[-1], count) == (7, COUNT + 1)


def test_what_a_recorder_left_beside_a_file_is_named(tmp_path):
    name, content = bags.make_file(SQLITE3, NONE, COUNT, 400)
    (tmp_path / f"{name}-wal").mkdir()  # no log
    (tmp_path / f"{name}-wal" / "x").touch()
    (tmp_path / f"{name}-journal").write_bytes(b"journal")
    values, count, notes = read_spoilt(tmp_path, name, content)
    assert (values, count) == (list(range(COUNT)), COUNT)
    assert any("-wal cannot be read and is left out" in note for note in notes)
    assert f"{name}-journal is there: the last messages may be incomplete" in notes


def test_bags_are_not_written_to(tmp_path):
    path = write_bag(tmp_path / "bag", [make_image(0)])
    before = {item.name: item.stat().st_mtime_ns for item in path.iterdir()}
    path.chmod(0o555)
    try:
        read_values(path)
    finally:
        path.chmod(0o755)
    assert {item.name: item.stat().st_mtime_ns for item in path.iterdir()} == before


def test_topics_that_are_not_in_cdr_are_named(tmp_path):
    from rosbags.rosbag2 import Writer

    path = tmp_path / "bag"
    with Writer(path, version=9) as writer:
        for topic, form in (("/a", "cdr"), ("/b", "json")):
            connection = writer.add_connection(
                topic, "sensor_msgs/msg/Image", typestore=STORE, serialization_format=form
            )
            data = STORE.serialize_cdr(make_image(3), "sensor_msgs/msg/Image")
            writer.write(connection, 5, data)
    values, _, notes = read_values(path)
    assert values == [3]
    assert notes == ["bag.db3: topic /b is in 'json', not in CDR"]
