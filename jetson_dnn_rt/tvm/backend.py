# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""TVM as a back end of the robot's package; see ``BACKENDS`` of `jetson_dnn_rt.plugins`."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import TYPE_CHECKING

from jetson_dnn_rt.backends.base import BackendInfo
from jetson_dnn_rt.models.graph.mixed_precision import read_colours
from jetson_dnn_rt.tvm.compile import find_linker
from jetson_dnn_rt.tvm.target import (
    TUNING_PACKAGES,
    TVM_FFI_VERSION,
    TVM_FIX,
    TVM_VERSION,
    find_cuda_arch,
)

if TYPE_CHECKING:
    from jetson_dnn_rt.models.model import Model
    from jetson_dnn_rt.tvm.library import TvmVariant
    from jetson_dnn_rt.variants.library.library import Library
    from jetson_dnn_rt.variants.running.engines import TuningOptions
    from jetson_dnn_rt.variants.spec import VariantSpec


def inspect(name: str) -> BackendInfo:
    """Look for the supported TVM release, with the one runtime that works with it."""
    reason = ""
    try:
        version = str(importlib.import_module("tvm").__version__)
        runtime = str(importlib.import_module("tvm_ffi").__version__)
    except Exception as error:  # a broken installation raises OSError, AttributeError and others
        if os.path.expanduser("~") == "~":  # TVM looks for its cache while it is imported
            reason, fix = "TVM needs a home folder, and this user has none", "set HOME to a folder"
            return BackendInfo(name, "", False, (), reason, fix)
        reason = f"cannot be imported: {error}"
    else:
        if _release_of(version) != _release_of(TVM_VERSION):
            reason = f"TVM {version} is installed, its interfaces change with every release"
        elif _release_of(runtime) != _release_of(TVM_FFI_VERSION):
            reason = f"apache-tvm-ffi {runtime} is installed, with which TVM {version} crashes"
    if reason:
        return BackendInfo(name, "", False, (), reason, TVM_FIX)
    lacks = []
    missing = [name for name in TUNING_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        wheels = " ".join(TUNING_PACKAGES[name] for name in missing)
        lacks.append(f"cannot tune: pip install {wheels}")
    if not find_linker():
        lacks.append("compiles at every start, as nothing links: sudo apt install g++")
    return BackendInfo(name, version, True, ("fp32", "fp16"), "; ".join(lacks), "")


def _release_of(version: str) -> list[str]:
    return version.split(".")[:3]


def find_device() -> str:
    """``cuda`` where TVM can use a CUDA device, else ``cpu``."""
    return "cuda" if inspect("tvm").available and find_cuda_arch() else "cpu"


def describe_options(precision: str, amp_lists: str) -> str:
    """Options that a measurement depends on besides the variant's name: where FP16 is used."""
    return read_colours(amp_lists).text if precision == "fp16" else ""


def open_variant(
    model: Model, spec: VariantSpec, *, threads: int, library: Library, tuning: TuningOptions
) -> TvmVariant:
    """Open a model's TVM variant; raises what `TvmVariant` raises."""
    from jetson_dnn_rt.tvm.library import TvmVariant

    return TvmVariant(model, spec, threads=threads, library=library, tuning=tuning)
