# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The classes that a task wants, and the smallest score of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.config.suggestions import suggest
from jetson_dnn_rt.config.task import parse_class_threshold
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.heads.labels import name_class

_MOST_SHOWN = 100


def resolve_thresholds(
    labels: Sequence[str], confidence: float, classes: Sequence[str], thresholds: Sequence[str]
) -> tuple[float, npt.NDArray[np.float32] | None]:
    """Lowest of all thresholds, and those by class for `DecoderSettings`; None = one for all.

    `classes` are the names or numbers of those wanted, none = all; `thresholds` are
    ``CLASS=SCORE`` of some, wanted or not, the others have `confidence`. A name stands for all
    classes that are called so, and goes before a number.

    Raises
    ------
    ConfigurationError
        When the model has no such class, or a class has two thresholds.
    """
    if not classes and not thresholds:
        return confidence, None
    scores = np.full(len(labels), confidence)
    given: dict[int, str] = {}
    for text in thresholds:
        name, score = parse_class_threshold(text)
        for index in _find("class_thresholds", name, labels):
            if index in given:
                raise ConfigurationError(
                    f"class_thresholds gives class {labels[index]!r} two thresholds: "
                    f"{given[index]!r} and {text!r}; fix: leave one out",
                    "class_thresholds",
                )
            given[index], scores[index] = text, score
    wanted = [index for name in classes for index in _find("classes", name, labels)]
    if wanted:
        lowest = float(scores[wanted].min())
        limits = np.full(len(labels), np.inf, np.float32)
        limits[wanted] = scores[wanted]
    else:
        lowest, limits = float(scores.min()), scores.astype(np.float32)
    return lowest, limits


def _find(parameter: str, name: str, labels: Sequence[str]) -> list[int]:
    """Numbers of the classes with that name, else the class with that number."""
    name = name.strip()
    if found := [index for index, label in enumerate(labels) if label == name]:
        return found
    if name.isdecimal() and int(name) < len(labels):
        return [int(name)]
    shown = ", ".join(labels[:_MOST_SHOWN])
    more = f", ... ({len(labels)} in all)" if len(labels) > _MOST_SHOWN else ""
    hint = suggest(name, labels)
    if not hint and all(label == name_class((), i) for i, label in enumerate(labels)):
        hint = "; its classes have no names: set labels"
    raise ConfigurationError(
        f"{parameter}: the model has no class {name!r}{hint}; fix: a number from 0 to "
        f"{len(labels) - 1}, or one of {shown}{more}",
        parameter,
    )
