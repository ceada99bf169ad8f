"""A task's model and its variants, loaded as its configuration says."""

from __future__ import annotations

from pathlib import Path

from jetson_dnn_rt.config.task import NO_CACHE, TaskConfig
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.running.engines import TuningOptions


def open_library(folder: str) -> Library | None:
    """Open the library that `engine_cache` names; None where nothing is kept.

    Raises
    ------
    ConfigurationError
        When it cannot be used.
    """
    if folder == NO_CACHE:
        return None
    return Library(Path(folder) if folder else None)


def tuning_options(config: TaskConfig, *, tunes: bool) -> TuningOptions:
    """How variants with tuned kernels are built; `tunes` as `TuningOptions` has it."""
    rpc = config.tvm_rpc if tunes else ""
    return TuningOptions(config.tvm_trials, config.tvm_minutes, rpc, config.amp_lists, tunes)
