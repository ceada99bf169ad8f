# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Co-runner process of a profile: keeps a core, memory or the GPU busy.

It prints ``ready`` when the load has begun, and exits when its stdin is closed: with the process
that started it, even if that was killed. Then it prints how much work it did, as one line of JSON;
nothing for a core.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

READY = "ready"
MEMORY_BYTES = 64 << 20  # of each block; no cache of a Jetson holds both
GPU_SIDE = 2048  # of the float32 matrices: large enough to fill the GPUs of Jetsons

_CALLS_IN_FLIGHT = 8  # so that the GPU does not wait for this process


def make_cpu_load() -> tuple[Callable[[], None], float, str]:
    """Make a loop that does nothing."""
    return lambda: None, 0.0, ""


def make_memory_load() -> tuple[Callable[[], None], float, str]:
    """Make copies of two blocks of memory; return the call, its amount of work, and the unit."""
    one, other = (np.ones(MEMORY_BYTES, np.uint8) for _ in range(2))

    def work() -> None:
        np.copyto(one, other)
        np.copyto(other, one)

    # Each byte is read and written.
    return work, 4 * MEMORY_BYTES / 1e9, "GB/s"


def make_gpu_load() -> tuple[Callable[[], None], float, str]:
    """Make products of matrices on the first GPU; exits with code 3 if torch sees none."""
    try:
        import torch
    except ImportError:
        sys.exit(3)
    if not torch.cuda.is_available():
        sys.exit(3)
    one = torch.rand((GPU_SIDE, GPU_SIDE), device="cuda")
    other = torch.empty_like(one)

    def work() -> None:
        for _ in range(_CALLS_IN_FLIGHT):
            torch.matmul(one, one, out=other)
        torch.cuda.synchronize()

    return work, _CALLS_IN_FLIGHT * 2 * GPU_SIDE**3 / 1e12, "TFLOP/s"


LOADS = {"cpu": make_cpu_load, "memory": make_memory_load, "gpu": make_gpu_load}


def main(kind: str) -> None:
    """Run the load until stdin is closed."""
    work, amount, unit = LOADS[kind]()
    work()
    count = 0
    begin_s = time.monotonic()

    def end() -> None:
        try:
            sys.stdin.read()
            rate = count * amount / (time.monotonic() - begin_s)
            if unit:
                print(json.dumps({"rate": rate, "unit": unit}), flush=True)
        finally:  # the process that started this one may be gone, and with it the reader
            os._exit(0)

    print(READY, flush=True)
    threading.Thread(target=end, daemon=True).start()
    while True:
        work()
        count += 1


if __name__ == "__main__":
    main(sys.argv[1])
