from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.tvm.export_c.planner import Block, find_bound, plan_memory, round_up, sum_in_use

ALIGNMENT = 64

spans = st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(1, 5000))


def make_blocks(values: list[tuple[int, int, int]]) -> list[Block]:
    return [Block(f"b{i}", size, a, a + n) for i, (a, n, size) in enumerate(values)]


@settings(max_examples=200, deadline=None)
@given(st.lists(spans, max_size=24))
def test_blocks_in_use_together_do_not_overlap(values: list[tuple[int, int, int]]) -> None:
    blocks = make_blocks(values)
    plan = plan_memory(blocks, ALIGNMENT)
    assert set(plan.offsets) == {block.name for block in blocks}
    for block in blocks:
        begin = plan.offsets[block.name]
        assert begin % ALIGNMENT == 0
        assert begin >= 0
        assert begin + block.bytes <= plan.arena_bytes
        for other in blocks:
            if other is block or other.first > block.last or block.first > other.last:
                continue
            start = plan.offsets[other.name]
            assert start + other.bytes <= begin or begin + block.bytes <= start


@settings(max_examples=200, deadline=None)
@given(st.lists(spans, max_size=24))
def test_arena_is_at_least_the_bound_and_at_most_the_sum(
    values: list[tuple[int, int, int]],
) -> None:
    blocks = make_blocks(values)
    plan = plan_memory(blocks, ALIGNMENT)
    bound = max(
        (
            sum(round_up(b.bytes, ALIGNMENT) for b in blocks if b.first <= step <= b.last)
            for step in range(50)
        ),
        default=0,
    )
    assert plan.bound_bytes == bound
    assert bound <= plan.arena_bytes <= sum(round_up(b.bytes, ALIGNMENT) for b in blocks)


def test_memory_of_a_chain_is_used_again() -> None:
    chain = [Block(f"b{i}", 64, i, i + 1) for i in range(10)]
    assert plan_memory(chain, 64).arena_bytes == 128


def test_a_gap_that_fits_best_is_taken() -> None:
    # Two gaps of 128 and 64 bytes are free in step 1; 64 bytes go into the smaller one.
    blocks = [
        Block("a", 64, 0, 3),
        Block("wide", 128, 0, 0),
        Block("b", 64, 0, 3),
        Block("small", 64, 1, 1),
    ]
    plan = plan_memory(blocks, 64)
    assert plan.arena_bytes == plan.bound_bytes == 256


def test_nothing_needs_no_arena() -> None:
    plan = plan_memory([], 64)
    assert (plan.arena_bytes, plan.bound_bytes, plan.offsets) == (0, 0, {})


def test_in_use_counts_whole_alignments() -> None:
    blocks = [Block("a", 1, 0, 1), Block("b", 65, 1, 2)]
    assert [sum_in_use(blocks, step, 64) for step in range(4)] == [64, 192, 128, 0]
    assert find_bound(blocks) == 66


@pytest.mark.parametrize(("size", "first", "last"), [(0, 0, 0), (-1, 0, 0), (1, 2, 1)])
def test_a_block_of_nothing_is_refused(size: int, first: int, last: int) -> None:
    with pytest.raises(ValueError, match="block x"):
        Block("x", size, first, last)


def test_bad_plans_are_refused() -> None:
    with pytest.raises(ValueError, match="alignment"):
        plan_memory([], 0)
    with pytest.raises(ValueError, match="same name"):
        plan_memory([Block("a", 1, 0, 0), Block("a", 2, 0, 0)], 64)
