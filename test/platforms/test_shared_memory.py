# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Ports of Fast DDS that have no name any more: in a made-up tree, and in a real process."""

from __future__ import annotations

import os

import pytest
from dds_ports import find_own_ports, hidden

from jetson_dnn_rt.platforms.shared_memory import find_deaf_processes, find_lost_ports


def make_process(root, pid, own, mapped):
    """A process that holds the locks of the ports `own`, with the inodes `mapped` in memory."""
    folder = root / "proc" / pid
    (folder / "fd").mkdir(parents=True)
    for number, name in enumerate(["/dev/null", *own]):
        (folder / "fd" / str(number)).symlink_to(name)
    lines = [f"7f0000-7f1000 rw-s 0 00:1b {inode} /dev/shm/{name}" for name, inode in mapped]
    (folder / "maps").write_text(
        "00400-00452 r-xp 0 08:02 173521 /bin/python\n" + "\n".join(lines)
    )


def test_a_port_without_its_name_is_lost(tmp_path):
    (tmp_path / "dev/shm").mkdir(parents=True)

    def make_port(name):
        (tmp_path / "dev/shm" / name).touch()
        return (name, (tmp_path / "dev/shm" / name).stat().st_ino)

    good, replaced = make_port("fastdds_port7411"), make_port("fastrtps_port7413")
    locks = [f"/dev/shm/{name}_el" for name in (good[0], replaced[0], "fastdds_port7415")]
    old = [("fastrtps_port7413 (deleted)", 999), ("fastdds_port7415 (deleted)", 998)]
    make_process(tmp_path, "12", [*locks[:2], f"{locks[2]} (deleted)"], [good, *old])
    make_process(tmp_path, "13", locks[:1], [good])
    # It only sends to them: it holds no locks. And one of another middleware, which has no ports.
    make_process(tmp_path, "14", [], old)
    make_process(tmp_path, "self", [], [])
    assert find_lost_ports("12", tmp_path) == ["fastdds_port7415", "fastrtps_port7413"]
    assert find_deaf_processes(tmp_path) == {"12": ["fastdds_port7415", "fastrtps_port7413"]}
    assert find_lost_ports(root=tmp_path) == []


def test_where_the_kernel_tells_nothing_nothing_is_lost(tmp_path):
    assert find_lost_ports("12", tmp_path) == []
    assert find_deaf_processes(tmp_path) == {}
    make_process(tmp_path, "12", ["/dev/shm/fastdds_port7411_el"], [])
    (tmp_path / "proc/12/maps").unlink()
    assert find_lost_ports("12", tmp_path) == []


def test_a_real_process_that_lost_a_port_is_found(ros):
    """What Fast DDS does, rarely, to a process that starts while others are killed."""
    if not (ports := find_own_ports()):
        pytest.skip("this middleware has no ports in shared memory")
    assert find_lost_ports() == []
    with hidden(ports[-1]):
        assert find_lost_ports() == [ports[-1].name]
        assert find_deaf_processes()[str(os.getpid())] == [ports[-1].name]
    assert find_lost_ports() == []
