"""From a part of a network to TVM: fused kernels, and the order in which they run.

ONNX is read into Relax; batch norms are folded into the convolutions before them; convolutions
become channels-last, where the channels of a pixel are one vector; FP16 is written into the ONNX
graph beforehand (`models.graph.mixed_precision`), so that every back end gets the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError, ModelError
from jetson_dnn_rt.models.graph.mixed_precision import convert_to_fp16
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.tvm.target import TvmTarget

if TYPE_CHECKING:
    import tvm

    from jetson_dnn_rt.models.graph.mixed_precision import Colours

PRECISIONS = ("fp32", "fp16")
LAYOUTS = ("NHWC", "NCHW")


def lower(
    part: Part,
    precision: str,
    target: TvmTarget,
    *,
    layout: str = "NHWC",
    colours: Colours | None = None,
) -> tvm.IRModule:
    """Bring a network into the form that is tuned, scheduled and compiled.

    Parameters
    ----------
    precision : str
        ``fp32`` or ``fp16`` (mixed: what is coloured so; inputs and outputs stay float32).
    layout : str
        ``NHWC``, or ``NCHW``: TVM's own, what one gets who asks for nothing.
    colours : Colours, optional
        What FP16 is allowed for; the lists of ``config/amp.yaml`` by default.

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
        When a package is missing, or the precision.
    """
    if layout not in LAYOUTS:
        raise ConfigurationError(f"layout {layout!r} is not one of {', '.join(LAYOUTS)}")
    if precision not in PRECISIONS:
        raise BackendUnavailableError(
            f"tvm computes in {', '.join(PRECISIONS)}, not in {precision}"
        )
    from tvm.relax import transform

    data = part.onnx_model()
    if precision == "fp16":
        data = (convert_to_fp16(data, colours) if colours else convert_to_fp16(data)).onnx
    module = _import_onnx(data, part)
    try:
        with target.to_tvm():
            if precision == "fp16":
                module = _sum_in_fp32(module)
            module = _simplify(module)
            if layout == "NCHW":
                return _fuse(module)
            module = _fuse(_use_channels_last(module))
            # Constants are marked: a schedule may want them in another order.
            return transform.AttachAttrLayoutFreeBuffers()(module)
    except Exception as error:  # TVM's errors have no class in common
        raise ModelError(f"{part.name} cannot be lowered by TVM: {_first_line(error)}") from error


def _import_onnx(data: bytes, part: Part) -> tvm.IRModule:
    import onnx
    from tvm.relax.frontend.onnx import from_onnx

    graph = onnx.load_model_from_string(data)
    constants = {tensor.name for tensor in graph.graph.initializer}
    names = [value.name for value in graph.graph.input if value.name not in constants]
    shapes = {name: list(shape) for name, shape in zip(names, part.input_shapes, strict=True)}
    try:
        return from_onnx(graph, shape_dict=shapes, keep_params_in_input=False)
    except Exception as error:  # every converter raises what it likes
        raise ModelError(f"{part.name} cannot be read by TVM: {_first_line(error)}") from error


def _sum_in_fp32(module: tvm.IRModule) -> tvm.IRModule:
    """Add products of FP16 numbers in FP32, as the colours assume.

    As they are read, sums are FP16 too: of a segmenter's 2304 terms the last ones are lost, and a
    CPU rounds after every one of them, which takes it 2.3 times as long.
    """
    from tvm import ir, relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    convolution, product = (ir.Op.get(f"relax.{name}") for name in ("nn.conv2d", "matmul"))

    @mutator
    class Widener(PyExprMutator):  # type: ignore[misc]
        """Makes the results float32 and rounds them afterwards."""

        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            if call.op not in (convolution, product) or str(call.args[0].ty.dtype) != "float16":
                return call
            if call.op == product:
                wide = relax.op.matmul(*call.args, out_dtype="float32")
            else:
                attributes = call.attrs
                wide = relax.op.nn.conv2d(
                    *call.args,
                    strides=attributes.strides,
                    padding=attributes.padding,
                    dilation=attributes.dilation,
                    groups=attributes.groups,
                    data_layout=attributes.data_layout,
                    kernel_layout=attributes.kernel_layout,
                    out_layout=attributes.out_layout,
                    out_dtype="float32",
                )
            return relax.op.astype(self.builder_.emit(wide), "float16")

    module["main"] = Widener(module).visit_expr(module["main"])
    return relax.transform.Normalize()(module)


def _simplify(module: tvm.IRModule) -> tvm.IRModule:
    import tvm
    from tvm.relax import transform

    return tvm.transform.Sequential(
        [
            transform.FoldBatchnormToConv2D(),
            transform.DecomposeOpsForInference(),
            transform.CanonicalizeBindings(),
            transform.FoldConstant(),
        ]
    )(module)


def _use_channels_last(module: tvm.IRModule) -> tvm.IRModule:
    import tvm
    from tvm.relax import transform

    module = _restore_clips(module)
    return tvm.transform.Sequential(
        [
            transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]}),
            transform.Normalize(),
            transform.CanonicalizeBindings(),
            transform.FoldConstant(),
        ]
    )(module)


def _restore_clips(module: tvm.IRModule) -> tvm.IRModule:
    """Make ``maximum`` and ``minimum`` of whatever clips.

    ONNX's Clip is read as two finished kernels, and hard sigmoids as ``clip``. A layout goes
    through neither: each ReLU6 and hard swish of a MobileNet would stand between two
    transpositions, and be no part of the convolution before it.
    """
    from tvm import ir, relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    call_tir, clip = (ir.Op.get(f"relax.{name}") for name in ("call_tir", "clip"))
    operators = {"maximum": relax.op.maximum, "minimum": relax.op.minimum}

    @mutator
    class Restorer(PyExprMutator):  # type: ignore[misc]
        """Replaces ``clip``, and kernels called like the two of a tensor and a constant."""

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


def _fuse(module: tvm.IRModule) -> tvm.IRModule:
    import tvm
    from tvm.relax import transform

    return tvm.transform.Sequential(
        [
            transform.LegalizeOps(),
            transform.AnnotateTIROpPattern(),
            transform.FoldConstant(),
            transform.FuseOps(),
            transform.FuseTIR(),
            transform.DeadCodeElimination(),
        ]
    )(module)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'without a word'}"[:300]
