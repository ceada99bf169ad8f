"""Parameters of a node, from their declaration (`jetson_dnn_rt.nodes.declaration`).

From it come the ROS descriptor, the check of a new value with a reason, and the value the node
works with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.declaration import Item, Values, describe, parameter

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.parameter import Parameter

__all__ = ["ParameterSet", "describe", "make_descriptor", "parameter", "read_parameters"]


def make_descriptor(item: Item) -> ParameterDescriptor:
    """Describe a parameter for ``ros2 param describe``."""
    descriptor = ParameterDescriptor(description=item.description, read_only=item.read_only)
    if item.choices:
        descriptor.additional_constraints = "one of " + ", ".join(item.choices)
    if item.words:
        descriptor.additional_constraints = "a number, or " + ", ".join(item.words)
    if item.limits is not None and item.kind is int:
        low, high = item.limits
        descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high))]
    elif item.limits is not None:
        low, high = item.limits
        descriptor.floating_point_range = [
            FloatingPointRange(from_value=float(low), to_value=float(high))
        ]
    # `ros2 param set NODE deadline_ms 40` and a YAML file both mean 40.0.
    descriptor.dynamic_typing = item.kind in (float, tuple[float, ...]) or bool(item.words)
    return descriptor


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
                    item.name, item.to_ros(default), make_descriptor(item)
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


def read_parameters(node: Node) -> dict[str, Any]:
    """All parameters of a node, with values as JSON has them."""
    values = {}
    for name, held in node.get_parameters_by_prefix("").items():
        value = held.value
        plain = value is None or isinstance(value, (bool, int, float, str))
        values[name] = value if plain else list(value)
    return values
