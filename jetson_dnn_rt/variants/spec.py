"""Names of variants: ``full@torch-fp32``, ``full@openvino-bf16``, ``tucker-0.50@torch-fp32``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jetson_dnn_rt.backends.registry import BACKENDS, PRECISIONS
from jetson_dnn_rt.errors import ConfigurationError

_DECOMPOSITION = re.compile(r"full|tucker-(0\.\d{2}|1\.00)")


@dataclass(frozen=True)
class VariantSpec:
    """Decomposition x back end x precision.

    Attributes
    ----------
    decomposition : str
        ``full``, or ``tucker-R`` with the ratio R of two decimals.
    backend, precision : str
        As in `jetson_dnn_rt.backends.registry`.

    Raises
    ------
    ConfigurationError
        When a part is unknown.
    """

    decomposition: str
    backend: str
    precision: str = "fp32"

    def __post_init__(self) -> None:
        name = f"variant {self.decomposition}@{self.backend}-{self.precision}"
        if not _DECOMPOSITION.fullmatch(self.decomposition):
            raise ConfigurationError(
                f"{name}: decomposition must be 'full' or 'tucker-R' with R as 0.50: "
                f"{self.decomposition!r}"
            )
        if self.backend not in BACKENDS:
            raise ConfigurationError(f"{name}: back end must be one of {', '.join(BACKENDS)}")
        if self.precision not in PRECISIONS:
            raise ConfigurationError(f"{name}: precision must be one of {', '.join(PRECISIONS)}")

    @staticmethod
    def parse(text: str) -> VariantSpec:
        """Read a name; without a precision it is fp32.

        Raises
        ------
        ConfigurationError
            When the text is no name of a variant.
        """
        decomposition, at, rest = text.partition("@")
        if not at or not rest:
            raise ConfigurationError(
                f"variant {text!r} must look like full@openvino-fp32: DECOMPOSITION@BACKEND"
                "[-PRECISION]"
            )
        backend, dash, precision = rest.partition("-")
        return VariantSpec(decomposition, backend, precision if dash else "fp32")

    def __str__(self) -> str:
        if self.backend == "null":
            return f"{self.decomposition}@null"
        return f"{self.decomposition}@{self.backend}-{self.precision}"
