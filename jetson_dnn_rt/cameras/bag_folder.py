"""Which files a bag consists of, in which order, and what its metadata promise."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from jetson_dnn_rt.errors import SourceError

METADATA = "metadata.yaml"

_DATA = re.compile(r"\.(db3|mcap|bag)(\.zstd)?$")


@dataclass(frozen=True)
class BagLayout:
    """Files of a bag in the order of recording.

    Attributes
    ----------
    files : list of Path
        Those that are there.
    expected : dict of str to int
        Messages by topic as the metadata have it; empty without metadata.
    notes : list of str
        What is missing, in words.
    """

    files: list[Path]
    expected: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def lay_out(path: Path) -> BagLayout:
    """Look at a folder of rosbag2, or take a single file.

    Raises
    ------
    SourceError
        When there is nothing, or no file of a bag.
    """
    if not path.exists():
        raise SourceError(f"bag {path} is not there: give the folder or the file of a bag")
    if path.is_file():
        if path.name == METADATA:
            return lay_out(path.parent)
        return BagLayout([path])
    notes: list[str] = []
    listed, expected = _read_metadata(path / METADATA, notes)
    present = _find_data(path)
    files = []
    for name in listed:
        if name in present:
            files.append(path / name)
        else:
            notes.append(f"{name} is not there, though {METADATA} names it")
    extra = [name for name in present if name not in listed and not _is_twin(name, listed)]
    if listed and extra:
        # A recorder that is killed leaves its last file out of the metadata.
        notes.append(f"{METADATA} does not name {', '.join(extra)}: read all the same")
    files += [path / name for name in extra]
    if not files:
        raise SourceError(f"bag {path} holds no .db3, .mcap or .bag file")
    return BagLayout(files, expected, notes)


def _find_data(path: Path) -> list[str]:
    """Files with messages, in the order of their numbers; the plain one of a file and its copy."""
    names = [item.name for item in path.iterdir() if item.is_file() and _DATA.search(item.name)]
    return sorted(names, key=_by_number)


def _is_twin(name: str, listed: list[str]) -> bool:
    """Tell whether a file is the compressed or the plain copy of one that is used already."""
    other = name[: -len(".zstd")] if name.endswith(".zstd") else f"{name}.zstd"
    return other in listed


def _by_number(name: str) -> list[tuple[int, str]]:
    """Order ``bag_10.db3`` behind ``bag_9.db3``."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _read_metadata(file: Path, notes: list[str]) -> tuple[list[str], dict[str, int]]:
    try:
        text = file.read_text()
        metadata = yaml.safe_load(text)["rosbag2_bagfile_information"]
        # Older releases wrote paths from the folder above.
        names = [Path(name).name for name in metadata["relative_file_paths"]]
        topics = metadata.get("topics_with_message_count") or []
        return names, _count_topics(topics)
    except FileNotFoundError:
        notes.append(f"{METADATA} is missing: the files are taken in the order of their names")
    except (
        OSError,
        yaml.YAMLError,
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        words = " ".join(str(error).split())[:200]
        notes.append(f"{METADATA} cannot be read and is left out: {type(error).__name__}: {words}")
    return [], {}


def _count_topics(topics: list[dict[str, Any]]) -> dict[str, int]:
    expected: dict[str, int] = {}
    for topic in topics:
        name = str(topic["topic_metadata"]["name"])
        expected[name] = expected.get(name, 0) + int(topic["message_count"])
    return expected
