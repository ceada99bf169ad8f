"""Helpers of the launch files, without rclpy: a launch only starts nodes."""

from __future__ import annotations

from ament_index_python.packages import PackageNotFoundError, get_package_prefix

_WORDS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


def is_true(text: str) -> bool:
    """Read a yes-or-no launch argument, in any case; `ValueError` for anything else."""
    try:
        return _WORDS[text.lower()]
    except KeyError:
        raise ValueError(f"true or false expected, not {text!r}") from None


def has_package(name: str) -> bool:
    """Whether the ROS package `name` is installed in this workspace or below it."""
    try:
        get_package_prefix(name)
    except PackageNotFoundError:
        return False
    return True
