"""Which host memory a CUDA device reads frames and inputs from.

On an integrated GPU the host's memory is the device's: what lies in *mapped* page-locked memory is
read in place. A discrete GPU fetches *pinned* memory by itself while others compute; *pageable*
memory the driver copies first. Integrated GPUs before compute capability 7.2 switch the CPU's
cache off for page-locked memory (NVIDIA, CUDA for Tegra, "Memory types"), and the input pass on
the CPU would crawl: there, pageable memory is the fastest.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy.typing as npt

from jetson_dnn_rt.backends.cuda.driver import DeviceProperties
from jetson_dnn_rt.config.task import MEMORY_KINDS
from jetson_dnn_rt.errors import ConfigurationError

_CACHED_SINCE = (7, 2)
ALIGNMENT = 256
"""In bytes, of memory that a device reads a tensor from: TensorRT asks for it."""


def choose_memory(wanted: str, properties: DeviceProperties) -> str:
    """``mapped``, ``pinned`` or ``pageable`` on a device.

    Parameters
    ----------
    wanted : str
        One of `MEMORY_KINDS`; anything but ``auto`` is taken as it is.
    properties : DeviceProperties
        Of the device.

    Raises
    ------
    ConfigurationError
        When it is none of them, or the device does not map host memory.
    """
    if wanted not in MEMORY_KINDS:
        raise ConfigurationError(f"memory must be one of {', '.join(MEMORY_KINDS)}: {wanted!r}")
    if wanted == "mapped" and not properties.maps_host_memory:
        raise ConfigurationError(
            "memory: mapped: this device does not read host memory in place; use pinned"
        )
    if wanted != "auto":
        return wanted
    if not properties.integrated:
        return "pinned"
    cached = properties.capability >= _CACHED_SINCE
    return "mapped" if cached and properties.maps_host_memory else "pageable"


class MappedRegions:
    """Where a device finds the mapped host memory of this process."""

    def __init__(self) -> None:
        self._regions: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def add(self, owner: Any, host_address: int, size: int, device_address: int) -> None:
        """Note a region until `owner`, which every view of it refers to, is gone."""
        with self._lock:
            self._regions[host_address] = (size, device_address)
        weakref.finalize(owner, self._forget, host_address)

    def _forget(self, host_address: int) -> None:
        with self._lock:
            self._regions.pop(host_address, None)

    def find(self, array: npt.NDArray[Any]) -> int:
        """The device's address of an array's first element; 0 where it is not in mapped memory."""
        address = int(array.ctypes.data)
        with self._lock:
            for first, (size, device_address) in self._regions.items():
                if first <= address < first + size:
                    return device_address + address - first
        return 0


regions = MappedRegions()
"""Of this process: memory belongs to no object that all who look for it have in their hands."""
