# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Snapshots of the keys of the commands' JSON, and the columns of traces and exports.

This module depends on the package only through the imports below.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from snapshot_commands import run_command

from jetson_dnn_rt.lab.evaluate.chunk import release
from jetson_dnn_rt.traces.schema import METADATA_KEY
from jetson_dnn_rt.variants.library.library import Library

Lines = dict[str, object]

PARAMETERS = """
/**/perception:
  ros__parameters:
    tasks: [detector, rear/segmenter]
    workers: 2
    realtime: {mallopt: false, gc_freeze: false, switch_interval_us: 0, cpu_affinity: [-1]}
/**/detector:
  ros__parameters: {model: "null:0.1", deadline_ms: 5000.0, engine_cache: none, warmup_runs: 3}
/**/rear/segmenter:
  ros__parameters: {model: "null:0.1,segmentation", engine_cache: none, warmup_runs: 3}
"""
BUILD_PARAMETERS = """
perception:
  ros__parameters: {tasks: [detector]}
/**:
  ros__parameters: {threads: 1, build_frames: "images:%s"}
/**/detector:
  ros__parameters: {model: "null:0.1", variants: [full@null]}
"""
RUN = (
    *("run", "--source", "synthetic:128x96", "--rate", "5"),
    *("--detector", "null:0.1", "--segmenter", "null:0.1,segmentation"),
    *("--deadline", "detector=5000", "--deadline", "segmenter=5000"),
    *("--set", "perception.realtime.gc_freeze=false"),
    *("--set", "detector.warmup_runs=2", "--set", "segmenter.warmup_runs=2"),
)

DATA_KEYS = {
    "tasks": "<task>",
    "cameras": "<camera>",
    "variants": "<variant>",
    "stages": "<stage>",
    "stages_ms": "<stage>",
    "beside": "<load>",
    "co_runners": "<load>",
    "digests": "<stream>",
}
"""Objects whose keys are data, with a placeholder for each key."""
OF_THE_MACHINE = ("machine", "checks", "realtime", "platform", "parameters", "overrides")
"""Objects whose keys depend on the machine or on the options: only their type is stored."""
OF_THE_LOAD = ("reasons", "notes")
"""The same for objects that are empty on an idle machine."""


# -- JSON -----------------------------------------------------------------------------------------


def describe(value: object, place: str = "") -> Iterator[tuple[str, str]]:
    """Describe every place in a JSON value by its type; lists by their first element."""
    if isinstance(value, dict):
        yield place, "object"
        parent = place.rpartition(".")[2]
        for key, item in value.items():
            shown = DATA_KEYS.get(parent) or str(key)
            inner = f"{place}.{shown}" if place else shown
            if key in OF_THE_MACHINE and isinstance(item, dict):
                yield inner, "object"
            elif key in OF_THE_LOAD and isinstance(item, dict | list):
                yield inner, "object" if isinstance(item, dict) else "array"
            else:
                yield from describe(item, inner)
    elif isinstance(value, list):
        yield place, "array"
        for item in value[:1]:
            yield from describe(item, f"{place}[]")
    else:
        names = {bool: "boolean", int: "integer", float: "number", str: "string"}
        yield place, names.get(type(value), "null")


def _keys(lines: Lines, title: str, value: object) -> None:
    found: dict[str, set[str]] = {}
    for place, kind in describe(value):
        found.setdefault(place, set()).add(kind)
    for place, kinds in found.items():
        lines[f"{title}: {place or '(all)'}"] = " or ".join(sorted(kinds))


def _run(lines: Lines, title: str, *arguments: str, codes: tuple[int, ...] = (0,)) -> Any:
    """Run a command with ``--json`` and add the keys of its last line."""
    code, text = run_command([*arguments, "--json"])
    if code not in codes:
        raise RuntimeError(f"{' '.join(arguments)} ended with {code}")
    result = json.loads(text.splitlines()[-1])
    _keys(lines, title, result)
    return result


def _write_frames(folder: Path) -> str:
    import cv2

    folder.mkdir()
    for index in range(4):
        cv2.imwrite(str(folder / f"{index}.png"), np.full((16, 24, 3), 60 * index, np.uint8))
    return f"images:{folder}"


def _write_times(folder: Path, seed: int) -> str:
    """Write a trace of two stages, one of them with exponential times."""
    traced = import_module("traced_jobs")
    drawn = np.random.default_rng(seed).standard_exponential(1500)
    jobs = [
        traced.make_record(index, stages_ns=(2_000_000, int(1e7 + 1e6 * one)))
        for index, one in enumerate(drawn)
    ]
    return str(traced.write_parquet_trace(folder, jobs))


def collect_json_keys() -> Lines:
    """Collect keys and types of the commands' ``--json``, and of the JSON files they write."""
    lines: Lines = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _collect_run(lines, folder)
        _collect_evaluate(lines, folder)
        _collect_times(lines, folder)
        options = ("--scenario", "greedy_imbalance", "--policy", "horizon", "--frames", "30")
        _run(lines, "simulate", "simulate", *options, "--seeds", "2")
        images = _write_frames(folder / "images")
        profile = ("profile", "--model", "camera=null:0.1", "--runs", "4", "--frames", images)
        _run(lines, "profile", *profile, "--output", str(folder / "tables.json"))
        tables = json.loads((folder / "tables.json").read_text(encoding="utf-8"))
        _keys(lines, "profile, tables.json", tables)
        _collect_build(lines, folder, images)
    return lines


def _collect_run(lines: Lines, folder: Path) -> None:
    results = folder / "results.jsonl"
    given = ("--frames", "6", "--results", str(results), "--output", str(folder / "run"))
    _run(lines, "run", *RUN, *given)
    summary = json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))
    _keys(lines, "run, summary.json", summary)
    for line in results.read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        _keys(lines, f"run, results of {result['task']}", result)
    for file in sorted((folder / "run").iterdir()):
        lines[f"run, output: {file.name}"] = "is there"


def _collect_evaluate(lines: Lines, folder: Path) -> None:
    bags = import_module("bags")
    images = [bags.make_image(n, encoding="bayer?" if n == 7 else "bgr8") for n in range(15)]
    bag = str(bags.write_bag(folder / "drive", images))
    params = folder / "tasks.yaml"
    params.write_text(PARAMETERS, encoding="utf-8")
    given = ("evaluate", bag, "--params", str(params), "--output")
    try:
        result = _run(lines, "evaluate sequential", *given, str(folder / "sequential"))
        for file in sorted((folder / "sequential").iterdir()):
            lines[f"evaluate sequential, output: {file.name}"] = "is there"
        written = (folder / "sequential" / "results.jsonl").read_text(encoding="utf-8")
        for line in written.splitlines()[:1]:
            _keys(lines, "evaluate sequential, results", json.loads(line))
        if result["frames"] != 14:
            raise RuntimeError(f"14 frames expected: {result}")
        replayed = str(folder / "sequential")
        _run(lines, "agree", "agree", replayed, replayed)
        photos = folder / "photos"
        import_module("photos").write_photos(photos, 2)
        _run(lines, "bag", "bag", str(photos), "-o", str(folder / "photo_bag"))
        live = str(folder / "live")
        wide = ("--deadline", "rear/segmenter=6000")
        options = ("--mode", "realtime", "--rate", "200", *wide)
        _run(lines, "evaluate realtime", *given, live, *options)
        simulated = ("evaluate", "--mode", "simulated", "--trace", live)
        cohort = ("--cohort", "detector,detector", "--seeds", "2", "--policy", "static")
        _run(lines, "evaluate simulated", "evaluate", live, "--mode", "simulated")
        _run(lines, "evaluate simulated cohort", *simulated, *cohort)
    finally:
        release()


def _collect_times(lines: Lines, folder: Path) -> None:
    first, second = (_write_times(folder / f"times{seed}", seed) for seed in range(2))
    _run(lines, "wcet", "wcet", first, "--exceedance", "1e-2,1e-4")
    _run(lines, "wcet by stage", "wcet", first, "--by", "task,stage")
    _run(lines, "wcet validate", "wcet", first, "--validate", second, codes=(0, 1))
    _run(lines, "compare", "compare", first, second, codes=(0, 1))
    for name in ("jobs.csv", "jobs.xlsx", "jobs.json"):
        _run(lines, f"export {name}", "export", first, "--output", str(folder / name))
    timing = import_module("timing_traces")
    traces = []
    for seed in range(2):
        traces.append(str(folder / f"timing{seed}"))
        timing.write_trace_of(Path(traces[-1]), timing.make_jobs(120, seed=seed))
    _run(lines, "report", "report", *traces, "--output", str(folder / "report"))
    for file in sorted((folder / "report").iterdir()):
        lines[f"report, output: {file.name}"] = "is there"


def _collect_build(lines: Lines, folder: Path, images: str) -> None:
    file = folder / "build.yaml"
    file.write_text(BUILD_PARAMETERS % images.partition(":")[2], encoding="utf-8")
    cache = ("--engine-cache", str(folder / "library"))
    _run(lines, "build", "build", "--params", str(file), "--runs", "2", *cache)
    entries = import_module("library_entries")
    entries.store(Library(folder / "library"), kind="tuning")
    _run(lines, "library list", "library", "list", *cache)


def collect_slow_json_keys() -> Lines:
    """Collect the same from commands that take too long for the tests."""
    lines: Lines = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = _run(lines, "doctor", "doctor", codes=(0, 1))
        for check in found["checks"].values():
            _keys(lines, "doctor, a check", check)
        model = ("--model", "builtin:detector")
        _run(
            lines, "compress", "compress", *model, "--ranks", "macs:0.6", "--frames",
            "synthetic:2", "--frames-limit", "4", "--recover-steps", "1", "--keep-slower",
            "--backend", "torch", "--engine-cache", str(folder / "library"),
            "--output", str(folder / "compressed"),
            codes=(0, 1),  # on so few frames it may be refused
        )  # fmt: skip
        _run(lines, "library list", "library", "list", "--engine-cache", str(folder / "library"))
        _run(lines, "library prune", "library", "prune", "--engine-cache", str(folder / "library"))
        _run(
            lines, "export-c", "export-c", *model, "--stages", "4", "--stage", "4", "--call-graph",
            "--engine-cache", "none", "--name", "last", "--output", str(folder / "sources"),
        )  # fmt: skip
        for file in sorted((folder / "sources").iterdir()):
            lines[f"export-c, output: {file.name}"] = "is there"
        images = _write_frames(folder / "images")
        interference = ("--interference", "cpu,cohort:2", "--output", str(folder / "tables"))
        profile = ("profile", "--model", "camera=null:0.1", "--runs", "10", "--frames", images)
        _run(lines, "profile beside others", *profile, *interference)
    return lines


# -- traces ---------------------------------------------------------------------------------------


def collect_trace_schema() -> Lines:
    """Collect columns and metadata of a trace from `simulate`, and the contents of its exports."""
    import pyarrow.parquet as parquet

    lines: Lines = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace = str(folder / "trace")
        given = ("--scenario", "tx2_cohort4", "--policy", "static", "--frames", "20")
        code, _ = run_command(["simulate", *given, "--trace", trace, "--json"])
        if code != 0:
            raise RuntimeError(f"simulate ended with {code}")
        for file in sorted(Path(trace).iterdir()):
            lines[f"file {file.name}"] = "is there"
        schema = parquet.read_schema(Path(trace) / "jobs-0000.parquet")
        for place, field in enumerate(schema):
            told = f"{field.type}{'' if field.nullable else ' not null'}"
            lines[f"column {place:02d} {field.name}"] = told
        for key in schema.metadata:
            lines[f"metadata {key.decode()}"] = "is there"
        metadata = json.loads(schema.metadata[METADATA_KEY])
        _keys(lines, "metadata of the package", metadata)
        lines["metadata of the package: version is"] = str(metadata["version"])
        for file_name in ("jobs.csv", "jobs.xlsx", "jobs.json"):
            run_command(["export", trace, "--output", str(folder / file_name)])
        for file in sorted(folder.glob("jobs*.csv")):
            with file.open(newline="", encoding="utf-8") as rows:
                for place, column in enumerate(next(csv.reader(rows))):
                    lines[f"export {file.name} column {place:02d}"] = column
        _describe_xlsx(lines, folder / "jobs.xlsx")
        _describe_perfetto(lines, json.loads((folder / "jobs.json").read_text(encoding="utf-8")))
    return lines


def _describe_xlsx(lines: Lines, file: Path) -> None:
    with zipfile.ZipFile(file) as book:
        workbook = book.read("xl/workbook.xml").decode()
        for place, sheet in enumerate(re.findall(r'<sheet name="([^"]*)"', workbook)):
            lines[f"export jobs.xlsx sheet {place}"] = sheet
            text = book.read(f"xl/worksheets/sheet{place + 1}.xml").decode()
            shared = _read_strings(book)
            first = re.search(r'<row r="1".*?</row>', text)
            cells = re.findall(r'<c [^>]*?t="(\w+)"[^>]*>(.*?)</c>', first[0] if first else "")
            for column, (kind, inner) in enumerate(cells):
                value = re.sub(r"<[^>]*>", "", inner)
                shown = shared[int(value)] if kind == "s" else value
                lines[f"export jobs.xlsx {sheet} column {column:02d}"] = shown


def _read_strings(book: zipfile.ZipFile) -> list[str]:
    if "xl/sharedStrings.xml" not in book.namelist():
        return []
    text = io.TextIOWrapper(book.open("xl/sharedStrings.xml"), encoding="utf-8").read()
    return [re.sub(r"<[^>]*>", "", item) for item in re.findall(r"<si>(.*?)</si>", text)]


def _describe_perfetto(lines: Lines, document: Any) -> None:
    _keys(lines, "export jobs.json", {k: v for k, v in document.items() if k != "traceEvents"})
    for event in document["traceEvents"]:
        kind = event["ph"]
        _keys(lines, f"export jobs.json event {kind} {event.get('cat', '')}".rstrip(), event)
        if kind == "M":
            title = event["args"].get("name", event["args"])
            lines[f"export jobs.json {event['name']} of {event['pid']}/{event.get('tid', '')}"] = (
                str(title)
            )
