# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Write docs/dependencies.md: licences of everything that the package and its extras install.

Taken from the metadata of the packages in the environment that runs this, which should have all
extras (`make setup`). Versions are left out: the table is about what is installed, not when.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from setup_env import DEMO, GROUPS

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
PAGE = ROOT / "docs" / "dependencies.md"

OWN = (
    *("runtime", "compiled", "opencv", "torch", "onnx", "openvino", "int8", "tvm", "plots"),
    *("bags", "traces", "wcet", "excel", "fleet", "watch", "tracking", "nvml"),
)
"""What a user installs: the package's requirements, and its extras but for those of tests."""
DESK = ("ros", "test", "dev")
"""What builds and tests it: from ROS's own index on a robot, or never there."""

STRONG = re.compile(r"\bA?GPL|GNU (Affero )?General Public", re.IGNORECASE)
WEAK = re.compile(r"\bLGPL|\bMPL|Lesser General Public|Mozilla Public", re.IGNORECASE)
PROPRIETARY = re.compile(r"NVIDIA|Proprietary", re.IGNORECASE)

_CLASSIFIER = re.compile(r"License :: (?:OSI Approved :: )?(.+)")
_MANIFEST = re.compile(r"<license[^>]*>\s*([^<]+?)\s*<")
_LONGEST = 60

# Of packages whose metadata say nothing: from the files named LICENSE in them.
BY_HAND = {"setuptools": "MIT", "ros-fastcdr": "Apache-2.0", "ros-fastdds": "Apache-2.0"}

REMARKS = {
    "opencv-python-headless": "its FFmpeg is LGPL-2.1, a library of its own beside it",
    "opencv-python": "its FFmpeg is LGPL-2.1, a library of its own beside it",
    "torch": "on a Jetson NVIDIA's build is kept",
    "cuda-toolkit": "a list of NVIDIA's packages, nothing of its own",
}


@dataclass(frozen=True)
class Package:
    """An installed package."""

    name: str
    licence: str
    groups: tuple[str, ...]
    """Groups of requirements that bring it along."""

    @property
    def remark(self) -> str:
        """What a reader should know of the licence."""
        if self.name in REMARKS:
            return REMARKS[self.name]
        if is_strong(self.licence):
            return "copyleft"
        if WEAK.search(self.licence):
            return "weak copyleft: used unchanged, as a library of its own"
        return "not free: the terms of its maker" if PROPRIETARY.search(self.licence) else ""


def is_strong(licence: str) -> bool:
    """Whether a licence is AGPL or GPL, and nothing else may be chosen."""
    texts = re.split(r"\s+OR\s+|\s*/\s*", WEAK.sub("", licence))
    return all(STRONG.search(text) for text in texts)


def read_group(group: str) -> list[str]:
    """Names of the packages in a file of requirements, and of the files that it includes."""
    names = []
    for line in (REQUIREMENTS / f"{group}.txt").read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("-r"):
            names += read_group(text.removeprefix("-r").strip().removesuffix(".txt"))
        elif text:
            names.append(text)
    return names


def close(texts: Iterable[str]) -> set[str]:
    """Everything that requirements bring along here, by its normal name."""
    waiting = [(Requirement(text), "") for text in texts]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for chosen in ("", *requirement.extras):
            if (name, chosen) in seen:
                continue
            seen.add((name, chosen))
            try:
                needed = metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                continue
            for text in needed:
                try:
                    waiting.append((Requirement(text), chosen))
                except InvalidRequirement:
                    continue
    return {name for name, _ in seen}


def find_licence(name: str) -> str:
    """The licence that a package states, as briefly as it does; KeyError where it is missing."""
    if name in BY_HAND:
        return BY_HAND[name]
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError as error:
        raise KeyError(name) from error
    if "License-Expression" in found:
        return found["License-Expression"]
    classified = [_CLASSIFIER.fullmatch(line) for line in found.get_all("Classifier") or ()]
    names = [match[1] for match in classified if match and match[1] != "OSI Approved"]
    if names:
        return "; ".join(dict.fromkeys(names))
    text = str((found.get_all("License") or [""])[0]).strip().partition("\n")[0]
    if 0 < len(text) <= _LONGEST and text.upper() != "UNKNOWN":
        return text
    return _read_manifest(name) or "not stated"


def _read_manifest(name: str) -> str:
    """Licences in the package.xml that a wheel of ROS brings along; empty without one."""
    plain = re.sub(r"^ros-((kilted|jazzy)-)?", "", name)
    for folder in (plain.replace("-", "_"), plain):
        file = Path(sys.prefix, "share", folder, "package.xml")
        if name.startswith("ros-") and file.is_file():
            return "; ".join(_MANIFEST.findall(file.read_text(encoding="utf-8")))
    return ""


def list_packages(groups: Iterable[str] = (*OWN, *DESK)) -> list[Package]:
    """Installed packages that groups of requirements bring along."""
    needed: dict[str, list[str]] = {}
    for group in groups:
        for name in close(read_group(group)):
            needed.setdefault(name, []).append(group)
    packages = []
    for name, needing in sorted(needed.items()):
        try:
            packages.append(Package(name, find_licence(name), tuple(needing)))
        except KeyError:  # of another platform, or kept from the system
            continue
    return packages


def find_copyleft(packages: Iterable[Package]) -> list[Package]:
    """Packages under GPL or AGPL among what a user installs."""
    return [one for one in packages if is_strong(one.licence) and set(one.groups) & set(OWN)]


_HEAD = """\
# Dependencies and their licences

Written by `python tools/dependencies.py` from the metadata of the installed packages: do not edit.
The package itself is under Apache-2.0. On a robot ROS, OpenCV, NumPy and PyYAML come from apt,
torch and TensorRT from NVIDIA.

Known vulnerabilities of these packages: `python tools/advisories.py`, which asks PyPI about every
version that is pinned or installed (`--lowest`: also about the lowest that is allowed), and exits
with 1 when there is one, with 2 when it could not ask.
"""


def make_page(packages: list[Package]) -> str:
    """The page."""
    own = [one for one in packages if set(one.groups) & set(OWN)]
    desk = [one for one in packages if one not in own]
    demo = {"runtime", "opencv", *GROUPS[DEMO]}
    lines = [_HEAD, "## What a user installs", ""]
    lines += _format(own, "`make demo`", lambda one: "yes" if demo & set(one.groups) else "")
    copyleft = find_copyleft(packages)
    told = ", ".join(one.name for one in copyleft) or "none"
    lines += ["", f"Under GPL or AGPL: {told}.", "", "## What only builds and tests need", ""]
    lines += _format(desk, "copyleft", lambda one: "yes" if is_strong(one.licence) else "")
    return "\n".join(lines) + "\n"


def _format(packages: list[Package], column: str, tell) -> list[str]:  # type: ignore[no-untyped-def]
    lines = [f"| package | licence | needed by | {column} | remark |", "|---|---|---|---|---|"]
    for one in packages:
        groups = [group for group in one.groups if group in OWN] or list(one.groups)
        cells = (one.name, one.licence, ", ".join(groups), tell(one), one.remark)
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return lines


def main() -> int:
    """Write the page; 1 when a package that a user installs is copyleft."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    packages = list_packages()
    PAGE.write_text(make_page(packages), encoding="utf-8")
    for one in find_copyleft(packages):
        print(f"{one.name} is under {one.licence}, needed by {', '.join(one.groups)}")
    print(f"{PAGE.relative_to(ROOT)}: {len(packages)} packages")
    return 1 if find_copyleft(packages) else 0


if __name__ == "__main__":
    sys.exit(main())
