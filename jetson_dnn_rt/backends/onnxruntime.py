# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ONNX Runtime on the CPU."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import (
    Array,
    BackendInfo,
    CompiledStore,
    HostRunner,
    Runner,
    inspect_library,
    open_kept,
)
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import ModelError, RunCancelledError
from jetson_dnn_rt.models.graph.quantized_part import count_quantized, must_stay_float
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.models.sources.torch import describe_onnx_error
from jetson_dnn_rt.safety.trust import private_folder

logger = logging.getLogger(__name__)


_INT8_KERNELS = frozenset(
    {
        "QLinearConv",
        "QLinearMatMul",
        "QGemm",
        "ConvInteger",
        "MatMulInteger",
        "QLinearConvTranspose",
    }
)


def inspect(name: str) -> BackendInfo:
    """Describe the back end, which needs only its library."""
    info = inspect_library(name, "pip install onnxruntime")
    return replace(info, precisions=("fp32", "int8"), cancels=True) if info.available else info


def create(
    part: Part,
    name: str,
    precision: str,
    threads: int,
    clock: Clock,
    compiled: CompiledStore | None = None,
) -> Runner:
    """See `OnnxRuntimeRunner`."""
    return OnnxRuntimeRunner(part, precision, threads, compiled)


def _check_kernels(optimized: Path, wanted: int, name: str) -> None:
    """Check in the optimized graph that quantized products were fused to kernels in int8."""
    import onnx

    kernels = [node.op_type for node in onnx.load(optimized).graph.node]
    found = sum(kernel in _INT8_KERNELS for kernel in kernels)
    if not found:
        raise ModelError(
            f"{name} is not computed in int8 by onnxruntime: none of its {wanted} quantized "
            "convolutions and matrix products became a kernel in int8"
        )
    logger.debug("%s: %d of %d products run in int8", name, found, wanted)


def _make_options(threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return options


def _open_session(data: bytes, options: Any) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _optimize(part: Part, precision: str, threads: int, store: CompiledStore | None) -> Any:
    data, options = part.onnx_model(), _make_options(threads)
    if precision != "int8" and must_stay_float(data, part.name):
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    wanted = count_quantized(data, part.name) if precision == "int8" else 0
    with ExitStack() as stack:
        optimized = None
        if wanted or store is not None:
            optimized = stack.enter_context(private_folder()) / "optimized.onnx"
            options.optimized_model_filepath = os.fspath(optimized)
        try:
            session = _open_session(data, options)
        except Exception as error:  # ONNX Runtime's own classes share no base but Exception
            text = describe_onnx_error(error)
            raise ModelError(f"{part.name} cannot be loaded by onnxruntime: {text}") from error
        if optimized is not None and wanted:
            _check_kernels(optimized, wanted, part.name)
        if optimized is not None and store is not None:
            store.store(optimized.read_bytes())
    return session


def _open_optimized(data: bytes, threads: int) -> Any:
    """A session of a graph that was optimised before."""
    import onnxruntime

    options = _make_options(threads)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return _open_session(data, options)


class OnnxRuntimeRunner(HostRunner):
    """A session bound to preallocated buffers, so that nothing is copied per run.

    Its threads do not spin while they wait for work: on cores that are shared with the other
    tasks, the camera and DDS, spinning costs them what it gains here.

    With `threads` = 1 the calling thread does everything.

    A part in int8 is a quantized one (`models.graph.quantized_part`). A graph that was optimised
    before is taken from `compiled`, and else stored there. `ModelError` where the
    network cannot be loaded, or none of its products became a kernel in int8.
    """

    backend = "onnxruntime"
    can_cancel = True

    def __init__(
        self, part: Part, precision: str, threads: int, compiled: CompiledStore | None = None
    ) -> None:
        import onnxruntime

        super().__init__(part)
        self.precision = precision
        self.version = str(onnxruntime.__version__)
        self._make_options = onnxruntime.RunOptions
        session = open_kept(
            compiled,
            part,
            lambda data: _open_optimized(data, threads),
            lambda session: [value.shape for value in session.get_inputs()],
            part.input_shapes,
        )
        self._session: Any = session or _optimize(part, precision, threads, compiled)
        self._run_options: Any = None  # of the last run
        self._names = [value.name for value in self._session.get_inputs()]
        self._binding: Any = self._session.io_binding()
        self._listed: list[str] = []  # lists of boxes: their lengths are known after the run
        self._values: list[Any] = []
        outputs = self._session.get_outputs()
        self._outputs = tuple(self._bind_output(output) for output in outputs)

    def _bind_output(self, output: Any) -> npt.NDArray[np.float32] | None:
        if output.type == "tensor(float)" and all(isinstance(side, int) for side in output.shape):
            array = np.zeros(output.shape, np.float32)
            place = (array.shape, array.ctypes.data)
            self._binding.bind_output(output.name, "cpu", 0, np.float32, *place)
            return array
        self._binding.bind_output(output.name, "cpu")  # keeps the order of the outputs
        self._listed.append(output.name)
        return None

    def _bind(self, index: int, array: npt.NDArray[np.float32]) -> None:
        place = (array.shape, array.ctypes.data)
        self._binding.bind_input(self._names[index], "cpu", 0, np.float32, *place)

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        self._bind_inputs(values)
        for name in self._listed:  # bound once, it would keep the shape of the previous run
            self._binding.bind_output(name, "cpu")
        # One for each run: an order to end the last one, given too late, does not reach this.
        options = self._run_options = self._make_options()
        try:
            self._session.run_with_iobinding(self._binding, options)
        except Exception as error:  # ONNX Runtime's own classes share no base but Exception
            if not options.terminate:
                raise
            raise RunCancelledError(f"the run of {self.name} was cancelled") from error
        if not self._listed:
            return self._outputs
        self._values = self._binding.get_outputs()
        return tuple(
            value.numpy() if array is None else array
            for array, value in zip(self._outputs, self._values, strict=True)
        )

    def cancel(self) -> None:
        """See `Runner.cancel`; it ends at the next operator."""
        options = self._run_options
        if options is not None:
            options.terminate = True

    def _close(self) -> None:
        super()._close()
        self._run_options = None
        self._binding = self._session = None
        self._values = []
