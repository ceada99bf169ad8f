"""What runners on a CUDA device have in common: buffers, a stream, a CUDA graph, a wait."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array, HostArrays, Runner
from jetson_dnn_rt.backends.cuda import Cuda
from jetson_dnn_rt.errors import JetsonDnnRtError, ModelError
from jetson_dnn_rt.models.model import Part

logger = logging.getLogger(__name__)

# Runs before the capture: libraries load their kernels and try algorithms in the first.
_WARM_UP_RUNS = 3


class CudaRunner(Runner):
    """A part that reads device buffers of its own and is started by one launch of a CUDA graph.

    A frame costs a copy of the inputs, the launch, and one sleep until the device is done.

    Parameters
    ----------
    part : Part
        What it runs.
    cuda : Cuda
        Its stream and memory; closed with the runner.
    cuda_graph : bool
        Without, or where the capture fails (said once, with the reason), the part is queued
        kernel by kernel in every run.

    Attributes
    ----------
    owner : str
        Whose memory and stream it runs on: torch or cuda-python, with the version.
    """

    device = "cuda"

    def __init__(self, part: Part, cuda: Cuda, *, cuda_graph: bool = True) -> None:
        super().__init__(part)
        self.cuda_graph = cuda_graph
        self.owner = cuda.owner
        self._cuda = cuda
        self._inputs: list[Array] = [
            self._allocate_device_input(shape) for shape in part.input_shapes
        ]
        self._launch: Callable[[], tuple[Array, ...]] | None = None
        self._host: dict[tuple[int, tuple[int, ...], str], npt.NDArray[Any]] = {}

    def _allocate_device_input(self, shape: tuple[int, ...]) -> Array:
        return self._cuda.allocate(shape, np.float32)

    @abstractmethod
    def _enqueue(self, stream: int) -> tuple[Array, ...]:
        """Queue the part on a stream, from `_inputs` to the outputs that are returned."""

    def _prepare(self) -> None:
        """Warm up and capture; to be called once, when `_enqueue` can be."""
        try:
            for _ in range(_WARM_UP_RUNS):
                self._cuda.run(self._enqueue)
            self._cuda.synchronize()
        except JetsonDnnRtError:
            raise
        except Exception as error:  # a foreign module may raise anything
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

    def allocate_input(self) -> npt.NDArray[np.float32]:
        """Make a page-locked host buffer: the device fetches it without a copy in between."""
        return self._cuda.allocate_host(self.input_shapes[0], np.float32)

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        assert self._launch is not None, "_prepare was not called"
        if len(values) != len(self._inputs):
            raise ValueError(f"{self.name} takes {len(self._inputs)} values, not {len(values)}")
        for index, (buffer, value) in enumerate(zip(self._inputs, values, strict=True)):
            # Before anything is written: the copy itself knows addresses alone.
            if tuple(value.shape) != self.input_shapes[index]:
                raise ValueError(
                    f"value {index} of {self.name} must be of shape {self.input_shapes[index]}: "
                    f"{tuple(value.shape)}"
                )
            self._cuda.copy(buffer, value)
        outputs = self._launch()
        self._cuda.synchronize()
        return outputs

    def to_host(self, values: Sequence[Array]) -> HostArrays:
        """Copy arrays into page-locked buffers that stay; valid until the next call.

        What an earlier stage left on the host is given as it is.
        """
        arrays = []
        for index, value in enumerate(values):
            if isinstance(value, np.ndarray):
                arrays.append(value)
                continue
            interface = value.__cuda_array_interface__
            key = (index, tuple(interface["shape"]), str(interface["typestr"]))
            if key not in self._host:
                # A list of boxes has another length each time: one buffer for an output is kept.
                for old in [other for other in self._host if other[0] == index]:
                    del self._host[old]
                self._host[key] = self._cuda.allocate_host(key[1], np.dtype(key[2]))
            self._cuda.copy(self._host[key], value)
            arrays.append(self._host[key])
        self._cuda.synchronize()
        return tuple(arrays)

    def _close(self) -> None:
        self._launch = None
        self._inputs = []
        self._host = {}
        self._cuda.close()
