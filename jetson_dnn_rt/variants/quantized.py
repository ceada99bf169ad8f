# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Networks quantized to INT8, in the library.

One for each variant: back ends run different quantizations best, and which layers stay in fp32 is
decided by the agreement measured on the back end. `lab.quantize` makes them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from jetson_dnn_rt.backends.registry import TENSORRT, require_backend
from jetson_dnn_rt.models.sources.files import hash_bytes
from jetson_dnn_rt.platforms.machine import describe_cpu, describe_gpu
from jetson_dnn_rt.safety.records import Count, read_record, within
from jetson_dnn_rt.variants.library.library import Entry, EntryKey, Library

if TYPE_CHECKING:
    from jetson_dnn_rt.models.model import Model
    from jetson_dnn_rt.variants.spec import VariantSpec

MODEL_FILE = "model.onnx"

_WHOLE, _CUTTABLE = "whole", "cuttable"


@dataclass(frozen=True)
class Quantization:
    """How a network was quantized; kept with it."""

    library: str  # that quantized it, and its version
    frames: str  # their source, as in `sample_frames`
    calibrated_on: Count  # frames
    judged_on: Count  # held-out frames
    asked: Annotated[float, within(0, 1)]  # agreement with the same network in fp32
    reached: Annotated[float, within(0, 1)]
    metric: str  # one of `agreement.METRICS`
    products: Count  # convolutions and matrix products of the network
    kept: tuple[str, ...]  # names of those that stay in fp32
    tries: Count  # networks that were quantized and run to find them

    def to_json(self) -> dict[str, Any]:
        """Values that `json` writes."""
        return asdict(self)

    @property
    def share(self) -> str:
        """How much of the network is int8."""
        kept = len(self.kept)
        return f"{self.products - kept} of {self.products} products in int8, {kept} stay in fp32"

    @property
    def refused(self) -> str:
        """Why the network is not to be used, with the figures; empty where it agrees enough."""
        if self.reached >= self.asked:
            return ""
        return (
            f"int8 agrees {self.reached:.3f} {self.metric} with fp32 at best, {self.asked:g} is "
            f"asked for (--agreement), with {len(self.kept)} of {self.products} products in fp32"
        )


def load_quantized(
    model: Model, spec: VariantSpec, library: Library | None, *, staged: bool
) -> Entry | None:
    """Load a variant's quantized network; None where the library has none that fits this machine.

    `staged` prefers one that can be cut into stages. Raises `BackendUnavailableError` when the
    back end is missing or has no int8.
    """
    if library is None:
        return None
    for cuttable in (True, False) if staged else (False,):
        key = quantized_key(model, spec, library, cuttable=cuttable)
        entry = library.load(key) if key is not None else None
        if entry is not None and MODEL_FILE in entry.files:
            return entry
    return None


def read_quantization(entry: Entry) -> Quantization:
    """Read how a stored network was quantized; `ValueError` for other facts."""
    return read_record(Quantization, entry.facts, "quantization")


def hash_quantized(entry: Entry) -> str:
    """SHA-256 of a stored network, hexadecimal."""
    return entry.header.files[MODEL_FILE].sha256


def quantized_key(
    model: Model, spec: VariantSpec, library: Library, *, cuttable: bool
) -> EntryKey | None:
    """Key of a variant's quantized network; None where the decomposed network is not there.

    The version and the device are those it was judged on: another kernel rounds elsewhere. Raises
    `BackendUnavailableError` as `load_quantized` does.
    """
    graph_hash = model.graph_hash
    if not spec.is_full:
        weights = EntryKey(model.model_hash, graph_hash, spec.decomposition, "weights")
        entry = library.load(weights)
        if entry is None:
            return None
        hashes = sorted((name, facts.sha256) for name, facts in entry.header.files.items())
        graph_hash = hash_bytes(repr(hashes).encode())
    return EntryKey(
        model.model_hash,
        graph_hash,
        spec.decomposition,
        "weights",
        spec.backend,
        require_backend(spec.backend, spec.precision).version,
        describe_gpu() if spec.backend in TENSORRT else describe_cpu(),
        spec.precision,
        (model.input_shape,),
        # Ranges and agreement are those of pictures and outputs that are read in one way.
        f"{_CUTTABLE if cuttable else _WHOLE} read={model.reading}",
    )
