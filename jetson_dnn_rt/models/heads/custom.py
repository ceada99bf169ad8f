# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Decoders of users: ``head: package.module:Class``.

The class is code of the user's, found as Python finds modules. It is made once for a task from the
network that was inspected, and called for every frame; `UserDecoder` says how. An example of 30
lines is ``examples/fastestdet.py``.
"""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Protocol, cast, get_args

from jetson_dnn_rt.config.suggestions import suggest
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.models.heads.base import (
    DecoderSettings,
    Inspected,
    Kind,
    Layout,
    Match,
    Outputs,
)
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing
from jetson_dnn_rt.results import Classification, Detections, Result, Segmentation
from jetson_dnn_rt.safety.faults import describe_error

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)

_RESULTS: dict[Kind, type] = {
    "detection": Detections,
    "segmentation": Segmentation,
    "classification": Classification,
}


class UserDecoder(Protocol):
    """Turns the outputs of one frame into a result.

    It may have two attributes more, for what a node makes topics of: `parts`, of
    ``"instance_mask"`` and ``"keypoints"``, names what detections have beside boxes, and `masks`
    the name and the number of classes of each of several masks.
    """

    kind: ClassVar[Kind]
    """``detection``, ``segmentation`` or ``classification``: the result that it returns."""
    preprocessing: ClassVar[Mapping[str, Any]]
    """Fields of `Preprocessing` that the network needs, without its height and width; optional."""
    classes: int
    """How many there are; 0 = as many as there are labels."""

    def __init__(self, network: Inspected) -> None:
        """Look at the network once.

        `network.outputs` are those for a grey picture, float32, batch 1 first; `network.names`
        those of the outputs; `network.input_size` is height and width in pixels. Raise
        `ValueError` when it is a network of another form.
        """

    def __call__(self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings) -> Result:
        """Decode one frame, on the worker's thread, within its deadline.

        `outputs` are in the order of the file and overwritten by the next frame: copy what the
        result keeps. `geometry.to_source` maps boxes of the input, xyxy [N, 4], to the frame;
        `heads.boxes.finish` does that, the thresholds and the suppression of overlaps.
        """


def is_custom(head: str) -> bool:
    """Whether a head is named as ``package.module:Class``."""
    return ":" in head


def make_layout(head: str) -> Layout:
    """Import the class and make a layout of it.

    `ConfigurationError` where the name has another form or there is no such class.
    """
    if not _NAME.fullmatch(head):
        raise ConfigurationError(f"head {head!r} must have the form package.module:Class")
    module, _, name = head.partition(":")
    try:
        code = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"head {head!r}: there is no module {error.name}; add its folder to PYTHONPATH"
        ) from error
    except Exception as error:  # code of others may raise anything when it is imported
        raise ConfigurationError(
            f"head {head!r}: its module cannot be imported: {_describe(error)}"
        ) from error
    found = getattr(code, name, None)
    if found is None:
        names = [one for one in vars(code) if not one.startswith("_")]
        there = f"; it has {', '.join(names) or 'nothing'}"
        raise ConfigurationError(
            f"head {head!r}: module {module} has no {name}{suggest(name, names) or there}"
        )
    kind: Any = getattr(found, "kind", None)
    if not callable(found) or kind not in get_args(Kind):
        raise ConfigurationError(
            f"head {head!r}: it must be a class with a `kind` that is one of "
            f"{', '.join(get_args(Kind))}: {kind!r}"
        )
    fields = dict(getattr(found, "preprocessing", {}))

    def prepare(height: int, width: int) -> Preprocessing:
        return Preprocessing(height, width).override(fields)

    return Layout(
        head, "what its class takes", partial(_match, head, found), prepare, kind,
        declared=bool(fields),
    )  # fmt: skip


def _match(head: str, make: Any, seen: Inspected) -> Match:
    """Make a decoder and try it on the outputs that are there."""
    height, width = seen.input_size
    geometry = Geometry(height, width, height, width, 0, 0)
    try:
        decoder = make(seen)
        result = decoder(seen.outputs, geometry, DecoderSettings())
    except Exception as error:
        raise ModelError(
            f"head {head!r} fails on outputs {seen.shapes} of a grey picture: {_describe(error)}"
        ) from error
    expected = _RESULTS[make.kind]
    if not isinstance(result, expected):
        raise ModelError(
            f"head {head!r} returns {type(result).__name__}, its kind {make.kind!r} needs "
            f"{expected.__name__}"
        )
    classes = int(getattr(decoder, "classes", 0))
    return Match(
        lambda: cast(Any, make(seen)), classes, "asked for, and it decodes a grey picture"
    )


def _describe(error: Exception) -> str:
    """An error in the user's code, and the line that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{describe_error(error)} ({last.filename}, line {last.lineno}); correct it there"
