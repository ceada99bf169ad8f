"""The lists of operators: the file in config says what the code does, and faults are named."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.graph.mixed_precision import (
    DEFAULT,
    Colours,
    convert_to_fp16,
    read_colours,
)

FILE = Path(__file__).resolve().parents[2] / "config" / "amp.yaml"
GOOD = {"allow": ["Conv"], "follow": ["Relu", "Add"], "deny": ["Exp"]}


def write(folder: Path, content: object) -> str:
    path = folder / "amp.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(path)


def test_the_file_in_config_holds_the_defaults() -> None:
    assert read_colours(str(FILE)) == DEFAULT
    assert read_colours("") is DEFAULT


def test_every_list_comes_from_the_file(tmp_path: Path) -> None:
    found = read_colours(write(tmp_path, GOOD))
    assert found == Colours(frozenset({"Conv"}), frozenset({"Relu", "Add"}), frozenset({"Exp"}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"allow": ["Conv", "Convolution"]}, "'allow' has 'Convolution', which is no operator"),
        ({"allow": ["conv"]}, "'allow' has 'conv', which is no operator: write Conv"),
        ({"deny": ["Relu"]}, "'follow' and 'deny' both have 'Relu': leave it in one"),
        ({"follow": ["Relu", "Add", "Relu"]}, "'follow' has 'Relu' twice"),
        ({"allow": "Conv"}, "'allow' must be a list of operators, not 'Conv'"),
        ({"deny": None}, "'deny' must be a list of operators, not None: write [] for none"),
        ({"allow": [True]}, "'allow' has True, which is no name"),
        ({"accept": []}, "'accept' is none"),
    ],
)
def test_faults_are_named(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = write(tmp_path, {**GOOD, **change})
    with pytest.raises(ConfigurationError, match=re.escape(said)) as error:
        read_colours(path)
    assert path in str(error.value)


def test_a_list_that_is_missing_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, {"allow": [], "deny": []})
    with pytest.raises(ConfigurationError, match=r"'follow' is missing.*copy config/amp\.yaml"):
        read_colours(path)


@pytest.mark.parametrize("text", ["[Conv]", "allow: [", "!!python/object:os.system {}", ""])
def test_what_is_no_such_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "amp.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=re.escape(str(path))):
        read_colours(str(path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.yaml"):
        read_colours(str(tmp_path / "none.yaml"))


def test_the_text_for_keys_says_what_is_computed() -> None:
    assert DEFAULT.text == ""
    fewer = Colours(DEFAULT.allow, DEFAULT.follow - {"Sigmoid"}, DEFAULT.deny)
    assert re.fullmatch("amp-[0-9a-f]{12}", fewer.text)
    # An operator in no list is denied.
    named = Colours(DEFAULT.allow, DEFAULT.follow - {"Sigmoid"}, DEFAULT.deny | {"Sigmoid"})
    assert named.text == fewer.text
    moved = Colours(DEFAULT.allow | {"Sigmoid"}, DEFAULT.follow - {"Sigmoid"}, DEFAULT.deny)
    assert moved.text not in ("", fewer.text)


def make_net() -> bytes:
    shape = (1, 2, 4, 4)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Exp", ["b"], ["y"], name="exp"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.full((2, 2, 1, 1), 0.5, np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.ModelProto.SerializeToString(model)


@pytest.mark.parametrize(
    ("allow", "follow", "fp16"),
    [
        ("Conv", "Relu", ("conv", "relu")),
        ("Conv", "", ("conv",)),
        ("", "Conv Relu", ()),  # nothing is FP16 that could be followed
        ("Conv Exp", "Relu", ("conv", "relu", "exp")),
        ("Exp", "Relu", ("exp",)),
    ],
)
def test_networks_are_converted_by_the_colours(
    allow: str, follow: str, fp16: tuple[str, ...]
) -> None:
    colours = Colours(frozenset(allow.split()), frozenset(follow.split()), frozenset())
    mixed = convert_to_fp16(make_net(), colours)
    assert mixed.fp16 == fp16
    assert set(mixed.fp32) == {"conv", "relu", "exp"} - set(fp16)
    onnx.checker.check_model(onnx.load_model_from_string(mixed.onnx), full_check=True)
