"""From scheduled kernels to loops over flat buffers, which is what C has.

The passes are those of TVM's own CPU pipeline (``tvm.s_tir.pipeline``) up to where it would wrap a
kernel into the calling convention of its runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ModelError

if TYPE_CHECKING:
    import tvm


def lower_kernels(module: tvm.IRModule) -> dict[str, Any]:
    """Lower the kernels of a scheduled network.

    Parameters
    ----------
    module : tvm.IRModule
        As `jetson_dnn_rt.tvm.compile.schedule` gives it.

    Returns
    -------
    dict of str to tvm.tirx.PrimFunc
        Kernels by name: serial loops, vectors where the schedule has them, 32-bit indices.

    Raises
    ------
    ModelError
        When TVM cannot lower them.
    """
    import tvm
    from tvm import tirx

    kernels = {
        variable.name_hint: function.with_attr("global_symbol", variable.name_hint)
        for variable, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    target = tvm.target.Target({"kind": "c"})
    passes = [tirx.transform.BindTarget(target.with_host(target)), *_list_passes()]
    try:
        lowered = tvm.transform.Sequential(passes)(tvm.IRModule(kernels))
    except Exception as error:  # TVM's errors have no class in common
        raise ModelError(f"TVM cannot lower the kernels to C: {error}") from error
    return {variable.name_hint: function for variable, function in lowered.functions.items()}


def _list_passes() -> list[tvm.transform.Pass]:
    from tvm import s_tir, tirx

    return [
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.AnnotateIrregularLoop(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.NarrowDataType(32),
        s_tir.transform.LoopPartition(),
        tirx.transform.VectorizeLoop(True),
        tirx.transform.StorageRewrite(),
        s_tir.transform.HoistIfThenElse(),
        tirx.transform.UnrollLoop(),
        s_tir.transform.RenormalizeSplitPattern(),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
        s_tir.transform.RewriteUnsafeSelect(),
        tirx.transform.CommonSubexprElim(),
        tirx.transform.LowerIntrin(),
    ]
