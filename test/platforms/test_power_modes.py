# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
from sysfs_trees import TX2, XAVIER

from jetson_dnn_rt.platforms.boards import make_options, make_space, tx2_space
from jetson_dnn_rt.platforms.clocks import ClockOption
from jetson_dnn_rt.platforms.jetson import NvpMode, parse_modes, to_power_mode

CPUS = {"little": (0, 3, 4, 5), "big": (1, 2)}


def test_modes_of_the_xavier():
    maxn, low = parse_modes(XAVIER.modes)
    assert (maxn.number, maxn.name) == (0, "MAXN")
    assert maxn.limits_hz == {0: 0, "gpu": 0, "emc": 0}
    assert (low.number, low.name) == (2, "MODE_15W")
    assert low.online == {4: False, 5: False, 6: False, 7: False}
    cpus = {0: 1_200_000_000, 2: 1_200_000_000}
    assert low.limits_hz == {**cpus, "gpu": 670_000_000, "emc": 1_333_000_000}
    # No limit is written in three ways.
    assert parse_modes(TX2.modes)[0].limits_hz == {0: 0, 1: 0, "gpu": 0, "emc": 0}


def test_all_cores_of_a_kind_off_is_the_domain_off():
    mode = to_power_mode(parse_modes(TX2.modes)[1], tx2_space(), CPUS)
    assert mode.limits["big"] == ClockOption(0)
    assert mode.limits["little"] == ClockOption(1_200_000_000, 4)


def test_domains_whose_cores_are_not_switched():
    space = make_space(cpu=make_options([800, 1600]))
    mode = to_power_mode(NvpMode(0, "M", limits_hz={0: 900_000_000}), space, {"cpu": (0, 1)})
    assert space[mode.index(space)] == (ClockOption(800_000_000),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no header at all\nGPU MAX_FREQ 5\n",
        "< POWER_MODEL ID=x NAME=BROKEN >\nGPU MAX_FREQ 5\n",
        "< PARAM TYPE=FILE NAME=GPU >\n< PM_CONFIG DEFAULT=0 >\n",
    ],
)
def test_files_without_modes(text):
    assert parse_modes(text) == []


def test_lines_that_are_not_understood_are_left_out():
    text = (
        "< POWER_MODEL ID=3 NAME=25W >  # ours\n"
        "GPU MAX_FREQ fast\nGPU\nGPU MAX_FREQ 918000000\nX Y Z\n"
    )
    assert parse_modes(text) == [NvpMode(3, "25W", limits_hz={"gpu": 918_000_000})]


def test_paths_of_policies():
    text = (
        "< PARAM TYPE=CLOCK NAME=CPU >\n"
        "MAX_FREQ /sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq\n"
        "< POWER_MODEL ID=0 NAME=A >\nCPU MAX_FREQ 729600\n"
    )
    assert parse_modes(text)[0].limits_hz == {4: 729_600_000}
