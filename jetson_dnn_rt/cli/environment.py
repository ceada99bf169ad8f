"""Environment variables that ROS 2 reads, set where the user has not."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from importlib import metadata
from pathlib import Path

PACKAGE = "jetson_dnn_rt"
PROFILE = "config/fastdds_profile.xml"

# Major version of rclpy to the distribution that has it.
_DISTRIBUTIONS = {3: "humble", 4: "iron", 7: "jazzy", 9: "kilted", 10: "lyrical"}
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


def find_shared_file(relative: str) -> Path | None:
    """A file of the package: from the checkout, else from where it is installed."""
    prefixes = [sys.prefix, *os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)]
    folders = [Path(prefix, "share", PACKAGE) for prefix in prefixes if prefix]
    for folder in [Path(__file__).resolve().parents[2], *folders]:
        if (folder / relative).is_file():
            return folder / relative
    return None


def prepare_environment(environ: MutableMapping[str, str] = os.environ) -> list[str]:
    """Set the variables that ROS 2 needs and that are not set, before rclpy is imported.

    Returns the names of the variables that were set.
    """
    done = []
    if "AMENT_PREFIX_PATH" not in environ and Path(sys.prefix, "share", "ament_index").is_dir():
        # ROS 2 from PyPI has no set-up script to source.
        environ["AMENT_PREFIX_PATH"] = sys.prefix
        done.append("AMENT_PREFIX_PATH")
    profile, variable = find_shared_file(PROFILE), profile_variable()
    if variable not in environ and profile is not None:
        environ[variable] = str(profile)
        done.append(variable)
    return done
