# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Places buffers of a network in one arena, so that those in use together do not overlap.

Offset assignment is the problem of Dynamic Storage Allocation, which is NP-hard. Greedy by size
with best fit (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference",
2020) comes close to the lower bound on networks; several orders are tried and the smallest arena
wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """Memory in use from step `first` to `last`, both included."""

    name: str
    bytes: int
    first: int
    last: int

    def meets(self, other: Block) -> bool:
        """Whether both are in use in the same step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets in the arena."""

    offsets: dict[str, int]  # where each block begins, a multiple of the alignment
    arena_bytes: int
    bound_bytes: int  # largest sum of blocks in use in one step: no arena is smaller


def plan_memory(blocks: Sequence[Block], alignment: int) -> MemoryPlan:
    """Find offsets, multiples of the alignment; block names must be unique."""
    sizes = {block.name: round_up(block.bytes, alignment) for block in blocks}
    orders: list[Callable[[Block], tuple[int, ...]]] = [
        lambda block: (-block.bytes, block.first),
        lambda block: (-(block.last - block.first), -block.bytes),
        lambda block: (-block.bytes * (block.last - block.first + 1), block.first),
        lambda block: (block.first, -block.bytes),
        lambda block: (-_load(blocks, block, alignment), -block.bytes),
    ]
    plans = [_place(sorted(blocks, key=order), sizes) for order in orders]
    arena, offsets = min(plans, key=lambda plan: plan[0])
    return MemoryPlan(offsets, arena, find_bound(blocks, alignment))


def find_bound(blocks: Sequence[Block], alignment: int = 1) -> int:
    """Largest sum of the rounded sizes of blocks in use in one step."""
    return max((sum_in_use(blocks, step.first, alignment) for step in blocks), default=0)


def sum_in_use(blocks: Sequence[Block], step: int, alignment: int = 1) -> int:
    """Bytes of the blocks in use in a step."""
    return sum(
        round_up(block.bytes, alignment) for block in blocks if block.first <= step <= block.last
    )


def round_up(value: int, multiple: int) -> int:
    """Smallest multiple that is not below the value."""
    return -(-value // multiple) * multiple


def _load(blocks: Sequence[Block], block: Block, alignment: int) -> int:
    """Most bytes in use at a time while a block is in use."""
    steps = [block.first, *(b.first for b in blocks if block.first <= b.first <= block.last)]
    return max(sum_in_use(blocks, step, alignment) for step in steps)


def _place(blocks: Sequence[Block], sizes: dict[str, int]) -> tuple[int, dict[str, int]]:
    """Put each block into the smallest gap between those placed that are in use with it."""
    placed: list[Block] = []
    offsets: dict[str, int] = {}
    arena = 0
    for block in blocks:
        size = sizes[block.name]
        others = sorted(
            (offsets[other.name], offsets[other.name] + sizes[other.name])
            for other in placed
            if block.meets(other)
        )
        best, best_gap, end = -1, -1, 0
        for begin, stop in others:
            gap = begin - end
            if gap >= size and (best < 0 or gap < best_gap):
                best, best_gap = end, gap
            end = max(end, stop)
        offsets[block.name] = best if best >= 0 else end
        arena = max(arena, offsets[block.name] + size)
        placed.append(block)
    return arena, offsets
