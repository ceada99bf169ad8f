# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Layout of a bag: its files, their order, and the message counts of its metadata."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from jetson_dnn_rt.cameras.bags.storage import Notes
from jetson_dnn_rt.errors import SourceError
from jetson_dnn_rt.safety import small_files
from jetson_dnn_rt.safety import yaml_files as safe_yaml

METADATA = "metadata.yaml"

MAX_METADATA_BYTES = 1 << 20
MAX_FILES = 10_000

_DATA = re.compile(r"\.(db3|mcap|bag(\.active)?)(\.zstd)?$")
"""``.bag.active`` is what a recorder of ROS 1 leaves that is killed."""


@dataclass(frozen=True)
class BagLayout:
    """Existing files of a bag, in the order of recording."""

    files: list[Path]
    # Messages by topic according to the metadata; empty without metadata.
    expected: dict[str, int] = field(default_factory=dict)
    # What is missing, in words.
    notes: list[str] = field(default_factory=list)


def lay_out(path: Path) -> BagLayout:
    """Find the files of a rosbag2 folder, or use a single file.

    SourceError when the path is missing, neither a file nor a folder, or without a bag file.
    """
    if not path.exists():
        raise SourceError(f"bag {path} is not there: give the folder or the file of a bag")
    if path.is_file():
        return lay_out(path.parent) if path.name == METADATA else BagLayout([path])
    if not path.is_dir():
        raise SourceError(f"bag {path} is neither a folder nor a regular file")
    notes: list[str] = Notes()
    listed, expected = _read_metadata(path / METADATA, notes)
    try:
        names = [item.name for item in path.iterdir() if is_bag_file(item.name)]
        files_there = (name for name in names if (path / name).is_file())
        present = dict.fromkeys(sorted(files_there, key=_by_number))
    except OSError as error:
        raise SourceError(f"bag {path} cannot be read: {error.strerror}") from error
    files = []
    for name in listed:
        if name in present:
            files.append(path / name)
        else:
            notes.append(f"{name} is not there, though {METADATA} names it")
    extra = [name for name in present if name not in listed and _other_copy(name) not in listed]
    if listed and extra:
        # A recorder that is killed leaves its last file out of the metadata.
        notes.append(f"{METADATA} does not name {', '.join(extra)}: read all the same")
    files += [path / name for name in extra]
    if not files:
        raise SourceError(f"bag {path} holds no .db3, .mcap or .bag file, and no image")
    return BagLayout(files, expected, notes)


def is_bag_file(name: str) -> bool:
    """Whether a file's name is that of a part of a bag."""
    return _DATA.search(name) is not None


def _other_copy(name: str) -> str:
    """Name of the plain copy of a compressed file, or of the compressed copy of a plain one."""
    return name.removesuffix(".zstd") if name.endswith(".zstd") else f"{name}.zstd"


def _by_number(name: str) -> list[tuple[int, str]]:
    """Order ``bag_10.db3`` behind ``bag_9.db3``."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _read_metadata(file: Path, notes: list[str]) -> tuple[dict[str, None], dict[str, int]]:
    """Names of the files in their order, and messages by topic."""
    try:
        text = small_files.read_text(file, MAX_METADATA_BYTES)
        metadata = safe_yaml.parse(text)["rosbag2_bagfile_information"]
        names = _name_files(metadata["relative_file_paths"])
        return names, _count_messages(metadata.get("topics_with_message_count") or [])
    except FileNotFoundError:
        notes.append(f"{METADATA} is missing: the files are taken in the order of their names")
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        words = " ".join(str(error).split())[:200]
        notes.append(f"{METADATA} cannot be read and is left out: {type(error).__name__}: {words}")
    return {}, {}


def _name_files(paths: list[Any]) -> dict[str, None]:
    if len(paths) > MAX_FILES:
        raise ValueError(f"{len(paths)} files are named, at most {MAX_FILES} are accepted")
    names: dict[str, None] = {}
    for path in paths:
        if not isinstance(path, str):
            raise TypeError(f"the name of a file is not a text: {safe_yaml.describe(path)}")
        name = Path(path).name  # older releases wrote paths from the folder above
        if name in names:
            raise ValueError(f"{safe_yaml.describe(name)} is named twice")
        names[name] = None
    return names


def _count_messages(topics: list[dict[str, Any]]) -> dict[str, int]:
    expected: dict[str, int] = {}
    for topic in topics:
        name, count = topic["topic_metadata"]["name"], topic["message_count"]
        if not isinstance(name, str):
            raise TypeError(f"the name of a topic is not a text: {safe_yaml.describe(name)}")
        if type(count) is not int or not 0 <= count < 1 << 63:
            raise ValueError(f"no count of messages: {safe_yaml.describe(count)}")
        expected[name] = expected.get(name, 0) + count
    return expected
