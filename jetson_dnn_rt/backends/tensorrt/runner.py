"""TensorRT engines on a CUDA device."""

from __future__ import annotations

from typing import Any

import numpy as np

from jetson_dnn_rt.backends.base import Array
from jetson_dnn_rt.backends.cuda.device import Cuda, CudaError, address_of, open_cuda
from jetson_dnn_rt.backends.cuda.runner import CudaRunner
from jetson_dnn_rt.backends.tensorrt import api
from jetson_dnn_rt.backends.tensorrt.build import (
    PRECISIONS,
    BuildOptions,
    build_engine,
    create_or_explain,
)
from jetson_dnn_rt.backends.tensorrt.errors import explain
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.models.model import Part

# By their names: `tensorrt.nptype` of 8.x fails on numpy >= 1.24.
_TYPES = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "INT64": np.int64,
    "INT32": np.int32,
    "INT8": np.int8,
    "UINT8": np.uint8,
    "BOOL": np.bool_,
}


class EngineError(ModelError):
    """An engine from a file does not fit this TensorRT, this GPU or this part: build it again."""


class TensorRtRunner(CudaRunner):
    """An engine bound to device buffers that stay, started as a CUDA graph.

    Parameters
    ----------
    part : Part
        The network, or a run of its stages.
    precision : str
        ``fp32`` or ``fp16``.
    engine : bytes, optional
        From `build_engine` on this machine; built here when not given.
    options : BuildOptions, optional
        For the build; ``dla_core`` also for the run.
    cuda_graph : bool
        See `CudaRunner`.
    cuda : Cuda, optional
        Stream and memory; torch's or cuda-python's by default.
    module : module, optional
        TensorRT; imported by default.

    Raises
    ------
    BackendUnavailableError
        When TensorRT, a device or the precision is missing, with the fix.
    EngineError
        When `engine` cannot be used: it must be built again.
    ModelError
        When TensorRT cannot run the network.
    """

    backend = "tensorrt"

    def __init__(
        self,
        part: Part,
        precision: str,
        *,
        engine: bytes | None = None,
        options: BuildOptions | None = None,
        cuda_graph: bool = True,
        cuda: Cuda | None = None,
        module: Any = None,
    ) -> None:
        module = module or api.import_tensorrt()
        if precision not in PRECISIONS:
            raise BackendUnavailableError(
                f"tensorrt computes in {', '.join(PRECISIONS)}, not in {precision}"
            )
        options = options or BuildOptions()
        if options.dla_core is not None:
            self.backend = f"tensorrt_dla{options.dla_core}"
        self.version = str(module.__version__)
        self.precision = precision
        super().__init__(part, cuda or open_cuda(), cuda_graph=cuda_graph)
        if engine is None:
            engine = build_engine(part, precision, options, module=module).engine
        self._messages = api.messages_of(module)
        with self._messages.listen() as heard:
            self._runtime: Any = create_or_explain(
                module.Runtime, self._messages.logger, "TensorRT cannot be used here", heard
            )
            if options.dla_core is not None:
                self._runtime.DLA_core = options.dla_core
            self._engine: Any = self._runtime.deserialize_cuda_engine(engine)
            if self._engine is None:
                raise EngineError(explain(f"the engine of {part.name} cannot be loaded", heard))
            self._context: Any = self._engine.create_execution_context()
            if self._context is None:
                raise ModelError(explain(f"{part.name} cannot be run by TensorRT", heard))
        self._outputs = self._bind(module)
        self._prepare()

    def _bind(self, module: Any) -> tuple[Array, ...]:
        """Give every tensor of the engine its buffer; inputs and outputs keep their order."""
        engine: api.Engine = self._engine
        names: dict[Any, list[str]] = {
            module.TensorIOMode.INPUT: [],
            module.TensorIOMode.OUTPUT: [],
        }
        for index in range(engine.num_io_tensors):
            name = engine.get_tensor_name(index)
            names[engine.get_tensor_mode(name)].append(name)
        inputs, outputs = names.values()
        shapes = tuple(tuple(engine.get_tensor_shape(name)) for name in inputs)
        if shapes != tuple(map(tuple, self.input_shapes)):
            raise EngineError(
                f"the engine of {self.name} takes {list(shapes)}, needed is "
                f"{list(self.input_shapes)}"
            )
        for name in inputs:
            if (kind := str(engine.get_tensor_dtype(name).name)) != "FLOAT":
                raise EngineError(f"{self.name}: input {name} of the engine is {kind}, not FLOAT")
        arrays = []
        for name in outputs:
            shape = tuple(engine.get_tensor_shape(name))
            if -1 in shape:
                raise ModelError(
                    f"{self.name}: output {name} has the open shape {list(shape)}. Its length "
                    "hangs on the data (a list of boxes): cut the model before it, or take "
                    "another back end"
                )
            if engine.get_tensor_location(name) != module.TensorLocation.DEVICE:
                raise ModelError(f"{self.name}: output {name} is a shape, not data")
            kind = str(engine.get_tensor_dtype(name).name)
            if kind not in _TYPES:
                raise ModelError(
                    f"{self.name}: output {name} is of type {kind}, which numpy lacks"
                )
            arrays.append(self._cuda.allocate(shape, _TYPES[kind]))
        self._input_names = inputs
        for name, array in zip([*inputs, *outputs], [*self._inputs, *arrays], strict=True):
            self._set_address(name, array)
        return tuple(arrays)

    def _set_address(self, name: str, array: Array) -> None:
        if not self._context.set_tensor_address(name, address_of(array)):
            raise ModelError(f"{self.name}: TensorRT refuses the buffer of {name}")

    def _read_input(self, index: int, array: Array | None) -> None:
        # The engine reads mapped memory itself: its first layer is the only one to do so.
        self._set_address(
            self._input_names[index], self._inputs[index] if array is None else array
        )

    def _enqueue(self, stream: int) -> tuple[Array, ...]:
        with self._messages.listen() as heard:
            if not self._context.execute_async_v3(stream):
                raise CudaError(explain(f"{self.name} failed in TensorRT", heard))
        return self._outputs

    def _close(self) -> None:
        super()._close()
        self._outputs = ()
        # Each holds on to the one after it.
        self._context = self._engine = self._runtime = None
