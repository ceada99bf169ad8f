# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A TensorRT that computes on the CPU: names, signatures and complaints of the real one.

`make_tensorrt` gives a module of a version, with what that version has and nothing of the
others. Networks are run by ONNX Runtime, when the stream of `fake_cuda` is waited for. The tests
hold its names against the real module wherever one can be imported.

As unkind as the real one where code could come to depend on it: an engine is refused by another
GPU, addresses are aligned, a run has the addresses of the moment in which it was queued (a
captured one for ever), and a graph is captured after a first run only.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
from fake_cuda import FakeCuda, view_memory
from onnx import TensorProto

from jetson_dnn_rt.backends.cuda.device import ALIGNMENT, CudaError

_MAGIC = b"FAKE"
_CACHE = b"CACHE"
NO_DRIVER = "CUDA initialization failure with error: 35. Please check your CUDA installation"


class IHostMemory(bytes):
    """Bytes of the library."""


def make_tensorrt(
    version: str, *, driver: bool = True, dla_cores: int = 0, capability: str = "8.7"
) -> Any:
    """Make a module of a version: ``8.5.3.1``, ``8.6.1``, ``10.3.0``, ``11.1.0`` or near.

    `capability` is that of the GPU, for which engines are built and on which they run.

    It has the real one's names, and ``builds`` (what was built, how), ``refuse`` (what builds fail
    with), ``refuse_run``, ``break_run`` (what a run fails with when it is waited for),
    ``unsupported`` (operators without importer), ``computes`` (the type in
    which all layers run, whatever was asked for) and ``tells`` (whether there is an inspector).
    """
    major = int(version.split(".")[0])
    trt: Any = ModuleType("tensorrt")
    trt.__version__ = version
    trt.builds = []
    trt.refuse = trt.refuse_run = trt.break_run = ""
    trt.unsupported = set()
    trt.computes = ""
    trt.tells = True

    # Numbers are not the real ones; code must not depend on them.
    flags = ["GPU_FALLBACK", "TF32"]
    if major < 11:
        flags += ["FP16", "INT8", "OBEY_PRECISION_CONSTRAINTS"]
    creation = {8: ["EXPLICIT_BATCH"], 10: ["EXPLICIT_BATCH", "STRONGLY_TYPED"]}
    types = ["FLOAT", "HALF", "INT8", "INT32", "BOOL", "UINT8"] + ["INT64"] * (major >= 10)
    trt.BuilderFlag = enum.IntEnum("BuilderFlag", flags, start=0)
    trt.NetworkDefinitionCreationFlag = enum.IntEnum(
        "NetworkDefinitionCreationFlag", creation.get(major, ["STRONGLY_TYPED"]), start=0
    )
    trt.DataType = enum.Enum("DataType", types)
    trt.MemoryPoolType = enum.Enum("MemoryPoolType", ["WORKSPACE"])
    trt.DeviceType = enum.Enum("DeviceType", ["GPU", "DLA"])
    trt.TensorIOMode = enum.Enum("TensorIOMode", ["NONE", "INPUT", "OUTPUT"])
    trt.ProfilingVerbosity = enum.Enum(
        "ProfilingVerbosity", ["LAYER_NAMES_ONLY", "DETAILED", "NONE"]
    )
    trt.LayerInformationFormat = enum.Enum("LayerInformationFormat", ["ONELINE", "JSON"])
    trt.TensorLocation = enum.Enum("TensorLocation", ["DEVICE", "HOST"])
    data_types = {
        TensorProto.FLOAT: trt.DataType.FLOAT,
        TensorProto.FLOAT16: trt.DataType.HALF,
        TensorProto.INT32: trt.DataType.INT32,
        TensorProto.BOOL: trt.DataType.BOOL,
        TensorProto.INT8: trt.DataType.INT8,
        # 8.x has no 64-bit integers: it casts them down.
        TensorProto.INT64: trt.DataType.INT64 if major >= 10 else trt.DataType.INT32,
    }

    class ILogger:
        Severity = enum.Enum("Severity", "INTERNAL_ERROR ERROR WARNING INFO VERBOSE")

        def __init__(self) -> None:
            self._initialised = True

        def log(self, severity: Any, msg: str) -> None:
            raise NotImplementedError

    def need_logger(logger: Any) -> None:
        # pybind11 refuses an object whose constructor was not called.
        if not isinstance(logger, ILogger) or not getattr(logger, "_initialised", False):
            raise TypeError("incompatible constructor arguments")

    def complain(logger: Any, text: str) -> None:
        logger.log(ILogger.Severity.ERROR, text)

    def open_device(logger: Any) -> None:
        need_logger(logger)
        logger.log(ILogger.Severity.INFO, "[MemUsageChange] Init CUDA: CPU +0, GPU +0")
        if not driver:
            logger.log(ILogger.Severity.WARNING, NO_DRIVER)
            raise TypeError("pybind11::init(): factory function returned nullptr")

    class ITensor:
        def __init__(self, value: Any) -> None:
            self._value = value

        name = property(lambda self: self._value.name)

        @property
        def shape(self) -> tuple[int, ...]:
            dims = self._value.type.tensor_type.shape.dim
            return tuple(d.dim_value if d.HasField("dim_value") else -1 for d in dims)

        dtype = property(lambda self: data_types[self._value.type.tensor_type.elem_type])

    class ILayer:
        def __init__(self, name: str, outputs: list[ITensor]) -> None:
            self._name = name
            self._outputs = outputs
            self.types: dict[int, Any] = {}
            self.pinned: Any = None

        name = property(lambda self: self._name)
        num_outputs = property(lambda self: len(self._outputs))

        def get_output(self, index: int) -> ITensor:
            return self._outputs[index]

        if major < 11:

            @property
            def precision(self) -> Any:
                return self.pinned

            @precision.setter
            def precision(self, value: Any) -> None:
                assert isinstance(value, trt.DataType)
                self.pinned = value

            def set_output_type(self, index: int, dtype: Any) -> None:
                assert 0 <= index < len(self._outputs)
                self.types[index] = dtype

    class INetworkDefinition:
        def __init__(self, explicit: bool) -> None:
            self.explicit = explicit
            self.data = b""
            self.layers: list[ILayer] = []
            self.inputs: list[ITensor] = []

        num_layers = property(lambda self: len(self.layers))
        num_inputs = property(lambda self: len(self.inputs))

        def get_layer(self, index: int) -> ILayer:
            return self.layers[index]

        def get_input(self, index: int) -> ITensor:
            return self.inputs[index]

    class ParserError:
        def __init__(self, node: int, desc: str) -> None:
            self._node, self._desc = node, desc

        def node(self) -> int:
            return self._node

        def desc(self) -> str:
            return self._desc

    class OnnxParser:
        def __init__(self, network: INetworkDefinition, logger: Any) -> None:
            need_logger(logger)
            self._network, self._logger = network, logger
            self._errors: list[ParserError] = []

        num_errors = property(lambda self: len(self._errors))

        def get_error(self, index: int) -> ParserError:
            return self._errors[index]

        def parse(self, model: bytes, path: str | None = None) -> bool:
            if not self._network.explicit:
                text = "This version of the ONNX parser only supports explicit batch networks"
                self._errors.append(ParserError(-1, text))
                return False
            net = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(model))
            graph = net.graph
            values = {v.name: v for v in (*graph.value_info, *graph.input, *graph.output)}
            for index, node in enumerate(graph.node):
                if node.op_type in trt.unsupported:
                    text = f"No importer registered for op: {node.op_type}. Attempting plugin"
                    complain(self._logger, text)
                    self._errors.append(ParserError(index, text))
                    return False
                outputs = [ITensor(values[name]) for name in node.output if name in values]
                name = node.name or f"node_of_{node.output[0]}"
                self._network.layers.append(ILayer(name, outputs))
                if node.op_type == "Gemm":  # product and sum: two layers of one node
                    self._network.layers.append(ILayer(f"{name}_{index}", outputs))
            self._network.data = bytes(model)
            self._network.inputs = [ITensor(values[v.name]) for v in graph.input]
            return True

    class ITimingCache:
        def __init__(self, data: bytes) -> None:
            self.data = data

        def serialize(self) -> IHostMemory:
            return IHostMemory(self.data)

    class IBuilderConfig:
        def __init__(self, logger: Any) -> None:
            self._logger = logger
            self.set = {trt.BuilderFlag.TF32}
            self.pools: dict[Any, int] = {}
            self.default_device_type = trt.DeviceType.GPU
            self.DLA_core = -1
            self.cache: ITimingCache | None = None
            self.profiling_verbosity = trt.ProfilingVerbosity.LAYER_NAMES_ONLY

        def set_flag(self, flag: Any) -> None:
            self.set.add(trt.BuilderFlag(flag))

        def clear_flag(self, flag: Any) -> None:
            self.set.discard(trt.BuilderFlag(flag))

        def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
            assert isinstance(pool, trt.MemoryPoolType)
            self.pools[pool] = pool_size

        def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache | None:
            data = bytes(serialized_timing_cache)
            if data and not data.startswith(_CACHE):
                complain(self._logger, "Could not read the timing cache")
                return None
            return ITimingCache(data)

        def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
            own = _CACHE + version.encode()
            if cache.data and not cache.data.startswith(own) and not ignore_mismatch:
                return False
            self.cache = cache
            return True

        def get_timing_cache(self) -> ITimingCache | None:
            return self.cache

    class Builder:
        def __init__(self, logger: Any) -> None:
            open_device(logger)
            self._logger = logger

        num_DLA_cores = property(lambda self: dla_cores)  # noqa: N815

        def create_network(self, flags: int = 0) -> INetworkDefinition:
            assert flags < 1 << len(trt.NetworkDefinitionCreationFlag)
            bit = getattr(trt.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)
            return INetworkDefinition(major >= 10 or bool(flags >> int(bit) & 1))

        def create_builder_config(self) -> IBuilderConfig:
            return IBuilderConfig(self._logger)

        def build_serialized_network(
            self, network: INetworkDefinition, config: IBuilderConfig
        ) -> IHostMemory | None:
            trt.builds.append((network, config))
            if trt.refuse:
                complain(self._logger, trt.refuse)
                return None
            if config.cache is not None and not config.cache.data.startswith(_CACHE):
                config.cache.data = _CACHE + version.encode()
            layers = list_layers(network, config)
            if layers is None:
                complain(
                    self._logger,
                    "Int8 precision has been set for a layer or layer output, but int8 is not "
                    "configured in the builder",
                )
                return None
            head = _MAGIC + json.dumps([version, capability]).encode()
            return IHostMemory(b"\n".join((head, json.dumps(layers).encode(), network.data)))

    def list_layers(network: INetworkDefinition, config: IBuilderConfig) -> list[Any] | None:
        """Entries of "Layers" in the inspector's JSON; None for INT8 that was not allowed."""
        verbosity = trt.ProfilingVerbosity
        if config.profiling_verbosity is verbosity.NONE:
            return []
        model = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(network.data))
        kinds = {name: node.op_type for node in model.graph.node for name in node.output}
        tensors = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
        types = tensors | {
            value.name: value.type.tensor_type.elem_type
            for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)
        }
        pinned = {layer.name for layer in network.layers if layer.pinned is trt.DataType.FLOAT}
        fp16 = major < 11 and trt.BuilderFlag.FP16 in config.set
        found = []
        for node in model.graph.node:
            name = node.name or f"node_of_{node.output[0]}"
            data = node.input[0] if node.input else ""
            if kinds.get(data) == "DequantizeLinear":
                if major < 11 and trt.BuilderFlag.INT8 not in config.set:
                    return None
                kind = "Int8"
            elif types.get(data) == TensorProto.FLOAT16 or (fp16 and name not in pinned):
                kind = "Half"
            else:
                kind = "Float"
            if config.profiling_verbosity is verbosity.DETAILED:
                found.append(describe_layer(node, name, trt.computes or kind))
            else:
                found.append(name)
        return found

    def describe_layer(node: Any, name: str, kind: str) -> dict[str, Any]:
        """An entry in the words of 8.x, or of 10 and later, whose own compiler makes products."""
        texts = {
            "Float": "Row major linear FP32",
            "Half": "Channel major FP16 format where channel % 8 == 0",
            "Int8": "Thirty-two wide channel vectorized row major Int8 format",
        }
        text = kind if major >= 10 else texts[kind]
        layer: dict[str, Any] = {"Name": name}
        tensors = {"Location": "Device", "Dimensions": [], "Format/Datatype": text}
        layer["Inputs"] = [{"Name": node.input[0], **tensors}] if node.input else []
        layer["Outputs"] = [{"Name": node.output[0], **tensors}]
        if node.op_type in ("Conv", "ConvTranspose"):
            layer |= {"LayerType": "CaskConvolution", "ParameterType": "Convolution"}
            layer["Weights"] = {"Type": kind, "Count": 0}
        elif node.op_type in ("Gemm", "MatMul"):
            layer["LayerType"] = "gemm" if major >= 10 else "CaskGemmMatrixMultiply"
        else:
            layer["LayerType"] = "kgen" if major >= 10 else "PointWiseV2"
        return layer

    class Runtime:
        def __init__(self, logger: Any) -> None:
            open_device(logger)
            self._logger = logger
            self.DLA_core = -1

        num_DLA_cores = property(lambda self: dla_cores)  # noqa: N815

        def deserialize_cuda_engine(self, serialized_engine: bytes) -> ICudaEngine | None:
            head, _, rest = bytes(serialized_engine).partition(b"\n")
            try:
                built = json.loads(head.removeprefix(_MAGIC)) if head.startswith(_MAGIC) else None
            except ValueError:
                built = None
            if built is None or built[0] != version:
                complain(
                    self._logger,
                    "1: [stdArchiveReader.cpp::StdArchiveReader::40] Error Code 1: Serialization "
                    "(Serialization assertion stdVersionRead == serializationVersion failed."
                    "Version tag does not match.)",
                )
                return None
            if built[1] != capability:
                complain(
                    self._logger,
                    "IRuntime::deserializeCudaEngine: Error Code 6: API Usage Error (The engine "
                    "plan file is generated on an incompatible device, expecting compute "
                    f"{capability} got compute {built[1]}, please rebuild.)",
                )
                return None
            layers, _, data = rest.partition(b"\n")
            return ICudaEngine(data, json.loads(layers), self._logger)

    class EngineInspector:
        def __init__(self, layers: list[Any]) -> None:
            self._layers = layers

        def get_engine_information(self, format: Any) -> str:
            assert format is trt.LayerInformationFormat.JSON
            return json.dumps({"Layers": self._layers, "Bindings": []})

    class ICudaEngine:
        def __init__(self, data: bytes, layers: list[Any], logger: Any) -> None:
            self._layers = layers
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            options.log_severity_level = 4
            self.session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
            self.logger = logger
            model = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(data))
            self.inputs = [ITensor(value) for value in model.graph.input]
            self.outputs = [ITensor(value) for value in model.graph.output]

        num_io_tensors = property(lambda self: len(self.inputs) + len(self.outputs))

        def _find(self, name: str) -> ITensor:
            return next(t for t in (*self.inputs, *self.outputs) if t.name == name)

        def get_tensor_name(self, index: int) -> str:
            return (*self.inputs, *self.outputs)[index].name

        def get_tensor_mode(self, name: str) -> Any:
            is_input = any(t.name == name for t in self.inputs)
            return trt.TensorIOMode.INPUT if is_input else trt.TensorIOMode.OUTPUT

        def get_tensor_shape(self, name: str) -> tuple[int, ...]:
            return self._find(name).shape

        def get_tensor_dtype(self, name: str) -> Any:
            return self._find(name).dtype

        def get_tensor_location(self, name: str) -> Any:
            return trt.TensorLocation.DEVICE

        def create_engine_inspector(self) -> EngineInspector:
            if not trt.tells:
                raise RuntimeError("the engine was built without layer information")
            return EngineInspector(self._layers)

        def create_execution_context(self) -> IExecutionContext | None:
            return IExecutionContext(self)

    class IExecutionContext:
        def __init__(self, engine: ICudaEngine) -> None:
            self._engine = engine
            self._addresses: dict[str, int] = {}
            self._has_run = False

        def set_tensor_address(self, name: str, memory: int) -> bool:
            if name not in [t.name for t in (*self._engine.inputs, *self._engine.outputs)]:
                return False
            if memory % ALIGNMENT:
                complain(self._engine.logger, f"Address of {name} is not aligned to 256 bytes")
                return False
            self._addresses[name] = memory
            return True

        def execute_async_v3(self, stream_handle: int) -> bool:
            engine = self._engine
            if len(self._addresses) != engine.num_io_tensors or trt.refuse_run:
                complain(engine.logger, trt.refuse_run or "Address is not set")
                return False
            stream = FakeCuda.streams[stream_handle]
            if stream.recorded is not None and not self._has_run:
                # Kernels are loaded in the first run.
                complain(engine.logger, "operation not permitted when stream is capturing")
                return False
            # Arguments of kernels: a captured graph has those of its capture.
            addresses = dict(self._addresses)
            stream.submit("enqueue", lambda: self._compute(addresses))
            return True

        def _compute(self, addresses: dict[str, int]) -> None:
            if trt.break_run:
                raise CudaError(trt.break_run)
            self._has_run = True
            engine = self._engine
            values = {
                t.name: view_memory(addresses[t.name], t.shape, np.float32) for t in engine.inputs
            }
            results: Sequence[Any] = engine.session.run(None, values)
            for tensor, result in zip(engine.outputs, results, strict=True):
                kind = np.int32 if tensor.dtype is trt.DataType.INT32 else result.dtype
                view_memory(addresses[tensor.name], result.shape, kind)[...] = result

    for kind in (
        *(ILogger, ITensor, ILayer, INetworkDefinition, ParserError, OnnxParser, ITimingCache),
        *(IBuilderConfig, Builder, Runtime, ICudaEngine, IExecutionContext, IHostMemory),
        *(EngineInspector,),
    ):
        setattr(trt, kind.__name__, kind)
    return trt
