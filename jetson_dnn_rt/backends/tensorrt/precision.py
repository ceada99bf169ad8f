# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Precisions in which the layers of an engine really run, as its inspector tells them.

What was asked for need not be what was built: up to TensorRT 10 FP16 and INT8 are permissions,
from 11 on there are no such flags and the types in the network decide.

Layers that multiply count: convolutions and products of matrices. The inspector's JSON is in
NVIDIA's documentation (Inference Library, Engine Inspector); the names of types and layers are
those that its TensorRT Engine Explorer reads (``trex/activations.py`` and ``trex/layer.py`` in
NVIDIA/TensorRT up to 10): "Channel major FP16 format where channel % 8 == 0" of a
``CaskConvolution``, "Half" of a ``gemm``.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jetson_dnn_rt.errors import ModelError

logger = logging.getLogger(__name__)

# From wide to narrow, as the inspector writes them.
_TYPES = {
    "fp32": r"fp32|float",
    "bf16": r"bf16|bfloat16",
    "fp16": r"fp16|half",
    "fp8": r"fp8",
    "int8": r"int8",
    "fp4": r"fp4",
    "int4": r"int4",
}
_MULTIPLIES = re.compile(r"conv(?!er)|gemm|mat(rix)?_?mul|matrixmultiply|fullyconnected|mha", re.I)
# Subgraphs compiled as one, on the GPU or the DLA, and plug-ins.
_OPAQUE = re.compile(r"myelin|foreignnode|dla|plugin", re.I)


@dataclass(frozen=True)
class LayerPrecisions:
    """Layers of an engine that multiply, by the precision in which they do."""

    counts: Mapping[str, int] = field(default_factory=dict)  # by ``fp32``, ``fp16``, ``int8``, ...
    opaque: int = 0  # layers, or subgraphs, whose precision the engine does not tell
    unknown: str = ""  # why the engine tells nothing at all

    @property
    def total(self) -> int:
        """Layers that multiply and tell their precision."""
        return sum(self.counts.values())

    def __str__(self) -> str:
        if self.unknown:
            return f"unknown: {self.unknown}"
        parts = [f"{count} in {name}" for name, count in sorted(self.counts.items())]
        if self.opaque:
            parts.append(f"{self.opaque} that do not tell")
        return ", ".join(parts) or "none"


def read_precisions(engine: Any, module: Any) -> LayerPrecisions:
    """Ask an engine that was built with ``ProfilingVerbosity.DETAILED``."""
    try:
        inspector = engine.create_engine_inspector()
        text = inspector.get_engine_information(module.LayerInformationFormat.JSON)
        layers = json.loads(text)["Layers"]
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        return LayerPrecisions(unknown=f"its inspector fails: {type(error).__name__}: {error}")
    return count_precisions(layers)


def count_precisions(layers: Iterable[Any]) -> LayerPrecisions:
    """Count the entries of "Layers" in the inspector's JSON."""
    layers = list(layers)
    detailed = [layer for layer in layers if isinstance(layer, dict)]
    if not detailed:
        what = "only names of layers" if layers else "no layers"
        return LayerPrecisions(unknown=f"its inspector gives {what}")
    counts: Counter[str] = Counter()
    opaque = 0
    for layer in detailed:
        kind = f"{layer.get('ParameterType', '')} {layer.get('LayerType', '')}"
        if kind.strip() == "kgen":  # a generated kernel: some of them multiply, and say so here
            kind += f" {layer.get('TacticName', '')}"
        if _OPAQUE.search(kind):
            opaque += 1
        elif _MULTIPLIES.search(kind):
            if precision := _find_precision(layer):
                counts[precision] += 1
            else:
                opaque += 1
    return LayerPrecisions(dict(counts), opaque)


def _find_precision(layer: Mapping[str, Any]) -> str:
    """The wider type of weights and first input; empty where neither tells.

    Narrow weights of wide inputs are widened before they are multiplied.
    """
    inputs = layer.get("Inputs") or [{}]
    weights = layer.get("Weights")
    texts = [
        inputs[0].get("Format/Datatype") or inputs[0].get("Datatype") or "",
        weights.get("Type", "") if isinstance(weights, dict) else "",
    ]
    for name, pattern in _TYPES.items():
        if any(re.search(rf"\b({pattern})\b", text, re.I) for text in texts):
            return name
    return ""


def check_precision(found: LayerPrecisions, wanted: str, name: str) -> None:
    """Raise `ModelError` where an engine is not what its label would say.

    In fp32 nothing may be narrower. In fp16 and int8, where sensitive layers stay wide, at least
    one must be of it. What the engine does not tell is not guessed, but logged.
    """
    total, count = found.total, found.counts.get(wanted, 0)
    wrong = count < total if wanted == "fp32" else total and not count and not found.opaque
    if wrong:
        raise ModelError(
            f"{name}: asked for {wanted}, {count} of {total} layers that multiply run in it "
            f"({found}): the engine is not kept under that name; use the variant of the precision "
            "that it has"
        )
    if found.unknown or (found.opaque and not count):
        logger.warning(
            "%s: whether the engine runs in %s cannot be told; layers that multiply: %s",
            name, wanted, found,
        )  # fmt: skip
