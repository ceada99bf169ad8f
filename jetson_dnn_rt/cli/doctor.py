"""Report what is installed, granted and set, and how to fix what is not.

Exit code 0 when `jetson-dnn-rt run` has what it needs, else 1. With ``--tensorrt`` a small network
is built by TensorRT, compared and timed instead; exit code 0 when it works, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence

from jetson_dnn_rt import __version__
from jetson_dnn_rt.cli.checks import (
    Check,
    check_backends,
    check_governor,
    check_gpu,
    check_interfaces,
    check_jetson,
    check_launch,
    check_module,
    check_platform,
    check_profile,
    check_python,
    check_rights,
    check_ros,
    check_shared_memory,
    check_threads,
)
from jetson_dnn_rt.cli.environment import prepare_environment

HELP = "report what is installed, granted and set, and how to fix what is not"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "--tensorrt", action="store_true", help="try TensorRT, and say what it lacks"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")


def execute(args: argparse.Namespace) -> int:
    """Run every check and print what it found."""
    checks = run_tensorrt_checks() if args.tensorrt else run_checks()
    failed = [check for check in checks if check.required and not check.ok]
    if args.json:
        print(json.dumps(to_dict(checks)))
    else:
        print(format_checks(checks))
        missing = ", ".join(check.name for check in failed)
        if args.tensorrt:
            print(
                f"\nTensorRT does not work here: {missing}" if failed else "\nTensorRT works here."
            )
        else:
            print(f"\n`run` lacks: {missing}" if failed else "\n`run` has what it needs.")
    return 1 if failed else 0


def run_checks() -> list[Check]:
    """Every check, in the order in which they are shown."""
    from jetson_dnn_rt.backends.registry import list_backends
    from jetson_dnn_rt.cli.memory_checks import check_memory

    # The profile as the user's shell has it, before this process sets what is missing.
    profile = check_profile(os.environ)
    prepare_environment()
    return [
        check_python(),
        check_ros(),
        *check_interfaces(),
        check_launch(),
        check_module("cv2", "pip install opencv-python-headless", required=True),
        check_module("matplotlib", "pip install matplotlib", required=False),
        *check_backends(list_backends()),
        check_gpu(),
        *check_memory(),
        check_jetson(),
        *check_rights(),
        check_threads(os.environ),
        check_governor(),
        *check_platform(),
        profile,
        check_shared_memory(),
    ]


def run_tensorrt_checks() -> list[Check]:
    """What TensorRT needs, and whether it works."""
    from jetson_dnn_rt.cli.tensorrt_checks import check_tensorrt

    return check_tensorrt()


def to_dict(checks: Sequence[Check]) -> dict[str, object]:
    """The JSON form; ``ok`` says whether all that is required is there."""
    return {
        "version": __version__,
        "machine": platform.platform(),
        "ok": all(check.ok for check in checks if check.required),
        "checks": {
            check.name: {
                "ok": check.ok,
                "required": check.required,
                "detail": check.detail,
                "fix": check.fix,
            }
            for check in checks
        },
    }


def format_checks(checks: Sequence[Check]) -> str:
    """The form for people: a line for each check, below it the fix."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        mark = "ok  " if check.ok else "LACK" if check.required else "-   "
        lines.append(f"{mark}  {check.name.ljust(width)}  {check.detail}")
        if check.fix and not check.ok:
            lines.append(f"      {' ' * width}  -> {check.fix}")
    return "\n".join(lines)
