# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A model that computes nothing and takes scripted times: for tests and for measuring overhead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NoReturn, get_args

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.models.heads.base import Kind
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.model import Opened, SourceOptions
from jetson_dnn_rt.models.sources.files import hash_bytes

STAGES = ("preprocess", "inference", "decode")
_FORM = (
    "null:MS, null:MS/MS/... (one per run, from the start again at the end) or "
    "null:preprocess=MS;inference=MS;inference@THREADS=MS;decode=MS, then ',detection', "
    "',segmentation', ',classification' and ',spin' as wanted"
)
_WITH_THREADS = re.compile(r"inference@[1-9][0-9]{0,3}")
_OUTPUTS: dict[Kind, tuple[tuple[int, ...], ...]] = {
    "detection": ((1, 8, 4), (1, 8, 2)),
    "segmentation": ((1, 2, 8, 8),),
    "classification": ((1, 2),),
}


def open_source(name: str, options: SourceOptions) -> Opened:
    """Make a model from the text after ``null:``."""
    script, kind = NullScript.parse(name)
    size = options.input_size or (64, 64)
    model_hash = hash_bytes(f"null:{name}".encode())
    return Opened(NullOrigin(script, kind), model_hash, size, Preprocessing(*size))


@dataclass(frozen=True)
class NullScript:
    """How long each run of a stage takes."""

    # Per stage, taken in turn; a missing one does not wait. ``inference@2``: with two threads.
    times_ns: dict[str, tuple[int, ...]]
    spin: bool = False  # burn the time on the processor, as a network would, instead of sleeping

    @property
    def takes_threads(self) -> bool:
        """Whether the time of a network depends on its threads."""
        return any(stage not in STAGES for stage in self.times_ns)

    @staticmethod
    def parse(text: str) -> tuple[NullScript, Kind]:
        """Parse the text after ``null:``; `ConfigurationError` where it has another form."""
        times, *words = text.split(",")
        kind: Kind = "detection"
        spin = False
        for word in words:
            if word == "spin":
                spin = True
            elif word in get_args(Kind):
                kind = word  # type: ignore[assignment]
            else:
                raise ConfigurationError(f"null:{text}: {word!r} is unknown; the form is {_FORM}")
        script: dict[str, tuple[int, ...]] = {}
        for part in times.split(";"):
            stage, equals, values = part.rpartition("=")
            if equals and stage not in STAGES and not _WITH_THREADS.fullmatch(stage):
                raise ConfigurationError(f"null:{text}: no stage {stage!r}; the form is {_FORM}")
            try:
                milliseconds = [float(value) for value in values.split("/")]
            except ValueError as error:
                raise ConfigurationError(f"null:{text}: {error}; the form is {_FORM}") from error
            if not all(0.0 <= value <= 3.6e6 for value in milliseconds):
                raise ConfigurationError(f"null:{text}: times must be in [0, 3600000] ms")
            script[stage or "inference"] = tuple(round(value * 1e6) for value in milliseconds)
        return NullScript(script, spin), kind


class NullOrigin:
    """Outputs of zeros in the layout of a task."""

    exports = False

    def __init__(self, script: NullScript, kind: Kind) -> None:
        self.script = script
        self._kind = kind

    def probe(self, image: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], ...]:
        """The outputs: few boxes, or maps of an eighth of the size."""
        height, width = image.shape[2:]
        shapes = _OUTPUTS[self._kind]
        if self._kind == "segmentation":
            shapes = ((1, 2, -(-height // 8), -(-width // 8)),)
        return tuple(np.zeros(shape, np.float32) for shape in shapes)

    def torch_module(self) -> NoReturn:
        """Raise `BackendUnavailableError`: there is neither a module nor an ONNX model."""
        raise BackendUnavailableError("a null: model runs on the null back end only (full@null)")

    onnx_model = torch_module
