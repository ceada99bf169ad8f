# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A PC: cpufreq, RAPL."""

from __future__ import annotations

import pytest
from sysfs_trees import BOOT_ID, CPUS, FakeKernel, write_file, write_policy

from jetson_dnn_rt.platforms.clocks import ClockOption
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.files import SystemFiles
from jetson_dnn_rt.platforms.power import RaplMeter, SumMeter

RAPL = "sys/class/powercap"


def write_zone(root, zone, name, value, largest=262_143_328_850):
    write_file(root, f"{RAPL}/{zone}/name", name)
    write_file(root, f"{RAPL}/{zone}/energy_uj", value)
    write_file(root, f"{RAPL}/{zone}/max_energy_range_uj", largest)


@pytest.fixture
def pc(tmp_path):
    """Eight alike cores, each with its own policy, and the counters of one package."""
    write_file(tmp_path, "proc/sys/kernel/random/boot_id", BOOT_ID)
    write_file(tmp_path, "proc/cpuinfo", "processor : 0\nmodel name\t: Some Processor @ 3 GHz")
    (tmp_path / "run").mkdir()
    for cpu in range(8):
        write_policy(tmp_path, [cpu], [800, 1600, 2400, 3200])
    write_zone(tmp_path, "intel-rapl:0", "package-0", 1_000)
    write_zone(tmp_path, "intel-rapl:0:0", "core", 500)
    write_zone(tmp_path, "intel-rapl:0:1", "dram", 100)
    write_zone(tmp_path, "intel-rapl:1", "psys", 5_000)
    write_zone(tmp_path, "intel-rapl-mmio:0", "package-0", 1_000)
    return tmp_path


def test_pc(pc):
    files = FakeKernel(pc)
    with detect(files=files, allow_writes=True) as platform:
        write_zone(pc, "intel-rapl:0", "package-0", 3_001_000)
        assert platform.energy_j() == pytest.approx(3.0)
        assert platform.power().total_w > 0
        assert platform.name == "linux"
        assert platform.title == "Some Processor @ 3 GHz"
        assert platform.space.names == ("cpu",)
        assert len(platform.space) == 4
        assert platform.apply(0) == (ClockOption(800_000_000),)
        assert platform.read() == (ClockOption(800_000_000),)
        assert platform.space.describe(platform.space.fastest) == "cpu 3200 MHz"
    names = {path.rsplit("/", 1)[1] for path, _ in files.writes}
    assert names == {"scaling_min_freq", "scaling_max_freq"}
    assert SystemFiles(pc).read_int(f"{CPUS}/cpufreq/policy7/scaling_min_freq") == 800_000


def test_driver_without_a_table(pc):
    """intel_pstate says the ends only."""
    for cpu in range(8):
        folder = pc / CPUS / f"cpufreq/policy{cpu}"
        (folder / "scaling_available_frequencies").unlink()
        (folder / "cpuinfo_max_freq").write_text("4700000\n")
        (folder / "scaling_max_freq").write_text("4700000\n")
    options = detect(pc).space.domains[0].options
    mhz = [option.frequency_hz / 1e6 for option in options]
    assert mhz == [800, 1400, 1900, 2500, 3000, 3600, 4100, 4700]


def test_several_kinds_of_cores(pc):
    for cpu in (4, 5, 6, 7):
        folder = pc / CPUS / f"cpufreq/policy{cpu}"
        (folder / "scaling_available_frequencies").write_text("800000 1600000 2400000\n")
        (folder / "scaling_max_freq").write_text("2400000\n")
        (folder / "scaling_cur_freq").write_text("2400000\n")
    platform = detect(pc)
    assert platform.space.names == ("little", "big")
    assert platform.space.describe(platform.space.fastest) == "little 2400 MHz, big 3200 MHz"
    assert platform.read() == (ClockOption(2_400_000_000), ClockOption(3_200_000_000))
    table = pc / CPUS / "cpufreq/policy3/scaling_available_frequencies"
    table.write_text("600000 800000\n")
    assert detect(pc).space.names == ("cpu0", "cpu1", "cpu2")


def test_cores_without_clocks(tmp_path):
    write_file(tmp_path, f"{CPUS}/cpufreq/policy0/affected_cpus", 0)
    write_file(tmp_path, f"{CPUS}/cpufreq/policy0/scaling_available_frequencies", "<unknown>")
    platform = detect(tmp_path)
    assert len(platform.space) == 1
    assert "none of its clocks is visible" in platform.reason
    assert platform.notes == ("power: no RAPL counters in /sys/class/powercap",)


class Now:
    ns = 0

    def __call__(self):
        return self.ns


def test_power_is_the_mean_since_the_last_look(pc):
    now = Now()
    meter = RaplMeter(SystemFiles(pc), now)
    assert meter.power().total_w is None
    now.ns += 2_000_000_000
    write_zone(pc, "intel-rapl:0", "package-0", 1_000 + 40_000_000)
    write_zone(pc, "intel-rapl:0:0", "core", 500 + 30_000_000)
    write_zone(pc, "intel-rapl:0:1", "dram", 100 + 6_000_000)
    write_zone(pc, "intel-rapl:1", "psys", 5_000 + 80_000_000)
    power = meter.power()
    # The package holds its cores; psys holds all.
    assert power.total_w == pytest.approx(23.0)
    assert power.rails == pytest.approx(
        {"package-0": 20.0, "package-0/core": 15.0, "package-0/dram": 3.0, "psys": 40.0}
    )
    assert meter.energy_j() == pytest.approx(46.0)
    # Too soon for a new figure: the last one stays, nothing is divided by 0.
    assert meter.power() == power
    now.ns += 1_000_000_000
    assert meter.power().total_w == 0.0


def test_counter_starts_again_at_zero(pc):
    largest = 65_000_000
    write_zone(pc, "intel-rapl:0", "package-0", 60_000_000, largest)
    now = Now()
    meter = RaplMeter(SystemFiles(pc), now)
    total = 0
    value = 60_000_000
    for _ in range(10):
        now.ns += 1_000_000_000
        value = (value + 20_000_000) % largest
        total += 20
        write_zone(pc, "intel-rapl:0", "package-0", value, largest)
        assert meter.power().rails["package-0"] == pytest.approx(20.0)
    assert meter.energy_j() == pytest.approx(total)


def test_counter_that_cannot_be_read_for_once(pc):
    meter = RaplMeter(SystemFiles(pc), Now())
    write_file(pc, f"{RAPL}/intel-rapl:0/energy_uj", "")
    assert meter.energy_j() == 0.0
    write_file(pc, f"{RAPL}/intel-rapl:0/energy_uj", 2_001_000)
    assert meter.energy_j() == pytest.approx(2.0)


def test_counters_that_are_roots(pc):
    for zone in (pc / RAPL).iterdir():
        (zone / "energy_uj").unlink()
    platform = detect(pc)
    assert platform.power().total_w is None
    assert platform.energy_j() is None
    assert len(platform.notes) == 1
    assert "root only" in platform.notes[0]


def test_counters_alone_are_a_platform(tmp_path):
    write_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    platform = detect(tmp_path)
    assert platform.name == "linux"
    assert platform.read() == ()
    assert len(platform.space) == 1


def test_sum_of_meters(pc):
    one, other = (RaplMeter(SystemFiles(pc), Now()) for _ in range(2))
    both = SumMeter([one, other])
    write_zone(pc, "intel-rapl:0", "package-0", 1_001_000)
    assert both.energy_j() == pytest.approx(2.0)
    assert SumMeter([]).energy_j() is None
    assert SumMeter([]).power().total_w is None
