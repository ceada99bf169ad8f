# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Lowers a part of a network to TVM: fused kernels, and the order in which they run.

ONNX is read into Relax; batch norms are folded into the convolutions before them; convolutions
become channels-last, where the channels of a pixel are one vector; FP16 is written into the ONNX
graph beforehand (`models.graph.mixed_precision`), so that every back end gets the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.graph.folded_norms import fold_norms
from jetson_dnn_rt.models.graph.mixed_precision import convert_to_fp16
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.tvm.target import TvmTarget

if TYPE_CHECKING:
    import tvm

    from jetson_dnn_rt.models.graph.mixed_precision import Colours

_SIMPLIFY = "FoldBatchnormToConv2D DecomposeOpsForInference CanonicalizeBindings FoldConstant"
_LEGALIZE = "DecomposeOpsForInference LegalizeOps"
_FUSE = "LegalizeOps AnnotateTIROpPattern FoldConstant FuseOps FuseTIR DeadCodeElimination"


def lower(
    part: Part,
    precision: str,
    target: TvmTarget,
    *,
    channels_last: bool = True,
    graph_passes: bool = True,
    colours: Colours | None = None,
) -> tvm.IRModule:
    """Lower a network to the form that is tuned, scheduled and compiled.

    Parameters
    ----------
    precision : str
        ``fp32`` or ``fp16`` (mixed, by colour; inputs and outputs stay float32).
    channels_last : bool
        Else ``NCHW``, TVM's default layout.
    graph_passes : bool
        Else nothing is folded and nothing fused: a kernel for each operator, as it was read.
    colours : Colours, optional
        Operators allowed in FP16; the lists of ``config/amp.yaml`` by default.

    Returns
    -------
    tvm.IRModule
        ``main``, a Relax function that calls kernels, its weights as constants in it; and the
        kernels, TIR functions without a schedule.

    Raises
    ------
    ModelError
        When TVM cannot read the network; names the operator.
    BackendUnavailableError
        When a package is missing.
    """
    from tvm.relax import transform

    data = part.onnx_model()
    if precision == "fp16":
        data = fold_norms(data)
        data = (convert_to_fp16(data, colours) if colours else convert_to_fp16(data)).onnx
    module = _import_onnx(data, part)
    try:
        with target.to_tvm():
            if precision == "fp16":
                module = _sum_in_fp32(module)
            if not graph_passes:
                return run_passes(module, _LEGALIZE)
            module = run_passes(module, _SIMPLIFY)
            if channels_last:
                layouts = {"relax.nn.conv2d": ["NHWC", "HWIO"]}
                module = transform.ConvertLayout(layouts)(_restore_clips(module))
                module = run_passes(module, "Normalize CanonicalizeBindings FoldConstant")
            module = run_passes(module, _FUSE)
            # Constants are marked: a schedule may need them in another layout.
            return transform.AttachAttrLayoutFreeBuffers()(module) if channels_last else module
    except Exception as error:  # TVM's errors have no class in common
        raise ModelError(f"{part.name} cannot be lowered by TVM: {_first_line(error)}") from error


def run_passes(module: tvm.IRModule, names: str) -> tvm.IRModule:
    """Run Relax passes without options, in order."""
    import tvm
    from tvm.relax import transform

    passes = [getattr(transform, name)() for name in names.split()]
    return tvm.transform.Sequential(passes)(module)


def _import_onnx(data: bytes, part: Part) -> tvm.IRModule:
    import onnx
    from tvm.relax.frontend.onnx import from_onnx

    graph = onnx.load_model_from_string(data)
    constants = {tensor.name for tensor in graph.graph.initializer}
    names = [value.name for value in graph.graph.input if value.name not in constants]
    shapes = {name: list(shape) for name, shape in zip(names, part.input_shapes, strict=True)}
    try:
        return from_onnx(graph, shape_dict=shapes, keep_params_in_input=False)
    except Exception as error:  # converters raise anything
        raise ModelError(f"{part.name} cannot be read by TVM: {_first_line(error)}") from error


def _sum_in_fp32(module: tvm.IRModule) -> tvm.IRModule:
    """Add products of FP16 numbers in FP32, as the colours assume.

    The importer makes sums FP16 too: of a segmenter's 2304 terms the last ones are lost, and a CPU
    rounds after every one of them, which takes 2.3 times as long.
    """
    from tvm import ir, relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    convolution, product = (ir.Op.get(f"relax.{name}") for name in ("nn.conv2d", "matmul"))

    @mutator
    class Widener(PyExprMutator):  # type: ignore[misc]
        """Makes results float32 and rounds them afterwards."""

        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            if call.op not in (convolution, product) or str(call.args[0].ty.dtype) != "float16":
                return call
            if call.op == product:
                wide = relax.op.matmul(*call.args, out_dtype="float32")
            else:
                names = "strides padding dilation groups data_layout kernel_layout out_layout"
                options = {name: getattr(call.attrs, name) for name in names.split()}
                wide = relax.op.nn.conv2d(*call.args, **options, out_dtype="float32")
            return relax.op.astype(self.builder_.emit(wide), "float16")

    module["main"] = Widener(module).visit_expr(module["main"])
    return relax.transform.Normalize()(module)


def _restore_clips(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite clipping operators as ``maximum`` and ``minimum``.

    ONNX's Clip is imported as two finished kernels, and hard sigmoids as ``clip``. Layout
    conversion passes through neither: each ReLU6 and hard swish of a MobileNet would be enclosed
    by two transpositions, and not be fused with the convolution before it.
    """
    from tvm import ir, relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    call_tir, clip = (ir.Op.get(f"relax.{name}") for name in ("call_tir", "clip"))
    operators = {"maximum": relax.op.maximum, "minimum": relax.op.minimum}

    @mutator
    class Restorer(PyExprMutator):  # type: ignore[misc]
        """Replaces ``clip``, and calls of these two kernels with a tensor and a constant."""

        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            if call.op == clip:
                value, kind = call.args[0], call.args[0].ty.dtype
                least, most = (relax.const(float(one.value), kind) for one in call.args[1:])
                return relax.op.minimum(self.builder_.emit(relax.op.maximum(value, least)), most)
            if call.op != call_tir or len(call.args[1].fields) != 2:
                return call
            operator = operators.get(call.args[0].name_hint.rstrip("0123456789"))
            value, bound = call.args[1].fields
            if operator is None or not isinstance(bound, ir.GenericConst):
                return call
            return operator(value, bound)

    module["main"] = Restorer(module).visit_expr(module["main"])
    return module


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'without a word'}"[:300]
