# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The two networks that come with the package: a detector and a segmenter of road scenes.

Both are plain convolutional networks (3x3 convolutions, batch normalisation, ReLU), small
enough for a 25 Hz camera on two CPU cores and regular enough for Tucker decomposition,
torch.fx and ONNX export. They are trained on `jetson_dnn_rt.demo.scenes` alone by
``tools/train_builtin.py``, which writes one ONNX file each: back ends of ONNX run it as it is, and
the torch modules take their weights from it, batch norms not folded.

Input: float32 [1, 3, 240, 320], RGB in [0, 1], letterboxed to the top left with 114/255.
A 640x480 frame maps by exactly one half.

Detector: an anchor-free head on stride 8 in the manner of CenterNet (Zhou et al., "Objects
as Points", 2019) and FCOS (Tian et al., 2019): a score per class and cell, and the four
distances from the cell's centre to the sides of the box.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jetson_dnn_rt.demo.scenes import DETECTOR_CLASSES, SEGMENTER_CLASSES
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError

if TYPE_CHECKING:
    import torch

__all__ = [
    "DETECTOR_CLASSES", "INPUT_SIZE", "NAMES", "SEGMENTER_CLASSES", "BuiltinName",
    "build", "labels", "load", "read", "weights_path",
]  # fmt: skip

BuiltinName = Literal["detector", "segmenter"]

NAMES: tuple[BuiltinName, ...] = ("detector", "segmenter")
INPUT_SIZE: dict[str, tuple[int, int]] = {"detector": (240, 320), "segmenter": (240, 320)}
"""(height, width) of each network's input in pixels."""

BATCHES = "num_batches_tracked"
"""Key of the file's metadata: training steps that the batch norms have averaged over."""

WIDTH = "width"
"""The same: of `build`, where it is not 1."""

MOST_WIDTH = 4.0
_LARGEST_FILE = 8 << 20  # bytes; the shipped files are below 4 MiB


def labels(name: str) -> tuple[str, ...]:
    """The class labels of a network, by class index."""
    _check_name(name)
    return DETECTOR_CLASSES if name == "detector" else SEGMENTER_CLASSES


def weights_path(name: str) -> Path:
    """Where the weights of a network are shipped."""
    _check_name(name)
    return Path(__file__).with_name("weights") / f"builtin_{name}.onnx"


def build(name: str, width: float = 1.0) -> torch.nn.Module:
    """Make a network with freshly initialised weights, in training mode.

    `width` scales the channels of its hidden layers; the shipped networks have 1.

    The detector returns ``(boxes [B, 1200, 4], scores [B, 1200, 5])``: xyxy in pixels of the
    network's input, and probabilities. The segmenter returns logits [B, 8, 240, 320].
    """
    _check_name(name)
    from jetson_dnn_rt.demo.networks import CHANNELS, Detector, Segmenter

    channels = CHANNELS.scale(width)
    if name == "detector":
        return Detector(len(DETECTOR_CLASSES), INPUT_SIZE[name], channels)
    return Segmenter(len(SEGMENTER_CLASSES), INPUT_SIZE[name], channels)


def read(name: str, path: Path | None = None) -> bytes:
    """The ONNX file of a trained network, or the one at `path`, as it is.

    `ModelError` where it is missing or far too large.
    """
    file = weights_path(name) if path is None else path
    try:
        if (size := file.stat().st_size) > _LARGEST_FILE:
            raise ModelError(
                f"weights of builtin:{name}: {file} has {size} bytes: not this network"
            )
        return file.read_bytes()
    except OSError as error:
        raise ModelError(
            f"weights of builtin:{name} cannot be read: {file}: {error.strerror}; "
            f"install the package again or run tools/train_builtin.py"
        ) from error


def load(name: str, path: Path | None = None) -> torch.nn.Module:
    """Make a torch module with the weights of the ONNX file (see `read`), in evaluation mode.

    `ModelError` where the file is missing, damaged, or of another network;
    `BackendUnavailableError` where torch or onnx is not installed.
    """
    data = read(name, path)
    file = weights_path(name) if path is None else path
    try:
        import onnx
        import torch
    except ImportError as error:
        raise BackendUnavailableError(
            f"builtin:{name} as a torch module needs torch and onnx ({error}): "
            "pip install torch onnx"
        ) from error
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load_model_from_string(data)
        stored = {
            tensor.name: torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
            for tensor in model.graph.initializer
        }
        about = {entry.key: entry.value for entry in model.metadata_props}
        batches = torch.tensor(int(about.get(BATCHES, 0)))
        width = float(about.get(WIDTH, 1.0))
        if not 0.0 < width <= MOST_WIDTH:  # NaN is not either
            raise ValueError(f"width {width}")
    except (DecodeError, ValueError, TypeError) as error:
        raise ModelError(
            f"weights of builtin:{name} are damaged: {file}: {error}; install the package again"
        ) from error
    network = build(name, width)
    # The graph has no use for the counters of the batch norms, all of which count the same.
    counters = {key: batches for key in network.state_dict() if key.endswith(BATCHES)}
    try:
        network.load_state_dict({**counters, **stored})
    except RuntimeError as error:
        text = str(error).splitlines()[1].strip()
        raise ModelError(
            f"weights of builtin:{name}: {file} is of another network: {text}"
        ) from error
    return network.eval()


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}")
