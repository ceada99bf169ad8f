# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`jetson-dnn-rt wcet` and `compare` over real trace files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from traced_jobs import METADATA, make_record, write_parquet_trace

from jetson_dnn_rt.cli.main import main
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.writer import TraceWriter


def write_trace(folder, seed, *, count=3000, scale=1.0, other=0):
    """Jobs of two stages with exponential times, and some of another variant."""
    random = np.random.default_rng(seed)
    times = scale * (1e7 + 1e6 * random.standard_exponential(count))
    records = [
        make_record(index, stages_ns=(2_000_000, int(time_ns)))
        for index, time_ns in enumerate(times)
    ]
    records += [make_record(count + index, variant="tucker@null") for index in range(other)]
    return write_parquet_trace(folder, records)


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    return {
        "first": str(write_trace(folder / "first", 0, other=20)),
        "second": str(write_trace(folder / "second", 1)),
        "slower": str(write_trace(folder / "slower", 2, scale=1.3)),
        "other": str(write_parquet_trace(folder / "other", [make_record(0, task="other")])),
    }


def refuse(constant):
    raise ValueError(f"{constant} is no JSON")


def run_json(capsys, *arguments):
    code = main([*arguments, "--json"])
    last = capsys.readouterr().out.splitlines()[-1]
    return code, json.loads(last, parse_constant=refuse)


def test_every_campaign_gets_a_verdict(traces, capsys):
    code, result = run_json(capsys, "wcet", traces["first"], "--exceedance", "1e-2,5e-4")
    assert code == 0
    full, tucker = result["campaigns"]
    assert (full["task"], full["variant"]) == ("detector", "full@null")
    assert full["verdict"] == "extrapolated"
    assert [bound["verdict"] for bound in full["bounds"]] == ["supported", "extrapolated"]
    assert full["bounds"][1]["upper_ms"] > full["bounds"][1]["estimate_ms"] > 19.0
    assert full["warm_up"] == 10
    assert tucker["variant"] == "tucker@null"
    assert tucker["verdict"] == "unproven"
    assert tucker["bounds"][0]["upper_ms"] is None
    assert "too few" in tucker["statement"]
    assert result["platform"] == "Some CPU"


def test_aborted_frames_leave_nothing_proven(tmp_path, capsys):
    random = np.random.default_rng(0)
    times = (1e7 + 1e6 * random.standard_exponential(2000)).astype(int)
    records = [make_record(index, stages_ns=(int(one),)) for index, one in enumerate(times)]
    lost = [make_record(3000, outcome=Outcome.ABORTED), make_record(3001, outcome=Outcome.SKIPPED)]
    trace = str(write_parquet_trace(tmp_path, [*records, *lost]))
    for options, count in (([], 1), (["--times", "response"], 2), (["--by", "task,stage"], 0)):
        _, result = run_json(capsys, "wcet", trace, *options)
        complete = result["campaigns"][0]["tests"][1]
        assert (complete["name"], complete["statistic"]) == ("Complete", count)
        assert complete["passed"] is (count == 0)


def test_text_names_verdict_tests_and_advice(traces, capsys):
    assert main(["wcet", traces["first"]]) == 0
    text = capsys.readouterr().out
    for words in ("extrapolated", "unproven", "passed  KPSS", "FAILED  Count", "next: "):
        assert words in text


def test_a_second_campaign_holds_or_refutes(traces, capsys):
    code, result = run_json(capsys, "wcet", traces["first"], "--validate", traces["second"])
    assert code == 0
    found = result["campaigns"][0]["validation"]
    assert [one["refuted"] for one in found] == [False]
    assert found[0]["claimed"] == pytest.approx(2.99)
    assert main(["wcet", traces["first"], "--validate", traces["slower"]]) == 1
    assert "REFUTED" in capsys.readouterr().out


def test_compare_finds_a_worse_tail(traces, capsys):
    code, result = run_json(
        capsys, "compare", traces["first"], traces["second"], "--tolerance", "0.15"
    )
    assert code == 0
    assert result["worse"] is False
    assert result["notes"] == [
        f"only in {traces['first']}: detector, tucker@null, clocks not read"
    ]
    code, result = run_json(capsys, "compare", traces["first"], traces["slower"])
    assert code == 1
    assert result["comparisons"][0]["verdict"] == "worse"
    assert result["comparisons"][0]["quantiles"][1]["change"] == pytest.approx(0.25, abs=0.08)
    assert main(["compare", traces["first"], traces["slower"]]) == 1
    text = capsys.readouterr().out
    assert "worse: p" in text
    assert "Anderson-Darling" in text


def write_warm_up(folder, records):
    with TraceWriter(folder, METADATA) as writer:
        for record in records:
            writer.write(record, warm_up=True, wait=True)
    return folder


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["wcet", "{missing}"], "No such file or folder"),
        (["wcet", "{first}", "--by", "task,colour"], "colour"),
        (["wcet", "{first}", "--by", "task,,stage"], "by must be some of task, variant, stage"),
        (["wcet", "{other}"], "no finished job"),
        (["wcet", "{short}"], "after the warm-up, which the 5 there belong to; record more"),
        (["wcet", "{first}", "--validate", "{later}"], "no campaign of the first"),
        (["compare", "{first}", "{later}"], "only in"),
        (["compare", "{few}", "{few}"], "100 times"),
    ],
)
def test_unusable_input_is_named(traces, tmp_path, capsys, arguments, words):
    later = [make_record(index, task="later") for index in range(30)]
    few = [make_record(index) for index in range(30)]
    places = {
        **traces,
        "missing": str(tmp_path / "missing"),
        "later": str(write_parquet_trace(tmp_path / "later", later)),
        "few": str(write_parquet_trace(tmp_path / "few", few)),
        "short": str(write_warm_up(tmp_path / "short", few[:5])),
    }
    assert main([argument.format(**places) for argument in arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--exceedance", "1e-3,x"], ["--exceedance", "0.7"], ["--confidence", "1"]]
)
def test_bad_options(traces, options):
    with pytest.raises(SystemExit) as ended:
        main(["wcet", traces["first"], *options])
    assert ended.value.code == 2
