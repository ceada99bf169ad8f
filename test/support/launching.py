# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Launch files as `ros2 launch` runs them, with other programs in the place of `ros2`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

_CODE = """
import sys
import launch
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource

file, *arguments = sys.argv[1:]
include = IncludeLaunchDescription(
    PythonLaunchDescriptionSource(file),
    launch_arguments=[argument.split(":=", 1) for argument in arguments],
)
service = launch.LaunchService(noninteractive=True)
service.include_launch_description(launch.LaunchDescription([include]))
sys.exit(service.run())
"""


TIMEOUT_S = 90.0
"""Until a launched graph has said what is waited for."""


class Probe(unittest.TestCase):
    """Tests of a launched graph with a node that listens to it."""

    node: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        """Make the node."""
        import rclpy

        rclpy.init()
        cls.node = rclpy.create_node("launch_probe")

    @classmethod
    def tearDownClass(cls) -> None:
        """Destroy the node."""
        import rclpy

        cls.node.destroy_node()
        rclpy.try_shutdown()

    def receive(
        self, kind: Any, topic: str, wanted: Callable[[Any], bool] = lambda message: True
    ) -> Any:
        """Wait for a message that satisfies `wanted`."""
        import rclpy

        found: list[Any] = []
        done = threading.Event()

        def take(message: Any) -> None:
            if wanted(message):
                found.append(message)
                done.set()

        subscription = self.node.create_subscription(kind, topic, take, 10)
        end_s = time.monotonic() + TIMEOUT_S
        while not done.is_set() and time.monotonic() < end_s:
            rclpy.spin_once(self.node, timeout_sec=0.1)
        self.node.destroy_subscription(subscription)
        assert found, f"no message on {topic} within {TIMEOUT_S} s"
        return found[0]


def find_share() -> Path:
    """The share folder of the installed package; skips the calling module without one."""
    if not os.environ.get("AMENT_PREFIX_PATH"):
        pytest.skip("AMENT_PREFIX_PATH is not set: source the workspace", allow_module_level=True)
    from ament_index_python.packages import PackageNotFoundError, get_package_share_directory

    try:
        return Path(get_package_share_directory("jetson_dnn_rt"))
    except PackageNotFoundError:
        pytest.skip("jetson_dnn_rt is not installed in this workspace", allow_module_level=True)


def run_launch(
    file: Path, arguments: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Launch until everything has ended; returns the exit code and what was said."""
    command = [sys.executable, "-c", _CODE, str(file)]
    command += [f"{name}:={value}" for name, value in arguments.items()]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    return done.returncode, done.stdout


def pretend(folder: Path, package: str, script: str) -> dict[str, str]:
    """An environment in which `package` is installed and `ros2` is a shell script."""
    prefix = folder / "prefix"
    marker = prefix / "share" / "ament_index" / "resource_index" / "packages" / package
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    (prefix / "share" / package).mkdir(exist_ok=True)
    program = prefix / "bin" / "ros2"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "AMENT_PREFIX_PATH": f"{prefix}{os.pathsep}{os.environ.get('AMENT_PREFIX_PATH', '')}",
    }
