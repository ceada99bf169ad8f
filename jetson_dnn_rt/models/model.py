# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A loaded model, which a task runs on any back end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.models.heads.base import Decoder, Kind
from jetson_dnn_rt.models.heads.registry import Head
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.metadata import SILENT, Metadata

if TYPE_CHECKING:
    import torch

PROBE_VALUE = 0.45
"""Pixel value of the plain grey picture on which a network's outputs are first inspected."""


class Part(Protocol):
    """A whole network, or a run of its stages, that a back end prepares."""

    @property
    def name(self) -> str:
        """For messages: ``builtin:detector``, ``builtin:detector inference-2``."""

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """All float32, batch 1, ``[1, C, H, W]`` where they are maps."""

    @property
    def graph_hash(self) -> str:
        """SHA-256 over the graph and the weights, hexadecimal."""

    @property
    def inner_outputs(self) -> tuple[int, ...]:
        """Indices of the outputs that only later stages read: any dense layout will do."""

    def torch_module(self) -> torch.nn.Module:
        """Make a module of the caller's own in evaluation mode, from tensors to a tuple of them.

        `ModelError` or `BackendUnavailableError` where the network has no such form.
        """

    def onnx_model(self) -> bytes:
        """Serialize as ONNX of fixed shapes, inputs in the same order; errors as above."""


class Origin(Protocol):
    """The network itself, in the forms that back ends run: see `Part`."""

    exports: bool
    """Whether `onnx_model` is made by an export, which is slow, and may be kept."""

    def torch_module(self) -> torch.nn.Module:
        """From ``[1, 3, H, W]`` to a tuple of tensors."""

    def onnx_model(self) -> bytes:
        """One input, static batch 1; exported on the first call where the source is torch."""

    def probe(self, image: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], ...]:
        """The outputs for a picture, ``[1, 3, H, W]``."""


@dataclass(frozen=True, eq=False)
class Model:
    """A network with its head, preprocessing and labels; as a `Part`, the whole network."""

    source: str  # as the user named it: ``builtin:detector``, ``onnx:PATH``, ...
    head: Head
    preprocessing: Preprocessing
    labels: tuple[str, ...]  # names of the classes, by index
    model_hash: str  # SHA-256 of the file or of the weights, hexadecimal
    origin: Origin
    metadata: Metadata = SILENT
    output_names: tuple[str, ...] = ()  # none where the source has no names
    assumed: tuple[str, ...] = ()
    """Fields of the preprocessing that neither the file nor the user has given."""
    labels_assumed: bool = False  # not even their number is known

    @property
    def kind(self) -> Kind:
        """``detection``, ``segmentation`` or ``classification``."""
        return self.head.kind

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of the input in pixels."""
        return self.preprocessing.height, self.preprocessing.width

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        """Shape of the input, ``(1, 3, H, W)``."""
        return (1, 3, *self.input_size)

    @property
    def reading(self) -> str:
        """A short digest of head and preprocessing, which agreement and calibration depend on."""
        about = f"{self.head.name} {self.head.classes} {self.preprocessing}"
        return hashlib.sha256(about.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """The source, in messages."""
        return self.source

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of the only input."""
        return (self.input_shape,)

    @property
    def inner_outputs(self) -> tuple[int, ...]:
        """None: decoders read them."""
        return ()

    @property
    def graph_hash(self) -> str:
        """The model's hash."""
        return self.model_hash

    def torch_module(self) -> torch.nn.Module:
        """See `Part`."""
        return self.origin.torch_module()

    def onnx_model(self) -> bytes:
        """See `Part`."""
        return self.origin.onnx_model()

    def create_decoder(self) -> Decoder:
        """Make a decoder for the outputs: one per pipeline."""
        return self.head.make_decoder()


@dataclass(frozen=True)
class Opened:
    """Properties of a network that are known before its outputs are inspected."""

    origin: Origin
    model_hash: str  # SHA-256, hexadecimal
    input_size: tuple[int, int]  # height and width
    preprocessing: Preprocessing | None = None  # None: follows from the head
    labels: tuple[str, ...] | None = None
    metadata: Metadata = SILENT
    output_names: tuple[str, ...] = ()
    takes_bytes: bool = False  # whether its own input is uint8: pixels as they are
    inputs: tuple[str, ...] = ()  # for people: those of the file, as it has them


@dataclass(frozen=True)
class SourceOptions:
    """Options of `jetson_dnn_rt.models.sources.registry.load_model` that sources read."""

    input_size: tuple[int, int] | None = None
    weights: str = "DEFAULT"
    labels: str | Sequence[str] | None = None
    trust: bool = False
    outputs: tuple[str, ...] = ()  # names of those to use; none = all
    constants: tuple[str, ...] = ()  # ``NAME=VALUE`` of inputs beside the image


def make_probe_input(height: int, width: int) -> npt.NDArray[np.float32]:
    """A grey picture, float32 [1, 3, height, width]."""
    return np.full((1, 3, height, width), PROBE_VALUE, np.float32)


def make_lively_inputs(height: int, width: int) -> Iterator[npt.NDArray[np.float32]]:
    """Pictures in which a network may see something where it sees nothing in a grey one.

    Noise, white, and blocks of colours, for networks that take 0 to 1 and those that take bytes.
    """
    generator = np.random.default_rng(0)
    noise = generator.random((1, 3, height, width), np.float32)
    cells = generator.random((1, 3, -(-height // 32), -(-width // 32)), np.float32)
    blocks = cells.repeat(32, axis=2).repeat(32, axis=3)[..., :height, :width]
    for picture in (noise, np.ones_like(noise), blocks):
        for scale in (1.0, 255.0):
            yield np.ascontiguousarray(picture * np.float32(scale))
