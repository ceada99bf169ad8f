# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Base class of runners on a CUDA device: buffers, a stream, a CUDA graph, one wait."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array, HostArrays, Parts, Runner
from jetson_dnn_rt.backends.cuda.device import (
    ALIGNMENT,
    Cuda,
    address_of,
    choose_memory,
    count_bytes,
    regions,
)
from jetson_dnn_rt.errors import JetsonDnnRtError, ModelError
from jetson_dnn_rt.models.model import Part

logger = logging.getLogger(__name__)

# Runs before the capture: libraries load kernels and try algorithms in the first ones.
_WARM_UP_RUNS = 3


class CudaRunner(Runner):
    """A part that reads its own device buffers and is started by one launch of a CUDA graph.

    The graph is launched on a stream of the calling thread, with the priority of the frame's
    deadline class, so workers use the device concurrently. Without a graph the part's kernels are
    queued on the stream that its memory was allocated for. A frame costs a copy of the inputs, the
    launch, and one sleep until the device is done. Where host memory is mapped, an input that was
    adopted is read in place and costs no copy.

    Device memory, host buffers and graphs are made during the warm-up: a run allocates nothing.

    `cuda` provides stream and memory, and is closed with the runner. Without `cuda_graph`, or
    where the capture fails (logged once, with the reason), the part is queued kernel by kernel in
    every run. `owner` is the library that owns memory and stream, torch or cuda-python, with the
    version. `memory` is ``mapped``, ``pinned`` or ``pageable``: the kind that `allocate_input`
    returns.
    """

    device = "cuda"

    def __init__(self, part: Part, cuda: Cuda, *, cuda_graph: bool = True) -> None:
        super().__init__(part)
        self.cuda_graph = cuda_graph
        self.owner = cuda.owner
        self._cuda = cuda
        self._inputs = [self._allocate_device_input(shape) for shape in part.input_shapes]
        self._adopted: dict[int, npt.NDArray[np.float32]] = {}
        self.memory = choose_memory("auto", cuda.properties())
        self._launch: Callable[[], tuple[Array, ...]] | None = None
        self._host: dict[tuple[int, tuple[int, ...], str], npt.NDArray[Any]] = {}

    def _allocate_device_input(self, shape: tuple[int, ...]) -> Array:
        return self._cuda.allocate(shape, np.float32)

    @abstractmethod
    def _enqueue(self, stream: int) -> tuple[Array, ...]:
        """Queue the part on a stream, from `_inputs` to the outputs that are returned."""

    def _prepare(self) -> None:
        """Warm up and capture; called once `_enqueue` is ready, off the hot path."""
        # Another thread may still be running on the stream that was used last.
        self._cuda.use_own_stream()
        try:
            for _ in range(_WARM_UP_RUNS):
                self._cuda.run(self._enqueue)
            self._cuda.synchronize()
        except JetsonDnnRtError:
            raise
        except Exception as error:  # third-party modules may raise anything
            raise ModelError(f"{self.name} cannot be run on a CUDA device: {error}") from error
        self._launch = lambda: self._cuda.run(self._enqueue)
        if not self.cuda_graph:
            return
        try:
            replay, outputs = self._cuda.capture(self._enqueue)
        except Exception as error:  # torch, TensorRT and CUDA each raise their own
            self.cuda_graph = False
            logger.warning(
                "%s on %s runs without a CUDA graph, its kernels are queued one by one: %s",
                self.name, self.backend, " ".join(str(error).split()),
            )  # fmt: skip
            return

        def launch() -> tuple[Array, ...]:
            replay()
            return outputs

        self._launch = launch

    def _allocate(self, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """Allocate a host buffer of the chosen kind of memory."""
        if self.memory == "mapped":
            return self._cuda.allocate_mapped(shape, np.float32)
        if self.memory == "pinned":
            return self._cuda.allocate_host(shape, np.float32)
        return super()._allocate(shape)

    def use_memory(self, kind: str) -> None:
        """Choose between mapped, pinned and pageable memory."""
        self.memory = choose_memory(kind, self._cuda.properties())

    def adopt_input(self, index: int, image: npt.NDArray[np.float32]) -> None:
        """Read an input in place, in mapped memory, from now on.

        The graph is captured again, with the device address of the input. Memory that is not
        mapped, or not aligned as the device requires, is still copied; so is, with a warning,
        memory that the part cannot run with. `ModelError` where it cannot run with its own buffer
        either.
        """
        address = regions.find(image) if self.memory == "mapped" else 0
        fits = address and not address % ALIGNMENT and image.flags.c_contiguous
        if not fits or tuple(image.shape) != tuple(self.input_shapes[index]):
            self._leave_input(index)
            return
        held = self._adopted.get(index)
        if held is not None and address_of(held) == address_of(image):
            return
        self._adopted[index] = image
        try:
            self._read_input(index, self._cuda.view(address, image.shape, np.float32))
            self._prepare()
        except Exception as error:  # torch, TensorRT and CUDA each raise their own
            logger.warning(
                "%s on %s does not read its input in mapped memory, it is copied: %s",
                self.name, self.backend, " ".join(str(error).split()),
            )  # fmt: skip
            self._leave_input(index)

    def _leave_input(self, index: int) -> None:
        """Read an input from the part's own buffer again."""
        if self._adopted.pop(index, None) is not None:
            self._read_input(index, None)
            self._prepare()

    @abstractmethod
    def _read_input(self, index: int, array: Array | None) -> None:
        """Make `_enqueue` read an input from a device array in C order; None: from `_inputs`."""

    def device_input(self, index: int) -> Array:
        """The device buffer of an input; an input that is already in it is not copied."""
        return self._inputs[index]

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        outputs = self._queue(values)
        self._cuda.synchronize()
        return outputs

    def _queue(self, values: list[Array]) -> tuple[Array, ...]:
        self._check_inputs(values)
        assert self._launch is not None, "_prepare was not called"
        if self.cuda_graph:
            self._cuda.use_thread_stream(self.urgency)
        self._place_inputs(values)
        return self._launch()

    def _check_inputs(self, values: Sequence[Array]) -> None:
        """Check shapes, and that adopted inputs have not moved."""
        if len(values) != len(self._inputs):
            raise ValueError(f"{self.name} takes {len(self._inputs)} values, not {len(values)}")
        for index, (shape, value) in enumerate(zip(self.input_shapes, values, strict=True)):
            # Before anything is written: the copy itself checks nothing but addresses.
            if tuple(value.shape) != shape:
                raise ValueError(
                    f"value {index} of {self.name} must be of shape {shape}: {tuple(value.shape)}"
                )
        for index, adopted in list(self._adopted.items()):
            value = values[index]
            if isinstance(value, np.ndarray) and address_of(value) == address_of(adopted):
                continue
            logger.warning(
                "%s on %s: input %d is not in the memory that was adopted: captured again, "
                "copied from now on", self.name, self.backend, index,
            )  # fmt: skip
            self._leave_input(index)

    def _place_inputs(self, values: Sequence[Array]) -> None:
        """Queue copies of the inputs that the part cannot read in place."""
        self.copied_bytes = 0
        for index, (buffer, value) in enumerate(zip(self._inputs, values, strict=True)):
            if index in self._adopted:
                continue
            if isinstance(value, Parts):
                for place, part in enumerate(value):
                    self._copy(buffer[place : place + 1], part)
            elif value is not buffer:
                self._copy(buffer, value)

    def _copy(self, destination: Array, source: Array) -> None:
        self._cuda.copy(destination, source)
        self.copied_bytes += count_bytes(source)

    def to_host(self, values: Sequence[Array]) -> HostArrays:
        """Copy arrays into persistent page-locked buffers; valid until the next call.

        Arrays that an earlier stage left on the host are returned as they are.
        """
        arrays = []
        for index, value in enumerate(values):
            if isinstance(value, np.ndarray):
                arrays.append(value)
                continue
            interface = value.__cuda_array_interface__
            key = (index, tuple(interface["shape"]), str(interface["typestr"]))
            if key not in self._host:
                # The length of a list of boxes varies: one buffer per output is kept.
                for old in [other for other in self._host if other[0] == index]:
                    del self._host[old]
                self._host[key] = self._cuda.allocate_host(key[1], np.dtype(key[2]))
            self._copy(self._host[key], value)
            arrays.append(self._host[key])
        self._cuda.synchronize()
        return tuple(arrays)

    def _close(self) -> None:
        self._launch = None
        self._inputs = []
        self._adopted = {}
        self._host = {}
        try:
            self._cuda.close()
        except Exception as error:  # torch and CUDA each raise their own
            # A device that reported an illegal access reports it again at each call.
            logger.warning(
                "%s on %s: error while it is closed: %s", self.name, self.backend, error
            )
