# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Environment variables that ROS 2 reads, set where the user has not."""

from __future__ import annotations

import atexit
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, MutableMapping
from functools import partial
from importlib import metadata
from pathlib import Path

PACKAGE = "jetson_dnn_rt"
PROFILE = "config/fastdds_profile.xml"
LOCALHOST_PROFILE = "config/fastdds_localhost_profile.xml"

SEGMENT_PICTURES = 5
"""Pictures that a segment of shared memory has room for; the shipped one has it for 1920x1080."""

PIECE_BYTES = 65_000
"""Size of the pieces in which Fast DDS sends a picture, rounded down."""

_SEGMENT = re.compile(r"<segment_size>(\d+)</segment_size>")

# Major version of rclpy to the distribution that has it.
_DISTRIBUTIONS = {3: "humble", 4: "iron", 7: "jazzy", 9: "kilted", 10: "lyrical"}
_SKIP_FOUND = "SKIP_DEFAULT_XML_FILE"
# Fast DDS 2 reads another variable than Fast DDS 3, which warns of the older one.
_WITH_FAST_DDS_2 = ("humble", "iron", "jazzy")


def find_distribution() -> tuple[str, str]:
    """Name of the ROS 2 distribution and where it comes from, or two empty strings.

    ``("jazzy", "/opt/ros/jazzy")`` or ``("kilted", "PyPI")``.
    """
    if name := os.environ.get("ROS_DISTRO", ""):
        folder = Path("/opt/ros", name)
        return name, str(folder) if folder.is_dir() else "ROS_DISTRO"
    try:
        version = metadata.version("ros-rclpy")
    except metadata.PackageNotFoundError:
        return "", ""
    return _DISTRIBUTIONS.get(int(version.split(".")[0]), f"rclpy {version}"), "PyPI"


def profile_variable() -> str:
    """Name of the variable that this distribution's Fast DDS reads its profile from."""
    name, _ = find_distribution()
    fast_dds = "FASTRTPS" if name in _WITH_FAST_DDS_2 else "FASTDDS"
    return f"{fast_dds}_DEFAULT_PROFILES_FILE"


def is_localhost_only(environ: Mapping[str, str]) -> bool:
    """Whether the user wants no other machine to take part."""
    by_range = environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE") in ("LOCALHOST", "OFF")
    return environ.get("ROS_LOCALHOST_ONLY") == "1" or (
        # Peers may be other machines.
        by_range and not environ.get("ROS_STATIC_PEERS")
    )


def find_profile(environ: Mapping[str, str]) -> Path | None:
    """The Fast DDS profile that loses no images; of two the one without a network if asked for."""
    return find_shared_file(LOCALHOST_PROFILE if is_localhost_only(environ) else PROFILE)


def choose_profile(environ: Mapping[str, str], picture_bytes: int = 0) -> dict[str, str]:
    """Variable and path of that profile; empty where the user has set one, under either name.

    For pictures of which the profile's segment would hold too few it is one with a larger segment,
    in a file that lives as long as this process.
    """
    if any(f"{name}_DEFAULT_PROFILES_FILE" in environ for name in ("FASTRTPS", "FASTDDS")):
        return {}
    file = find_profile(environ)
    text = "" if file is None else enlarge_segment(file.read_text("utf-8"), picture_bytes)
    if text:
        # Respawned processes read it again, so it cannot be removed earlier.
        with tempfile.NamedTemporaryFile(
            "w", prefix="jetson_dnn_rt_", suffix=".xml", delete=False
        ) as made:
            made.write(text)
        file = Path(made.name)
        atexit.register(partial(file.unlink, missing_ok=True))
    # One variable only: with both, a later Fast DDS reads the profile twice and warns.
    return {} if file is None else {profile_variable(): str(file)}


def enlarge_segment(profile: str, picture_bytes: int) -> str:
    """Text of a profile whose shared memory holds `SEGMENT_PICTURES` pictures.

    Empty where that of `profile` does, or where /dev/shm has no room for two such segments: Fast
    DDS allocates them whole.
    """
    found = _SEGMENT.search(profile)
    needed = SEGMENT_PICTURES * picture_bytes
    if found is None or needed <= int(found[1]):
        return ""
    try:
        room = os.statvfs("/dev/shm")
    except OSError:
        return ""
    if room.f_bavail * room.f_frsize < 2 * needed:
        return ""
    # A reader has 512 places for what is sent to it by default: too few for the pieces of two
    # pictures of 4K.
    places = needed // PIECE_BYTES + 1
    size = f"<segment_size>{needed}</segment_size>"
    return _SEGMENT.sub(
        f"{size}\n        <port_queue_capacity>{places}</port_queue_capacity>", profile
    )


def find_picture_bytes(sizes: Iterable[tuple[int, int]]) -> int:
    """Bytes of the largest picture in colours; `sizes` are width and height, 0 = not known."""
    return max((3 * width * height for width, height in sizes), default=0)


def find_shared_file(relative: str) -> Path | None:
    """A file of the package: from the checkout, else from where it is installed."""
    prefixes = [sys.prefix, *os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)]
    folders = [Path(prefix, "share", PACKAGE) for prefix in prefixes if prefix]
    for folder in [Path(__file__).resolve().parents[2], *folders]:
        if (folder / relative).is_file():
            return folder / relative
    return None


def prepare_environment(
    environ: MutableMapping[str, str] = os.environ, picture_bytes: int = 0
) -> list[str]:
    """Set the variables that ROS 2 needs and that are not set, before rclpy is imported.

    `picture_bytes` are those of the largest picture that is published, 0 = not known.
    Returns the names of the variables that were set.
    """
    done = []
    if "AMENT_PREFIX_PATH" not in environ and Path(sys.prefix, "share", "ament_index").is_dir():
        # ROS 2 from PyPI has no set-up script to source.
        environ["AMENT_PREFIX_PATH"] = sys.prefix
        done.append("AMENT_PREFIX_PATH")
    profile = choose_profile(environ, picture_bytes)
    environ.update(profile)
    if _SKIP_FOUND not in environ:
        # Else Fast DDS takes its settings from a file in the working folder, whoever put it there.
        environ[_SKIP_FOUND] = "1"
        done.append(_SKIP_FOUND)
    return [*done, *profile]
