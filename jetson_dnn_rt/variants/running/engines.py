"""What takes minutes to make: out of the library, or built and put there.

TensorRT engines here; tuned kernels of TVM in `jetson_dnn_rt.tvm.library`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import TENSORRT, TVM, create_runner, inspect_backend
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import BackendUnavailableError, NotBuiltError
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.measuring.machine import describe_device, device_of
from jetson_dnn_rt.variants.spec import FULL, VariantSpec

if TYPE_CHECKING:
    from jetson_dnn_rt.tvm.task_tuning import TvmTuner

logger = logging.getLogger(__name__)

_ENGINE, _TIMING = "engine.plan", "timing.cache"
_NOTHING = "0" * 64


# One build at a time: TensorRT chooses kernels by their times on the GPU.
_building = threading.Lock()


def make_runner_factory(
    model: Model,
    spec: VariantSpec,
    *,
    threads: int,
    clock: Clock | None = None,
    library: Library | None = None,
    build: bool = True,
    tuner: TvmTuner | None = None,
) -> Callable[[Part], Runner]:
    """Say how the parts of a variant are made ready.

    Parameters
    ----------
    model : Model
        The network that the parts belong to.
    spec : VariantSpec
        Back end and precision.
    threads, clock : int, Clock
        As in `create_runner`.
    library : Library, optional
        Where engines and tuned kernels are kept; without it engines are built every time, and TVM
        cannot be had.
    build : bool
        Build engines, and tune and compile kernels, that are not there; else `NotBuiltError` is
        raised for them.
    tuner : TvmTuner, optional
        How kernels are tuned; with its defaults, by default.

    Returns
    -------
    callable
        From a `Part` to a `Runner`; raises what `create_runner` raises.
    """

    def make_tvm(part: Part, library: Library) -> Runner:
        from jetson_dnn_rt.tvm.library import TvmVariant
        from jetson_dnn_rt.tvm.task_tuning import TvmTuner

        how = tuner or TvmTuner()
        lists = how.options.amp_lists
        variant = TvmVariant(model, spec, threads=threads, library=library, amp_lists=lists)
        return variant.make(part, how if build else None)

    def make(part: Part) -> Runner:
        if spec.backend in TENSORRT and library is not None:
            return _make_tensorrt(model, spec, part, library, build)
        if spec.backend == TVM and library is not None:
            return make_tvm(part, library)
        return create_runner(part, spec.backend, spec.precision, threads=threads, clock=clock)

    return make


def _make_tensorrt(
    model: Model, spec: VariantSpec, part: Part, library: Library, build: bool
) -> Runner:
    info = inspect_backend(spec.backend)
    if not info.available:
        raise BackendUnavailableError(f"back end {spec.backend}: {info.reason}; {info.mend}")
    from jetson_dnn_rt.backends.tensorrt.build import BuildOptions, build_engine
    from jetson_dnn_rt.backends.tensorrt.runner import EngineError, TensorRtRunner

    def key_of(model_hash: str, graph_hash: str, options: str, **of_part: Any) -> EntryKey:
        return EntryKey(
            model_hash,
            graph_hash,
            spec.decomposition if of_part else FULL,
            "artefact",
            spec.backend,
            info.version,
            describe_device(device_of(spec.backend)),
            options=options,
            **of_part,
        )

    options = BuildOptions(dla_core=TENSORRT[spec.backend])
    key = key_of(
        model.model_hash,
        part.graph_hash,
        f"workspace_mib={options.workspace_mib}",
        precision=spec.precision,
        shapes=tuple(part.input_shapes),
    )
    entry = library.load(key)
    if entry is not None and _ENGINE in entry.files:
        try:
            return TensorRtRunner(
                part, spec.precision, engine=entry.files[_ENGINE], options=options
            )
        except EngineError as error:
            logger.warning("library entry %s: %s; it is built anew", entry.path, error)
    if not build:
        raise NotBuiltError(
            f"the engine of {part.name} for {spec} is not in the library: run jetson-dnn-rt build"
        )
    with _building:
        # Kernels that were timed for one network need not be for the next: all share it.
        timing_key = key_of(_NOTHING, _NOTHING, "timing cache")
        known = library.load(timing_key)
        cache = known.files.get(_TIMING, b"") if known is not None else b""
        built = build_engine(part, spec.precision, replace(options, timing_cache=cache))
        facts = {"build_ms": round(built.build_ms, 1), "engine_bytes": len(built.engine)}
        library.store(key, {_ENGINE: built.engine}, facts, model=model.source)
        if built.timing_cache != cache:
            library.store(timing_key, {_TIMING: built.timing_cache}, {}, model="TensorRT")
    return TensorRtRunner(part, spec.precision, engine=built.engine, options=options)
