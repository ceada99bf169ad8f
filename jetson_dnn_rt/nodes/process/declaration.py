"""Declarations of parameters, without ROS: the command line reads parameter files with them.

A frozen dataclass is the declaration, the description and the checked value. Each field says its
default, unit, range and whether it may change while the node runs.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from jetson_dnn_rt.errors import ConfigurationError

Values = TypeVar("Values")

QOS_NAMES = ("SENSOR_DATA", "DEFAULT", "SYSTEM_DEFAULT")
TRANSPORTS = ("raw", "compressed")

_EMPTY: dict[Any, Any] = {tuple[str, ...]: "", tuple[int, ...]: -1, tuple[float, ...]: -1.0}
"""What an empty list is written as: ROS cannot tell the type of ``[]``."""

_SMALLEST = {"ms": 1e-6, "Hz": 1e-6}
"""Smallest value above 0 by unit. Less than a nanosecond would become 0, which often means that
something else holds; the period of a lower rate is too long to be counted in nanoseconds."""

LONGEST_STRING, LONGEST_LIST, LONGEST_SHOWN = 4096, 10_000, 200
"""Characters of a string, entries of a list; characters of a value in an error."""


def parameter(
    default: Any,
    description: str,
    *,
    name: str = "",
    unit: str = "",
    limits: tuple[float, float] | None = None,
    choices: Sequence[str] = (),
    words: Sequence[str] = (),
    dynamic: bool = False,
    read_only: bool = False,
) -> Any:
    """Describe a field that is a ROS parameter.

    Parameters
    ----------
    default : object
        Value without any configuration.
    description : str
        For ``ros2 param describe``.
    name : str
        ROS name where it differs from the field's (dots).
    unit : str
        Appended to the description.
    limits : tuple of float, optional
        Smallest and largest value of a number.
    choices : sequence of str
        The only values of a string.
    words : sequence of str
        What a number may be instead; the field is annotated ``int | str``.
    dynamic : bool
        May change while the node is configured.
    read_only : bool
        Never changes after the node was made.
    """
    metadata = {
        "name": name,
        "description": description + (f" [{unit}]" if unit else ""),
        "unit": unit,
        "limits": limits,
        "choices": tuple(choices),
        "words": tuple(words),
        "dynamic": dynamic,
        "read_only": read_only,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Item:
    """One parameter of a dataclass of parameters, as `parameter` described it."""

    field: str
    name: str
    kind: Any
    default: Any
    description: str
    limits: tuple[float, float] | None
    choices: tuple[str, ...]
    dynamic: bool
    read_only: bool
    words: tuple[str, ...] = ()
    unit: str = ""

    def to_ros(self, value: Any) -> Any:
        """The value as ROS has it: a list is never empty."""
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
            kind = " or ".join((self.kind.__name__, *self.words))
            raise ConfigurationError(f"{self.name} must be a {kind}: {_show(value)}")
        if self.limits is not None and not self.limits[0] <= value <= self.limits[1]:
            low, high = self.limits
            raise ConfigurationError(f"{self.name} must be in [{low:g}, {high:g}]: {_show(value)}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigurationError(f"{self.name} must be finite: {_show(value)}")
        smallest = _SMALLEST.get(self.unit)
        if smallest and isinstance(value, float) and 0.0 < value < smallest:
            raise ConfigurationError(
                f"{self.name} must be 0 or at least {smallest:g} {self.unit}: {value!r}"
            )
        if self.choices and value not in self.choices:
            raise ConfigurationError(
                f"{self.name} must be one of {', '.join(self.choices)}: {_show(value)}"
            )
        return value

    def _check_length(self, value: Any) -> None:
        strings: Iterable[Any] = (value,)
        if not isinstance(value, str) and hasattr(value, "__len__"):
            if len(value) > LONGEST_LIST:
                raise ConfigurationError(
                    f"{self.name} must have at most {LONGEST_LIST} entries: it has {len(value)}"
                )
            strings = value
        longest = max((len(one) for one in strings if isinstance(one, str)), default=0)
        if longest > LONGEST_STRING:
            raise ConfigurationError(
                f"{self.name} must have at most {LONGEST_STRING} characters: it has {longest}"
            )

    def _check_list(self, value: Any) -> Any:
        element = typing.get_args(self.kind)[0]
        # rclpy gives lists of numbers as array.array.
        values = value.tolist() if hasattr(value, "tolist") else value
        if element is float and isinstance(values, (list, tuple)):
            values = [_to_float(v) for v in values]
        if not isinstance(values, (list, tuple)) or not all(type(v) is element for v in values):
            raise ConfigurationError(
                f"{self.name} must be a list of {element.__name__}: {_show(value)}"
            )
        if element is float and not all(math.isfinite(v) for v in values):
            raise ConfigurationError(f"{self.name} must be finite: {_show(values)}")
        return tuple(v for v in values if v != _EMPTY[self.kind])


def _show(value: Any) -> str:
    """A value as an error says it, cut off where it is too long."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _to_float(value: Any) -> Any:
    """What is written without a point, `40`, where 40.0 is meant; anything else as it is."""
    return float(value) if type(value) is int and abs(value) < 1 << 63 else value


def describe(declaration: type[Any]) -> list[Item]:
    """List the parameters of a dataclass, nested ones by their ROS names."""
    kinds = typing.get_type_hints(declaration)
    return [
        Item(
            field=field.name,
            name=field.metadata["name"] or field.name,
            kind=int if field.metadata["words"] else kinds[field.name],
            default=field.default,
            description=field.metadata["description"],
            limits=field.metadata["limits"],
            choices=field.metadata["choices"],
            dynamic=field.metadata["dynamic"],
            read_only=field.metadata["read_only"],
            words=field.metadata["words"],
            unit=field.metadata["unit"],
        )
        for field in dataclasses.fields(declaration)
    ]


def read_values(
    declaration: type[Values], given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Values:
    """Make a dataclass of parameters from values by their ROS names.

    Parameters
    ----------
    declaration : type
        A dataclass whose fields are made by `parameter`.
    given : mapping
        Values by ROS name; names that are not declared are not looked at.
    defaults : mapping
        Defaults by field that differ from the declaration's.

    Raises
    ------
    ConfigurationError
        When a value, or their combination, cannot be used.
    """
    values = {
        item.field: item.check(given.get(item.name, defaults.get(item.field, item.default)))
        for item in describe(declaration)
    }
    return declaration(**values)
