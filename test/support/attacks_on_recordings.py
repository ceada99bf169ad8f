# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Videos, folders of images and bags that lead to other files, or would run code."""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from attack_arena import Arena, Hostile, attack
from hostile_bags import MESSAGES, TOPICS, make_database
from malice import make_library

# -- videos ------------------------------------------------------------------------------------


def _read_video(path: Path) -> str:
    return f"import cv2\ncv2.VideoCapture({os.fspath(path)!r}).read()"


def make_video(path: Path) -> Path:
    """A video of five frames."""
    writer = cv2.VideoWriter(os.fspath(path), cv2.VideoWriter.fourcc(*"mp4v"), 10, (64, 48))
    for value in range(5):
        writer.write(np.full((48, 64, 3), 40 * value, np.uint8))
    writer.release()
    return path


@attack("video", "a playlist (HLS) for a video")
def lay_playlist(arena: Arena) -> Hostile:
    secret = make_video(arena.outside / "precious.mp4")
    target = arena.rng.choice([os.fspath(secret), f"../elsewhere/{secret.name}"])
    head = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n" + "#EXT-X-VERSION:3\n" * arena.rng.randrange(3)
    path = arena.write("drive.m3u8", f"{head}#EXTINF:1.0,\n{target}\n#EXT-X-ENDLIST\n")
    return Hostile(os.fspath(path), _read_video(path))


@attack("video", "a playlist that is called .mp4")
def lay_playlist_mp4(arena: Arena) -> Hostile:
    """FFmpeg before 7 goes by the content alone, and OpenCV of JetPack has 4."""
    secret = make_video(arena.outside / "precious.mp4")
    text = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\n{secret}\n#EXT-X-ENDLIST\n"
    path = arena.write("drive.mp4", text)
    return Hostile(os.fspath(path), f"open({os.fspath(secret)!r})")


@attack("video", "a list of videos (ffconcat)")
def lay_concat(arena: Arena) -> Hostile:
    make_video(arena.inside / "other.mp4")
    path = arena.write(f"drive{arena.rng.choice(['.mp4', '.avi'])}",
                       "ffconcat version 1.0\nfile 'other.mp4'\n")  # fmt: skip
    return Hostile(os.fspath(path), _read_video(path))


@attack("video", "a playlist on another machine")
def lay_network_playlist(arena: Arena) -> Hostile:
    address = f"http://127.0.0.1:{arena.port}/a.ts"
    text = f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1.0,\n{address}\n#EXT-X-ENDLIST\n"
    path = arena.write("drive.m3u8", text)
    control = (
        "import os\nos.environ['OPENCV_FFMPEG_CAPTURE_OPTIONS'] = "
        f"'protocol_whitelist;file,http,tcp'\n{_read_video(path)}"
    )
    return Hostile(os.fspath(path), control)


@attack("video", "a name that stands for many files")
def lay_pattern(arena: Arena) -> Hostile:
    picture = np.full((48, 64, 3), 90, np.uint8)
    for number in range(3):
        cv2.imwrite(os.fspath(arena.inside / f"drive_{number:02}.png"), picture)
    path = arena.write("drive_%02d.png", b"x")
    return Hostile(os.fspath(path), _read_video(path))


@attack("video", "a session description (SDP)")
def lay_session(arena: Arena) -> Hostile:
    text = (
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n"
        f"m=video {arena.port} RTP/AVP 96\na=rtpmap:96 H264/90000\n"
    )
    return Hostile(os.fspath(arena.write("drive.sdp", text)))


# -- images ------------------------------------------------------------------------------------


@attack("images", "a virtual raster (GDAL) for an image")
def lay_virtual_raster(arena: Arena) -> Hostile:
    """OpenCV of Ubuntu reads images with GDAL, too, whose format VRT names other files."""
    secret = arena.secret("precious.png")
    text = (
        '<VRTDataset rasterXSize="8" rasterYSize="8"><VRTRasterBand dataType="Byte" band="1">'
        f'<SimpleSource><SourceFilename relativeToVRT="0">{secret}</SourceFilename>'
        "<SourceBand>1</SourceBand></SimpleSource></VRTRasterBand></VRTDataset>"
    )
    path = arena.write(f"photos/a{arena.rng.choice(['.tif', '.png'])}", text)
    return Hostile(os.fspath(path.parent), f"open({os.fspath(secret)!r})")


@attack("images", "terminal commands in the names of images")
def lay_image_names(arena: Arena) -> Hostile:
    for number in range(3):
        arena.write(f"photos/\x1b]0;owned\x07\x1b[2J{number}.png", b"\x89PNG nothing")
    return Hostile(os.fspath(arena.inside / "photos"))


# -- bags --------------------------------------------------------------------------------------


def _make_bag(arena: Arena, metadata: str) -> Path:
    bag = arena.inside / "bag"
    bag.mkdir()
    make_database(bag / "bag_0.db3", TOPICS, MESSAGES, rows=3)
    (bag / "metadata.yaml").write_text(metadata)
    return bag


@attack("bag", "metadata that name files elsewhere")
def lay_far_files(arena: Arena) -> Hostile:
    secret = arena.secret("bag_1.db3")
    make_database(arena.outside / "bag_2.db3", TOPICS, MESSAGES, rows=3)
    names = [os.fspath(secret), "../../elsewhere/bag_2.db3", "bag_0.db3"]
    arena.rng.shuffle(names)
    bag = _make_bag(
        arena,
        "rosbag2_bagfile_information:\n  version: 5\n  storage_identifier: sqlite3\n"
        f"  relative_file_paths: {names}\n",
    )
    control = f"import os\n[open(os.path.join({os.fspath(bag)!r}, name)) for name in {names!r}]"
    return Hostile(os.fspath(bag), control)


@attack("bag", "metadata with objects of Python")
def lay_metadata_objects(arena: Arena) -> Hostile:
    text = f"rosbag2_bagfile_information: !!python/object/apply:os.mkdir ['{arena.marker}']\n"
    bag = _make_bag(arena, text)
    control = f"import yaml\nyaml.unsafe_load({text!r})"
    return Hostile(os.fspath(bag), control)


@attack("bag", "messages that are a view which loads a library")
def lay_loading_view(arena: Arena) -> Hostile | None:
    code = make_library(arena.inside / "evil.so", arena.marker)
    if code is None:
        return None
    path = arena.inside / "bag.db3"
    view = (
        "CREATE VIEW messages AS SELECT 1 AS id, 1 AS topic_id, 1 AS timestamp, "
        f"load_extension('{code}') AS data"
    )
    make_database(path, TOPICS, view)
    # No control: SQLite itself refuses that function in views by now.
    return Hostile(os.fspath(path))


def _register_schema(name: str, statements: Callable[[Arena], list[str]]) -> None:
    @attack("bag", name)
    def lay(arena: Arena) -> Hostile:
        path = arena.inside / "bag.db3"
        with sqlite3.connect(path) as database:
            for statement in statements(arena):
                database.execute(statement)
        database.close()
        return Hostile(os.fspath(path))


_register_schema(
    "triggers and virtual tables",
    lambda arena: [
        TOPICS, MESSAGES,
        "INSERT INTO topics VALUES (1, '/camera/image_raw', 'sensor_msgs/msg/Image', 'cdr')",
        "CREATE VIRTUAL TABLE other USING fts5(x)",
        "CREATE TRIGGER one AFTER INSERT ON messages BEGIN DELETE FROM topics; END",
    ],
)  # fmt: skip


@attack("bag", "a rollback journal that names another file")
def lay_journal(arena: Arena) -> Hostile:
    """SQLite opens the super-journal that a hot journal names, and may delete it."""
    path = arena.inside / "bag.db3"
    make_database(path, TOPICS, MESSAGES, page_size=4096, rows=3)
    secret = arena.secret("precious-journal", b"\0" * 64)
    name = os.fsencode(secret)
    pages = path.stat().st_size // 4096
    header = bytes.fromhex("d9d505f920a163d7") + struct.pack(">iIIII", 0, 7, pages, 512, 4096)
    tail = struct.pack(">I", (1 << 30) // 4096 + 1) + name
    tail += struct.pack(">II", len(name), sum(name) & 0xFFFFFFFF)
    tail += bytes.fromhex("d9d505f920a163d7")
    arena.write("bag.db3-journal", header.ljust(512, b"\0") + tail)
    if arena.rng.random() < 0.5:  # with it the reader does not take the file as it is
        arena.write("bag.db3-wal", bytes(64))
    control = (
        f"import sqlite3\nsqlite3.connect({os.fspath(path)!r}).execute("
        "'SELECT * FROM topics').fetchall()"
    )
    return Hostile(
        os.fspath(path), control, named=("bag.db3-wal", "bag.db3-shm", "bag.db3-journal")
    )


@attack("bag", "names of topics with terminal commands")
def lay_topics(arena: Arena) -> Hostile:
    path = arena.inside / "bag.db3"
    make_database(path, TOPICS, MESSAGES, rows=1)
    with sqlite3.connect(path) as database:
        names = [f"/\x1b]0;owned\x07\x1b[2J{number}" for number in range(3)]
        for number, name in enumerate(names, 2):
            row = (number, name, "sensor_msgs/msg/Image", "cdr")
            database.execute("INSERT INTO topics VALUES (?, ?, ?, ?)", row)
    database.close()
    return Hostile(os.fspath(path))


@attack("bag", "a link in the folder to a file elsewhere")
def lay_link(arena: Arena) -> Hostile:
    """A link is followed, as by everything on Linux, but nothing of its target is shown."""
    arena.secret("precious.db3")
    bag = _make_bag(arena, "")
    (bag / "bag_1.db3").symlink_to(arena.outside / "precious.db3")
    return Hostile(os.fspath(bag), named=("../elsewhere/precious.db3",))
