"""Memory of a variant: host and device apart."""

from __future__ import annotations

import numpy as np

from jetson_dnn_rt.variants.measuring.measurement import MemoryUse, measure_memory

MIB = 1 << 20


def test_what_is_given_back_is_never_below_zero() -> None:
    before = MemoryUse(100, 50)
    assert before.freed_until(MemoryUse(60, 50)) == MemoryUse(40, 0)
    assert before.freed_until(MemoryUse(130, 20)) == MemoryUse(0, 30)


def test_memory_that_is_free_does_not_count() -> None:
    start = measure_memory()
    assert start.host > 0
    assert start.device == 0
    # Small pieces stay in the allocator's heap when they are freed, until it is trimmed.
    pieces = [np.ones(10_000, np.uint8) for _ in range(4_000)]
    full = measure_memory()
    assert full.host - start.host > 30 * MIB
    pieces.clear()
    assert full.freed_until(measure_memory()).host > 30 * MIB
