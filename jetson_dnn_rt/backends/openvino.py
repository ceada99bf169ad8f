# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""OpenVINO on the CPU."""

from __future__ import annotations

import functools
import json
import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import (
    NO_BF16,
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
from jetson_dnn_rt.models.graph.empty_branches import compute_empty_lists
from jetson_dnn_rt.models.graph.quantized_part import (
    count_quantized,
    make_unsigned,
    must_stay_float,
)
from jetson_dnn_rt.models.model import Part

logger = logging.getLogger(__name__)

_PRODUCTS = ("Convolution", "Deconvolution", "FullyConnected", "MatMul", "RNNSeq", "RNNCell")
_PICTURE_CHANNELS = 4
_TYPES = {"bf16": ("bf16",), "int8": ("i8", "u8")}
"""Types that OpenVINO reports of layers in a short precision."""


def inspect(name: str) -> BackendInfo:
    """Describe the back end; bf16 only where the CPU supports it."""
    info = inspect_library(name, "pip install openvino")
    if not info.available:
        return info
    info = replace(info, cancels=True)
    if not supports_bf16():
        return replace(info, precisions=("fp32", "int8"), reason=NO_BF16)
    return replace(info, precisions=("fp32", "bf16", "int8"))


def create(
    part: Part,
    name: str,
    precision: str,
    threads: int,
    clock: Clock,
    compiled: CompiledStore | None = None,
) -> Runner:
    """See `OpenVinoRunner`."""
    return OpenVinoRunner(part, precision, threads, compiled)


def supports_bf16() -> bool:
    """Whether the CPU computes in bf16; elsewhere OpenVINO would silently use fp32."""
    return "BF16" in _open_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def _open_core() -> Any:
    """The one ``Core`` of this process, never freed.

    Each sets a signal stack in the thread that loads its CPU plugin. When one is freed while a
    later one lives, the later one restores the first one's stack, whose memory is gone: the next
    signal, such as Ctrl-C, kills the process with a segmentation fault (seen with 2026.4).
    """
    with _opening:
        return _make_core()


_opening = threading.Lock()


@functools.cache
def _make_core() -> Any:
    import openvino

    return openvino.Core()


def _check_precision(compiled: Any, precision: str, name: str) -> None:
    """Check in the compiled network that some of its products are computed in a short type."""
    types: Counter[str] = Counter()
    for node in compiled.get_runtime_model().get_ordered_ops():
        facts = node.get_rt_info()
        if str(facts["layerType"].value) in _PRODUCTS:
            types[str(facts["runtimePrecision"].value)] += 1
    if types and not any(types[kind] for kind in _TYPES[precision]):
        found = ", ".join(f"{count} in {kind}" for kind, count in types.most_common())
        raise ModelError(
            f"{name} is not computed in {precision} by openvino: of its convolutions and matrix "
            f"products it computes {found}"
        )
    logger.debug("%s in %s: %s", name, precision, dict(types))


def _is_map(shape: Sequence[int]) -> bool:
    """Whether an input or output is a map of features; a picture has fewer channels."""
    return len(shape) == 4 and shape[1] > _PICTURE_CHANNELS


def _as_memory(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A map [N, C, H, W] as channels last has it in memory, [N, H, W, C]."""
    return array.transpose(0, 2, 3, 1)


def _allocate_map(shape: Sequence[int]) -> npt.NDArray[np.float32]:
    images, channels, height, width = shape
    return np.zeros((images, height, width, channels), np.float32).transpose(0, 3, 1, 2)


def _set_layouts(network: Any, inner_outputs: Sequence[int]) -> tuple[Any, frozenset[int]]:
    """Let a network take maps, and give those that stay inside, with the channels last.

    Its kernels compute so and would convert a planar map at both sides of every boundary, which is
    nearly all that stages cost (docs/variants.md). Not in bf16, where the change of type is then a
    pass of its own: eight stages of ResNet-50 add 118 % in place of 81 %. Returns the indices of
    the outputs, too.
    """
    import openvino
    from openvino.preprocess import PrePostProcessor

    given = network.outputs
    turned = frozenset(
        index
        for index in inner_outputs
        if given[index].partial_shape.is_static and _is_map(list(given[index].shape))
    )
    maps = [index for index, port in enumerate(network.inputs) if _is_map(list(port.shape))]
    if not (turned or maps):
        return network, turned
    processor = PrePostProcessor(network)
    planar, last = openvino.Layout("NCHW"), openvino.Layout("NHWC")
    for index in maps:
        processor.input(index).tensor().set_layout(last)
        processor.input(index).model().set_layout(planar)
    for index in turned:
        processor.output(index).model().set_layout(planar)
        processor.output(index).tensor().set_layout(last)
    return processor.build(), turned


def _compile(
    part: Part, precision: str, options: Mapping[str, Any], turns_maps: bool
) -> tuple[Any, frozenset[int]]:
    """Compile a network; the indices of the outputs whose channels are last, too."""
    data = part.onnx_model()
    wanted = count_quantized(data, part.name) if precision == "int8" else None
    if precision != "int8" and must_stay_float(data, part.name):
        options = {**options, "LP_TRANSFORMS_MODE": False}
    core = _open_core()
    turned: frozenset[int] = frozenset()
    try:
        network = core.read_model(model=compute_empty_lists(make_unsigned(data)))
        network.reshape({index: list(shape) for index, shape in enumerate(part.input_shapes)})
        if turns_maps:
            network, turned = _set_layouts(network, part.inner_outputs)
        compiled = core.compile_model(network, "CPU", options)
    except RuntimeError as error:
        raise ModelError(f"{part.name} cannot be loaded by openvino: {error}") from error
    if precision in _TYPES and wanted != 0:
        _check_precision(compiled, precision, part.name)
    return compiled, turned


def _store_compiled(store: CompiledStore, compiled: Any, turned: frozenset[int]) -> None:
    network = compiled.export_model()
    if not isinstance(network, bytes):  # OpenVINO 2024.4 gives bytes, later ones a stream
        network = network.getvalue()
    store.store(json.dumps(sorted(turned)).encode() + b"\n" + network)


def _open_compiled(data: bytes, options: Mapping[str, Any]) -> tuple[Any, frozenset[int]]:
    """What `_compile` gave before, from what `_store_compiled` stored."""
    head, _, network = data.partition(b"\n")
    turned = frozenset(map(int, json.loads(head)))
    return _open_core().import_model(network, "CPU", options), turned


class OpenVinoRunner(HostRunner):
    """An inference request bound to preallocated buffers.

    In fp32, maps between stages have their channels last, see `_set_layouts`.

    Its threads are not pinned: pinning would tie all models of the process to the same first
    cores. A part in int8 is a quantized one (`models.graph.quantized_part`), whose other layers
    are computed in fp32. A network that was compiled before is taken from `compiled`, and else
    stored there once its precision was checked. `ModelError` where OpenVINO cannot read the
    network, or computes no convolution or matrix product in a short type that was asked for.
    """

    backend = "openvino"
    can_cancel = True

    def __init__(
        self, part: Part, precision: str, threads: int, compiled: CompiledStore | None = None
    ) -> None:
        import openvino

        super().__init__(part)
        self.version = str(openvino.__version__).split("-")[0]
        self.precision = precision
        self._turns_maps = precision == "fp32"
        options = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,
        }
        turns_maps = self._turns_maps
        found = open_kept(
            compiled,
            part,
            lambda data: _open_compiled(data, options),
            lambda found: [tuple(port.shape) for port in found[0].inputs],
            [
                (shape[0], *shape[2:], shape[1]) if turns_maps and _is_map(shape) else shape
                for shape in part.input_shapes
            ],
        )
        network, self._turned = found or _compile(part, precision, options, turns_maps)
        if compiled is not None and found is None:
            _store_compiled(compiled, network, self._turned)
        self._request: Any = network.create_infer_request()
        self._infer = self._infer_here if threads > 1 else self._infer_there
        self._cancelled = False
        outputs = enumerate(network.outputs)
        self._outputs = tuple(self._bind_output(index, port) for index, port in outputs)

    def _allocate(self, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        if self._turns_maps and _is_map(shape):
            return _allocate_map(shape)
        return super()._allocate(shape)

    def _fits(self, array: npt.NDArray[Any]) -> bool:
        if self._turns_maps and _is_map(array.shape):
            return _as_memory(array).flags.c_contiguous
        return super()._fits(array)

    def _bind_output(self, index: int, port: Any) -> npt.NDArray[np.float32] | None:
        import openvino

        if not port.partial_shape.is_static or port.element_type != openvino.Type.f32:
            return None  # lists of boxes: their lengths are known after the run
        memory = np.zeros(tuple(port.shape), np.float32)
        self._request.set_output_tensor(index, openvino.Tensor(memory, shared_memory=True))
        return memory.transpose(0, 3, 1, 2) if index in self._turned else memory

    def _bind(self, index: int, array: npt.NDArray[np.float32]) -> None:
        import openvino

        memory = _as_memory(array) if self._turns_maps and _is_map(array.shape) else array
        self._request.set_input_tensor(index, openvino.Tensor(memory, shared_memory=True))

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        self._bind_inputs(values)
        self._cancelled = False
        try:
            self._infer()
        except RuntimeError as error:
            if not self._cancelled:
                raise
            raise RunCancelledError(f"the run of {self.name} was cancelled") from error
        return tuple(
            self._request.get_output_tensor(index).data if array is None else array
            for index, array in enumerate(self._outputs)
        )

    def _infer_here(self) -> None:
        """On the calling thread, with its priority and its place in the order.

        `start_async` hands over to a thread of OpenVINO: on shared cores that costs a third.
        """
        self._request.infer(share_outputs=True)

    def _infer_there(self) -> None:
        """With one thread a run on the calling one cannot be cancelled: it never looks."""
        self._request.start_async(share_inputs=True)
        self._request.wait()

    def cancel(self) -> None:
        """See `Runner.cancel`; it ends at the next operator."""
        request = self._request
        if request is not None:
            self._cancelled = True
            request.cancel()

    def _close(self) -> None:
        super()._close()
        self._request = None
