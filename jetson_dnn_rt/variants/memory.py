"""How much memory a variant takes: host and device, as the system counts it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from pathlib import Path


def resident_bytes() -> int:
    """Resident memory of this process, after what is free was given back to the system.

    A variant's memory is what its `close` gives back, not what its making takes: the first use of
    a back end grows the process by its pools and kernels, which stay. With the built-in detector
    making it took 66 MB (ONNX Runtime) and 72 MB (OpenVINO) the first time, 9.6 and 8.5 MB the
    third; closing it gave back 9.5 and 8.3 MB from the second time on.
    """
    gc.collect()
    _trim()
    pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def device_bytes() -> int:
    """Memory in use on the GPU, by all processes; 0 where torch sees none.

    On a Jetson it is the same memory that the host uses.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def _trim() -> None:
    with contextlib.suppress(AttributeError):  # not glibc: its allocator decides
        ctypes.CDLL(None).malloc_trim(0)
