# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Snapshots of what users see of the package, as text files: compared after each change.

    python tools/snapshots.py --write [NAME...]   write test/snapshots/NAME.txt
    python tools/snapshots.py [NAME...]           compare; a difference is printed, exit code 1
    python tools/snapshots.py --list              the snapshots, and which the tests compare too

A snapshot is a file of sorted lines, one item per line. Slow ones are compared by this program
only, not by the tests (test/test_snapshots.py): run it without a name after a refactoring.
"""

from __future__ import annotations

import argparse
import difflib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "test" / "snapshots"

Lines = Mapping[str, object]


SNAPSHOTS = {
    "parameters": "snapshot_nodes.collect_parameters",
    "interfaces": "snapshot_nodes.collect_interfaces",
    "help": "snapshot_commands.collect_help",
    "help_benchmarks": "snapshot_commands.collect_benchmark_help",
    "executables": "snapshot_commands.collect_executables",
    "exports": "snapshot_commands.collect_launch_arguments",
    "json_keys": "snapshot_outputs.collect_json_keys",
    "json_keys_slow": "snapshot_outputs.collect_slow_json_keys",
    "trace_schema": "snapshot_outputs.collect_trace_schema",
    "unbound_quantities": "bound_figures.collect_unbound",
    "decisions_engine": "snapshot_decisions.collect_engine",
    "decisions_executor": "snapshot_decisions.collect_executor",
    "decisions_simulated": "snapshot_decisions.collect_simulated",
    "decisions_scenarios": "snapshot_decisions.collect_scenarios",
}
"""By name, the function of this folder that returns the lines: a value for each key."""

UNTESTED = ("json_keys_slow", "decisions_scenarios")
"""Snapshots that take too long for the tests."""


def collect(name: str) -> str:
    """Collect the text of a snapshot from the present package."""
    module, _, function = SNAPSHOTS[name].partition(".")
    return render(getattr(import_module(module), function)())


def render(lines: Lines) -> str:
    """Format sorted lines ``key: value``; the lines of a text stay together below their key."""
    shown: list[str] = []
    for key in sorted(lines):
        value = lines[key]
        if isinstance(value, str) and "\n" in value:
            shown += [f"== {key}", *value.splitlines(), ""]
        elif isinstance(value, str):
            shown.append(f"{key}: {value}")
        else:
            shown.append(f"{key}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}")
    return "\n".join(line.rstrip() for line in shown).rstrip("\n") + "\n"


def snapshot_file(name: str) -> Path:
    """Path of a snapshot."""
    return FOLDER / f"{name}.txt"


def compare(name: str, text: str) -> str:
    """Make a unified diff from the stored file to the text; empty if they are equal."""
    file = snapshot_file(name)
    kept = file.read_text(encoding="utf-8") if file.is_file() else ""
    diff = difflib.unified_diff(
        kept.splitlines(), text.splitlines(), f"{name}.txt", "now", lineterm="", n=1
    )
    return "\n".join(diff)


def prepare(folder: Path) -> None:
    """Set the environment variables of rclpy and the package, before they are imported.

    The tests set the same in their conftest.py.
    """
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    if os.environ.get("ROS_DISTRO") == "humble":
        os.environ["ROS_LOCALHOST_ONLY"] = "1"
    os.environ["ROS_LOG_DIR"] = str(folder / "log")
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    if Path(sys.prefix, "share", "ament_index").is_dir():
        paths = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
        if sys.prefix not in paths:
            os.environ["AMENT_PREFIX_PATH"] = os.pathsep.join(filter(None, [sys.prefix, *paths]))
    # From this checkout, even if the package is installed.
    sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "test" / "support")]
    from ros_domains import claim_domain

    os.environ["ROS_DOMAIN_ID"] = str(claim_domain())


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--write", action="store_true", help="write the present state")
    parser.add_argument("--list", action="store_true", help="list the snapshots, and exit")
    args = parser.parse_args(arguments)
    unknown = [name for name in args.names if name not in SNAPSHOTS]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}, but {', '.join(SNAPSHOTS)}")
    if args.list:
        for name in SNAPSHOTS:
            print(f"{name} (not among the tests)" if name in UNTESTED else name)
        return 0
    logging.disable(logging.CRITICAL)
    different = []
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for name in args.names or SNAPSHOTS:
            begin_s = time.monotonic()
            text = collect(name)
            took = f"{time.monotonic() - begin_s:.1f} s"
            diff = compare(name, text)
            if diff:
                different.append(name)
            if args.write:
                FOLDER.mkdir(exist_ok=True)
                snapshot_file(name).write_text(text, encoding="utf-8")
            elif diff:
                print(diff)
            word = "different" if diff else "equal"
            print(f"{name}: {'written, ' if args.write else ''}{word}, {took}", file=sys.stderr)
    return 1 if different and not args.write else 0


if __name__ == "__main__":
    sys.exit(main())
