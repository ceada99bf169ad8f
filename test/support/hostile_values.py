# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Values that no honest participant sends, from a seed: for tests and for `test/campaigns`."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from typing import Any

BAD_NUMBERS = (math.nan, math.inf, -math.inf, 1e308, -1e308, 1.8e19, -2e10)
"""Doubles that are no LAG in ms, no count and no parameter of a task."""

BAD_TEXTS = ("", "\0", "full@", "tucker-nan@torch-fp32", "../../etc", "%s%n{0}", "ä" * 256)

FLOAT_CLASSES = (
    *BAD_NUMBERS, 0.0, -0.0, -1.0, 5e-324, -5e-324, sys.float_info.min, sys.float_info.epsilon,
    sys.float_info.max, -sys.float_info.max, 2.0**53 + 2, 2.0**63, -(2.0**63),
)  # fmt: skip
"""Every class of doubles: not a number, infinite, zero of both signs, subnormal, the smallest and
the largest, beyond the integers."""

COUNTS = (0, 1, 7, 64)
"""Lengths of sequences."""

_LONG = 1000  # a length from which on texts are as long

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "byte": 8, "octet": 8}


def integers(kind: str) -> tuple[int, ...]:
    """Both ends of an integer type of a message, zero and one: ``uint32``, ``int64``."""
    if kind.startswith("u") or kind in ("byte", "octet", "char"):
        bits = _BITS.get(kind.removeprefix("u"), 8)
        return 0, 1, (1 << bits) - 1, (1 << (bits - 1)) + 1
    bits = _BITS[kind]
    return 0, 1, -1, -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def fill(
    message: Any,
    rng: random.Random,
    numbers: tuple[float, ...] = BAD_NUMBERS,
    counts: tuple[int, ...] = COUNTS,
) -> Any:
    """Fill every field of a message or request, nested ones too, with the worst of its type."""
    for field, kind in message.get_fields_and_field_types().items():
        setattr(message, field, _value(getattr(message, field), kind, rng, numbers, counts))
    return message


def _value(
    present: Any,
    kind: str,
    rng: random.Random,
    numbers: tuple[float, ...],
    counts: tuple[int, ...],
) -> Any:
    if hasattr(present, "get_fields_and_field_types"):
        return fill(present, rng, numbers, counts)
    count = rng.choice(counts)
    base = kind.removeprefix("sequence<").split(",")[0].split("[")[0].rstrip(">").split("<")[0]
    if base in ("float", "double"):
        one: Any = rng.choice([n for n in numbers if base == "double" or not abs(n) > 3e38])
    elif base == "boolean":
        one = rng.random() < 0.5
    elif base.startswith(("string", "wstring")):
        one = rng.choice(BAD_TEXTS)
        if count >= _LONG and kind == base:
            one = "x" * count
    elif base.startswith(("int", "uint")) or base in ("byte", "octet", "char"):
        one = rng.choice(integers(base))
    else:  # a sequence of messages: parameters are filled by `bad_parameters`
        return present
    if base in ("byte", "octet") and kind in ("byte", "octet"):
        return bytes([one])
    if kind == base or kind.startswith(("string<", "wstring<")):
        return one
    if not kind.startswith("sequence"):
        return [one] * len(present)
    return [bytes([one])] * count if base in ("byte", "octet") else [one] * count


def parameter_values() -> Iterator[Any]:
    """A `ParameterValue` of every type and none, in every class of values, and of no type."""
    from rcl_interfaces.msg import ParameterValue

    yield ParameterValue(type=0)
    for flag in (False, True):
        yield ParameterValue(type=1, bool_value=flag)
    for integer in (-1, -(1 << 63), (1 << 63) - 1):
        yield ParameterValue(type=2, integer_value=integer)
    for number in (*BAD_NUMBERS, -1.0):
        yield ParameterValue(type=3, double_value=number)
    for text in BAD_TEXTS:
        yield ParameterValue(type=4, string_value=text)
    yield ParameterValue(type=5, byte_array_value=[b"\xff"] * 9)
    yield ParameterValue(type=6, bool_array_value=[True] * 9)
    yield ParameterValue(type=7, integer_array_value=[-2, 1 << 62])
    yield ParameterValue(type=8, double_array_value=list(BAD_NUMBERS))
    yield ParameterValue(type=9, string_array_value=list(BAD_TEXTS))
    for kind in (10, 255):
        yield ParameterValue(type=kind, double_value=math.nan)


def huge_parameter_values(count: int) -> Iterator[Any]:
    """Texts and lists of so many characters and items."""
    from rcl_interfaces.msg import ParameterValue

    yield ParameterValue(type=4, string_value="x" * count)
    yield ParameterValue(type=5, byte_array_value=[b"\xff"] * count)
    yield ParameterValue(type=6, bool_array_value=[True] * count)
    yield ParameterValue(type=7, integer_array_value=[-1] * count)
    yield ParameterValue(type=8, double_array_value=[math.nan] * count)
    yield ParameterValue(type=9, string_array_value=["x"] * count)
