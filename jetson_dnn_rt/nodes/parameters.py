"""Parameters: a frozen dataclass is the declaration, the description and the checked value.

Each field says its default, unit, range and whether it may change while the node runs. From it
come the ROS descriptor, the check of a new value with a reason, and the value the node works with.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)

from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.parameter import Parameter

Values = TypeVar("Values")

_EMPTY: dict[Any, Any] = {tuple[str, ...]: "", tuple[int, ...]: -1, tuple[float, ...]: -1.0}
"""What an empty list is written as: ROS cannot tell the type of ``[]``."""


def parameter(
    default: Any,
    description: str,
    *,
    name: str = "",
    unit: str = "",
    limits: tuple[float, float] | None = None,
    choices: Sequence[str] = (),
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
    dynamic : bool
        May change while the node is configured.
    read_only : bool
        Never changes after the node was made.
    """
    metadata = {
        "name": name,
        "description": description + (f" [{unit}]" if unit else ""),
        "limits": limits,
        "choices": tuple(choices),
        "dynamic": dynamic,
        "read_only": read_only,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class _Item:
    """One parameter of a dataclass of parameters."""

    field: str
    name: str
    kind: Any
    default: Any
    description: str
    limits: tuple[float, float] | None
    choices: tuple[str, ...]
    dynamic: bool
    read_only: bool

    def descriptor(self) -> ParameterDescriptor:
        descriptor = ParameterDescriptor(description=self.description, read_only=self.read_only)
        if self.choices:
            descriptor.additional_constraints = "one of " + ", ".join(self.choices)
        if self.limits is not None and self.kind is int:
            low, high = self.limits
            descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high))]
        elif self.limits is not None:
            low, high = self.limits
            descriptor.floating_point_range = [
                FloatingPointRange(from_value=float(low), to_value=float(high))
            ]
        # `ros2 param set NODE deadline_ms 40` and a YAML file both mean 40.0.
        descriptor.dynamic_typing = self.kind in (float, tuple[float, ...])
        return descriptor

    def to_ros(self, value: Any) -> Any:
        if self.kind in _EMPTY:
            return list(value) or [_EMPTY[self.kind]]
        return value

    def check(self, value: Any) -> Any:
        """Return the value in the field's type, or raise ConfigurationError with the reason."""
        if self.kind in _EMPTY:
            return self._check_list(value)
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, self.kind) or (self.kind is int and isinstance(value, bool)):
            raise ConfigurationError(f"{self.name} must be a {self.kind.__name__}: {value!r}")
        if self.limits is not None and not self.limits[0] <= value <= self.limits[1]:
            low, high = self.limits
            raise ConfigurationError(f"{self.name} must be in [{low:g}, {high:g}]: {value!r}")
        if self.choices and value not in self.choices:
            raise ConfigurationError(
                f"{self.name} must be one of {', '.join(self.choices)}: {value!r}"
            )
        return value

    def _check_list(self, value: Any) -> Any:
        element = typing.get_args(self.kind)[0]
        # rclpy gives lists of numbers as array.array.
        values = value.tolist() if hasattr(value, "tolist") else value
        if element is float and isinstance(values, (list, tuple)):
            values = [float(v) if type(v) is int else v for v in values]
        if not isinstance(values, (list, tuple)) or not all(type(v) is element for v in values):
            raise ConfigurationError(
                f"{self.name} must be a list of {element.__name__}: {value!r}"
            )
        return tuple(v for v in values if v != _EMPTY[self.kind])


def describe(declaration: type[Any]) -> list[_Item]:
    """List the parameters of a dataclass, nested ones by their ROS names."""
    kinds = typing.get_type_hints(declaration)
    return [
        _Item(
            field=field.name,
            name=field.metadata["name"] or field.name,
            kind=kinds[field.name],
            default=field.default,
            description=field.metadata["description"],
            limits=field.metadata["limits"],
            choices=field.metadata["choices"],
            dynamic=field.metadata["dynamic"],
            read_only=field.metadata["read_only"],
        )
        for field in dataclasses.fields(declaration)
    ]


class ParameterSet(Generic[Values]):
    """Declares the parameters of a dataclass on a node and keeps its checked value.

    Parameters
    ----------
    node : Node
        Where they are declared.
    declaration : type
        A frozen dataclass whose fields are made by `parameter`; its ``__post_init__`` raises
        `ConfigurationError` for combinations that cannot be used.
    defaults : mapping, optional
        Defaults of this node that differ from the dataclass'.
    is_fixed : callable
        Whether parameters that are not dynamic may not change now.
    on_change : callable
        Called with the new value before it counts; raises `ConfigurationError` to refuse it.

    Raises
    ------
    ConfigurationError
        When the configuration holds a value that cannot be used.
    """

    def __init__(
        self,
        node: Node,
        declaration: type[Values],
        *,
        defaults: Mapping[str, Any] | None = None,
        is_fixed: Callable[[], bool] = lambda: False,
        on_change: Callable[[Values], None] = lambda values: None,
    ) -> None:
        self._declaration = declaration
        self._items = {item.name: item for item in describe(declaration)}
        self._is_fixed, self._on_change = is_fixed, on_change
        values: dict[str, Any] = {}
        try:
            for item in self._items.values():
                default = (defaults or {}).get(item.field, item.default)
                declared = node.declare_parameter(
                    item.name, item.to_ros(default), item.descriptor()
                )
                values[item.field] = item.check(declared.value)
            self.value: Values = declaration(**values)
        except (ConfigurationError, ValueError) as error:
            raise ConfigurationError(f"{node.get_name()}: {error}") from error
        node.add_on_set_parameters_callback(self._on_set)

    def _on_set(self, parameters: list[Parameter]) -> SetParametersResult:
        changes: dict[str, Any] = {}
        try:
            for changed in parameters:
                item = self._items.get(changed.name)
                if item is None:
                    continue
                value = item.check(changed.value)
                if value == getattr(self.value, item.field):
                    continue
                if not item.dynamic and self._is_fixed():
                    raise ConfigurationError(
                        f"{item.name} is read when the node is configured: clean it up first"
                    )
                changes[item.field] = value
            if changes:
                changed_value = dataclasses.replace(self.value, **changes)  # type: ignore
                self._on_change(changed_value)
                self.value = changed_value
        except (ConfigurationError, ValueError) as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)
