# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The DETR family: one row per query, boxes as cx, cy, w, h from 0 to 1 of the input.

DETR's classes are a softmax with "no object" as the last; those of Deformable DETR, RT-DETR,
D-FINE and RF-DETR are sigmoids, and a query may stand for several classes. Ultralytics' RT-DETR
gives boxes and scores as the columns of one output. Each object is given once.
"""

from __future__ import annotations

from functools import partial
from typing import cast

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.models.heads.base import (
    DecoderSettings,
    Inspected,
    Layout,
    Match,
    Outputs,
    check_scores,
)
from jetson_dnn_rt.models.heads.boxes import select, to_corners
from jetson_dnn_rt.models.input.preprocessing import (
    Floats,
    Geometry,
    Preprocessing,
    imagenet_input,
)
from jetson_dnn_rt.results import Detections

_SURE = 0.9  # share of the queries by which a grey picture decides between softmax and sigmoid
_MOST_QUERIES = 3000


class DetrDecoder:
    """Logits or scores ``[N, C]`` and boxes ``[N, 4]`` of the queries.

    `order` has the places of both among the outputs; one place = columns of one output, boxes
    first. `scores` says what they are: ``softmax`` and ``sigmoid`` of logits, ``plain``, or
    ``chosen``: one output ``[N, 6]`` of boxes, score and class.
    """

    def __init__(self, input_size: tuple[int, int], order: tuple[int, ...], scores: str) -> None:
        height, width = input_size
        self._sides = np.array([width, height, width, height], np.float32)
        self._order, self._scores = order, scores

    def __call__(
        self, outputs: Outputs, geometry: Geometry, settings: DecoderSettings
    ) -> Detections:
        """Decode one frame."""
        if self._scores == "chosen":
            return self._read_rows(cast(Floats, outputs[0][0]), geometry, settings)
        if len(self._order) == 1:
            values, boxes = outputs[self._order[0]][0][:, 4:], outputs[self._order[0]][0][:, :4]
        else:
            values, boxes = (outputs[place][0] for place in self._order)
        rows, class_ids, scores = self._find(cast(Floats, values), settings.confidence)
        corners = to_corners(boxes[rows].astype(np.float32) * self._sides)
        return select(corners, scores, class_ids, geometry, settings, suppress=False)[0]

    def _read_rows(
        self, rows: Floats, geometry: Geometry, settings: DecoderSettings
    ) -> Detections:
        rows = rows[rows[:, 4] >= settings.confidence].astype(np.float32)
        corners = to_corners(rows[:, :4] * self._sides)
        class_ids = rows[:, 5].astype(np.int64)
        return select(corners, rows[:, 4], class_ids, geometry, settings, suppress=False)[0]

    def _find(
        self, values: Floats, confidence: float
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats]:
        """Queries, classes and scores of what reaches the threshold."""
        if self._scores == "softmax":
            shares = np.exp(values - values.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            class_ids = shares[:, :-1].argmax(axis=1)
            scores = shares[np.arange(len(shares)), class_ids]
            rows = np.flatnonzero(scores >= confidence)
            return rows, class_ids[rows], scores[rows]
        if self._scores == "plain":
            best = values.argmax(axis=1)
            scores = values[np.arange(len(values)), best]
            rows = np.flatnonzero(scores >= confidence)
            return rows, best[rows], scores[rows]
        # The threshold as a logit: few exponentials are computed.
        with np.errstate(divide="ignore"):
            limit = np.log(confidence) - np.log1p(-confidence)
        rows, class_ids = np.nonzero(values >= limit)
        scores = 1.0 / (1.0 + np.exp(-values[rows, class_ids].astype(np.float32)))
        return rows, class_ids, cast(Floats, scores)


def _find_outputs(seen: Inspected) -> tuple[int, int] | None:
    """Places of the logits ``[1, N, C]`` and of the boxes ``[1, N, 4]`` from 0 to 1."""
    shapes = seen.shapes
    if len(shapes) != 2 or any(len(s) != 3 or s[0] != 1 or s[1] > _MOST_QUERIES for s in shapes):
        return None
    if shapes[0][1] != shapes[1][1]:
        return None
    for logits, boxes in ((0, 1), (1, 0)):
        values = seen.outputs[boxes]
        # Some reach over the border.
        near = float(np.abs(values).max(initial=0.0)) < 3.0
        if shapes[boxes][2] == 4 and near and np.all(values[..., 2:] >= 0):
            # Of two outputs with four columns the names tell which are boxes.
            name = "".join(seen.names[logits : logits + 1])
            if shapes[logits][2] == 4 and ("box" in name or name == "dets"):
                continue
            return logits, boxes
    return None


_RF_DETR = {"dets", "labels"}
"""Names that RF-DETR's exporter gives its outputs."""


def _match_rfdetr(seen: Inspected) -> Match | None:
    order = _find_outputs(seen)
    if order is None or set(seen.names) != _RF_DETR:
        return None
    _, queries, classes = seen.shapes[order[0]]
    return Match(
        partial(DetrDecoder, seen.input_size, order, "sigmoid"),
        classes,
        f"{queries} queries with {classes} logits, outputs named dets and labels",
    )


def _match_two(seen: Inspected, *, softmax: bool) -> Match | None:
    order = _find_outputs(seen)
    if order is None or set(seen.names) == _RF_DETR:
        return None
    logits = seen.outputs[order[0]][0]
    queries, columns = logits.shape
    classes = columns - softmax
    if classes < 1 or not check_scores(logits):  # scores, not logits
        return None
    none = float(np.mean(logits.argmax(axis=1) == columns - 1)) if columns > 1 else 0.0
    low = float(np.mean(logits.max(axis=1) < 0.0))
    doubt = fault = ""
    is_softmax, is_sigmoid = none >= _SURE and low < _SURE, low >= _SURE and none < _SURE
    if softmax and not is_softmax:
        doubt = f"{none:.0%} of the queries say no object for a grey picture"
        doubt = doubt if not is_sigmoid else f"all logits of {low:.0%} of the queries are negative"
    if not softmax and not is_sigmoid:
        doubt = f"all logits of only {low:.0%} of the queries are negative for a grey picture"
        doubt = doubt if not is_softmax else f"the last class is the best of {none:.0%} of queries"
    kind = "softmax, no object last" if softmax else "sigmoid"
    return Match(
        partial(DetrDecoder, seen.input_size, order, "softmax" if softmax else "sigmoid"),
        classes,
        f"{queries} queries with {columns} logits, {kind}",
        doubt,
        fault,
    )


def _match_rows(seen: Inspected) -> Match | None:
    match seen.shapes:
        case [(1, rows, 6)] if rows <= _MOST_QUERIES:
            values = seen.outputs[0][0]
            if not values.any() or check_scores(values[:, :5]):
                return None
            if np.any(values[:, 5] != np.rint(values[:, 5])):
                return None
            return Match(
                partial(DetrDecoder, seen.input_size, (0,), "chosen"),
                0,
                f"{rows} queries with box from 0 to 1, score and class",
                _find_corners(seen, values),
                fault=_check_name(seen),
            )
    return None


def _check_name(seen: Inspected) -> str:
    """Fault of a file of Ultralytics that names another head; empty where it does not."""
    said = seen.metadata.head
    return f"the file says its head is {said}" if said not in ("", "RTDETRDecoder") else ""


def _find_corners(seen: Inspected, rows: Floats) -> str:
    """Doubt about boxes whose width exceeds the centre's x, and so on, in every row."""
    if not seen.metadata.task and np.all(rows[:, 2:4] > rows[:, :2]):
        return "its boxes may be corners from 0 to 1, not centres and sizes"
    return ""


def _match_columns(seen: Inspected) -> Match | None:
    match seen.shapes:
        case [(1, rows, columns)] if rows <= _MOST_QUERIES and columns > 4:
            values = seen.outputs[0][0]
            if seen.find_strides(rows) or seen.find_strides(columns) or not values.any():
                return None
            return Match(
                partial(DetrDecoder, seen.input_size, (0,), "plain"),
                columns - 4,
                f"{rows} queries with box and {columns - 4} scores",
                _find_corners(seen, values),
                fault=_check_name(seen),
                scores=values[:, 4:],
                shares=values[:, :4],
            )
    return None


LAYOUTS = (
    Layout(
        "detr", "logits [1, N, C+1], softmax, no object last, and boxes [1, N, 4] cx, cy, w, h "
        "from 0 to 1",
        partial(_match_two, softmax=True), imagenet_input,
    ),
    Layout(
        "detr_sigmoid", "logits [1, N, C] and boxes [1, N, 4] cx, cy, w, h from 0 to 1 (RT-DETR, "
        "D-FINE, Deformable DETR)",
        partial(_match_two, softmax=False), partial(Preprocessing, resize="stretch"),
    ),
    Layout(
        "rfdetr", "the same by the names dets and labels (RF-DETR)", _match_rfdetr, imagenet_input,
    ),
    Layout(
        "rtdetr", "[1, N, 4+C] cx, cy, w, h from 0 to 1 and scores (Ultralytics' RT-DETR)",
        _match_columns, partial(Preprocessing, resize="stretch"), task="detect",
    ),
    Layout(
        "rtdetr_rows", "[1, N, 6] cx, cy, w, h from 0 to 1, score, class (the same, 2026)",
        _match_rows, partial(Preprocessing, resize="stretch"), task="detect", default_classes=80,
    ),
)  # fmt: skip
