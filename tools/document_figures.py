# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Write docs/figures.md from benchmarks/results/*.json; --check only compares."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed

from benchmarks.harness.main import BENCHMARKS, load  # noqa: E402
from benchmarks.harness.tables import say, tabulate, to_markdown  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
FILE = ROOT / "docs" / "figures.md"

HEAD = """\
# Figures

Generated from [benchmarks/results/](../benchmarks/results/) by `python tools/document_figures.py`;
a test checks it. Each section is one run: the measurement, the command, the machine. Missed bars
are shown, too. Repeat the runs on your machine; `python -m benchmarks` lists the benchmarks.
"""


def render(folder: Path = RESULTS) -> str:
    """Make the text of the page."""
    return HEAD + "".join(_render_file(path) for path in sorted(folder.glob("*.json")))


def _render_file(path: Path) -> str:
    result = json.loads(path.read_text(encoding="utf-8"))
    name = result.get("benchmark", "")
    summary = BENCHMARKS.get(name, "`jetson-dnn-rt run`, several times")
    report = load(name).report(result) if name else _report_runs(result["runs"])
    machine = result["machine"]
    command = result.get("command", machine["command"])
    command = command.replace("jetson-dnn-rt bench", "python -m benchmarks")
    return (
        f"\n## {path.stem.replace('_', '-')}\n\n{summary}"
        f" ([{path.name}](../benchmarks/results/{path.name})).\n\n"
        f"```sh\n{command}\n```\n\n{', '.join(_describe(machine))}.\n\n{to_markdown(report)}\n"
    )


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
    yield f"load average {machine['load_average_1min']}"


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
    """Write the page; with --check return 1 if it does not match the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--file", type=Path, default=FILE, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    text = render()
    if args.check:
        if args.file.is_file() and args.file.read_text(encoding="utf-8") == text:
            return 0
        say(f"{args.file} does not match {RESULTS}; fix: python tools/document_figures.py")
        return 1
    args.file.write_text(text, encoding="utf-8")
    say(f"{args.file} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
