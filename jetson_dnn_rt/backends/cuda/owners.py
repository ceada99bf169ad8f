# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Owners of memory and streams on a CUDA device: torch, or cuda-python.

TensorRT provides neither. torch is used where it sees a device; otherwise (an installation with
TensorRT alone, or a CPU build of torch) cuda-python.
"""

# ruff: noqa: D102 - the methods of owners are documented by `Cuda`
from __future__ import annotations

import ctypes
import functools
import importlib
import inspect
import math
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array
from jetson_dnn_rt.backends.cuda.device import (
    Cuda,
    CudaError,
    DeviceProperties,
    address_of,
    count_bytes,
    regions,
)
from jetson_dnn_rt.backends.cuda.driver import CudaDriver
from jetson_dnn_rt.errors import BackendUnavailableError

S = TypeVar("S")
T = TypeVar("T")

FIX = "pip install torch (on Jetson: NVIDIA's wheel for your JetPack) or cuda-python"

RUNTIMES = ("cuda.bindings.runtime", "cuda.cudart")
"""cuda-python's module: the first name from 11.8.6 and 12.6 on, the second before; same API."""


def open_cuda() -> Cuda:
    """Open a stream on the current device, with torch or else cuda-python.

    `BackendUnavailableError` where neither torch nor cuda-python has a device, with the reasons.
    """
    reasons = []
    for owner in (TorchCuda, PythonCuda):
        try:
            return owner()
        except BackendUnavailableError as error:
            reasons.append(str(error))
    raise BackendUnavailableError(f"no CUDA device: {'; '.join(reasons)}; {FIX}")


def _describe(address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> dict[str, Any]:
    """Array interface of memory in C order."""
    return {
        "shape": tuple(shape),
        "typestr": np.dtype(dtype).str,
        "data": (address, False),
        "strides": None,
        "version": 3,
    }


# -- streams ---------------------------------------------------------------------------------


class ThreadStreams(Generic[S]):
    """The calling thread's streams, made at their first use and kept as long as the thread lives.

    `make` maps an urgency, >= 0, to a stream: the higher, the earlier the device runs its work.
    """

    def __init__(self, make: Callable[[int], S]) -> None:
        self._make = make
        self._local = threading.local()

    def get(self, urgency: int) -> S:
        """The calling thread's stream of a deadline class."""
        streams: dict[int, S] = self._local.__dict__.setdefault("streams", {})
        stream = streams.get(urgency)
        if stream is None:
            stream = streams[urgency] = self._make(urgency)
        return stream


POOL_SIZE = 32
"""Number of streams of one priority that torch has on a device."""


class StreamPool(Generic[S]):
    """Streams of a library that hands out the same few in turn, as torch does with 32.

    Two users of one stream would wait for each other, and work that is queued on a stream
    while another thread captures a graph on it would break both. So streams that must not be
    shared are reserved: while they live, they are not handed out again.

    `make` maps a priority to the next stream, which must allow weak references; `handle` maps a
    stream to its CUDA handle.
    """

    def __init__(self, make: Callable[[int], S], handle: Callable[[S], int]) -> None:
        self._make, self._handle = make, handle
        self._reserved: set[int] = set()
        self._lock = threading.Lock()

    def take(self, priority: int, *, reserve: bool) -> S:
        """A stream that is not reserved; where all are, a reserved one."""
        with self._lock:
            for _ in range(POOL_SIZE):
                stream = self._make(priority)
                handle = self._handle(stream)
                if handle not in self._reserved:
                    break
            if reserve and handle not in self._reserved:
                self._reserved.add(handle)
                weakref.finalize(stream, self._reserved.discard, handle)
            return stream


# -- torch -----------------------------------------------------------------------------------


def _next_stream(priority: int) -> Any:
    import torch

    return torch.cuda.Stream(priority=priority)  # type: ignore[no-untyped-call]


_capturing = threading.Lock()  # torch records one graph at a time in a process
_pool = StreamPool[Any](_next_stream, lambda stream: int(stream.cuda_stream))
# Lower numbers go first; values are clamped to the device's range.
_torch_streams = ThreadStreams[Any](lambda urgency: _pool.take(-urgency, reserve=True))


@functools.cache
def _capture_stream() -> Any:
    return _pool.take(0, reserve=True)


class _DeviceView:
    """Memory at a device address, in the form that torch adopts."""

    def __init__(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> None:
        self.__cuda_array_interface__ = _describe(address, shape, dtype)


class TorchCuda:
    """torch's memory and streams: see `Cuda`.

    `BackendUnavailableError` where torch is missing or sees no device.
    """

    def __init__(self) -> None:
        try:
            import torch
        except Exception as error:  # a broken installation raises OSError and others
            raise BackendUnavailableError(f"torch cannot be imported ({error})") from error
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            available = torch.cuda.is_available()
        if not available:
            note = str(caught[0].message).split("(")[0].strip() if caught else "none seen"
            raise BackendUnavailableError(f"torch {torch.__version__} has none ({note})")
        self.owner = f"torch {torch.__version__}"
        self._torch: Any = torch
        self._own: Any = _pool.take(0, reserve=False)
        self._stream = self._own
        self._done: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    def _type_of(self, dtype: npt.DTypeLike) -> Any:
        # torch has no other way to convert a numpy dtype to its own.
        return self._torch.from_numpy(np.empty(0, dtype)).dtype

    def allocate(
        self, shape: Sequence[int], dtype: npt.DTypeLike, *, channels_last: bool = False
    ) -> Any:
        """Allocate a device tensor of zeros, with channels last in memory if asked for."""
        torch, kind = self._torch, self._type_of(dtype)
        order = torch.channels_last if channels_last else torch.contiguous_format
        with torch.cuda.stream(self._stream):
            tensor = torch.empty(tuple(shape), dtype=kind, device="cuda", memory_format=order)
            return tensor.zero_()

    def allocate_host(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        kind = self._type_of(dtype)
        tensor = self._torch.zeros(tuple(shape), dtype=kind, pin_memory=True)
        array: npt.NDArray[Any] = tensor.numpy()
        return array

    def allocate_mapped(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Allocate a page-locked host array of zeros that kernels read and write in place.

        With one address space for host and device, as on every 64-bit Linux, all page-locked
        memory is mapped (CUDA C programming guide, "Unified virtual address space"); the driver
        returns its address, or an error.
        """
        array = self.allocate_host(shape, dtype)
        address = int(array.ctypes.data)
        # The tensor that numpy references as the base of all views.
        regions.add(array.base, address, array.nbytes, self._driver.device_address(address))
        return array

    def view(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> Any:
        # torch asks the driver which device owns the memory.
        return self._as_tensor(_DeviceView(address, shape, dtype))

    def properties(self) -> DeviceProperties:
        return self._driver.properties()

    @functools.cached_property
    def _driver(self) -> CudaDriver:
        return CudaDriver()

    def copy(self, destination: Array, source: Array) -> None:
        with self._torch.cuda.stream(self._stream):
            self._as_tensor(destination).copy_(self._as_tensor(source), non_blocking=True)

    def _as_tensor(self, array: Array) -> Any:
        torch = self._torch
        if isinstance(array, torch.Tensor):
            return array
        if isinstance(array, np.ndarray):
            return torch.from_numpy(array)
        return torch.as_tensor(array, device="cuda")

    def use_thread_stream(self, urgency: int) -> None:
        self._stream = _torch_streams.get(urgency)

    def use_own_stream(self) -> None:
        self._stream = self._own

    def run(self, work: Callable[[int], T]) -> T:
        with self._torch.cuda.stream(self._stream):
            return work(self._stream.cuda_stream)

    def capture(self, work: Callable[[int], T]) -> tuple[Callable[[], None], T]:
        # On a separate stream, so that a failure leaves ours unchanged.
        torch = self._torch
        # Tasks on other threads go on using the device.
        parameters = inspect.signature(torch.cuda.graph).parameters
        known = "capture_error_mode" in parameters
        mode = {"capture_error_mode": "thread_local"} if known else {}
        graph = torch.cuda.CUDAGraph()
        reason: Exception | None = None
        try:
            with _capturing, torch.cuda.graph(graph, stream=_capture_stream(), **mode):
                try:
                    result = work(torch.cuda.current_stream().cuda_stream)
                except Exception as error:
                    reason = error
                    raise
        except Exception as error:
            # Ending a failed capture raises again, with a less helpful error.
            raise reason or error from None

        def launch() -> None:
            with torch.cuda.stream(self._stream):
                graph.replay()

        return launch, result

    def synchronize(self) -> None:
        self._done.record(self._stream)
        self._done.synchronize()

    def close(self) -> None:
        self._stream.synchronize()
        self._own.synchronize()


# -- cuda-python -----------------------------------------------------------------------------


def import_runtime() -> Any:
    """cuda-python's functions of the CUDA runtime."""
    reason = ""
    for name in RUNTIMES:
        try:
            with warnings.catch_warnings():  # the old name is deprecated
                warnings.simplefilter("ignore")
                return importlib.import_module(name)
        except Exception as error:  # a broken installation raises OSError and others
            reason = reason or str(error)
    raise BackendUnavailableError(f"cuda-python cannot be imported ({reason})")


class DeviceArray:
    """Device memory in C order."""

    def __init__(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self._address = address
        self._whole: DeviceArray | None = None

    def __getitem__(self, rows: slice) -> DeviceArray:
        """A contiguous slice of the first axis, which keeps the whole array alive."""
        first, end, step = rows.indices(self.shape[0])
        if step != 1:
            raise ValueError(f"rows of device memory must be contiguous: {rows}")
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        shape = (max(0, end - first), *self.shape[1:])
        part = DeviceArray(self._address + first * row, shape, self.dtype)
        part._whole = self
        return part

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return _describe(self._address, self.shape, self.dtype)


class _PinnedMemory:
    """Page-locked bytes with an array interface; freed with the last view."""

    def __init__(self, address: int, size: int) -> None:
        self.__array_interface__ = _describe(address, (size,), np.uint8)


class _Stream:
    """A stream; destroyed when no thread and no runner references it any more."""

    def __init__(self, handle: Any, destroy: Callable[[Any], object]) -> None:
        self.handle = handle
        weakref.finalize(self, destroy, handle)


# By runtime library, of which tests have several.
_runtime_streams: weakref.WeakKeyDictionary[Any, ThreadStreams[_Stream]] = (
    weakref.WeakKeyDictionary()
)


class PythonCuda:
    """Memory and streams of cuda-python, or of another `runtime`: see `Cuda`.

    `BackendUnavailableError` where cuda-python is missing or finds no driver or device.
    """

    def __init__(self, runtime: Any = None) -> None:
        self._runtime = runtime = runtime or import_runtime()
        try:
            count = self._call("cudaGetDeviceCount")
        except Exception as error:  # without a driver the functions cannot be loaded at all
            raise BackendUnavailableError(f"cuda-python has none ({error})") from error
        if not count:
            raise BackendUnavailableError("cuda-python has none (the driver lists no device)")
        self.owner = "cuda-python"
        streams = ThreadStreams(self._make_stream)
        self._thread_streams = _runtime_streams.setdefault(runtime, streams)
        self._own: _Stream | None = self._make_stream(0)
        self._used = self._own
        flags = runtime.cudaEventBlockingSync | runtime.cudaEventDisableTiming
        self._done = self._call("cudaEventCreateWithFlags", flags)
        self._held: list[npt.NDArray[Any]] = []
        self._graphs: list[Any] = []

    @property
    def _stream(self) -> Any:
        """Handle of the stream in use."""
        return self._used.handle

    def _make_stream(self, urgency: int) -> _Stream:
        lowest, highest = map(int, self._call("cudaDeviceGetStreamPriorityRange"))
        priority = max(highest, lowest - urgency)  # lower numbers go first
        flags = self._runtime.cudaStreamNonBlocking
        handle = self._call("cudaStreamCreateWithPriority", flags, priority)
        return _Stream(handle, self._runtime.cudaStreamDestroy)

    def use_thread_stream(self, urgency: int) -> None:
        self._used = self._thread_streams.get(urgency)

    def use_own_stream(self) -> None:
        assert self._own is not None, "it was closed"
        self._used = self._own

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *values = getattr(self._runtime, name)(*arguments)
        if int(status) != 0:
            raise CudaError(f"{name}: {getattr(status, 'name', status)}")
        return values[0] if len(values) == 1 else values

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike) -> DeviceArray:
        size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
        address = int(self._call("cudaMalloc", size))
        array = DeviceArray(address, shape, dtype)
        # The status is ignored: at process exit the device may already be gone.
        weakref.finalize(array, self._runtime.cudaFree, address)
        self._call("cudaMemsetAsync", address, 0, size, self._stream)
        return array

    def allocate_host(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return self._allocate_host(shape, dtype, self._runtime.cudaHostAllocDefault)[1]

    def allocate_mapped(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        memory, array = self._allocate_host(shape, dtype, self._runtime.cudaHostAllocMapped)
        address = address_of(array)
        device_address = int(self._call("cudaHostGetDevicePointer", address, 0))
        regions.add(memory, address, array.nbytes, device_address)
        return array

    def _allocate_host(
        self, shape: Sequence[int], dtype: npt.DTypeLike, flags: int
    ) -> tuple[_PinnedMemory, npt.NDArray[Any]]:
        size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
        address = int(self._call("cudaHostAlloc", size, flags))
        memory = _PinnedMemory(address, size)
        weakref.finalize(memory, self._runtime.cudaFreeHost, address)
        ctypes.memset(address, 0, size)
        count = math.prod(shape)
        return memory, np.asarray(memory).view(dtype)[:count].reshape(tuple(shape))

    def view(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> DeviceArray:
        return DeviceArray(address, shape, dtype)

    def properties(self) -> DeviceProperties:
        names = self._runtime.cudaDeviceAttr
        kinds = (
            names.cudaDevAttrIntegrated,
            names.cudaDevAttrCanMapHostMemory,
            names.cudaDevAttrComputeCapabilityMajor,
            names.cudaDevAttrComputeCapabilityMinor,
        )
        integrated, maps, major, minor = (
            int(self._call("cudaDeviceGetAttribute", kind, 0)) for kind in kinds
        )
        return DeviceProperties(bool(integrated), bool(maps), (major, minor))

    def copy(self, destination: Array, source: Array) -> None:
        """Queue a copy of memory in C order; a host array in another order is converted first."""
        if isinstance(source, np.ndarray) and not source.flags.c_contiguous:
            source = np.ascontiguousarray(source)
            self._held.append(source)  # until the copy is done
        for array in (source, destination):
            _check_order(array)
        size, room = count_bytes(source), count_bytes(destination)
        if size != room:
            raise CudaError(f"{size} bytes do not fit where {room} are expected")
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyDefault  # inferred from the addresses
        arguments = (address_of(destination), address_of(source), size, kind, self._stream)
        self._call("cudaMemcpyAsync", *arguments)

    def run(self, work: Callable[[int], T]) -> T:
        return work(int(self._stream))

    def capture(self, work: Callable[[int], T]) -> tuple[Callable[[], None], T]:
        mode = self._runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._call("cudaStreamBeginCapture", self._stream, mode)
        try:
            result = work(int(self._stream))
        except BaseException:
            # The capture must be ended; report the error above.
            self._runtime.cudaStreamEndCapture(self._stream)
            self._runtime.cudaGetLastError()
            raise
        graph = self._call("cudaStreamEndCapture", self._stream)
        executable = self._call("cudaGraphInstantiateWithFlags", graph, 0)
        self._call("cudaGraphDestroy", graph)
        self._graphs.append(executable)
        return lambda: self._call("cudaGraphLaunch", executable, self._stream), result

    def synchronize(self) -> None:
        self._call("cudaEventRecord", self._done, self._stream)
        self._call("cudaEventSynchronize", self._done)
        self._held.clear()

    def close(self) -> None:
        """Destroy graphs, event and stream; a thread's stream stays with the thread."""
        if self._own is None:
            return
        try:
            self.synchronize()
        finally:
            # Statuses are ignored: after an illegal access each call has that error.
            for graph in self._graphs:
                self._runtime.cudaGraphExecDestroy(graph)
            self._graphs.clear()
            self._runtime.cudaEventDestroy(self._done)
            self._own = None
            del self._used


def _check_order(array: Array) -> None:
    """Refuse a device array that is not in C order."""
    interface = {} if isinstance(array, np.ndarray) else array.__cuda_array_interface__
    if interface.get("strides") is None:
        return
    size, shape = np.dtype(interface["typestr"]).itemsize, interface["shape"]
    steps = (size * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    if tuple(interface["strides"]) != tuple(steps):
        raise CudaError(
            "only torch can reorder a device array whose channels are last in memory; fix: "
            "install a torch that sees the device"
        )
