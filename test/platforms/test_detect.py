# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which machine is which; the rest is in the tests of each."""

from __future__ import annotations

import pytest
from sysfs_trees import write_file

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.platform import UnknownPlatform
from jetson_dnn_rt.traces.metadata import describe_platform


def test_machine_without_clocks(tmp_path):
    with detect(tmp_path, allow_writes=True) as platform:
        assert isinstance(platform, UnknownPlatform)
        assert platform.read() == ()
        described = describe_platform(platform)
        assert described["clocks"].startswith("unknown clocks: neither cpufreq nor devfreq is vis")
        assert described["configuration"] == "unknown clocks"
        assert len(platform.space) == 1
        assert platform.power().total_w is None
        assert platform.energy_j() is None
        assert platform.modes == ()
        with pytest.raises(PlatformError, match="virtual machine"):
            platform.apply(0)
        with pytest.raises(ValueError, match="is not one of: none"):
            platform.mode_index("MAXN")
        platform.restore()
    assert list(tmp_path.iterdir()) == []


def test_jetson_by_its_release_file_alone(tmp_path):
    write_file(tmp_path, "etc/nv_tegra_release", "# R36 (release)")
    platform = detect(tmp_path)
    assert platform.name == "jetson"
    assert "none of its clocks" in platform.reason
    assert len(platform.notes) == 3


def test_other_boards_with_a_device_tree(tmp_path):
    write_file(tmp_path, "proc/device-tree/compatible", "raspberrypi,5-model-b\0brcm,bcm2712\0")
    assert detect(tmp_path).name == "unknown"


def test_this_machine_can_be_looked_at():
    with detect() as platform:
        configuration = platform.read()
        assert len(configuration) == len(platform.space.domains)
        platform.power()
        assert not platform.writable
        assert platform.reason
