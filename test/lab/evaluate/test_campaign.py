"""Chunks put together in any order, and their trace."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable

import pytest
from fleet_work import make_spec
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_jobs import METADATA, make_record

from jetson_dnn_rt.cameras.bags.image_bag import BadMessage
from jetson_dnn_rt.lab.evaluate.campaign import Campaign, TraceParts, split_stream
from jetson_dnn_rt.lab.evaluate.chunk import (
    ChunkRequest,
    ChunkResult,
    VariantChunk,
    digest_results,
    pack_jobs,
)
from jetson_dnn_rt.traces.histogram import histogram_of
from jetson_dnn_rt.traces.reader import open_trace
from jetson_dnn_rt.traces.schema import TracedJob

TASK = make_spec("null:1", "full@null")
KEY = ("detector", "full@null")
STREAM = ("/bags/drive", "/image_raw")
MS = 1_000_000


def digest(place: int) -> bytes:
    return hashlib.sha256(str(place).encode()).digest()


def answer(
    request: ChunkRequest,
    find: Callable[[int], bytes] = digest,
    bad: tuple[int, ...] = (),
    failed: tuple[int, ...] = (),
) -> ChunkResult:
    """What a worker would bring back: frame n takes n milliseconds."""
    places = [
        place for place in range(request.first, request.first + request.count) if place not in bad
    ]
    ran = [place for place in places if place not in failed]
    variant = VariantChunk(
        histogram_of([place * MS for place in ran]),
        {"inference": histogram_of([place * MS for place in ran])},
        sorted(((place * MS, place) for place in ran), reverse=True),
        {place: find(place) for place in ran},
        dict.fromkeys(failed, "broken"),
    )
    return ChunkResult(
        request,
        len(places),
        [BadMessage(place, "no image") for place in bad if place not in places],
        {KEY: variant},
        rows=f"{request.repeat}:{request.first} ".encode(),
        machine={"cpu": "one", "date": str(request.first)},
        lines=b"" if request.repeat else f"{request.first} ".encode(),
    )


def split(count: int = 25, repeats: int = 1, frames: int = 10) -> list[ChunkRequest]:
    return split_stream(*STREAM, count, [TASK], repeats=repeats, frames=frames)


class Collected:
    def __init__(self, requests: list[ChunkRequest]) -> None:
        self.rows, self.lines = bytearray(), bytearray()
        self.campaign = Campaign(requests, self.rows.extend, self.lines.extend)

    def add(self, *results: ChunkResult) -> Campaign:
        for result in results:
            self.campaign.add(result)
        return self.campaign


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
    collected = Collected(requests)
    campaign = collected.add(*(answer(requests[number]) for number in order))
    assert collected.rows == b"0:0 0:10 0:20 1:0 1:10 1:20 "
    assert collected.lines == b"0 10 20 "
    assert campaign.complete
    assert campaign.identical is True
    assert campaign.lost == 0
    assert campaign.digest(STREAM, KEY) == digest_results({n: digest(n) for n in range(25)})
    assert campaign.variants[KEY].execution == histogram_of([n * MS for n in [*range(25)] * 2])
    assert campaign.variants[KEY].largest[:2] == [(24 * MS, 24), (24 * MS, 24)]
    assert campaign.streams[STREAM].frames == 25
    assert campaign.machines == [{"cpu": "one", "date": "0"}]


def test_nothing_is_written_before_its_turn():
    requests = split()
    collected = Collected(requests)
    assert collected.add(answer(requests[2]), answer(requests[1])).done == 0
    assert collected.rows == b""
    assert collected.add(answer(requests[0])).done == 3


@pytest.mark.parametrize("again", [0, 1])
def test_no_result_counts_twice(again):
    requests = split()
    collected = Collected(requests)
    collected.add(answer(requests[0]), answer(requests[2]))
    with pytest.raises(ValueError, match="is there already"):
        collected.campaign.add(answer(requests[2 * again]))
    with pytest.raises(ValueError, match="was not requested"):
        collected.campaign.add(answer(dataclasses.replace(requests[1], count=3)))


def test_a_result_that_differs_is_named():
    requests = split(repeats=3)
    collected = Collected(requests)
    for request in requests:
        other = {13: b"x" * 32} if request.repeat == 2 else {}
        collected.add(answer(request, lambda n, other=other: other.get(n, digest(n))))
    campaign = collected.campaign
    assert (campaign.identical, campaign.differences[KEY]) == (False, 1)
    assert campaign.differing[KEY] == [(STREAM[0], 13)]
    # So does a frame that fails in one repetition.
    first, *others = split(repeats=2, frames=25)
    campaign = Collected([first, *others]).add(answer(first), answer(others[0], failed=(3,)))
    assert (campaign.identical, campaign.failed[KEY]) == (False, 1)
    assert campaign.variants[KEY].failed == {3: "broken"}


def test_unreadable_messages_are_counted_and_lost_ones_noticed():
    requests = split()
    collected = Collected(requests)
    first = dataclasses.replace(answer(requests[0], bad=(4, 7)), notes=["no end"])
    notes = ["no end", "stamps jump"]
    second = dataclasses.replace(answer(requests[1]), frames=9, notes=notes)
    collected.add(first, second, answer(requests[2]))
    count = collected.campaign.streams[STREAM]
    assert (count.messages, count.frames, count.unreadable) == (25, 22, 2)
    assert count.bad == first.bad
    assert count.notes == notes
    assert collected.campaign.lost == 1
    assert collected.campaign.identical is None


def test_out_of_range():
    with pytest.raises(ValueError, match="frames must be >= 1"):
        split(frames=0)
    with pytest.raises(ValueError, match="repeats must be >= 1"):
        split(repeats=0)
    with pytest.raises(ValueError, match="there twice"):
        Collected([*split(), *split()])


EVALUATED = dataclasses.replace(METADATA, source="evaluate")


def make_rows(first: int, count: int = 10) -> bytes:
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


def test_what_was_written_can_be_read_before_the_end(tmp_path):
    parts = TraceParts(tmp_path, EVALUATED)
    parts.write(make_rows(0))
    assert len(list(open_trace(tmp_path).jobs())) == 10
    parts.close()
    parts.close()
    assert len(list(open_trace(tmp_path).jobs())) == 10


def test_an_earlier_evaluation_is_removed(tmp_path):
    for first, count in ((0, 10), (100, 10), (0, 0)):
        with TraceParts(tmp_path, EVALUATED) as parts:
            parts.write(make_rows(first, count))
        found = [job.record.sequence for job in open_trace(tmp_path).jobs()]
        assert found == list(range(first, first + count))
