# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bags: MCAP and SQLite files of rosbag2, also as folders with metadata, and bags of ROS 1."""

from __future__ import annotations

import bz2
import contextlib
import random
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import hostile_bags
import numpy as np
from bags import CompressionMode, StoragePlugin, make_file, make_image, write_bag, write_ros1

from fuzzing.formats import Files, Format, read_folder
from fuzzing.mutations import INTEGERS, TEXTS, spoil_bytes, spoil_text
from jetson_dnn_rt.cameras.bags import compression
from jetson_dnn_rt.cameras.bags.compression import decompress
from jetson_dnn_rt.cameras.bags.image_bag import BagImage, open_image_bag

_METADATA = "metadata.yaml"
_MOST_NOTES = 50_000
_COUNT = 12


class Bag(Format):
    """What the three formats share: their reader, and metadata beside a file."""

    packages = ("rosbags",)
    imports = ("compression",)  # of Python 3.14, looked for whatever the file says

    def read(self, folder: Path, work: Path) -> list[int]:
        """Read all images; the grey value of each."""
        names = sorted(path.name for path in folder.iterdir())
        try:
            with open_image_bag(folder if _METADATA in names else folder / names[0]) as bag:
                messages = list(bag.read())
                texts = sum(map(len, bag.notes))
        finally:
            compression.remove_unpacked()
        assert texts < _MOST_NOTES, f"notes of {texts} characters"
        return [int(one.frame.image.flat[0]) for one in messages if isinstance(one, BagImage)]

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        if _METADATA in files and rng.random() < 0.4:
            text = files[_METADATA].decode("utf-8", "replace")
            spoilt = spoil_text(text, rng).encode("utf-8", "surrogatepass")
            return {**files, _METADATA: spoilt}
        (name,) = set(files) - {_METADATA}
        pieces = [data for key, data in other.items() if key != _METADATA]
        if rng.random() < 0.4:
            return {**files, name: spoil_bytes(files[name], rng, pieces[0])}
        return {**files, name: self.spoil_file(files[name], rng)}

    def spoil_file(self, data: bytes, rng: random.Random) -> bytes:
        """Spoil a file where its format says something."""
        raise NotImplementedError


def _make_seeds(plugin: StoragePlugin, whole: str, folder: Path) -> dict[str, Files]:
    made: dict[str, Files] = {}
    for mode in ("NONE", "MESSAGE", whole):
        name, data = make_file(plugin, CompressionMode[mode], _COUNT)
        made[mode.lower()] = {name: data}
    images = [make_image(number) for number in range(3)]
    made["folder"] = read_folder(write_bag(folder / "bag", images, plugin=plugin))
    return made


def _make_crafted(makers: dict[str, Callable[[Path], Any]], folder: Path) -> dict[str, Files]:
    made: dict[str, Files] = {}
    for number, (name, make) in enumerate(makers.items()):
        path = folder / str(number)
        make(path)
        made[name] = {"bag": path.read_bytes()}
    return made


class Mcap(Bag):
    """MCAP."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        plain = hostile_bags.HEAD + hostile_bags.sound_chunk(range(3))
        made = _make_seeds(StoragePlugin.MCAP, "STORAGE", folder)
        return {**made, "small": {"bag": plain + hostile_bags.end([], len(plain))}}

    def make_crafted(self, folder: Path, sound: Mapping[str, Files]) -> dict[str, Files]:
        return {name: {"bag": make()} for name, make in hostile_bags.MCAP.items()}

    def spoil_file(self, data: bytes, rng: random.Random) -> bytes:
        if not data.startswith(hostile_bags.MAGIC):  # compressed as a whole
            return spoil_bytes(data, rng)
        return data[:8] + _join_mcap(_spoil_mcap(_split_mcap(data[8:]), rng), rng) + data[-8:]


_Record = tuple[int, bytes]


def _split_mcap(data: bytes) -> list[_Record]:
    records, place = [], 0
    while place + 9 <= len(data):
        code, length = struct.unpack_from("<BQ", data, place)
        records.append((code, data[place + 9 : place + 9 + length]))
        place += 9 + length
    return records


def _join_mcap(records: list[_Record], rng: random.Random) -> bytes:
    liar = rng.randrange(3 * len(records) + 1)
    parts = []
    for place, (code, content) in enumerate(records):
        length = rng.choice(INTEGERS) % (1 << 64) if place == liar else len(content)
        parts.append(struct.pack("<BQ", code, length) + content)
    return b"".join(parts)


def _spoil_mcap(records: list[_Record], rng: random.Random, depth: int = 0) -> list[_Record]:
    records = list(records)
    if not records:
        return records
    place = rng.randrange(len(records))
    code, content = records[place]
    how = rng.randrange(8)
    if code == 0x06 and depth == 0 and how < 6:
        records[place] = code, _spoil_chunk(content, rng)
    elif how == 0:
        del records[place]
    elif how == 1:
        records[place:place] = [records[place]] * rng.choice((1, 3, 500))
    elif how == 2:
        records.insert(rng.randrange(len(records)), records.pop(place))
    elif how == 3:
        records[place] = rng.choice((*range(16), 0x80, 0xFF)), content
    else:
        records[place] = code, spoil_bytes(content, rng, rng.choice(records)[1])
    return records


def _spoil_chunk(content: bytes, rng: random.Random) -> bytes:
    """Spoil what is in a chunk, and pack it again."""
    (length,) = struct.unpack_from("<I", content, 28)
    kind = content[32 : 32 + length]
    packed = content[40 + length :]
    try:
        plain = bytes(decompress(packed, compression=kind.decode())) if kind else packed
    except Exception:  # of an input that was spoilt before
        return spoil_bytes(content, rng)
    spoilt = _join_mcap(_spoil_mcap(_split_mcap(plain), rng, 1), rng)
    size = rng.choice((len(spoilt), len(spoilt), len(plain), rng.choice(INTEGERS) % (1 << 64)))
    packed = hostile_bags.compress(spoilt, kind.decode()) if kind else spoilt
    head = content[:16] + struct.pack("<QI", size, 0)
    return head + content[28 : 32 + length] + struct.pack("<Q", len(packed)) + packed


class Db3(Bag):
    """SQLite."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        return _make_seeds(StoragePlugin.SQLITE3, "FILE", folder)

    def make_crafted(self, folder: Path, sound: Mapping[str, Files]) -> dict[str, Files]:
        return _make_crafted(hostile_bags.DB3, folder)

    def spoil_file(self, data: bytes, rng: random.Random) -> bytes:
        if not data.startswith(b"SQLite") or rng.random() < 0.3:
            # Fields of the file's and the first page's head.
            return spoil_bytes(data[:120], rng) + data[120:]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.db3")
            path.write_bytes(data)
            with contextlib.closing(sqlite3.connect(path)) as database:
                try:
                    for _ in range(rng.choice((1, 2, 3))):
                        database.execute(_write_statement(rng))
                    database.commit()
                except sqlite3.Error:
                    return spoil_bytes(data, rng)
            return path.read_bytes()


def _write_statement(rng: random.Random) -> str:
    number = rng.choice(INTEGERS)
    texts = (text for text in TEXTS if "\0" not in text and text.isprintable() and text)
    word = rng.choice([text.replace("'", "''") for text in texts])
    value = rng.choice((
        str(number), f"'{word}'", "NULL", "1.5e308", "zeroblob(5000000)", "randomblob(9)",
        f"substr(data, 1, {rng.randrange(80)})", "x'00010000' || data", "data || data",
    ))  # fmt: skip
    table, columns = rng.choice((
        ("messages", ("id", "topic_id", "timestamp", "data")),
        ("topics", ("id", "name", "type", "serialization_format")),
        ("sqlite_master", ("type", "name", "tbl_name", "rootpage", "sql")),
    ))  # fmt: skip
    column, some = rng.choice(columns), rng.choice(("", " WHERE rowid = 2", " WHERE rowid > 1"))
    if table != "messages":
        value = value.replace("data", column)
    return rng.choice((
        f"UPDATE {table} SET {column} = {value}{some}",
        f"DELETE FROM {table}{some}",
        f"ALTER TABLE {table} RENAME COLUMN {column} TO other",
        f"ALTER TABLE {table} ADD COLUMN other AS ({column})",
        f"INSERT INTO {table} SELECT * FROM {table}{some}",
        f"CREATE TABLE {table}2 AS SELECT * FROM {table}",
        f"CREATE INDEX i ON {table}({column})",
        "PRAGMA writable_schema = ON",
    ))  # fmt: skip


class Ros1(Bag):
    """Bags of ROS 1."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        made = {}
        for name in ("", "BZ2", "LZ4"):
            images = [np.full(30, number, np.uint8) for number in range(3)]
            path = write_ros1(folder / f"{name}.bag", images, name)
            made[name.lower() or "plain"] = {"bag": path.read_bytes()}
        return made

    def make_crafted(self, folder: Path, sound: Mapping[str, Files]) -> dict[str, Files]:
        path = write_ros1(folder / "a.bag", [np.zeros(30, np.uint8)])
        records = _split_ros1(path.read_bytes())
        for place, (fields, data) in enumerate(records):
            if fields[b"op"] == b"\x04":
                entry = data[:8] + struct.pack("<I", 1 << 30)
                wrong = {**fields, b"count": struct.pack("<I", 60_000)}
                records[place] = wrong, entry * 60_000
        return {"60,000 wrong places": {"bag": _join_ros1(records)}}

    def spoil_file(self, data: bytes, rng: random.Random) -> bytes:
        records = _spoil_ros1(_split_ros1(data), rng)
        return _join_ros1(records, liar=rng.randrange(3 * len(records) + 1), rng=rng)


_MAGIC = b"#ROSBAG V2.0\n"
_Ros1Record = tuple[dict[bytes, bytes], bytes]


def _split_ros1(data: bytes) -> list[_Ros1Record]:
    records, place = [], len(_MAGIC) if data.startswith(_MAGIC) else 0
    while place + 8 <= len(data):
        (length,) = struct.unpack_from("<I", data, place)
        head = data[place + 4 : place + 4 + length]
        place += 4 + length
        if place + 4 > len(data):
            break
        (length,) = struct.unpack_from("<I", data, place)
        records.append((_split_fields(head), data[place + 4 : place + 4 + length]))
        place += 4 + length
    return records


def _split_fields(head: bytes) -> dict[bytes, bytes]:
    fields, place = {}, 0
    while place + 4 <= len(head):
        (length,) = struct.unpack_from("<I", head, place)
        name, _, value = head[place + 4 : place + 4 + length].partition(b"=")
        fields[name] = value
        place += 4 + length
    return fields


def _join_ros1(
    records: list[_Ros1Record], *, liar: int = -1, rng: random.Random | None = None
) -> bytes:
    """A file whose head says where its index begins; the record `liar` has a wrong length."""
    parts: list[bytes] = []
    for place, (fields, data) in enumerate(records):
        if fields.get(b"op") == b"\x07" and records[0][0].get(b"op") == b"\x03":
            start = len(_MAGIC) + sum(map(len, parts))
            records[0][0].setdefault(b"index_pos", b"")
            if len(records[0][0][b"index_pos"]) == 8 and parts and place == _first(records, 7):
                head = {**records[0][0], b"index_pos": struct.pack("<Q", start)}
                parts[0] = _pack_ros1(head, records[0][1])
        length = None
        if rng is not None and place == liar:
            length = rng.choice(INTEGERS) % (1 << 32)
        parts.append(_pack_ros1(fields, data, length))
    return _MAGIC + b"".join(parts)


def _first(records: list[_Ros1Record], code: int) -> int:
    return next(p for p, (fields, _) in enumerate(records) if fields.get(b"op") == bytes((code,)))


def _pack_ros1(fields: dict[bytes, bytes], data: bytes, length: int | None = None) -> bytes:
    lines = [name + b"=" + value for name, value in fields.items()]
    head = b"".join(struct.pack("<I", len(line)) + line for line in lines)
    size = len(data) if length is None else length
    return struct.pack("<I", len(head)) + head + struct.pack("<I", size) + data


def _spoil_ros1(
    records: list[_Ros1Record], rng: random.Random, depth: int = 0
) -> list[_Ros1Record]:
    records = list(records)
    if not records:
        return records
    place = rng.randrange(len(records))
    fields, data = records[place]
    fields, how = dict(fields), rng.randrange(8)
    if how == 0:
        del records[place]
    elif how == 1:
        records[place:place] = [records[place]] * rng.choice((1, 3, 500))
    elif how == 2:
        records.insert(rng.randrange(len(records)), records.pop(place))
    elif how < 6 and fields:
        name = rng.choice(sorted(fields))
        width = len(fields[name])
        number = rng.choice(INTEGERS) % (1 << 8 * width) if width in (1, 4, 8) else 0
        fields[name] = rng.choice((
            number.to_bytes(width, "little"), spoil_bytes(fields[name], rng), b"", b"x" * 300,
            b"bz2", b"lz4", b"none",
        ))  # fmt: skip
        if rng.random() < 0.1:
            del fields[name]
        records[place] = fields, data
    elif fields.get(b"op") == b"\x05" and depth == 0:
        records[place] = _spoil_ros1_chunk(fields, data, rng)
    else:
        records[place] = fields, spoil_bytes(data, rng, rng.choice(records)[1])
    return records


def _spoil_ros1_chunk(fields: dict[bytes, bytes], data: bytes, rng: random.Random) -> _Ros1Record:
    kind = fields.get(b"compression", b"").decode("ascii", "replace")
    try:
        plain = data if kind == "none" else bytes(decompress(data, compression=kind))
    except Exception:  # of an input that was spoilt before
        return fields, spoil_bytes(data, rng)
    inner = _spoil_ros1(_split_ros1(plain), rng, 1)
    spoilt = b"".join(_pack_ros1(*one) for one in inner)
    if kind == "bz2":
        packed = bz2.compress(spoilt)
    elif kind == "lz4":
        packed = hostile_bags.compress(spoilt, "lz4")
    else:
        packed = spoilt
    return {**fields, b"size": struct.pack("<I", len(spoilt))}, packed
