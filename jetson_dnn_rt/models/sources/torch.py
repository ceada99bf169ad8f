# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Networks that come as torch modules, and their export to ONNX."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import io
import re
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.models.model import PROBE_VALUE
from jetson_dnn_rt.models.sources.files import MAX_MODEL_BYTES

if TYPE_CHECKING:
    import torch

_OPSET = 17  # the newest that the exporter of torch 2.1 (JetPack 6) writes
_TOO_NEW = re.compile(r"model IR version|[Oo]pset \d+ is under development")
_EXPORT_TOLERANCE = 1e-3  # of the largest value


def run_module(
    module: torch.nn.Module, inputs: Sequence[npt.NDArray[np.float32]], name: str
) -> tuple[npt.NDArray[Any], ...]:
    """Run a module once on the CPU; `ModelError` where it fails or returns more than tensors."""
    import torch

    try:
        with torch.inference_mode():
            outputs = module(*map(torch.from_numpy, inputs))
    except Exception as error:  # a foreign module may raise anything
        shapes = ", ".join(str(list(value.shape)) for value in inputs)
        raise ModelError(f"{name} cannot be run on {shapes}: {error}") from error
    if isinstance(outputs, torch.Tensor):
        outputs = (outputs,)
    if not isinstance(outputs, (tuple, list)) or not all(
        isinstance(output, torch.Tensor) for output in outputs
    ):
        raise ModelError(f"{name} returns {type(outputs).__name__}, needed are tensors")
    return tuple(output.cpu().numpy() for output in outputs)


def run_onnx(
    data: bytes, inputs: Sequence[npt.NDArray[np.float32]], what: str
) -> tuple[npt.NDArray[Any], ...]:
    """Run a serialized ONNX model once, on one thread of ONNX Runtime, which must be installed."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        return tuple(session.run(None, dict(zip(names, inputs, strict=True))))
    except Exception as error:  # ONNX Runtime's own classes share no base but Exception
        raise ModelError(f"{what} cannot be run: {describe_onnx_error(error)}") from error


def describe_onnx_error(error: Exception) -> str:
    """What ONNX Runtime says, and what to do where it is only too old for the file."""
    text = str(error)
    if _TOO_NEW.search(text):
        text += (
            "; fix: pip install --upgrade onnxruntime, or export the network with an older "
            "opset_version, as 17"
        )
    return text


class TorchOrigin:
    """A network in a module; `make_module` returns one of the caller's own in evaluation mode."""

    exports = True

    def __init__(
        self, name: str, make_module: Callable[[], torch.nn.Module], input_size: tuple[int, int]
    ) -> None:
        self._name = name
        self._make_module = make_module
        self._input_size = input_size
        self._onnx: bytes | None = None
        self._lock = threading.Lock()

    @staticmethod
    def of_module(name: str, module: torch.nn.Module, input_size: tuple[int, int]) -> TorchOrigin:
        """Hand out copies of `module`."""
        module.eval()
        return TorchOrigin(name, lambda: copy.deepcopy(module), input_size)

    def torch_module(self) -> torch.nn.Module:
        """A module of the caller's own."""
        return self._make_module()

    def onnx_model(self) -> bytes:
        """Export on the first call; see `export_onnx`."""
        with self._lock:
            if self._onnx is None:
                module = self._make_module()
                self._onnx = export_onnx(module, ((1, 3, *self._input_size),), self._name)
            return self._onnx

    def probe(self, image: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], ...]:
        """Run once on torch."""
        return run_module(self._make_module(), [image], self._name)


def export_onnx(
    module: torch.nn.Module,
    input_shapes: Sequence[tuple[int, ...]],
    name: str,
    *,
    output_names: Sequence[str] = (),
) -> bytes:
    """Serialize a module as ONNX, and compare with torch where ONNX Runtime is installed.

    The TorchScript exporter is used where torch still has it: it needs no other package, and
    writes the same opset on torch 2.1 and later. The newer one needs onnxscript.

    Raises
    ------
    ModelError
        When the exporter fails, or what it wrote computes something else.
    BackendUnavailableError
        When neither exporter can be used.
    """
    import torch

    values = tuple(torch.full(shape, PROBE_VALUE) for shape in input_shapes)
    names = ["image"] if len(values) == 1 else [f"input_{i}" for i in range(len(values))]
    keywords: dict[str, Any] = {"input_names": names}
    if output_names:
        keywords["output_names"] = list(output_names)
    export: Any = torch.onnx.export
    known = inspect.signature(export).parameters
    if "training" in known:
        keywords |= {"opset_version": _OPSET, **({"dynamo": False} if "dynamo" in known else {})}
    elif importlib.util.find_spec("onnxscript") is None:
        raise BackendUnavailableError(
            f"{name} must be exported to ONNX for this back end, which this torch does with "
            "onnxscript: pip install 'jetson_dnn_rt[torch]'"
        )
    buffer = io.BytesIO()
    try:
        # The exporter warns of every Python branch it traces through; the results are compared.
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")
            program = export(module, values, buffer, **keywords)
            if not buffer.getbuffer().nbytes and program is not None:
                program.save(buffer)
    except Exception as error:  # the exporter raises what the traced module raises
        raise ModelError(f"{name} cannot be exported to ONNX: {error}") from error
    data = buffer.getvalue()
    if len(data) > MAX_MODEL_BYTES:
        raise ModelError(f"{name} as ONNX is larger than {MAX_MODEL_BYTES} bytes")
    if importlib.util.find_spec("onnxruntime") is not None:
        _check_export(data, module, input_shapes, name)
    return data


def _check_export(
    data: bytes, module: torch.nn.Module, input_shapes: Sequence[tuple[int, ...]], name: str
) -> None:
    """Compare the exported network with the module on noise."""
    generator = np.random.default_rng(0)
    noise = [generator.random(shape, np.float32) for shape in input_shapes]
    found = run_onnx(data, noise, f"{name} exported to ONNX")
    expected = run_module(module, noise, name)
    if any(output.ndim == 1 for output in expected):
        # Lists of boxes after suppression: on noise their order and length depend on rounding.
        # All that can be checked here is that they run.
        return
    for one, other in zip(expected, found, strict=True):
        gap = float(np.abs(one - other).max()) if one.shape == other.shape else np.inf
        limit = _EXPORT_TOLERANCE * max(1.0, float(np.abs(one).max()))
        if not gap <= limit:
            raise ModelError(
                f"{name} exported to ONNX differs from torch by {gap:.3g}, allowed is {limit:.3g}"
            )
