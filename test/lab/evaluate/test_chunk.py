# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Chunks of bags, frame by frame, and merged in any order."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pyarrow as pa
import pytest
from bags import TOPIC, make_image, write_bag
from fleet_work import make_spec
from histograms import histogram_of
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.evaluate.chunk import (
    TAIL_SAMPLES,
    ChunkRequest,
    VariantChunk,
    digest_result,
    digest_results,
    merge_variants,
    release,
    run_chunk,
    run_frame,
)
from jetson_dnn_rt.lab.evaluate.plan import OpenTask, fix_task
from jetson_dnn_rt.lab.evaluate.streams import name_stream
from jetson_dnn_rt.results import Detections, Segmentation
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.traces.schema import from_row

MS = 1_000_000
KEY = ("detector", "full@null")


@pytest.fixture
def task():
    return fix_task(make_spec("null:0.01")).spec


@pytest.fixture
def bag(tmp_path):
    """Twelve images, of which the sixth has an unknown encoding."""
    messages = [make_image(n, encoding="bayer?" if n == 5 else "bgr8") for n in range(12)]
    yield write_bag(tmp_path / "drive", messages)
    release()


def test_every_frame_is_counted_once(bag, task):
    steps = []
    result = run_chunk(ChunkRequest(str(bag), TOPIC, 2, 8, (task,), warm_up=3), steps.append)
    assert result.frames == 7
    assert steps == [1, 2, 3, 4, 5, 6, 7]
    assert [message.index for message in result.bad] == [5]
    variant = result.variants[KEY]
    assert variant.execution.count == 7
    assert sorted(variant.digests) == [2, 3, 4, 6, 7, 8, 9]
    assert not variant.failed
    counts = {name: times.count for name, times in variant.stages.items()}
    assert counts == dict.fromkeys(("preprocess", "inference", "decode"), 7)
    assert len(variant.largest) == 7


def test_rows_of_the_trace(bag, task):
    result = run_chunk(ChunkRequest(str(bag), TOPIC, 0, 5, (task,), warm_up=2))
    with pa.ipc.open_stream(pa.BufferReader(result.rows)) as stream:
        jobs = [from_row(row) for row in stream.read_all().to_pylist()]
    assert [(job.record.sequence, job.warm_up) for job in jobs] == [
        *((0, True), (1, True)),
        *((place, False) for place in range(5)),
    ]
    assert {job.camera for job in jobs} == {name_stream(str(bag), TOPIC)}
    assert all(job.record.execution_time_ns > 0 for job in jobs)
    assert all(job.record.outcome in (Outcome.MET, Outcome.LATE) for job in jobs)
    assert jobs[4].stamp_ns == 80 * MS
    lines = [json.loads(line) for line in result.lines.splitlines()]
    assert [line["frame"] for line in lines] == [0, 1, 2, 3, 4]
    assert lines[0]["boxes"] == []
    later = run_chunk(ChunkRequest(str(bag), TOPIC, 0, 5, (task,), repeat=1))
    assert later.rows
    assert later.lines == b""
    behind_the_end = run_chunk(ChunkRequest(str(bag), TOPIC, 12, 5, (task,)))
    assert (behind_the_end.frames, behind_the_end.bad) == (0, [])


def test_a_stage_that_raises_fails_its_frame_only(task):
    image = np.zeros((8, 12, 3), np.uint8)
    good, bad = Frame(image, "bgr8", 0, 0), Frame(image, "no such encoding", 0, 1)
    with OpenTask(task) as opened:
        failed, nothing = run_frame(opened, KEY[1], bad, 1, SteadyClock())
        record, result = run_frame(opened, KEY[1], good, 0, SteadyClock())
    assert failed.outcome is Outcome.FAILED
    assert failed.stages == ()
    assert "no such encoding" in failed.reason
    assert nothing is None
    assert record.outcome is not Outcome.FAILED
    assert isinstance(result, Detections)


def test_results_do_not_depend_on_the_chunks(tmp_path):
    """A real network on pictures that differ: the same bits, however the bag is cut."""
    spec = fix_task(make_spec("builtin:detector")).spec
    generator = np.random.default_rng(1)
    messages = [make_image(place, rows=48) for place in range(9)]
    for message in messages:
        message.data[:] = generator.integers(0, 256, len(message.data), np.uint8)
    bag = str(write_bag(tmp_path / "drive", messages))

    def run(*chunks):
        requests = [ChunkRequest(bag, TOPIC, *chunk, (spec,), warm_up=2) for chunk in chunks]
        results = [run_chunk(request) for request in requests]
        (variant,) = spec.config.variants
        return merge_variants([r.variants["detector", variant] for r in results]).digests

    try:
        whole, parts = run((0, 9)), run((5, 4), (0, 3), (3, 2))
    finally:
        release()
    assert sorted(whole) == list(range(9))
    assert digest_results(whole) == digest_results(parts)


def test_a_digest_is_of_every_bit():
    mask = np.zeros((4, 4), np.uint8)
    assert digest_result(Segmentation(mask)) == digest_result(Segmentation(mask.copy()))
    other = mask.copy()
    other[3, 3] = 1
    score, label = np.zeros(1, np.float32), np.zeros(1, np.int64)
    results = [
        *(Segmentation(mask), Segmentation(other), Segmentation(mask.reshape(2, 8))),
        Detections.empty(),
        *(Detections(np.full((1, 4), x, np.float32), score, label) for x in (0.0, -0.0)),
        Detections(np.zeros((1, 4), np.float32), score, label, track_ids=np.array([7])),
        *(Segmentation(mask, others=(Segmentation(m, name="b"),)) for m in (mask, other)),
        Segmentation(mask, others=(Segmentation(mask, name="c"),)),
    ]
    assert len({digest_result(result) for result in results}) == len(results)


# -- Requests and results, which travel ----------------------------------------------------------


def measure(times, first):
    """A chunk of one variant whose frames took so long."""
    chunk = VariantChunk()
    for index, time_ns in enumerate(times, start=first):
        chunk.execution.record(time_ns)
        chunk.digests[index] = hashlib.sha256(str(index).encode()).digest()
    places = ((time_ns, index) for index, time_ns in enumerate(times, start=first))
    chunk.largest = sorted(places, reverse=True)[:TAIL_SAMPLES]
    return chunk


@settings(max_examples=30)
@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=700), st.data())
def test_chunks_in_any_order_equal_the_whole(times, data):
    cut = data.draw(st.integers(1, len(times) - 1))
    parts = [measure(times[:cut], 0), measure(times[cut:], cut)]
    whole = measure(times, 0)
    for merged in (merge_variants(parts), merge_variants(parts[::-1])):
        assert merged.execution == whole.execution
        assert merged.largest == whole.largest
        assert digest_results(merged.digests) == digest_results(whole.digests)
    assert digest_results(whole.digests) != digest_results(parts[0].digests)


def test_stages_and_failures_are_merged():
    first, second = VariantChunk(failed={3: "NaN"}), VariantChunk(failed={8: "OOM"})
    first.stages["decode"] = histogram_of([1, 2])
    second.stages["decode"] = histogram_of([3])
    second.stages["preprocess"] = histogram_of([9])
    merged = merge_variants([first, second])
    assert merged.failed == {3: "NaN", 8: "OOM"}
    assert merged.stages == {"decode": histogram_of([1, 2, 3]), "preprocess": histogram_of([9])}
