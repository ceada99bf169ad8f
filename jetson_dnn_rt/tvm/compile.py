# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Compiles kernels with their schedules into executable code."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.tvm.database import TuningDatabase
from jetson_dnn_rt.tvm.exponential import vectorise_exp
from jetson_dnn_rt.tvm.lowering import run_passes
from jetson_dnn_rt.tvm.records import DatabaseError, check_scheduled
from jetson_dnn_rt.tvm.target import TvmTarget

if TYPE_CHECKING:
    import tvm
    from tvm import relax

_PASSES = """
RewriteDataflowReshape ToNonDataflow RemovePurityChecking CallTIRRewrite StaticPlanBlockMemory
LowerAllocTensor KillAfterLastUse LowerRuntimeBuiltin ComputePrimValue VMShapeLower
AttachGlobalSymbol
"""
"""Passes that lower to kernel calls and plan the memory between them."""


def schedule(
    module: tvm.IRModule, target: TvmTarget, database: TuningDatabase | None
) -> tvm.IRModule:
    """Apply the best schedule to every kernel of a lowered network.

    Kernels that the database lacks stay as they are, and are slow. ``main`` still calls kernels by
    name; weights are in the layout that schedules require. Raises `DatabaseError`, which names the
    kernel, when a schedule adds a call or an import to it; `ModelError` when TVM cannot apply a
    schedule.
    """
    from tvm.relax import transform

    try:
        with target.to_tvm():
            if database is not None:
                lowered = module
                with database.records:
                    module = transform.MetaScheduleApplyDatabase(enable_warning=False)(module)
                check_scheduled(lowered, module)
            return run_passes(module, "SplitLayoutRewritePreproc FoldConstant DeadCodeElimination")
    except DatabaseError:
        raise
    except Exception as error:  # TVM's errors have no class in common
        raise ModelError(f"TVM cannot apply its schedules: {error}") from error


def compile_module(module: tvm.IRModule, target: TvmTarget) -> relax.VMExecutable:
    """Compile a scheduled network; raises `ModelError` when TVM cannot.

    Memory between kernels is planned here: a run takes it from a persistent pool.
    """
    from tvm import relax

    described = target.to_tvm()
    vectorise_exp()
    try:
        with described:
            if target.kind == "cuda":
                module = _schedule_rest(module)
            module = run_passes(module, _PASSES)
            return relax.build(module, target=described, relax_pipeline=None)
    except Exception as error:  # TVM's errors have no class in common
        raise ModelError(f"TVM cannot compile for {target.text}: {error}") from error


def _schedule_rest(module: tvm.IRModule) -> tvm.IRModule:
    """Bind kernels without a schedule to threads: on a GPU they would not run otherwise."""
    from tvm.s_tir import dlight

    names = ("Matmul", "GEMV", "Reduction", "GeneralReduction", "Fallback")
    return dlight.ApplyDefaultSchedule(*(getattr(dlight.gpu, name)() for name in names))(module)


def find_linker() -> str:
    """The C++ compiler that links shared libraries here; empty where there is none."""
    return next((found for name in ("g++", "clang++") if (found := shutil.which(name))), "")


def export_library(executable: relax.VMExecutable, path: Path) -> None:
    """Link a shared library with the weights in it, for `load_library`, with `find_linker`."""
    executable.export_library(str(path), cc=find_linker())


def load_library(path: Path) -> relax.VMExecutable:
    """Load the output of `export_library`. Its code runs: pass only checked library files."""
    import tvm

    try:
        return tvm.runtime.load_module(str(path))
    except Exception as error:  # TVM's errors have no class in common
        raise ModelError(f"{path} cannot be loaded by TVM: {error}") from error
