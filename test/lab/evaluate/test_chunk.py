"""Chunks merged in any order are the whole."""

import hashlib
import pickle

from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.lab.evaluate.chunk import (
    TAIL_SAMPLES,
    ChunkRequest,
    TaskSpec,
    VariantChunk,
    digest_results,
    merge_variants,
)
from jetson_dnn_rt.traces.histogram import histogram_of


def measure(times, first):
    """A chunk of one variant whose frames took so long."""
    chunk = VariantChunk()
    for index, time_ns in enumerate(times, start=first):
        chunk.execution.record(time_ns)
        chunk.digests[index] = hashlib.sha256(str(index).encode()).digest()
    places = ((time_ns, index) for index, time_ns in enumerate(times, start=first))
    chunk.largest = sorted(places, reverse=True)[:TAIL_SAMPLES]
    return chunk


@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=700), st.data())
def test_chunks_in_any_order_equal_the_whole(times, data):
    cut = data.draw(st.integers(1, len(times) - 1))
    parts = [measure(times[:cut], 0), measure(times[cut:], cut)]
    whole = measure(times, 0)
    for merged in (merge_variants(parts), merge_variants(parts[::-1])):
        assert merged.execution == whole.execution
        assert merged.largest == whole.largest
        assert digest_results(merged.digests) == digest_results(whole.digests)


def test_stages_and_failures_are_merged():
    first, second = VariantChunk(failed={3: "NaN"}), VariantChunk(failed={8: "OOM"})
    first.stages["decode"] = histogram_of([1, 2])
    second.stages["decode"] = histogram_of([3])
    second.stages["preprocess"] = histogram_of([9])
    merged = merge_variants([first, second])
    assert merged.failed == {3: "NaN", 8: "OOM"}
    assert merged.stages == {
        "decode": histogram_of([1, 2, 3]),
        "preprocess": histogram_of([9]),
    }


def test_a_digest_depends_on_every_result_and_its_frame():
    digests = {0: b"a" * 32, 1: b"b" * 32}
    assert digest_results(digests) == digest_results({1: b"b" * 32, 0: b"a" * 32})
    assert digest_results(digests) != digest_results({0: b"b" * 32, 1: b"a" * 32})
    assert digest_results(digests) != digest_results({0: b"a" * 32})


def test_requests_travel_between_processes():
    task = TaskSpec("detector", "builtin:detector", ("full@torch-fp32",), 40_000_000, 33_000_000)
    request = ChunkRequest("/bags/a", "/image_raw", 0, 100, (task,))
    assert pickle.loads(pickle.dumps(request)) == request
