"""The two networks that come with the package: a detector and a segmenter of road scenes.

Both are plain convolutional networks (3x3 convolutions, batch normalisation, ReLU), small
enough for a 25 Hz camera on two CPU cores and regular enough for Tucker decomposition,
torch.fx and ONNX export. They are trained on `jetson_dnn_rt.demo.scenes` alone by
``tools/train_builtin.py``.

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
from jetson_dnn_rt.errors import ModelError

if TYPE_CHECKING:
    import torch

__all__ = [
    "DETECTOR_CLASSES", "INPUT_SIZE", "NAMES", "SEGMENTER_CLASSES", "BuiltinName",
    "build", "labels", "load", "weights_path",
]  # fmt: skip

BuiltinName = Literal["detector", "segmenter"]

NAMES: tuple[BuiltinName, ...] = ("detector", "segmenter")
INPUT_SIZE: dict[str, tuple[int, int]] = {"detector": (240, 320), "segmenter": (240, 320)}
"""(height, width) of each network's input in pixels."""

_LARGEST_FILE = 8 << 20  # bytes; the shipped files are below 4 MiB


def labels(name: str) -> tuple[str, ...]:
    """The class labels of a network, by class index."""
    _check_name(name)
    return DETECTOR_CLASSES if name == "detector" else SEGMENTER_CLASSES


def weights_path(name: str) -> Path:
    """Where the weights of a network are shipped."""
    _check_name(name)
    return Path(__file__).with_name("weights") / f"builtin_{name}.safetensors"


def build(name: str) -> torch.nn.Module:
    """Make a network with freshly initialised weights, in training mode.

    The detector returns ``(boxes [B, 1200, 4], scores [B, 1200, 5])``: xyxy in pixels of the
    network's input, and probabilities. The segmenter returns logits [B, 8, 240, 320].
    """
    _check_name(name)
    from jetson_dnn_rt.demo.networks import Detector, Segmenter

    if name == "detector":
        return Detector(len(DETECTOR_CLASSES), INPUT_SIZE[name])
    return Segmenter(len(SEGMENTER_CLASSES), INPUT_SIZE[name])


def load(name: str, path: Path | None = None) -> torch.nn.Module:
    """Make a network with its trained weights, in evaluation mode.

    `path` is another file of weights (safetensors) than the shipped one. `ModelError` where the
    file is missing, damaged, or of another network.
    """
    import safetensors
    import safetensors.torch

    network = build(name)
    file = weights_path(name) if path is None else path
    try:
        size = file.stat().st_size
    except OSError as error:
        raise ModelError(
            f"weights of builtin:{name} cannot be read: {file}: {error.strerror}; "
            f"install the package again or run tools/train_builtin.py"
        ) from error
    if size > _LARGEST_FILE:
        raise ModelError(f"weights of builtin:{name}: {file} has {size} bytes: not this network")
    try:
        stored = safetensors.torch.load_file(file)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise ModelError(
            f"weights of builtin:{name} are damaged: {file}: {error}; install the package again"
        ) from error
    try:
        network.load_state_dict(stored)
    except RuntimeError as error:
        text = str(error).splitlines()[1].strip()
        raise ModelError(
            f"weights of builtin:{name}: {file} is of another network: {text}"
        ) from error
    return network.eval()


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}")
