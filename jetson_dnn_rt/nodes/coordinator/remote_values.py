# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Values from other processes, checked before anything is computed with them.

On an open network anybody can publish NaN on a task's topics, answer in its place or send its
parameter events. A value is used when it has the right type, is finite and in range; otherwise it
is dropped and counted in `FAULTS`. Parameters of other nodes are checked against the same
declaration that those nodes use, so that an integer is accepted for a double here as it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rclpy.parameter import parameter_value_to_python

from jetson_dnn_rt.config.declaration import Item, describe
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.variants.spec import VariantSpec

if TYPE_CHECKING:
    from rcl_interfaces.msg import ParameterValue

MAX_COUNT = 2**53
"""Counts come as doubles; above this a double cannot tell one from the next."""

MAX_TEXT = 500
"""Characters of a text that are kept: reasons go into logs and diagnostics."""


@cache
def _task_items() -> dict[str, Item]:
    return {item.name: item for item in describe(TaskConfig)}


@cache
def lag_limits_ms() -> tuple[float, float]:
    """A frame's LAG in ms: from the longest time-out of a stage to the longest deadline."""
    items = _task_items()
    timeout, deadline = items["stage_timeout_ms"].limits, items["deadline_ms"].limits
    assert timeout is not None
    assert deadline is not None
    return -timeout[1], deadline[1]


def read_number(place: str, value: object, limits: tuple[float, float]) -> float | None:
    """A number from another process within finite limits, or None when it is dropped.

    `place` is counted: ``topic /detector/debug/lag_ms``.
    """
    low, high = limits
    # NaN is in no range.
    if type(value) in (int, float) and low <= value <= high:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    FAULTS.note_dropped(place, f"{value!r:.100} is not a number in [{low:g}, {high:g}]")
    return None


def read_task_parameter(place: str, name: str, value: ParameterValue) -> Any:
    """A parameter of a task node in another process, in its declared type; None when dropped.

    A variant comes with its full name, or empty where none is set; lists come as tuples.
    """
    try:
        read = _task_items()[name].check(parameter_value_to_python(value))
        if name == "variant" and read:
            return str(VariantSpec.parse(read))
        if name == "variants":
            return tuple(str(VariantSpec.parse(variant)) for variant in read)
    except (ConfigurationError, RuntimeError) as error:
        FAULTS.note_dropped(place, f"{name}: {error}")
        return None
    return read


def check_length(place: str, values: Sequence[Any], length: int) -> bool:
    """Whether an answer has as many values as were asked for; otherwise it is dropped."""
    if len(values) == length:
        return True
    FAULTS.note_dropped(place, f"{len(values)} values instead of {length}")
    return False
