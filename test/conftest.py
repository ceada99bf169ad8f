"""What every test shares: a ROS domain of the run's own, and the shared data."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"
PROFILE = os.fspath(ROOT / "config" / "fastdds_profile.xml")


def prepare_ros_environment() -> None:
    """Set what rclpy and its middleware read when they are loaded, which is once."""
    # Two runs on one machine must not hear each other; nor may another machine.
    os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    if os.environ.get("ROS_DISTRO") == "humble":
        os.environ["ROS_LOCALHOST_ONLY"] = "1"
    # Fast DDS 2 (up to Jazzy) and Fast DDS 3 read different variables; 3 warns of the older one.
    fast_dds_2 = os.environ.get("ROS_DISTRO") in ("humble", "iron", "jazzy")
    name = "FASTRTPS" if fast_dds_2 else "FASTDDS"
    os.environ[f"{name}_DEFAULT_PROFILES_FILE"] = PROFILE
    if Path(sys.prefix, "share", "ament_index").is_dir():
        paths = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
        if sys.prefix not in paths:
            os.environ["AMENT_PREFIX_PATH"] = os.pathsep.join(filter(None, [sys.prefix, *paths]))


prepare_ros_environment()


@pytest.fixture(scope="session", autouse=True)
def ros_log_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the logs of the nodes under test out of the home folder."""
    folder = tmp_path_factory.mktemp("ros_log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROS_LOG_DIR", os.fspath(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep what is built and downloaded out of the home folder; processes inherit it."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.fspath(folder))
        yield folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of recorded images, videos and models beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip("no ../shared/data beside the checkout: recorded data and models are missing")
    return SHARED_DATA
