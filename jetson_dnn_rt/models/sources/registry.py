# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""From the name of a model to the model.

=========================  =====================================================================
``builtin:NAME``           the detector and the segmenter of this package
``onnx:PATH``              an ONNX file
``torchvision:NAME``       an architecture of torchvision; weights by its cache, a file, or none
``exported:PATH``          a program of ``torch.export.save``
``null:MS[,KIND][,spin]``  nothing, in the given time (`jetson_dnn_rt.models.sources.null`)
=========================  =====================================================================

A new source is one module with ``open_source(name, options) -> Opened``, one line in `SOURCES`
and one test.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.config.suggestions import find_similar
from jetson_dnn_rt.errors import ConfigurationError, ModelError, blaming
from jetson_dnn_rt.models.heads.base import Inspected, Kind
from jetson_dnn_rt.models.heads.labels import name_class, resolve_labels
from jetson_dnn_rt.models.heads.registry import Head, find_layout, recognise_head
from jetson_dnn_rt.models.heads.yolo import ULTRALYTICS_INPUTS
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.metadata import MAX_SIDE
from jetson_dnn_rt.models.model import (
    Model,
    Opened,
    SourceOptions,
    make_lively_inputs,
    make_probe_input,
)

logger = logging.getLogger(__name__)

SOURCES = {
    "builtin": "jetson_dnn_rt.models.sources.builtin",
    "onnx": "jetson_dnn_rt.models.sources.onnx",
    "torchvision": "jetson_dnn_rt.models.sources.torchvision",
    "exported": "jetson_dnn_rt.models.sources.exported",
    "null": "jetson_dnn_rt.models.sources.null",
}
"""Modules by the scheme of a name, imported on use: each needs another library."""


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
    outputs: Sequence[str] = (),
    constants: Sequence[str] = (),
) -> Model:
    """Load a model, run it once on a grey picture, and recognise its head.

    Parameters
    ----------
    source : str
        See the module.
    kind : str, optional
        The task it is for; a model of another task is refused.
    head : str
        ``auto``, the layout (`jetson_dnn_rt.models.heads.registry.LAYOUTS`), or
        ``package.module:Class`` (`jetson_dnn_rt.models.heads.custom`).
    labels : str or sequence of str, optional
        ``coco80``, ``coco91``, ``voc21``, ``imagenet``, a file, or the names.
    input_size : tuple of int, optional
        Height and width, where the model leaves a choice.
    weights : str
        For ``torchvision:``: ``DEFAULT``, ``none`` (random), or a file.
    preprocessing : mapping, optional
        Fields of `Preprocessing` that differ from what the source suggests.
    trust : bool
        Read code (``exported:``) even from files that other users may change
        (`jetson_dnn_rt.safety.trust`).
    outputs : sequence of str
        Names of the outputs to use, in that order, where an ONNX file has more.
    constants : sequence of str
        ``NAME=VALUE`` for each input of an ONNX file beside the image; the value as in YAML.

    Raises
    ------
    ModelError
        When the model is missing, damaged, refused, or of the wrong task.
    ConfigurationError
        When an argument cannot be used; `UntrustedError` when others may change a file of code.
    BackendUnavailableError
        When a library that is needed to read the model is missing.
    """
    options = SourceOptions(input_size, weights, labels, trust, tuple(outputs), tuple(constants))
    opened = open_network(source, options)
    seen = inspect_network(opened, options)
    return make_model(source, opened, seen, options, kind, head, preprocessing or {})


def open_network(source: str, options: SourceOptions) -> Opened:
    """Do the first of the steps of `load_model`: read the file or build the architecture."""
    scheme, name = split_model(source)
    size = options.input_size
    if size is not None and not all(1 <= side <= MAX_SIDE for side in size):
        text = f"input_size must be two sides in [1, {MAX_SIDE}]: {size}"
        raise ConfigurationError(text, "input_size")
    if (options.outputs or options.constants) and scheme != "onnx":
        raise ConfigurationError(
            f"outputs and constant_inputs are for onnx: models, not for {source!r}",
            "outputs" if options.outputs else "constant_inputs",
        )
    with blaming("model"):
        opened: Opened = importlib.import_module(SOURCES[scheme]).open_source(name, options)
    return opened


def split_model(source: str) -> tuple[str, str]:
    """Scheme and name of a model; ConfigurationError when its name has another form."""
    scheme, separator, name = source.partition(":")
    if not separator or scheme not in SOURCES or not name:
        known = ", ".join(f"{scheme}:" for scheme in SOURCES)
        raise ConfigurationError(
            f"model {source!r} is unknown: it must start with one of {known}{_guess(source)}",
            "model",
        )
    return scheme, name


def _guess(source: str) -> str:
    """What a name without a known scheme was probably meant to be."""
    from jetson_dnn_rt.demo.builtin import NAMES

    scheme, _, name = source.partition(":")
    match Path(source).suffix.lower():
        case ".onnx":
            meant = f"onnx:{name or source}"
        case ".pt2":
            meant = f"exported:{name or source}"
        case ".pt" | ".pth" | ".safetensors" | ".ckpt":
            return "; a file of weights is no model: export it to ONNX (docs/models.md)"
        case ".engine" | ".plan" | ".trt":
            return (
                "; an engine fits one GPU and one version of TensorRT, and is code: give the ONNX "
                "file it was built from, as onnx:PATH, with the variant full@tensorrt-fp16 "
                "(docs/variants.md)"
            )
        case ".pb" | ".tflite" | ".h5" | ".keras" | ".xml" | ".caffemodel" | ".weights":
            return "; export it to ONNX with its framework: onnx:PATH (docs/models.md)"
        case _ if builtin := find_similar(source, NAMES):
            meant = f"builtin:{builtin}"
        case _ if similar := find_similar(scheme, SOURCES):
            meant = f"{similar}:{name}"
        case _:
            return "; docs/models.md describes them"
    return f"; did you mean {meant}?"


def inspect_network(opened: Opened, options: SourceOptions) -> Inspected:
    """Do the second step: run it once on a grey picture.

    A network that gives a row for each object may give none for it: then on others.
    """
    size = opened.input_size
    outputs = grey = _probe(opened, make_probe_input(*size))
    if _is_empty(grey):
        for image in make_lively_inputs(*size):
            lively = _probe(opened, image)
            # Of one row in the place of none nobody could tell that it is no batch.
            same = all(
                here.ndim == there.ndim and (there.shape[0], here.shape[0]) != (0, 1)
                for here, there in zip(lively, grey, strict=True)
            )
            if same and not _is_empty(lively):
                outputs = lively
                break
    return Inspected(outputs, size, opened.output_names, opened.metadata, bool(options.outputs))


def _is_empty(outputs: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether an output has no values: there is no object, and so no row."""
    return any(not output.size for output in outputs)


def _probe(opened: Opened, image: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], ...]:
    probed = opened.origin.probe(image)
    if not all(isinstance(output, np.ndarray) for output in probed):
        raise ModelError("an output is a list, not a tensor; fix: name the others in `outputs`")
    for output in probed:
        if output.dtype.kind not in "fiub" or not output.ndim:
            raise ModelError(
                f"an output is {output.dtype} {list(output.shape)}, needed are numbers with a "
                "batch; fix: name the others in `outputs`"
            )
    return tuple(
        # Masks that were compared with a threshold inside.
        output.astype(np.uint8) if output.dtype == np.bool_ else output
        for output in probed
    )


def make_model(
    source: str,
    opened: Opened,
    seen: Inspected,
    options: SourceOptions,
    kind: Kind | None,
    head: str,
    preprocessing: Mapping[str, Any],
) -> Model:
    """Do the last step: recognise the head, settle preprocessing and labels, and log them."""
    if kind is not None and kind not in get_args(Kind):
        raise ConfigurationError(f"kind must be one of {get_args(Kind)}: {kind!r}")
    size, labels = opened.input_size, options.labels
    try:
        with blaming("model" if head == "auto" else "head"):
            found = recognise_head(seen, head, kind)
        settled, assumed, replaced = _settle_preprocessing(opened, found, preprocessing)
        if (settled.height, settled.width) != size:
            raise ModelError(
                f"preprocessing gives {settled.height}x{settled.width}, the model takes "
                f"{size[0]}x{size[1]}; set input_size instead"
            )
        classes = found.classes
        embedded, likely = opened.labels, opened.metadata.likely_names
        if embedded is None and likely is not None and classes in (0, len(likely)):
            embedded = likely
        guessed = not classes and labels is None and embedded is None
        if guessed:
            classes = find_layout(found.name).default_classes
        with blaming("labels"):
            # Names that are only likely would be taken for true: a wrong "car" is worse than none.
            names = (
                tuple(name_class((), i) for i in range(classes))
                if guessed
                else resolve_labels(labels, embedded, found.kind, classes)
            )
    except ModelError as error:
        raise ModelError(f"{source}: {error}", error.parameter) from error
    said = f", metadata of {opened.metadata.exporter}" if opened.metadata.exporter else ""
    logger.info(
        "%s: head %s (%s%s), %d classes, input %dx%d",
        source, found.name, found.reason, said, len(names), *size,
    )  # fmt: skip
    if labels and classes and len(names) != classes:
        logger.warning(
            "%s: labels are %d names for a model of %d classes; fix: give as many",
            source, len(names), classes,
        )  # fmt: skip
    if labels and embedded and tuple(names) != tuple(embedded):
        logger.warning(
            "%s: labels replace the names in the file, %s ...; fix: leave them out to have those",
            source, ", ".join(embedded[:3]),
        )  # fmt: skip
    if _is_empty(seen.outputs):
        logger.warning(
            "%s: none of the pictures it was tried on gave an object: head %s was recognised by "
            "the shapes of its outputs alone, their values could not be checked; fix: look at its "
            "results on pictures of yours: jetson-dnn-rt inspect %s --frames DIR",
            source, found.name, source,
        )  # fmt: skip
    if replaced:
        logger.warning(
            "%s: the parameters replace the preprocessing that the model comes with: %s; wrong "
            "values give nonsense without an error. fix: leave them out to have its own",
            source, ", ".join(replaced),
        )  # fmt: skip
    if guessed:
        logger.warning(
            "%s: neither the file nor the outputs tell how many classes there are: %d were "
            "assumed, without names. fix: set labels to a name for each class or a file of them%s",
            source, len(names), _OF_COCO.get(len(names), ""),
        )  # fmt: skip
    if assumed:
        logger.warning(
            "%s: preprocessing was assumed, not read from the file: %s; wrong values give "
            "nonsense without an error. fix: set %s as in training, or compare them in pictures: "
            "jetson-dnn-rt inspect %s --frames DIR",
            source, describe_preprocessing(settled),
            ", ".join(f"preprocessing.{key}" for key in assumed), source,
        )  # fmt: skip
    return Model(
        source, found, settled, names, opened.model_hash, opened.origin,
        opened.metadata, opened.output_names, assumed, guessed,
    )  # fmt: skip


_OF_COCO = {
    80: ", or to coco80 if it was trained on COCO",
    91: ", or to coco91 if it was trained on COCO, as torchvision's are",
}
"""For the numbers of classes that COCO's networks have."""

_COLOURS = ("color", "scale", "mean", "std")
"""The four fields of a preprocessing whose wrong values nobody notices but by the results."""


def _settle_preprocessing(
    opened: Opened, head: Head, given: Mapping[str, Any]
) -> tuple[Preprocessing, tuple[str, ...], list[str]]:
    """The preprocessing, its fields that are assumed, and what replaces known ones, in words."""
    layout = find_layout(head.name)
    # Layouts that other exporters use, too.
    prepare = ULTRALYTICS_INPUTS.get(opened.metadata.task) or layout.preprocessing
    suggested = opened.preprocessing or prepare(*opened.input_size)
    known = opened.preprocessing is not None or opened.metadata.is_ultralytics or layout.declared
    assumed = [] if known else [key for key in _COLOURS if key not in given]
    if opened.takes_bytes:
        suggested = replace(suggested, scale=1.0, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
        assumed = [key for key in assumed if key == "color"]
    settled = suggested.override(given)
    replaced = [
        f"preprocessing.{key} {_show(getattr(settled, key))} instead of "
        f"{_show(getattr(suggested, key))}"
        for key in (_COLOURS if known else ())
        if not _is_same(getattr(settled, key), getattr(suggested, key))
    ]
    return settled, tuple(assumed), replaced


def _show(value: Any) -> str:
    values = value if isinstance(value, tuple) else (value,)
    return " ".join(one if isinstance(one, str) else f"{one:.4g}" for one in values)


def _is_same(one: Any, other: Any) -> bool:
    """Whether they are equal to the digits that people write: 0.00392 and 1/255."""
    return one == other if isinstance(one, str) else bool(np.allclose(one, other, rtol=1e-2))


def describe_preprocessing(preprocessing: Preprocessing) -> str:
    """For people: ``resize stretch, color rgb, scale 0.00392, mean 0 0 0, std 1 1 1``."""
    mean, std = (" ".join(f"{v:.4g}" for v in values) for values in
                 (preprocessing.mean, preprocessing.std))  # fmt: skip
    return (
        f"resize {preprocessing.resize}, color {preprocessing.color}, "
        f"scale {preprocessing.scale:.4g}, mean {mean}, std {std}"
    )
