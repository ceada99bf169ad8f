# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Measurements in the library, found by what was measured."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from jetson_dnn_rt.backends.registry import PLUG_INS, load_backend, require_backend
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.files import import_package
from jetson_dnn_rt.safety.records import read_record
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.measuring.agreement import Agreement
from jetson_dnn_rt.variants.measuring.machine import describe_device, device_of
from jetson_dnn_rt.variants.measuring.measurement import Measurement
from jetson_dnn_rt.variants.network import Network
from jetson_dnn_rt.variants.quantized import hash_quantized, load_quantized
from jetson_dnn_rt.variants.spec import FULL, DecompositionSpec, VariantSpec

if TYPE_CHECKING:
    from torch import fx

logger = logging.getLogger(__name__)


def measurement_key(
    model: Model,
    spec: VariantSpec,
    graph_hash: str,
    *,
    threads: int,
    stages: int | str,
    amp_lists: str = "",
) -> EntryKey:
    """Key of what was measured of a variant on this machine as it is.

    `graph_hash` is that of its whole network (`hash_network`), `threads` and `stages` are as a
    task has them, `amp_lists` as `TuningOptions` has it. Raises
    `BackendUnavailableError` when the back end is missing or lacks the precision.
    """
    version = require_backend(spec.backend, spec.precision).version
    extra = ""
    if spec.backend in PLUG_INS:
        extra = load_backend(spec.backend).describe_options(spec.precision, amp_lists)
    return EntryKey(
        model.model_hash,
        graph_hash,
        spec.decomposition,
        "measurement",
        spec.backend,
        version,
        describe_device(device_of(spec.backend)),
        spec.precision,
        (model.input_shape,),
        f"threads={threads} stages={stages} read={model.reading}" + (f" {extra}" if extra else ""),
    )


def load_graph(model: Model, decomposition: str, library: Library | None) -> fx.GraphModule | None:
    """A model's network, full or decomposed; None where the library does not have it.

    Raises `ModelError` when the network has no static graph, `BackendUnavailableError` without
    torch, which networks are cut and decomposed with.
    """
    if decomposition == FULL:
        return Network(model).graph()
    if library is None:
        return None
    import_package("torch", f"the decomposed network {decomposition} of {model.source}")
    from jetson_dnn_rt.variants.decomposition import load_reduced

    return load_reduced(model, DecompositionSpec.parse(decomposition), library)


def hash_network(model: Model, decomposition: str, library: Library | None) -> str | None:
    """SHA-256 of a model's network, full or decomposed; None where the library does not have it.

    Raises `ModelError` when the network has no static graph to be decomposed.
    """
    if decomposition == FULL:
        return model.graph_hash
    graph = load_graph(model, decomposition, library)
    if graph is None:
        return None
    network = Network(model)
    network.add_decomposed(decomposition, graph)
    (whole,) = network.pieces(decomposition, 1)
    return whole.part.graph_hash


def hash_variant(
    model: Model, spec: VariantSpec, library: Library | None, *, stages: int | str
) -> str | None:
    """SHA-256 of a variant's network; None where the library does not have it.

    `stages` are as a task has them. Raises what `hash_network` does, and
    `BackendUnavailableError` when the back end of a quantized one is missing.
    """
    if not spec.is_quantized:
        return hash_network(model, spec.decomposition, library)
    entry = load_quantized(model, spec, library, staged=stages != 1)
    return None if entry is None else hash_quantized(entry)


def load_measurement(
    library: Library,
    model: Model,
    spec: VariantSpec,
    *,
    threads: int,
    stages: int | str,
    amp_lists: str = "",
) -> Measurement | None:
    """Measurement of a variant on this machine; None without one, or if it cannot run here."""
    key = _find_key(library, model, spec, threads=threads, stages=stages, amp_lists=amp_lists)
    return None if key is None else read_measurement(library, key)


def _find_key(
    library: Library,
    model: Model,
    spec: VariantSpec,
    *,
    threads: int,
    stages: int | str,
    amp_lists: str,
) -> EntryKey | None:
    """Key of a variant's measurement; None without its network, or if it cannot run here."""
    try:
        graph_hash = hash_variant(model, spec, library, stages=stages)
        if graph_hash is None:
            return None
        return measurement_key(
            model, spec, graph_hash, threads=threads, stages=stages, amp_lists=amp_lists
        )
    except (BackendUnavailableError, ModelError):
        return None


READING_FACT, AGREEMENT_FACT = "reading", "compared"
"""Facts of a decomposed network in the library: `Model.reading` and the `Agreement` under it."""


def find_agreement(
    library: Library,
    model: Model,
    spec: VariantSpec,
    measurement: Measurement | None,
    *,
    threads: int,
    stages: int | str,
    amp_lists: str = "",
    frames: str = "",
) -> Agreement | None:
    """Agreement of a variant: as measured, else as its network in fp32 was compared when made.

    `measurement` is what `load_measurement` gives under the same conditions. Without one the
    newest is taken that differs in threads and stages alone, which change no result beyond
    rounding, and was made on `frames` (empty = any). None where nothing was compared, or with
    another head or preprocessing.
    """
    if measurement is not None:
        return measurement.agreement
    key = _find_key(library, model, spec, threads=threads, stages=stages, amp_lists=amp_lists)
    others = [] if key is None else _list_under_other_conditions(library, key)
    compared = [
        other
        for other in others
        if other.agreement is not None and (not frames or other.frames == frames)
    ]
    if compared:
        return max(compared, key=lambda other: datetime.fromisoformat(other.date)).agreement
    return _find_compared(library, model, spec)


def _list_under_other_conditions(library: Library, key: EntryKey) -> list[Measurement]:
    """Measurements of the same artefact, read alike, with other threads or stages."""
    return [
        found
        for other in library.list_alike(key, {"options"})
        if _drop_conditions(other.options) == _drop_conditions(key.options)
        and (found := read_measurement(library, other)) is not None
    ]


def _drop_conditions(options: str) -> list[str]:
    """Options of a `measurement_key` without threads and stages, its first two words."""
    return options.split(" ")[2:]


def _find_compared(library: Library, model: Model, spec: VariantSpec) -> Agreement | None:
    """Agreement of a decomposed network in fp32 as it was compared when it was made."""
    if spec.is_full or spec.precision != "fp32":
        return None
    from jetson_dnn_rt.variants.decomposition import weights_key

    entry = library.load(weights_key(model, DecompositionSpec.parse(spec.decomposition)))
    if entry is None or entry.facts.get(READING_FACT) != model.reading:
        return None
    try:
        return read_record(Agreement, entry.facts.get(AGREEMENT_FACT), AGREEMENT_FACT)
    except ValueError as error:
        logger.warning("library entry %s: %s; run jetson-dnn-rt build", entry.path, error)
        return None


def read_measurement(library: Library, key: EntryKey) -> Measurement | None:
    """Read the measurement of a key; None for one that cannot be read, which is logged."""
    entry = library.load(key)
    if entry is None:
        return None
    try:
        return Measurement.from_json(entry.facts)
    except ValueError as error:
        logger.warning("library entry %s: %s; it is measured again", entry.path, error)
        return None


def store_measurement(
    library: Library, key: EntryKey, measurement: Measurement, model: Model
) -> None:
    """Store a measurement, replacing an older one."""
    library.store(key, {}, measurement.to_json(), model=model.source)
