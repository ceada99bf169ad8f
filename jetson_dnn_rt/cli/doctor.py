"""Report what is installed, granted and set, and how to fix what is not.

Exit code 0 when `jetson-dnn-rt run` has what it needs, else 1. With ``--tensorrt`` a small network
is built by TensorRT, compared and timed instead; exit code 0 when it works, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from typing import TYPE_CHECKING

from jetson_dnn_rt import __version__
from jetson_dnn_rt.cli.environment import prepare_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetson_dnn_rt.cli.checks import Check

HELP = "report what is installed, granted and set, and how to fix what is not"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "--tensorrt", action="store_true", help="try TensorRT, and say what it lacks"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Run every check and print what it found."""
    from jetson_dnn_rt.cli.checks import check_tensorrt

    checks = check_tensorrt() if args.tensorrt else run_checks()
    missing = ", ".join(check.name for check in checks if check.required and not check.ok)
    if args.json:
        print(json.dumps(to_dict(checks)))
    else:
        print(format_checks(checks))
        if args.tensorrt:
            bad, good = f"TensorRT does not work here: {missing}", "TensorRT works here."
        else:
            bad, good = f"`run` lacks: {missing}", "`run` has what it needs."
        print(f"\n{bad if missing else good}")
    return 1 if missing else 0


def run_checks() -> list[Check]:
    """Every check, in the order in which they are shown."""
    from jetson_dnn_rt.backends.registry import list_backends
    from jetson_dnn_rt.cli import checks

    # The profile as the user's shell has it, before this process sets what is missing.
    profile = checks.check_profile(os.environ)
    prepare_environment()
    return [
        checks.check_python(),
        checks.check_ros(),
        *checks.check_interfaces(),
        checks.check_launch(),
        checks.check_module("cv2", "pip install opencv-python-headless", required=True),
        checks.check_module("matplotlib", "pip install matplotlib", required=False),
        *checks.check_backends(list_backends()),
        checks.check_gpu(),
        *checks.check_memory(),
        checks.check_jetson(),
        *checks.check_rights(),
        checks.check_threads(os.environ),
        checks.check_governor(),
        *checks.check_platform(),
        profile,
        checks.check_shared_memory(),
    ]


def to_dict(checks: Sequence[Check]) -> dict[str, object]:
    """The JSON form; ``ok`` tells whether all that is required is there."""
    keys = ("ok", "required", "detail", "fix")
    return {
        "version": __version__,
        "machine": platform.platform(),
        "ok": all(check.ok for check in checks if check.required),
        "checks": {check.name: {key: getattr(check, key) for key in keys} for check in checks},
    }


def format_checks(checks: Sequence[Check]) -> str:
    """The form for people: a line for each check, with its fix below."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        mark = "ok  " if check.ok else "LACK" if check.required else "-   "
        lines.append(f"{mark}  {check.name.ljust(width)}  {check.detail}")
        if check.fix and not check.ok:
            lines.append(f"      {' ' * width}  -> {check.fix}")
    return "\n".join(lines)
