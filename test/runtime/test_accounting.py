# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The campaign `accounting` for some hundred frames, and the script that counts on bad traces."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: traces need it")

from accounts import COUNT_FRAMES, Accounts, compare, count_in_traces
from pyarrow import compute, parquet
from traced_jobs import METADATA, make_record, write_parquet_trace

from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.writer import TraceWriter

CAMPAIGN = COUNT_FRAMES.with_name("accounting.py")
RECORDS = [
    make_record(3),
    make_record(4, stages_ns=(50_000_000,), outcome=Outcome.LATE),
    make_record(5, stages_ns=(), outcome=Outcome.SUPERSEDED),
    make_record(6, stages_ns=(50_000_000,), outcome=Outcome.ABORTED),
    make_record(7, outcome=Outcome.FAILED),
    make_record(0, task="segmenter", stages_ns=(), outcome=Outcome.SKIPPED),
]
COUNTED = {
    "detector": {"met": 1, "late": 1, "superseded": 1, "aborted": 1, "failed": 1},
    "segmenter": {"skipped": 1},
}
SENT = {"detector": (3, 7), "segmenter": (0, 0)}


def test_every_frame_is_in_one_outcome_by_its_trace_alone():
    """Frames of simulated runs and of a session in real time, with all that may befall them."""
    pytest.importorskip("torch", reason="torch is not installed: a small network is exported")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: a variant needs it")
    pytest.importorskip("openvino", reason="openvino is not installed: a variant needs it")
    arguments = ["--simulated", "600", "--real", "200", "--largest", "150", "--seed", "4"]
    done = subprocess.run(
        [sys.executable, CAMPAIGN, *arguments, "--minutes", "10"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["faults"] == []
    assert report["counts"]["simulated"]["sent"] >= 600
    assert report["counts"]["real"]["sent"] >= 200


def test_a_sound_trace_adds_up(tmp_path):
    write_parquet_trace(tmp_path, RECORDS)
    assert count_in_traces([tmp_path]) == {
        "outcomes": COUNTED, "ends": {"detector": [3, 7], "segmenter": [0, 0]}, "lost": 0,
        "faults": [],
    }  # fmt: skip
    outcomes, faults = compare(Accounts(SENT, COUNTED, [tmp_path]))
    assert (outcomes.total(), faults) == (6, [])


def test_streams_and_several_traces_count_together(tmp_path):
    write_parquet_trace(tmp_path / "first", RECORDS[:2])
    writer = TraceWriter(tmp_path / "second", METADATA)
    for record in RECORDS[2:]:
        writer.write(record)
    writer.close(convert=False)
    accounts = Accounts(SENT, COUNTED, [tmp_path / "first", tmp_path / "second"])
    assert compare(accounts)[1] == []


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        ([*RECORDS, RECORDS[0]], "detector 3: 2 times"),
        ([*RECORDS, replace(RECORDS[2], outcome=Outcome.FAILED)], "detector 5: 2 times"),
        ([*RECORDS[:2], *RECORDS[3:]], "1 frames are missing, 0 of them lost"),
        ([replace(RECORDS[1], outcome=Outcome.MET), *RECORDS[2:]], "detector 4: 'met' cannot be"),
        ([replace(RECORDS[0], outcome=Outcome.LATE), *RECORDS[1:]], "detector 3: 'late' cannot"),
        ([], "there is no frame in the trace"),
    ],
    ids=["twice", "two outcomes", "missing", "late as met", "met as late", "empty"],
)
def test_a_trace_that_does_not_add_up_is_refused(tmp_path, records, fault):
    write_parquet_trace(tmp_path, records)
    assert fault in "; ".join(count_in_traces([tmp_path])["faults"])
    assert compare(Accounts(SENT, COUNTED, [tmp_path]))[1]


def test_an_outcome_that_nobody_knows_is_refused(tmp_path):
    write_parquet_trace(tmp_path, RECORDS)
    (part,) = tmp_path.iterdir()
    table = parquet.ParquetFile(part).read()
    place = table.column_names.index("outcome")
    changed = compute.replace_substring(table["outcome"], "skipped", "forgotten")
    parquet.write_table(table.set_column(place, table.field(place), changed), part)
    assert count_in_traces([tmp_path])["faults"] == ["segmenter 0: 'forgotten' cannot be"]


@pytest.mark.parametrize(
    ("sent", "counted"),
    [
        ({**SENT, "detector": (3, 8)}, COUNTED),  # the last one was never seen
        ({**SENT, "other": (0, 4)}, COUNTED),
        (SENT, {**COUNTED, "segmenter": {"met": 1}}),
    ],
)
def test_sums_that_differ_from_those_of_source_and_package_are_said(tmp_path, sent, counted):
    write_parquet_trace(tmp_path, RECORDS)
    assert len(compare(Accounts(sent, counted, [tmp_path]))[1]) == 1


def test_the_script_is_short_and_knows_nothing_of_the_package():
    text = COUNT_FRAMES.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 30
    nodes = list(ast.walk(ast.parse(text)))
    imported = {
        alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported == {"json", "sys", "collections", "pathlib", "pyarrow"}
    # Not by way of the folder that it is started in, either.
    environment = {**os.environ, "PYTHONPATH": os.fspath(Path(COUNT_FRAMES).parents[2])}
    done = subprocess.run([sys.executable, "-I", COUNT_FRAMES], env=environment, check=False)
    assert done.returncode == 1
