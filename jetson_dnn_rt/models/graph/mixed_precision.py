# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""FP16 as TVM's automatic mixed precision gives it, written into an ONNX graph.

Every operator has a colour. ALLOW is computed in FP16: there it pays. DENY stays in FP32: there it
would hurt. FOLLOW is computed in FP16 where everything that reaches it is FP16 already, so that
no operator is worth a conversion by itself. An operator without a colour is denied.

The colours are TVM's (``relay.transform.mixed_precision``, paper 003). The defaults here are the
same as in ``config/amp.yaml``, which can be copied and changed. Two rules are for constants, which
TVM ignores:

- an operator whose weights FP16 cannot hold (beyond 65504, or too small to keep 10 bits of them)
  stays in FP32;
- arithmetic with a constant above `LARGEST_FOLLOWED` stays in FP32: such constants are positions
  in pixels (anchors, grids, strides), and from 512 pixels on FP16 counts in halves.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.models.sources.files import import_package
from jetson_dnn_rt.safety import small_files, yaml_files

if TYPE_CHECKING:
    import onnx

logger = logging.getLogger(__name__)

ALLOW = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Products of matrices: FP32 accumulators on every NVIDIA GPU with tensor cores."""

ARITHMETIC = frozenset({"Add", "Div", "Mul", "Sub"})

FOLLOW = ARITHMETIC | frozenset(
    {
        # They move values, or choose among them.
        *("Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements"),
        *("GatherND", "Identity", "Pad", "Reshape", "Resize", "ScatterElements", "ScatterND"),
        *("Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"),
        *("ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
        *("Max", "Min", "ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool"),
        # Windows of a few pixels; the mean over the whole map is denied.
        "AveragePool",
        # Results no larger than the inputs.
        *("Abs", "BatchNormalization", "Clip", "HardSwish", "LeakyRelu", "Neg", "PRelu", "Relu"),
        "Sqrt",
        # Saturating: the result is within [-1, 1], where FP16 has steps of 0.0005 at most, and
        # the exponential is inside, where every kernel computes it in FP32. Were they denied,
        # each SiLU of a detector would cost two conversions.
        *("HardSigmoid", "Sigmoid", "Tanh"),
    }
)
"""Cheap operators: not worth a conversion, and harmless in FP16."""

DENY = frozenset(
    {
        # |f(x)| >> |x|.
        *("Erf", "Exp", "Log", "Pow", "Reciprocal", "Softmax", "LogSoftmax", "Softplus"),
        # Sums of many terms.
        *("CumSum", "GlobalAveragePool", "GlobalLpPool", "LRN", "LpNormalization", "LpPool"),
        *("GroupNormalization", "InstanceNormalization", "LayerNormalization"),
        "MeanVarianceNormalization",
        *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd"),
        *("ReduceSum", "ReduceSumSquare"),
        # Positions, and decisions that depend on the last bit.
        *("NonMaxSuppression", "Range", "RoiAlign", "TopK"),
    }
)
"""Listed for the reader: operators in neither other set are denied as well."""

_LIMIT_BYTES = 100_000


@dataclass(frozen=True)
class Colours:
    """ONNX operators by their treatment in FP16; those in none of the sets are denied."""

    allow: frozenset[str]  # computed in FP16
    follow: frozenset[str]  # computed in FP16 where everything that reaches them is FP16 already
    deny: frozenset[str]  # computed in FP32

    def __post_init__(self) -> None:
        named = Counter([*self.allow, *self.follow, *self.deny])
        for twice in sorted(name for name, count in named.items() if count > 1):
            both = [field.name for field in fields(self) if twice in getattr(self, field.name)]
            raise ConfigurationError(
                f"{' and '.join(map(repr, both))} both have {twice!r}: leave it in one"
            )

    @property
    def text(self) -> str:
        """A short text, equal where the computation is equal; empty for the defaults.

        For keys of the library. `deny` has no part in it: operators in no set are denied too.
        """
        if (self.allow, self.follow) == (ALLOW, FOLLOW):
            return ""
        content = json.dumps([sorted(self.allow), sorted(self.follow)])
        return "amp-" + hashlib.sha256(content.encode()).hexdigest()[:12]


DEFAULT = Colours(ALLOW, FOLLOW, DENY)


def read_colours(path: str) -> Colours:
    """Read a file like ``config/amp.yaml``; the defaults for an empty path.

    With ROS the package's own is ``$(ros2 pkg prefix jetson_dnn_rt)/share/jetson_dnn_rt/config``,
    with pip the same below ``sys.prefix``.

    Raises
    ------
    ConfigurationError
        When it cannot be read, lacks a list or has something else, or when an operator is in two
        lists, twice in one, or not one of ONNX.
    BackendUnavailableError
        When the package onnx is missing.
    """
    if not path:
        return DEFAULT
    file = Path(path).expanduser()
    try:
        content = yaml_files.parse(small_files.read_text(file, _LIMIT_BYTES))
    except OSError as error:
        raise ConfigurationError(
            f"colours of operators: {file}: {error.strerror}; fix: correct amp_lists, a file like "
            "config/amp.yaml, or leave it empty"
        ) from error
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"colours of operators: {file}: {error}") from error
    names = [field.name for field in fields(Colours)]
    if not isinstance(content, dict) or set(content) != set(names):
        found = content if isinstance(content, dict) else dict.fromkeys(names)
        faults = [f"{name!r} is missing" for name in names if name not in found]
        faults += [f"{yaml_files.describe(name)} is none" for name in found if name not in names]
        shown = f" ({', '.join(faults)})" if faults else ""
        raise ConfigurationError(
            f"colours of operators: {file} must have the lists {', '.join(names)}, and nothing "
            f"else{shown}; copy config/amp.yaml and change that"
        )
    try:
        return Colours(**{name: _read_list(name, content[name]) for name in names})
    except ConfigurationError as error:
        raise ConfigurationError(f"colours of operators: {file}: {error}") from error


def _read_list(name: str, values: object) -> frozenset[str]:
    if not isinstance(values, list):
        raise ConfigurationError(
            f"{name!r} must be a list of operators, not {yaml_files.describe(values)}: "
            "write [] for none"
        )
    onnx = import_package("onnx", "checking the names of operators")
    known = {str(schema.name) for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    for value in values:
        if not isinstance(value, str):
            shown = yaml_files.describe(value)
            raise ConfigurationError(f"{name!r} has {shown}, which is not the name of an operator")
        if values.count(value) > 1:
            raise ConfigurationError(f"{name!r} has {value!r} twice: leave it there once")
        if value not in known:
            alike = {entry.lower(): entry for entry in known}.get(value.lower())
            fix = f"write {alike}" if alike else "names are those of ONNX, such as Conv"
            raise ConfigurationError(f"{name!r} has {value!r}, which is not an operator: {fix}")
    return frozenset(values)


LARGEST_FOLLOWED = 64.0
"""Largest constant that arithmetic in FP16 may meet; up to twice that the step is 1/16."""

_LARGEST_ERROR = 2.0**-10
"""Relative error (2-norm) of weights in FP16; rounding alone gives at most 2^-11."""

_INDIFFERENT = frozenset({"Cast", "Shape", "Size"})
"""Operators that accept either type, which does not determine that of their result."""

# Numbers of onnx.TensorProto, which is imported on use.
_FLOAT, _FLOAT16 = 1, 10
_SUFFIXES = {_FLOAT: "__fp32", _FLOAT16: "__fp16"}


@dataclass(frozen=True)
class MixedPrecision:
    """A network in two precisions."""

    onnx: bytes  # serialized; its inputs and outputs have the types they had
    fp16: tuple[str, ...]  # names of the operators on floats that are computed in it
    fp32: tuple[str, ...]
    kept: dict[str, str]  # operators whose constants keep them in FP32, and why
    casts: int  # conversions that were put in


def convert_to_fp16(data: bytes, colours: Colours = DEFAULT) -> MixedPrecision:
    """Colour a serialized ONNX model and convert what is coloured FP16, weights included.

    Doing it again changes nothing. `ModelError` where it cannot be read,
    `BackendUnavailableError` where the package onnx is missing.
    """
    onnx = import_package("onnx", "writing FP16")
    try:
        model = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(data))
    except Exception as error:  # protobuf's DecodeError, and what onnx's own code raises
        raise ModelError(f"the ONNX model cannot be read: {error}") from error
    converter = _Converter(model, colours)
    converter.convert()
    for name, reason in converter.kept.items():
        logger.warning("%s stays in fp32: %s", name, reason)
    return MixedPrecision(
        model.SerializeToString(deterministic=True),
        tuple(converter.computed[_FLOAT16]),
        tuple(converter.computed[_FLOAT]),
        converter.kept,
        converter.casts,
    )


def explain_unfit(values: np.ndarray[Any, Any]) -> str:
    """Why an array loses too much in FP16; empty when it does not."""
    exact = values[np.isfinite(values)].astype(np.float64)
    largest = float(np.abs(exact).max(initial=0.0))
    if largest > float(np.finfo(np.float16).max):
        return f"a constant reaches {largest:.3g}, fp16 ends at 65504"
    lost = float(np.linalg.norm(exact - exact.astype(np.float16)))
    if lost > _LARGEST_ERROR * float(np.linalg.norm(exact)):
        return f"a constant of at most {largest:.3g} is too small for fp16"
    return ""


class _Converter:
    """One pass over the nodes in their order, which in ONNX is an order of computation."""

    def __init__(self, model: onnx.ModelProto, colours: Colours) -> None:
        self._colours = colours
        self.computed: dict[int, list[str]] = {_FLOAT: [], _FLOAT16: []}
        self.kept: dict[str, str] = {}
        self.casts = 0
        self._graph = model.graph
        if model.ir_version < 4:
            model.ir_version = 4  # from 4 on initializers need not be inputs
        self._versions = {entry.domain: entry.version for entry in model.opset_import}
        values = [*model.graph.input, *model.graph.value_info, *model.graph.output]
        self._types = {  # 0 = not a tensor
            value.name: int(value.type.tensor_type.elem_type) for value in values
        }
        # Types change now: inferred ones no longer apply.
        del model.graph.value_info[:]
        self._constants = _gather_constants(model.graph)
        self._types |= {name: tensor.data_type for name, tensor in self._constants.items()}
        self._before = dict(self._types)
        # Results, and values that subgraphs use from the graph around them, keep name and type.
        self._outside = {value.name for value in model.graph.output}
        self._outside.update(_captured_names(model.graph.node))
        self._names: dict[tuple[str, int], str] = {}
        self._nodes: list[onnx.NodeProto] = []

    def convert(self) -> None:
        """Rewrite nodes and constants."""
        for node in list(self._graph.node):
            self._add(node)
        del self._graph.node[:]
        self._graph.node.extend(self._nodes)
        used = {name for node in self._nodes for name in node.input} | self._outside
        del self._graph.initializer[:]
        self._graph.initializer.extend(
            tensor for name, tensor in self._constants.items() if name in used
        )

    def _add(self, node: onnx.NodeProto) -> None:
        floats, bound = self._find_floats(node)
        for index, name in enumerate(node.input):
            # An operator unknown here, or an input that is FP32 by definition.
            if index not in floats and node.op_type not in _INDIFFERENT and name in self._before:
                node.input[index] = self._convert_value(name, self._before[name])
        if not floats or node.op_type in _INDIFFERENT:
            self._nodes.append(node)
            return
        target = _FLOAT16 if self._is_fp16(node, floats) else _FLOAT
        self.computed[target].append(node.name or node.output[0])
        for index in floats:
            node.input[index] = self._convert_value(node.input[index], target)
        changed = [node.output[i] for i in bound if self._types[node.output[i]] != target]
        self._types.update(dict.fromkeys(changed, target))
        back = self._outside.intersection(changed)
        for index, name in enumerate(node.output):
            if name in back:
                # The outside keeps its name; everything inside reads what was computed.
                node.output[index] = self._names[name, target] = self._make_name(name, target)
                self._names[name, self._before[name]] = name
        self._nodes.append(node)
        for name in sorted(back):
            self._cast(self._names[name, target], name, self._before[name])

    def _find_floats(self, node: onnx.NodeProto) -> tuple[list[int], list[int]]:
        """Inputs that may be of either type, and outputs that are of the type of these."""
        import onnx

        version = self._versions.get(node.domain)
        if version is None:
            return [], []
        try:  # onnx.defs.has takes no version before onnx 1.16
            schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        except onnx.defs.SchemaError:
            return [], []
        free = {
            constraint.type_param_str
            for constraint in schema.type_constraints
            if "tensor(float16)" in constraint.allowed_type_strs
            and "tensor(float)" in constraint.allowed_type_strs
        }

        def find(names: Iterable[str], parameters: Any) -> list[tuple[int, str]]:
            return [
                (index, _formal(parameters, index))
                for index, name in enumerate(names)
                if name and self._types.get(name) in (_FLOAT, _FLOAT16)
            ]

        inputs = find(node.input, schema.inputs)
        used = {formal for _, formal in inputs if formal in free}
        outputs = [i for i, formal in find(node.output, schema.outputs) if formal in used]
        return [index for index, formal in inputs if formal in used], outputs

    def _is_fp16(self, node: onnx.NodeProto, floats: list[int]) -> bool:
        colours = self._colours
        known = colours.allow | colours.follow
        if node.domain not in ("", "ai.onnx") or node.op_type not in known:
            return False
        names = [node.input[index] for index in floats]
        computed = [name for name in names if name not in self._constants]
        if node.op_type in colours.follow and not (
            computed and all(self._types[name] == _FLOAT16 for name in computed)
        ):
            return False
        for name in names:
            if name in self._constants and (reason := self._explain_constant(node, name)):
                self.kept[f"{node.op_type} {node.name or node.output[0]!r}"] = reason
                return False
        return True

    def _explain_constant(self, node: onnx.NodeProto, name: str) -> str:
        from onnx import numpy_helper

        values = numpy_helper.to_array(self._constants[name])
        largest = float(np.abs(values.astype(np.float64)).max(initial=0.0))
        if node.op_type in ARITHMETIC and LARGEST_FOLLOWED < largest < np.inf:
            return f"a constant reaches {largest:.3g}, beyond {LARGEST_FOLLOWED:g} fp16 is coarse"
        return explain_unfit(values)

    def _convert_value(self, name: str, target: int) -> str:
        """The name of a value in a type; converted on first use."""
        if (name, target) in self._names:
            return self._names[name, target]
        if self._types[name] == target:
            return name
        found = self._names[name, target] = self._make_name(name, target)
        if name in self._constants:
            self._constants[found] = _convert_tensor(self._constants[name], found, target)
        else:
            source = self._names.get((name, self._types[name]), name)
            self._cast(source, found, target)
        return found

    def _cast(self, source: str, result: str, target: int) -> None:
        from onnx import helper

        name = f"{source}_to{_SUFFIXES[target]}"
        self._nodes.append(helper.make_node("Cast", [source], [result], name=name, to=target))
        self.casts += 1

    def _make_name(self, name: str, target: int) -> str:
        name += _SUFFIXES[target]
        while name in self._types:
            name += "_"
        self._types[name] = target
        return name


def _formal(parameters: Any, index: int) -> str:
    """The formal type of a parameter; the last one may stand for many."""
    return str(parameters[min(index, len(parameters) - 1)].type_str)


def _gather_constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Take the constants out of inputs and nodes: all of them become initializers."""
    import onnx

    constants = {tensor.name: tensor for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    nodes = []
    for node in graph.node:
        tensor = _read_constant(node) if node.op_type == "Constant" else None
        if tensor is None:
            nodes.append(node)
            continue
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.name = node.output[0]
        constants[copy.name] = copy
    for field, values in ((graph.input, inputs), (graph.node, nodes)):
        kept: list[Any] = [type(value).FromString(value.SerializeToString()) for value in values]
        del field[:]
        field.extend(kept)
    return constants


def _read_constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    from onnx import helper, numpy_helper

    attribute = node.attribute[0]
    if attribute.name == "value":
        return attribute.t
    types: dict[str, type[np.generic]] = {
        **dict.fromkeys(("value_float", "value_floats"), np.float32),
        **dict.fromkeys(("value_int", "value_ints"), np.int64),
    }
    if attribute.name not in types:
        return None
    value = np.asarray(helper.get_attribute_value(attribute), types[attribute.name])
    return numpy_helper.from_array(value)


def _captured_names(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Every name that a subgraph mentions; its own names among them are harmless."""
    for node in nodes:
        for attribute in node.attribute:
            for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                for inner in graph.node:
                    yield from inner.input
                yield from (value.name for value in graph.output)
                yield from _captured_names(graph.node)


def _convert_tensor(tensor: onnx.TensorProto, name: str, target: int) -> onnx.TensorProto:
    from onnx import numpy_helper

    kind = np.float16 if target == _FLOAT16 else np.float32
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(kind), name)
