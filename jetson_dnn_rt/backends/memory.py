"""How much memory there is in use, on the host and on a CUDA device."""

from __future__ import annotations

import sys
from typing import Any

import psutil

_RUNTIMES = ("cuda.bindings.runtime", "cuda.cudart")


def used_bytes() -> int:
    """Memory in use, to be compared before and after something is loaded.

    The resident memory of this process and, once a library has opened a CUDA device, what is in
    use there; that is of all processes, drivers tell no more. A Jetson's GPU shares the memory
    of the host: there what the whole machine uses counts, once.
    """
    resident = int(psutil.Process().memory_info().rss)
    device = _find_device()
    if device is None:
        return resident
    used, shared = device
    return used if shared else resident + used


def _find_device() -> tuple[int, bool] | None:
    """Bytes in use on the device, and whether they are the host's; None where none is open."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        free, total = torch.cuda.mem_get_info()
        return total - free, bool(torch.cuda.get_device_properties(0).is_integrated)
    for name in _RUNTIMES:
        runtime: Any = sys.modules.get(name)
        if runtime is None:
            continue
        try:
            status, free, total = runtime.cudaMemGetInfo()
            kind = runtime.cudaDeviceAttr.cudaDevAttrIntegrated
            _, shared = runtime.cudaDeviceGetAttribute(kind, 0)
        except RuntimeError:  # no driver
            return None
        return (int(total - free), bool(shared)) if int(status) == 0 else None
    return None
