# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ONNX files: checked, and passed unchanged to the back ends that run ONNX natively."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.models.heads.labels import names_of_mapping
from jetson_dnn_rt.models.model import Opened, Origin, SourceOptions, make_probe_input
from jetson_dnn_rt.models.sources.files import hash_bytes, import_package, read_model_file
from jetson_dnn_rt.models.sources.torch import run_module, run_onnx

if TYPE_CHECKING:
    import onnx
    import torch

_MAX_NAMES_CHARACTERS = 1 << 16


def open_source(name: str, options: SourceOptions) -> Opened:
    """Check and load a file."""
    origin = OnnxOrigin(Path(name), options.input_size)
    model_hash = hash_bytes(origin.onnx_model())
    return Opened(origin, model_hash, origin.input_size, labels=origin.names)


class OnnxOrigin:
    """A network in a single ONNX file; `input_size` applies where the file leaves it open.

    `ModelError` where the file is missing, empty, damaged, split in several files, or its input is
    not one float32 image ``[1, 3, H, W]``.
    """

    exports = False

    def __init__(self, path: Path, input_size: tuple[int, int] | None = None) -> None:
        self._path = path
        data = read_model_file(path)
        model = _parse(path, data)
        value, self.input_size = _check_input(path, model, input_size)
        # Open dimensions are fixed once, here, so that every back end sees the same shapes.
        is_open = _fix_input(model, value, (1, 3, *self.input_size))
        self._data = model.SerializeToString() if is_open else data
        self.names = _read_names(model)

    def onnx_model(self) -> bytes:
        """The file's content."""
        return self._data

    def torch_module(self) -> torch.nn.Module:
        """The graph as torch operators, by onnx2torch."""
        from jetson_dnn_rt.models.sources.from_onnx import convert_to_torch

        return convert_to_torch(self._data, str(self._path))

    def probe(self, height: int, width: int) -> tuple[npt.NDArray[Any], ...]:
        """See `probe_onnx`."""
        return probe_onnx(self, (height, width), str(self._path))


def probe_onnx(origin: Origin, size: tuple[int, int], name: str) -> tuple[npt.NDArray[Any], ...]:
    """Run a network that is ONNX once: on ONNX Runtime where it is installed, else on torch."""
    image = make_probe_input(*size)
    if importlib.util.find_spec("onnxruntime") is not None:
        return run_onnx(origin.onnx_model(), [image], name)
    if importlib.util.find_spec("torch") is not None:
        return run_module(origin.torch_module(), [image], name)
    raise BackendUnavailableError(
        f"{name} is run once to see its outputs, with ONNX Runtime or torch, and neither is "
        "installed: pip install onnxruntime"
    )


def _parse(path: Path, data: bytes) -> onnx.ModelProto:
    onnx = import_package("onnx", "an ONNX file")
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ModelError(f"{path} is damaged or no ONNX file: {error}") from error
    for tensor in _find_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
            raise ModelError(
                f"{path} keeps the tensor {tensor.name[:100]!r} in another file: save it as a "
                "single file"
            )
    if not model.graph.node or not model.graph.output:
        raise ModelError(f"{path} is damaged or no ONNX file: it holds no graph")
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"{path} is damaged or no valid ONNX: {error}") from error
    return model


def _find_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor, wherever it is: attributes of nodes, branches, functions, sparse values."""
    import onnx

    # By the schema of the message, not by a list of places, which grows from release to release.
    waiting: list[Any] = [model]
    while waiting:
        message = waiting.pop()
        if isinstance(message, onnx.TensorProto):
            yield message
            continue
        for field, value in message.ListFields():
            if field.message_type is None:
                continue
            if hasattr(value, "ListFields"):
                waiting.append(value)
            else:
                waiting.extend(value)


def _check_input(
    path: Path, model: onnx.ModelProto, input_size: tuple[int, int] | None
) -> tuple[onnx.ValueInfoProto, tuple[int, int]]:
    import onnx

    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if len(inputs) != 1:
        raise ModelError(f"{path} has {len(inputs)} inputs, needed is one image")
    tensor = inputs[0].type.tensor_type
    shape = [d.dim_value if d.HasField("dim_value") else 0 for d in tensor.shape.dim]
    if tensor.elem_type != onnx.TensorProto.FLOAT:
        name = onnx.TensorProto.DataType.Name(tensor.elem_type)
        raise ModelError(f"{path} takes {name}, needed is a float32 input")
    if len(shape) != 4 or shape[0] not in (0, 1) or shape[1] not in (0, 3):
        raise ModelError(f"{path} takes {shape} (0 = open), needed is [1, 3, H, W]")
    size = input_size or (shape[2], shape[3])
    if 0 in size:
        raise ModelError(f"{path} leaves its input size open: give input_size")
    if shape[2] not in (0, size[0]) or shape[3] not in (0, size[1]):
        said = f"input_size says {size[0]}x{size[1]}"
        raise ModelError(f"{path} takes {shape[2]}x{shape[3]}, {said}")
    return inputs[0], size


def _fix_input(model: onnx.ModelProto, value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> bool:
    """Write the shape of the input into the graph; True where something was open."""
    dimensions = value.type.tensor_type.shape.dim
    if all(d.HasField("dim_value") and d.dim_value > 0 for d in dimensions):
        return False
    for dimension, size in zip(dimensions, shape, strict=True):
        dimension.dim_value = size
    # Shapes that the file records after the input may contradict the fixed sizes.
    del model.graph.value_info[:]
    for output in model.graph.output:
        for dimension in output.type.tensor_type.shape.dim:
            if not dimension.HasField("dim_value"):
                dimension.Clear()
    return True


def _read_names(model: onnx.ModelProto) -> tuple[str, ...] | None:
    """Class names that Ultralytics' exports carry, ``{0: 'person', ...}`` as text."""
    text = next((p.value for p in model.metadata_props if p.key == "names"), "")
    if not text or len(text) > _MAX_NAMES_CHARACTERS:
        return None
    try:
        names = ast.literal_eval(text)
        return names_of_mapping(names) if isinstance(names, dict) else None
    except (ValueError, SyntaxError, MemoryError, RecursionError, ModelError):
        return None
