# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Write docs/figures.md, and the figures in prose, from benchmarks/results/*.json.

`bound_figures` describes how a figure in prose is bound to its result. --check only compares.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import bound_figures  # which puts the checkout on sys.path
from bound_figures import RESULTS, ROOT

from benchmarks.harness.main import BENCHMARKS, load
from benchmarks.harness.origin import show_code
from benchmarks.harness.tables import VERDICTS, say, say_verdict, tabulate, to_markdown

FILE = ROOT / "docs" / "figures.md"

HEAD = """\
# Figures

Generated from [benchmarks/results/](../benchmarks/results/) by `python tools/document_figures.py`;
a test checks it. Each section is one run: the measurement, the command, the machine. Missed bars
are shown, too. Repeat the runs on your machine; `python -m benchmarks` lists the benchmarks.

Figures on other pages are links to these sections. *load* is the load average of the minute before
the run, *others* how many of the *cores* other programs took while it ran ("-" in results from
before that was measured). *seeds* are those of the random worlds, where the benchmark lets you
choose; "-" is one fixed seed, or no chance at all.

*code* is the commit that was measured; `+` = with changes that it does not have. "changed since"
marks results of other code than this checkout has in the rooms that the benchmark measures
([harness/rooms.py](../benchmarks/harness/rooms.py)): they say what was, and are to be measured
again. Of results with "no commit recorded" it is not known whether they are of today's code.

A verdict is *not decided* where the 95 % interval of the rounds has the bar inside, or there were
too few rounds ([harness/intervals.py](../benchmarks/harness/intervals.py)).
"""

_BARS = re.compile(rf"\bbars?:? (.+): (?:{'|'.join(VERDICTS)})")


def render(folder: Path = RESULTS) -> str:
    """Make the text of the page."""
    runs = [Run(path) for path in sorted(folder.glob("*.json"))]
    rows = tabulate(
        (run.describe() for run in runs),
        "run, bars, verdict, code, date, machine, cores, load, others, seeds, command",
    )
    return f"{HEAD}\n{to_markdown([rows])}\n" + "".join(run.render() for run in runs)


class Run:
    """Run of a benchmark: its result file and what the benchmark reports of it."""

    def __init__(self, path: Path) -> None:
        self.path, self.anchor = path, path.stem.replace("_", "-")
        self.result = json.loads(path.read_text(encoding="utf-8"))
        self.machine = self.result["machine"]
        self.code = show_code(self.result)
        command = self.result.get("command", self.machine["command"])
        self.command = command.replace("jetson-dnn-rt bench", "python -m benchmarks")
        name = self.result.get("benchmark", "")
        self.summary = BENCHMARKS.get(name, "`jetson-dnn-rt run`, several times")
        self.report = load(name).report(self.result) if name else _report_runs(self.result["runs"])

    def describe(self) -> dict[str, Any]:
        """Make the run's row of the table of all runs."""
        lines = "\n".join(part for part in self.report if isinstance(part, str))
        return {
            "run": f"[{self.anchor}](#{self.anchor})",
            "bars": "; ".join(_BARS.findall(lines)) or None,
            "verdict": say_verdict(self.result.get("passed")),
            "code": self.code,
            "date": self.machine["date"][:10],
            "machine": self.machine["cpu"],
            "cores": self.machine["cores"],
            "load": self.machine["load_average_1min"],
            "others": self.machine.get("other_cores"),
            "seeds": describe_seeds(self.result),
            "command": f"`{self.command}`",
        }

    def render(self) -> str:
        """Make the run's section."""
        return (
            f"\n## {self.anchor}\n\n{self.summary}"
            f" ([{self.path.name}](../benchmarks/results/{self.path.name})).\n\n"
            f"```sh\n{self.command}\n```\n\n{', '.join(_describe(self.machine))}; code: "
            f"{self.code}.\n\n"
            f"{to_markdown(self.report)}\n"
        )


def describe_seeds(result: Mapping[str, Any]) -> str | None:
    """Make one text of all entries like ``test_seeds``: ``0-9``, or the number of seeds."""
    texts = []
    for key in (key for key in result if key.endswith("seeds")):
        seeds = result[key]
        shown = f"{seeds} of them"
        if isinstance(seeds, str | list):
            shown = seeds if isinstance(seeds, str) else ",".join(map(str, seeds))
        texts.append(f"{key.removesuffix('seeds').rstrip('_')} {shown}".strip())
    return "; ".join(texts) or None


def _describe(machine: Mapping[str, Any]) -> Iterator[str]:
    yield f"{machine['date'][:10]}: {machine['cpu']}, {machine['cores']} cores"
    if gpu := machine.get("gpu"):
        yield gpu
    yield f"{machine['memory_gib']} GiB"
    yield f"Python {machine['python']}"
    shown = ("torch", "onnxruntime", "openvino", "tensorrt", "apache-tvm")
    yield from (
        f"{name} {machine['versions'][name]}" for name in shown if name in machine["versions"]
    )
    yield f"load average {machine['load_average_1min']} before"
    if (others := machine.get("other_cores")) is not None:
        yield f"other programs on {others} cores meanwhile"


def _report_runs(runs: Sequence[Mapping[str, Any]]) -> list[Any]:
    rows = [
        {
            "run": number,
            "task": name,
            "ratio": task["outcomes"].get("met", 0) / task["released"],
            **task,
        }
        for number, run in enumerate(runs, 1)
        for name, task in run["tasks"].items()
    ]
    columns = "run, task, frames=released, met=ratio:.1%, p50 ms=response_ms.p50:.1f"
    return [tabulate(rows, columns, "p99 ms=response_ms.p99:.1f")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages; with --check return 1 if one does not match the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--file", type=Path, default=FILE, help=argparse.SUPPRESS)
    parser.add_argument(
        "--pages", type=Path, nargs="*", default=bound_figures.PAGES, help=argparse.SUPPRESS
    )
    args = parser.parse_args(arguments)
    texts = {args.file: render()}
    failed = False
    for page in args.pages:
        text = page.read_text(encoding="utf-8")
        try:
            texts[page] = bound_figures.bind(text)
        except bound_figures.FigureError as error:
            say(f"{page}: {error}")
            failed = True
    for page, text in texts.items():
        if page.is_file() and page.read_text(encoding="utf-8") == text:
            continue
        if args.check:
            say(f"{page} does not match {RESULTS}; fix: python tools/document_figures.py")
            failed = True
        else:
            page.write_text(text, encoding="utf-8")
            say(f"{page} written")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
