# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What a process says of its own memory once a second: started in it by `Process`' prelude."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path


class _MallInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`, of all arenas together."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def describe() -> dict[str, float]:
    """Memory by its owner: malloc's (used, free), Python's small objects, pyarrow's."""
    found: dict[str, float] = {"python_blocks": float(sys.getallocatedblocks())}
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallinfo2"):  # since glibc 2.33
        libc.mallinfo2.restype = _MallInfo
        info = libc.mallinfo2()
        found["malloc_used_mb"] = (info.uordblks + info.hblkhd) / 1e6
        found["malloc_free_mb"] = info.fordblks / 1e6
    count_bytes = getattr(sys.modules.get("pyarrow"), "total_allocated_bytes", lambda: 0)
    found["pyarrow_mb"] = count_bytes() / 1e6
    return found


def start(path: str, period_s: float = 1.0) -> None:
    """Write it into a file of JSON, again and again, on a thread."""
    file, new = Path(path), Path(f"{path}.new")

    def run() -> None:
        while True:
            time.sleep(period_s)
            new.write_text(json.dumps(describe()), encoding="utf-8")
            os.replace(new, file)

    threading.Thread(target=run, name="own-memory", daemon=True).start()
