"""Models by their names, and every way in which a name or a file can be bad."""

from __future__ import annotations

import pytest
from networks import make_onnx

from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError, ModelError
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.sources import files
from jetson_dnn_rt.models.sources.null import NullOrigin, NullScript
from jetson_dnn_rt.models.sources.registry import load_model


@pytest.mark.parametrize("source", ["", "yolo", "tensorflow:x", "onnx:", ":x", "onnx"])
def test_unknown_source_lists_the_known(source):
    with pytest.raises(ConfigurationError, match="builtin:, onnx:, torchvision:, exported:, null"):
        load_model(source)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kind": "tracking"}, "kind must be one of"),
        ({"input_size": (0, 5)}, "input_size must be"),
        ({"input_size": (5, 100000)}, "input_size must be"),
        ({"preprocessing": {"size": 3}}, "preprocessing.size is unknown"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ConfigurationError, match=words):
        load_model("null:1", **arguments)


@pytest.mark.parametrize("scheme", ["onnx", "exported"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"\x00" * 100, "damaged or no|refused"),
        (b"this is no model" * 50, "damaged or no|refused"),
    ],
)
def test_bad_files_are_named(tmp_path, scheme, content, words):
    path = tmp_path / "model"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=words):
        load_model(f"{scheme}:{path}")


@pytest.mark.parametrize("scheme", ["onnx", "exported"])
def test_a_folder_is_no_model(tmp_path, scheme):
    with pytest.raises(ModelError, match="not a regular file"):
        load_model(f"{scheme}:{tmp_path}")


def test_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_MODEL_BYTES", 100)
    path = make_onnx(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="at most 100"):
        load_model(f"onnx:{path}")


def test_every_error_is_of_the_package():
    for source in ("onnx:/nowhere", "exported:/nowhere", "torchvision:x", "null:x", "builtin:x"):
        with pytest.raises(JetsonDnnRtError):
            load_model(source)


# ---- built in


def test_builtin_names():
    with pytest.raises(ConfigurationError, match="known are"):
        load_model("builtin:classifier")
    with pytest.raises(ConfigurationError, match="takes 240x320 only"):
        load_model("builtin:detector", input_size=(64, 64))


@pytest.mark.parametrize(
    ("name", "head"), [("detector", "boxes_scores"), ("segmenter", "segmentation")]
)
def test_builtin(monkeypatch, name, head):
    monkeypatch.setattr(builtin, "load", lambda name: builtin.build(name).eval())
    model = load_model(f"builtin:{name}")
    assert model.head.name == head
    assert model.labels == builtin.labels(name)
    assert model.preprocessing == Preprocessing(*builtin.INPUT_SIZE[name])


# ---- null


@pytest.mark.parametrize(
    ("text", "times", "spin", "kind"),
    [
        ("10", {"inference": (10_000_000,)}, False, "detection"),
        ("0.5/3", {"inference": (500_000, 3_000_000)}, False, "detection"),
        ("2,segmentation,spin", {"inference": (2_000_000,)}, True, "segmentation"),
        (
            "preprocess=1;inference=2/3;decode=0,classification",
            {"preprocess": (1_000_000,), "inference": (2_000_000, 3_000_000), "decode": (0,)},
            False,
            "classification",
        ),
    ],
)
def test_null(text, times, spin, kind):
    model = load_model(f"null:{text}")
    assert isinstance(model.origin, NullOrigin)
    assert model.origin.script == NullScript(times, spin)
    assert model.kind == kind
    assert model.input_size == (64, 64)
    assert load_model(f"null:{text}", input_size=(240, 320)).input_size == (240, 320)


@pytest.mark.parametrize(
    "text", ["x", "-1", "nan", "inf", "1,tracking", "layer=3", "1/", "preprocess="]
)
def test_bad_null(text):
    with pytest.raises(ConfigurationError, match="null:"):
        load_model(f"null:{text}")
