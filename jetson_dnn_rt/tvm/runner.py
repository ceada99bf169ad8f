# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""TVM: kernels that were tuned for this machine, run by Relax's virtual machine."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array, HostRunner
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.tvm.target import TvmTarget

if TYPE_CHECKING:
    from tvm import relax

ALIGNMENT = 64
"""Alignment in bytes that kernels assume for every tensor."""


class TvmRunner(HostRunner):
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

    def _allocate(self, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        size = math.prod(shape) * 4
        memory = np.zeros(size + ALIGNMENT, np.uint8)
        begin = -memory.ctypes.data % ALIGNMENT
        return memory[begin : begin + size].view(np.float32).reshape(shape)

    def _fits(self, array: npt.NDArray[Any]) -> bool:
        return array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0

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
        # The views below refer to their memory, which returns to the pool with the next run.
        self._outputs = (found,) if isinstance(found, tvm.runtime.Tensor) else tuple(found)
        if self.device == "cpu":
            return tuple(np.from_dlpack(output) for output in self._outputs)
        return tuple(output.numpy() for output in self._outputs)

    def _close(self) -> None:
        super()._close()
        self._main = self._machine = None


_pools = threading.local()


def _use_threads(count: int) -> None:
    """Set the size of TVM's pool of the calling thread; each thread has its own pool."""
    if getattr(_pools, "count", 0) != count:
        import tvm

        # Mode 1: the big cores first.
        tvm.get_global_func("runtime.config_threadpool")(1, count)
        _pools.count = count
