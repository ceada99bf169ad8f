# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Jetsons, on trees of their files and a fake kernel."""

from __future__ import annotations

import logging

import pytest
from sysfs_trees import CPUS, EMC, TREES, read_all, write_file

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.boards import agx_orin_space, tx2_space, xavier_space
from jetson_dnn_rt.platforms.clocks import ClockOption
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.jetson import JetsonPlatform

BOARDS = sorted(TREES)
GPU_TX2 = "sys/devices/17000000.gp10b/devfreq/17000000.gp10b"


def open_board(board, name, **options):
    files = board(name, **options)
    platform = detect(files.root, allow_writes=True, files=files)
    assert isinstance(platform, JetsonPlatform)
    assert platform.writable, platform.reason
    return platform


@pytest.mark.parametrize("name", BOARDS)
def test_boards_are_found(board, name):
    platform = detect(files=board(name))
    assert isinstance(platform, JetsonPlatform)
    assert platform.name == "jetson"
    assert platform.board.name == name
    assert platform.title == TREES[name].model
    assert platform.notes == ()


def test_spaces_are_those_of_the_papers(board):
    spaces = {name: detect(files=board(name)).space for name in BOARDS}
    assert spaces["tx2"] == tx2_space()
    xavier = spaces["agx-xavier"]  # with its memory
    assert xavier.domains[:2] == xavier_space(masks=False).domains
    assert xavier.names == ("cpu", "gpu", "emc")
    assert len(xavier) == 3_248 * 6
    assert spaces["agx-orin"] == agx_orin_space()
    assert len(spaces["orin-nano"]) == 20 * 6 * 5 * 3


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.77, 1.0])
def test_what_is_set_is_read_back(board, name, share):
    with open_board(board, name) as platform:
        index = round(share * platform.space.fastest)
        assert platform.apply(index) == platform.space[index]
        assert platform.read() == platform.space[index]
        # Up and down again: each way has its own order of writes.
        assert platform.apply(platform.space.fastest) == platform.space[platform.space.fastest]
        assert platform.apply(platform.space.slowest) == platform.space[platform.space.slowest]
        assert platform.apply(index) == platform.space[index]


@pytest.mark.parametrize("name", BOARDS)
def test_original_clocks_come_back(board, name):
    platform = open_board(board, name)
    before = read_all(platform._files.root)
    for index in (platform.space.slowest, len(platform.space) // 2, platform.space.fastest):
        platform.apply(index)
        platform.apply(len(platform.space) // 3)
        assert "run/jetson_dnn_rt/clocks.json" in read_all(platform._files.root)
        platform.restore()
        after = read_all(platform._files.root)
        assert settings(after) == settings(before)
    platform.close()
    platform.close()
    assert set(read_all(platform._files.root)) == set(before)
    assert not platform.writable
    with pytest.raises(PlatformError, match="closed"):
        platform.apply(0)


def settings(tree):
    """What may be set: where the hardware runs within its limits is its own business."""
    return {
        path: text
        for path, text in tree.items()
        if not path.endswith("cur_freq") and not path.startswith("run/")
    }


def test_order_of_writes(board):
    platform = open_board(board, "tx2")
    files = platform._files
    slow = platform.space.index(
        (ClockOption(345_600_000, 4), ClockOption(345_600_000, 2), *at(140_250_000, 204_000_000))
    )
    policy = f"{CPUS}/cpufreq/policy0/scaling_"
    platform.apply(slow)
    files.writes.clear()
    platform.apply(platform.space.fastest)
    for place, value in ((f"{GPU_TX2}/", 1_300_500_000), (policy, 2_035_200)):
        written = [write for write in files.writes if write[0].startswith(place)]
        assert written == [(f"{place}max_freq", value), (f"{place}min_freq", value)]
    files.writes.clear()
    platform.apply(slow)
    gpu = [write for write in files.writes if write[0].startswith(GPU_TX2)]
    assert gpu == [(f"{GPU_TX2}/min_freq", 140_250_000), (f"{GPU_TX2}/max_freq", 140_250_000)]


def at(gpu_hz, emc_hz):
    return ClockOption(gpu_hz), ClockOption(emc_hz)


def test_only_what_changes_is_written(board):
    platform = open_board(board, "tx2")
    platform.apply(platform.space.fastest)
    platform._files.writes.clear()
    platform.apply(platform.space.fastest)
    assert platform._files.writes == []
    platform.apply(platform.space.fastest - 1)
    assert platform._files.writes == [(f"{EMC}/rate", 1_331_200_000)]
    # And what another program changed.
    write_file(platform._files.root, f"{GPU_TX2}/max_freq", 140_250_000)
    write_file(platform._files.root, f"{GPU_TX2}/min_freq", 140_250_000)
    assert platform.apply(platform.space.fastest) == platform.space[platform.space.fastest]


def test_memory_is_locked_before_its_rate_is_set(board):
    platform = open_board(board, "orin-nano")
    platform.apply(platform.space.slowest)
    emc = [write for write in platform._files.writes if write[0].startswith(EMC)]
    assert emc == [(f"{EMC}/mrq_rate_locked", 1), (f"{EMC}/rate", 204_000_000)]
    platform._files.writes.clear()
    platform.restore()
    emc = [write for write in platform._files.writes if write[0].startswith(EMC)]
    assert emc == [(f"{EMC}/rate", 2_133_000_000), (f"{EMC}/mrq_rate_locked", 0)]


def test_cores_go_off_after_and_on_before_their_clock(board):
    platform = open_board(board, "tx2")
    space = platform.space
    off = space.index(
        (ClockOption(345_600_000, 1), ClockOption(0), *at(1_300_500_000, 1_866_000_000))
    )
    platform.apply(off)
    online = [write for write in platform._files.writes if write[0].endswith("online")]
    # Core 0 is never switched; the Denver cores are 1 and 2.
    assert online == [(f"{CPUS}/cpu{cpu}/online", 0) for cpu in (5, 4, 3, 2, 1)]
    assert platform.read() == space[off]
    platform._files.writes.clear()
    platform.apply(space.fastest)
    denver = [path for path, _ in platform._files.writes if "policy1" in path or "cpu1/" in path]
    assert denver == [
        f"{CPUS}/cpu1/online",
        # The core came back with its full range: only the least is new, the order is "raising".
        f"{CPUS}/cpufreq/policy1/scaling_max_freq",
        f"{CPUS}/cpufreq/policy1/scaling_min_freq",
    ]
    assert platform.read() == space[space.fastest]


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("step", [1_000, 7_000, 50_000])
@pytest.mark.parametrize("up", [False, True])
def test_kernels_that_round(board, name, step, up):
    """What is returned is what the kernel made of it, and it is not far."""

    def round_value(value):
        # 2^31 splits kHz of cores from Hz of the rest well enough: 1,000 kHz are 1 MHz.
        unit = step if value < 10_000_000 else step * 1000
        return -(-value // unit) * unit if up else value // unit * unit

    with open_board(board, name, round_value=round_value) as platform:
        count = len(platform.space)
        for index in (0, count // 2, count - 1, count // 3):
            got = platform.apply(index)
            for option, wanted in zip(got, platform.space[index], strict=True):
                assert option.cores == wanted.cores
                assert abs(option.frequency_hz - wanted.frequency_hz) <= step * 1000
                assert bool(option.frequency_hz) == bool(wanted.frequency_hz)
    # Limits that were there before are rounded too when they are given back; all come near.
    for path, text in read_all(platform._files.root).items():
        if path.endswith(("scaling_max_freq", "min_freq", "max_freq")):
            assert int(text) > 0


def test_refused_clock_is_an_error_and_the_others_come_back(board):
    platform = open_board(board, "agx-xavier")
    before = settings(read_all(platform._files.root))
    platform._files.refuse = r"devfreq/.*/min_freq"
    with pytest.raises(PlatformError, match=r"min_freq: Device or resource busy"):
        platform.apply(platform.space.slowest)
    assert settings(read_all(platform._files.root)) != before
    platform._files.refuse = ""
    platform.close()
    assert settings(read_all(platform._files.root)) == before


def test_restore_tries_everything_and_says_what_failed(board):
    platform = open_board(board, "agx-xavier")
    before = settings(read_all(platform._files.root))
    with_all_cores = (ClockOption(115_200_000, 8), *platform.space[0][1:])
    platform.apply(platform.space.index(with_all_cores))
    platform._files.refuse = r"policy2/scaling_max_freq"
    with pytest.raises(PlatformError, match=r"not restored.*policy2/scaling_max_freq"):
        platform.restore()
    after = settings(read_all(platform._files.root))
    wrong = {path for path in before if after[path] != before[path]}
    assert wrong == {f"{CPUS}/cpufreq/policy2/scaling_{end}_freq" for end in ("min", "max")}
    platform._files.refuse = ""
    platform.close()
    assert settings(read_all(platform._files.root)) == before


def test_throttling_is_seen(board):
    platform = open_board(board, "agx-orin")
    platform.apply(platform.space.fastest)
    for first in (0, 4, 8):
        write_file(platform._files.root, f"{CPUS}/cpufreq/policy{first}/scaling_cur_freq", 729_600)
    read = platform.read()
    assert read[0] == ClockOption(729_600_000, 12)
    assert platform.space.nearest(read) < platform.space.fastest


def test_power_mode_of_the_start_is_the_limit(board):
    files = board("agx-xavier")
    for first in (0, 2):
        write_file(files.root, f"{CPUS}/cpufreq/policy{first}/scaling_max_freq", 1_200_000)
    for cpu in (4, 5, 6, 7):
        files.write(f"{CPUS}/cpu{cpu}/online", 0)
    gpu = "sys/devices/17000000.gv11b/devfreq/17000000.gv11b"
    write_file(files.root, f"{gpu}/max_freq", 670_000_000)
    write_file(files.root, "sys/kernel/nvpmodel_emc_cap/emc_iso_cap", 1_331_200_000)
    files.writes.clear()
    with detect(files=files, allow_writes=True) as platform:
        assert platform.space.describe(platform.space.fastest) == (
            "cpu 1190.4 MHz x4, gpu 624.75 MHz, emc 1331.2 MHz"
        )
        platform.apply(platform.space.slowest)
        platform.apply(platform.space.fastest)
    assert not [path for path, value in files.writes if path.endswith("online") and "cpu4" in path]
    assert max(value for path, value in files.writes if "scaling_max" in path) == 1_200_000


def test_modes_come_from_the_board(board):
    tx2 = detect(files=board("tx2"))
    assert [mode.name for mode in tx2.modes] == ["MAXN", "MAXQ"]
    assert tx2.active_mode == "MAXN"
    assert tx2.mode_index("MAXN") == tx2.space.fastest
    assert tx2.space.describe(tx2.mode_index("MAXQ")) == (
        "little 1267.2 MHz x4, big off, gpu 854.25 MHz, emc 1331.2 MHz"
    )
    xavier = detect(files=board("agx-xavier"))
    assert xavier.space.describe(xavier.mode_index("MODE_15W")) == (
        "cpu 1190.4 MHz x4, gpu 675.75 MHz, emc 1331.2 MHz"
    )
    with pytest.raises(ValueError, match=r"'MAXQ' .* is not one of: MAXN, MODE_15W"):
        xavier.mode_index("MAXQ")

    # As delivered where the board has no file.
    orin = detect(files=board("agx-orin"))
    assert orin.active_mode == ""
    assert orin.space.describe(orin.mode_index("50W")) == (
        "cpu 1497.6 MHz x12, gpu 816 MHz, emc 3199 MHz"
    )


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("tx2", 5.283),
        ("agx-xavier", 19.048 * 0.510),
        ("agx-orin", 19.136 * 0.190 + 4.968 * 0.700),
        ("orin-nano", 5.016 * 1.1),
    ],
)
def test_power_of_the_whole_board(board, name, total):
    power = detect(files=board(name)).power()
    assert power.total_w == pytest.approx(total)
    labels = {label for chip in TREES[name].rails for label, _, _ in chip} - {"NC"}
    assert set(power.rails) == labels


def test_channel_that_is_off_or_missing(board):
    files = board("agx-xavier")
    (files.root / "sys/class/hwmon/hwmon4/curr1_input").unlink()
    power = detect(files=files).power()
    assert "CV" not in power.rails
    assert power.total_w is None
    assert power.rails["GPU"] == pytest.approx(19.048 * 0.080)
    files = board("orin-nano")
    write_file(files.root, "sys/class/hwmon/hwmon3/in1_label", "VDD_OTHER")
    platform = detect(files=files)
    assert platform.power().total_w is None
    rails = "VDD_OTHER, VDD_CPU_GPU_CV, VDD_SOC"
    assert platform.notes == (f"power: no total without VDD_IN (rails: {rails})",)


def test_without_debug_files_the_memory_is_left_alone(board):
    files = board("agx-orin")
    for path in (files.root / EMC).iterdir():
        path.unlink()
    with detect(files=files, allow_writes=True) as platform:
        assert platform.space.names == ("cpu", "gpu")
        assert any(note.startswith("emc: ") for note in platform.notes)
        assert platform.apply(0) == platform.space[0]


def test_without_switching_cores(board):
    files = board("tx2")
    with detect(files=files, allow_writes=True, switch_cores=False) as platform:
        assert len(platform.space) == 7 * 7 * 7 * 4
        platform.apply(0)
        assert platform.read() == platform.space[0]
    assert not [path for path, _ in files.writes if path.endswith("online")]


def test_unknown_board_has_the_ends_of_its_memory(board):
    files = board("orin-nano")
    (files.root / "proc/device-tree/model").write_text("NVIDIA Jetson Next\0")
    platform = detect(files=files)
    assert platform.board.name == "jetson"
    rates = [option.frequency_hz for option in platform.space.domains[2].options]
    assert rates == [204_000_000, 2_133_000_000]


def test_reading_changes_nothing(board, caplog):
    files = board("tx2")
    before = read_all(files.root)
    with caplog.at_level(logging.WARNING), detect(files=files) as platform:
        assert not platform.writable
        assert platform.permitted
        assert platform.reason == "setting them was not asked for"
        platform.read()
        platform.power()
        with pytest.raises(PlatformError, match="not asked for"):
            platform.apply(0)
        platform.restore()
    assert read_all(files.root) == before
    assert files.writes == []
    assert caplog.records == []


def test_clocks_that_cannot_be_read_or_are_none(board):
    with open_board(board, "tx2") as platform:
        with pytest.raises(IndexError):
            platform.apply(len(platform.space))
        assert platform._files.writes == []
        write_file(platform._files.root, f"{GPU_TX2}/cur_freq", "<unknown>")
        with pytest.raises(PlatformError, match="cur_freq"):
            platform.read()


def test_folder_for_the_state(board, tmp_path):
    files = board("tx2")
    with detect(files=files, allow_writes=True, state_dir=tmp_path / "a" / "b") as platform:
        platform.apply(0)
        assert (tmp_path / "a/b/clocks.json").exists()
    assert not (files.root / "run/jetson_dnn_rt").exists()
