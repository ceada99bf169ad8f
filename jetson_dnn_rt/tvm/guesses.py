# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""First candidates of a kernel, based on the known design of fast matrix kernels on CPUs.

MetaSchedule begins with random tiles. For a 1x1 convolution most of them spill registers or use
half a vector, and 100 trials reach a third of the CPU's speed. Since Goto the fast design is
known: a block of results, one or a few vectors of channels wide, fills the registers and stays
there during the sum. So the first batch consists of such blocks, as decisions in MetaSchedule's
own traces: the search continues from the best of them, and the database sees no difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.tvm.target import TvmTarget

if TYPE_CHECKING:
    import tvm

_SPATIAL, _REDUCED = 4, 2
"""Number of loops into which the structure SSRSRS splits a loop of results, and one of the sum."""

_WIDEST = 64
_SUMMED = (4, 1)
"""Terms of the sum that are unrolled."""

_UNROLLED = 512
_OF_EACH_WIDTH = 2
_AT_ROOT = -1


@dataclass(frozen=True)
class VectorUnit:
    """Vector registers of a CPU: their number, and float32 numbers per register."""

    lanes: int
    registers: int


def find_vector_unit(target: TvmTarget) -> VectorUnit:
    """Vector unit of an LLVM target: AVX-512, AVX2, or the baseline of x86-64 and aarch64."""
    import tvm

    if target.triple.startswith("aarch64"):
        return VectorUnit(4, 32)
    has_feature, described = tvm.get_global_func("target.target_has_feature"), target.to_tvm()
    if has_feature("avx512f", described):
        return VectorUnit(16, 32)
    return VectorUnit(8 if has_feature("avx2", described) else 4, 16)


def list_blocks(
    rows: int, columns: int, channels: int, unit: VectorUnit
) -> list[tuple[int, int, int]]:
    """Blocks of results (rows, columns, channels) that stay in registers, the best first.

    Channels are contiguous in memory. The sides of a block divide those of the result; for every
    width the two blocks with the most products per loaded number are returned.
    """
    found = []
    for wide in _divide(channels, _WIDEST):
        blocks = []
        vectors = math.ceil(wide / unit.lanes)
        full = wide / (vectors * unit.lanes)
        for high in _divide(rows, unit.registers):
            for long in _divide(columns, unit.registers):
                places = high * long
                # One register per result, one per vector of weights, one for a pixel.
                if places * vectors + vectors + 1 <= unit.registers:
                    gain = full * places * vectors / (places + vectors)
                    blocks.append((gain, -high, (high, long, wide)))
        found += sorted(blocks, reverse=True)[:_OF_EACH_WIDTH]
    return [block for _, _, block in sorted(found, reverse=True)]


def make_candidates(context: Any, kernel: tvm.IRModule, unit: VectorUnit, count: int) -> list[Any]:
    """Schedules of a kernel that are worth measuring first, at most `count`.

    `context` is the kernel's TuneContext, whose space defines the decisions. Empty where the
    kernel is not a sum over tiles.
    """
    from tvm.s_tir import Schedule, meta_schedule

    made = []
    for trace in _decide(context.generate_design_space(), unit, count):
        schedule = Schedule(kernel)
        trace.apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        if all(step.apply(schedule) for step in context.space_generator.postprocs):
            # For the function as it is now: weights are in the order of its loops.
            arguments = meta_schedule.arg_info.ArgInfo.from_entry_func(schedule.mod, True)
            made.append(meta_schedule.search_strategy.MeasureCandidate(schedule, arguments))
    return made


def _decide(designs: Sequence[Any], unit: VectorUnit, count: int) -> Iterator[Any]:
    """Traces with blocks of `list_blocks` as decisions."""
    # Finish a result as soon as its block is done, before the next block begins.
    traces = [design.trace for design in designs]
    finishing = (t for t in traces if any(i.kind.name == "ReverseComputeAt" for i in t.insts))
    trace = next(finishing, traces[0])
    tiles = [one for one in trace.insts if one.kind.name == "SamplePerfectTile"]
    spatial = [one for one in tiles if len(trace.decisions[one]) == _SPATIAL]
    reduced = [one for one in tiles if len(trace.decisions[one]) == _REDUCED]
    if not reduced or len(spatial) < 2 or len(spatial) + len(reduced) != len(tiles):
        return
    extents = {one: math.prod(map(int, trace.decisions[one])) for one in tiles}
    for one in trace.insts:
        if one.kind.name == "SampleCategorical":
            choices = [int(choice) for choice in one.attrs[0]]
            if _UNROLLED in choices:
                trace = _set(trace, one, choices.index(_UNROLLED))
        elif one.kind.name == "SampleComputeLocation":
            # Padding: written once for the whole picture, not tested in the innermost loop.
            trace = _set(trace, one, _AT_ROOT)
    rows, columns, channels = [1, *(extents[one] for one in spatial)][-3:]
    blocks = list_blocks(rows, columns, channels, unit)
    for block in blocks[: max(1, count // len(_SUMMED))]:
        written = trace
        inner = [1] * (len(spatial) - len(block)) + list(block)[-len(spatial) :]
        for one, size in zip(spatial, inner, strict=True):
            steps = extents[one] // size
            # Channels in the outer loop, so that their weights stay in the cache.
            outside = one.same_as(spatial[-1])
            written = _set(written, one, [steps, 1, 1, size] if outside else [1, steps, 1, size])
        for summed in _SUMMED:
            for one in reduced:
                fits = one.same_as(reduced[-1]) and extents[one] % summed == 0
                size = summed if fits else 1
                written = _set(written, one, [extents[one] // size, size])
            yield written


def _set(trace: Any, instruction: Any, decision: Any) -> Any:
    return trace.with_decision(instruction, decision, True)


def _divide(extent: int, most: int) -> list[int]:
    """Divisors up to a size."""
    return [size for size in range(1, min(extent, most) + 1) if extent % size == 0]
