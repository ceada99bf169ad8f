"""Models from ONNX files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from networks import make_onnx
from onnx import TensorProto

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.labels import COCO_80
from jetson_dnn_rt.models.preprocessing import Preprocessing
from jetson_dnn_rt.models.sources import load_model


def test_yolox(shared_data: Path) -> None:
    model = load_model(f"onnx:{shared_data}/models/yolox_nano.onnx", kind="detection")
    assert model.head.name == "yolox"
    assert "<= 0" in model.head.reason
    assert model.preprocessing == Preprocessing(
        416, 416, "letterbox_topleft", 114, "bgr", scale=1.0
    )
    assert model.labels == COCO_80
    assert model.input_shape == (1, 3, 416, 416)
    assert model.model_hash == ("695e750a5d5754bb5a8d5325643b59282191a7e7a564e435a415fd3c578eab14")


def test_the_head_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    load_model(f"onnx:{make_onnx(tmp_path / 'm.onnx')}")
    assert "head segmentation (5 maps of 8x12)" in caplog.text


def test_truncated_onnx(shared_data: Path, tmp_path: Path) -> None:
    data = (shared_data / "models" / "yolox_nano.onnx").read_bytes()
    for share in (0.001, 0.3, 0.9, 0.999):
        path = tmp_path / "cut.onnx"
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(ModelError, match=r"damaged|cannot be run"):
            load_model(f"onnx:{path}")


def test_wrong_task(tmp_path: Path) -> None:
    path = make_onnx(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="needs a model for detection, this one is for segmen"):
        load_model(f"onnx:{path}", kind="detection")


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"inputs": 2}, "2 inputs"),
        ({"shape": (1, 1, 32, 48)}, r"takes \[1, 1, 32, 48\]"),
        ({"shape": (4, 3, 32, 48)}, r"takes \[4, 3, 32, 48\]"),
        ({"element": TensorProto.FLOAT16}, "takes FLOAT16"),
        ({"shape": (1, 3, "h", "w")}, "input size open"),
    ],
)
def test_inputs_that_are_no_image(tmp_path: Path, form: dict, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        load_model(f"onnx:{make_onnx(tmp_path / 'm.onnx', **form)}")


def test_open_sizes_are_fixed(tmp_path: Path) -> None:
    path = make_onnx(tmp_path / "m.onnx", shape=("n", 3, "h", "w"))
    model = load_model(f"onnx:{path}", input_size=(64, 96))
    assert model.input_shape == (1, 3, 64, 96)
    dimensions = onnx.load_model_from_string(model.onnx_model()).graph.input[0].type.tensor_type
    assert [d.dim_value for d in dimensions.shape.dim] == [1, 3, 64, 96]
    other = load_model(f"onnx:{path}", input_size=(32, 96))
    assert other.model_hash != model.model_hash


def test_fixed_size_cannot_be_changed(tmp_path: Path) -> None:
    path = make_onnx(tmp_path / "m.onnx")
    assert load_model(f"onnx:{path}", input_size=(32, 48)).input_size == (32, 48)
    with pytest.raises(ModelError, match="takes 32x48, input_size says 64x64"):
        load_model(f"onnx:{path}", input_size=(64, 64))


def test_weights_in_other_files_are_refused(tmp_path: Path) -> None:
    model = onnx.load(str(make_onnx(tmp_path / "m.onnx", classes=40)))
    onnx.save(model, str(tmp_path / "e.onnx"), save_as_external_data=True, size_threshold=0)
    with pytest.raises(ModelError, match="single file"):
        load_model(f"onnx:{tmp_path / 'e.onnx'}")


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        ("{0: 'a', 1: 'b', 2: 'c', 3: 'd', 4: 'e'}", ("a", "b", "c", "d", "e")),
        ("__import__('os').system('true')", None),
        ("{0: 'a'}", None),  # too few
        ("(" * 5000, None),
        ("[1, 2", None),
    ],
)
def test_names_in_the_file(tmp_path: Path, names: str, labels: tuple[str, ...] | None) -> None:
    path = make_onnx(tmp_path / "m.onnx", metadata={"names": names})
    assert load_model(f"onnx:{path}").labels == (labels or tuple(f"class_{i}" for i in range(5)))
    assert load_model(f"onnx:{path}", labels=list("vwxyz")).labels == tuple("vwxyz")


def test_onnx_as_torch_agrees(shared_data: Path) -> None:
    import onnxruntime

    model = load_model(f"onnx:{shared_data}/models/yolox_nano.onnx")
    image = np.random.default_rng(0).uniform(0, 255, model.input_shape).astype(np.float32)
    session = onnxruntime.InferenceSession(model.onnx_model(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {session.get_inputs()[0].name: image})[0]
    with torch.inference_mode():
        found = model.torch_module()(torch.from_numpy(image))
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-3)
