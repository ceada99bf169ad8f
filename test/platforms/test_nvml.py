# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""NVML, with a fake of its module: what it returns is what an H200 and a GTX return."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest
from sysfs_trees import write_file, write_policy

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.clocks import ClockOption
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.nvml import NvmlPlatform, load_nvml


class FakeNvml(ModuleType):
    """A fake of `pynvml`. `lacks`: functions that answer "Not Supported"."""

    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2

    class NVMLError(Exception):
        pass

    def __init__(self, *lacks, devices=1, driver=True):
        super().__init__("pynvml")
        self.energy_mj = 1_000_000
        self._devices = devices
        self._driver = driver
        for name, answer in (
            ("nvmlDeviceGetName", lambda handle: b"NVIDIA H200"),
            ("nvmlDeviceGetSupportedMemoryClocks", lambda handle: [3201, 2619]),
            ("nvmlDeviceGetSupportedGraphicsClocks", self._graphics),
            ("nvmlDeviceGetMaxClockInfo", lambda handle, kind: {1: 1980, 2: 3201}[kind]),
            ("nvmlDeviceGetClockInfo", lambda handle, kind: {1: 345, 2: 3201}[kind]),
            ("nvmlDeviceGetPowerUsage", lambda handle: 76_543),
            ("nvmlDeviceGetTotalEnergyConsumption", lambda handle: self.energy_mj),
        ):
            setattr(self, name, self._refuse if name in lacks else answer)

    def _refuse(self, *_):
        raise self.NVMLError("Not Supported")

    def _graphics(self, handle, memory_mhz):
        assert memory_mhz == 3201
        return [1980, 1965, 345]

    def nvmlInit(self):  # noqa: N802
        if not self._driver:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        if index >= self._devices:
            raise self.NVMLError("Invalid Argument")
        return object()


def test_gpu_is_read():
    nvml = FakeNvml()
    platform = NvmlPlatform(nvml)
    assert (platform.name, platform.title) == ("nvml", "NVIDIA H200")
    assert platform.space.describe(platform.space.fastest) == "gpu 1980 MHz, emc 3201 MHz"
    assert len(platform.space) == 6
    assert platform.read() == (ClockOption(345_000_000), ClockOption(3_201_000_000))
    assert platform.power().total_w == pytest.approx(76.543)
    assert platform.energy_j() == 0.0
    nvml.energy_mj += 2500
    assert platform.energy_j() == pytest.approx(2.5)
    assert platform.notes == ()
    assert not platform.writable
    with pytest.raises(PlatformError, match="only read"):
        platform.apply(0)
    platform.close()


def test_gpu_that_tells_little():
    lacks = ("SupportedMemoryClocks", "PowerUsage", "TotalEnergyConsumption")
    platform = NvmlPlatform(FakeNvml(*(f"nvmlDeviceGet{name}" for name in lacks)))
    assert len(platform.space) == 1
    assert platform.power().total_w is None
    assert platform.energy_j() is None
    assert len(platform.notes) == 1


def test_gpu_that_tells_nothing():
    lacks = ("nvmlDeviceGetSupportedMemoryClocks", "nvmlDeviceGetMaxClockInfo")
    with pytest.raises(PlatformError, match="does not report its clocks"):
        NvmlPlatform(FakeNvml(*lacks))
    platform = NvmlPlatform(FakeNvml("nvmlDeviceGetClockInfo"))
    with pytest.raises(PlatformError, match="cannot read the clocks"):
        platform.read()
    with pytest.raises(PlatformError, match="no GPU 3"):
        NvmlPlatform(FakeNvml(), 3)


@pytest.fixture
def root(tmp_path):
    write_file(tmp_path, "dev/nvidia0", "")
    return tmp_path


def test_gpu_alone_is_a_platform(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert detect(root).name == "nvml"


def test_pc_with_a_gpu_meters_both(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    write_policy(root, [0], [800, 1600])
    platform = detect(root)
    assert platform.name == "linux"
    assert platform.space.names == ("cpu",)
    assert platform.power().rails == pytest.approx({"gpu": 76.543})


@pytest.mark.parametrize(
    ("module", "fix"),
    [(None, "pip install 'jetson_dnn_rt[nvml]'"), (FakeNvml(driver=False), "no driver")],
)
def test_what_is_missing_is_said(root, monkeypatch, module, fix):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with pytest.raises(PlatformError, match=re.escape(fix)):
        load_nvml()
    platform = detect(root)
    assert platform.name == "unknown"
    assert fix in platform.reason
    write_policy(root, [0], [800, 1600])
    platform = detect(root)
    assert platform.name == "linux"
    assert [note for note in platform.notes if fix in note]
