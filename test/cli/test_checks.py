# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What doctor reports, on made-up machines."""

from __future__ import annotations

import os
import sys

import pytest
from fake_driver import FakeDriver
from sysfs_trees import EMC, TREES, read_all, write_file, write_policy, write_tree

from jetson_dnn_rt.backends.base import BackendInfo
from jetson_dnn_rt.backends.cuda import nvrtc
from jetson_dnn_rt.backends.cuda.driver import CudaDriver
from jetson_dnn_rt.cli import doctor
from jetson_dnn_rt.cli.environment import PROFILE, find_shared_file, profile_variable
from jetson_dnn_rt.errors import BackendUnavailableError

# The first line of the file as NVIDIA's images have it.
R36 = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n"
R38 = "# R38 (release), REVISION: 2.0, GCID: 41844464, BOARD: generic, EABI: aarch64\n"


@pytest.mark.parametrize(
    ("release", "jetpack"),
    [
        (R36, "JetPack 6.1 or 6.2 (L4T 36.4.3)"),
        (R36.replace("4.3", "3.0"), "JetPack 6.0 (L4T 36.3.0)"),
        (R38, "JetPack 7 (L4T 38.2.0)"),
        (R36.replace("R36", "R99"), "JetPack unknown (L4T 99.4.3)"),
    ],
)
def test_jetson_and_its_jetpack(tmp_path, release, jetpack):
    write_file(tmp_path, "etc/nv_tegra_release", release)
    write_file(tmp_path, "proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    check = doctor.check_jetson(tmp_path)
    assert check.ok
    assert check.detail == f"NVIDIA Jetson AGX Orin Developer Kit, {jetpack}"


def test_what_is_no_jetson(tmp_path):
    check = doctor.check_jetson(tmp_path)
    assert (check.ok, check.fix, check.required) == (False, "", False)
    write_file(tmp_path, "proc/device-tree/model", "Raspberry Pi 5\0")
    assert doctor.check_jetson(tmp_path).detail == "not a Jetson"
    write_file(tmp_path, "etc/nv_tegra_release", "nonsense")
    check = doctor.check_jetson(tmp_path)
    assert not check.ok
    assert "nv_tegra_release" in check.fix


@pytest.mark.parametrize(
    ("governors", "jetson", "ok", "fix"),
    [
        (["performance", "performance"], False, True, ""),
        (["performance", "schedutil"], False, False, "cpupower"),
        (["schedutil", "schedutil"], True, False, "jetson_clocks"),
    ],
)
def test_governor(tmp_path, governors, jetson, ok, fix):
    for core, governor in enumerate(governors):
        path = f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"
        write_file(tmp_path, path, governor + "\n")
    if jetson:
        write_file(tmp_path, "etc/nv_tegra_release", R36)
    check = doctor.check_governor(tmp_path)
    assert check.ok is ok
    assert fix in check.fix
    assert bool(check.fix) is not ok


@pytest.mark.parametrize(
    ("environment", "ok", "text", "fix"),
    [
        ({}, True, "6 core(s): 1 x 6 (workers x threads) by default", ""),
        ({"OMP_WAIT_POLICY": "PASSIVE", "OMP_PROC_BIND": "false"}, True, "1 x 6 or 6 x 1", ""),
        ({"OMP_WAIT_POLICY": "active"}, False, "spin", "unset OMP_WAIT_POLICY"),
        (
            {"OMP_PROC_BIND": "close", "GOMP_CPU_AFFINITY": "0 1"},
            False,
            "OMP_PROC_BIND=close binds",
            "unset OMP_PROC_BIND GOMP_CPU_AFFINITY",
        ),
    ],
)
def test_threads_that_spin_or_stand_on_each_other(environment, ok, text, fix):
    check = doctor.check_threads(environment, cores=6)
    assert (check.ok, check.fix) == (ok, fix)
    assert text in check.detail


def test_rights_are_tried_in_another_process():
    policy = os.sched_getscheduler(0)
    names = [check.name for check in doctor.check_rights()]
    assert names == ["sched_fifo", "mlockall"]
    assert os.sched_getscheduler(0) == policy


def test_refused_rights_come_with_the_fix():
    fifo, lock = doctor.check_rights({"sched_fifo": "Operation not permitted", "mlockall": ""})
    assert (fifo.ok, fifo.detail) == (False, "Operation not permitted")
    assert "rtprio" in fifo.fix
    assert (lock.ok, lock.fix) == (True, "")


def test_a_back_end_that_runs_networks_is_required():
    null = BackendInfo("null", "0.1.0", True, ("fp32",), "", "")
    missing = BackendInfo("torch", "", False, (), "cannot be imported", "pip install torch")
    *_, verdict = doctor.check_backends([null, missing])
    assert (verdict.required, verdict.ok, bool(verdict.fix)) == (True, False, True)
    torch = BackendInfo("torch", "2.1", True, ("fp32",), "no bf16", "")
    first, verdict = doctor.check_backends([torch])
    assert first.detail == "2.1: fp32 (no bf16)"
    assert verdict.ok


def test_what_is_missing_of_the_extra_torch(monkeypatch):
    monkeypatch.setattr(doctor, "_is_installed", lambda name: name == "onnx")
    check = doctor.check_torch_extra()
    assert (check.ok, check.required) == (False, False)
    assert check.detail.endswith("missing torch, torchvision, onnx2torch, safetensors")
    assert "pip install torch torchvision onnx2torch safetensors (torch on a Jetson" in check.fix
    monkeypatch.setattr(doctor, "_is_installed", lambda name: name != "safetensors")
    assert doctor.check_torch_extra().fix == "pip install safetensors"


def test_no_torch_is_no_fault_of_a_machine_without_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    check = doctor.check_gpu(tmp_path)
    assert (check.detail, check.fix) == ("none: networks run on the CPU", "")
    write_file(tmp_path, "dev/nvidia0", "")
    assert "install a torch built for this driver" in doctor.check_gpu(tmp_path).fix


def test_the_profile_of_fast_dds(tmp_path):
    variable, shipped = profile_variable(), find_shared_file(PROFILE)
    write_file(tmp_path, "other.xml", "<dds/>")
    other = tmp_path / "other.xml"
    cases = [
        ({}, False, "not set in this shell; run sets it itself"),
        ({variable: str(shipped)}, True, str(shipped)),
        ({variable: str(other)}, True, f"{other} (not the one of this package)"),
        ({variable: "/no/file.xml"}, False, f"{variable}=/no/file.xml: no such file"),
        ({"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}, True, "not for rmw_cyclonedds_cpp"),
    ]
    for environment, ok, detail in cases:
        check = doctor.check_profile(environment)
        assert (check.ok, check.detail) == (ok, detail)
    assert f"export {variable}={shipped}" in doctor.check_profile({}).fix


def test_a_process_that_nothing_reaches_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "find_deaf_processes", lambda root: {"12": ["a_port7411"]})
    check = doctor.check_ports(tmp_path)
    assert (check.ok, check.required) == (False, False)
    assert check.detail.endswith("nothing on this machine reaches process 12: a_port7411")
    assert "start them again" in check.fix
    monkeypatch.setattr(doctor, "find_deaf_processes", lambda root: {})
    assert doctor.check_ports(tmp_path).ok


def test_no_shared_memory(tmp_path):
    check = doctor.check_shared_memory(tmp_path)
    assert not check.ok
    assert "/dev/shm" in check.fix


def test_module_that_is_missing():
    check = doctor.check_module("no_such_module_here", "install it", required=True)
    assert (check.ok, check.required, check.fix) == (False, True, "install it")


def test_folder_named_launch_is_not_the_launch_system(tmp_path, monkeypatch):
    (tmp_path / "folder_without_code").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not doctor._is_installed("folder_without_code")
    assert doctor._is_installed("json")


# -- clocks and power ----------------------------------------------------------------------


def look(root):
    found = doctor.check_platform(root)
    assert not any(check.required for check in found)
    return {check.name: check for check in found}


@pytest.fixture
def board(tmp_path):
    write_tree(tmp_path, TREES["tx2"])
    return tmp_path


def test_board(board):
    before = read_all(board)
    found = look(board)
    assert found["platform"].detail == "NVIDIA Jetson TX2 Developer Kit (jetson)"
    assert found["clocks"].detail == (
        "little 2035.2 MHz x4, big 2035.2 MHz x2, gpu 140.25 MHz, emc 1866 MHz; "
        "11,760 configurations"
    )
    assert found["power"].detail.startswith("5.28 W (VDD_SYS_GPU 2.29 W, ")
    assert found["set clocks"].ok
    assert all(check.ok for check in found.values())
    assert read_all(board) == before


def test_board_without_rights(board, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    check = look(board)["set clocks"]
    assert not check.ok
    assert "cannot be written" in check.detail
    assert "docs/platforms.md" in check.fix


def test_clock_that_cannot_be_read(board):
    write_file(board, "sys/class/devfreq/17000000.gp10b/cur_freq", "")
    check = look(board)["clocks"]
    assert not check.ok
    assert "cur_freq" in check.detail


def test_board_without_a_meter(tmp_path):
    write_tree(tmp_path, TREES["orin-nano"])
    (tmp_path / "sys/class/hwmon/hwmon3/name").write_text("other\n")
    (tmp_path / EMC / "rate").unlink()
    found = look(tmp_path)
    assert not found["power"].ok
    assert found["power"].detail == "no INA3221 in /sys/class/hwmon"
    assert "emc" not in found["clocks"].detail


def test_pc(tmp_path):
    write_policy(tmp_path, [0, 1], [800, 1600])
    for name, text in (("name", "package-0"), ("energy_uj", 1), ("max_energy_range_uj", 9)):
        write_file(tmp_path, f"sys/class/powercap/intel-rapl:0/{name}", text)
    found = look(tmp_path)
    assert found["clocks"].detail == "cpu 1600 MHz; 2 configurations"
    assert found["power"].ok


def test_virtual_machine(tmp_path):
    found = look(tmp_path)
    assert not any(check.ok for check in found.values())
    assert found["platform"].detail == "a machine without visible clocks (unknown)"
    assert found["clocks"].detail.startswith("unknown: neither cpufreq nor devfreq is visible")
    governor = doctor.check_governor(tmp_path)
    assert (governor.ok, governor.fix) == (False, "")
    assert governor.detail.startswith("unknown: no cpufreq is visible")
    assert "virtual machine" in found["set clocks"].detail


STAT = "cpu  0\n" + "".join(f"cpu{core} {{busy}} 0 0 0 0 0 0 0 0 0\n" for core in range(512))


@pytest.mark.parametrize(("share", "ok"), [(0.1, True), (1.0, False)])
def test_programs_that_have_the_cores_are_named(tmp_path, monkeypatch, share, ok):
    """D5: `doctor` did not say that the cores were taken."""
    write_file(tmp_path, "proc/pressure/cpu", "some avg10=49.57 avg60=34.95 total=1\n")
    write_file(tmp_path, "proc/stat", STAT.format(busy=0))
    now_ns = [0]
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns[0])

    def sleep(seconds):
        now_ns[0] = int(seconds * 1e9)
        ticks = round(seconds * 100 * share)
        write_file(tmp_path, "proc/stat", STAT.format(busy=ticks))

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("time.process_time_ns", lambda: 0)
    check = doctor.check_load(1.0, tmp_path)
    cores = len(os.sched_getaffinity(0))
    assert check.ok is ok
    assert check.detail.startswith(f"other programs used {share * cores:.1f} of {cores} core")
    assert check.detail.endswith("a program waited for a core 50 % of the time")
    assert ("taskset" in check.fix) is not ok
    assert doctor.check_load(1.0, tmp_path / "none").detail.startswith("unknown")


# -- memory of a CUDA device ---------------------------------------------------------------

# Integrated, maps host memory, compute capability.
ORIN = {18: 1, 19: 1, 75: 8, 76: 7}
TX2 = {18: 1, 19: 1, 75: 6, 76: 2}
DISCRETE = {18: 0, 19: 1, 75: 9, 76: 0}


@pytest.fixture
def have(monkeypatch):
    def take(attributes, error=""):
        def load():
            if error:
                raise BackendUnavailableError(error)

        fake = FakeDriver(attributes)
        monkeypatch.setattr(doctor, "CudaDriver", lambda: CudaDriver(fake))
        monkeypatch.setattr(doctor, "load_kernel", load)

    return take


def test_on_an_integrated_gpu(have):
    have(ORIN)
    memory, frames = doctor.check_memory()
    assert memory.ok
    assert memory.detail == "auto is mapped: the GPU is integrated, of compute capability 8.7"
    assert frames.ok
    assert "on the GPU" in frames.detail


def test_on_a_discrete_gpu_without_nvrtc(have):
    have(DISCRETE, f"NVRTC cannot be used (it is not installed): {nvrtc.FIX}")
    memory, frames = doctor.check_memory()
    assert "auto is pinned: the GPU is discrete" in memory.detail
    assert (frames.ok, frames.required) == (False, False)
    assert frames.detail.endswith("(it is not installed)")
    assert frames.fix == nvrtc.FIX


def test_on_an_old_board_the_cpu_does_it(have):
    have(TX2)
    (memory,) = doctor.check_memory()
    assert "auto is pageable" in memory.detail


def test_without_a_device_nothing_is_said(monkeypatch):
    def fail():
        raise BackendUnavailableError("there is no CUDA driver")

    monkeypatch.setattr(doctor, "CudaDriver", fail)
    assert doctor.check_memory() == []


GRAPH = {
    "nodes": ["/detector", "/camera", "/_watch", "/_watch"],
    "topics": {"/image_raw": ["/camera"], "/detections": ["/detector"]},
}


def test_a_graph_with_each_name_once_is_in_order():
    check = doctor.check_graph(GRAPH)
    assert (check.ok, check.detail) == (True, "2 nodes, no name or image topic twice")


def test_two_stacks_of_the_same_names_in_one_domain_are_found():
    twice = {
        "nodes": [*GRAPH["nodes"], "/detector"],
        "topics": {"/image_raw": ["/driver", "/camera"], "/detections": ["/detector"] * 2},
    }
    check = doctor.check_graph(twice)
    assert not check.ok
    assert check.detail == (
        "2 nodes are called /detector; /detections has 2 publishers (/detector, /detector); "
        "/image_raw has 2 publishers (/camera, /driver)"
    )
    assert "ROS_DOMAIN_ID" in check.fix


def test_the_running_graph_is_looked_at():
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    assert " nodes" in doctor.check_graph().detail


@pytest.mark.parametrize(("default", "ok"), [("212992", False), ("4194304", True), (None, True)])
def test_udp_buffers_are_compared_with_the_size_of_images(tmp_path, default, ok):
    if default is not None:
        write_file(tmp_path, "proc/sys/net/core/rmem_default", default)
    check = doctor.check_udp_buffers(tmp_path)
    assert check.ok == ok
    assert ("net.core.rmem_default=2000000" in check.fix) is not ok
