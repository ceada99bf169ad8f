# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What is computed in FP16, what never, and that the result is a right network."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_parts import make_part, node

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.models.graph.folded_norms import fold_norms
from jetson_dnn_rt.models.graph.mixed_precision import (
    ALLOW,
    DEFAULT,
    DENY,
    FOLLOW,
    Colours,
    convert_to_fp16,
    explain_unfit,
    read_colours,
)
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.models.sources.torch import run_onnx

SHAPE = (1, 4, 8, 8)


def make_net(nodes, constants, outputs=("y",)):
    """Nodes from ``x`` [1, 4, 8, 8] to outputs of any shape."""
    kinds = dict.fromkeys(outputs, TensorProto.FLOAT)
    return make_part(nodes, constants, {"x": SHAPE}, kinds).data


def weight(*shape, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 0.2).astype(np.float32)


def element_types(data):
    model = onnx.shape_inference.infer_shapes(
        onnx.load_model_from_string(data), strict_mode=True, check_type=True
    )
    values = [*model.graph.input, *model.graph.value_info, *model.graph.output]
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {tensor.name: tensor.data_type for tensor in model.graph.initializer}


def check(data):
    """Everything that holds of every conversion."""
    mixed = convert_to_fp16(data)
    before, after = (onnx.load_model_from_string(d) for d in (data, mixed.onnx))
    onnx.checker.check_model(after, full_check=True)
    kept = [
        [(v.name, v.type.tensor_type.elem_type) for v in (*m.graph.input, *m.graph.output)]
        for m in (before, after)
    ]
    assert kept[0] == kept[1]
    types = element_types(mixed.onnx)
    for entry in after.graph.node:
        if entry.op_type not in ALLOW | FOLLOW | {"Cast", "Shape"}:
            used = {types.get(name) for name in (*entry.input, *entry.output) if name}
            assert TensorProto.FLOAT16 not in used, f"{entry.op_type} computes in fp16"
    casts = [entry for entry in after.graph.node if entry.op_type == "Cast"]
    assert mixed.casts == len(casts) - sum(n.op_type == "Cast" for n in before.graph.node)
    assert len({(entry.input[0], entry.attribute[0].i) for entry in casts}) == len(casts)
    again = convert_to_fp16(mixed.onnx)
    assert again.onnx == mixed.onnx
    assert again.casts == 0
    return mixed


def run(data, image):
    """Node by node in the types that are written there, which ONNX Runtime may not do."""
    return ReferenceEvaluator(onnx.load_model_from_string(data)).run(None, {"x": image})


def assert_close(data, mixed, image):
    for one, other in zip(run(data, image), run(mixed.onnx, image), strict=True):
        assert other.dtype == np.float32
        np.testing.assert_allclose(other, one, atol=0.02 * max(1.0, float(np.abs(one).max())))


def make_image(seed=1):
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def test_every_operator_has_one_colour_and_exists():
    assert len(ALLOW | FOLLOW | DENY) == len(ALLOW) + len(FOLLOW) + len(DENY)
    assert all(map(onnx.defs.has, ALLOW | FOLLOW | DENY))


def test_follow_takes_the_colour_of_what_reaches_it():
    data = make_net(
        [
            node("Relu", "x", "early"),  # of the image: fp32
            node("Conv", "early w", "a"),
            node("Relu", "a", "b"),
            node("Sigmoid", "b", "c"),
            node("Exp", "c", "d"),
            node("Add", "d b", "e"),  # of both: fp32
            node("Mul", "e two", "y"),
        ],
        {"w": weight(4, 4, 1, 1), "two": np.float32([2.0])},
    )
    mixed = check(data)
    assert mixed.fp16 == ("Conv_a", "Relu_b", "Sigmoid_c")
    assert mixed.fp32 == ("Relu_early", "Exp_d", "Add_e", "Mul_y")
    assert mixed.casts == 3  # into Conv, out of Relu for Add, out of Sigmoid
    assert_close(data, mixed, make_image())


def test_a_weight_that_both_precisions_use_is_there_in_both():
    data = make_net(
        [node("MatMul", "x w", "a"), node("Exp", "w", "b"), node("Add", "a b", "y")],
        {"w": weight(8, 8)},
    )
    mixed = check(data)
    types = {t.data_type for t in onnx.load_model_from_string(mixed.onnx).graph.initializer}
    assert types == {TensorProto.FLOAT, TensorProto.FLOAT16}


def test_an_output_that_is_also_used_inside():
    data = make_net(
        [node("Conv", "x w", "y"), node("Relu", "y", "r"), node("Conv", "r w", "z")],
        {"w": weight(4, 4, 1, 1)},
        ("y", "z"),
    )
    mixed = check(data)
    assert (len(mixed.fp16), mixed.casts) == (3, 3)  # the image, and both outputs


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([70000.0, 1.0], "ends at 65504"),
        ([1e-9, 2e-9], "too small"),
        ([65504.0, 1e-9], ""),
        ([-np.inf, 0.0], ""),
        ([], ""),
    ],
)
def test_what_fp16_cannot_hold(values, reason):
    found = explain_unfit(np.float32(values))
    assert reason in found
    assert bool(reason) == bool(found)


@pytest.mark.parametrize("value", [1e6, 1e-9])
def test_weights_out_of_range_keep_their_operator_in_fp32(value, caplog):
    wide = np.full((4, 4, 1, 1), value, np.float32)
    nodes = [node("Conv", "x wide", "a"), node("Conv", "a w", "y")]
    data = make_net(nodes, {"wide": wide, "w": weight(4, 4, 1, 1)})
    with caplog.at_level(logging.WARNING):
        mixed = check(data)
    assert (mixed.fp16, list(mixed.kept)) == (("Conv_y",), ["Conv 'Conv_a'"])
    assert "Conv 'Conv_a' stays in fp32: a constant" in caplog.text


@pytest.mark.parametrize(("constant", "fp16"), [(6.0, True), (64.0, True), (320.0, False)])
def test_arithmetic_in_pixels_stays_in_fp32(constant, fp16):
    data = make_net(
        [node("Conv", "x w", "a"), node("Add", "a c", "y")],
        {"w": weight(4, 4, 1, 1), "c": np.float32([constant])},
    )
    assert ("Add_y" in check(data).fp16) == fp16


def test_inputs_that_are_fp32_by_definition():
    """The scales of Resize, and the boxes of NonMaxSuppression, may not become fp16."""
    data = make_net(
        [
            node("Conv", "x w", "a"),
            helper.make_node("Resize", ["a", "", "scales"], ["b"], name="Resize_b"),
            node("Reshape", "b boxes_shape", "boxes"),
            node("Reshape", "b scores_shape", "scores"),
            node("NonMaxSuppression", "boxes scores ten", "chosen"),
            node("Cast", "chosen", "y", to=TensorProto.FLOAT),
        ],
        {
            "w": weight(4, 4, 1, 1),
            "scales": np.float32([1, 1, 2, 2]),
            "boxes_shape": np.int64([1, 256, 4]),
            "scores_shape": np.int64([1, 4, 256]),
            "ten": np.int64([10]),
        },
    )
    mixed = check(data)
    assert "Resize_b" in mixed.fp16
    assert mixed.casts == 3


def test_subgraphs_keep_what_they_name():
    """Both branches read ``a``, which fp16 gives, from the graph around them."""
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    then, otherwise = (
        helper.make_graph([helper.make_node(kind, ["a"], ["out"])], kind, [], [out])
        for kind in ("Exp", "Neg")
    )
    choice = node("If", "yes", "b", then_branch=then, else_branch=otherwise)
    nodes = [node("Conv", "x w", "a"), choice, node("Add", "a b", "y")]
    data = make_net(nodes, {"w": weight(4, 4, 1, 1), "yes": np.array(True)})
    mixed = check(data)
    assert mixed.fp16 == ("Conv_a",)
    assert_close(data, mixed, make_image())


def test_operators_of_other_domains_get_what_they_got():
    graph = helper.make_graph(
        [
            node("Conv", "x w", "a"),
            helper.make_node("Strange", ["a"], ["b"], domain="com.example"),
            node("Relu", "b", "y"),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
        [numpy_helper.from_array(weight(4, 4, 1, 1), "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    mixed = convert_to_fp16(model.SerializeToString())
    nodes = {n.op_type: n for n in onnx.load_model_from_string(mixed.onnx).graph.node}
    maker = next(n for n in nodes.values() if list(n.output) == list(nodes["Strange"].input))
    assert (maker.op_type, maker.attribute[0].i) == ("Cast", TensorProto.FLOAT)


def test_no_model():
    with pytest.raises(ModelError, match="cannot be read"):
        convert_to_fp16(b"no model")


ATTRIBUTES = {
    "Softmax": {"axis": 1},
    "MaxPool": {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [1, 1]},
}  # fmt: skip


@st.composite
def networks(draw):
    """Chains with branches; all values have the shape of the image, and stay small."""
    kinds = ["Conv", "Relu", "Sigmoid", "Exp", "Add", "Mul", "Concat", "Mean", *ATTRIBUTES]
    names, nodes = ["x"], []
    constants = {"w": weight(4, 4, 1, 1), "w2": weight(4, 8, 1, 1), "c": np.float32([0.5])}
    for index in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(kinds))
        one, other = draw(st.sampled_from(names)), draw(st.sampled_from([*names, "c"]))
        out = f"v{index}"
        if kind == "Conv":
            nodes.append(node("Conv", f"{one} w", out))
        elif kind in ("Add", "Mul"):
            nodes.append(node(kind, f"{one} {other}", out))
        elif kind == "Exp":  # of something at most 1
            nodes += [node("Sigmoid", one, f"{out}s"), node("Exp", f"{out}s", out)]
        elif kind == "Concat":
            second = other if other != "c" else one
            nodes.append(node("Concat", f"{one} {second}", f"{out}c", axis=1))
            nodes.append(node("Conv", f"{out}c w2", out))
        elif kind == "Mean":
            nodes += [node("GlobalAveragePool", one, f"{out}m"), node("Add", f"{one} {out}m", out)]
        else:
            nodes.append(node(kind, one, out, **ATTRIBUTES.get(kind, {})))
        names.append(out)
    produced = names[1:]
    outputs = draw(st.lists(st.sampled_from(produced), min_size=1, max_size=2, unique=True))
    return make_net(nodes, constants, tuple({*outputs, produced[-1]}))


@settings(max_examples=60)
@given(networks(), st.integers(0, 100))
def test_random_networks(data, seed):
    assert_close(data, check(data), make_image(seed))


def compare_on_onnxruntime(data, image, tolerance):
    mixed = check(data)
    for one, other in zip(
        run_onnx(data, [image], "it"), run_onnx(mixed.onnx, [image], "it"), strict=True
    ):
        assert other.dtype == one.dtype
        gap = float(np.abs(one - other).max()) / max(1.0, float(np.abs(one).max()))
        assert 0 < gap < tolerance
    return mixed


@pytest.mark.parametrize("name", ["detector", "segmenter"])
def test_builtin_models(name):
    model = load_model(f"builtin:{name}")
    image = np.random.default_rng(0).random(model.input_shape, np.float32)
    data = fold_norms(model.onnx_model())
    mixed = compare_on_onnxruntime(data, image, 0.01)
    assert all("coarse" in reason for reason in mixed.kept.values())
    assert len(mixed.onnx) < 0.55 * len(data)
    kinds = {n.name: n.op_type for n in onnx.load_model_from_string(data).graph.node}
    assert sum(kinds[name] == "Conv" for name in mixed.fp16) == list(kinds.values()).count("Conv")
    assert {"Exp", "Softmax", "ReduceSum"}.isdisjoint(kinds[name] for name in mixed.fp16)


def test_yolox(shared_data):
    data = (shared_data / "models" / "yolox_nano.onnx").read_bytes()
    image = np.random.default_rng(0).random((1, 3, 416, 416), np.float32) * 255
    mixed = compare_on_onnxruntime(data, image, 0.05)
    assert len(mixed.fp16) > 300
    assert mixed.casts <= 4


FILE = Path(__file__).resolve().parents[2] / "config" / "amp.yaml"

GOOD = {"allow": ["Conv"], "follow": ["Relu", "Add"], "deny": ["Exp"]}


def write(folder, text):
    path = folder / "amp.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_file_in_config_holds_the_defaults():
    assert read_colours(str(FILE)) == DEFAULT
    assert read_colours("") is DEFAULT


def test_every_list_comes_from_the_file(tmp_path):
    found = read_colours(write(tmp_path, yaml.safe_dump(GOOD)))
    assert found == Colours(*(frozenset(names) for names in GOOD.values()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"allow": ["Conv", "Convolution"]},
            "'allow' has 'Convolution', which is not an operator",
        ),
        ({"allow": ["conv"]}, "'allow' has 'conv', which is not an operator: write Conv"),
        ({"deny": ["Relu"]}, "'follow' and 'deny' both have 'Relu': leave it in one"),
        ({"follow": ["Relu", "Add", "Relu"]}, "'follow' has 'Relu' twice"),
        ({"allow": "Conv"}, "'allow' must be a list of operators, not 'Conv'"),
        ({"deny": None}, "'deny' must be a list of operators, not None: write [] for none"),
        ({"allow": [True]}, "'allow' has True, which is not the name"),
        ({"accept": []}, "'accept' is none"),
        ("allow: []\ndeny: []", "'follow' is missing); copy config/amp.yaml and change that"),
        *((text, "") for text in ("[Conv]", "allow: [", "!!python/object:os.system {}", "")),
    ],
)
def test_faults_are_named(tmp_path, change, said):
    text = change if isinstance(change, str) else yaml.safe_dump({**GOOD, **change})
    path = write(tmp_path, text)
    with pytest.raises(ConfigurationError, match=re.escape(said)) as error:
        read_colours(path)
    assert path in str(error.value)
    with pytest.raises(ConfigurationError, match=r"none\.yaml"):
        read_colours(str(tmp_path / "none.yaml"))


def test_the_text_for_keys_says_what_is_computed():
    assert DEFAULT.text == ""
    fewer = Colours(DEFAULT.allow, DEFAULT.follow - {"Sigmoid"}, DEFAULT.deny)
    assert re.fullmatch("amp-[0-9a-f]{12}", fewer.text)
    # An operator in no list is denied.
    named = Colours(DEFAULT.allow, DEFAULT.follow - {"Sigmoid"}, DEFAULT.deny | {"Sigmoid"})
    assert named.text == fewer.text
    moved = Colours(DEFAULT.allow | {"Sigmoid"}, DEFAULT.follow - {"Sigmoid"}, DEFAULT.deny)
    assert moved.text not in ("", fewer.text)


@pytest.mark.parametrize(
    ("allow", "follow", "fp16"),
    [
        ("Conv", "Relu", ("Conv_a", "Relu_b")),
        ("Conv", "", ("Conv_a",)),
        ("", "Conv Relu", ()),  # nothing is FP16 that could be followed
        ("Conv Exp", "Relu", ("Conv_a", "Relu_b", "Exp_y")),
        ("Exp", "Relu", ("Exp_y",)),
    ],
)
def test_networks_are_converted_by_the_colours(allow, follow, fp16):
    colours = Colours(frozenset(allow.split()), frozenset(follow.split()), frozenset())
    nodes = [node("Conv", "x w", "a"), node("Relu", "a", "b"), node("Exp", "b", "y")]
    mixed = convert_to_fp16(make_net(nodes, {"w": weight(4, 4, 1, 1)}), colours)
    assert mixed.fp16 == fp16
    assert set(mixed.fp32) == {"Conv_a", "Relu_b", "Exp_y"} - set(fp16)
    onnx.checker.check_model(onnx.load_model_from_string(mixed.onnx), full_check=True)
