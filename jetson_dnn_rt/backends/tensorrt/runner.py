# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""TensorRT engines on a CUDA device."""

from __future__ import annotations

from typing import Any

import numpy as np

from jetson_dnn_rt.backends.base import Array, BackendInfo, Runner
from jetson_dnn_rt.backends.cuda import owners
from jetson_dnn_rt.backends.cuda.device import Cuda, CudaError, address_of
from jetson_dnn_rt.backends.cuda.owners import open_cuda
from jetson_dnn_rt.backends.cuda.runner import CudaRunner
from jetson_dnn_rt.backends.tensorrt import api
from jetson_dnn_rt.backends.tensorrt.build import PRECISIONS, BuildOptions, build_engine
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.models.model import Part

# By name, because `tensorrt.nptype` of 8.x fails on numpy >= 1.24.
_TYPES = {
    "FLOAT": np.float32, "HALF": np.float16, "INT64": np.int64, "INT32": np.int32,
    "INT8": np.int8, "UINT8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip


def inspect(name: str) -> BackendInfo:
    """Describe the back end, which needs a device, and torch or cuda-python for memory on it."""
    try:
        module = api.import_tensorrt()
    except BackendUnavailableError as error:
        return _miss(name, str(error), "" if str(error) == api.NO_GPU else api.FIX)
    version = str(module.__version__)
    try:
        open_cuda().close()
    except BackendUnavailableError as error:
        return _miss(name, f"TensorRT {version} is installed, {error}", owners.FIX)
    core = api.TENSORRT[name]
    if core is None:
        return BackendInfo(name, version, True, PRECISIONS)
    cores = api.count_dla_cores(module)
    if core < cores:
        return BackendInfo(name, version, True, ("fp16",))
    return _miss(name, f"this machine has {cores} DLA cores", "use tensorrt, on the GPU")


def _miss(name: str, reason: str, fix: str) -> BackendInfo:
    return BackendInfo(name, "", False, (), reason.removesuffix(f"; {fix}"), fix)


def create(part: Part, name: str, precision: str, threads: int, clock: Clock) -> Runner:
    """Make a runner on the GPU, or on the DLA core of that name."""
    return TensorRtRunner(part, precision, options=BuildOptions(dla_core=api.TENSORRT[name]))


class EngineError(ModelError):
    """An engine from a file does not fit this TensorRT, this GPU or this part: build it again."""


class TensorRtRunner(CudaRunner):
    """An engine bound to persistent device buffers, started as a CUDA graph.

    `engine` is from `build_engine` on this machine; built here when not given. ``dla_core`` of
    `options` also applies to the run. Stream and memory are torch's or cuda-python's by default;
    `module` is TensorRT.

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
        options = options or BuildOptions()
        if options.dla_core is not None:
            self.backend = f"tensorrt_dla{options.dla_core}"
        self.version = str(module.__version__)
        self.precision = precision
        super().__init__(part, cuda or open_cuda(), cuda_graph=cuda_graph)
        if engine is None:
            engine = build_engine(part, precision, options, module=module).engine
        self._log = api.log_of(module)
        with self._log.listen() as lines:
            self._runtime: Any = api.create_or_explain(module.Runtime, self._log.logger, lines)
            if options.dla_core is not None:
                self._runtime.DLA_core = options.dla_core
            self._engine: Any = self._runtime.deserialize_cuda_engine(engine)
            if self._engine is None:
                what = f"the engine of {part.name} cannot be loaded"
                raise EngineError(api.explain(what, lines))
            self._context: Any = self._engine.create_execution_context()
            if self._context is None:
                raise ModelError(api.explain(f"{part.name} cannot be run by TensorRT", lines))
        self._outputs = self._bind(module)
        self._prepare()

    def _bind(self, module: Any) -> tuple[Array, ...]:
        """Bind every tensor of the engine to its buffer; inputs and outputs keep their order."""
        engine = self._engine
        names: dict[Any, list[str]] = {
            mode: [] for mode in (module.TensorIOMode.INPUT, module.TensorIOMode.OUTPUT)
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
                    f"{self.name}: output {name} has the dynamic shape {list(shape)}. Its length "
                    "depends on the data (a list of boxes): cut the model before it, or use "
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
        # The engine can read mapped memory directly: only its first layer does so.
        own = self._inputs[index]
        self._set_address(self._input_names[index], own if array is None else array)

    def _enqueue(self, stream: int) -> tuple[Array, ...]:
        with self._log.listen() as lines:
            if not self._context.execute_async_v3(stream):
                raise CudaError(api.explain(f"{self.name} failed in TensorRT", lines))
        return self._outputs

    def _close(self) -> None:
        super()._close()
        self._outputs = ()
        # Each object references the next.
        self._context = self._engine = self._runtime = None
