# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""TIR expressions as C text: of one lane, or of a whole GNU C vector."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jetson_dnn_rt.errors import ModelError

SCALARS = {"float32": "float", "float64": "double", "bool": "uint8_t"}
SCALARS |= {f"{kind}{n}": f"{kind}{n}_t" for kind in ("int", "uint") for n in (8, 16, 32, 64)}
"""C names of the types that kernels compute in."""

_UNARY = {"Not": "!", "BitwiseNot": "~"}
# C99 leaves `>>` of negative numbers to the compiler; gcc and clang fill with the sign, like TVM.
_BINARY = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%", "EQ": "==", "NE": "!=", "LT": "<",
    "LE": "<=", "GT": ">", "GE": ">=", "And": "&&", "Or": "||", "LShift": "<<", "RShift": ">>",
    "BitwiseAnd": "&", "BitwiseOr": "|", "BitwiseXor": "^",
}  # fmt: skip
# Functions of C99's <math.h>.
_WIDE = frozenset((
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh",
    "erf", "exp", "exp2", "expm1", "fabs", "floor", "fma", "fmod", "hypot", "ldexp", "log",
    "log10", "log1p", "log2", "nearbyint", "pow", "round", "rint", "sin", "sinh", "sqrt", "tan",
    "tanh", "trunc",
))  # fmt: skip
_MATH = frozenset(f"{name}f" for name in _WIDE)


def format_number(value: float, scalar: str) -> str:
    """C text of a constant of a type."""
    if isinstance(value, int):
        value = int(value)  # of bool
        if value == -(2**63):
            return "INT64_MIN"
        if value == -(2**31):
            return "INT32_MIN"
        if scalar == "int64" and not -(2**31) < value < 2**31:
            return f"INT64_C({value})"
        if scalar.startswith("uint") and value >= 2**31:
            return f"UINT64_C({value})"
        return str(value)
    single = scalar == "float32"
    if math.isnan(value):
        return "NAN"
    if math.isinf(value) or (single and abs(value) > 3.4028235e38):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = f"{value:.9g}" if single else f"{value:.17g}"
    text = text if set(text) & set(".e") else f"{text}.0"
    return f"{text}f" if single else text


def kind_of(node: Any) -> str:
    """Class name of a node."""
    return type(node).__name__


def split_type(node: Any) -> tuple[str, int]:
    """Scalar type and lanes of an expression: ``float32x8`` is (``float32``, 8)."""
    text = str(node.ty.dtype)
    scalar, _, lanes = text.partition("x")
    return scalar, int(lanes or 1)


@dataclass(frozen=True)
class Lane:
    """One lane of a vector, given by the C expression of its index."""

    number: str


@dataclass(frozen=True)
class Lanes:
    """A run of lanes, as one GNU C vector."""

    first: int
    width: int


Shape = Lane | Lanes | None
"""Lanes that an expression is written for; None: it has one lane."""


class ExpressionPrinter:
    """Writes expressions of a kernel.

    `name_of` returns the C name of a variable or buffer, `vector_type` that of a vector type,
    given scalar type and lanes.
    """

    def __init__(
        self, name_of: Callable[[Any], str], vector_type: Callable[[str, int], str], kernel: str
    ) -> None:
        self._name_of, self._vector_type, self._kernel = name_of, vector_type, kernel

    def fits_vector(self, node: Any) -> bool:
        """Whether an expression can be written with GNU C vectors: no gathers, no calls."""
        lanes = split_type(node)[1]
        if lanes == 1:
            return True
        kind = kind_of(node)
        if kind == "Broadcast":
            return True
        if kind == "TensorLoad":
            (index,) = node.indices
            return is_run(index)
        if split_type(node)[0] != "float32":
            return False
        if kind in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
            return self.fits_vector(node.a) and self.fits_vector(node.b)
        if kind in ("Select", "Call") and (parts := _branches(node)) is not None:
            condition, *values = parts
            return split_type(condition)[1] == 1 and all(map(self.fits_vector, values))
        return kind == "Var"

    def write(self, node: Any, shape: Shape = None) -> str:
        """C text of an expression, in parentheses where they may be needed.

        Raises `ModelError` when it cannot be expressed in C99.
        """
        scalar, lanes = split_type(node)
        if lanes == 1 and shape is not None:
            text = self.write(node)
            return self._splat(text, scalar, shape.width) if isinstance(shape, Lanes) else text
        kind = kind_of(node)
        if kind in _BINARY:
            return f"({self.write(node.a, shape)} {_BINARY[kind]} {self.write(node.b, shape)})"
        if kind in _UNARY:
            return f"({_UNARY[kind]}{self.write(node.a, shape)})"
        if kind in ("IntImm", "FloatImm"):
            text = format_number((int if kind == "IntImm" else float)(node.value), scalar)
            return f"({text})" if text.startswith("-") else text
        if kind in ("Max", "Min"):
            a, b = self.write(node.a, shape), self.write(node.b, shape)
            if isinstance(shape, Lanes):
                vector = self._vector_type("float32", shape.width)
                return f"V_{kind.upper()}({vector}, {a}, {b})"
            return f"{kind.lower()}_{scalar}({unwrap(a)}, {unwrap(b)})"
        writer = getattr(self, f"_write_{kind.lower()}", None)
        if writer is None:
            raise self.refuse(f"the TIR expression {kind}")
        return str(writer(node, shape))

    def address(self, node: Any, shape: Shape, lanes: int = 1) -> str:
        """Index of a load or store of so many lanes.

        The index is a vector, or the buffer's elements are, with consecutive lanes.
        """
        if lanes > 1 and split_type(node)[1] == 1:
            base = f"({self.write(node)} * {lanes})"
            return f"{base} + {shape.number if isinstance(shape, Lane) else _first(shape)}"
        if kind_of(node) == "Ramp":
            base = self.write(node.base)
            if isinstance(shape, Lanes):
                return f"{base} + {shape.first}" if shape.first else base
            if isinstance(shape, Lane):
                stride = "" if _is_one(node.stride) else f" * {self.write(node.stride)}"
                return f"{base} + {shape.number}{stride}"
        return unwrap(self.write(node, shape))

    def refuse(self, what: str) -> ModelError:
        """Error for a construct that C99 lacks."""
        return ModelError(
            f"kernel {self._kernel} has {what}, which export-c does not write as C99: run this "
            "network with another back end"
        )

    def _splat(self, text: str, scalar: str, width: int) -> str:
        return f"(({self._vector_type(scalar, width)}){{{', '.join([text] * width)}}})"

    def _write_var(self, node: Any, shape: Shape) -> str:
        name = self._name_of(node)
        if isinstance(shape, Lane):
            return f"{name}[{shape.number}]"
        if isinstance(shape, Lanes):
            kind = self._vector_type(split_type(node)[0], shape.width)
            return f"(*(const {kind} *)({name} + {shape.first}))"
        return name

    def _write_tensorload(self, node: Any, shape: Shape) -> str:
        (index,) = node.indices
        name = self._name_of(node.source)
        address = self.address(index, shape, split_type(node)[1])
        if isinstance(shape, Lanes):
            kind = self._vector_type(split_type(node)[0], shape.width)
            return f"(*(const {kind} *)({name} + {address}))"
        return f"{name}[{address}]"

    def _write_ramp(self, node: Any, shape: Shape) -> str:
        return f"({self.address(node, shape)})"

    def _write_broadcast(self, node: Any, shape: Shape) -> str:
        text = self.write(node.value)
        if isinstance(shape, Lanes):
            return self._splat(unwrap(text), split_type(node)[0], shape.width)
        return text

    def _write_cast(self, node: Any, shape: Shape) -> str:
        scalar = split_type(node)[0]
        inner = self.write(node.value, shape)
        if scalar == "bool":
            return f"({inner} != 0)"
        if scalar not in SCALARS:
            raise self.refuse(f"the type {scalar}")
        return f"(({SCALARS[scalar]}){inner})"

    def _write_select(self, node: Any, shape: Shape) -> str:
        parts = _branches(node)
        if parts is None:
            raise self.refuse("a choice that is none")
        condition, true, false = parts
        # A vector has one condition for all lanes (`fits_vector`).
        asked = self.write(condition, shape if isinstance(shape, Lane) else None)
        return f"({asked} ? {self.write(true, shape)} : {self.write(false, shape)})"

    def _write_call(self, node: Any, shape: Shape) -> str:
        name = str(node.op.name).rpartition(".")[2]
        if name == "if_then_else":
            return self._write_select(node, shape)
        if name == "likely":
            return self.write(node.args[0], shape)
        arguments = list(node.args)
        if name in ("call_pure_extern", "call_extern"):
            name = str(arguments.pop(0).value)
        elif split_type(node)[0] == "float32" and f"{name}f" in _MATH:
            name = f"{name}f"
        if name not in _MATH and name not in _WIDE:
            raise self.refuse(f"a call of {name}")
        return f"{name}({', '.join(unwrap(self.write(each, shape)) for each in arguments)})"


def _branches(node: Any) -> tuple[Any, Any, Any] | None:
    """Condition and values of a `Select` or an ``if_then_else`` call; None for other nodes."""
    if kind_of(node) == "Select":
        return node.condition, node.true_value, node.false_value
    if str(node.op.name).endswith("if_then_else"):
        condition, true, false = node.args
        return condition, true, false
    return None


def _first(shape: Shape) -> int:
    return shape.first if isinstance(shape, Lanes) else 0


def is_run(index: Any) -> bool:
    """Whether the lanes of a load or store are consecutive."""
    return split_type(index)[1] == 1 or (kind_of(index) == "Ramp" and _is_one(index.stride))


def _is_one(node: Any) -> bool:
    return kind_of(node) == "IntImm" and int(node.value) == 1


def unwrap(text: str) -> str:
    """Text without enclosing parentheses."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    inner = text[1:-1]
    # "(int32_t)x" and "(-1.0f)" stay as they are.
    return inner if " " in inner else text
