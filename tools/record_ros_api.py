# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Record what ROS distributions that are not here have of the names that we use.

For every name of rclpy, launch and launch_ros that the package and its launch files use, a table
in test/ros_api/ says whether a distribution has it and with which parameters; and the fields of
vision_msgs. Only such facts are written, no source text. `test/test_ros_api.py` checks our code
against the tables. Each argument is a folder named as the distribution, with checkouts in it::

    python tools/record_ros_api.py sources/humble sources/lyrical
    ls sources/humble                     # launch  launch_ros  rclpy  vision_msgs

Each checkout is the folder of one package, with its package.xml: a `release/<distribution>/<name>`
tag of github.com/ros2-gbp/<name>-release is that.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ros_api import MESSAGES, PACKAGES, RECEIVERS, ROOT, Sources, find_uses, read_messages

TABLES = ROOT / "test" / "ros_api"


def read_version(package: Path) -> str:
    """Version in the package.xml of a checkout."""
    text = (package / "package.xml").read_text(encoding="utf-8")
    match = re.search(r"<version>\s*([^<\s]+)", text)
    if match is None:
        raise ValueError(f"{package / 'package.xml'} has no version")
    return match[1]


def record(folder: Path) -> dict[str, object]:
    """The table of one distribution."""
    sources = Sources(folder)
    names = sorted({*RECEIVERS.values(), *(use.name for use in find_uses())})
    packages = [*PACKAGES, *([MESSAGES] if (folder / MESSAGES).is_dir() else [])]
    wanted = read_messages(ROOT / "interfaces" / MESSAGES)
    messages = read_messages(folder / MESSAGES)
    return {
        "versions": {package: read_version(folder / package) for package in packages},
        "names": {name: sources.look_up(name) for name in names},
        "messages": {name: fields for name, fields in messages.items() if name in wanted},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    for folder in parser.parse_args(arguments).folders:
        try:
            table = record(folder)
        except (OSError, ValueError) as error:
            print(f"{folder}: {error}", file=sys.stderr)
            return 2
        file = TABLES / f"{folder.resolve().name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
        print(f"{file.relative_to(ROOT)}: {table['versions']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
