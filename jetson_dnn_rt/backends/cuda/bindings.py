"""CUDA memory and a stream, owned by cuda-python."""

from __future__ import annotations

import ctypes
import importlib
import math
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array
from jetson_dnn_rt.backends.cuda.device import CudaError, address_of
from jetson_dnn_rt.backends.cuda.driver import DeviceProperties
from jetson_dnn_rt.backends.cuda.memory import regions
from jetson_dnn_rt.backends.cuda.streams import ThreadStreams
from jetson_dnn_rt.errors import BackendUnavailableError

T = TypeVar("T")

# Since cuda-python 11.8.6 and 12.6 the first, before only the other; their functions are the same.
_MODULES = ("cuda.bindings.runtime", "cuda.cudart")


def import_runtime() -> Any:
    """The module of the CUDA runtime's functions, whatever cuda-python calls it.

    Raises
    ------
    BackendUnavailableError
        When cuda-python is missing.
    """
    reason = ""
    for name in _MODULES:
        try:
            with warnings.catch_warnings():  # the old name warns of the new one
                warnings.simplefilter("ignore")
                return importlib.import_module(name)
        except Exception as error:  # a broken installation raises OSError and others
            reason = reason or str(error)
    raise BackendUnavailableError(f"cuda-python cannot be imported ({reason})")


class DeviceArray:
    """Device memory in C order; freed with the object, where it is the object's.

    Attributes
    ----------
    shape : tuple of int
        Of the array.
    dtype : numpy.dtype
        Of its elements.
    """

    def __init__(
        self,
        address: int,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
        free: Callable[[], None] | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self._address = address
        self._whole: DeviceArray | None = None
        if free is not None:
            weakref.finalize(self, free)

    def __getitem__(self, rows: slice) -> DeviceArray:
        """Some of the first axis' entries, next to each other; the whole lives as long as they."""
        first, end, step = rows.indices(self.shape[0])
        if step != 1:
            raise ValueError(f"rows of device memory are taken one after the other: {rows}")
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        part = DeviceArray(
            self._address + first * row, (max(0, end - first), *self.shape[1:]), self.dtype
        )
        part._whole = self
        return part

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._address, False),
            "strides": None,
            "version": 3,
        }


class _PinnedMemory:
    """Page-locked bytes as numpy sees them; freed when the last view is gone."""

    def __init__(self, address: int, size: int, free: Callable[[], None]) -> None:
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
        weakref.finalize(self, free)


class _Stream:
    """A stream; destroyed when the last thread and the last runner that used it are gone."""

    def __init__(self, handle: Any, destroy: Callable[[Any], object]) -> None:
        self.handle = handle
        weakref.finalize(self, destroy, handle)


# By the library, of which tests have several.
_thread_streams: weakref.WeakKeyDictionary[Any, ThreadStreams[_Stream]] = (
    weakref.WeakKeyDictionary()
)


class PythonCuda:
    """See `jetson_dnn_rt.backends.cuda.device.Cuda`.

    Parameters
    ----------
    runtime : module, optional
        The CUDA runtime's functions; cuda-python's by default.

    Raises
    ------
    BackendUnavailableError
        When cuda-python is missing or finds no driver or device.
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
        self._thread_streams = _thread_streams.setdefault(
            runtime, ThreadStreams(self._make_stream)
        )
        self._own: _Stream | None = self._make_stream(0)
        self._used = self._own
        flags = runtime.cudaEventBlockingSync | runtime.cudaEventDisableTiming
        self._done = self._call("cudaEventCreateWithFlags", flags)
        self._held: list[npt.NDArray[Any]] = []
        self._graphs: list[Any] = []

    @property
    def _stream(self) -> Any:
        """Handle of the stream that is used now."""
        return self._used.handle

    def _make_stream(self, urgency: int) -> _Stream:
        runtime = self._runtime
        status, lowest, highest = runtime.cudaDeviceGetStreamPriorityRange()
        if int(status) != 0:
            raise CudaError(f"cudaDeviceGetStreamPriorityRange: {getattr(status, 'name', status)}")
        # Lower numbers go first.
        priority = max(int(highest), int(lowest) - urgency)
        flags = runtime.cudaStreamNonBlocking
        handle = self._call("cudaStreamCreateWithPriority", flags, priority)
        return _Stream(handle, runtime.cudaStreamDestroy)

    def use_thread_stream(self, urgency: int) -> None:
        """Queue on the calling thread's stream from now on."""
        self._used = self._thread_streams.get(urgency)

    def use_own_stream(self) -> None:
        """Queue on the stream that it was made with."""
        assert self._own is not None, "it was closed"
        self._used = self._own

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *values = getattr(self._runtime, name)(*arguments)
        if int(status) != 0:
            raise CudaError(f"{name}: {getattr(status, 'name', status)}")
        return values[0] if values else None

    def _freeing(self, name: str, address: int) -> Callable[[], None]:
        function = getattr(self._runtime, name)

        def free() -> None:
            function(address)  # at the end of the process there may be no device any more

        return free

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike) -> DeviceArray:
        """Make a device array, zeros."""
        size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
        address = int(self._call("cudaMalloc", size))
        array = DeviceArray(address, shape, dtype, self._freeing("cudaFree", address))
        self._call("cudaMemsetAsync", address, 0, size, self._stream)
        return array

    def allocate_host(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Make a page-locked host array, zeros."""
        return self._allocate_host(shape, dtype, self._runtime.cudaHostAllocDefault)[1]

    def allocate_mapped(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Make a page-locked host array, zeros, that kernels read and write in place."""
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
        memory = _PinnedMemory(address, size, self._freeing("cudaFreeHost", address))
        ctypes.memset(address, 0, size)
        count = math.prod(shape)
        return memory, np.asarray(memory).view(dtype)[:count].reshape(tuple(shape))

    def view(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> DeviceArray:
        """See memory at an address."""
        return DeviceArray(address, shape, dtype)

    def properties(self) -> DeviceProperties:
        """Ask the runtime."""
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
        """Queue a copy of memory in C order; a host array in another is put in order first."""
        if isinstance(source, np.ndarray) and not source.flags.c_contiguous:
            source = np.ascontiguousarray(source)
            self._held.append(source)  # until the copy is done
        size = _size_of(source)
        if size != _size_of(destination):
            raise CudaError(f"{size} bytes do not fit where {_size_of(destination)} are expected")
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyDefault  # by the addresses
        arguments = (address_of(destination), address_of(source), size, kind, self._stream)
        self._call("cudaMemcpyAsync", *arguments)

    def run(self, work: Callable[[int], T]) -> T:
        """Call `work` with the stream's handle."""
        return work(int(self._stream))

    def capture(self, work: Callable[[int], T]) -> tuple[Callable[[], None], T]:
        """Record a graph on our own stream."""
        mode = self._runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._call("cudaStreamBeginCapture", self._stream, mode)
        try:
            result = work(int(self._stream))
        except BaseException:
            # Ends the capture, which gives nothing now; the error above is the one to be seen.
            self._runtime.cudaStreamEndCapture(self._stream)
            self._runtime.cudaGetLastError()
            raise
        graph = self._call("cudaStreamEndCapture", self._stream)
        executable = self._call("cudaGraphInstantiateWithFlags", graph, 0)
        self._call("cudaGraphDestroy", graph)
        self._graphs.append(executable)
        return lambda: self._call("cudaGraphLaunch", executable, self._stream), result

    def synchronize(self) -> None:
        """Sleep until the stream is done."""
        self._call("cudaEventRecord", self._done, self._stream)
        self._call("cudaEventSynchronize", self._done)
        self._held.clear()

    def close(self) -> None:
        """Destroy graphs, event and stream; a thread's stream stays with the thread."""
        if self._own is None:
            return
        self.synchronize()
        for graph in self._graphs:
            self._call("cudaGraphExecDestroy", graph)
        self._graphs.clear()
        self._call("cudaEventDestroy", self._done)
        self._own = None
        del self._used


def _size_of(array: Array) -> int:
    if isinstance(array, np.ndarray):
        return array.nbytes
    interface = array.__cuda_array_interface__
    shape: tuple[int, ...] = tuple(interface["shape"])
    item = np.dtype(interface["typestr"]).itemsize
    strides = interface.get("strides")
    expected, step = [], item
    for side in reversed(shape):
        expected.append(step)
        step *= side
    if strides is not None and tuple(strides) != tuple(reversed(expected)):
        raise CudaError(
            "a device array whose channels are last in memory is put in order by torch alone: "
            "install a torch that sees the device"
        )
    return int(math.prod(shape) * item)
