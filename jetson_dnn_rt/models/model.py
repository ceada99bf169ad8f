"""A loaded model: what a task runs, before it is decided how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.models.heads.decoders import Decoder, create_decoder
from jetson_dnn_rt.models.heads.kinds import Head, Kind

if TYPE_CHECKING:
    import torch

    from jetson_dnn_rt.models.input.preprocessing import Preprocessing

# What the network sees when its outputs are looked at for the first time: plain grey.
PROBE_VALUE = 0.45


class Part(Protocol):
    """What a back end makes ready: a whole network, or a run of its stages.

    Attributes
    ----------
    name : str
        For messages: ``builtin:detector``, ``builtin:detector inference-2``.
    input_shapes : tuple of tuple of int
        Shapes of the inputs, all float32, batch 1, ``[1, C, H, W]`` where they are maps.
    graph_hash : str
        SHA-256 over the graph and the weights, hexadecimal.
    """

    @property
    def name(self) -> str:
        """See above."""

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        """See above."""

    @property
    def graph_hash(self) -> str:
        """See above."""

    def torch_module(self) -> torch.nn.Module:
        """A module of one's own in evaluation mode, from such tensors to a tuple of tensors."""

    def onnx_model(self) -> bytes:
        """The same as a serialized ONNX model of fixed shapes, inputs in the same order."""


class Origin(Protocol):
    """The network itself, in the forms that back ends run."""

    def torch_module(self) -> torch.nn.Module:
        """A module of one's own in evaluation mode, ``[1, 3, H, W]`` to a tuple of tensors."""

    def onnx_model(self) -> bytes:
        """The network as a serialized ONNX model of one input and static batch 1."""

    def probe(self, height: int, width: int) -> tuple[npt.NDArray[Any], ...]:
        """The outputs for a grey picture of that size."""


@dataclass(frozen=True, eq=False)
class Model:
    """A network and all that is needed around it.

    Attributes
    ----------
    source : str
        As the user named it: ``builtin:detector``, ``onnx:PATH``, ...
    head : Head
        Layout of its outputs; ``head.reason`` says how it was recognised.
    preprocessing : Preprocessing
        What it expects of its input.
    labels : tuple of str
        Names of the classes, by index.
    model_hash : str
        SHA-256 of the file or of the weights, hexadecimal.
    origin : Origin
        The network.
    """

    source: str
    head: Head
    preprocessing: Preprocessing
    labels: tuple[str, ...]
    model_hash: str
    origin: Origin

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

    def torch_module(self) -> torch.nn.Module:
        """Make a torch module of one's own, in evaluation mode.

        Raises
        ------
        ModelError, BackendUnavailableError
            When the network cannot be had as a torch module.
        """
        return self.origin.torch_module()

    def onnx_model(self) -> bytes:
        """Serialize as ONNX; exported on the first call where the source is torch.

        Raises
        ------
        ModelError, BackendUnavailableError
            When the network cannot be had as ONNX.
        """
        return self.origin.onnx_model()

    @property
    def part(self) -> Part:
        """The whole network, as a back end takes it."""
        return _Whole(self)

    def create_decoder(self) -> Decoder:
        """Make a decoder of one's own for the outputs."""
        return create_decoder(self.head, self.input_size)


@dataclass(frozen=True, eq=False)
class _Whole:
    """A model as a `Part`."""

    model: Model

    @property
    def name(self) -> str:
        return self.model.source

    @property
    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.model.input_shape,)

    @property
    def graph_hash(self) -> str:
        return self.model.model_hash

    @property
    def origin(self) -> Origin:
        return self.model.origin

    def torch_module(self) -> torch.nn.Module:
        return self.model.torch_module()

    def onnx_model(self) -> bytes:
        return self.model.onnx_model()


@dataclass(frozen=True)
class Opened:
    """What a source says of itself before its outputs are looked at.

    Attributes
    ----------
    origin : Origin
        The network.
    model_hash : str
        SHA-256, hexadecimal.
    input_size : tuple of int
        Height and width.
    preprocessing : Preprocessing or None
        Where the source knows; else it follows from the head.
    labels : tuple of str or None
        Where the source knows.
    """

    origin: Origin
    model_hash: str
    input_size: tuple[int, int]
    preprocessing: Preprocessing | None = None
    labels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class SourceOptions:
    """What the user may say to a source.

    Attributes
    ----------
    input_size : tuple of int or None
        Height and width.
    weights : str
        ``DEFAULT``, ``none`` or a file, for torchvision.
    labels : str, sequence of str or None
        As in `load_model`.
    trust : bool
        As in `load_model`.
    """

    input_size: tuple[int, int] | None
    weights: str
    labels: str | Sequence[str] | None
    trust: bool = False


def make_probe_input(height: int, width: int) -> npt.NDArray[np.float32]:
    """A grey picture, float32 [1, 3, height, width]."""
    return np.full((1, 3, height, width), PROBE_VALUE, np.float32)
