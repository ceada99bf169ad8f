# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Segmentation of other forms: one channel, classes that the network has chosen, several masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.models.heads.base import (
    OWN_DECODER,
    Decoder,
    DecoderSettings,
    Inspected,
    Layout,
    Match,
    Outputs,
    check_scores,
)
from jetson_dnn_rt.models.heads.end_to_end import is_ssd
from jetson_dnn_rt.models.heads.logits import COARSE, MaskDecoder, Spreads, is_map_of
from jetson_dnn_rt.models.input.preprocessing import Geometry, imagenet_input
from jetson_dnn_rt.results import Segmentation


class ChannelDecoder:
    """One channel ``[1, 1, h, w]``: class 1 where a logit is above 0, a probability above 0.5."""

    def __init__(self, input_size: tuple[int, int], plain: bool, place: int = 0) -> None:
        self._spreads, self._plain, self._place = Spreads(input_size), plain, place

    def __call__(
        self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings
    ) -> Segmentation:
        """Decode one frame."""
        spread, values = self._spreads.crop(outputs[self._place], geometry)
        mask = spread((values > (0.5 if self._plain else 0.0)).astype(np.uint8))
        if not settings.confidence_image:
            return Segmentation(mask)
        values = values.astype(np.float32)
        if self._plain:
            shares = np.maximum(values, 1.0 - values)
        else:  # of the class that was chosen: no exponential is above 1
            shares = 1.0 / (1.0 + np.exp(-np.abs(values)))
        sure = np.rint(255.0 * shares).clip(0, 255)
        return Segmentation(mask, spread(sure.astype(np.uint8)))


class ClassMapDecoder:
    """Class numbers ``[1, h, w]`` or ``[1, 1, h, w]``, integer; those above 255 become 255."""

    def __init__(self, input_size: tuple[int, int], place: int = 0) -> None:
        self._spreads, self._place = Spreads(input_size), place

    def __call__(
        self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings
    ) -> Segmentation:
        """Decode one frame; there is no confidence."""
        spread, values = self._spreads.crop(outputs[self._place], geometry)
        if values.dtype == np.bool_:
            values = values.view(np.uint8)
        return Segmentation(spread(values.clip(0, 255).astype(np.uint8)))


class SeveralMasks:
    """A mask of each output, by its name.

    `masks` has the name, what makes its decoder, and the number of its classes, 0 = not known.
    """

    def __init__(self, masks: Sequence[tuple[str, Callable[[], Decoder], int]]) -> None:
        self._decoders: list[Any] = [make() for _, make, _ in masks]
        self.masks = tuple((name, classes) for name, _, classes in masks)
        """Name and number of classes of each."""

    def __call__(
        self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings
    ) -> Segmentation:
        """Decode one frame."""
        found: list[Segmentation] = []
        for (name, classes), decode in zip(self.masks, self._decoders, strict=True):
            mask = decode(outputs, geometry, settings)
            mask.name, mask.classes = name, classes
            found.append(mask)
        found[0].others = tuple(found[1:])
        return found[0]


def _is_whole(output: npt.NDArray[Any]) -> bool:
    """Whether floats can be classes: whole numbers from 0 on, and more than one of them."""
    most = float(output.max())
    return bool(1.0 < most < 256.0 and output.min() >= 0.0 and np.all(output == np.rint(output)))


def _read_map(
    output: npt.NDArray[Any], place: int, input_size: tuple[int, int]
) -> tuple[Callable[[], Decoder], int, str] | None:
    """How one output is read as a mask: its decoder, its classes, a text."""
    shape = output.shape
    if len(shape) not in (3, 4) or shape[0] != 1 or not is_map_of(shape[-2:], input_size):
        return None
    size = f"{shape[-2]}x{shape[-1]}"
    channels = shape[1] if len(shape) == 4 else 1
    if channels > 1:
        if channels > 256 or not np.issubdtype(output.dtype, np.floating):
            return None
        return partial(MaskDecoder, input_size, place), channels, f"{channels} maps of {size}"
    if np.issubdtype(output.dtype, np.integer) or _is_whole(output):
        return partial(ClassMapDecoder, input_size, place), 0, f"classes as {size} whole numbers"
    if len(shape) == 3:
        return None
    plain = not check_scores(output)
    what = "probabilities, all from 0 to 1" if plain else "logits"
    return partial(ChannelDecoder, input_size, plain, place), 2, f"one channel of {size} {what}"


def _match_one(seen: Inspected, *, whole: bool) -> Match | None:
    if len(seen.outputs) != 1:
        return None
    if seen.shapes[0][-1] == 7 and len(seen.shapes[0]) == 4 and is_ssd(seen.outputs[0]):
        return None
    read = _read_map(seen.outputs[0], 0, seen.input_size)
    if read is None or (read[1] != 0 if whole else seen.shapes[0][1] != 1 or read[1] == 0):
        return None
    doubt = ""
    if not whole and check_scores(seen.outputs[0]) and seen.outputs[0].min() >= 0.0:
        doubt = "none of its values is below 0: it may be a depth or a count"
    return Match(*read, doubt)


def _match_several(seen: Inspected) -> Match | None:
    if len(seen.outputs) < 2:
        return None
    readings = [_read_map(o, place, seen.input_size) for place, o in enumerate(seen.outputs)]
    found = [reading for reading in readings if reading is not None]
    if len(found) < len(readings):
        return None
    names = seen.names or tuple(f"output_{place}" for place in range(len(found)))
    masks = [(name, make, count) for name, (make, count, _) in zip(names, found, strict=True)]
    texts = [f"{name}: {text}" for name, (_, _, text) in zip(names, found, strict=True)]
    doubt = "" if seen.outputs_chosen else "some of them may be for training alone"
    fix = f"set outputs to the names of those that are wanted, of {', '.join(names)}"
    if fault := _find_grids(seen):
        fix = (
            "export the detector with the decoding of its boxes in the graph, or set head to "
            f"{OWN_DECODER}; of a network for masks set outputs to the one output that is wanted"
        )
    classes = {count for _, count, _ in found}
    return Match(
        partial(SeveralMasks, masks), classes.pop() if len(classes) == 1 else 0,
        "; ".join(texts), doubt, fault, fix,
    )  # fmt: skip


def _find_grids(seen: Inspected) -> str:
    """Why several maps are the raw grids of a detector; empty where they can be masks."""
    maps = [(shape[1] if len(shape) == 4 else 1, shape[-2]) for shape in seen.shapes]
    height = seen.input_size[0]
    rows = sorted({count for _, count in maps}, reverse=True)
    if rows[-1] * COARSE >= height:
        return ""  # masks are as fine
    if len(rows) > 1:
        strides = ", ".join(str(round(height / count)) for count in rows)
        return f"maps with cells of {strides} pixels are the raw grids of a detector"
    channels = sorted(count for count, _ in maps)
    if len(channels) == 2 and channels[1] == 4 * channels[0]:
        return (
            "one has four maps for each of the other's, in coarse cells: the coverage and the "
            "boxes of a detector (DetectNet_v2)"
        )
    return ""


LAYOUTS = (
    Layout(
        "binary_mask", "one channel [1, 1, h, w] of logits or probabilities",
        partial(_match_one, whole=False), imagenet_input, "segmentation",
    ),
    Layout(
        "class_map", "classes [1, h, w] or [1, 1, h, w], integer",
        partial(_match_one, whole=True), imagenet_input, "segmentation", default_classes=256,
        task="semantic",
    ),
    Layout(
        "masks", "several masks, each as one of the above; `outputs` names them",
        _match_several, imagenet_input, "segmentation", default_classes=256,
    ),
)  # fmt: skip
