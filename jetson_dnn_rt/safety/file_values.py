"""Dataclasses from YAML or JSON, with errors that name the file and the key."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, Union

import numpy as np
import yaml

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety import small_files
from jetson_dnn_rt.safety import yaml_files as safe_yaml

T = TypeVar("T")
LIMIT_BYTES = 1_000_000  # far more than any scenario has
MAX_WHOLE, MAX_FLOAT = 1 << 62, 1e300  # what computing with them cannot overflow
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


def build(cls: type[T], values: object, path: Path, key: str = "") -> T:
    """Build a dataclass from the values of a file, its fields by their type hints.

    Supported are int, float, bool, str, None, Any, other such dataclasses, tuples and mappings of
    them, and arrays (`numpy.typing.NDArray` of int64 or float64) from lists of lists. A key that
    is missing or unknown, a value of the wrong type, and a `ValueError` of the dataclass's
    ``__post_init__`` raise a `ConfigurationError` that names `path` and `key`.
    """
    if not isinstance(values, Mapping):
        raise _error(path, key, f"must hold names with values: {safe_yaml.describe(values)}")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    unknown = sorted(str(name) for name in values if name not in fields)
    if unknown:
        raise _error(path, _join(key, unknown[0]), f"is none of {', '.join(fields)}")
    hints = typing.get_type_hints(cls)
    arguments = {}
    for name, field in fields.items():
        if name in values:
            arguments[name] = _convert(hints[name], values[name], path, _join(key, name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _error(path, _join(key, name), "is missing")
    try:
        return cls(**arguments)
    except ValueError as error:
        raise _error(path, key, str(error)) from error


def _convert(hint: Any, value: Any, path: Path, key: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is np.ndarray:
        return _convert_array(typing.get_args(arguments[1])[0], value, path, key)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (hint,) = (argument for argument in arguments if argument is not type(None))
        return _convert(hint, value, path, key)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast("type[Any]", hint), value, path, key)
    if origin is tuple:
        return _convert_sequence(arguments, value, path, key)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise _error(path, key, f"must hold names with values: {safe_yaml.describe(value)}")
        return {
            str(name): _convert(arguments[1], item, path, _join(key, str(name)))
            for name, item in value.items()
        }
    if type(value) is int and hint in (int, float) and abs(value) > MAX_WHOLE:
        raise _error(path, key, f"must be {_name(hint)} within 2^62: {safe_yaml.describe(value)}")
    if hint is float and type(value) is int:
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise _error(path, key, f"must be {_name(hint)}: {safe_yaml.describe(value)}")
    if hint is float and not abs(value) <= MAX_FLOAT:
        raise _error(path, key, f"must be a number: {value}")
    return value


def _convert_sequence(arguments: tuple[Any, ...], value: Any, path: Path, key: str) -> Any:
    if not isinstance(value, list):
        raise _error(path, key, f"must be a list: {safe_yaml.describe(value)}")
    if arguments[-1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    elif len(value) != len(arguments):
        raise _error(path, key, f"must have {len(arguments)} values: {safe_yaml.describe(value)}")
    return tuple(
        _convert(hint, item, path, f"{key}[{index}]")
        for index, (hint, item) in enumerate(zip(arguments, value, strict=True))
    )


def _convert_array(kind: type[Any], value: Any, path: Path, key: str) -> np.ndarray[Any, Any]:
    """An array from lists of equally long lists of numbers, none of them empty."""
    shape: list[int] = []
    flat = [value]
    while isinstance(flat[0], list) and len(shape) < 4:
        lengths = {len(part) if isinstance(part, list) else -1 for part in flat}
        if len(lengths) > 1 or 0 in lengths:
            raise _error(path, key, "must be lists that are equally long and not empty")
        shape.append(lengths.pop())
        flat = [item for part in flat for item in part]
    allowed, most = ((int, float), MAX_FLOAT) if kind is np.float64 else ((int,), MAX_WHOLE)
    # Compared before they become floats: a whole number may be too large for one.
    if any(type(item) not in allowed or not -most <= item <= most for item in flat):
        raise _error(path, key, f"must hold {'whole ' if len(allowed) == 1 else ''}numbers only")
    return np.array(flat, kind).reshape(shape)


def _name(hint: Any) -> str:
    return {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}.get(
        hint, str(hint)
    )


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _error(path: Path, key: str, message: str) -> ConfigurationError:
    return ConfigurationError(f"{path}: {key} {message}" if key else f"{path}: {message}")
