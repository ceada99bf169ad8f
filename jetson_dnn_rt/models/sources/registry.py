"""From the name of a model to the model.

=========================  =====================================================================
``builtin:NAME``           the detector and the segmenter of this package
``onnx:PATH``              an ONNX file
``torchvision:NAME``       an architecture of torchvision; weights by its cache, a file, or none
``exported:PATH``          a program of ``torch.export.save``
``null:MS[,KIND][,spin]``  nothing, in the given time (`jetson_dnn_rt.models.sources.null`)
=========================  =====================================================================
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.models.heads.kinds import Head, Kind, recognise_head
from jetson_dnn_rt.models.heads.labels import resolve_labels
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.model import Model, Opened, SourceOptions
from jetson_dnn_rt.models.sources.files import hash_bytes, hash_state

logger = logging.getLogger(__name__)

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def load_model(
    source: str,
    *,
    kind: Kind | None = None,
    head: str = "auto",
    labels: str | Sequence[str] | None = None,
    input_size: tuple[int, int] | None = None,
    weights: str = "DEFAULT",
    preprocessing: Mapping[str, Any] | None = None,
    trust: bool = False,
) -> Model:
    """Load a model, run it once on a grey picture, and find out what its outputs are.

    Parameters
    ----------
    source : str
        See the module.
    kind : str, optional
        The task it is for; a model of another task is refused.
    head : str
        ``auto``, or the layout (`jetson_dnn_rt.models.heads.kinds.KNOWN_HEADS`).
    labels : str or sequence of str, optional
        ``coco80``, ``coco91``, ``voc21``, ``imagenet``, a file, or the names.
    input_size : tuple of int, optional
        Height and width, where the model leaves a choice.
    weights : str
        For ``torchvision:``: ``DEFAULT``, ``none`` (random), or a file.
    preprocessing : mapping, optional
        Fields of `Preprocessing` that differ from what the source suggests.
    trust : bool
        Read what is code (``exported:``) from files too that other users may change
        (`jetson_dnn_rt.safety.trust`).

    Raises
    ------
    ModelError
        When the model is missing, damaged, refused, or of the wrong task.
    ConfigurationError
        When an argument cannot be used; `UntrustedError` when others may change a file of code.
    BackendUnavailableError
        When a library that is needed to read the model is missing.
    """
    scheme, separator, name = source.partition(":")
    if not separator or scheme not in _SOURCES or not name:
        known = ", ".join(f"{scheme}:" for scheme in _SOURCES)
        raise ConfigurationError(f"model {source!r} is unknown: it must start with one of {known}")
    if kind is not None and kind not in get_args(Kind):
        raise ConfigurationError(f"kind must be one of {get_args(Kind)}: {kind!r}")
    if input_size is not None and not all(1 <= side <= 8192 for side in input_size):
        raise ConfigurationError(f"input_size must be two sides in [1, 8192]: {input_size}")
    opened = _SOURCES[scheme](name, SourceOptions(input_size, weights, labels, trust))
    outputs = opened.origin.probe(*opened.input_size)
    try:
        recognised = recognise_head(outputs, opened.input_size, head, kind)
        suggested = opened.preprocessing or _suggest_preprocessing(recognised, opened.input_size)
        settled = suggested.override(preprocessing or {})
        if (settled.height, settled.width) != opened.input_size:
            raise ModelError(
                f"preprocessing gives {settled.height}x{settled.width}, the model takes "
                f"{opened.input_size[0]}x{opened.input_size[1]}; set input_size instead"
            )
        names = _name_classes(labels, opened, recognised)
    except ModelError as error:
        raise ModelError(f"{source}: {error}") from error
    logger.info(
        "%s: head %s (%s), %d classes, input %dx%d",
        source, recognised.name, recognised.reason, len(names), *opened.input_size,
    )  # fmt: skip
    return Model(source, recognised, settled, names, opened.model_hash, opened.origin)


def _name_classes(
    labels: str | Sequence[str] | None, opened: Opened, head: Head
) -> tuple[str, ...]:
    classes = head.classes
    if head.name == "torchvision" and opened.labels is None:
        classes = 91 if labels is None else 0  # the outputs do not say; 91 is COCO's numbering
    return resolve_labels(labels, opened.labels, head.kind, classes)


def _suggest_preprocessing(head: Head, input_size: tuple[int, int]) -> Preprocessing:
    """What networks of this layout are usually trained with."""
    if head.name in ("yolox", "yolox_decoded"):
        return Preprocessing(*input_size, "letterbox_topleft", 114, "bgr", scale=1.0)
    if head.name in ("yolov5", "yolov8"):
        return Preprocessing(*input_size, "letterbox_center", 114, "rgb")
    if head.name == "boxes_scores":
        return Preprocessing(*input_size, "letterbox_topleft", 114, "rgb")
    if head.name == "torchvision":
        return Preprocessing(*input_size, "stretch", 114, "rgb")
    return Preprocessing(*input_size, "stretch", 114, "rgb", mean=IMAGENET_MEAN, std=IMAGENET_STD)


def _open_builtin(name: str, options: SourceOptions) -> Opened:
    from jetson_dnn_rt.demo import builtin
    from jetson_dnn_rt.models.sources.torch import TorchOrigin

    if name not in builtin.NAMES:
        raise ConfigurationError(f"builtin:{name} is unknown, known are {builtin.NAMES}")
    size = builtin.INPUT_SIZE[name]
    if options.input_size not in (None, size):
        raise ConfigurationError(f"builtin:{name} takes {size[0]}x{size[1]} only")
    module = builtin.load(name)
    return Opened(
        TorchOrigin.of_module(f"builtin:{name}", module, size),
        hash_state(module.state_dict(), f"builtin:{name}"),
        size,
        Preprocessing(*size, "letterbox_topleft", 114, "rgb"),
        builtin.labels(name),
    )


def _open_onnx(name: str, options: SourceOptions) -> Opened:
    from jetson_dnn_rt.models.sources.onnx import OnnxOrigin

    origin = OnnxOrigin(Path(name), options.input_size)
    model_hash = hash_bytes(origin.onnx_model())
    return Opened(origin, model_hash, origin.input_size, labels=origin.names)


def _open_torchvision(name: str, options: SourceOptions) -> Opened:
    from jetson_dnn_rt.models.sources.torchvision import open_torchvision

    return open_torchvision(name, options)


def _open_exported(name: str, options: SourceOptions) -> Opened:
    from jetson_dnn_rt.models.sources.exported import open_exported

    return open_exported(Path(name), options)


def _open_null(name: str, options: SourceOptions) -> Opened:
    from jetson_dnn_rt.models.sources.null import NullOrigin, NullScript

    script, kind = NullScript.parse(name)
    size = options.input_size or (64, 64)
    model_hash = hashlib.sha256(f"null:{name}".encode()).hexdigest()
    return Opened(NullOrigin(script, kind), model_hash, size)


_SOURCES: dict[str, Callable[[str, SourceOptions], Opened]] = {
    "builtin": _open_builtin,
    "onnx": _open_onnx,
    "torchvision": _open_torchvision,
    "exported": _open_exported,
    "null": _open_null,
}
