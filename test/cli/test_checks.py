"""What doctor looks at, on made-up machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jetson_dnn_rt.backends.base import BackendInfo
from jetson_dnn_rt.cli import checks
from jetson_dnn_rt.cli.environment import PROFILE, find_shared_file, profile_variable

# The first line of the file as NVIDIA's images have it.
R36 = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n"
R38 = "# R38 (release), REVISION: 2.0, GCID: 41844464, BOARD: generic, EABI: aarch64\n"


def write(root: Path, relative: str, text: str) -> None:
    file = root / relative
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("release", "jetpack"),
    [
        (R36, "JetPack 6.1 or 6.2 (L4T 36.4.3)"),
        (R36.replace("4.3", "3.0"), "JetPack 6.0 (L4T 36.3.0)"),
        (R38, "JetPack 7 (L4T 38.2.0)"),
        (R36.replace("R36", "R99"), "JetPack unknown (L4T 99.4.3)"),
    ],
)
def test_jetson_and_its_jetpack(tmp_path: Path, release: str, jetpack: str) -> None:
    write(tmp_path, "etc/nv_tegra_release", release)
    write(tmp_path, "proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    check = checks.check_jetson(tmp_path)
    assert check.ok
    assert check.detail == f"NVIDIA Jetson AGX Orin Developer Kit, {jetpack}"


def test_jetson_with_a_damaged_release_file(tmp_path: Path) -> None:
    write(tmp_path, "etc/nv_tegra_release", "nonsense")
    check = checks.check_jetson(tmp_path)
    assert not check.ok
    assert "nv_tegra_release" in check.fix


def test_a_pc_is_no_jetson_and_lacks_nothing(tmp_path: Path) -> None:
    check = checks.check_jetson(tmp_path)
    assert (check.ok, check.fix, check.required) == (False, "", False)


def test_other_board_with_a_device_tree_is_no_jetson(tmp_path: Path) -> None:
    write(tmp_path, "proc/device-tree/model", "Raspberry Pi 5\0")
    assert checks.check_jetson(tmp_path).detail == "not a Jetson"


@pytest.mark.parametrize(
    ("governors", "jetson", "ok", "fix"),
    [
        (["performance", "performance"], False, True, ""),
        (["performance", "schedutil"], False, False, "cpupower"),
        (["schedutil", "schedutil"], True, False, "jetson_clocks"),
        ([], False, True, ""),
    ],
)
def test_governor(tmp_path: Path, governors: list[str], jetson: bool, ok: bool, fix: str) -> None:
    for core, governor in enumerate(governors):
        path = f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"
        write(tmp_path, path, governor + "\n")
    if jetson:
        write(tmp_path, "etc/nv_tegra_release", R36)
    check = checks.check_governor(tmp_path)
    assert check.ok is ok
    assert fix in check.fix
    assert bool(check.fix) is not ok


@pytest.mark.parametrize(
    ("environment", "ok", "text", "fix"),
    [
        ({}, True, "6 core(s): 1 x 6 (workers x threads) by default", ""),
        ({"OMP_WAIT_POLICY": "PASSIVE", "OMP_PROC_BIND": "false"}, True, "1 x 6, 2 x 3", ""),
        ({"OMP_WAIT_POLICY": "active"}, False, "spin", "unset OMP_WAIT_POLICY"),
        (
            {"OMP_PROC_BIND": "close", "GOMP_CPU_AFFINITY": "0 1"},
            False,
            "OMP_PROC_BIND=close binds",
            "unset OMP_PROC_BIND GOMP_CPU_AFFINITY",
        ),
    ],
)
def test_threads_that_spin_or_stand_on_each_other(
    environment: dict[str, str], ok: bool, text: str, fix: str
) -> None:
    check = checks.check_threads(environment, cores=6)
    assert (check.ok, check.fix) == (ok, fix)
    assert text in check.detail


def test_rights_are_tried_in_another_process() -> None:
    policy = os.sched_getscheduler(0)
    names = [check.name for check in checks.check_rights()]
    assert names == ["sched_fifo", "mlockall"]
    assert os.sched_getscheduler(0) == policy


def test_refused_rights_come_with_the_fix() -> None:
    fifo, lock = checks.check_rights({"sched_fifo": "Operation not permitted", "mlockall": ""})
    assert not fifo.ok
    assert fifo.detail == "Operation not permitted"
    assert "rtprio" in fifo.fix
    assert lock.ok
    assert lock.fix == ""


def test_a_back_end_that_runs_networks_is_required() -> None:
    null = BackendInfo("null", "0.1.0", True, ("fp32",), "", "")
    missing = BackendInfo("torch", "", False, (), "cannot be imported", "pip install torch")
    *_, verdict = checks.check_backends([null, missing])
    assert verdict.required
    assert not verdict.ok
    assert verdict.fix
    torch = BackendInfo("torch", "2.1", True, ("fp32",), "no bf16", "")
    first, verdict = checks.check_backends([torch])
    assert first.detail == "2.1: fp32 (no bf16)"
    assert verdict.ok


def test_profile_of_this_package_not_set() -> None:
    check = checks.check_profile({})
    assert not check.ok
    assert f"export {profile_variable()}={find_shared_file(PROFILE)}" in check.fix


def test_profile_of_this_package_set() -> None:
    check = checks.check_profile({profile_variable(): str(find_shared_file(PROFILE))})
    assert check.ok
    assert "not the one" not in check.detail


def test_profile_of_somebody_else(tmp_path: Path) -> None:
    write(tmp_path, "other.xml", "<dds/>")
    check = checks.check_profile({profile_variable(): str(tmp_path / "other.xml")})
    assert check.ok
    assert "not the one of this package" in check.detail


def test_profile_that_is_not_there() -> None:
    check = checks.check_profile({profile_variable(): "/no/such/file.xml"})
    assert not check.ok
    assert "no such file" in check.detail


def test_profile_means_nothing_to_another_middleware() -> None:
    assert checks.check_profile({"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}).ok


def test_no_shared_memory(tmp_path: Path) -> None:
    check = checks.check_shared_memory(tmp_path)
    assert not check.ok
    assert "/dev/shm" in check.fix


def test_module_that_is_missing() -> None:
    check = checks.check_module("no_such_module_here", "install it", required=True)
    assert (check.ok, check.required, check.fix) == (False, True, "install it")


def test_folder_named_launch_is_not_the_launch_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder_without_code").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not checks._is_installed("folder_without_code")
    assert checks._is_installed("json")
