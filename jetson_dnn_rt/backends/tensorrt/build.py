# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""TensorRT engines built from a part of a network: static shapes, batch 1, FP32, FP16 or INT8."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from jetson_dnn_rt.backends.tensorrt import api
from jetson_dnn_rt.backends.tensorrt.precision import (
    LayerPrecisions,
    check_precision,
    read_precisions,
)
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.models.graph.folded_norms import fold_norms
from jetson_dnn_rt.models.graph.mixed_precision import ALLOW, convert_to_fp16
from jetson_dnn_rt.models.graph.quantized_part import count_quantized
from jetson_dnn_rt.models.model import Part

logger = logging.getLogger(__name__)

PRECISIONS = ("fp32", "fp16", "int8")


@dataclass(frozen=True)
class BuildOptions:
    """Options of an engine build."""

    workspace_mib: int = 1024  # upper limit for a layer's algorithm, >= 1
    # DLA core of a Jetson (Xavier, Orin: 0 or 1); layers that it cannot run go to the GPU.
    dla_core: int | None = None
    # Times from an earlier build (`BuiltEngine.timing_cache`), which shorten this one.
    timing_cache: bytes = b""


@dataclass(frozen=True)
class BuiltEngine:
    """Result of a build."""

    engine: bytes  # for this TensorRT version and this GPU only
    timing_cache: bytes  # for the next build on this machine
    build_ms: float
    precisions: LayerPrecisions  # of its layers, as the engine itself tells


def build_engine(
    part: Part, precision: str, options: BuildOptions | None = None, *, module: Any = None
) -> BuiltEngine:
    """Build an engine; takes seconds to minutes of measurements on the GPU.

    FP16 is coloured by `models.graph.mixed_precision`. TensorRT 11 gets a network
    with these types written in it. Up to 10 the network stays FP32, FP16 is allowed, and the
    layers that must not use it are pinned to FP32: so TensorRT may still choose FP32 elsewhere
    where that is faster.

    fp32 is IEEE single precision: TF32 is off. int8 is for networks with ``QuantizeLinear`` and
    ``DequantizeLinear``, which say what is computed in it; the rest is fp32. `module` is TensorRT,
    imported by default.

    The finished engine is asked in what its layers run: one that is not of `precision` is refused.

    Raises
    ------
    BackendUnavailableError
        When TensorRT, a driver, the DLA core or the precision is not available here.
    ModelError
        When TensorRT cannot run the network, or built it in another precision; names the layer, or
        the figures.
    """
    options = options or BuildOptions()
    module = module or api.import_tensorrt()
    if options.dla_core is not None and precision != "fp16":
        raise BackendUnavailableError(f"a DLA computes in fp16, not in {precision}")
    log = api.log_of(module)
    begin = time.perf_counter()
    with log.listen() as lines:
        build = _Build(module, log.logger, part, lines)
        build.read_network(precision)
        build.configure(precision, options)
        engine, cache = build.finish()
        precisions = build.read_back(engine, options)
    if build.asks:
        check_precision(precisions, precision, f"{part.name} in TensorRT {module.__version__}")
    build_ms = (time.perf_counter() - begin) * 1e3
    logger.info(
        "%s built by TensorRT %s in %s: %.1f s, %.1f MiB, layers that multiply: %s",
        part.name, module.__version__, precision, build_ms / 1e3, len(engine) / 2**20, precisions,
    )  # fmt: skip
    for warning in lines.warnings:
        logger.debug("%s: TensorRT: %s", part.name, warning)
    return BuiltEngine(engine, cache, build_ms, precisions)


class _Build:
    """One build, step by step; TensorRT's objects must outlive those made from them."""

    def __init__(self, module: Any, trt_logger: Any, part: Part, lines: api.LogLines) -> None:
        self._module, self._logger, self._part, self._lines = module, trt_logger, part, lines
        self._builder = api.create_or_explain(module.Builder, trt_logger, lines)
        flags = module.NetworkDefinitionCreationFlag
        # Without it, 8.x assumes an implicit batch; in 10 it is always explicit, 11 has no flag.
        explicit = getattr(flags, "EXPLICIT_BATCH", None)
        creation = 0 if explicit is None else 1 << int(explicit)
        self._network = self._builder.create_network(creation)
        self._config = self._builder.create_builder_config()
        self._fp32_nodes: frozenset[str] = frozenset()
        self._nodes: frozenset[str] = frozenset()
        # False where nothing that multiplies is left to the precision.
        self.asks = True

    def read_network(self, precision: str) -> None:
        """Parse the ONNX model, in FP16 coloured and, from 11 on, converted."""
        data = self._part.onnx_model()
        if precision == "int8":
            self.asks = _check_quantized(data, self._part.name)
        if precision == "fp16":
            data = fold_norms(data)
            mixed = convert_to_fp16(data)
            self._fp32_nodes = frozenset(mixed.fp32)
            self._nodes = self._fp32_nodes | frozenset(mixed.fp16)
            self.asks = bool(_name_products(mixed.onnx) & set(mixed.fp16))
            if api.is_strongly_typed(self._module):
                data = mixed.onnx
        parser = self._module.OnnxParser(self._network, self._logger)
        if not parser.parse(data):
            errors = [parser.get_error(index) for index in range(parser.num_errors)]
            details = tuple(f"{_name_node(data, e.node())}: {e.desc()}" for e in errors)
            raise ModelError(
                api.explain(f"{self._part.name} cannot be read by TensorRT", self._lines, details)
            )
        for index in range(self._network.num_inputs):
            tensor = self._network.get_input(index)
            if -1 in tuple(tensor.shape):
                raise ModelError(
                    f"{self._part.name}: input {tensor.name} has the dynamic shape "
                    f"{list(tensor.shape)}, TensorRT engines are built for fixed ones here"
                )

    def configure(self, precision: str, options: BuildOptions) -> None:
        """Set precision, memory, device and timing cache."""
        module, config = self._module, self._config
        config.set_memory_pool_limit(module.MemoryPoolType.WORKSPACE, options.workspace_mib << 20)
        # TF32's 10 bits of mantissa are not fp32; FP16 has its own colours.
        config.clear_flag(module.BuilderFlag.TF32)
        if precision == "fp16" and not api.is_strongly_typed(module):
            config.set_flag(module.BuilderFlag.FP16)
            config.set_flag(module.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
            self._pin_layers()
        if precision == "int8" and not api.is_strongly_typed(module):
            config.set_flag(module.BuilderFlag.INT8)
        if options.dla_core is not None:
            self._use_dla(options.dla_core)
        config.profiling_verbosity = module.ProfilingVerbosity.DETAILED  # for `read_back`
        self._load_timing_cache(options.timing_cache)

    def _pin_layers(self) -> None:
        """Pin layers to FP32 whose nodes are coloured FP32."""
        floats = (self._module.DataType.FLOAT, self._module.DataType.HALF)
        for index in range(self._network.num_layers):
            layer = self._network.get_layer(index)
            if find_node(layer.name, self._nodes) not in self._fp32_nodes:
                continue
            outputs = [layer.get_output(number) for number in range(layer.num_outputs)]
            if not outputs or any(output.dtype not in floats for output in outputs):
                continue  # shape arithmetic
            layer.precision = self._module.DataType.FLOAT
            for number in range(layer.num_outputs):
                layer.set_output_type(number, self._module.DataType.FLOAT)

    def _use_dla(self, core: int) -> None:
        count = int(self._builder.num_DLA_cores)
        if core >= count:
            raise BackendUnavailableError(
                f"dla_core {core} is not there: this machine has {count} DLA cores"
            )
        self._config.default_device_type = self._module.DeviceType.DLA
        self._config.DLA_core = core
        self._config.set_flag(self._module.BuilderFlag.GPU_FALLBACK)

    def _load_timing_cache(self, data: bytes) -> None:
        cache = self._config.create_timing_cache(data)
        if cache is None or not self._config.set_timing_cache(cache, False):
            logger.warning("a timing cache of another GPU or TensorRT is replaced by a new one")
            self._config.set_timing_cache(self._config.create_timing_cache(b""), False)

    def finish(self) -> tuple[bytes, bytes]:
        """Build and return the engine and the timing cache."""
        plan = self._builder.build_serialized_network(self._network, self._config)
        if plan is None:
            raise ModelError(
                api.explain(f"{self._part.name} cannot be built by TensorRT", self._lines)
            )
        return bytes(plan), bytes(self._config.get_timing_cache().serialize())

    def read_back(self, plan: bytes, options: BuildOptions) -> LayerPrecisions:
        """Load the finished engine and ask it in what its layers run."""
        runtime = api.create_or_explain(self._module.Runtime, self._logger, self._lines)
        if options.dla_core is not None:
            runtime.DLA_core = options.dla_core
        engine = runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise ModelError(
                api.explain(f"the engine of {self._part.name} cannot be loaded", self._lines)
            )
        return read_precisions(engine, self._module)


def find_node(layer: str, nodes: Collection[str]) -> str:
    """Name of the node that a layer comes from; empty for layers that the parser adds itself.

    The parser names a layer after its node, or ``node_of_`` and the output where the node has no
    name, and adds a number for further layers of one node
    (``ImporterContext::generateUniqueName``).
    """
    for name in (layer, re.sub(r"_\d+$", "", layer)):
        for candidate in (name, name.removeprefix("node_of_")):
            if candidate in nodes:
                return candidate
    return ""


def _name_products(data: bytes) -> set[str]:
    """Names of convolutions and products of matrices, as in `MixedPrecision.fp16`."""
    import onnx

    nodes = onnx.load_model_from_string(data).graph.node
    return {node.name or node.output[0] for node in nodes if node.op_type in ALLOW}


def _check_quantized(data: bytes, name: str) -> bool:
    """Whether anything in the network is to be computed in INT8.

    `ModelError` where it was never quantized; parts of one that was may be without.
    """
    import onnx

    kinds = {node.op_type for node in onnx.load_model_from_string(data).graph.node}
    if kinds & ALLOW and "DequantizeLinear" not in kinds:
        return count_quantized(data, name) > 0
    return True


def _name_node(data: bytes, index: int) -> str:
    """Name of the operator at an index: errors of 8.x have no name."""
    import onnx

    nodes = onnx.load_model_from_string(data).graph.node
    if not 0 <= index < len(nodes):
        return "network"
    node = nodes[index]
    return f"{node.op_type} {node.name or node.output[0]!r}"
