# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The files in which Fast DDS receives in this process, and their loss."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def find_own_ports() -> list[Path]:
    """Ports of this process, those for data of its own domain last."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = Path(os.readlink(f"/proc/self/fd/{number}"))
            if "_port" in target.name and target.name.endswith("_el"):
                found.append(target.with_name(target.name.removesuffix("_el")))
    return sorted(found, key=lambda port: int(port.name.rpartition("port")[2]))


@contextlib.contextmanager
def hidden(port: Path) -> Iterator[None]:
    """Take a port's name away for a while, as Fast DDS does for good."""
    away = port.with_name(f"away_{port.name}")
    port.rename(away)
    try:
        yield
    finally:
        away.rename(port)
