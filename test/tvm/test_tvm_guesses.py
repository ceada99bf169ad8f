"""The first candidates: blocks that fill the registers, and schedules that say so."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm_networks import make_small

from jetson_dnn_rt.tvm.guesses import (
    VectorUnit,
    find_vector_unit,
    list_blocks,
    make_candidates,
)
from jetson_dnn_rt.tvm.lowering import lower
from jetson_dnn_rt.tvm.target import find_local_target, parse_target

AVX512, AVX2 = VectorUnit(16, 32), VectorUnit(8, 16)


def test_a_block_fills_the_registers_of_avx512() -> None:
    # 64 channels are four registers; of 7 places 4 * 7 + 4 + 1 = 33 would be needed, of 6 29.
    assert list_blocks(1, 6, 64, AVX512)[0] == (1, 6, 64)
    assert (1, 7, 64) not in list_blocks(1, 7, 64, AVX512)
    # One register for each of 14 * 2 places, and as many channels as a register has.
    assert list_blocks(14, 14, 16, AVX512)[0] == (2, 14, 16)


def test_channels_that_fill_no_register_lose() -> None:
    first = list_blocks(8, 10, 24, AVX2)[0]
    assert first[2] in (8, 24)


@given(
    rows=st.integers(1, 120),
    columns=st.integers(1, 120),
    channels=st.integers(1, 1280),
    unit=st.sampled_from([AVX512, AVX2, VectorUnit(4, 32)]),
)
def test_blocks_fit(rows: int, columns: int, channels: int, unit: VectorUnit) -> None:
    blocks = list_blocks(rows, columns, channels, unit)
    assert blocks, "one result at a time always fits"
    assert len(set(blocks)) == len(blocks)
    for high, long, wide in blocks:
        assert rows % high == columns % long == channels % wide == 0
        vectors = math.ceil(wide / unit.lanes)
        assert high * long * vectors + vectors + 1 <= unit.registers


def test_the_cpu_says_what_it_has() -> None:
    pytest.importorskip("tvm", reason="the extra tvm is not installed")
    assert find_vector_unit(parse_target("x86-64:znver4", 1)) == AVX512
    assert find_vector_unit(parse_target("x86-64:haswell", 1)) == AVX2
    assert find_vector_unit(parse_target("aarch64:cortex-a78ae", 1)) == VectorUnit(4, 32)


def test_convolutions_get_candidates_that_compile() -> None:
    pytest.importorskip("xgboost", reason="the extra tvm is not installed")
    from tvm.s_tir import meta_schedule

    from jetson_dnn_rt.tvm import tuning as tvm_tuning
    from jetson_dnn_rt.tvm.measuring import LocalMeasurer

    target = find_local_target(1)
    if target.kind != "llvm":
        pytest.skip("guesses are for CPUs")
    module = lower(make_small().part, "fp32", target)
    measurer, tiled = LocalMeasurer(target), 0
    for number, task in enumerate(tvm_tuning._extract(module, target)):
        kernel = task.dispatched[0]
        strategy = meta_schedule.search_strategy.EvolutionarySearch(population_size=4)
        context = tvm_tuning._make_context(kernel, target, strategy, "kernel", 1 + number)
        candidates = make_candidates(context, kernel, find_vector_unit(target), 4)
        assert len(candidates) <= 4
        if "conv2d" in task.task_name:
            assert candidates, task.task_name
            tiled += 1
        times = measurer.measure(
            [one.sch.mod for one in candidates], [one.args_info for one in candidates], math.inf
        )
        assert measurer.failures == []
        assert all(seconds is not None and seconds > 0 for seconds in times)
    measurer.close()
    assert tiled == 3
