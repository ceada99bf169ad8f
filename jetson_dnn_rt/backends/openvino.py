"""OpenVINO on the CPU."""

from __future__ import annotations

import functools
import threading
from dataclasses import replace
from typing import Any

import numpy as np

from jetson_dnn_rt.backends.base import (
    NO_BF16,
    Array,
    BackendInfo,
    HostInputs,
    Runner,
    inspect_library,
)
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.models.model import Part

_PRECISIONS = {"fp32": "f32", "bf16": "bf16"}


def inspect(name: str) -> BackendInfo:
    """bf16 only where the CPU has it."""
    info = inspect_library(name, "pip install openvino")
    if not info.available:
        return info
    if not supports_bf16():
        return replace(info, reason=NO_BF16)
    return replace(info, precisions=("fp32", "bf16"))


def create(part: Part, name: str, precision: str, threads: int, clock: Clock) -> Runner:
    """See `OpenVinoRunner`."""
    return OpenVinoRunner(part, precision, threads)


def supports_bf16() -> bool:
    """Whether the CPU computes in bf16; elsewhere OpenVINO would silently take fp32."""
    return "BF16" in _open_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def _open_core() -> Any:
    """The one ``Core`` of this process, which stays.

    Each gives the thread that loads its CPU plugin a stack for signals. When one is freed while a
    later one lives, the later one restores the first one's stack, whose memory is gone: the next
    signal, a Ctrl-C, ends the process with a segmentation fault (seen with 2026.4).
    """
    with _opening:
        return _make_core()


_opening = threading.Lock()


@functools.cache
def _make_core() -> Any:
    import openvino

    return openvino.Core()


class OpenVinoRunner(Runner):
    """An inference request bound to preallocated buffers.

    Its threads are not pinned: pinning would tie every model of the process to the same first
    cores. `BackendUnavailableError` where the CPU has no bf16, `ModelError` where OpenVINO cannot
    read the network.
    """

    backend = "openvino"

    def __init__(self, part: Part, precision: str, threads: int) -> None:
        import openvino

        super().__init__(part)
        if precision == "bf16" and not supports_bf16():
            raise BackendUnavailableError(
                "this CPU has no bf16 instructions (AVX512_BF16 or AMX): use openvino-fp32"
            )
        self.version = str(openvino.__version__).split("-")[0]
        self.precision = precision
        data = part.onnx_model()
        core = _open_core()
        try:
            network = core.read_model(model=data)
            network.reshape({index: list(shape) for index, shape in enumerate(part.input_shapes)})
            options = {
                "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": _PRECISIONS[precision],
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": 1,
                "ENABLE_CPU_PINNING": False,
            }
            compiled = core.compile_model(network, "CPU", options)
        except RuntimeError as error:
            raise ModelError(f"{part.name} cannot be loaded by openvino: {error}") from error
        self._request: Any = compiled.create_infer_request()
        self._inputs = HostInputs(part.input_shapes)
        self._outputs: list[Any] = []
        for index, port in enumerate(compiled.outputs):
            if port.partial_shape.is_static and port.element_type == openvino.Type.f32:
                array = np.zeros(tuple(port.shape), np.float32)
                self._request.set_output_tensor(index, openvino.Tensor(array, shared_memory=True))
                self._outputs.append(array)
            else:  # lists of boxes: their lengths are known after the run
                self._outputs.append(None)

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        import openvino

        for index, array in self._inputs.place(values):
            self._request.set_input_tensor(index, openvino.Tensor(array, shared_memory=True))
        # Not start_async(): it hands over to a thread of OpenVINO, which has neither the priority
        # nor the turn of the one that calls. On cores that are shared this costs a third.
        self._request.infer(share_outputs=True)
        return tuple(
            self._request.get_output_tensor(index).data if array is None else array
            for index, array in enumerate(self._outputs)
        )

    def _close(self) -> None:
        self._request = None
        self._inputs = HostInputs(())
        self._outputs = []
