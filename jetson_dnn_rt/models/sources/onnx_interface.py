# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Inputs and outputs of an ONNX graph, brought to the form that every back end is given.

=====================  ===========================================================================
the file has           what is done
=====================  ===========================================================================
``[1, H, W, 3]``       a transposition is put before its input
``[3, H, W]``          the batch is taken off (torchvision's detectors)
float16, uint8 input   a cast is put before it; a network of bytes takes pixels as they are
open sizes             fixed, to `input_size`, else to what its metadata say
further inputs         become constants: by `constant_inputs`, or known ones (`_KNOWN`)
float16 outputs        a cast to float32 is put behind them
outputs not wanted     removed, with the nodes that work for them alone (`outputs`)
=====================  ===========================================================================
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import yaml

from jetson_dnn_rt.config.suggestions import suggest
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.models.metadata import MAX_SIDE, Metadata
from jetson_dnn_rt.models.model import SourceOptions
from jetson_dnn_rt.safety import yaml_files

if TYPE_CHECKING:
    import onnx

_MAX_CONSTANT = 1 << 16  # elements
_MAX_OUTPUT = 1 << 26

_KNOWN: dict[str, Callable[[int, int], Sequence[float]]] = {
    # RT-DETR and D-FINE scale their boxes to it: width first.
    "orig_target_sizes": lambda height, width: (width, height),
    # PaddleDetection's: the size after the resize, and the resize's factors.
    "im_shape": lambda height, width: (height, width),
    "scale_factor": lambda height, width: (1.0, 1.0),
}
"""Values of inputs that exporters put beside the image, by height and width of the input: boxes
are then in pixels of the input."""

_PLUGINS = ("EfficientNMS_TRT", "BatchedNMS_TRT", "BatchedNMSDynamic_TRT", "EfficientNMSX_TRT")


class Adapted(NamedTuple):
    """What was found, and whether the graph was changed."""

    input_size: tuple[int, int]  # height and width
    takes_bytes: bool  # the file's own input is uint8
    changed: bool


def find_plugins(model: onnx.ModelProto) -> tuple[str, ...]:
    """Operators of the graph that are plug-ins of TensorRT."""
    return tuple(sorted({node.op_type for node in model.graph.node} & set(_PLUGINS)))


def _find_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs that are not weights."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def describe_inputs(model: onnx.ModelProto) -> tuple[str, ...]:
    """The inputs for people: name, type, shape; 0 = open."""
    return tuple(map(_describe, _find_inputs(model)))


def adapt(model: onnx.ModelProto, options: SourceOptions, metadata: Metadata) -> Adapted:
    """Bring a graph to one float32 input ``[1, 3, H, W]``; changes it in place.

    `ModelError` without the name of the file where that cannot be done, `ConfigurationError` where
    an option cannot be used.
    """
    inputs = _find_inputs(model)
    image = _find_image(inputs)
    size, last = _find_size(image, options.input_size, metadata)
    others = [value for value in inputs if value is not image]
    # Each does something: all must be called.
    changes = [
        _make_constants(model, others, options.constants, size),
        _fix_shape(model, image, (1, *size, 3) if last else (1, 3, *size)),
        _choose_outputs(model, options.outputs),
    ]
    takes_bytes = _convert_input(model, image, size, last)
    changes += [takes_bytes is not None, _convert_outputs(model)]
    return Adapted(size, bool(takes_bytes), any(changes))


def make_outputs(path: Path, model: onnx.ModelProto) -> tuple[npt.NDArray[Any], ...]:
    """Zeros of the shapes that the file declares; `ModelError` where it leaves them open."""
    from onnx import TensorProto, helper

    outputs = []
    for output in model.graph.output:
        shape = _shape_of(output)
        if not shape or min(shape) < 1 or math.prod(shape) > _MAX_OUTPUT:
            raise ModelError(
                f"{path}: the shape of output {output.name!r} is open or too large, {shape}: "
                "export it with fixed shapes"
            )
        element = output.type.tensor_type.elem_type
        if element not in (TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64):
            raise ModelError(f"{path}: output {output.name!r} is neither float32 nor integer")
        kind = helper.tensor_dtype_to_np_dtype(element)
        outputs.append(np.zeros(shape, kind))
    return tuple(outputs)


def sort_nodes(model: onnx.ModelProto) -> bool:
    """Put nodes behind those that they read from, as the standard wants; True where they moved.

    Converters to half precision append their casts at the end, and ONNX Runtime runs that.
    """
    graph = model.graph
    known = {value.name for value in (*graph.input, *graph.initializer)}
    known.update(value.values.name for value in graph.sparse_initializer)
    nodes = list(graph.node)
    made = {name for node in nodes for name in node.output}
    missing: dict[int, int] = {}  # values that a node waits for
    readers: dict[str, list[int]] = {}
    ready: list[int] = []
    for place, node in enumerate(nodes):
        # A name that no node makes is for the checker to complain about.
        awaited = {name for name in _names_read(node) if name in made and name not in known}
        missing[place] = len(awaited)
        for name in awaited:
            readers.setdefault(name, []).append(place)
        if not awaited:
            ready.append(place)
    heapq.heapify(ready)
    placed: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        placed.append(place)
        for name in set(nodes[place].output):
            for reader in readers.pop(name, ()):
                missing[reader] -= 1
                if not missing[reader]:
                    heapq.heappush(ready, reader)
    if len(placed) < len(nodes):  # a circle
        return False
    if placed == sorted(placed):
        return False
    copies = [type(nodes[place]).FromString(nodes[place].SerializeToString()) for place in placed]
    del graph.node[:]
    graph.node.extend(copies)
    return True


def _shape_of(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """Its shape, 0 where it is open."""
    dimensions = value.type.tensor_type.shape.dim
    # Some exporters write -1.
    return tuple(max(0, d.dim_value) if d.HasField("dim_value") else 0 for d in dimensions)


def _describe(value: onnx.ValueInfoProto) -> str:
    from onnx import TensorProto

    number = value.type.tensor_type.elem_type
    # The field holds any number.
    kinds = {known: name for name, known in TensorProto.DataType.items()}
    return f"{value.name!r} {kinds.get(number, f'type {number}')} {list(_shape_of(value))}"


def _find_image(inputs: Sequence[onnx.ValueInfoProto]) -> onnx.ValueInfoProto:
    from onnx import TensorProto

    images = [value for value in inputs if len(_shape_of(value)) == 4] or [
        value for value in inputs if len(_shape_of(value)) == 3 and _shape_of(value)[0] == 3
    ]
    if len(images) != 1:
        texts = ", ".join(map(_describe, inputs)) or "none"
        raise ModelError(f"has the inputs {texts} (0 = open), needed is one image")
    image = images[0]
    known = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UINT8)
    if image.type.tensor_type.elem_type not in known:
        raise ModelError(
            f"takes {_describe(image)}, needed is float32, float16 or uint8; fix: export it so"
        )
    return image


def _find_size(
    image: onnx.ValueInfoProto, wanted: tuple[int, int] | None, metadata: Metadata
) -> tuple[tuple[int, int], bool]:
    """Height and width, and whether the colours are the last axis."""
    shape = _shape_of(image)
    if len(shape) == 3:
        shape = (1, *shape)
    last = shape[3] == 3 and shape[1] not in (0, 3)
    last = last or (shape[3] == 3 and shape[1] == 0)
    channels, height, width = (shape[3], *shape[1:3]) if last else shape[1:]
    if shape[0] not in (0, 1) or channels not in (0, 3):
        raise ModelError(
            f"takes {list(shape)} (0 = open), needed is [1, 3, H, W] or [1, H, W, 3]; fix: export "
            "it with batch 1 for pictures of three colours"
        )
    own = (height, width)
    size = wanted or tuple(
        side or said for side, said in zip(own, metadata.image_size or (0, 0), strict=True)
    )
    if 0 in size:
        raise ModelError(
            "leaves its input size open; fix: give height and width, as input_size: [480, 640] of "
            "the task, or --input-size 480 640 of inspect and compress"
        )
    if max(size) > MAX_SIDE:
        raise ModelError(f"takes {size[0]}x{size[1]}, sides may have {MAX_SIDE} pixels at most")
    if any(side not in (0, given) for side, given in zip(own, size, strict=True)):
        text = (
            f"takes {height}x{width}, input_size says {size[0]}x{size[1]}; fix: leave it out, or "
            "export the network for that size"
        )
        raise ModelError(text, "input_size")
    return (size[0], size[1]), last


def _make_constants(
    model: onnx.ModelProto,
    others: Sequence[onnx.ValueInfoProto],
    given: Sequence[str],
    size: tuple[int, int],
) -> bool:
    """Turn the inputs beside the image into constants; True where there are any."""
    from onnx import TensorProto, helper, numpy_helper

    numbers = set(helper.get_all_tensor_dtypes()) - {TensorProto.STRING}
    values = _read_constants(given)
    names = [value.name for value in others]
    if unknown := sorted(set(values) - set(names)):
        there = ", ".join(names) or "none beside the image"
        hint = suggest(unknown[0], names)
        text = f"constant_inputs: no input {unknown[0]!r}{hint or ','} there are: {there}"
        raise ConfigurationError(text, "constant_inputs")
    for value in others:
        number: Any = values.get(value.name)
        if number is None and value.name in _KNOWN:
            number = _KNOWN[value.name](*size)
        if number is None:
            raise ModelError(
                f"has the input {_describe(value)} beside the image, with no value; fix: "
                f"constant_inputs: ['{value.name}=VALUE']"
            )
        shape = tuple(side or 1 for side in _shape_of(value))
        element = value.type.tensor_type.elem_type
        if element not in numbers or math.prod(shape) > _MAX_CONSTANT:
            raise ModelError(
                f"has the input {_describe(value)} beside the image, which is no tensor of at "
                f"most {_MAX_CONSTANT} values"
            )
        kind = helper.tensor_dtype_to_np_dtype(element)
        try:
            array = _convert(number, kind)
            array = np.full(shape, array) if array.ndim == 0 else array.reshape(shape)
        except (TypeError, ValueError, OverflowError) as error:
            # What numpy says of it tells a user nothing.
            why = str(error) if isinstance(error, _LossError) else ""
            why = why or f"give {value.name}=NUMBER, or a list of {math.prod(shape)}"
            raise ConfigurationError(
                f"constant_inputs: {value.name}={number!r} is no value for {_describe(value)}; "
                f"{why}",
                "constant_inputs",
            ) from error
        model.graph.initializer.append(numpy_helper.from_array(array, value.name))
        model.graph.input.remove(value)
    return bool(others)


class _LossError(ValueError):
    """A constant would be changed by the type of its input."""


def _convert(number: Any, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """A constant in the type of its input; `_LossError` where that changes it."""
    given = np.asarray(number)
    if kind.kind not in "iub":
        return given.astype(kind)
    if given.dtype.kind not in "iub" and not np.all(given == np.rint(given)):
        raise _LossError("it must be whole")
    limits = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
    if given.size and not limits[0] <= given.min() <= given.max() <= limits[1]:
        raise _LossError(f"it must be in [{limits[0]}, {limits[1]}]")
    return given.astype(kind)


def _read_constants(given: Sequence[str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            form = f"constant_inputs: {text!r} must have the form NAME=VALUE"
            raise ConfigurationError(form, "constant_inputs")
        try:
            values[name.strip()] = yaml_files.parse(value)
        except yaml.YAMLError as error:
            raise ConfigurationError(
                f"constant_inputs: {text!r} is no value in YAML; write NAME=1.5 or NAME=[1, 2]",
                "constant_inputs",
            ) from error
        if np.size(np.asarray(values[name.strip()], dtype=object)) > _MAX_CONSTANT:
            raise ConfigurationError(f"constant_inputs: {name} has too many values")
    return values


def _fix_shape(model: onnx.ModelProto, image: onnx.ValueInfoProto, shape: tuple[int, ...]) -> bool:
    """Write the shape of the input into the graph; True where something was open."""
    dimensions = image.type.tensor_type.shape.dim
    if all(d.HasField("dim_value") and d.dim_value > 0 for d in dimensions):
        return False
    for dimension, size in zip(dimensions, shape[-len(dimensions) :], strict=True):
        dimension.dim_value = size
    # Shapes that the file records after the input may contradict the fixed sizes.
    del model.graph.value_info[:]
    for output in model.graph.output:
        for dimension in output.type.tensor_type.shape.dim:
            if not dimension.HasField("dim_value"):
                dimension.Clear()
    return True


def _choose_outputs(model: onnx.ModelProto, wanted: Sequence[str]) -> bool:
    """Keep the outputs that are wanted, in that order; True where that changes the graph."""
    graph = model.graph
    by_name = {output.name: output for output in graph.output}
    if len(by_name) < len(graph.output):
        raise ModelError("names an output twice; fix: export it again")
    for name in wanted:
        if name not in by_name:
            raise ConfigurationError(
                f"outputs: the model has no output {name!r}{suggest(name, by_name) or ','} it "
                f"has {', '.join(by_name)}",
                "outputs",
            )
    if len(set(wanted)) != len(wanted):
        raise ConfigurationError(f"outputs: a name stands twice in {list(wanted)}", "outputs")
    if not wanted or list(wanted) == list(by_name):
        return False
    chosen = [by_name[name] for name in wanted]
    del graph.output[:]
    graph.output.extend(chosen)
    needed, kept = set(wanted), []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed.update(_names_read(node))
    del graph.node[:]
    graph.node.extend(reversed(kept))
    return True


def _names_read(node: onnx.NodeProto) -> set[str]:
    """Values that a node reads, those inside its branches with them."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                names |= _names_read(inner)
            names.update(output.name for output in graph.output)
    return names


def _convert_input(
    model: onnx.ModelProto, image: onnx.ValueInfoProto, size: tuple[int, int], last: bool
) -> bool | None:
    """Put a transposition and a cast before the input; None where none is needed.

    Returns whether its own type is uint8.
    """
    from onnx import TensorProto, helper, numpy_helper

    kind = image.type.tensor_type.elem_type
    alone = len(_shape_of(image)) == 3
    if kind == TensorProto.FLOAT and not last and not alone:
        return None
    taken = _names_of(model)
    inner, name = image.name, _new_name(taken, f"{image.name}_float32")
    steps: list[tuple[str, list[str], dict[str, Any]]] = []
    if last:
        steps.append(("Transpose", [], {"perm": [0, 2, 3, 1]}))
    if alone:
        target = _new_name(taken, f"{inner}_shape")
        shape = numpy_helper.from_array(np.array([3, *size], np.int64), target)
        model.graph.initializer.append(shape)
        steps.append(("Reshape", [target], {}))
    if kind != TensorProto.FLOAT:
        steps.append(("Cast", [], {"to": kind}))
    nodes, value = [], name
    for index, (operator, constants, attributes) in enumerate(steps):
        result = inner if index == len(steps) - 1 else _new_name(taken, f"{inner}_{operator}")
        nodes.append(helper.make_node(operator, [value, *constants], [result], **attributes))
        value = result
    place = list(model.graph.input).index(image)
    model.graph.input.remove(image)
    given = helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 3, *size))
    model.graph.input.insert(place, given)
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
    return bool(kind == TensorProto.UINT8)


def _convert_outputs(model: onnx.ModelProto) -> bool:
    """Put a cast to float32 behind outputs of half precision; True where there are any."""
    from onnx import TensorProto, helper

    found = [
        output
        for output in model.graph.output
        if output.type.tensor_type.elem_type == TensorProto.FLOAT16
    ]
    taken = _names_of(model)
    inner = {output.name: _new_name(taken, f"{output.name}_half") for output in found}
    for node in model.graph.node if found else ():
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name in inner:
                    names[place] = inner[name]
    for output in found:
        cast = helper.make_node("Cast", [inner[output.name]], [output.name], to=TensorProto.FLOAT)
        model.graph.node.append(cast)
        output.type.tensor_type.elem_type = TensorProto.FLOAT
    return bool(found)


def _names_of(model: onnx.ModelProto) -> set[str]:
    """Names of all values of the graph."""
    graph = model.graph
    taken = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    taken.update(value for node in graph.node for value in (*node.input, *node.output))
    return taken


def _new_name(taken: set[str], name: str) -> str:
    """The name, or one like it that is not taken; it is then."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
