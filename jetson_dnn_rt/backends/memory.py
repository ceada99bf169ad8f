"""How much memory there is in use, on the host and on a CUDA device."""

from __future__ import annotations

import sys
from typing import Any

import psutil

from jetson_dnn_rt.backends.cuda.owners import RUNTIMES, open_cuda
from jetson_dnn_rt.errors import BackendUnavailableError


def used_bytes(device: str = "cpu") -> int:
    """Memory in use, to be compared before and after something is loaded.

    ``cpu``: the resident memory of this process. ``cuda``: with it what is in use on the device,
    of all processes, because drivers tell no more; the device is opened for it. A Jetson's GPU
    shares the memory of the host: what the whole machine uses counts, once.
    """
    resident = int(psutil.Process().memory_info().rss)
    if device != "cuda":
        return resident
    try:
        open_cuda().close()  # what opening it takes belongs to no variant
    except BackendUnavailableError:
        return resident
    found = _find_device()
    if found is None:
        return resident
    used, shared = found
    return used if shared else int(psutil.Process().memory_info().rss) + used


def _find_device() -> tuple[int, bool] | None:
    """Bytes in use on the device, and whether they are the host's; None where none is open."""
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
            return None
        return (int(total - free), bool(shared)) if int(status) == 0 else None
    return None
