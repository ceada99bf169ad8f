# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A CUDA device made of host memory: what is queued happens when the stream is waited for.

As unkind as a device where code could come to depend on it: memory is not zero, work that fails
says so at the wait and not where it was queued, nothing works after that, and while a graph is
captured nothing is allocated and nothing waited for.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.cuda.device import ALIGNMENT, CudaError, DeviceProperties, regions


class FakeArray:
    """Memory that stands for a device's; `memory` is what the device sees."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory
        self.shape = memory.shape

    def __getitem__(self, rows: slice) -> FakeArray:
        return FakeArray(self.memory[rows])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        contiguous = self.memory.flags.c_contiguous
        return {
            "shape": self.memory.shape,
            "typestr": self.memory.dtype.str,
            "data": (self.memory.ctypes.data, False),
            "strides": None if contiguous else self.memory.strides,
            "version": 3,
        }


class FakeCuda:
    """See `backends.cuda.device.Cuda`; also the stream that fake engines are queued on."""

    owner = "fake"
    device = DeviceProperties(integrated=False, maps_host_memory=True, capability=(8, 7))
    streams: ClassVar[dict[int, FakeCuda]] = {}
    _handles = itertools.count(1)

    def __init__(self) -> None:
        self.handle = next(self._handles)
        self.streams[self.handle] = self
        self.queue: list[Callable[[], None]] = []
        self.recorded: list[Callable[[], None]] | None = None
        self.calls: list[str] = []
        self.used: list[tuple[int, int] | None] = []
        self.closed = False
        self.fault: CudaError | None = None
        """Of work that failed: every later call has it, too, as after an illegal access."""

    def _check(self, *, captured: bool = False) -> None:
        if self.fault is not None:
            raise self.fault
        if self.recorded is not None and not captured:
            raise CudaError("operation not permitted when stream is capturing")

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike) -> FakeArray:
        self._check()
        array, _ = allocate_aligned(shape, dtype)
        array[...] = 77
        return FakeArray(array)

    def allocate_host(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        self._check()
        return np.zeros(tuple(shape), dtype)

    def allocate_mapped(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        self._check()
        array, memory = allocate_aligned(shape, dtype)
        regions.add(memory, array.ctypes.data, array.nbytes, array.ctypes.data)
        return array

    def view(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> FakeArray:
        return FakeArray(view_memory(address, shape, dtype))

    def properties(self) -> DeviceProperties:
        return self.device

    def submit(self, name: str, work: Callable[[], None]) -> None:
        """Queue work, or record it while a graph is captured."""
        self._check(captured=True)
        if self.recorded is not None:
            self.recorded.append(work)
            return
        self.calls.append(name)
        self.queue.append(work)

    def copy(self, destination: Any, source: Any) -> None:
        target, origin = (getattr(array, "memory", array) for array in (destination, source))
        assert target.shape == origin.shape
        assert target.dtype == origin.dtype
        self.submit("copy", lambda: np.copyto(target, origin))

    def use_thread_stream(self, urgency: int) -> None:
        assert not self.queue, "work is queued on another stream"
        self.used.append((threading.get_ident(), urgency))

    def use_own_stream(self) -> None:
        assert not self.queue, "work is queued on another stream"
        self.used.append(None)

    def run(self, work: Callable[[int], Any]) -> Any:
        return work(self.handle)

    def capture(self, work: Callable[[int], Any]) -> tuple[Callable[[], None], Any]:
        self.recorded = []
        try:
            result = work(self.handle)
            recorded = self.recorded
        finally:
            self.recorded = None

        def play() -> None:
            for step in recorded:
                step()

        return lambda: self.submit("graph", play), result

    def synchronize(self) -> None:
        self._check()
        queue, self.queue = self.queue, []
        try:
            for work in queue:
                work()
        except CudaError as error:
            self.fault = error
            raise

    def close(self) -> None:
        self.closed = True
        self.synchronize()


class IntegratedCuda(FakeCuda):
    """An integrated GPU."""

    device = DeviceProperties(integrated=True, maps_host_memory=True, capability=(8, 7))


def allocate_aligned(
    shape: Sequence[int], dtype: npt.DTypeLike
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """An array of zeros that is aligned as the driver gives memory, and what holds it."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % ALIGNMENT
    return memory[first : first + size].view(dtype).reshape(tuple(shape)), memory


def view_memory(address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> np.ndarray:
    """The array at an address, as a kernel sees it."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_ubyte * size).from_address(address), dtype).reshape(shape)
