# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Record what rosdep installs for every dependency in package.xml, per distribution.

Usage: python tools/record_rosdep.py PATH, where PATH is a checkout of github.com/ros/rosdistro.

A release (bloom) is refused for a key that is missing or that pip would install. The record,
test/rosdep_keys.json, is compared with package.xml by test/test_packaging.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "test" / "rosdep_keys.json"
DISTRIBUTIONS = {"humble": "jammy", "jazzy": "noble", "kilted": "noble", "lyrical": "resolute"}


def declared_keys() -> list[str]:
    """Every dependency that package.xml declares."""
    elements = ElementTree.parse(ROOT / "package.xml").getroot()
    return sorted({e.text for e in elements if e.tag.endswith("depend") and e.text})


def apt_packages(rules: dict[str, Any], key: str, codename: str) -> list[str]:
    """Debian packages that rosdep installs for `key` on that Ubuntu; ValueError without one."""
    rule = rules.get(key, {}).get("ubuntu")
    if isinstance(rule, dict) and "apt" not in rule:
        rule = rule.get(codename, rule.get("*"))
    if isinstance(rule, dict):
        rule = rule.get("apt", {}).get("packages")
    if not rule:
        raise ValueError(f"rosdep has no apt package of {key} for Ubuntu {codename}")
    return [rule] if isinstance(rule, str) else list(rule)


def released_packages(distribution: dict[str, Any]) -> set[str]:
    """ROS packages that are released in a distribution."""
    releases = {
        name: entry["release"]
        for name, entry in distribution["repositories"].items()
        if entry.get("release", {}).get("version")
    }
    return {pkg for name, entry in releases.items() for pkg in entry.get("packages", [name])}


def record(rosdistro: Path) -> dict[str, dict[str, list[str]]]:
    """Debian packages of all keys, by ROS distribution."""

    def read(name: str) -> Any:
        return yaml.safe_load((rosdistro / name).read_text(encoding="utf-8"))

    rules = read("rosdep/base.yaml") | read("rosdep/python.yaml")
    table = {}
    for distro, codename in DISTRIBUTIONS.items():
        released = released_packages(read(f"{distro}/distribution.yaml"))
        table[distro] = {
            key: [f"ros-{distro}-{key.replace('_', '-')}"]
            if key in released
            else apt_packages(rules, key, codename)
            for key in declared_keys()
        }
    return table


def main() -> int:
    """Write the record."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    rosdistro = Path(sys.argv[1])
    git = ("git", "-C", rosdistro, "log", "-1", "--format=%h of %cs")
    answer = subprocess.run(git, capture_output=True, text=True, check=True)
    source = {"ros/rosdistro": answer.stdout.strip()}
    text = json.dumps({"source": source} | record(rosdistro), indent=2)
    # A key a line.
    text = re.sub(r"\[\s+([^]]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    RECORD.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
