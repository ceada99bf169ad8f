"""First candidates of a kernel, from what is known of matrix kernels on CPUs.

MetaSchedule begins with random tiles. Of those of a 1x1 convolution most spill registers or use
half a vector, and 100 trials end at a third of what the CPU can do. What is fast is known since
Goto: a block of results that fills the registers stays there while the sum runs, one vector of
channels wide or a few. So the first batch consists of such blocks, as decisions in MetaSchedule's
own traces: the search goes on from the best of them, and the database sees no difference.
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
"""Into how many loops the structure SSRSRS splits a loop of results, and one of the sum."""

_WIDEST = 64
_SUMMED = (4, 1)
"""Terms of the sum that are written out beside each other."""

_UNROLLED = 512
_OF_EACH_WIDTH = 2
_AT_ROOT = -1


@dataclass(frozen=True)
class VectorUnit:
    """Registers of a CPU: how many there are, and float32 numbers in one."""

    lanes: int
    registers: int


def find_vector_unit(target: TvmTarget) -> VectorUnit:
    """The vector unit of an LLVM target: AVX-512, AVX2, or what every x86-64 and aarch64 has."""
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

    Channels are side by side in memory. The sides of a block divide those of the result; of every
    width the best two are given, which have the most products for each number that is loaded.
    """
    found = []
    for wide in _divide(channels, _WIDEST):
        blocks = []
        vectors = math.ceil(wide / unit.lanes)
        full = wide / (vectors * unit.lanes)
        for high in _divide(rows, unit.registers):
            for long in _divide(columns, unit.registers):
                places = high * long
                # One register for every result, one for each vector of weights, one for a pixel.
                if places * vectors + vectors + 1 <= unit.registers:
                    gain = full * places * vectors / (places + vectors)
                    blocks.append((gain, -high, (high, long, wide)))
        found += sorted(blocks, reverse=True)[:_OF_EACH_WIDTH]
    return [block for _, _, block in sorted(found, reverse=True)]


def make_candidates(context: Any, kernel: tvm.IRModule, unit: VectorUnit, count: int) -> list[Any]:
    """Schedules of a kernel that are worth measuring first, at most `count`.

    `context` is the kernel's TuneContext, whose space says what can be decided. Empty where the
    kernel is no sum over tiles.
    """
    from tvm.s_tir import Schedule, meta_schedule

    made = []
    for trace in _decide(context.generate_design_space(), unit, count):
        schedule = Schedule(kernel)
        trace.apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        if all(step.apply(schedule) for step in context.space_generator.postprocs):
            # Of the function as it is now: weights are in the order of its loops.
            arguments = meta_schedule.arg_info.ArgInfo.from_entry_func(schedule.mod, True)
            made.append(meta_schedule.search_strategy.MeasureCandidate(schedule, arguments))
    return made


def _decide(designs: Sequence[Any], unit: VectorUnit, count: int) -> Iterator[Any]:
    """Traces with blocks of `list_blocks` as decisions."""
    # Where a result is finished as soon as its block is, before the next block is begun.
    design = next(
        (
            one
            for one in designs
            if any(i.kind.name == "ReverseComputeAt" for i in one.trace.insts)
        ),
        designs[0],
    )
    trace = design.trace
    tiles = [one for one in trace.insts if one.kind.name == "SamplePerfectTile"]
    parts = [len(trace.decisions[one]) for one in tiles]
    spatial = [one for one, split in zip(tiles, parts, strict=True) if split == _SPATIAL]
    reduced = [one for one, split in zip(tiles, parts, strict=True) if split == _REDUCED]
    if not reduced or len(spatial) < 2 or len(spatial) + len(reduced) != len(tiles):
        return
    extents = [math.prod(map(int, trace.decisions[one])) for one in spatial]
    rows = extents[-3] if len(spatial) > 2 else 1
    blocks = list_blocks(rows, extents[-2], extents[-1], unit)
    depth = math.prod(map(int, trace.decisions[reduced[-1]]))
    for block in blocks[: max(1, count // len(_SUMMED))]:
        for summed in _SUMMED:
            terms = summed if depth % summed == 0 else 1
            yield _write(trace, spatial, reduced, extents, block, terms)


def _write(
    trace: Any,
    spatial: Sequence[Any],
    reduced: Sequence[Any],
    extents: Sequence[int],
    block: tuple[int, int, int],
    terms: int,
) -> Any:
    """Write a block into a trace: channels outside, so that their weights stay in the cache."""
    inner = [1] * (len(extents) - len(block)) + list(block)[-len(extents) :]
    for place, (one, extent, size) in enumerate(zip(spatial, extents, inner, strict=True)):
        outside = place == len(extents) - 1
        steps = extent // size
        decision = [steps, 1, 1, size] if outside else [1, steps, 1, size]
        trace = _set(trace, one, decision)
    for one in reduced:
        size = terms if one.same_as(reduced[-1]) else 1
        extent = math.prod(map(int, trace.decisions[one]))
        trace = _set(trace, one, [extent // size, size])
    for one in trace.insts:
        if one.kind.name == "SampleCategorical":
            choices = [int(choice) for choice in one.attrs[0]]
            if _UNROLLED in choices:
                trace = _set(trace, one, choices.index(_UNROLLED))
        elif one.kind.name == "SampleComputeLocation":
            # Padding: written once for the whole picture, not asked for in the innermost loop.
            trace = _set(trace, one, _AT_ROOT)
    return trace


def _set(trace: Any, instruction: Any, decision: Any) -> Any:
    return trace.with_decision(instruction, decision, True)


def _divide(extent: int, most: int) -> list[int]:
    """Divisors up to a size."""
    return [size for size in range(1, min(extent, most) + 1) if extent % size == 0]
