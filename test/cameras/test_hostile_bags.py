# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bags from a stranger: damage costs what is damaged, and a small file costs little."""

from __future__ import annotations

import sqlite3
import tempfile

import hostile_bags
import numpy as np
import pytest
from bags import CompressionMode, StoragePlugin, find_file, make_image, write_bag, write_ros1
from fuzzing.batches import Campaign

from jetson_dnn_rt.cameras.bags import compression
from jetson_dnn_rt.cameras.bags.compression import BadCompressionError, decompress
from jetson_dnn_rt.cameras.bags.image_bag import BadMessage, BagImage, open_image_bag
from jetson_dnn_rt.cameras.bags.sqlite import SqliteFile
from jetson_dnn_rt.cameras.bags.storage import DamagedFileError


@pytest.fixture(scope="module")
def results():
    """What processes of their own made of all named files: `fuzz.py` reads them first."""
    with Campaign(1) as campaign:
        return {
            line["name"]: line
            for name, crafted in (("mcap", hostile_bags.MCAP), ("db3", hostile_bags.DB3))
            for line in campaign.run(name, count=len(crafted) + 8).lines
        }


@pytest.mark.parametrize("name", hostile_bags.MCAP)
def test_damage_in_mcap_costs_what_is_damaged(results, name):
    """EDGES 11: an index of 17 bytes or a chunk of 2^63 lost the whole bag."""
    result = results[name]
    assert (result["how"], result["faults"]) == ("read", [])
    if name in hostile_bags.HOLDS_THREE:
        assert result["found"][-3:] == [0, 1, 2]


READABLE = {"a tree in circles", "a message of 900 MB in few pages", "names of a megabyte"}


@pytest.mark.parametrize("name", hostile_bags.DB3)
def test_what_only_looks_like_a_table_is_refused(results, name, tmp_path):
    """EDGES 18: `messages` may be a recursive view, with rows without end; the error names it."""
    result = results[name]
    assert (result["how"], result["faults"]) == ("read" if name in READABLE else "refused", [])
    if name == "names of a megabyte":
        assert result["found"] == [0, 2]
    if name not in READABLE:
        hostile_bags.DB3[name](tmp_path / "a.db3")
        text = r"a\.db3: '(topics|messages)' is not a table of rosb"
        with pytest.raises(DamagedFileError, match=text):
            SqliteFile(tmp_path / "a.db3")


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
def test_what_is_within_its_limits_is_decompressed(codec, size):
    plain = bytes(range(256)) * (size // 256) + bytes(size % 256)
    packed = hostile_bags.compress(plain, codec)
    assert bytes(decompress(packed, compression=codec)) == plain
    assert bytes(decompress(packed, compression=codec, size=size)) == plain
    begin = decompress(packed[: len(packed) // 2], compression=codec, size=size)
    assert plain.startswith(bytes(begin))


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_bombs_are_not_decompressed(codec):
    """EDGES 11: neither one that says its size nor one that hides it."""
    packed = hostile_bags.compress(bytes(300 << 20), codec)
    with pytest.raises(BadCompressionError, match="become more than the"):
        decompress(packed, compression=codec)
    with pytest.raises(BadCompressionError, match="claim a size of 314572800, more than"):
        decompress(packed, compression=codec, size=300 << 20)
    assert len(decompress(packed, compression=codec, size=1000)) == 1000


def test_a_file_that_is_a_bomb_is_unpacked_to_an_end(tmp_path, monkeypatch):
    """EDGES 11: what is compressed as a whole does not fill the disk."""
    monkeypatch.setattr(compression, "_FREE_FILE", 1 << 22)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = write_bag(tmp_path / "bag", [make_image(7)], plugin=StoragePlugin.MCAP)
    whole = find_file(path).read_bytes() + bytes(1 << 28)
    packed = tmp_path / "a.mcap.zstd"
    packed.write_bytes(hostile_bags.compress(whole))
    try:
        with open_image_bag(packed) as bag:
            assert bag.count == 1
            assert any("the rest is left out" in note for note in bag.notes)
        (plain,) = tmp_path.glob("jetson_dnn_rt_bag_*/*")
        assert plain.stat().st_size < 1 << 25
    finally:
        compression.remove_unpacked()


def test_a_compressed_message_that_is_a_bomb_is_one_bad_message(tmp_path):
    """EDGES 11: the images around it are read."""
    messages = [make_image(i) for i in range(3)]
    path = write_bag(tmp_path / "bag", messages, compression=CompressionMode.MESSAGE)
    with sqlite3.connect(find_file(path)) as database:
        bomb = hostile_bags.compress(bytes(300 << 20))
        database.execute("UPDATE messages SET data = ? WHERE id = 2", (bomb,))
    database.close()
    with open_image_bag(path) as bag:
        assert "become more than the" in bag.read_one(1).reason  # type: ignore[union-attr]
        assert [bag.read_one(i).frame.image[0, 0, 0] for i in (0, 2)] == [0, 2]  # type: ignore[union-attr]


@pytest.mark.parametrize("compression", ["", "BZ2", "LZ4"])
def test_a_bomb_in_a_bag_of_ros_1_is_one_bad_message(tmp_path, compression):
    """EDGES 11: chunks of ROS 1 have the same limits, which sound ones do not notice."""
    sizes = [30_000, 60 << 20 if compression else 60_000, 60_000]
    images = [np.zeros(size, np.uint8) for size in sizes]
    with open_image_bag(write_ros1(tmp_path / "a.bag", images, compression)) as bag:
        found = [bag.read_one(i) for i in range(3)]
    assert isinstance(found[0], BagImage)
    assert isinstance(found[2], BagImage)
    if compression:
        assert isinstance(found[1], BadMessage)
        assert "more than the" in found[1].reason
