# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Write the results in docs/trust.md from test/campaigns/results/*.json.

What is between the two markers of the page is written: the programs, a row for each bar of each
run, the faults of the runs that had any. --check only compares.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed

from benchmarks.harness.tables import say, tabulate, to_markdown  # noqa: E402

FILE = ROOT / "docs" / "trust.md"
CAMPAIGNS = ROOT / "test" / "campaigns"
RESULTS = CAMPAIGNS / "results"
PLOT = ROOT / "docs" / "images" / "soak.svg"

BEGIN = "<!-- results: written by tools/document_trust.py -->"
END = "<!-- end of results -->"

PROGRAMS = {
    "1. fuzz": ("fuzz", "image_fuzz"),
    "2. rogue participant": ("rogue",),
    "3. fault injection": ("faults", "hang"),
    "4. kill storm": ("kills", "neighbours"),
    "5. disk": ("disk",),
    "6. soak": ("soak", "cycles"),
    "7. concurrency": ("concurrency",),
    "8. trust boundary": ("boundary",),
}
"""Programs of each campaign, by the names of their files; others come behind, by theirs."""

NO_CAMPAIGNS = ("program", "count_frames")
"""Files of the folder that are no campaigns."""

LONGEST_FAULT = 400  # characters that are shown
_COLUMNS = "campaign, bar, reached, met, seed, minutes, command, machine, date"


class ResultError(Exception):
    """A result file that is no result of a campaign."""


def render(results: Path = RESULTS, programs: Path = CAMPAIGNS, plot: Path = PLOT) -> str:
    """Make the text between the markers."""
    runs = [read(path) for path in sorted(results.glob("*.json"))]
    rows: list[dict[str, Any]] = []
    for title, names in PROGRAMS.items():
        mine = [run for run in runs if run["campaign"] in names]
        rows += [row for run in mine for row in describe(title, run)]
        if not mine:
            rows.append({"campaign": title, "reached": "not run yet"})
    known = {name for names in PROGRAMS.values() for name in names}
    for run in runs:
        if run["campaign"] not in known:
            rows += describe(run["campaign"], run)
    parts = [
        *("## Programs", "\n".join(list_programs(programs))),
        *("## Results", to_markdown([tabulate(rows, _COLUMNS)])),
    ]
    if plot.is_file():
        parts += [f"![memory, threads and descriptors of the soak](images/{plot.name})"]
    for run in runs:
        parts += list_faults(run)
    return "\n\n".join(parts)


def read(path: Path) -> Mapping[str, Any]:
    """Read a result; `ResultError` where the file is none."""
    try:
        run: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        describe("", run)
        list_faults(run)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultError(
            f"{path} is no result of a campaign ({error!r}); fix: write it with --output"
        ) from error
    return run


def describe(title: str, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make the rows of a run, one for each bar; what they share is in the first."""
    machine = run["machine"]
    shared = {
        "campaign": title,
        "seed": run["seed"],
        "minutes": f"{run['took_minutes']:.1f}",
        "command": _show_command(run),
        "machine": f"{machine['cpu']}, {machine['cores']} cores",
        "date": machine["date"][:10],
    }
    bars = run["bars"] or [{"bar": "-", "reached": "no bar", "met": None}]
    return [
        {
            **(shared if number == 0 else dict.fromkeys(shared, "")),
            "bar": _flatten(bar["bar"]),
            "reached": _flatten(bar["reached"]),
            "met": {True: "yes", False: "NOT", None: "not judged"}[bar["met"]],
        }
        for number, bar in enumerate(bars)
    ]


def list_faults(run: Mapping[str, Any]) -> list[str]:
    """List what was lost or broken in a run; empty where nothing was."""
    faults, count = run["faults"], run["faults_in_all"]
    if not count:
        return []
    lines = [f"- `` {_flatten(fault, code=True)} ``" for fault in faults]
    if count > len(faults):
        lines.append(f"- and {count - len(faults)} more")
    return [f"### Faults of {run['campaign']}", f"{_show_command(run)}:", "\n".join(lines)]


def list_programs(folder: Path) -> Iterator[str]:
    """List the campaigns, each with the first line of its docstring."""
    for path in sorted(folder.glob("*.py")):
        if path.stem not in NO_CAMPAIGNS:
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            summary = " ".join(text.partition("\n\n")[0].split())
            link = f"[{path.stem}](../test/campaigns/{path.name})"
            yield f"- {link}: {summary.removeprefix('Campaign: ')}"


def _show_command(run: Mapping[str, Any]) -> str:
    return f"`{_flatten(run['command'], code=True)}`"


def _flatten(text: object, *, code: bool = False) -> str:
    """Put a text of a result into one line of Markdown, in which it is only a text."""
    line = " ".join(str(text).split())
    if code:
        line = line.replace("`", "'").replace("-->", "-- >")  # the end of a marker
        return line if len(line) <= LONGEST_FAULT else f"{line[:LONGEST_FAULT]} ..."
    return line.replace("<", "&lt;")


def insert(page: str, text: str) -> str:
    """Put the text between the markers of a page; `ResultError` where it has not both."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ResultError(f"the page lacks the markers {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; with --check return 1 if it does not match the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--file", type=Path, default=FILE, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    page = args.file.read_text(encoding="utf-8")
    try:
        text = insert(page, render(args.results))
    except ResultError as error:
        say(str(error))
        return 1
    if text == page:
        return 0
    if args.check:
        say(f"{args.file} does not match {args.results}; fix: python tools/document_trust.py")
        return 1
    args.file.write_text(text, encoding="utf-8")
    say(f"{args.file} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
