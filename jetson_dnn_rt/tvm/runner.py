"""TVM: kernels that were tuned for this machine, run by Relax's virtual machine."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array, Runner, as_host
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.tvm.target import TvmTarget

if TYPE_CHECKING:
    from tvm import relax

ALIGNMENT = 64
"""Bytes that kernels take the start of every tensor to be a multiple of."""


class TvmRunner(Runner):
    """A compiled network.

    Inputs in C order that begin at a multiple of 64 bytes are handed on as they are, by DLPack;
    others are copied, which `copied_bytes` counts. Memory of `allocate_input` is aligned so, and
    so are the outputs of this runner, which are handed out by DLPack too.
    """

    backend = "tvm"

    def __init__(
        self, part: Part, precision: str, executable: relax.VMExecutable, target: TvmTarget
    ) -> None:
        import tvm
        from tvm import relax

        super().__init__(part)
        self.version = str(tvm.__version__)
        self.precision = precision
        self.device = target.device
        self._threads = target.threads
        self._device = tvm.device(target.device)
        self._machine: Any = relax.VirtualMachine(executable, self._device)
        self._main: Any = self._machine["main"]
        self._own: list[npt.NDArray[np.float32] | None] = [None] * len(part.input_shapes)
        self._held: tuple[Any, ...] = ()

    def allocate_input(self, images: int = 1) -> npt.NDArray[np.float32]:
        """See `Runner.allocate_input`; aligned as kernels want it."""
        first, *rest = self.input_shapes[0]
        return _allocate((images * first, *rest))

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        import tvm

        if self._threads > 1:
            _use_threads(self._threads)
        self.copied_bytes = 0
        arrays = [self._place(index, value) for index, value in enumerate(values)]
        if self.device == "cpu":
            tensors = [tvm.runtime.from_dlpack(array) for array in arrays]
        else:
            tensors = [tvm.runtime.tensor(array, self._device) for array in arrays]
            self.copied_bytes += sum(array.nbytes for array in arrays)
        found = self._main(*tensors)
        outputs = (found,) if isinstance(found, tvm.runtime.Tensor) else tuple(found)
        # The views below are of their memory, which goes back to the pool with the next run.
        self._held = outputs
        if self.device == "cpu":
            return tuple(np.from_dlpack(output) for output in outputs)
        return tuple(output.numpy() for output in outputs)

    def _place(self, index: int, value: Array) -> npt.NDArray[np.float32]:
        """The input as kernels take it: C order, aligned."""
        array = as_host(value)
        if array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
            return array
        own = self._own[index]
        if own is None:
            own = self._own[index] = _allocate(self.input_shapes[index])
        np.copyto(own, array)
        self.copied_bytes += own.nbytes
        return own

    def _close(self) -> None:
        self._held = ()
        self._main = self._machine = None
        self._own = []


_pools = threading.local()


def _use_threads(count: int) -> None:
    """Set how many threads TVM's pool of the calling thread has; each thread has its own pool."""
    if getattr(_pools, "count", 0) != count:
        import tvm

        # Mode 1: the big cores first.
        tvm.get_global_func("runtime.config_threadpool")(1, count)
        _pools.count = count


def _allocate(shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Zeros that begin at a multiple of `ALIGNMENT`."""
    size = int(np.prod(shape, dtype=np.int64)) * 4
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + size].view(np.float32).reshape(shape)
