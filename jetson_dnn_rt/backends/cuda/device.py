# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A CUDA device as runners use it: one stream at a time, host memory and device memory.

An integrated GPU shares the host's memory and reads *mapped* page-locked memory in place. A
discrete GPU fetches *pinned* memory by DMA while kernels run; *pageable* memory is first copied by
the driver. With integrated GPUs before compute capability 7.2, page-locked memory is not cached by
the CPU (NVIDIA, CUDA for Tegra, "Memory types"), which makes the input pass on the CPU very slow:
there, pageable memory is the fastest.
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
"""In bytes, of memory from which a device reads a tensor: TensorRT requires it."""

_CACHED_SINCE = (7, 2)


class CudaError(BackendUnavailableError):
    """A CUDA call failed."""


@dataclass(frozen=True)
class DeviceProperties:
    """Properties of a device that decide from which memory it reads frames."""

    integrated: bool  # shares the memory of the host, as on a Jetson
    maps_host_memory: bool  # its kernels can read page-locked host memory in place
    capability: tuple[int, int]  # compute capability, e.g. (8, 7)


class Cuda(Protocol):
    """Memory and streams for runners on a CUDA device; work is queued on one stream at a time.

    That is a stream of its own, or one of the thread that uses it: see `use_thread_stream`. A
    failed call raises `CudaError`. Arrays are in C order; new ones are zeros.
    """

    owner: str  # library that owns memory and stream, with its version

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """Allocate a device array, with ``__cuda_array_interface__``."""

    def allocate_host(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Allocate a host array in page-locked memory, which the device reads by DMA."""

    def allocate_mapped(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Allocate a host array in page-locked memory that kernels read and write in place.

        `regions` finds the device address of it and of its views.
        """

    def view(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """View memory at a device address as an array, which does not keep it alive."""

    def properties(self) -> DeviceProperties:
        """Properties of the device."""

    def copy(self, destination: Array, source: Array) -> None:
        """Queue a copy between arrays of one shape and type, each on the host or the device.

        `CudaError` where the source is not in C order and its owner cannot reorder it.
        """

    def use_thread_stream(self, urgency: int) -> None:
        """Queue on the calling thread's stream of this deadline class from now on.

        0 is CUDA's lowest priority, each step a higher one, up to the device's highest. The stream
        used before must be idle.
        """

    def use_own_stream(self) -> None:
        """Queue on the instance's own stream, which nothing else uses, from now on."""

    def run(self, work: Callable[[int], T]) -> T:
        """Call `work` with the stream's handle, with the stream current where that exists."""

    def capture(self, work: Callable[[int], T]) -> tuple[Callable[[], None], T]:
        """Record what `work` queues as a CUDA graph.

        Returns a function that queues the graph on the stream, and the return value of `work`,
        whose arrays are written by each launch. Raises any exception where `work` cannot be
        captured, because it waits for the device or allocates memory.
        """

    def synchronize(self) -> None:
        """Wait until all queued work is done; the thread sleeps instead of spinning."""

    def close(self) -> None:
        """Release the stream; arrays live as long as they are referenced."""


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
    """Resolve `wanted` to ``mapped``, ``pinned`` or ``pageable``; only ``auto`` is a choice.

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
    """Device addresses of this process's mapped host memory."""

    def __init__(self) -> None:
        self._regions: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def add(self, owner: Any, host_address: int, size: int, device_address: int) -> None:
        """Register a region until `owner`, which every view of it references, is freed."""
        with self._lock:
            self._regions[host_address] = (size, device_address)
        weakref.finalize(owner, self._forget, host_address)

    def _forget(self, host_address: int) -> None:
        with self._lock:
            self._regions.pop(host_address, None)

    def find(self, array: npt.NDArray[Any]) -> int:
        """Device address of an array's first element; 0 where it is not in mapped memory."""
        address = int(array.ctypes.data)
        with self._lock:
            for first, (size, device_address) in self._regions.items():
                if first <= address < first + size:
                    return device_address + address - first
        return 0


regions = MappedRegions()
"""Global, because no object is shared by all code that looks up memory."""
