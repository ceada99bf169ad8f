# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The shared memory in which Fast DDS receives, as the kernel shows it.

A process receives in files of /dev/shm, its ports, which it holds a lock on and which senders
find by their names. While processes are killed, or give up on each other's locks, Fast DDS may
remove or replace a port that is in use (eProsima/Fast-DDS issues 5737 and 6117). Its owner goes on
to wait in memory that has no name any more: it is connected, and nothing arrives.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
FOLDER = "dev/shm"
LOCK = "_el"
GONE = " (deleted)"
PREFIXES = ("fastdds_port", "fastrtps_port")  # Fast DDS 3; 2, of Humble and Jazzy


def find_lost_ports(process: str = "self", root: Path = ROOT) -> list[str]:
    """Find the ports, by name, in which a process receives and that nobody can send to any more.

    `process` is a name in /proc. Empty where there is none, or the kernel does not tell: another
    middleware, somebody else's process. A port that is made anew at this moment may be named, too.
    """
    try:
        own = set(_find_own(root / "proc" / process / "fd"))
        mapped = set(_find_mapped(root / "proc" / process / "maps")) if own else set()
    except OSError:
        return []
    return sorted(name for name in own if _find_inode(root / FOLDER / name) not in mapped)


def find_deaf_processes(root: Path = ROOT) -> dict[str, list[str]]:
    """Find all processes with lost ports that this user may look at, by their id."""
    try:
        processes = [name for name in os.listdir(root / "proc") if name.isdigit()]
    except OSError:
        return {}
    found = ((name, find_lost_ports(name, root)) for name in processes)
    return {name: ports for name, ports in found if ports}


def _find_own(folder: Path) -> Iterator[str]:
    """Ports whose locks a process holds: those that it receives in."""
    for number in os.listdir(folder):
        try:
            target = os.readlink(folder / number)
        except OSError:  # closed meanwhile
            continue
        name = target.removesuffix(GONE).rpartition("/")[2]
        if name.startswith(PREFIXES) and name.endswith(LOCK):
            yield name.removesuffix(LOCK)


def _find_mapped(file: Path) -> Iterator[int]:
    """Inodes of the ports that are in a process' memory."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if any(prefix in line for prefix in PREFIXES):
                yield int(line.split(maxsplit=5)[4])


def _find_inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
