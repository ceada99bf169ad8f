"""Damaged files of bags: what is readable is read, and nothing that was never recorded."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bags import (
    TOPIC,
    CompressionMode,
    StoragePlugin,
    find_file,
    make_header,
    make_image,
    write_bag,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.cameras.bags.image_bag import BagImage, open_image_bag
from jetson_dnn_rt.errors import SourceError

SQLITE3, MCAP = StoragePlugin.SQLITE3, StoragePlugin.MCAP
COUNT = 120
NONE, MESSAGE, FILE, STORAGE = (
    CompressionMode.NONE,
    CompressionMode.MESSAGE,
    CompressionMode.FILE,
    CompressionMode.STORAGE,
)
KINDS = [(SQLITE3, NONE), (SQLITE3, MESSAGE), (SQLITE3, FILE), (MCAP, NONE), (MCAP, STORAGE)]


@cache
def make_file(plugin: Any, compression: Any) -> tuple[str, bytes]:
    """Name and bytes of the file of a sound bag of 120 images of 14,400 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        messages = (make_image(i, rows=400) for i in range(COUNT))
        path = write_bag(Path(folder, "bag"), messages, plugin=plugin, compression=compression)
        file = find_file(path)
        return file.name, file.read_bytes()


def read_values(path: Path) -> tuple[list[int], int, list[str]]:
    """Grey values of all images, the number of places, and the notes."""
    with open_image_bag(path) as bag:
        images = [message for message in bag.read() if isinstance(message, BagImage)]
        return [int(image.frame.image[0, 0, 0]) for image in images], bag.count, bag.notes


@pytest.mark.parametrize(("plugin", "compression"), [(SQLITE3, NONE), (MCAP, NONE)])
@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_of_a_broken_end_nearly_all_that_was_written_is_read(
    tmp_path: Path, plugin: Any, compression: Any, share: float
) -> None:
    name, data = make_file(plugin, compression)
    (tmp_path / name).write_bytes(data[: int(share * len(data))])
    values, count, notes = read_values(tmp_path)
    assert values == list(range(len(values)))
    # The last image may be cut, and an SQLite page may hold the way to some that are there.
    assert share * COUNT - 8 <= len(values) <= share * COUNT
    assert count - len(values) <= 1
    assert any("malformed" in note or "has no end" in note for note in notes)


@pytest.mark.parametrize(("plugin", "compression"), KINDS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_whatever_is_damaged_is_either_readable_or_said(
    plugin: Any, compression: Any, data: st.DataObject
) -> None:
    name, content = make_file(plugin, compression)
    place = data.draw(st.integers(0, len(content) - 1), label="place")
    damage = data.draw(st.sampled_from(["cut", "zeros", "flip"]), label="damage")
    spoilt = bytearray(content)
    if damage == "cut":
        del spoilt[place:]
    elif damage == "zeros":
        spoilt[place : place + 5000] = bytes(len(spoilt[place : place + 5000]))
    else:
        spoilt[place] ^= 0xFF
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_bytes(spoilt)
        try:
            values, count, notes = read_values(Path(folder))
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


def test_rows_behind_a_damaged_page_are_found(tmp_path: Path) -> None:
    name, content = make_file(SQLITE3, NONE)
    (tmp_path / name).write_bytes(content)
    with sqlite3.connect(tmp_path / name) as database:
        (size,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    # A page that is the inside of an image becomes something else; then one with a row's head.
    spoilt = bytearray(content)
    head = next(
        place
        for place in range(40 * len(content) // 100 // size * size, len(content), size)
        if content[place] == 0x0D
    )
    spoilt[head : head + size] = b"\xff" * size
    (tmp_path / name).write_bytes(spoilt)
    values, count, notes = read_values(tmp_path)
    assert values == sorted(values)
    assert values[-1] == COUNT - 1
    assert COUNT - 4 <= len(values) < COUNT
    assert count < COUNT
    assert any("rows from" in note and "up to row" in note for note in notes)


def test_other_messages_around_images_in_mcap(tmp_path: Path) -> None:
    pairs = ((make_header(i), make_image(i, rows=3600)) for i in range(30))
    messages = itertools.chain.from_iterable(pairs)
    write_bag(tmp_path / "bag", messages, topic=["/imu", "/image"], plugin=MCAP)
    values, count, notes = read_values(tmp_path / "bag")
    assert (values, count, notes) == (list(range(30)), 30, [])


def find_chunks(content: bytes) -> list[int]:
    """Where the chunks of an MCAP file begin."""
    places, place = [], 8
    while place < len(content) - 8:
        code, length = struct.unpack_from("<BQ", content, place)
        if code == 0x06:
            places.append(place)
        place += 9 + length
    return places


@pytest.mark.parametrize("compression", [NONE, STORAGE])
def test_chunks_behind_a_damaged_one_are_found_by_the_summary(
    tmp_path: Path, compression: Any
) -> None:
    name, content = make_file(MCAP, compression)
    first, second = find_chunks(content)
    spoilt = bytearray(content)
    spoilt[first] = 0x00  # no kind of record
    (tmp_path / name).write_bytes(spoilt)
    values, count, notes = read_values(tmp_path)
    assert values == list(range(COUNT - len(values), COUNT))
    assert 0 < len(values) == count < COUNT
    assert (
        f"{name}: cannot be read from byte {first} to byte {second}: 0x00 is no kind"
        in "".join(notes)
    )
    assert any(f"the summary says {COUNT} messages on {TOPIC}" in note for note in notes)


def test_a_chunk_with_a_wrong_checksum_is_not_believed(tmp_path: Path) -> None:
    name, content = make_file(MCAP, NONE)
    first = find_chunks(content)[0]
    spoilt = bytearray(content)
    struct.pack_into("<I", spoilt, first + 9 + 24, 12345)  # where 0 says that there is none
    (tmp_path / name).write_bytes(spoilt)
    values, count, _ = read_values(tmp_path)
    assert count == COUNT
    assert values == list(range(COUNT - len(values), COUNT))
    with open_image_bag(tmp_path) as bag:
        assert "checksum is wrong" in bag.read_one(0).reason  # type: ignore[union-attr]


def drop_indices(content: bytes) -> bytes:
    """Cut off the summary, and leave out the index of every chunk: as a crash leaves a file."""
    kept, place = [content[:8]], 8
    while content[place] != 0x0F:
        (length,) = struct.unpack_from("<Q", content, place + 1)
        end = place + 9 + length
        if content[place] != 0x07:
            kept.append(content[place:end])
        place = end
    return b"".join(kept)


@pytest.mark.parametrize("compression", [NONE, MESSAGE, STORAGE])
def test_chunks_without_an_index_are_looked_through(tmp_path: Path, compression: Any) -> None:
    name, content = make_file(MCAP, compression)
    (tmp_path / name).write_bytes(drop_indices(content))
    values, count, notes = read_values(tmp_path)
    assert values == list(range(COUNT))
    assert count == COUNT
    assert any("has no end" in note for note in notes)


def unchunk(content: bytes) -> bytes:
    """The records of all chunks of an uncompressed file, without their chunks."""
    kept, place = [content[:8]], 8
    while content[place] != 0x0F:
        (length,) = struct.unpack_from("<Q", content, place + 1)
        end = place + 9 + length
        if content[place] == 0x06:
            (letters,) = struct.unpack_from("<I", content, place + 9 + 28)
            kept.append(content[place + 9 + 32 + letters + 8 : end])
        place = end
    return b"".join(kept)


@pytest.mark.parametrize("cut", [0, 7_000])
def test_messages_outside_of_chunks(tmp_path: Path, cut: int) -> None:
    name, content = make_file(MCAP, NONE)
    records = unchunk(content)
    (tmp_path / name).write_bytes(records[: len(records) - cut])
    values, _, _ = read_values(tmp_path)
    assert values == list(range(COUNT if cut == 0 else COUNT - 1))


def compress_with_lz4(content: bytes) -> bytes:
    """The same records in chunks that are compressed with LZ4."""
    import lz4.frame

    records = unchunk(content)[8:]
    packed = lz4.frame.compress(records)
    head = struct.pack("<QQQI", 0, 0, len(records), 0) + struct.pack("<I", 3) + b"lz4"
    body = head + struct.pack("<Q", len(packed)) + packed
    return content[:8] + struct.pack("<BQ", 0x06, len(body)) + body


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_lz4_as_far_as_it_goes(tmp_path: Path, share: float) -> None:
    name, content = make_file(MCAP, NONE)
    packed = compress_with_lz4(content)
    (tmp_path / name).write_bytes(packed[: int(share * len(packed))])
    values, _, _ = read_values(tmp_path)
    assert values == list(range(len(values)))
    assert (len(values) == COUNT) == (share == 1.0)
    assert len(values) > 20


def test_an_unknown_compression_is_said(tmp_path: Path) -> None:
    name, content = make_file(MCAP, NONE)
    packed = compress_with_lz4(content).replace(b"lz4", b"zpq", 1)
    (tmp_path / name).write_bytes(packed)
    with pytest.raises(SourceError, match="compression 'zpq' is not known"):
        open_image_bag(tmp_path)


def with_log(tmp_path: Path, then: Callable[[Path], None]) -> Path:
    """A recording whose recorder was killed: the last image is in the write-ahead log alone."""
    name, content = make_file(SQLITE3, NONE)
    live, dead = tmp_path / "live", tmp_path / "dead"
    live.mkdir()
    (live / name).write_bytes(content)
    database = sqlite3.connect(live / name)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(
        "INSERT INTO messages (topic_id, timestamp, data) "
        "SELECT topic_id, timestamp + 1, data FROM messages WHERE id = 8"
    )
    database.commit()
    shutil.copytree(live, dead)
    database.close()
    then(dead / f"{name}-wal")
    return dead


def test_messages_in_a_write_ahead_log_are_read(tmp_path: Path) -> None:
    values, count, _ = read_values(with_log(tmp_path, lambda log: None))
    assert (values[-1], count) == (7, COUNT + 1)


def test_a_write_ahead_log_that_is_none_is_left_out(tmp_path: Path) -> None:
    def spoil(log: Path) -> None:
        log.unlink()
        log.mkdir()  # neither a log nor to be removed
        (log / "x").touch()

    values, count, notes = read_values(with_log(tmp_path, spoil))
    assert (values, count) == (list(range(COUNT)), COUNT)
    assert any("-wal cannot be read and is left out" in note for note in notes)


def test_a_journal_that_was_not_taken_back_is_said(tmp_path: Path) -> None:
    name, content = make_file(SQLITE3, NONE)
    (tmp_path / name).write_bytes(content)
    (tmp_path / f"{name}-journal").write_bytes(b"journal")
    values, _, notes = read_values(tmp_path)
    assert values == list(range(COUNT))
    assert f"{name}-journal is there: the last messages may be incomplete" in notes


def test_bags_are_not_written_to(tmp_path: Path) -> None:
    path = write_bag(tmp_path / "bag", [make_image(0)])
    before = {item.name: item.stat().st_mtime_ns for item in path.iterdir()}
    path.chmod(0o555)
    try:
        read_values(path)
    finally:
        path.chmod(0o755)
    assert {item.name: item.stat().st_mtime_ns for item in path.iterdir()} == before


def test_topics_that_are_not_in_cdr_are_named(tmp_path: Path) -> None:
    from bags import STORE
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
