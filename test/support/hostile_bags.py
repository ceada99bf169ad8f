# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Files of bags from a stranger: small ones that ask for much, or are not what they look like."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bags import STORE, TOPIC, make_image

from jetson_dnn_rt.cameras.bags.compression import import_zstd

IMAGE = "sensor_msgs/msg/Image"
MAGIC = b"\x89MCAP0\r\n"
_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _INDEX, _CHUNK_INDEX = 0x03, 0x04, 0x05, 0x06, 0x07, 0x08


def record(code: int, content: bytes) -> bytes:
    """A record of MCAP."""
    return struct.pack("<BQ", code, len(content)) + content


def text(letters: str) -> bytes:
    """A string of MCAP."""
    return struct.pack("<I", len(letters.encode())) + letters.encode()


def message(value: int) -> bytes:
    """A record with an image of one grey value on channel 1."""
    data = bytes(STORE.serialize_cdr(make_image(value), IMAGE))
    return record(_MESSAGE, struct.pack("<HIQQ", 1, value, value, value) + data)


HEAD = (
    MAGIC
    + record(_SCHEMA, struct.pack("<H", 1) + text(IMAGE) + text("ros2msg") + text(""))
    + record(_CHANNEL, struct.pack("<HH", 1, 1) + text(TOPIC) + text("cdr") + struct.pack("<I", 0))
)


def chunk(stored: bytes, compression: str = "", size: int | None = None, crc: int = 0) -> bytes:
    """A chunk of records as they are stored."""
    size = len(stored) if size is None else size
    head = struct.pack("<QQQI", 0, 0, size, crc) + text(compression)
    return record(_CHUNK, head + struct.pack("<Q", len(stored)) + stored)


def index(offsets: Iterable[int], size: int | None = None) -> bytes:
    """An index of messages on channel 1; `size` is what it says of itself."""
    entries = b"".join(struct.pack("<QQ", 0, offset) for offset in offsets)
    size = len(entries) if size is None else size
    return record(_INDEX, struct.pack("<HI", 1, size) + entries + bytes(max(0, size % 16)))


def end(starts: Iterable[int], position: int) -> bytes:
    """A summary with the places of chunks, for a file that is `position` bytes long so far."""
    places = (bytes(16) + struct.pack("<Q", start) + bytes(8) for start in starts)
    body = b"".join(record(_CHUNK_INDEX, place) for place in places)
    data_end = record(0x0F, bytes(4))
    footer = record(0x02, struct.pack("<QQI", position + len(data_end), 0, 0))
    return data_end + body + footer + MAGIC


def compress(plain: bytes, compression: str = "zstd") -> bytes:
    """Compress as a chunk is."""
    if compression == "lz4":
        import lz4.frame

        packed: bytes = lz4.frame.compress(plain, block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    else:
        packed = import_zstd().compress(plain, level=19 if len(plain) > 1 << 20 else 3)
    return packed


def sound_chunk(values: Iterable[int]) -> bytes:
    """A chunk of images with its index."""
    records, offsets, place = b"", [], 0
    for value in values:
        offsets.append(place)
        records += message(value)
        place = len(records)
    return chunk(records) + index(offsets)


def _many_failures() -> bytes:
    """500 messages in one chunk of 31 MB whose checksum is wrong."""
    packed = compress(bytes(31 << 20))
    return HEAD + chunk(packed, "zstd", 31 << 20, crc=1) + index([0] * 500)


def _many_bombs() -> bytes:
    bomb = chunk(compress(bytes(31 << 20)), "zstd", 31 << 20)
    body = HEAD + bomb * 300 + sound_chunk(range(3))
    return body + end([], len(body))


def _many_records() -> bytes:
    """16 MB of records of 9 bytes, of which each takes a microsecond."""
    plain = record(0x80, b"") * (16 * 1024 * 1024 // 9)
    body = HEAD + chunk(compress(plain), "zstd", len(plain)) * 20 + sound_chunk(range(3))
    return body + end([], len(body))


def _far_too_many_starts() -> bytes:
    """Every place that the summary names is damaged."""
    body = HEAD + bytes(60_000)
    return body + end(range(len(HEAD), len(body)), len(body))


def _sound(tail: bytes) -> bytes:
    return HEAD + tail + sound_chunk(range(3))


def _json_channel(number: int) -> bytes:
    names = text(f"/{number}") + text("json")
    return record(_CHANNEL, struct.pack("<HH", number, 1) + names + bytes(4))


MCAP: dict[str, Callable[[], bytes]] = {
    "an index of 17 bytes": lambda: _sound(chunk(message(7)) + index([], 17)),
    "an index longer than it is": lambda: _sound(chunk(message(7)) + index([0], 4096)),
    "a chunk of 2^63 bytes": lambda: _sound(chunk(b"x" * 20, "zstd", 1 << 63)),
    "a chunk of 2^63 bytes, plain": lambda: _sound(chunk(b"", "", 1 << 63)),
    "a bomb of records": lambda: _sound(chunk(compress(bytes(625_000_000)), "zstd", 625_000_000)),
    "a bomb that says less": lambda: _sound(chunk(compress(bytes(625_000_000)), "zstd", 1 << 24)),
    "a bomb of lz4": lambda: _sound(chunk(compress(bytes(300 << 20), "lz4"), "lz4", 300 << 20)),
    "300 small bombs": _many_bombs,
    "20 chunks of empty records": _many_records,
    "a bomb fetched 500 times": _many_failures,
    "a compression of 2^31 letters": lambda: _sound(
        record(_CHUNK, struct.pack("<QQQII", 0, 0, 0, 0, 1 << 31) + bytes(100))
    ),
    "a record of 2^62 bytes": lambda: _sound(b"") + bytes((_CHUNK, *bytes(7), 0x40)) + bytes(50),
    "a topic of a megabyte": lambda: _sound(
        record(_CHANNEL, struct.pack("<HH", 2, 1) + text("/x" * 500_000) + text("cdr") + bytes(4))
    ),
    "20,000 channels": lambda: _sound(
        b"".join(map(_json_channel, range(2, 20_002)))
    ),
    "60,000 wrong places": _far_too_many_starts,
    "an index into nowhere": lambda: _sound(
        chunk(message(7)) + index([5, 1 << 40, 2**64 - 1])
    ),
}  # fmt: skip
"""MCAP files by what is wrong with them."""

HOLDS_THREE = frozenset(MCAP) - {
    "a bomb fetched 500 times", "60,000 wrong places",
}  # fmt: skip
"""Those in which images 0, 1, 2 can be read: damage costs what is damaged."""


TOPICS = (
    "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT, serialization_format TEXT)"
)
MESSAGES = (
    "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, data BLOB)"
)
ENDLESS = (
    "CREATE VIEW messages AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
    "SELECT id, 1 AS topic_id, id AS timestamp, zeroblob(9) AS data FROM n"
)


def make_database(path: Path, *statements: str, page_size: int = 512, rows: int = 0) -> Path:
    """A database with a topic of images and with `rows` of them."""
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA page_size={page_size}")
        for statement in statements:
            database.execute(statement)
        if any("TABLE topics" in statement for statement in statements):
            row = (1, TOPIC, IMAGE, "cdr")
            database.execute("INSERT INTO topics VALUES (?, ?, ?, ?)", row)
        for number in range(rows):
            data = bytes(STORE.serialize_cdr(make_image(number, rows=1), IMAGE))
            row = (number + 1, number, data)
            database.execute("INSERT INTO messages VALUES (?, 1, ?, ?)", row)
    database.close()
    return path


def find_root(path: Path) -> int:
    """The first page of the messages."""
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'messages'"
    with contextlib.closing(sqlite3.connect(path)) as database:
        return int(database.execute(query).fetchone()[0])


def _rename_in_schema(path: Path) -> None:
    """A view that the schema calls a table."""
    make_database(path, TOPICS, MESSAGES)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA writable_schema=ON")
        database.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'messages'", (ENDLESS,))
    database.close()


def _promise_a_blob(path: Path) -> None:
    """A message whose head says 900 MB, of pages that follow each other in a circle."""
    make_database(path, TOPICS, MESSAGES, page_size=4096)
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO messages VALUES (1, 1, 1, zeroblob(20000))")
    database.close()
    data = bytearray(path.read_bytes())
    begin = (find_root(path) - 1) * 4096
    cell = begin + struct.unpack_from(">H", data, begin + 8)[0]
    local = 489  # bytes of the row in this page (SQLite's file format, 1.6)
    size = local + 4092 * 219_941
    kind = _varint(2 * (size - 9) + 12)
    row = bytes((4 + len(kind), 0, 9, 9)) + kind
    start = _varint(size) + b"\x01"
    last = len(data) // 4096
    data[cell : cell + len(start + row)] = start + row
    struct.pack_into(">I", data, cell + len(start) + local, last)
    struct.pack_into(">I", data, (last - 1) * 4096, last)
    struct.pack_into(">I", data, 28, 1 << 30)  # pages of the file
    path.write_bytes(data)


def _varint(number: int) -> bytes:
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(0x80 | (number & 0x7F))
    return bytes(reversed(groups))


def _lead_in_circles(path: Path) -> None:
    """A tree in which every child of a page is the same page, eight levels deep."""
    make_database(path, TOPICS, MESSAGES, rows=300)
    data = bytearray(path.read_bytes())
    root = find_root(path)
    pages = [data[place : place + 512] for place in range(0, len(data), 512)]
    page = max((p for p in pages if p[0] == 0x05), key=lambda p: int(p[4]))  # with most children
    (cells,) = struct.unpack_from(">H", page, 3)
    leaves = [n for n, p in enumerate(pages, 1) if n > 2 and p[0] == 0x0D and n != root]
    numbers = [root, *leaves[-9:]]
    for number, child in itertools.pairwise(numbers):
        copy = bytearray(page)
        struct.pack_into(">I", copy, 8, child)
        for cell in range(cells):
            (place,) = struct.unpack_from(">H", copy, 12 + 2 * cell)
            struct.pack_into(">I", copy, place, child)
        data[(number - 1) * 512 : number * 512] = copy
    path.write_bytes(data)


def _big_names(path: Path) -> None:
    make_database(path, TOPICS, MESSAGES, rows=3)
    with sqlite3.connect(path) as database:
        row = ("/x" * 500_000, IMAGE, "cdr")
        database.execute("INSERT INTO topics VALUES (2, ?, ?, ?)", row)
        database.execute("UPDATE messages SET topic_id = zeroblob(900000) WHERE id = 2")
    database.close()


def _of(*statements: str) -> Callable[[Path], Any]:
    return lambda path: make_database(path, *statements)


DB3: dict[str, Callable[[Path], Any]] = {
    "a recursive view": _of(TOPICS, ENDLESS),
    "a view that is called a table": _rename_in_schema,
    "topics as a view": _of(
        MESSAGES,
        f"CREATE VIEW topics AS SELECT 1 AS id, '{TOPIC}' AS name, '{IMAGE}' AS type, "
        "'cdr' AS serialization_format",
    ),
    "a virtual table": _of(
        TOPICS, "CREATE VIRTUAL TABLE messages USING fts5(id, topic_id, timestamp, data)"
    ),
    "a computed column": _of(
        TOPICS,
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, "
        "data BLOB AS (zeroblob(900000000)))",
        "INSERT INTO messages(id, topic_id, timestamp) VALUES (1, 1, 1)",
    ),
    "numbers that are none": _of(
        TOPICS, "CREATE TABLE messages(id BLOB, topic_id INTEGER, timestamp INTEGER, data BLOB)"
    ),
    "a message of 900 MB in few pages": _promise_a_blob,
    "a tree in circles": _lead_in_circles,
    "names of a megabyte": _big_names,
}  # fmt: skip
"""Databases by what is wrong with them; each function writes one."""
