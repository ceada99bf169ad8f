# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Networks that take minutes to prepare: from the library, or built and stored there.

TensorRT's engines are here; those of plug-ins (tuned kernels) have the same interface.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import (
    BUILT_BEFOREHAND,
    KEEPS_COMPILED,
    TENSORRT,
    create_runner,
    load_backend,
    require_backend,
)
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import NotBuiltError
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.measuring.machine import describe_device, device_of
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.running.compiled_network import CompiledNetwork
from jetson_dnn_rt.variants.spec import FULL, VariantSpec

logger = logging.getLogger(__name__)

_ENGINE, _TIMING = "engine.plan", "timing.cache"
_NOTHING = "0" * 64

# One build at a time: TensorRT chooses kernels by their times on the GPU.
_building = threading.Lock()


@dataclass(frozen=True)
class TuningOptions:
    """Options of back ends that tune kernels, for the variants of a task."""

    trials: int = 64  # candidates that are measured of each kernel, >= 1
    minutes: float = 0.0  # after which tuning of one variant ends; 0 = no limit
    rpc: str = ""  # HOST:PORT of a board that measures; empty: this machine does
    amp_lists: str = ""  # file of the operators for FP16; empty = the package's lists
    tunes: bool = True  # else only kernels tuned before are compiled


class PreparedVariant(ABC):
    """A model's variant on a back end of `BUILT_BEFOREHAND`, with its place in the library.

    `runs_here` is false where it is for a board that measures, and not for this machine.
    """

    runs_here: bool = True

    @abstractmethod
    def make(self, part: Part, *, build: bool) -> Runner:
        """Make a part ready: the network, or a run of its stages.

        Raises `NotBuiltError` when it is not in the library and `build` is false,
        `BackendUnavailableError` or `ModelError` when the back end is missing or cannot run the
        part.
        """

    def is_built(self, parts: Sequence[Part]) -> bool:
        """Whether all parts are in the library, tuned as far as was asked for."""
        try:
            for part in parts:
                self.make(part, build=False).close()
        except NotBuiltError:
            return False
        return True

    def prepare(  # noqa: B027  # by default there is nothing to tune
        self, parts: Sequence[Part], progress: Progress = ignore_progress
    ) -> None:
        """Tune what the parts need before they can be made."""


def open_prepared(
    model: Model,
    spec: VariantSpec,
    *,
    threads: int,
    library: Library,
    tuning: TuningOptions = TuningOptions(),
) -> PreparedVariant:
    """Open a variant on a back end of `BUILT_BEFOREHAND`.

    Raises `BackendUnavailableError` when the back end is missing, or a board that measures does
    not answer; `ConfigurationError` when the options cannot be used.
    """
    if spec.backend in TENSORRT:
        return _TensorRtVariant(model, spec, library)
    module = load_backend(spec.backend)
    variant: PreparedVariant = module.open_variant(
        model, spec, threads=threads, library=library, tuning=tuning
    )
    return variant


def make_runner(
    model: Model,
    spec: VariantSpec,
    part: Part,
    *,
    threads: int,
    clock: Clock | None = None,
    library: Library | None = None,
    build: bool = True,
    tuning: TuningOptions = TuningOptions(),
) -> Runner:
    """Make a part of a variant ready; raises what `create_runner` does.

    Parameters
    ----------
    library : Library, optional
        Where engines, tuned kernels and compiled networks are kept; without it engines are built
        every time, and there are no tuned kernels.
    build : bool
        Build what is not there; else `NotBuiltError` is raised for it.
    """
    if library is not None and spec.backend in BUILT_BEFOREHAND:
        variant = open_prepared(model, spec, threads=threads, library=library, tuning=tuning)
        return variant.make(part, build=build)
    compiled = None
    if library is not None and spec.backend in KEEPS_COMPILED:
        compiled = CompiledNetwork(model, spec, part, threads, library)
    return create_runner(
        part, spec.backend, spec.precision, threads=threads, clock=clock, compiled=compiled
    )


class _TensorRtVariant(PreparedVariant):
    def __init__(self, model: Model, spec: VariantSpec, library: Library) -> None:
        self._version = require_backend(spec.backend, spec.precision).version
        self._model, self._spec, self._library = model, spec, library

    def make(self, part: Part, *, build: bool) -> Runner:
        from jetson_dnn_rt.backends.tensorrt.build import BuildOptions, build_engine
        from jetson_dnn_rt.backends.tensorrt.runner import EngineError, TensorRtRunner

        spec, library = self._spec, self._library
        options = BuildOptions(dla_core=TENSORRT[spec.backend])
        key = self._key(
            self._model.model_hash,
            part.graph_hash,
            spec.decomposition,
            f"workspace_mib={options.workspace_mib}",
            precision=spec.precision,
            shapes=tuple(part.input_shapes),
        )
        entry = library.load(key)
        if entry is not None and _ENGINE in entry.files:
            engine = entry.files[_ENGINE]
            try:
                return TensorRtRunner(part, spec.precision, engine=engine, options=options)
            except EngineError as error:
                logger.warning("library entry %s: %s; it is built again", entry.path, error)
        if not build:
            raise NotBuiltError(
                f"the engine of {part.name} for {spec} is not in the library: run jetson-dnn-rt "
                "build"
            )
        with _building:
            # All networks share it: a kernel timed for one need not be timed for the next.
            timing_key = self._key(_NOTHING, _NOTHING, FULL, "timing cache")
            known = library.load(timing_key)
            cache = known.files.get(_TIMING, b"") if known is not None else b""
            built = build_engine(part, spec.precision, replace(options, timing_cache=cache))
            facts = {"build_ms": round(built.build_ms, 1), "engine_bytes": len(built.engine)}
            library.store(key, {_ENGINE: built.engine}, facts, model=self._model.source)
            if built.timing_cache != cache:
                library.store(timing_key, {_TIMING: built.timing_cache}, {}, model="TensorRT")
        return TensorRtRunner(part, spec.precision, engine=built.engine, options=options)

    def _key(
        self, model_hash: str, graph_hash: str, decomposition: str, options: str, **of_part: Any
    ) -> EntryKey:
        backend = self._spec.backend
        return EntryKey(
            model_hash,
            graph_hash,
            decomposition,
            "artefact",
            backend,
            self._version,
            describe_device(device_of(backend)),
            options=options,
            **of_part,
        )
