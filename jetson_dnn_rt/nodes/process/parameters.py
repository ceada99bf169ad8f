# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""ROS parameters of a node, made from their declaration (`jetson_dnn_rt.config.declaration`).

The declaration gives the ROS descriptor, the check of a new value and the value for the node.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)

from jetson_dnn_rt.config.declaration import Item, Values, describe
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety.faults import FAULTS, describe_error, safe_text

if TYPE_CHECKING:
    from rclpy.node import Node
    from rclpy.parameter import Parameter

LOCKED = (
    "lock_configuration is set, so it keeps the value that the node was started with; fix: change "
    "the configuration and restart the node"
)

SIM_TIME = "use_sim_time"
"""Declared by rclpy on every node: it replaces the clock that stamps are compared with."""

_GATE = "jetson_dnn_rt_parameter_gate"
"""Attribute of a node; a map by node would keep alive what its callbacks refer to."""


def make_descriptor(item: Item) -> ParameterDescriptor:
    """Describe a parameter for ``ros2 param describe``."""
    descriptor = ParameterDescriptor(description=item.description, read_only=item.read_only)
    if item.choices:
        descriptor.additional_constraints = f"one of {item.listed_choices}"
    if item.words:
        descriptor.additional_constraints = "a number, or " + ", ".join(item.words)
    if item.limits is not None and item.kind is int:
        low, high = map(int, item.limits)
        descriptor.integer_range = [IntegerRange(from_value=low, to_value=high)]
    elif item.limits is not None:
        first, last = map(float, item.limits)
        descriptor.floating_point_range = [FloatingPointRange(from_value=first, to_value=last)]
    # `ros2 param set NODE deadline_ms 40` and a YAML file both mean 40.0.
    descriptor.dynamic_typing = item.kind in (float, tuple[float, ...]) or bool(item.words)
    return descriptor


class ParameterSet(Generic[Values]):
    """Declares the parameters of a dataclass on a node and keeps its checked value.

    `declaration` is a frozen dataclass as in `config.declaration`; its ``__post_init__`` raises
    `ConfigurationError` for combinations that cannot be used. `defaults` has this node's defaults
    by field, and the values of fields that are not parameters. `is_fixed` says whether parameters
    that are not dynamic may not change now, `is_busy` whether none may.

    `on_change` is called with the old and the new value, once all parameters of a request have
    been checked. It raises `ConfigurationError` to refuse the new value before it has changed
    anything; after any other error it is called with the two swapped, to undo what it did.

    ConfigurationError: the configuration holds a value that cannot be used.
    """

    def __init__(
        self,
        node: Node,
        declaration: type[Values],
        *,
        defaults: Mapping[str, Any] | None = None,
        is_fixed: Callable[[], bool] = lambda: False,
        is_busy: Callable[[], bool] = lambda: False,
        on_change: Callable[[Values, Values], None] = lambda before, after: None,
    ) -> None:
        self._items = {item.name: item for item in describe(declaration)}
        self._is_fixed, self._is_busy, self.on_change = is_fixed, is_busy, on_change
        declared_fields = {item.field for item in self._items.values()}
        # Fields that are not parameters get their values from the node.
        values = {k: v for k, v in (defaults or {}).items() if k not in declared_fields}
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
        gate_of(node).sets.append(self)

    def check(self, parameters: Sequence[Parameter], locked: bool) -> Values:
        """The value with the given parameters that belong to this set; changes nothing.

        With `locked` only dynamic parameters may change. Raises `ConfigurationError` or
        `ValueError` when one of them, or all together, cannot be used.
        """
        changes: dict[str, Any] = {}
        for changed in parameters:
            item = self._items.get(changed.name)
            if item is None:
                continue
            value = item.check(changed.value)
            if value == getattr(self.value, item.field):
                continue
            if locked and not item.dynamic:
                raise ConfigurationError(f"{item.name} is locked: {LOCKED}")
            if not item.dynamic and self._is_fixed():
                raise ConfigurationError(
                    f"{item.name} is read when the node is configured: clean it up first"
                )
            if self._is_busy():
                raise ConfigurationError(
                    f"{item.name} cannot be set while the node changes its state: set it again "
                    "when it has done so"
                )
            changes[item.field] = value
        return dataclasses.replace(self.value, **changes) if changes else self.value  # type: ignore


class ParameterGate:
    """All parameter sets of a node: a request to set parameters changes all of them or none.

    rclpy asks one callback after the other and applies nothing when one refuses, so a callback
    that has already acted on its part would be left with values that ROS never accepted. Here one
    callback checks everything first, and then applies it. With `locked`, parameters that are not
    dynamic keep the values that the node was started with.
    """

    def __init__(self, node: Node) -> None:
        self.sets: list[ParameterSet[Any]] = []
        self.locked = False
        self._place = f"{node.get_name()}: parameters"
        # Called after callbacks that are added later, and before rclpy's own for `use_sim_time`,
        # which refuses nothing that the parameter's declared type has let through.
        node.add_on_set_parameters_callback(self._on_set)

    def _on_set(self, parameters: list[Parameter]) -> SetParametersResult:
        try:
            if self.locked and any(changed.name == SIM_TIME for changed in parameters):
                raise ConfigurationError(f"{SIM_TIME} is locked: {LOCKED}")
            wanted = [(one, one.value, one.check(parameters, self.locked)) for one in self.sets]
            self._apply([entry for entry in wanted if entry[1] != entry[2]])
        except (ConfigurationError, ValueError) as error:
            return SetParametersResult(successful=False, reason=safe_text(error))
        except Exception as error:  # undone, and the node goes on as it was
            FAULTS.note(self._place, error)
            return SetParametersResult(
                successful=False, reason=f"{describe_error(error)}; nothing was changed"
            )
        return SetParametersResult(successful=True)

    def _apply(self, changes: Sequence[tuple[ParameterSet[Any], Any, Any]]) -> None:
        begun: list[tuple[ParameterSet[Any], Any, Any]] = []
        try:
            for one, before, after in changes:
                begun.append((one, before, after))
                one.on_change(before, after)
        except Exception as error:
            if isinstance(error, ConfigurationError):
                begun.pop()  # a refusal: it has changed nothing
            for one, before, after in reversed(begun):
                try:
                    one.on_change(after, before)
                except Exception as second:
                    FAULTS.note(self._place, second)
            raise
        for one, _, after in changes:
            one.value = after


def gate_of(node: Node) -> ParameterGate:
    """The parameter gate of a node, made at the first call."""
    gate = getattr(node, _GATE, None)
    if gate is None:
        gate = ParameterGate(node)
        setattr(node, _GATE, gate)
    return gate


def read_parameters(node: Node) -> dict[str, Any]:
    """All parameters of a node, with values as JSON types."""
    values = {}
    for name, parameter in node.get_parameters_by_prefix("").items():
        value = parameter.value
        plain = value is None or isinstance(value, (bool, int, float, str))
        values[name] = value if plain else list(value)
    return values
