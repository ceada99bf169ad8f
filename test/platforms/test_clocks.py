# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.platforms.clocks import ClockDomain, ClockOption, ClockSpace

MHZ = 1_000_000
GPU = ClockDomain("gpu", tuple(ClockOption(mhz * MHZ) for mhz in (140, 500, 1300)))
CPU = ClockDomain(
    "cpu", tuple(ClockOption(mhz * MHZ, cores) for mhz in (345, 2035) for cores in (1, 2, 4))
)
BIG = ClockDomain("big", (ClockOption(0), ClockOption(345 * MHZ, 1), ClockOption(345 * MHZ, 2)))
EMC = ClockDomain("emc", (ClockOption(204 * MHZ), ClockOption(1866 * MHZ)))

spaces = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=0, max_size=3).map(
    lambda sizes: ClockSpace(
        ClockDomain(
            f"d{number}",
            tuple(ClockOption(f, c) for f in range(1, steps + 1) for c in range(1, cores + 1)),
            delay_ns=number,
        )
        for number, (steps, cores) in enumerate(sizes)
    )
)


def test_order_and_ends():
    space = ClockSpace([CPU, GPU])
    assert len(space) == 18
    assert space[0] == (ClockOption(345 * MHZ, 1), ClockOption(140 * MHZ))
    assert space[space.fastest] == (ClockOption(2035 * MHZ, 4), ClockOption(1300 * MHZ))
    assert space.digits(4) == (1, 1)
    assert space.slowest == 0


@given(spaces)
def test_numbering_is_one_to_one(space):
    digits = space.option_indices
    frequencies, cores = space.frequencies_hz(), space.core_counts()
    assert digits.shape == (len(space), len(space.domains))
    assert (digits.dtype, digits.flags.writeable) == (np.int64, False)
    for number, configuration in enumerate(space):
        assert space.index(configuration) == number
        assert space.nearest(configuration) == number
        assert space.number(space.digits(number)) == number
        assert tuple(digits[number]) == space.digits(number)
        assert tuple(frequencies[number]) == tuple(option.frequency_hz for option in configuration)
        assert tuple(cores[number]) == tuple(o.cores for o in configuration)


@given(spaces, st.data())
def test_delay_is_that_of_the_slowest_change(space, data):
    a, b = (data.draw(st.integers(0, len(space) - 1)) for _ in range(2))
    changed = [n for n, (x, y) in enumerate(zip(space[a], space[b], strict=True)) if x != y]
    assert space.delay_ns(a, b) == max(changed, default=0)


def test_default_delays():
    space = ClockSpace([CPU, GPU, EMC])
    assert [domain.delay_ns for domain in space.domains] == [MHZ, 5 * MHZ, 8 * MHZ]
    assert space.delay_ns(0, 0) == 0
    assert space.delay_ns(0, 1) == 8 * MHZ
    assert space.delay_ns(0, 2) == 5 * MHZ
    assert ClockDomain("gpu", GPU.options, delay_ns=0).delay_ns == 0


def test_description():
    assert ClockSpace([]).describe(0) == "unknown clocks"
    space = ClockSpace([CPU, BIG, GPU])
    assert space.describe(0) == "cpu 345 MHz x1, big off, gpu 140 MHz"
    masked = ClockSpace([ClockDomain("cpu", (ClockOption(115_200_000, 2, 0b101),))])
    assert masked.describe(0) == "cpu 115.2 MHz x2 (0x5)"


def test_nearest_keeps_cores_before_frequency():
    space = ClockSpace([CPU, BIG])
    read = (ClockOption(1000 * MHZ, 4), ClockOption(300 * MHZ, 2))
    assert space[space.nearest(read)] == (ClockOption(345 * MHZ, 4), ClockOption(345 * MHZ, 2))
    off = (ClockOption(1000 * MHZ, 4), ClockOption(0))
    assert space[space.nearest(off)][1] == ClockOption(0)


def test_what_is_not_in_the_space():
    space = ClockSpace([GPU])
    with pytest.raises(IndexError, match="3 of 3"):
        space[3]
    with pytest.raises(IndexError, match="-1"):
        space[-1]
    with pytest.raises(IndexError, match="option 3 of 3 of gpu"):
        space.number([3])
    with pytest.raises(ValueError, match="gpu 7 MHz"):
        space.index((ClockOption(7 * MHZ),))
    assert (ClockOption(7 * MHZ),) not in space
    assert space[1] in space


@pytest.mark.parametrize("options", [(), GPU.options[::-1], GPU.options[:1] * 2])
def test_options_rise(options):
    with pytest.raises(ValueError, match="gpu"):
        ClockDomain("gpu", options)


def test_bad_values():
    with pytest.raises(ValueError, match="frequency_hz is -1"):
        ClockOption(-1)
    with pytest.raises(ValueError, match="mask"):
        ClockOption(1, 2, 0b111)
    with pytest.raises(ValueError, match="different names"):
        ClockSpace([GPU, GPU])


def test_nearest_looks_at_which_cores():
    masks = (0b0011, 0b0101, 0b1001)
    space = ClockSpace([ClockDomain("cpu", tuple(ClockOption(MHZ, 2, mask) for mask in masks))])
    for number, mask in enumerate(masks):
        assert space.nearest((ClockOption(2 * MHZ, 2, mask),)) == number
    assert space.nearest((ClockOption(2 * MHZ, 2),)) == 0
