# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Known vulnerabilities of the packages in requirements/, from PyPI's JSON API.

Asked are the pinned versions and, for every other package, the version that is installed here and
the lowest one that its requirement allows (``--lowest``). Exit code 0: none is known, 1: some are
known and are listed, 2: the advisories could not be read. An index that says nothing of a release
that is known to be vulnerable has no advisories, and its silence on others means nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
INDEX = "https://pypi.org"
TIMEOUT_S = 20.0

_LINE = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[[^]]*\])?\s*([^;#]*)")
_CLAUSE = re.compile(r"(==|>=|~=)\s*([\w.!+-]+)")


class NoAdvisoriesError(Exception):
    """The index cannot be asked."""


@dataclass(frozen=True, order=True)
class Release:
    """A version of a package, and why it is asked about."""

    package: str
    version: str
    why: str


KNOWN = Release("py", "1.11.0", "known to be vulnerable: PYSEC-2022-42969, without a fix")


@dataclass(frozen=True)
class Advisory:
    """A known vulnerability of a release."""

    release: Release
    name: str
    fixed_in: tuple[str, ...]
    summary: str


def read_requirements(folder: Path = REQUIREMENTS) -> Iterator[tuple[str, str, str]]:
    """Package, its clauses and the file of every line in requirements/."""
    for file in sorted(folder.glob("*.txt")):
        if file.stem.startswith("constraints"):
            continue
        for line in file.read_text(encoding="utf-8").splitlines():
            found = _LINE.match(line.strip())
            if found and not line.startswith(("#", "-")):
                # ROS's are empty packages that require one without the name of a distribution.
                yield re.sub("^ros-(kilted|jazzy)-", "ros-", found[1]), found[2], file.name


def list_releases(folder: Path = REQUIREMENTS, *, lowest: bool = False) -> list[Release]:
    """The releases to ask about."""
    releases: dict[tuple[str, str], Release] = {}
    for package, clauses, file in read_requirements(folder):
        bounds = dict(_CLAUSE.findall(clauses))
        versions = []
        if "==" in bounds:
            versions.append((bounds["=="], f"pinned in {file}"))
        else:
            with contextlib.suppress(metadata.PackageNotFoundError):
                versions.append((metadata.version(package), "installed"))
            if lowest and ">=" in bounds:
                versions.append((bounds[">="], f"the lowest that {file} allows"))
        for version, why in versions:
            releases.setdefault((package, version), Release(package, version, why))
    return sorted(releases.values())


def ask(release: Release, index: str = INDEX) -> list[Advisory] | None:
    """Known vulnerabilities of a release; None where the index does not know the release.

    NoAdvisoriesError when it cannot be reached, or answers something else.
    """
    for version in dict.fromkeys((release.version, f"{release.version}.0")):
        request = urllib.request.Request(
            f"{index}/pypi/{release.package}/{version}/json",
            headers={"User-Agent": "jetson_dnn_rt tools/advisories.py"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                found = json.load(answer)["vulnerabilities"]
            return [
                Advisory(
                    release,
                    ", ".join((one["id"], *one.get("aliases", ()))),
                    tuple(one.get("fixed_in", ())),
                    " ".join((one.get("summary") or one.get("details") or "").split())[:150],
                )
                for one in found
                if not one.get("withdrawn")
            ]
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise NoAdvisoriesError(f"{index} answers {error.code}") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise NoAdvisoriesError(f"{index} cannot be asked: {error}") from error
    return None


def check(releases: list[Release], index: str = INDEX) -> tuple[list[Advisory], list[Release]]:
    """Advisories of releases, and the releases that the index does not know.

    NoAdvisoriesError also when it says nothing of `KNOWN`: it may be a mirror of files alone.
    """
    if not ask(KNOWN, index):
        raise NoAdvisoriesError(
            f"{index} says nothing of {KNOWN.package} {KNOWN.version} ({KNOWN.why}): it has no "
            "advisories"
        )
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda release: ask(release, index), releases))
    unknown = [one for one, answer in zip(releases, answers, strict=True) if answer is None]
    return [advisory for answer in answers for advisory in answer or ()], unknown


def main(arguments: list[str] | None = None) -> int:
    """Ask and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", default=INDEX, metavar="URL", help=f"default: {INDEX}")
    text = "also the lowest versions that the requirements allow"
    parser.add_argument("--lowest", action="store_true", help=text)
    options = parser.parse_args(arguments)
    releases = list_releases(lowest=options.lowest)
    try:
        advisories, unknown = check(releases, options.index.rstrip("/"))
    except NoAdvisoriesError as error:
        print(
            f"advisories: error: {error}; nothing was checked. Fix: run it where PyPI can be "
            "reached, or name another index with its JSON API: --index URL",
            file=sys.stderr,
        )
        return 2
    for one in advisories:
        fix = f"fixed in {', '.join(one.fixed_in)}" if one.fixed_in else "no fix is known"
        release = one.release
        print(f"{release.package} {release.version} ({release.why}): {one.name}; {fix}")
        print(f"    {one.summary}")
    for release in unknown:
        print(f"{release.package} {release.version} ({release.why}): not on this index")
    print(f"{len(releases)} releases, {len(advisories)} known vulnerabilities")
    return 1 if advisories else 0


if __name__ == "__main__":
    sys.exit(main())
