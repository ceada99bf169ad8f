# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The declaration language: a frozen dataclass declares, describes and checks parameters.

Each field declares its default, unit, range and whether it may change while the node runs. Nodes
declare ROS parameters from it, the command line reads parameter files with it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from jetson_dnn_rt.config.suggestions import suggest
from jetson_dnn_rt.errors import ConfigurationError

Values = TypeVar("Values")

_ITEM = "parameter"
"""Key in a field's metadata."""

_EMPTY: dict[Any, Any] = {tuple[str, ...]: "", tuple[int, ...]: -1, tuple[float, ...]: -1.0}
"""How an empty list is written: ROS cannot tell the type of ``[]``."""

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_ELEMENTS = {int: "whole numbers", float: "numbers", str: "texts"}

_SMALLEST = {"ms": 1e-6, "Hz": 1e-6}
"""Smallest value above 0 by unit. Less than a nanosecond would become 0, which often has a meaning
of its own; the period of a lower rate is too long to be counted in nanoseconds."""

LONGEST_STRING, LONGEST_LIST, LONGEST_SHOWN = 4096, 10_000, 200
"""Characters of a string, entries of a list; characters of a value in an error."""


def parameter(default: Any, description: str, *, unit: str = "", **options: Any) -> Any:
    """Declare a field that is a ROS parameter; the options are the fields of `Item`."""
    text = description + (f" [{unit}]" if unit else "")
    item = Item(default=default, description=text, unit=unit, **options)
    return dataclasses.field(default=default, metadata={_ITEM: item})


dynamic_parameter = functools.partial(parameter, dynamic=True)
fixed_parameter = functools.partial(parameter, read_only=True)


@dataclasses.dataclass(frozen=True)
class Item:
    """One declared parameter; `describe` fills in the field and its type."""

    default: Any
    description: str
    name: str = ""  # for ROS, where it differs from the field's (dots)
    group: str = ""  # of the name for ROS: group.field, without a group_ before the field's name
    unit: str = ""
    limits: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    example: str = ""  # how a list is written whose entries have a form of their own
    words: tuple[str, ...] = ()  # texts allowed instead of a number; the field is `int | str`
    dynamic: bool = False  # may change while the node is configured
    read_only: bool = False  # never changes once the node exists
    field: str = ""
    kind: Any = None

    @property
    def listed_choices(self) -> str:
        """The choices for people; empty where everything is allowed."""
        return ", ".join(choice or '""' for choice in self.choices)

    def to_ros(self, value: Any) -> Any:
        """The value for ROS, where a list is never empty."""
        if self.kind in _EMPTY:
            return list(value) or [_EMPTY[self.kind]]
        return value

    def check(self, value: Any) -> Any:
        """Return the value in the field's type, or raise ConfigurationError with the reason."""
        self._check_length(value)
        if self.kind in _EMPTY:
            return self._check_list(value)
        if isinstance(value, str) and value in self.words:
            return value
        if self.kind is float:
            value = _to_float(value)
        if not isinstance(value, self.kind) or (self.kind is int and isinstance(value, bool)):
            kind = " or ".join((_KINDS[self.kind], *self.words))
            raise self._refuse(f"must be {kind}: {_show(value)}")
        if self.limits is not None and not self.limits[0] <= value <= self.limits[1]:
            low, high = self.limits
            raise self._refuse(f"must be in [{low:g}, {high:g}]: {_show(value)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise self._refuse(f"must be finite: {_show(value)}")
        smallest = _SMALLEST.get(self.unit)
        if smallest and isinstance(value, float) and 0.0 < value < smallest:
            raise self._refuse(f"must be 0 or at least {smallest:g} {self.unit}: {value!r}")
        if self.choices and value not in self.choices:
            hint = suggest(str(value), filter(None, self.choices))
            raise self._refuse(f"must be one of {self.listed_choices}: {_show(value)}{hint}")
        return value

    def _refuse(self, reason: str) -> ConfigurationError:
        return ConfigurationError(f"{self.name} {reason}", self.name)

    def _check_length(self, value: Any) -> None:
        strings: Iterable[Any] = (value,)
        if not isinstance(value, str) and hasattr(value, "__len__"):
            if len(value) > LONGEST_LIST:
                raise self._refuse(
                    f"must have at most {LONGEST_LIST} entries: it has {len(value)}"
                )
            strings = value
        longest = max((len(one) for one in strings if isinstance(one, str)), default=0)
        if longest > LONGEST_STRING:
            raise self._refuse(f"must have at most {LONGEST_STRING} characters: it has {longest}")

    def _check_list(self, value: Any) -> Any:
        element = typing.get_args(self.kind)[0]
        # rclpy gives lists of numbers as array.array.
        values = value.tolist() if hasattr(value, "tolist") else value
        if element is float and isinstance(values, (list, tuple)):
            values = [_to_float(v) for v in values]
        if not isinstance(values, (list, tuple)) or not all(type(v) is element for v in values):
            kind = f"a list of {_ELEMENTS[element]}, written {self._write_list(values)}"
            raise self._refuse(f"must be {kind}: {_show(value)}")
        if element is float and not all(math.isfinite(v) for v in values):
            raise self._refuse(f"must be finite: {_show(values)}")
        return tuple(v for v in values if v != _EMPTY[self.kind])

    @property
    def list_form(self) -> str:
        """How a list is written; empty where it is none."""
        return (self.example or "[a, b]") if self.kind in _EMPTY else ""

    def _write_list(self, value: Any) -> str:
        """How a list is written: with what was given, where that is clear."""
        if self.kind != tuple[str, ...]:
            return self.list_form
        if isinstance(value, Mapping) and self.example and len(value) <= _MOST_WRITTEN:
            texts = [f"{key}={one}" for key, one in value.items()]
        elif isinstance(value, (list, tuple)) and 0 < len(value) <= _MOST_WRITTEN:
            if any(isinstance(one, bool) for one in value):
                # What stood there is lost.
                return '["yes", "no"], as without quotation marks they are true and false'
            texts = [str(one) for one in value if isinstance(one, (str, int, float))]
        else:
            texts = [value] if isinstance(value, str) and not self.example else []
        if not texts or not all(_PLAIN.fullmatch(text) for text in texts):
            return self.list_form
        return f"[{', '.join(map(json.dumps, texts))}]"


_MOST_WRITTEN = 4
"""Entries of a list that are written out in an error."""

_PLAIN = re.compile(r"[\w.=+/ -]{1,40}", re.ASCII)


def _show(value: Any) -> str:
    """Shorten a value for an error."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _to_float(value: Any) -> Any:
    """Turn `40` into 40.0; leave anything else to the check of its type."""
    return float(value) if type(value) is int and abs(value) < 1 << 63 else value


def describe(declaration: type[Any]) -> list[Item]:
    """List the parameters of a dataclass; other fields are left out."""
    kinds = typing.get_type_hints(declaration)
    items = []
    for field in dataclasses.fields(declaration):
        if item := field.metadata.get(_ITEM):
            name = item.name or field.name
            if item.group:
                name = f"{item.group}.{name.removeprefix(f'{item.group}_')}"
            kind = int if item.words else kinds[field.name]
            items.append(dataclasses.replace(item, field=field.name, name=name, kind=kind))
    return items


def read_values(declaration: type[Values], given: Mapping[str, Any], **defaults: Any) -> Values:
    """Make a dataclass of parameters from values by their ROS names.

    Names that are not declared are ignored. `defaults`, by field, replace those of the
    declaration; for fields that are not parameters they are the values.

    Raises
    ------
    ConfigurationError
        When a value, or their combination, cannot be used.
    """
    values = {
        item.field: item.check(given.get(item.name, defaults.get(item.field, item.default)))
        for item in describe(declaration)
    }
    return declaration(**{**defaults, **values})
