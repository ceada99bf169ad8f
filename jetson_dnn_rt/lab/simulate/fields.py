# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Frozen dataclasses from YAML, with errors that name the file and the key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

import yaml

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety import small_files
from jetson_dnn_rt.safety import yaml_files as safe_yaml
from jetson_dnn_rt.safety.records import Rule, read_record, within

T = TypeVar("T")
LIMIT_BYTES = 1_000_000  # far more than any scenario has

MOST = 1e15
"""Of any quantity: far more than anything has, and a float in every unit."""

Positive = Annotated[float, Rule("> 0, 1e15 at most", lambda value: 0 < value <= MOST)]
NotNegative = Annotated[float, Rule(">= 0, 1e15 at most", lambda value: 0 <= value <= MOST)]
Share = Annotated[float, within(0, 1)]
Factor = Annotated[float, Rule(">= 1, 1e15 at most", lambda value: 1 <= value <= MOST)]
BelowOne = Annotated[float, Rule("in [0, 1)", lambda value: 0 <= value < 1)]
Quantile = Annotated[float, Rule("in (0, 1]", lambda value: 0 < value <= 1)]
PositiveCount = Annotated[int, Rule(">= 1", lambda value: value >= 1)]


def check(condition: bool, message: str) -> None:
    """Raise a `ValueError` unless the condition holds: for ``__post_init__``."""
    if not condition:
        raise ValueError(message)


def read_file(cls: type[T], path: Path) -> T:
    """Read a frozen dataclass from a YAML file, as `read_record` builds it.

    Errors are a `ConfigurationError` that names the file and the key.
    """
    try:
        return read_record(cls, safe_yaml.parse(small_files.read_text(path, LIMIT_BYTES)))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
