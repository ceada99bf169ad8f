# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Memory in use, on the host and on a CUDA device."""

from __future__ import annotations

import sys
from typing import Any

import psutil

from jetson_dnn_rt.backends.cuda.owners import RUNTIMES, open_cuda
from jetson_dnn_rt.errors import BackendUnavailableError


def used_bytes(device: str = "cpu") -> int:
    """Memory in use, in bytes, to compare before and after loading something.

    ``cpu``: the resident memory of this process. ``cuda``: plus the memory in use on the device,
    by all processes, because drivers report no more; the device is opened for it. A Jetson's GPU
    shares the host's memory: there, the memory in use on the whole machine counts once.
    """
    resident = int(psutil.Process().memory_info().rss)
    if device != "cuda":
        return resident
    try:
        open_cuda().close()  # memory used by opening it belongs to no variant
    except BackendUnavailableError:
        return resident
    used, shared = _find_device()
    return used if shared else int(psutil.Process().memory_info().rss) + used


def _find_device() -> tuple[int, bool]:
    """Bytes in use on the device, 0 where none is open, and whether it is host memory."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        free, total = torch.cuda.mem_get_info()
        return total - free, bool(torch.cuda.get_device_properties(0).is_integrated)
    for name in RUNTIMES:
        runtime: Any = sys.modules.get(name)
        if runtime is None:
            continue
        try:
            status, free, total = runtime.cudaMemGetInfo()
            kind = runtime.cudaDeviceAttr.cudaDevAttrIntegrated
            _, shared = runtime.cudaDeviceGetAttribute(kind, 0)
        except RuntimeError:  # no driver
            break
        return (int(total - free), bool(shared)) if int(status) == 0 else (0, False)
    return 0, False
