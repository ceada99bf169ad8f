"""Which operators FP16 is for: three colours, as TVM's automatic mixed precision has them.

These are the defaults, the same as in ``config/amp.yaml``, which one copies to change them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.safety import small_files
from jetson_dnn_rt.safety import yaml_files as safe_yaml

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
        # Results no larger than what goes in.
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
        # Positions, and decisions that hang on the last bit.
        *("NonMaxSuppression", "Range", "RoiAlign", "TopK"),
    }
)
"""Named for the reader: whatever is in neither other set is denied as well."""

_LIMIT_BYTES = 100_000


@dataclass(frozen=True)
class Colours:
    """ONNX operators by what FP16 does to them.

    Attributes
    ----------
    allow : frozenset of str
        Computed in FP16.
    follow : frozenset of str
        Computed in FP16 where everything that reaches them is FP16 already.
    deny : frozenset of str
        Computed in FP32, as every operator in none of the sets.
    """

    allow: frozenset[str]
    follow: frozenset[str]
    deny: frozenset[str]

    def __post_init__(self) -> None:
        named = Counter([*self.allow, *self.follow, *self.deny])
        twice = sorted(name for name, count in named.items() if count > 1)
        if twice:
            raise ConfigurationError(
                f"{_name_lists(self, twice[0])} both have {twice[0]!r}: leave it in one"
            )

    @property
    def text(self) -> str:
        """A short text that is the same where the same is computed; empty for the defaults.

        For keys of the library. What `deny` names beside the others changes no network.
        """
        if (self.allow, self.follow) == (ALLOW, FOLLOW):
            return ""
        content = json.dumps([sorted(self.allow), sorted(self.follow)])
        return "amp-" + hashlib.sha256(content.encode()).hexdigest()[:12]


DEFAULT = Colours(ALLOW, FOLLOW, DENY)


def read_colours(path: str) -> Colours:
    """Read a file like ``config/amp.yaml``.

    Parameters
    ----------
    path : str
        The file; empty for `DEFAULT`. With ROS the package's own is
        ``$(ros2 pkg prefix jetson_dnn_rt)/share/jetson_dnn_rt/config/amp.yaml``, with pip the same
        below ``sys.prefix``.

    Raises
    ------
    ConfigurationError
        When it cannot be read, lacks a list or has something else, or when an operator is in two
        lists, twice in one, or none of ONNX.
    BackendUnavailableError
        When the package onnx is missing.
    """
    if not path:
        return DEFAULT
    file = Path(path).expanduser()
    try:
        content = safe_yaml.parse(small_files.read_text(file, _LIMIT_BYTES))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"colours of operators: {file}: {error}") from error
    names = [field.name for field in fields(Colours)]
    if not isinstance(content, dict) or set(content) != set(names):
        raise ConfigurationError(
            f"colours of operators: {file} must have the lists {', '.join(names)}, and nothing "
            f"else{_say_difference(content, names)}; copy config/amp.yaml and change that"
        )
    try:
        return Colours(**{name: _read_list(name, content[name]) for name in names})
    except ConfigurationError as error:
        raise ConfigurationError(f"colours of operators: {file}: {error}") from error


def _read_list(name: str, values: object) -> frozenset[str]:
    if not isinstance(values, list):
        raise ConfigurationError(
            f"{name!r} must be a list of operators, not {safe_yaml.describe(values)}: "
            "write [] for none"
        )
    for value in values:
        if not isinstance(value, str):
            shown = safe_yaml.describe(value)
            raise ConfigurationError(f"{name!r} has {shown}, which is no name of an operator")
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ConfigurationError(f"{name!r} has {twice[0]!r} twice: leave it there once")
    known = _list_operators()
    for value in values:
        if value not in known:
            alike = {entry.lower(): entry for entry in known}.get(value.lower())
            fix = f"write {alike}" if alike else "names are those of ONNX, such as Conv"
            raise ConfigurationError(f"{name!r} has {value!r}, which is no operator: {fix}")
    return frozenset(values)


def _list_operators() -> frozenset[str]:
    try:
        import onnx
    except ImportError as error:
        raise BackendUnavailableError(
            f"operators are checked with the package onnx ({error}): pip install onnx"
        ) from error
    schemas: list[Any] = onnx.defs.get_all_schemas()
    return frozenset(str(schema.name) for schema in schemas if schema.domain == "")


def _name_lists(colours: Colours, operator: str) -> str:
    names = [field.name for field in fields(colours) if operator in getattr(colours, field.name)]
    return " and ".join(map(repr, names))


def _say_difference(content: object, names: list[str]) -> str:
    if not isinstance(content, dict):
        return ""
    missing = [name for name in names if name not in content]
    unknown = [safe_yaml.describe(name) for name in content if name not in names]
    said = [f"{name!r} is missing" for name in missing] + [f"{name} is none" for name in unknown]
    return f" ({', '.join(said)})"
