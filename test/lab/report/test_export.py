# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Exports: everything in the trace is in the file, in the form that the format asks for."""

from __future__ import annotations

import csv
import gc
import gzip
import json
import sys
import zipfile
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from traced_jobs import METADATA, make_record, write_parquet_trace

from jetson_dnn_rt.cli.main import BAD_ARGUMENTS, FAILED, main
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.report.export import tables
from jetson_dnn_rt.lab.report.export.perfetto import iterate_events, write_perfetto
from jetson_dnn_rt.lab.report.export.speedscope import write_speedscope
from jetson_dnn_rt.lab.report.export.tables import (
    JOB_COLUMNS,
    SHEET_ROWS,
    STAGE_COLUMNS,
    guard_cells,
    write_csv,
    write_xlsx,
)
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.clock_log import ClockLog
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.writer import TraceWriter

pytest.importorskip("pyarrow")

STAMP_NS = 1_700_000_000_123_456_789
SLOW, FAST = "cpu 1000 MHz x4, gpu off", "cpu 2000 MHz x4, gpu 900 MHz"


@pytest.fixture
def trace(tmp_path):
    """Two tasks side by side; a miss, a frame that never ran, a change of variant and clocks."""
    clocks = ClockLog(SLOW)
    records = [make_record(i) for i in range(12)]
    records += [make_record(i, task="segmenter", stages_ns=(9_000_000,)) for i in range(12)]
    records += [
        make_record(12, outcome=Outcome.LATE, stages_ns=(30_000_000, 20_000_000)),
        make_record(14, outcome=Outcome.SKIPPED, stages_ns=()),
        make_record(15, variant="full@null+half@null", variants=("full@null", "half@null")),
    ]
    clocks.append(records[-1].stages[0].start_ns, FAST)
    # As they end.
    records.sort(key=lambda record: record.completion_ns)
    with TraceWriter(tmp_path / "trace", METADATA, clocks=clocks.at) as writer:
        for record in records:
            writer.write(record, stamp_ns=STAMP_NS)
    return open_trace(tmp_path / "trace")


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv(trace, tmp_path):
    files = write_csv({"first": trace}, tmp_path / "out.csv")
    assert [file.name for file in files] == ["out.csv", "out-stages.csv"]
    jobs, stages = read_csv(files[0]), read_csv(files[1])
    traced = list(trace.jobs())
    assert tuple(jobs[0]) == JOB_COLUMNS
    assert tuple(stages[0]) == STAGE_COLUMNS
    assert len(jobs) == len(traced) == 27
    for row, job in zip(jobs, traced, strict=True):
        record = job.record
        expected = {"trace": "first", "task": record.task, "sequence": record.sequence}
        expected |= {"outcome": record.outcome.value, "warm_up": job.warm_up}
        expected["start_ns"] = "" if record.start_ns is None else record.start_ns
        expected |= {"stamp_ns": STAMP_NS, "lateness_ms": record.lateness_ns / 1e6}
        expected["response_ms"] = record.response_time_ns / 1e6
        expected["execution_ms"] = record.execution_time_ns / 1e6
        assert {name: row[name] for name in expected} == {n: str(v) for n, v in expected.items()}
    ran = [(job.record, stage) for job in traced for stage in job.record.stages]
    for row, (record, stage) in zip(stages, ran, strict=True):
        assert (row["task"], int(row["sequence"])) == (record.task, record.sequence)
        assert (row["stage"], row["variant"]) == (stage.name, stage.variant)
        assert record.stages[int(row["position"])] == stage
        assert float(row["execution_ms"]) == stage.execution_time_ns / 1e6
        assert row["clocks"] in (SLOW, FAST)


HOSTILE = ['=HYPERLINK("http://x")', "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "'=1", "''"]


def test_names_are_no_formulas_in_csv(tmp_path):
    """EDGES 20: names in a trace are foreign; a spreadsheet runs what begins with =."""
    records = [
        replace(make_record(i, task=text, variant=text, stages_ns=(5,)), reason=text, lag_ns=-7)
        for i, text in enumerate(HOSTILE)
    ]
    trace = open_trace(write_parquet_trace(tmp_path / "t", records))
    jobs, stages = map(read_csv, write_csv({"=1": trace}, tmp_path / "out.csv"))
    for text, job, stage in zip(HOSTILE, jobs, stages, strict=True):
        assert job["trace"] == stage["trace"] == "'=1"
        cells = [job[name] for name in ("task", "variant", "reason")]
        cells += [stage[name] for name in ("task", "variant")]
        # What docs/traces.md says to do brings the text back.
        assert {cell[1:] for cell in cells if cell[0] == "'"} == {text}
        # Numbers stay numbers, negative ones too.
        assert float(job["lag_ms"]) == -7e-6
        assert (job["outcome"], job["camera"]) == ("met", "")


# -- Excel ---------------------------------------------------------------------------------------

_XML = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def read_workbook(path):
    """Cells of all sheets as texts, row by row."""
    with zipfile.ZipFile(path) as archive:
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        names = [sheet.attrib["name"] for sheet in book.iter(f"{_XML}sheet")]
        sheets = {}
        for number, name in enumerate(names, 1):
            root = ElementTree.fromstring(archive.read(f"xl/worksheets/sheet{number}.xml"))
            sheets[name] = [
                ["".join(cell.itertext()) for cell in row] for row in root.iter(f"{_XML}row")
            ]
        return sheets


def test_workbook(trace, tmp_path):
    pytest.importorskip("xlsxwriter")
    write_xlsx({"first": trace}, tmp_path / "out.xlsx")
    sheets = read_workbook(tmp_path / "out.xlsx")
    assert list(sheets) == ["summary", "jobs", "stages"]
    assert sheets["jobs"][0][:4] == ["trace", "task", "camera", "sequence"]
    assert "release_s" in sheets["jobs"][0]
    assert len(sheets["jobs"]) == 1 + 27
    assert len(sheets["stages"]) == 1 + sum(len(job.record.stages) for job in trace.jobs())
    stamp = sheets["jobs"][0].index("stamp_ns")
    assert sheets["jobs"][1][stamp] == "1700000000123456789"
    summary = {tuple(row[:3]): row for row in sheets["summary"] if len(row) > 3}
    execution = summary["detector", "full@null", "execution"]
    assert execution[3:5] == ["3", "10"]  # two of the first twelve and the late one
    # The cells of p99 and p99.9 are empty: of three times they would be the highest.
    assert float(execution[8]) == 50.0
    response = summary["detector", "full@null", "response"]
    assert float(response[10]) == pytest.approx(1 / 3)
    assert ["first", "machine: cpu", "Some CPU"] in sheets["summary"]


def test_a_nul_is_replaced_in_csv():
    """Python 3.10 raises an error, newer ones write what many programs read no further than."""
    assert guard_cells(["a\0b", "=\0", 1]) == ["a\ufffdb", "'=\ufffd", 1]


def test_names_are_no_formulas(tmp_path):
    pytest.importorskip("xlsxwriter")
    """EDGES 20: a cell of a workbook has a type, so that its text can stay as it is."""
    records = [make_record(i, task=text) for i, text in enumerate(HOSTILE)]
    folder = write_parquet_trace(tmp_path / "t", records)
    write_xlsx({"=1+1": open_trace(folder)}, tmp_path / "out.xlsx")
    with zipfile.ZipFile(tmp_path / "out.xlsx") as archive:
        for name in archive.namelist():
            assert b"<f>" not in archive.read(name)
    rows = read_workbook(tmp_path / "out.xlsx")["jobs"]
    column = rows[0].index("task")
    assert [row[column] for row in rows[1:]][:4] == HOSTILE[:4]


def test_a_sheet_that_is_full_goes_on(tmp_path, monkeypatch):
    pytest.importorskip("xlsxwriter")
    assert SHEET_ROWS == 1_048_576
    monkeypatch.setattr(tables, "SHEET_ROWS", 5)
    folder = write_parquet_trace(tmp_path / "t", [make_record(i) for i in range(9)])
    write_xlsx({"t": open_trace(folder)}, tmp_path / "out.xlsx")
    sheets = read_workbook(tmp_path / "out.xlsx")
    jobs = [sheets[name] for name in ("jobs", "jobs 2", "jobs 3")]
    assert [len(rows) for rows in jobs] == [5, 5, 2]
    sequence = jobs[0][0].index("sequence")
    assert [int(row[sequence]) for rows in jobs for row in rows[1:]] == list(range(9))
    assert sum(len(sheets[name]) - 1 for name in sheets if name.startswith("stages")) == 18


def test_a_workbook_on_a_full_disk_is_one_error(trace, tmp_path):
    """EDGES, campaign 5: zipfile wrote again when it was collected, and printed a traceback."""
    pytest.importorskip("xlsxwriter")
    (tmp_path / "jobs.xlsx").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_xlsx({"t": trace}, tmp_path / "jobs.xlsx")
    gc.collect()  # an exception that is ignored fails the test


def test_without_xlsxwriter_the_extra_is_named(trace, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(ConfigurationError, match=r"jetson_dnn_rt\[excel\]"):
        write_xlsx({"t": trace}, tmp_path / "out.xlsx")


# -- Perfetto ------------------------------------------------------------------------------------

_NEEDED = {
    "X": "cat ts dur",
    **dict.fromkeys("bestf", "cat ts id"),
    "i": "ts s",
    "C": "ts args",
    "M": "args",
}
"""What the trace-event format asks of each phase."""


def check_events(events):
    """That a viewer can make sense of them."""
    slices = defaultdict(list)
    for event in events:
        assert {"name", "pid", "tid", *_NEEDED[event["ph"]].split()} <= set(event), event
        assert type(event["pid"]) is type(event["tid"]) is int
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] == "C":
            assert all(isinstance(value, float) for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
    for track in slices.values():
        track.sort()
        for (_, end), (start, _) in pairwise(track):
            assert start >= end - 1e-6
    opened, closed = (
        Counter((e["cat"], e["id"], e["name"]) for e in events if e["ph"] == phase)
        for phase in "be"
    )
    assert opened == closed
    assert set(opened.values()) <= {1}
    for event in events:
        if event["ph"] in "stf":  # an arrow binds to the slice that begins there
            track = slices[event["pid"], event["tid"]]
            assert any(start <= event["ts"] <= end for start, end in track)
    named = {e["pid"] for e in events if e["name"] == "process_name"}
    assert {pid for pid, _ in slices} <= named


def test_perfetto(trace, tmp_path):
    (path,) = write_perfetto({"first": trace}, tmp_path / "out.json")
    whole = json.loads(path.read_text())
    assert set(whole) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert whole["otherData"]["first"]["machine"]["cpu"] == "Some CPU"
    events = whole["traceEvents"]
    check_events(events)
    processes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    assert set(processes) == {"task detector", "task segmenter", "workers", "clocks"}
    phases = Counter(event["ph"] for event in events)
    stages = sum(len(job.record.stages) for job in trace.jobs())
    assert phases["b"] == phases["e"] == 27
    assert phases["X"] == 2 * stages
    # Jobs of two stages have an arrow from the first to the second.
    assert phases["s"] == phases["f"] == 14
    names = Counter(event["name"] for event in events if event["ph"] == "i")
    assert sum(count for name, count in names.items() if name.startswith("deadline of")) == 27
    assert names["MISSED #12 late"] == 1
    assert names["MISSED #14 skipped: why"] == 1
    assert names["variant full@null -> half@null"] == 1
    assert names[SLOW] == names[FAST] == 1
    clocks = [e for e in events if e["ph"] == "C" and e["pid"] == processes["clocks"]]
    for name, values in {"cpu MHz": [1000.0, 2000.0], "gpu MHz": [0.0, 900.0]}.items():
        assert [e["args"]["value"] for e in clocks if e["name"] == name] == values
    workers = {e["tid"] for e in events if e["pid"] == processes["workers"] and e["ph"] == "X"}
    assert workers == {1, 2}  # both tasks at once


def test_perfetto_of_two_traces_and_of_nothing(trace, tmp_path):
    (path,) = write_perfetto({"a": trace, "b": trace}, tmp_path / "out.json.gz")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    check_events(events)
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {"a: task detector", "b: task detector"} <= names
    empty = open_trace(write_parquet_trace(tmp_path / "t", []))
    (path,) = write_perfetto({"t": empty}, tmp_path / "out.json")
    check_events(json.loads(path.read_text())["traceEvents"])
    assert list(iterate_events(empty))


def test_a_narrow_network_is_shown_as_one(tmp_path):
    first, second = make_record(0).stages
    record = replace(make_record(0), stages=(first, replace(second, narrow=True)))
    trace = open_trace(write_parquet_trace(tmp_path / "t", [record]))
    names = [event["name"] for event in iterate_events(trace) if event["ph"] == "X"]
    assert names == ["a", "detector a", "b (narrow)", "detector b (narrow)"]
    _, stages = write_csv({"t": trace}, tmp_path / "out.csv")
    assert [row["narrow"] for row in read_csv(stages)] == ["False", "True"]


# -- speedscope ----------------------------------------------------------------------------------


def add_up(profile, frames):
    """Time of each stack; the events must nest, as speedscope requires."""
    stack, times, before = [], Counter(), profile["startValue"]
    for event in profile["events"]:
        assert type(event["at"]) is int
        times[tuple(stack)] += event["at"] - before
        before = event["at"]
        if event["type"] == "O":
            stack.append(frames[event["frame"]]["name"])
        else:
            assert (event["type"], frames[event["frame"]]["name"]) == ("C", stack.pop())
    assert (stack, before) == ([], profile["endValue"])
    return +times


def test_speedscope_adds_up_the_stages(trace, tmp_path):
    (path,) = write_speedscope({"first": trace}, tmp_path / "out.json")
    whole = json.loads(path.read_text())
    assert [profile["name"] for profile in whole["profiles"]] == ["worker 1", "worker 2"]
    frames = whole["shared"]["frames"]
    found = sum((add_up(profile, frames) for profile in whole["profiles"]), Counter())
    del found[()]  # between stages
    expected = Counter()
    for job in trace.jobs():
        for stage in job.record.stages:
            name = f"{stage.name} {stage.variant}"
            expected[job.record.task, name] += stage.end_ns - stage.start_ns
    assert found == expected
    assert found["detector", "a full@null"] == 12 * 2_000_000 + 30_000_000 + 2_000_000


def test_speedscope_of_two_traces_and_of_nothing(trace, tmp_path):
    (path,) = write_speedscope({"a": trace, "b": trace}, tmp_path / "out.json")
    whole = json.loads(path.read_text())
    names = [profile["name"] for profile in whole["profiles"]]
    assert names == ["a: worker 1", "a: worker 2", "b: worker 1", "b: worker 2"]
    assert len({frame["name"] for frame in whole["shared"]["frames"]}) == 5
    empty = open_trace(write_parquet_trace(tmp_path / "t", []))
    (path,) = write_speedscope({"t": empty}, tmp_path / "out.json")
    assert json.loads(path.read_text())["profiles"] == []


# -- The command ---------------------------------------------------------------------------------


@pytest.fixture
def output(tmp_path):
    """The output folder of a run."""
    write_parquet_trace(tmp_path / "out" / "trace", [make_record(i) for i in range(3)])
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("name", "options", "kind", "files"),
    [
        ("a.csv", [], "csv", ["a.csv", "a-stages.csv"]),
        ("a.xlsx", [], "xlsx", ["a.xlsx"]),
        ("new/a.json", [], "perfetto", ["a.json"]),
        ("a.json.gz", [], "perfetto", ["a.json.gz"]),
        ("a.trace", ["--format", "perfetto"], "perfetto", ["a.trace"]),
        ("a.json", ["--format", "speedscope"], "speedscope", ["a.json"]),
        ("a.json.gz", ["--format", "speedscope"], "speedscope", ["a.json.gz"]),
    ],
)
def test_every_format(output, capsys, name, options, kind, files):
    if kind == "xlsx":
        pytest.importorskip("xlsxwriter")
    target = output / name
    assert main(["export", str(output), "--output", str(target), *options, "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    written = [str(target.parent / file) for file in files]
    assert result == {"format": kind, "files": written, "jobs": 3}
    assert all(Path(file).stat().st_size > 100 for file in written)


def test_several_traces(output, tmp_path, capsys):
    other = write_parquet_trace(tmp_path / "other", [make_record(0)])
    target = tmp_path / "a.csv"
    assert main(["export", str(output), str(other), "--output", str(target)]) == 0
    captured = capsys.readouterr()
    assert (captured.out, "(4 jobs)" in captured.err) == ("", True)
    labels = [line.split(",")[0] for line in target.read_text().splitlines()]
    assert labels == ["trace", "out", "out", "out", "other"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing", "--output", "a.csv"], "No such file"),
        (["out", "--output", "a.doc"], "--format is missing"),
        (["out", "out", "--output", "a.csv"], "given twice"),
        (["out", "--output", "/proc/no/a.csv"], "cannot write"),
    ],
)
def test_what_cannot_be_used(output, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(output.parent)
    assert main(["export", *arguments]) == BAD_ARGUMENTS
    assert message in capsys.readouterr().err


def test_a_damaged_trace_fails(output, capsys):
    path = output / "trace" / "jobs-0000.parquet"
    data = bytearray(path.read_bytes())
    data[4:400] = bytes(396)
    path.write_bytes(data)
    assert main(["export", str(output), "--output", str(output / "a.csv")]) == FAILED
    assert "is damaged" in capsys.readouterr().err
