# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Names of variants: ``full@torch-fp32``, ``full@openvino-bf16``, ``tucker-0.50@torch-fp32``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from jetson_dnn_rt.backends.registry import BACKENDS, PRECISIONS
from jetson_dnn_rt.config.suggestions import suggest
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError, blaming

METHODS = ("tucker", "svd")
RULES = ("macs", "ratio", "energy", "evbmf")
FULL = "full"

LIST = "docs/variants.md lists the names"

_DECOMPOSITION = re.compile(
    rf"({'|'.join(METHODS)})-(?:({'|'.join(RULES[1:])})-)?(0\.\d{{2,}}|1\.00)"
)
_LEAST_VALUE = 1e-6  # names stay short enough for a folder of the library


@dataclass(frozen=True)
class DecompositionSpec:
    """How a network is decomposed; raises `ConfigurationError` when a part is out of range.

    ``tucker`` is for convolutions larger than 1x1 (and linear layers by SVD), ``svd`` for all
    convolutions and linear layers as products of two. The ranks follow from `rule`: ``macs``, the
    share of the network's multiply-accumulates that is kept; ``ratio`` of each rank; ``energy``
    kept of each mode; ``evbmf`` ranks, weakened by the value.
    """

    method: str
    rule: str
    value: float  # in (0, 1], 1e-6 at least

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ConfigurationError(
                f"decomposition method must be one of {', '.join(METHODS)}: {self.method!r}"
            )
        if self.rule not in RULES:
            raise ConfigurationError(f"ranks must be one of {', '.join(RULES)}: {self.rule!r}")
        if not _LEAST_VALUE <= self.value <= 1.0:
            raise ConfigurationError(
                f"{self.rule} must be in (0, 1], {_LEAST_VALUE:f} at least: {self.value}"
            )

    @staticmethod
    def parse(text: str) -> DecompositionSpec:
        """Read ``tucker-0.50`` (of the multiply-accumulates) or ``tucker-energy-0.955``."""
        found = _DECOMPOSITION.fullmatch(text)
        if not found:
            raise ConfigurationError(
                "decomposition must be tucker-R or svd-R, R the share of multiply-accumulates "
                "kept, as 0.50 or 0.485, or tucker-RULE-R with RULE one of "
                f"{', '.join(RULES[1:])}: {text!r}"
            )
        return DecompositionSpec(found[1], found[2] or "macs", float(found[3]))

    @staticmethod
    def parse_ranks(method: str, ranks: str) -> DecompositionSpec:
        """Read the command line's form, ``tucker`` and ``macs:0.5``."""
        rule, colon, value = ranks.partition(":")
        try:
            number = float(value)
        except ValueError:
            colon = ""
        if not colon:
            raise ConfigurationError(
                f"ranks {ranks!r} must look like macs:0.5, RULE one of {', '.join(RULES)}"
            )
        return DecompositionSpec(method, rule, number)

    def __str__(self) -> str:
        rule = "" if self.rule == "macs" else f"{self.rule}-"
        return f"{self.method}-{rule}{self.digits}"

    @property
    def digits(self) -> str:
        """The value as names have it: all its decimals, two at least."""
        return f"{Decimal(repr(self.value)):f}".ljust(len("0.50"), "0")


@dataclass(frozen=True)
class VariantSpec:
    """Decomposition x back end x precision; raises `ConfigurationError` for an unknown one."""

    decomposition: str  # "full", or as `DecompositionSpec` writes itself
    backend: str
    precision: str = "fp32"

    def __post_init__(self) -> None:
        name = f"variant {self.decomposition}@{self.backend}-{self.precision}"
        if self.decomposition != FULL:
            try:
                parsed = DecompositionSpec.parse(self.decomposition)
            except ConfigurationError as error:
                raise ConfigurationError(f"{name}: {error}; or {FULL}") from error
            object.__setattr__(self, "decomposition", str(parsed))
        for what, given, known in (
            ("back end", self.backend, BACKENDS),
            ("precision", self.precision, PRECISIONS),
        ):
            if given not in known:
                raise ConfigurationError(
                    f"{name}: {what} must be one of {', '.join(known)}{suggest(given, known)} "
                    f"({LIST})"
                )

    @property
    def is_full(self) -> bool:
        """Whether the network's layers are those of the model."""
        return self.decomposition == FULL

    @property
    def is_quantized(self) -> bool:
        """Whether its network is another one, with quantized values, than that in fp32."""
        return self.precision == "int8"

    @property
    def network(self) -> str:
        """Name of its form of the network: the decomposition, of a quantized one the variant."""
        return str(self) if self.is_quantized else self.decomposition

    @staticmethod
    def parse(text: str) -> VariantSpec:
        """Read a name; without a precision it is fp32."""
        decomposition, at, rest = text.partition("@")
        if not at or not rest:
            raise ConfigurationError(
                f"variant {text!r} must look like full@openvino-fp32: DECOMPOSITION@BACKEND"
                f"[-PRECISION]{_complete(text)} ({LIST})"
            )
        backend, dash, precision = rest.partition("-")
        return VariantSpec(decomposition, backend, precision if dash else "fp32")

    def __str__(self) -> str:
        if self.backend == "null":
            return f"{self.decomposition}@null"
        return f"{self.decomposition}@{self.backend}-{self.precision}"


def parse_variants(task: TaskConfig) -> tuple[VariantSpec, ...]:
    """Read the names in `variants` of a task; ConfigurationError for one there or in `variant`."""
    with blaming("variant"):
        if task.variant:
            VariantSpec.parse(task.variant)
    with blaming("variants"):
        return tuple(map(VariantSpec.parse, task.variants))


def _complete(part: str) -> str:
    """What a part of a name was probably meant to be, as the end of a sentence."""
    backend, _, precision = part.partition("-")
    if part in PRECISIONS:
        whole = f"{FULL}@{'torch' if part == 'fp16' else 'openvino'}-{part}"
    elif backend in BACKENDS:
        whole = f"{FULL}@{backend}-{precision or 'fp32'}"
    elif part == FULL or _DECOMPOSITION.fullmatch(part):
        whole = f"{part}@openvino-fp32"
    else:
        return ""
    return f"; did you mean {whole}?"
