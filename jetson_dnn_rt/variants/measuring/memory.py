"""How much memory a variant takes: what its closing gives back."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from dataclasses import dataclass
from typing import Any

from jetson_dnn_rt.backends.memory import used_bytes


@dataclass(frozen=True)
class MemoryUse:
    """Bytes in use on the host and, besides, on the device."""

    host: int
    device: int

    def freed_until(self, later: MemoryUse) -> MemoryUse:
        """What was given back from now to then."""
        return MemoryUse(max(0, self.host - later.host), max(0, self.device - later.device))


def measure_memory(device: str = "cpu") -> MemoryUse:
    """Memory in use, after what is free was given back to the system and to the driver.

    A variant's memory is what its `close` gives back, not what its making takes: the first use of
    a back end grows the process by its pools and kernels, which stay. With the built-in detector
    making it took 66 MB (ONNX Runtime) and 72 MB (OpenVINO) the first time, 9.6 and 8.5 MB the
    third; closing it gave back 9.5 and 8.3 MB from the second time on.

    Parameters
    ----------
    device : str
        ``cpu`` or ``cuda``, see `jetson_dnn_rt.backends.memory.used_bytes`.
    """
    gc.collect()
    with contextlib.suppress(AttributeError):  # not glibc: its allocator decides
        ctypes.CDLL(None).malloc_trim(0)
    torch: Any = sys.modules.get("torch")
    if device == "cuda" and torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    host = used_bytes()
    return MemoryUse(host, used_bytes(device) - host if device == "cuda" else 0)
