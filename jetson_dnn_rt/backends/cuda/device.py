"""A stream of a CUDA device and memory for it, owned by torch or by cuda-python.

TensorRT brings neither. torch is taken where it sees a device; where it does not (a Python with
TensorRT alone, or a torch for the CPU) cuda-python does the same.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array
from jetson_dnn_rt.errors import BackendUnavailableError

if TYPE_CHECKING:
    from jetson_dnn_rt.backends.cuda.driver import DeviceProperties

T = TypeVar("T")

FIX = "pip install torch (on Jetson: NVIDIA's wheel for your JetPack) or cuda-python"


class Cuda(Protocol):
    """What the runners on a CUDA device need; everything is queued on one stream at a time.

    That is a stream of its own, or one of the thread that uses it: see `use_thread_stream`.

    Attributes
    ----------
    owner : str
        Whose memory and stream it is, with its version.
    """

    owner: str

    def allocate(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """Make a device array in C order, zeros, with ``__cuda_array_interface__``."""

    def allocate_host(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Make a host array, zeros, in page-locked memory, which the device reads by itself."""

    def allocate_mapped(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Make a host array, zeros, in page-locked memory that kernels read and write in place.

        `jetson_dnn_rt.backends.cuda.memory.regions` knows the device's address of it and of its
        views.

        Raises
        ------
        CudaError
            When the device does not map host memory.
        """

    def view(self, address: int, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """See memory at a device's address as an array in C order; it is not kept alive by it."""

    def properties(self) -> DeviceProperties:
        """What kind of device it is."""

    def copy(self, destination: Array, source: Array) -> None:
        """Queue a copy between arrays of one shape and type, each on the host or the device.

        Raises
        ------
        CudaError
            When the source is not in C order and its owner cannot reorder it.
        """

    def use_thread_stream(self, urgency: int) -> None:
        """From now on, queue on the calling thread's stream of this deadline class.

        Nothing may be queued on the stream that was used before.

        Parameters
        ----------
        urgency : int
            0 is CUDA's lowest priority, each step a higher one, as far as the device has them.
        """

    def use_own_stream(self) -> None:
        """From now on, queue on the stream it was made with, which nobody else uses."""

    def run(self, work: Callable[[int], T]) -> T:
        """Call `work` with the handle of the stream, as the current one where there is such."""

    def capture(self, work: Callable[[int], T]) -> tuple[Callable[[], None], T]:
        """Record what `work` queues as a CUDA graph.

        Returns
        -------
        callable
            Queues the graph on the stream.
        object
            What `work` returned; arrays in it are written by each launch.

        Raises
        ------
        Exception
            When `work` cannot be captured: it waits for the device, or allocates by itself.
        """

    def synchronize(self) -> None:
        """Wait until all that is queued is done; the thread sleeps, no core spins."""

    def close(self) -> None:
        """Give the stream back; arrays live as long as they are referred to."""


class CudaError(BackendUnavailableError):
    """CUDA refused a call."""


def open_cuda() -> Cuda:
    """A stream of one's own on the current device.

    Raises
    ------
    BackendUnavailableError
        When neither torch nor cuda-python has a device, with what each of them said.
    """
    reasons = []
    for module, name in (("torch_graphs", "TorchCuda"), ("bindings", "PythonCuda")):
        opener = importlib.import_module(f"jetson_dnn_rt.backends.cuda.{module}")
        try:
            cuda: Cuda = getattr(opener, name)()
            return cuda
        except BackendUnavailableError as error:
            reasons.append(str(error))
    raise BackendUnavailableError(f"no CUDA device: {'; '.join(reasons)}; {FIX}")


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
