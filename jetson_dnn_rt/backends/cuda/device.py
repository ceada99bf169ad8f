"""A CUDA device as runners use it: one stream at a time, and memory of host and device.

On an integrated GPU the host's memory is the device's: what lies in *mapped* page-locked memory is
read in place. A discrete GPU fetches *pinned* memory by itself while others compute; *pageable*
memory the driver copies first. Integrated GPUs before compute capability 7.2 switch the CPU's
cache off for page-locked memory (NVIDIA, CUDA for Tegra, "Memory types"), and the input pass on
the CPU would crawl: there, pageable memory is the fastest.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array
from jetson_dnn_rt.config.task import MEMORY_KINDS
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError

T = TypeVar("T")

ALIGNMENT = 256
"""In bytes, of memory that a device reads a tensor from: TensorRT requires it."""

_CACHED_SINCE = (7, 2)


class CudaError(BackendUnavailableError):
    """CUDA refused a call."""


@dataclass(frozen=True)
class DeviceProperties:
    """What decides which memory a device reads frames from."""

    integrated: bool  # shares the memory of the host, as on a Jetson
    maps_host_memory: bool  # its kernels can read page-locked host memory in place
    capability: tuple[int, int]  # compute capability, e.g. (8, 7)


class Cuda(Protocol):
    """What the runners on a CUDA device need; everything is queued on one stream at a time.

    That is a stream of its own, or one of the thread that uses it: see `use_thread_stream`. A
    `CudaError` says what CUDA refused. Arrays are in C order; new ones are zeros.
    """

    owner: str  # whose memory and stream it is, with its version

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """Make a device array, with ``__cuda_array_interface__``."""

    def allocate_host(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Make a host array in page-locked memory, which the device reads by itself."""

    def allocate_mapped(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Make a host array in page-locked memory that kernels read and write in place.

        `regions` knows the device's address of it and of its views.
        """

    def view(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """See memory at a device's address as an array, which does not keep it alive."""

    def properties(self) -> DeviceProperties:
        """What kind of device it is."""

    def copy(self, destination: Array, source: Array) -> None:
        """Queue a copy between arrays of one shape and type, each on the host or the device.

        `CudaError` where the source is not in C order and its owner cannot reorder it.
        """

    def use_thread_stream(self, urgency: int) -> None:
        """From now on, queue on the calling thread's stream of this deadline class.

        0 is CUDA's lowest priority, each step a higher one, as far as the device has them. Nothing
        may be queued on the stream that was used before.
        """

    def use_own_stream(self) -> None:
        """From now on, queue on the stream it was made with, which nobody else uses."""

    def run(self, work: Callable[[int], T]) -> T:
        """Call `work` with the handle of the stream, as the current one where there is such."""

    def capture(self, work: Callable[[int], T]) -> tuple[Callable[[], None], T]:
        """Record what `work` queues as a CUDA graph.

        The result is a function that queues the graph on the stream, and what `work` returned:
        arrays in it are written by each launch. Any exception where `work` cannot be captured: it
        waits for the device, or allocates by itself.
        """

    def synchronize(self) -> None:
        """Wait until all that is queued is done; the thread sleeps, no core spins."""

    def close(self) -> None:
        """Give the stream back; arrays live as long as they are referred to."""


def address_of(array: Array) -> int:
    """Address of the first element, on the host or the device."""
    if isinstance(array, np.ndarray):
        return int(array.ctypes.data)
    return int(array.__cuda_array_interface__["data"][0])


def count_bytes(array: Array) -> int:
    """Bytes of an array's elements, on the host or the device."""
    if isinstance(array, np.ndarray):
        return array.nbytes
    interface = array.__cuda_array_interface__
    size: int = math.prod(interface["shape"]) * np.dtype(interface["typestr"]).itemsize
    return size


def choose_memory(wanted: str, properties: DeviceProperties) -> str:
    """``mapped``, ``pinned`` or ``pageable`` on a device; only ``auto`` leaves the choice.

    `ConfigurationError` where `wanted` is none of `MEMORY_KINDS`, or the device does not map host
    memory.
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
        """Keep a region until `owner`, which every view of it refers to, is gone."""
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
"""Of this process: no object that all who look for memory have in common could hold them."""
