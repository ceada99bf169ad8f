"""From kernels and their schedules to code that runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.tvm.database import TuningDatabase
from jetson_dnn_rt.tvm.exponential import vectorise_exp
from jetson_dnn_rt.tvm.records import DatabaseError, check_scheduled
from jetson_dnn_rt.tvm.target import TvmTarget

if TYPE_CHECKING:
    import tvm
    from tvm import relax


def schedule(
    module: tvm.IRModule, target: TvmTarget, database: TuningDatabase | None
) -> tvm.IRModule:
    """Give every kernel of a lowered network its best schedule.

    Kernels that the database lacks stay as they are, and are slow. ``main`` still calls kernels by
    name; weights are in the order that schedules want. Raises `DatabaseError`, which names the
    kernel, when a schedule adds a call or an import to it; `ModelError` when TVM cannot apply a
    schedule.
    """
    import tvm
    from tvm.relax import transform

    try:
        with target.to_tvm():
            if database is not None:
                lowered = module
                with database.records:
                    module = transform.MetaScheduleApplyDatabase(enable_warning=False)(module)
                check_scheduled(lowered, module)
            return tvm.transform.Sequential(
                [
                    transform.SplitLayoutRewritePreproc(),
                    transform.FoldConstant(),
                    transform.DeadCodeElimination(),
                ]
            )(module)
    except DatabaseError:
        raise
    except Exception as error:  # TVM's errors have no class in common
        raise ModelError(f"TVM cannot apply its schedules: {error}") from error


def compile_module(module: tvm.IRModule, target: TvmTarget) -> relax.VMExecutable:
    """Compile a scheduled network; raises `ModelError` when TVM cannot.

    Memory between kernels is planned here: a run takes it from a pool that stays.
    """
    import tvm
    from tvm import relax
    from tvm.relax import transform

    passes = [
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        transform.StaticPlanBlockMemory(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]
    if target.kind == "cuda":
        passes.insert(0, _schedule_rest())
    described = target.to_tvm()
    vectorise_exp()
    try:
        with described:
            planned = tvm.transform.Sequential(passes)(module)
            return relax.build(planned, target=described, relax_pipeline=None)
    except Exception as error:  # TVM's errors have no class in common
        raise ModelError(f"TVM cannot compile for {target.text}: {error}") from error


def _schedule_rest() -> tvm.transform.Pass:
    """Bind kernels without a schedule to threads: on a GPU they would not run at all."""
    from tvm.s_tir import dlight

    return dlight.ApplyDefaultSchedule(
        dlight.gpu.Matmul(),
        dlight.gpu.GEMV(),
        dlight.gpu.Reduction(),
        dlight.gpu.GeneralReduction(),
        dlight.gpu.Fallback(),
    )


def find_linker() -> str:
    """The C++ compiler that links shared libraries here; empty where there is none."""
    return next((found for name in ("g++", "clang++") if (found := shutil.which(name))), "")


def export_library(executable: relax.VMExecutable, path: Path) -> None:
    """Write a shared library, weights in it, that `load_library` reads.

    Raises `BackendUnavailableError` when there is no compiler to link with.
    """
    linker = find_linker()
    if not linker:
        raise BackendUnavailableError("no C++ compiler to link with: sudo apt install g++")
    executable.export_library(str(path), cc=linker)


def load_library(path: Path) -> relax.VMExecutable:
    """Read what `export_library` wrote; it is run, so give only checked files of the library."""
    import tvm

    try:
        return tvm.runtime.load_module(str(path))
    except Exception as error:  # TVM's errors have no class in common
        raise ModelError(f"{path} cannot be loaded by TVM: {error}") from error
