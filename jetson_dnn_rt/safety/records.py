# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Dataclasses from JSON or YAML that is not trusted, checked by the hints of their fields.

A field's hint gives its type, and `typing.Annotated` with a `Rule` a further constraint:
``Annotated[int, within(0, 255)]``. Sizes of files are limited where they are read.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Annotated, Any, TypeVar, Union

import numpy as np

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety.yaml_files import describe

T = TypeVar("T")
MAX_AXES = 4  # of an array
MAX_DEPTH = 32  # of mappings and lists in each other, where a hint allows any

DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Raised by code that expects another form of JSON: values of another type, places that are not
there, numbers that are infinite, lists nested without end."""

_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


@dataclass(frozen=True)
class Rule:
    """A constraint on a value of the right type; `holds` may reject it with a ValueError."""

    words: str  # behind "must be"
    holds: Callable[[Any], object]


def within(least: float, most: float) -> Rule:
    """A number in [least, most]; NaN is in no range."""
    return Rule(f"in [{least}, {most}]", lambda value: least <= value <= most)


def at_most(count: int) -> Rule:
    """A text or collection of at most that length."""
    return Rule(f"at most {count} long", lambda value: len(value) <= count)


def one_of(*texts: str) -> Rule:
    """One of these texts."""
    return Rule(f"one of {', '.join(texts)}", lambda value: value in texts)


def matching(pattern: str, words: str) -> Rule:
    """A text that a regular expression matches whole."""
    return Rule(words, re.compile(pattern).fullmatch)


Count = Annotated[int, within(0, (1 << 63) - 1)]


def read_record(cls: type[T], values: object, place: str = "") -> T:
    """Build a dataclass from a mapping.

    Supported are int, float, bool, str, None, times with a time zone, other such dataclasses
    (those with a `parse` also as text), tuples and mappings of them, and arrays
    (`numpy.typing.NDArray` of int64 or float64) from lists of lists; of `Any` only the depth is
    checked.
    A key that is missing or unknown, a value of the wrong type, one that breaks a rule, and a
    `ValueError` of ``__post_init__`` raise a `ValueError` that begins with the place of the value
    in `values`, below `place`.
    """
    if not isinstance(values, Mapping):
        raise _error(place, f"must hold names with values: {describe(values)}")
    hints = _hints_of(cls)  # type: ignore[arg-type]
    unknown = sorted(str(name) for name in values if name not in hints)
    if unknown:
        raise _error(_join(place, unknown[0]), f"is none of {', '.join(hints)}")
    arguments = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        name = field.name
        if name in values:
            arguments[name] = _convert(hints[name], values[name], _join(place, name))
        elif name in hints and (field.default, field.default_factory) == _NO_DEFAULT:
            raise _error(_join(place, name), "is missing")
    try:
        return cls(**arguments)
    except ValueError as error:
        raise _error(place, str(error)) from error


def check_record(record: object) -> None:
    """Check the fields of a dataclass as `read_record` does: for ``__post_init__``."""
    for name, hint in _hints_of(type(record)).items():  # type: ignore[arg-type]
        value = getattr(record, name)
        if _convert(hint, value, name) != value:
            raise _error(name, f"has a value of the wrong type: {describe(value)}")


_NO_DEFAULT = (dataclasses.MISSING, dataclasses.MISSING)


@functools.cache
def _hints_of(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def _convert(hint: Any, value: Any, key: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(origin, "__value__"):  # an alias by `type`, such as NDArray of NumPy from 2.5 on
        return _convert(origin.__value__[arguments], value, key)
    if hint is Any:
        _check_depth(value, key)
        return value
    if origin is Annotated:
        converted = _convert(arguments[0], value, key)
        for rule in arguments[1:]:
            if not _holds(rule, converted):
                raise _error(key, f"must be {rule.words}: {describe(value)}")
        return converted
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (hint,) = (argument for argument in arguments if argument is not type(None))
        return _convert(hint, value, key)
    if origin is np.ndarray:
        return _convert_array(typing.get_args(arguments[1])[0], value, key)
    if dataclasses.is_dataclass(hint):
        return _convert_record(typing.cast("type[Any]", hint), value, key)
    if origin is tuple:
        return _convert_sequence(arguments, value, key)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise _error(key, f"must hold names with values: {describe(value)}")
        return {
            _convert(arguments[0], str(name), key): _convert(
                arguments[1], item, _join(key, str(name))
            )
            for name, item in value.items()
        }
    if hint is datetime:
        return _convert_time(value, key)
    return _convert_plain(hint, value, key)


def _check_depth(value: Any, key: str, left: int = MAX_DEPTH) -> None:
    if isinstance(value, (Mapping, list, tuple)):
        if not left:
            raise _error(key, f"must be nested at most {MAX_DEPTH} deep")
        for item in value.values() if isinstance(value, Mapping) else value:
            _check_depth(item, key, left - 1)


def _holds(rule: Rule, value: Any) -> bool:
    try:
        return bool(rule.holds(value))
    except (ValueError, ConfigurationError):
        return False


def _convert_record(cls: type[Any], value: Any, key: str) -> Any:
    if isinstance(value, cls):
        return value
    if isinstance(value, str) and hasattr(cls, "parse"):
        try:
            return cls.parse(value)
        except ConfigurationError as error:
            raise _error(key, f"cannot be used: {error}") from error
    return read_record(cls, value, key)


def _convert_sequence(arguments: tuple[Any, ...], value: Any, key: str) -> Any:
    if not isinstance(value, list | tuple):
        raise _error(key, f"must be a list: {describe(value)}")
    if arguments[-1] is Ellipsis:
        arguments = (arguments[0],) * len(value)
    elif len(value) != len(arguments):
        raise _error(key, f"must have {len(arguments)} values: {describe(value)}")
    return tuple(
        _convert(hint, item, f"{key}[{index}]")
        for index, (hint, item) in enumerate(zip(arguments, value, strict=True))
    )


def _convert_array(kind: type[Any], value: Any, key: str) -> np.ndarray[Any, Any]:
    """An array from lists of equally long lists of numbers, none of them empty."""
    shape: list[int] = []
    flat = [value]
    while isinstance(flat[0], list) and len(shape) < MAX_AXES:
        lengths = {len(part) if isinstance(part, list) else -1 for part in flat}
        if len(lengths) > 1 or 0 in lengths:
            raise _error(key, "must be lists that are equally long and not empty")
        shape.append(lengths.pop())
        flat = [item for part in flat for item in part]
    allowed, most = ((int, float), 1e300) if kind is np.float64 else ((int,), 1 << 62)
    # Compared before they become floats: a whole number may be too large for one.
    if any(type(item) not in allowed or not -most <= item <= most for item in flat):
        raise _error(key, f"must hold {'whole ' if kind is np.int64 else ''}numbers only")
    return np.array(flat, kind).reshape(shape)


def _convert_time(value: Any, key: str) -> datetime:
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        if time.tzinfo is not None:
            return time.astimezone(timezone.utc)
    except (TypeError, ValueError, OverflowError):  # no text, no time, beyond the calendar
        pass
    raise _error(key, f"must be a time with a time zone: {describe(value)}")


def _convert_plain(hint: Any, value: Any, key: str) -> Any:
    if hint is float and type(value) is int and abs(value) < 1 << 1023:
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise _error(key, f"must be {_NAMES.get(hint, str(hint))}: {describe(value)}")
    if hint is float and value != value:
        raise _error(key, "must be a number: nan")
    return value


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _error(key: str, message: str) -> ValueError:
    # Keys may come from the file: they must neither reach a terminal as a command nor flood it.
    shown = "".join(c if c.isprintable() else "?" for c in key[:200])
    return ValueError(f"{shown} {message}" if key else message)
