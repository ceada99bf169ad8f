# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from campaigns import make_campaign
from timing_traces import make_jobs, write_trace_of

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.report.page import format_p_value, make_page, mark_code, write_report
from jetson_dnn_rt.lab.report.recording import read_recording
from jetson_dnn_rt.lab.report.report import make_report, to_dict
from jetson_dnn_rt.lab.report.wording import format_deadlines
from jetson_dnn_rt.lab.wcet.statement import Support
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.reader import open_trace

for library in ("pyarrow", "matplotlib", "jinja2"):
    pytest.importorskip(library)
VOID = {"img", "source", "meta", "br"}


class Outline(HTMLParser):
    """Tags, text and identifiers; an element that is not closed is an error."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data + " "


def parse(page):
    outline = Outline()
    outline.feed(page)
    outline.close()
    outline.text = re.sub(r"\s+", " ", outline.text)
    assert outline.open == []
    return outline


def judge(sample):
    """The segmenter's times are unproven."""
    unproven = dict(sample.key)["task"] == "segmenter"
    support = Support.UNPROVEN if unproven else Support.EXTRAPOLATED
    return make_campaign(sample.title, support=support)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two tasks with a bad spell, and the same beside a load."""
    folder = tmp_path_factory.mktemp("traces")
    alone = write_trace_of(folder / "alone", make_jobs(150, bad_from=60, bad_count=20))
    beside = write_trace_of(folder / "cpu", make_jobs(150, seed=1, slowdown=1.3), "cpu")
    recordings = [
        read_recording(label, [open_trace(path)])
        for label, path in (("alone", alone), ("beside <cpu>", beside))
    ]
    return make_report(recordings, judge, title="Run & report", cold=recordings[1])


@pytest.fixture(scope="module")
def page(report):
    return make_page(report)


def test_page_needs_no_other_file_and_fits_a_phone(page):
    tags = parse(page).tags
    assert not {"script", "link", "iframe"} & {tag for tag, _ in tags}
    for _, attributes in tags:
        for name in ("src", "srcset", "href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:image/png;base64,", "#"))
    assert "url(" not in page
    metas = [attributes.get("content") or "" for tag, attributes in tags if tag == "meta"]
    assert any("width=device-width" in content for content in metas)
    sources = [attributes["media"] for tag, attributes in tags if tag == "source"]
    images = [attributes for tag, attributes in tags if tag == "img"]
    assert len(images) == len(sources) > 8
    assert set(sources) == {"(max-width: 700px)"}
    assert all(attributes["alt"] for attributes in images)
    # Rows of a table become cards, with the names of their columns.
    labels = {attributes.get("data-label") for tag, attributes in tags if tag == "td"}
    assert {"estimate", "p-value", "meaning", "missed"} <= labels

    # Links lead to sections.
    names = [attributes["id"] for _, attributes in tags if "id" in attributes]
    links = [attributes["href"][1:] for tag, attributes in tags if tag == "a"]
    assert len(set(names)) == len(names)
    assert set(links) <= set(names)
    assert {"task-detector", "task-segmenter", "timeline", "comparison", "cold"} <= set(names)


def test_page_says_what_was_missed_and_why(page, report):
    text = parse(page).text
    missed = sum(int(item.task.missed.sum()) for item in report.tasks)
    assert f"{missed} of 300 frames of 2 tasks had no result in time" in text
    assert "the measured time did not fit before the deadline any more" in text
    skipped = report.first.tasks["segmenter"].count(Outcome.SKIPPED)
    assert skipped > 0
    assert f"{skipped} frames of this task were skipped or aborted" in text
    assert "What to do" in text
    assert all(word in text for word in ("Timeline", "Before and after", "What fits together"))
    assert all(
        word in text for word in ("Some CPU", "unknown clocks", "mallopt", "null:1", "cdcd")
    )


def test_a_verdict_rests_on_a_stage_and_stands_beside_what_was_met(page):
    text = parse(page).text
    assert re.search(
        r"it rests on task \w+ with .* its stage inference-\d takes [\d.]+ ms, the largest of "
        r"\d+ times\. Met in this run: ",
        text,
    )


def test_quantiles_that_would_be_the_highest_time_are_left_out(page, tmp_path, monkeypatch):
    text = parse(page).text
    assert "No p99.9: in" in text
    assert "p99 takes 100 frames, p99.9 takes 1,000" in text
    assert "response, p99 " in text
    assert "budget p99.9" not in text
    monkeypatch.setattr("jetson_dnn_rt.lab.report.style._render", lambda draw, layout: b"PNG")
    few = read_recording("few", [open_trace(write_trace_of(tmp_path, make_jobs(107)))])
    judged = make_report([few], lambda one: replace(judge(one), count=len(one)), title="")
    text = parse(make_page(judged)).text
    assert "No p99 and p99.9: in 97 frames that is the highest time seen" in text
    assert "response, slowest of 97" in text
    for row in ("response, p99 ", "budget p99", "least deadline, p99", ", p99 "):
        assert row not in text
    assert text.count("least deadline, highest seen") == 1


def test_no_bound_without_its_verdict(page):
    text = parse(page).text
    assert "15.0 ms extrapolated" in text
    assert "no bound" in text
    # The unproven task has its highest time, and no pWCET anywhere.
    segmenter = text[text.rindex("Execution time: full@null") :]
    segmenter = segmenter[: segmenter.index("What fits together")]
    assert "pWCET" not in segmenter
    assert "highest seen" in segmenter


def test_what_the_trace_lacks_is_written_on_top(report, page):
    sequential = "Frames ran one after the other"
    # EDGES 20: figures of the newest part of a run are not taken for those of all of it.
    gaps = "70 jobs are not in the trace, 60 of them the oldest, removed at the limit."
    for words, changes in (
        (sequential, {"source": "profile"}),
        (sequential, {"source": "evaluate", "parameters": {"mode": "sequential"}}),
        (gaps, {"lost": 70, "removed": 60}),
    ):
        assert words not in parse(page).text
        first = replace(report.first, metadata=replace(report.first.metadata, **changes))
        changed = make_page(replace(report, recordings=[first, *report.recordings[1:]]))
        assert words in parse(changed).text


def test_everything_foreign_is_escaped(page):
    assert "<title>Run &amp; report</title>" in page
    assert "beside &lt;cpu&gt;" in page
    assert "<cpu>" not in page
    assert "&lt;their&gt;" in page


def test_files_are_written(report, page, tmp_path, monkeypatch):
    written, figures = write_report(report, tmp_path / "new" / "folder")
    assert written.read_text(encoding="utf-8") == page
    names = [file.stem for file in figures]
    assert len(set(names)) == len(names) == len(report.pictures)
    assert {"timeline", "detector-tail-1", "segmenter-misses", "comparison-1"} < set(names)
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in figures)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"cannot write .*file"):
        write_report(report, tmp_path / "file")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigurationError, match=r"jinja2.*jetson_dnn_rt\[plots\]"):
        make_page(report)


def test_json_says_the_same(report):
    fields = json.loads(json.dumps(to_dict(report), allow_nan=False))
    assert set(fields["tasks"]) == {"detector", "segmenter"}
    for name, task in fields["tasks"].items():
        assert sum(task["outcomes"].values()) == task["frames"] == 150
        columns = report.first.tasks[name]
        assert task["outcomes"]["met"] == columns.count(Outcome.MET)
    (unproven,), (given,) = (fields["tasks"][n]["campaigns"] for n in ("segmenter", "detector"))
    assert unproven["support"] == "unproven"
    assert [bound["upper_ms"] for bound in unproven["bounds"]] == [None, None]
    expected = {"exceedance": 1e-4, "support": "extrapolated", "upper_ms": 15.0}
    assert given["bounds"][1] == expected
    assert {shift["task"] for shift in fields["comparisons"]} == {"detector", "segmenter"}
    assert set(fields["schedulability"]["verdicts"]) >= {"p99", "highest seen"}


@pytest.mark.parametrize("support", list(Support))
def test_the_worst_case_begins_with_its_verdict(report, support):
    item = report.tasks[0]
    campaigns = [(item.campaigns[0][0], make_campaign(support=support))]
    page = make_page(replace(report, tasks=[replace(item, campaigns=campaigns)], advice=[]))
    text = parse(page).text.split("Execution time: full@null")[1]
    assert text.split()[0] == support.value
    assert "As tested" in text
    assert ("about every 5.6 min" in text) == (support is not Support.UNPROVEN)
    assert ("jetson-dnn-rt doctor" in text) == (support is not Support.SUPPORTED)


def test_words():
    assert [format_p_value(p) for p in (0.04, 1e-9, float("nan"))] == ["0.040", "< 0.001", "–"]
    assert mark_code("run `a <b>` 5 ms") == "run <code>a &lt;b&gt;</code> 5\u00a0ms"


def make_changed_jobs():
    """Jobs of a detector, most in a quick variant; one of another takes 300 ms; four deadlines."""
    jobs = [job for job in make_jobs(240, second_variant_from=180) if job.task == "detector"]
    for place, job in enumerate(jobs):
        deadline_ns = (20_000_000, 40_000_000, 80_000_000, 320_000_000)[place * 4 // len(jobs)]
        jobs[place] = replace(job, absolute_deadline_ns=job.release_ns + deadline_ns)
    slow = jobs[200]
    *first, last = slow.stages
    grown = replace(last, end_ns=slow.stages[0].start_ns + 300_000_000)
    jobs[200] = replace(slow, stages=(*first, grown), completion_ns=grown.end_ns)
    return jobs


def test_a_maximum_of_a_task_is_that_of_all_its_variants_and_names_which(tmp_path, monkeypatch):
    """D1: the card showed the slowest of the variant that ran most, as if it were the task's."""
    monkeypatch.setattr("jetson_dnn_rt.lab.report.style._render", lambda draw, layout: b"PNG")
    recording = read_recording("x", [open_trace(write_trace_of(tmp_path, make_changed_jobs()))])
    report = make_report([recording], judge, title="")
    text = parse(make_page(report)).text
    assert "execution, slowest: tucker-0.50@null 300 ms" in text
    assert "pWCET, 1 in 10,000: full@null" in text
    assert "pWCET, 1 in 10,000: tucker-0.50@null" in text
    assert report.schedulability.needs["detector"].budgets_ns["highest seen"] == 300_000_000
    assert report.schedulability.needs["detector"].slowest == "tucker-0.50@null"
    assert "highest seen 900 % does not fit" in text
    assert "The highest of detector was seen in tucker-0.50@null." in text
    assert "300 ms (tucker-0.50@null)" in text
    found = to_dict(report)["tasks"]["detector"]
    assert (found["slowest_ms"], found["slowest_variant"]) == (300.0, "tucker-0.50@null")


def test_every_deadline_that_a_task_had_is_shown(tmp_path, monkeypatch):
    """D1: one deadline, the median, stood where there had been four."""
    monkeypatch.setattr("jetson_dnn_rt.lab.report.style._render", lambda draw, layout: b"PNG")
    recording = read_recording("x", [open_trace(write_trace_of(tmp_path, make_changed_jobs()))])
    report = make_report([recording], judge, title="")
    text = parse(make_page(report)).text
    assert "deadlines 20.0 ms, 40.0 ms, 80.0 ms and 320 ms" in text
    assert "the deadline of its time (20.0 ms, 40.0 ms, 80.0 ms and 320 ms)" in text
    assert "usual deadline 40.0 ms" in text
    assert "40.0 ms (usual of 4)" in text
    assert to_dict(report)["tasks"]["detector"]["deadlines_ms"] == [20.0, 40.0, 80.0, 320.0]
    assert (
        format_deadlines([1_000_000 * ms for ms in range(1, 8)]) == "1.00 ms to 7.00 ms (7 values)"
    )
