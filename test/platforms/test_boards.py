# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

import pytest

from jetson_dnn_rt.platforms.boards import (
    BOARDS,
    UNKNOWN_BOARD,
    agx_orin_space,
    find_board,
    preset_index,
    tx2_space,
    xavier_space,
)
from jetson_dnn_rt.platforms.clocks import ClockOption


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (tx2_space(), 11_760),
        (xavier_space(), 51_968),
        (xavier_space(masks=False), 3_248),
        (agx_orin_space(), 15_312),
    ],
)
def test_sizes_and_numbering(space, count):
    assert len(space) == count
    for number in (0, 1, count // 3, count // 2, count - 1):
        assert space.index(space[number]) == number
        assert tuple(space.option_indices[number]) == space.digits(number)


def test_ends_of_the_papers_spaces():
    tx2, xavier = tx2_space(), xavier_space()
    assert tx2.describe(tx2.slowest) == "little 345.6 MHz x1, big off, gpu 140.25 MHz, emc 204 MHz"
    assert tx2.describe(tx2.fastest) == (
        "little 2035.2 MHz x4, big 2035.2 MHz x2, gpu 1300.5 MHz, emc 1866 MHz"
    )
    assert xavier.describe(xavier.slowest) == "cpu 115.2 MHz x1, gpu 114.75 MHz"
    assert xavier.describe(xavier.fastest) == "cpu 2265.6 MHz x8, gpu 1377 MHz"


def test_masks_differ_only_by_which_cores():
    counted, plain = (
        {(cpu.frequency_hz, cpu.cores, gpu) for cpu, gpu in space}
        for space in (xavier_space(), xavier_space(masks=False))
    )
    assert counted == plain
    assert all(option.mask & 1 for option in xavier_space().domains[0].options)


def test_presets():
    tx2 = tx2_space()
    assert preset_index("tx2", "MAXN", tx2) == tx2.fastest
    maxq = tx2[preset_index("tx2", "MAXQ", tx2)]
    assert maxq == (
        ClockOption(1_267_200_000, 4),
        ClockOption(0),
        ClockOption(854_250_000),
        ClockOption(1_331_200_000),
    )
    for space in (xavier_space(), xavier_space(masks=False)):
        cpu, gpu = space[preset_index("agx-xavier", "15W", space)]
        assert (cpu.frequency_hz, cpu.cores) == (1_190_400_000, 4)
        assert gpu == ClockOption(675_750_000)
    orin = agx_orin_space()
    assert orin.describe(preset_index("agx-orin", "30W", orin)) == (
        "cpu 1728 MHz x8, gpu 612 MHz, emc 3199 MHz"
    )


def test_unknown_presets():
    with pytest.raises(ValueError, match="'tx9' is not one of tx2"):
        preset_index("tx9", "MAXN", tx2_space())
    with pytest.raises(ValueError, match="'MAXQ' of agx-xavier is not one of: MAXN, 10W"):
        preset_index("agx-xavier", "MAXQ", xavier_space())


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("quill", "tx2"),
        ("NVIDIA Jetson TX2 Developer Kit", "tx2"),
        ("Jetson-AGX", "agx-xavier"),
        ("NVIDIA Jetson AGX Xavier Developer Kit", "agx-xavier"),
        ("NVIDIA Jetson Xavier NX Developer Kit", "xavier-nx"),
        ("NVIDIA Jetson AGX Orin Developer Kit", "agx-orin"),
        ("NVIDIA Jetson Orin NX Engineering Reference Developer Kit", "orin-nx"),
        ("NVIDIA Jetson Orin Nano Developer Kit", "orin-nano"),
    ],
)
def test_boards_by_model(model, name):
    assert find_board(model).name == name


def test_unknown_board():
    assert find_board("NVIDIA Jetson Thor") is UNKNOWN_BOARD
    assert len({board.name for board in BOARDS}) == len(BOARDS)
