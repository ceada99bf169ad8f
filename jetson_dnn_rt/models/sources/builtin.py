# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The detector and the segmenter that come with the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.config.suggestions import suggest
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.model import Opened, SourceOptions
from jetson_dnn_rt.models.sources.files import hash_bytes
from jetson_dnn_rt.models.sources.onnx import probe_onnx

if TYPE_CHECKING:
    import torch


def open_source(name: str, options: SourceOptions) -> Opened:
    """Load a network of `jetson_dnn_rt.demo.builtin`."""
    if name not in builtin.NAMES:
        raise ConfigurationError(
            f"builtin:{name} is unknown, known are {', '.join(builtin.NAMES)}"
            f"{suggest(name, builtin.NAMES, 'builtin:{}')}"
        )
    size = builtin.INPUT_SIZE[name]
    if options.input_size not in (None, size):
        raise ConfigurationError(f"builtin:{name} takes {size[0]}x{size[1]} only", "input_size")
    origin = BuiltinOrigin(name)
    return Opened(
        origin, hash_bytes(origin.onnx_model()), size, Preprocessing(*size), builtin.labels(name)
    )


class BuiltinOrigin:
    """A network in the package's own ONNX file, which needs neither onnx nor torch to be run."""

    exports = False

    def __init__(self, name: str) -> None:
        self._name = name
        self._data = builtin.read(name)

    def onnx_model(self) -> bytes:
        """The file's content."""
        return self._data

    def torch_module(self) -> torch.nn.Module:
        """The module that the file was exported from, with its weights."""
        return builtin.load(self._name)

    def probe(self, image: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], ...]:
        """See `probe_onnx`."""
        return probe_onnx(self, image, f"builtin:{self._name}")
