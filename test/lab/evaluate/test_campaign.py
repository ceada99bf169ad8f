# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Chunks put together in any order, and their trace."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest
from fleet_work import make_spec
from histograms import histogram_of
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_jobs import METADATA, make_record

from jetson_dnn_rt.cameras.bags.image_bag import BadMessage
from jetson_dnn_rt.lab.evaluate.campaign import Campaign, TraceParts, split_stream
from jetson_dnn_rt.lab.evaluate.chunk import ChunkResult, VariantChunk, digest_results, pack_jobs
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import TracedJob

TASK = make_spec("null:1", "full@null")
KEY = ("detector", "full@null")
STREAM = ("/bags/drive", "/image_raw")
MS = 1_000_000


def digest(place):
    return hashlib.sha256(str(place).encode()).digest()


def answer(request, find=digest, bad=(), failed=()):
    """What a worker would bring back: frame n takes n milliseconds."""
    places = range(request.first, request.first + request.count)
    ran = [place for place in places if place not in (*bad, *failed)]
    times = histogram_of([place * MS for place in ran])
    largest = sorted(((place * MS, place) for place in ran), reverse=True)
    digests = {place: find(place) for place in ran}
    failures = dict.fromkeys(failed, "broken")
    variant = VariantChunk(times, {"inference": times}, largest, digests, failures)
    return ChunkResult(
        request,
        len(places) - len(bad),
        [BadMessage(place, "no image") for place in bad],
        {KEY: variant},
        rows=f"{request.repeat}:{request.first} ".encode(),
        machine={"cpu": "one", "date": str(request.first)},
        lines=b"" if request.repeat else f"{request.first} ".encode(),
    )


def split(count=25, repeats=1, frames=10):
    return split_stream(*STREAM, count, [TASK], repeats=repeats, frames=frames)


def collect(requests, results):
    """A campaign that has taken some results, and the rows and lines that it wrote."""
    rows, lines = bytearray(), bytearray()
    campaign = Campaign(requests, rows.extend, lines.extend)
    for result in results:
        campaign.add(result)
    return campaign, rows, lines


@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 3))
def test_every_message_is_asked_for_once_a_repetition(count, frames, repeats):
    requests = split(count, repeats, frames)
    places = [
        (request.repeat, place)
        for request in requests
        for place in range(request.first, request.first + request.count)
    ]
    assert places == [(repeat, place) for repeat in range(repeats) for place in range(count)]
    assert all(request.count <= frames for request in requests)


@settings(max_examples=15)
@given(st.permutations(range(6)))
def test_the_order_in_which_results_come_does_not_matter(order):
    requests = split(repeats=2)
    campaign, rows, lines = collect(requests, (answer(requests[number]) for number in order))
    assert rows == b"0:0 0:10 0:20 1:0 1:10 1:20 "
    assert lines == b"0 10 20 "
    assert campaign.complete
    assert campaign.identical is True
    assert campaign.lost == 0
    assert campaign.digest(STREAM, KEY) == digest_results({n: digest(n) for n in range(25)})
    assert campaign.variants[KEY].execution == histogram_of([n * MS for n in [*range(25)] * 2])
    assert campaign.variants[KEY].largest[:2] == [(24 * MS, 24), (24 * MS, 24)]
    assert campaign.streams[STREAM].frames == 25
    assert campaign.machines == [{"cpu": "one", "date": "0"}]


def test_nothing_is_written_before_its_turn_or_twice():
    requests = split()
    campaign, rows, _ = collect(requests, [answer(requests[2])])
    assert (campaign.done, rows) == (0, b"")
    campaign.add(answer(requests[0]))
    for again in (0, 2):
        with pytest.raises(ValueError, match="was already added"):
            campaign.add(answer(requests[again]))
    with pytest.raises(ValueError, match="was not requested"):
        campaign.add(answer(dataclasses.replace(requests[1], count=3)))
    campaign.add(answer(requests[1]))
    assert campaign.done == 3
    with pytest.raises(ValueError, match="requested twice"):
        Campaign([*requests, *requests])


def test_a_result_that_differs_is_named():
    def find_another(place):
        return b"x" * 32 if place == 13 else digest(place)

    requests = split(repeats=3)
    finds = [digest, digest, find_another]
    campaign, _, _ = collect(requests, (answer(r, finds[r.repeat]) for r in requests))
    assert (campaign.identical, campaign.differences[KEY]) == (False, 1)
    assert campaign.differing[KEY] == [(STREAM[0], 13)]
    # So does a frame that fails in one repetition.
    first, second = split(repeats=2, frames=25)
    campaign, _, _ = collect([first, second], [answer(first), answer(second, failed=(3,))])
    assert (campaign.identical, campaign.failed[KEY]) == (False, 1)
    assert campaign.variants[KEY].failed == {3: "broken"}


def test_unreadable_messages_are_counted_and_lost_ones_noticed():
    requests = split()
    first = dataclasses.replace(answer(requests[0], bad=(4, 7)), notes=["no end"])
    notes = ["no end", "stamps jump"]
    second = dataclasses.replace(answer(requests[1]), frames=9, notes=notes)
    campaign, _, _ = collect(requests, [first, second, answer(requests[2])])
    count = campaign.streams[STREAM]
    assert (count.messages, count.frames, count.unreadable) == (25, 22, 2)
    assert count.bad == first.bad
    assert count.notes == notes
    assert campaign.lost == 1
    assert campaign.identical is None


EVALUATED = dataclasses.replace(METADATA, source="evaluate")


def make_rows(first, count=10):
    return pack_jobs(
        [TracedJob(make_record(n), "drive", n, n < 3) for n in range(first, first + count)]
    )


def test_parts_are_one_trace(tmp_path):
    with TraceParts(tmp_path, EVALUATED, part_bytes=6000) as parts:
        for first in range(0, 50, 10):
            parts.write(make_rows(first))
        assert parts.written == 50
    files = sorted(file.name for file in tmp_path.iterdir())
    assert len(files) > 1
    assert all(name.endswith(".parquet") for name in files)
    trace = open_trace(tmp_path)
    assert trace.metadata == EVALUATED
    jobs = list(trace.jobs())
    assert [job.record for job in jobs] == [make_record(n) for n in range(50)]
    assert {job.camera for job in jobs} == {"drive"}
    assert sum(job.warm_up for job in jobs) == 3


def test_parts_can_be_read_before_the_end_and_replace_those_of_an_earlier_evaluation(tmp_path):
    for first, count in ((0, 10), (100, 10), (0, 0)):
        with TraceParts(tmp_path, EVALUATED) as parts:
            parts.write(make_rows(first, count))
            for _ in range(3):
                found = [job.record.sequence for job in open_trace(tmp_path).jobs()]
                assert found == list(range(first, first + count))
                parts.close()
