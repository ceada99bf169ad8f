# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Job traces that would run code in a reader, a browser, a spreadsheet or a terminal."""

from __future__ import annotations

import csv
import io
import os
import pickle
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from attack_arena import Arena, Hostile, attack
from attacks_on_models import TERMINAL
from confined import Ending
from malice import Malicious

SCRIPT = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'{{7*7}}"
FORMULAS = ("=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(1)", "\t=1", "'=1")


def _write_trace(arena: Arena, name: str, text: str) -> Path:
    """A sound trace whose texts are of the attacker's choice."""
    from timing_traces import make_jobs, make_metadata
    from traced_jobs import write_parquet_trace

    metadata = make_metadata()
    jobs = [
        replace(
            job, task=text if job.task == "detector" else job.task, variant=text, reason=text,
            stages=tuple(replace(stage, name=text, variant=text) for stage in job.stages),
        )
        for job in make_jobs(120, bad_from=60, bad_count=10)
    ]  # fmt: skip
    tasks = {text: metadata.tasks["detector"], "segmenter": metadata.tasks["segmenter"]}
    tasks = {
        task: replace(one, model=text, variants=(text,), stages=tuple(text for _ in one.stages))
        for task, one in tasks.items()
    }
    machine = {**metadata.machine, "cpu": text, text: text}
    changed = replace(
        metadata, tasks=tasks, machine=machine, source=text,
        parameters={**metadata.parameters, text: text},
    )  # fmt: skip
    write_parquet_trace(arena.inside / name / "trace", jobs, changed)
    return arena.inside / name


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "object", "embed", "form", "base", "meta-refresh"):
            self.faults.append(f"the page has <{tag}>")
        for name, value in attrs:
            links = name in ("src", "href", "srcset", "action")
            if name.startswith("on") or (
                links and not (value or "").startswith(("data:image/", "#"))
            ):
                self.faults.append(f"the page has {name}={value!r:.80}")


def check_page(folder: Path, ending: Ending) -> list[str]:
    """Nothing in pages runs, or is fetched from elsewhere; nothing of a template was computed."""
    faults: list[str] = []
    for path in folder.rglob("*.html"):
        text, page = path.read_text(), _Page()
        page.feed(text)
        faults += page.faults
        if "{{7*7}}" not in text:
            faults.append("the names of the trace are not in the page as they are")
    return faults


def check_cells(folder: Path, ending: Ending) -> list[str]:
    """No text in a table is a formula."""
    return [
        f"{path.name} has the formula {cell!r}"
        for path in folder.rglob("*.csv")
        for row in csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))
        for cell in row
        if cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not _is_number(cell)
    ]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


@attack("trace", "names that are scripts")
def lay_scripts(arena: Arena) -> Hostile:
    folder = _write_trace(arena, "trace of a stranger", SCRIPT)
    return Hostile(os.fspath(folder), check=check_page)


@attack("trace", "names that are formulas")
def lay_formulas(arena: Arena) -> Hostile:
    folder = _write_trace(arena, "formulas", arena.rng.choice(FORMULAS))
    return Hostile(os.fspath(folder), check=check_cells)


@attack("trace", "names that are terminal commands")
def lay_commands(arena: Arena) -> Hostile:
    return Hostile(os.fspath(_write_trace(arena, "commands", TERMINAL)))


@attack("trace", "names that are formulas of mathematics")
def lay_mathematics(arena: Arena) -> Hostile:
    """Between dollars matplotlib reads TeX."""
    return Hostile(os.fspath(_write_trace(arena, "mathematics", r"$\frac{a$ $\input{/x}$")))


def _make_pickled_type(arena: Arena) -> tuple[object, bytes]:
    """A schema whose extension type pyarrow before 14.0.1 unpickles (CVE-2023-47248)."""
    import pyarrow as pa

    data = pickle.dumps(Malicious(arena.marker))
    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": data,
    }
    field = pa.field("task", pa.binary(), metadata=metadata)
    return pa.table({"task": pa.array([b"x"])}).cast(pa.schema([field])), data


@attack("trace", "Parquet: a type that is a pickle")
def lay_parquet_type(arena: Arena) -> Hostile:
    from pyarrow import parquet

    table, data = _make_pickled_type(arena)
    path = arena.inside / "jobs-0.parquet"
    parquet.write_table(table, path)
    return Hostile(os.fspath(path), f"import pickle\npickle.loads({data!r})")


@attack("trace", "Arrow: a type that is a pickle")
def lay_arrow_type(arena: Arena) -> Hostile:
    import pyarrow as pa

    table, data = _make_pickled_type(arena)
    path = arena.inside / "jobs-0.arrows"
    with pa.OSFile(os.fspath(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    return Hostile(os.fspath(path), f"import pickle\npickle.loads({data!r})")


@attack("trace", "Parquet: columns in another file")
def lay_far_columns(arena: Arena) -> Hostile:
    from pyarrow import parquet

    folder = _write_trace(arena, "plain", "plain")
    (part,) = (folder / "trace").glob("*.parquet")
    other = arena.inside / "other.parquet"
    part.rename(other)
    metadata = parquet.read_metadata(other)
    metadata.set_file_path(other.name)
    path = arena.inside / "jobs-0.parquet"
    metadata.write_metadata_file(os.fspath(path))
    control = (
        f"from pyarrow import dataset\ndataset.parquet_dataset({os.fspath(path)!r}).to_table()"
    )
    return Hostile(os.fspath(path), control)
