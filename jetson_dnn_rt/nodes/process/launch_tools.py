"""What the launch files share. Without rclpy: a launch starts nodes, it is none."""

from __future__ import annotations

from ament_index_python.packages import PackageNotFoundError, get_package_prefix

_WORDS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}


def is_true(text: str) -> bool:
    """Read a launch argument that says yes or no, in any case of its letters.

    Raises
    ------
    ValueError
        Neither is said.
    """
    try:
        return _WORDS[text.lower()]
    except KeyError:
        raise ValueError(f"true or false expected, not {text!r}") from None


def has_package(name: str) -> bool:
    """Say whether the ROS package `name` is installed in this workspace or below it."""
    try:
        get_package_prefix(name)
    except PackageNotFoundError:
        return False
    return True
