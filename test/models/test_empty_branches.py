# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Branches that return an empty list, in every form: read alike by OpenVINO and ONNX Runtime."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.models.graph.empty_branches import compute_empty_lists

INT64, INT32, FLOAT = TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT
TYPES = {INT64: np.int64, INT32: np.int32, FLOAT: np.float32}


def constant(name, kind=INT64):
    value = numpy_helper.from_array(np.zeros(0, TYPES[kind]))
    return helper.make_node("Constant", [], [name], value=value)


def listed(name, attribute, kind):
    node = helper.make_node("Constant", [], [name])
    node.attribute.append(helper.make_attribute(attribute, [], attr_type=kind))
    return node


def initializer(name):
    return numpy_helper.from_array(np.zeros(0, np.int64), name)


def copy(source, name):
    return helper.make_node("Identity", [source], [name])


def cast(source, name, kind=INT64):
    return helper.make_node("Cast", [source], [name], to=kind)


def make_branch(name, nodes, weights=(), kind=INT64):
    """Make a graph whose output has the graph's name."""
    output = helper.make_tensor_value_info(name, kind, [None])
    return helper.make_graph(nodes, name, [], [output], initializer=weights)


def first(name, kind=INT64):
    """Make the branch that keeps the first value."""
    zero = helper.make_tensor("zero", kind, [1], [0])
    return make_branch(name, [helper.make_node("Constant", [], [name], value=zero)], kind=kind)


def branch_off(none, name="keep", kind=INT64):
    """Make the ``If`` that keeps nothing of a dark row, and of others the first value."""
    other = first(f"{name}_one", kind)
    return helper.make_node("If", ["is_dark"], [name], then_branch=none, else_branch=other)


def make_model(branch, nodes=(), weights=()):
    """Make a network that gives the first of four values, and of a dark row none."""
    graph = helper.make_graph(
        [
            helper.make_node("ReduceMax", ["row"], ["brightest"], keepdims=0),
            helper.make_node("Constant", [], ["half"], value_float=0.5),
            helper.make_node("Less", ["brightest", "half"], ["is_dark"]),
            *nodes,
            branch,
            cast("keep", "index"),
            helper.make_node("Gather", ["row", "index"], ["kept"], axis=0),
        ],
        "network",
        [helper.make_tensor_value_info("row", FLOAT, [4])],
        [helper.make_tensor_value_info("kept", FLOAT, [None])],
        initializer=weights,
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def make_nested():
    """Make a branch inside a branch that returns its constant, as the outer one does."""
    inner = branch_off(make_branch("inner", [copy("none", "inner")]), "chosen")
    return make_model(branch_off(make_branch("none", [constant("none"), inner])))


def make_nested_alone():
    """Make a branch inside a branch that returns a constant of the network."""
    inner = branch_off(make_branch("inner", [copy("empty", "inner")]), "chosen")
    outer = make_branch("chosen_too", [inner, copy("chosen", "chosen_too")])
    return make_model(branch_off(outer), [constant("empty")])


def make_simple(nodes=(), weights=(), kind=INT64):
    return make_model(branch_off(make_branch("none", nodes, weights, kind), kind=kind))


def copied_branch(source):
    return branch_off(make_branch("none", [copy(source, "none")]))


WRONG = {
    "constant": make_simple([constant("none")]),
    "constant, float": make_simple([constant("none", FLOAT)], kind=FLOAT),
    "initializer": make_simple(weights=[initializer("none")]),
    "constant, copied": make_simple([constant("empty"), copy("empty", "none")]),
    "constant, copied twice": make_simple(
        [constant("empty"), copy("empty", "same"), copy("same", "none")]
    ),
    "initializer, copied": make_simple([copy("empty", "none")], [initializer("empty")]),
    "constant, cast": make_simple([constant("empty", INT32), cast("empty", "none")]),
    "constant around": make_model(copied_branch("empty"), [constant("empty")]),
    "constant around, copied": make_model(
        copied_branch("same"), [constant("empty"), copy("empty", "same")]
    ),
    "initializer around": make_model(copied_branch("empty"), weights=[initializer("empty")]),
    "in a branch and one inside": make_nested(),
    "only in a branch inside": make_nested_alone(),
}
RIGHT = {
    "ints": make_simple([listed("none", "value_ints", AttributeProto.INTS)]),
    "floats": make_simple([listed("none", "value_floats", AttributeProto.FLOATS)], kind=FLOAT),
}


def run(backend, data):
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    part = SimpleNamespace(
        name="branches", input_shapes=((4,),), inner_outputs=(), onnx_model=lambda: data
    )
    runner = create_runner(part, backend, "fp32", threads=1)
    rows = np.array([[0.1, 0.2, 0.1, 0.1], [0.9, 0.1, 0.1, 0.1], [0.0] * 4], np.float32)
    outputs = [runner.run([row])[0].tolist() for row in rows]
    runner.close()
    return outputs


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("form", [*WRONG, *RIGHT])
def test_every_form_of_an_empty_list_is_empty(form, backend):
    one = pytest.approx(0.9)
    assert run(backend, (WRONG | RIGHT)[form]) == [[], [one], []]


@pytest.mark.parametrize("form", WRONG)
def test_what_is_written_is_a_network_that_says_the_same(form):
    data = compute_empty_lists(WRONG[form])
    assert data is not WRONG[form]
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    assert run("onnxruntime", data) == run("onnxruntime", WRONG[form])
    assert compute_empty_lists(data) is data


def test_no_name_is_given_twice():
    taken = [constant("none_shape"), constant("none_shape1"), constant("none")]
    data = compute_empty_lists(make_simple(taken))
    onnx.checker.check_model(onnx.load_from_string(data))
    (branch,) = [
        attribute.g
        for node in onnx.load_from_string(data).graph.node
        for attribute in node.attribute
        if attribute.name == "then_branch"
    ]
    outputs = [name for node in branch.node for name in node.output]
    assert outputs == ["none_shape2", "none", "none_shape", "none_shape1"]


def empty_text():
    text = helper.make_tensor("text", TensorProto.STRING, [0], [])
    none = make_branch(
        "none", [helper.make_node("Constant", [], ["none"], value=text)], kind=TensorProto.STRING
    )
    some = helper.make_tensor("text", TensorProto.STRING, [1], [b"0"])
    other = make_branch(
        "one", [helper.make_node("Constant", [], ["one"], value=some)], kind=TensorProto.STRING
    )
    return helper.make_node("If", ["is_dark"], ["keep"], then_branch=none, else_branch=other)


def unused_empty():
    """Make a branch that returns what it resized, without a region of interest."""
    factor = numpy_helper.from_array(np.ones(1, np.float32))
    none = make_branch(
        "none",
        [
            constant("region", FLOAT),
            helper.make_node("Constant", [], ["factor"], value=factor),
            helper.make_node("Resize", ["row", "region", "factor"], ["none"]),
        ],
        kind=FLOAT,
    )
    return branch_off(none, kind=FLOAT)


def empty_loop():
    """Make a loop that returns an empty list, after a branch that does not."""
    scalars = [("i", INT64), ("more", TensorProto.BOOL)]
    body = helper.make_graph(
        [copy("more", "more_too"), constant("none")],
        "body",
        [
            *(helper.make_tensor_value_info(name, kind, []) for name, kind in scalars),
            helper.make_tensor_value_info("before", INT64, [None]),
        ],
        [
            helper.make_tensor_value_info("more_too", TensorProto.BOOL, []),
            helper.make_tensor_value_info("none", INT64, [None]),
        ],
    )
    return helper.make_node("Loop", ["", "is_dark", "start"], ["keep"], body=body)


@pytest.mark.parametrize(
    ("branch", "nodes"),
    [
        (empty_text(), []),
        (unused_empty(), []),
        (branch_off(first("zero")), []),
        (empty_loop(), [branch_off(first("zero"), "start")]),
    ],
    ids=["text", "unused", "full", "loop"],
)
def test_others_stay_as_they_are(branch, nodes):
    data = make_model(branch, nodes)
    assert compute_empty_lists(data) is data


@pytest.mark.parametrize("form", RIGHT)
def test_forms_that_are_read_right_stay_as_they_are(form):
    assert compute_empty_lists(RIGHT[form]) is RIGHT[form]
