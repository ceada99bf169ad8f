# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ONNX files: checked, and passed to the back ends that run ONNX natively."""

from __future__ import annotations

import importlib.util
import logging
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.models.metadata import read_metadata
from jetson_dnn_rt.models.model import Opened, Origin, SourceOptions
from jetson_dnn_rt.models.sources.files import hash_bytes, import_package, read_model_file
from jetson_dnn_rt.models.sources.onnx_interface import (
    adapt,
    describe_inputs,
    find_plugins,
    make_outputs,
    sort_nodes,
)
from jetson_dnn_rt.models.sources.torch import run_module, run_onnx

EXPORT = "export the network to one ONNX file again (docs/models.md)"

if TYPE_CHECKING:
    import onnx
    import torch

logger = logging.getLogger(__name__)


def open_source(name: str, options: SourceOptions) -> Opened:
    """Check and load a file."""
    origin = OnnxOrigin(Path(name), options)
    model_hash = hash_bytes(origin.onnx_model())
    return Opened(
        origin,
        model_hash,
        origin.input_size,
        labels=origin.metadata.names,
        metadata=origin.metadata,
        output_names=origin.output_names,
        takes_bytes=origin.takes_bytes,
        inputs=origin.inputs,
    )


class OnnxOrigin:
    """A network in a single ONNX file, brought to one float32 image ``[1, 3, H, W]``.

    See `jetson_dnn_rt.models.sources.onnx_interface` for what `options` and the file may say.
    `ModelError` where the file is missing, empty, damaged, split in several files, or no image can
    be brought to its input.
    """

    exports = False

    def __init__(self, path: Path, options: SourceOptions) -> None:
        self._path, self._size_asked = path, options.input_size
        data = read_model_file(path)
        model, is_sorted = _parse(path, data)
        self.metadata = read_metadata({p.key: p.value for p in model.metadata_props})
        self.inputs = describe_inputs(model)
        try:
            adapted = adapt(model, options, self.metadata)
        except ModelError as error:
            raise ModelError(f"{path} {error}", error.parameter) from error
        self.input_size = adapted.input_size
        self.takes_bytes = adapted.takes_bytes
        self._data = data if is_sorted and not adapted.changed else model.SerializeToString()
        self.output_names = tuple(output.name for output in model.graph.output)
        self._plugins = find_plugins(model)

    def onnx_model(self) -> bytes:
        """The file's content."""
        return self._data

    def torch_module(self) -> torch.nn.Module:
        """The graph as torch operators, by onnx2torch."""
        from jetson_dnn_rt.models.sources.from_onnx import convert_to_torch

        return convert_to_torch(self._data, str(self._path))

    def probe(self, image: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], ...]:
        """See `probe_onnx`; zeros of the shapes in the file where TensorRT alone can run it."""
        if self._plugins:
            logger.info(
                "%s holds %s, which TensorRT alone runs: its outputs are taken from the file",
                self._path, ", ".join(self._plugins),
            )  # fmt: skip
            return make_outputs(self._path, _parse(self._path, self._data)[0])
        try:
            return probe_onnx(self, image, str(self._path))
        except ModelError as error:
            if self._size_asked is None:
                raise
            height, width = image.shape[2:]
            raise ModelError(
                f"{error}; fix: another input_size than {height}x{width}: many networks take only "
                "multiples of 32",
                "input_size",
            ) from error


def probe_onnx(
    origin: Origin, image: npt.NDArray[np.float32], name: str
) -> tuple[npt.NDArray[Any], ...]:
    """Run a network that is ONNX once: on ONNX Runtime where it is installed, else on torch."""
    if importlib.util.find_spec("onnxruntime") is not None:
        return run_onnx(origin.onnx_model(), [image], name)
    if importlib.util.find_spec("torch") is not None:
        return run_module(origin.torch_module(), [image], name)
    raise BackendUnavailableError(
        f"{name} is run once to see its outputs, with ONNX Runtime or torch, and neither is "
        "installed: pip install onnxruntime"
    )


def _parse(path: Path, data: bytes) -> tuple[onnx.ModelProto, bool]:
    """Read and check a file; also whether its nodes were in order."""
    onnx = import_package("onnx", "an ONNX file")
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ModelError(f"{path} is damaged or no ONNX file; {EXPORT}") from error
    for tensor in _find_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
            raise _refuse_external(path, tensor)
    _check_versions(path, model)
    if not model.graph.node or not model.graph.output:
        raise ModelError(f"{path} is damaged or no ONNX file: it holds no graph; {EXPORT}")
    is_sorted = not sort_nodes(model)
    try:
        if not find_plugins(model):  # which the checker does not know
            onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, UnicodeDecodeError) as error:  # a text of other bytes
        raise ModelError(f"{path} is damaged or no valid ONNX: {error}") from error
    return model, is_sorted


def _refuse_external(path: Path, tensor: onnx.TensorProto) -> ModelError:
    """The error for a tensor that is in another file, which the model's hash does not cover."""
    place = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    text = f"{path} keeps the tensor {tensor.name[:100]!r} in another file"
    if not place or place in (".", "..") or Path(place).name != place or not place.isprintable():
        return ModelError(f"{text}, and not in one beside it; {EXPORT}")
    path = path.expanduser()
    single = path.with_name(f"{path.stem}_single.onnx")
    code = f"import onnx; onnx.save(onnx.load({str(path)!r}), {str(single)!r})"
    plain = not set('"$`\\!') & set(code)
    command = f'python3 -c "{code}"' if plain else f"python3 -c {shlex.quote(code)}"
    missing = ""
    if not (path.parent / place).is_file():
        missing = f"copy {place[:200]}, which belongs to it, into {path.parent}; then "
    return ModelError(
        f"{text}, {place[:200]}; fix: {missing}make a single file of both: {command} "
        f"and use onnx:{single}; or export it with external_data=False"
    )


def _check_versions(path: Path, model: onnx.ModelProto) -> None:
    """Refuse a format or operators that the package onnx here is too old for."""
    import onnx

    needs = {"the format of version": (model.ir_version, onnx.IR_VERSION)}
    for imported in model.opset_import:
        if imported.domain in ("", "ai.onnx"):
            needs["operators of opset"] = (imported.version, onnx.defs.onnx_opset_version())
    for what, (wanted, known) in needs.items():
        if wanted > known:
            raise ModelError(
                f"{path} needs {what} {wanted}, and the package onnx {onnx.__version__} knows "
                f"none above {known}; fix: pip install --upgrade onnx onnxruntime, or export the "
                "network with an older opset_version, as 17"
            )


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
