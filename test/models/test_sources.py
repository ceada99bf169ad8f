# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Models by their names, and every way in which a name or a file can be bad."""

from __future__ import annotations

import pytest
from networks import make_onnx

from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.sources import files
from jetson_dnn_rt.models.sources.null import NullOrigin, NullScript
from jetson_dnn_rt.models.sources.registry import load_model

KNOWN = "builtin:, onnx:, torchvision:, exported:, null"


@pytest.mark.parametrize(
    ("source", "arguments", "words"),
    [
        *((source, {}, KNOWN) for source in ("", "yolo", "tensorflow:x", "onnx:", ":x", "onnx")),
        ("null:1", {"kind": "tracking"}, "kind must be one of"),
        ("null:1", {"input_size": (0, 5)}, "input_size must be"),
        ("null:1", {"input_size": (5, 100000)}, "input_size must be"),
        ("null:1", {"preprocessing": {"size": 3}}, "preprocessing.size is unknown"),
        ("builtin:classifier", {}, "known are"),
        ("builtin:detector", {"input_size": (64, 64)}, "takes 240x320 only"),
        ("torchvision:yolov5s", {}, "ssdlite320_mobilenet_v3_large"),
        *((f"null:{text}", {}, f"null:{text}: ") for text in ("x", "-1", "nan", "inf", "layer=3")),
        *((f"null:{text}", {}, f"null:{text}: ") for text in ("1,tracking", "1/", "preprocess=")),
    ],
)
def test_bad_arguments_are_named(source, arguments, words):
    with pytest.raises(ConfigurationError, match=words):
        load_model(source, **arguments)


@pytest.mark.parametrize("scheme", ["onnx", "exported"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"\x00" * 100, "damaged or no|refused"),
        (b"this is no model" * 50, "damaged or no|refused"),
        ("a folder", "not a regular file"),
    ],
)
def test_bad_files_are_named(tmp_path, scheme, content, words):
    path = tmp_path / "model"
    if content == "a folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=words):
        load_model(f"{scheme}:{path}")


def test_too_large_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_MODEL_BYTES", 100)
    path = make_onnx(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="at most 100"):
        load_model(f"onnx:{path}")


@pytest.mark.parametrize(
    ("name", "head"), [("detector", "boxes_scores"), ("segmenter", "segmentation")]
)
def test_builtin(name, head):
    model = load_model(f"builtin:{name}")
    assert model.head.name == head
    assert model.labels == builtin.labels(name)
    assert model.preprocessing == Preprocessing(*builtin.INPUT_SIZE[name])


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
