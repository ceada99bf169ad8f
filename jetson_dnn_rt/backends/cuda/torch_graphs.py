"""CUDA memory and a stream, owned by torch."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array
from jetson_dnn_rt.backends.cuda.driver import CudaDriver, DeviceProperties
from jetson_dnn_rt.backends.cuda.memory import regions
from jetson_dnn_rt.backends.cuda.streams import StreamPool, ThreadStreams
from jetson_dnn_rt.errors import BackendUnavailableError

T = TypeVar("T")

# torch records one graph at a time in a process.
_capturing = threading.Lock()


def _next_stream(priority: int) -> Any:
    import torch

    return torch.cuda.Stream(priority=priority)  # type: ignore[no-untyped-call]


_pool = StreamPool[Any](_next_stream, lambda stream: int(stream.cuda_stream))
# Lower numbers go first; what is beyond the device's range is its nearest.
_thread_streams = ThreadStreams[Any](lambda urgency: _pool.take(-urgency, reserve=True))


@functools.cache
def _capture_stream() -> Any:
    return _pool.take(0, reserve=True)


class _DeviceView:
    """Memory at a device's address, as torch takes it over."""

    def __init__(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> None:
        self.__cuda_array_interface__ = {
            "shape": tuple(shape),
            "typestr": np.dtype(dtype).str,
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


class TorchCuda:
    """See `jetson_dnn_rt.backends.cuda.device.Cuda`.

    Raises
    ------
    BackendUnavailableError
        When torch is missing or sees no device.
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

    def allocate(
        self, shape: Sequence[int], dtype: npt.DTypeLike, *, channels_last: bool = False
    ) -> Any:
        """Make a device tensor, zeros; maps may have their channels last in memory."""
        torch = self._torch
        # The empty numpy array is for its type: torch has no other way from one to the other.
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        order = torch.channels_last if channels_last else torch.contiguous_format
        with torch.cuda.stream(self._stream):
            tensor = torch.empty(tuple(shape), dtype=kind, device="cuda", memory_format=order)
            return tensor.zero_()

    def allocate_host(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Make a page-locked host array, zeros."""
        torch = self._torch
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        array: npt.NDArray[Any] = torch.zeros(tuple(shape), dtype=kind, pin_memory=True).numpy()
        return array

    def allocate_mapped(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Make a page-locked host array, zeros, that kernels read and write in place.

        With one address space for host and device, which every 64-bit Linux has, all page-locked
        memory is mapped (CUDA C programming guide, "Unified virtual address space"); the driver
        says where, or that it is not.
        """
        array = self.allocate_host(shape, dtype)
        address = int(array.ctypes.data)
        # The tensor that numpy holds as the base of all views.
        regions.add(array.base, address, array.nbytes, self._driver.device_address(address))
        return array

    def view(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> Any:
        """See memory at an address as a tensor; torch asks the driver whose memory it is."""
        return self._torch.as_tensor(_DeviceView(address, shape, dtype), device="cuda")

    def properties(self) -> DeviceProperties:
        """Ask the driver."""
        return self._driver.properties()

    @functools.cached_property
    def _driver(self) -> CudaDriver:
        return CudaDriver()

    def copy(self, destination: Array, source: Array) -> None:
        """Queue a copy; layouts may differ."""
        with self._torch.cuda.stream(self._stream):
            self._view(destination).copy_(self._view(source), non_blocking=True)

    def _view(self, array: Array) -> Any:
        torch = self._torch
        if isinstance(array, torch.Tensor):
            return array
        if isinstance(array, np.ndarray):
            return torch.from_numpy(array)
        return torch.as_tensor(array, device="cuda")

    def use_thread_stream(self, urgency: int) -> None:
        """Queue on the calling thread's stream from now on."""
        self._stream = _thread_streams.get(urgency)

    def use_own_stream(self) -> None:
        """Queue on the stream that memory was allocated for."""
        self._stream = self._own

    def run(self, work: Callable[[int], T]) -> T:
        """Call `work` with the stream being torch's current one."""
        with self._torch.cuda.stream(self._stream):
            return work(self._stream.cuda_stream)

    def capture(self, work: Callable[[int], T]) -> tuple[Callable[[], None], T]:
        """Record a graph on a stream for that alone, so that a failure leaves ours as it was."""
        torch = self._torch
        # Other threads may use the device meanwhile: their tasks go on.
        mode = (
            {"capture_error_mode": "thread_local"}
            if "capture_error_mode" in inspect.signature(torch.cuda.graph).parameters
            else {}
        )
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
            # Ending a capture that failed raises again, and says less than the first error.
            raise reason or error from None

        def launch() -> None:
            with torch.cuda.stream(self._stream):
                graph.replay()

        return launch, result

    def synchronize(self) -> None:
        """Sleep until the stream is done."""
        self._done.record(self._stream)
        self._done.synchronize()

    def close(self) -> None:
        """Wait for the streams; torch keeps them for the next one."""
        self._stream.synchronize()
        self._own.synchronize()
