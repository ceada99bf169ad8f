# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What is said of the machine."""

from __future__ import annotations

import json

import pytest

from jetson_dnn_rt import __version__
from jetson_dnn_rt.platforms.machine import describe_cpu, describe_gpu, describe_machine


def write(root, name, text):
    (root / "proc" / name).parent.mkdir(parents=True, exist_ok=True)
    (root / "proc" / name).write_text(text)


def test_machine_is_described(tmp_path):
    write(tmp_path, "cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n")
    write(tmp_path, "meminfo", "MemTotal:       16384000 kB\n")
    machine = describe_machine(tmp_path)
    assert machine["cpu"] == "Some CPU @ 2 GHz"
    assert machine["memory_gib"] == 15.6
    assert machine["versions"]["jetson_dnn_rt"] == __version__
    assert json.loads(json.dumps(machine)) == machine


def test_cpu_of_a_pc_and_of_a_board(tmp_path):
    write(tmp_path, "cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n\nflags : a b\n")
    assert describe_cpu(tmp_path) == "Some CPU @ 2 GHz"
    write(tmp_path, "cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\n")
    write(tmp_path, "device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    assert describe_cpu(tmp_path).startswith("NVIDIA Jetson AGX Orin Developer Kit ")
    assert describe_cpu()


@pytest.mark.gpu
def test_gpu_is_the_one_that_torch_sees():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    major, minor = torch.cuda.get_device_capability(0)
    assert describe_gpu() == f"{torch.cuda.get_device_name(0)}, {major}.{minor}"
