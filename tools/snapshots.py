"""What users see of the package, as text files: written before a change, compared after it.

    python tools/snapshots.py --write [NAME...]   write test/snapshots/NAME.txt
    python tools/snapshots.py [NAME...]           compare; a difference is printed, exit code 1
    python tools/snapshots.py --list              the snapshots, and which the tests compare too

A snapshot is a file of lines, sorted, one item a line. Those that take long are compared by this
program alone, not by the tests (test/test_snapshots.py): run it without a name after a change
that is to change nothing.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "test" / "snapshots"

Lines = Mapping[str, object]


@dataclass(frozen=True)
class Snapshot:
    """Where the lines of a snapshot come from.

    Attributes
    ----------
    module, function : str
        Of this folder; the function returns the lines: a value for each key.
    tested : bool
        Whether the tests compare it; else it takes too long for them.
    """

    module: str
    function: str
    tested: bool = True

    def collect(self) -> str:
        """The text of the snapshot as the package is now."""
        function: Callable[[], Lines] = getattr(import_module(self.module), self.function)
        return render(function())


SNAPSHOTS = {
    "parameters": Snapshot("snapshot_nodes", "collect_parameters"),
    "interfaces": Snapshot("snapshot_nodes", "collect_interfaces"),
    "help": Snapshot("snapshot_commands", "collect_help"),
    "help_benchmarks": Snapshot("snapshot_commands", "collect_benchmark_help"),
    "executables": Snapshot("snapshot_commands", "collect_executables"),
    "exports": Snapshot("snapshot_commands", "collect_launch_arguments"),
    "json_keys": Snapshot("snapshot_outputs", "collect_json_keys"),
    "json_keys_slow": Snapshot("snapshot_outputs", "collect_slow_json_keys", tested=False),
    "trace_schema": Snapshot("snapshot_outputs", "collect_trace_schema"),
    "decisions_engine": Snapshot("snapshot_decisions", "collect_engine"),
    "decisions_executor": Snapshot("snapshot_decisions", "collect_executor"),
    "decisions_simulated": Snapshot("snapshot_decisions", "collect_simulated"),
    "decisions_scenarios": Snapshot("snapshot_decisions", "collect_scenarios", tested=False),
}


def render(lines: Lines) -> str:
    """Lines ``key: value``, sorted; the lines of a text are kept together below their key."""
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
    """Where a snapshot is kept."""
    return FOLDER / f"{name}.txt"


def compare(name: str, text: str) -> str:
    """A unified diff from what is kept to the text; empty where they are equal."""
    file = snapshot_file(name)
    kept = file.read_text(encoding="utf-8") if file.is_file() else ""
    diff = difflib.unified_diff(
        kept.splitlines(), text.splitlines(), f"{name}.txt", "now", lineterm="", n=1
    )
    return "\n".join(diff)


def prepare(folder: Path) -> None:
    """Set what rclpy and the package read from the environment; before they are imported.

    The tests have the same from their conftest.py.
    """
    os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    if os.environ.get("ROS_DISTRO") == "humble":
        os.environ["ROS_LOCALHOST_ONLY"] = "1"
    os.environ["ROS_LOG_DIR"] = str(folder / "log")
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    if Path(sys.prefix, "share", "ament_index").is_dir():
        paths = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
        if sys.prefix not in paths:
            os.environ["AMENT_PREFIX_PATH"] = os.pathsep.join(filter(None, [sys.prefix, *paths]))
    # Of this checkout, wherever an installed package is.
    sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "test" / "support")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--write", action="store_true", help="write what is there now")
    parser.add_argument("--list", action="store_true", help="name the snapshots, and end")
    args = parser.parse_args(arguments)
    unknown = [name for name in args.names if name not in SNAPSHOTS]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}, but {', '.join(SNAPSHOTS)}")
    if args.list:
        for name, snapshot in SNAPSHOTS.items():
            print(name if snapshot.tested else f"{name} (not among the tests)")
        return 0
    logging.disable(logging.CRITICAL)
    different = []
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for name in args.names or SNAPSHOTS:
            begin_s = time.monotonic()
            text = SNAPSHOTS[name].collect()
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
