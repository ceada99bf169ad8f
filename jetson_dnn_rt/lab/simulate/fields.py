"""Frozen dataclasses from YAML, with errors that name the file and the key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety import small_files
from jetson_dnn_rt.safety import yaml_files as safe_yaml
from jetson_dnn_rt.safety.records import read_record

T = TypeVar("T")
LIMIT_BYTES = 1_000_000  # far more than any scenario has
RULES: dict[str, Callable[[float], bool]] = {
    "> 0": lambda value: value > 0,
    ">= 0": lambda value: value >= 0,
    ">= 1": lambda value: value >= 1,
    "in [0, 1]": lambda value: 0.0 <= value <= 1.0,
    "in [0, 1)": lambda value: 0.0 <= value < 1.0,
    "in (0, 1]": lambda value: 0.0 < value <= 1.0,
}


def check(condition: bool, message: str) -> None:
    """Raise a `ValueError` unless the condition holds: for ``__post_init__``."""
    if not condition:
        raise ValueError(message)


def check_fields(instance: object, rule: str, *keys: str) -> None:
    """Check that each of these fields keeps a rule of `RULES`; NaN keeps none."""
    for key in keys:
        value = getattr(instance, key)
        check(RULES[rule](value), f"{key} must be {rule}: {value}")


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping; `ConfigurationError` if missing, too long, not YAML or not a mapping."""
    try:
        content = safe_yaml.parse(small_files.read_text(path, LIMIT_BYTES))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigurationError(f"{path}: must hold names with values")
    return content


def build(cls: type[T], values: object, path: Path) -> T:
    """Build a frozen dataclass from the values of a file, as `read_record` does.

    What is wrong is a `ConfigurationError` that names the file and the key.
    """
    try:
        return read_record(cls, values)
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error
