"""Models from every source, and every way in which one can be bad."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from urllib.error import URLError

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
from networks import Classifier, make_model, make_onnx
from onnx import TensorProto

from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError, ModelError
from jetson_dnn_rt.models import builtin, files
from jetson_dnn_rt.models.labels import COCO_80, COCO_91
from jetson_dnn_rt.models.null_source import NullOrigin, NullScript
from jetson_dnn_rt.models.preprocessing import Preprocessing
from jetson_dnn_rt.models.sources import load_model
from jetson_dnn_rt.models.torch_source import TorchOrigin


class Malicious:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


# ---- any source


@pytest.mark.parametrize("source", ["", "yolo", "tensorflow:x", "onnx:", ":x", "onnx"])
def test_unknown_source_lists_the_known(source: str) -> None:
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
def test_bad_arguments_are_named(arguments: dict, words: str) -> None:
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
def test_bad_files_are_named(
    tmp_path: Path, scheme: str, content: bytes | None, words: str
) -> None:
    path = tmp_path / "model"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=words):
        load_model(f"{scheme}:{path}")


@pytest.mark.parametrize("scheme", ["onnx", "exported"])
def test_a_folder_is_no_model(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(ModelError, match="not a regular file"):
        load_model(f"{scheme}:{tmp_path}")


def test_too_large_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_MODEL_BYTES", 100)
    path = make_onnx(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="at most 100"):
        load_model(f"onnx:{path}")


# ---- ONNX


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


# ---- built in


def test_builtin_names() -> None:
    with pytest.raises(ConfigurationError, match="known are"):
        load_model("builtin:classifier")
    with pytest.raises(ConfigurationError, match="takes 240x320 only"):
        load_model("builtin:detector", input_size=(64, 64))


@pytest.mark.parametrize(
    ("name", "head"), [("detector", "boxes_scores"), ("segmenter", "segmentation")]
)
def test_builtin(monkeypatch: pytest.MonkeyPatch, name: str, head: str) -> None:
    monkeypatch.setattr(builtin, "load", lambda name: builtin.build(name).eval())
    model = load_model(f"builtin:{name}")
    assert model.head.name == head
    assert model.labels == builtin.labels(name)
    assert model.preprocessing == Preprocessing(*builtin.INPUT_SIZE[name])


# ---- torchvision


def test_torchvision_random_weights_are_the_same_each_time() -> None:
    state = torch.random.get_rng_state()
    one = load_model("torchvision:mobilenet_v3_small", weights="none", kind="classification")
    other = load_model("torchvision:mobilenet_v3_small", weights="none")
    assert torch.equal(state, torch.random.get_rng_state())
    assert one.model_hash == other.model_hash
    assert (one.kind, one.input_size, len(one.labels)) == ("classification", (224, 224), 1000)
    assert one.preprocessing.resize == "stretch"
    assert one.preprocessing.mean == (0.485, 0.456, 0.406)


def test_torchvision_detector() -> None:
    model = load_model("torchvision:ssdlite320_mobilenet_v3_large", weights="none")
    assert (model.head.name, model.input_size) == ("torchvision", (320, 320))
    assert model.labels == COCO_91
    assert model.preprocessing.mean == model.preprocessing.std == (0.5, 0.5, 0.5)


def test_torchvision_detector_is_what_torchvision_computes() -> None:
    """Its own resize and normalisation were taken out: the boxes must be the same."""
    from torchvision.models import get_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = get_model(
            "ssdlite320_mobilenet_v3_large", weights=None, weights_backbone=None
        ).eval()
    image = torch.rand(3, 320, 320, generator=torch.Generator().manual_seed(5))
    ours = load_model("torchvision:ssdlite320_mobilenet_v3_large", weights="none")
    with torch.inference_mode():
        expected = theirs([image])[0]
        boxes, labels, scores = ours.torch_module()(((image - 0.5) / 0.5)[None])
    torch.testing.assert_close(boxes, expected["boxes"])
    torch.testing.assert_close(scores, expected["scores"])
    assert torch.equal(labels, expected["labels"])


def test_torchvision_weights_from_a_file(tmp_path: Path) -> None:
    from torchvision.models import get_model

    names = ["car", "truck", "van"]
    module = get_model("mobilenet_v3_small", weights=None, num_classes=3)
    torch.save(module.state_dict(), tmp_path / "w.pth")
    torch.save({"state_dict": module.state_dict(), "epoch": 3}, tmp_path / "checkpoint.pth")
    safetensors.torch.save_file(module.state_dict(), tmp_path / "w.safetensors")
    models = [
        load_model("torchvision:mobilenet_v3_small", weights=str(path), labels=names)
        for path in sorted(tmp_path.iterdir())
    ]
    assert len(models) == 3
    assert len({model.model_hash for model in models}) == 1
    assert models[0].labels == tuple(names)
    image = torch.rand(1, 3, 224, 224)
    with torch.inference_mode():
        torch.testing.assert_close(models[0].torch_module()(image), module.eval()(image))


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_weights_that_do_not_fit(tmp_path: Path, name: str) -> None:
    from torchvision.models import get_model

    source = "torchvision:mobilenet_v3_small"
    save = safetensors.torch.save_file if name.endswith("safetensors") else torch.save
    path = tmp_path / name

    save(get_model("mobilenet_v3_small", weights=None, num_classes=3).state_dict(), path)
    with pytest.raises(ModelError, match=r"of another network: size mismatch.*give labels"):
        load_model(source, weights=str(path))
    save(Classifier().state_dict(), path)
    with pytest.raises(ModelError, match=r"of another network: \d+ names differ"):
        load_model(source, weights=str(path))
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(ModelError, match="damaged"):
        load_model(source, weights=str(path))
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="is empty"):
        load_model(source, weights=str(path))
    path.unlink()
    with pytest.raises(ModelError, match="does not exist"):
        load_model(source, weights=str(path))


def test_pickled_code_is_refused_and_not_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    source = "torchvision:mobilenet_v3_small"
    torch.save({"weight": torch.zeros(3), "extra": Malicious(trap)}, tmp_path / "w.pth")
    (tmp_path / "raw.pth").write_bytes(pickle.dumps(Malicious(trap)))
    torch.save(Classifier(), tmp_path / "module.pth")
    for name in ("w.pth", "raw.pth", "module.pth"):
        with pytest.raises(ModelError, match="refused, the file holds more than tensors"):
            load_model(source, weights=str(tmp_path / name))
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ModelError, match="no state dictionary"):
        load_model(source, weights=str(tmp_path / "list.pth"))
    assert not trap.exists()


def test_default_weights_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **keywords: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    with pytest.raises(ModelError, match=r"cannot be fetched .*no route.*mobilenet_v3_small"):
        load_model("torchvision:mobilenet_v3_small")


def test_default_weights_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.models import MobileNet_V3_Small_Weights, get_model

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    path = folder / MobileNet_V3_Small_Weights.DEFAULT.url.rsplit("/", 1)[1]
    module = get_model("mobilenet_v3_small", weights=None)
    torch.save(module.state_dict(), path)
    model = load_model("torchvision:mobilenet_v3_small")
    assert model.labels[0] == "tench"
    image = torch.rand(1, 3, 224, 224)
    with torch.inference_mode():
        torch.testing.assert_close(model.torch_module()(image), module.eval()(image))
    torch.save({"a": Malicious(tmp_path / "trap")}, path)
    with pytest.raises(ModelError, match="refused, the file holds more"):
        load_model("torchvision:mobilenet_v3_small")
    assert not (tmp_path / "trap").exists()


def test_unknown_architecture_lists_the_known() -> None:
    with pytest.raises(ConfigurationError, match="ssdlite320_mobilenet_v3_large"):
        load_model("torchvision:yolov5s")


# ---- exported programs


def save_program(path: Path, module: torch.nn.Module, *sizes: int, **keywords: object) -> Path:
    program = torch.export.export(
        module.eval(), (torch.zeros(1, 3, *(sizes or (32, 48))),), **keywords
    )
    torch.export.save(program, path)
    return path


def test_exported_program(tmp_path: Path) -> None:
    module = Classifier().eval()
    path = save_program(tmp_path / "m.pt2", module)
    model = load_model(f"exported:{path}", kind="classification", labels=list("abcdefg"))
    assert (model.head.name, model.input_size) == ("classification", (32, 48))
    assert model.labels == tuple("abcdefg")
    image = torch.rand(1, 3, 32, 48)
    with torch.inference_mode():
        torch.testing.assert_close(model.torch_module()(image)[0], module(image))
    with pytest.raises(ModelError, match="this one is for classification"):
        load_model(f"exported:{path}", kind="detection")
    with pytest.raises(ModelError, match="takes 32x48, input_size says"):
        load_model(f"exported:{path}", input_size=(64, 64))


def test_truncated_program(tmp_path: Path) -> None:
    path = save_program(tmp_path / "m.pt2", Classifier())
    data = path.read_bytes()
    for share in (0.1, 0.6, 0.99):
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(ModelError, match="damaged or no exported program"):
            load_model(f"exported:{path}")


class AddOne(torch.nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image + 1.0


def test_program_with_open_shapes(tmp_path: Path) -> None:
    path = save_program(
        tmp_path / "m.pt2",
        AddOne(),
        dynamic_shapes=({2: torch.export.Dim("height", min=16, max=64)},),
    )
    with pytest.raises(ModelError, match="open shapes"):
        load_model(f"exported:{path}")


def rewrite(path: Path, change: dict[str, bytes], add: dict[str, bytes] | None = None) -> None:
    """Replace members (by the end of their names) and add others, below the same folder."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    folder = next(iter(members)).split("/")[0]
    for end, data in change.items():
        name = next(name for name in members if name.endswith(end))
        members[name] = data
    for name, data in (add or {}).items():
        members[f"{folder}/{name}"] = data
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def read_member(path: Path, end: str) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith(end)))


def test_programs_that_could_run_code_are_refused(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    clean = save_program(tmp_path / "clean.pt2", AddOne()).read_bytes()
    path = tmp_path / "bad.pt2"
    buffer = io.BytesIO()
    torch.save(Malicious(trap), buffer)

    path.write_bytes(clean)
    document = read_member(path, "models/model.json")
    config = read_member(path, "model_constants_config.json")
    target = b"torch.ops.aten.add.Tensor"
    assert target in document
    for operator in (b"torch.hub.load", b"torch.load", b"_operator.methodcaller", b"math.sin"):
        path.write_bytes(clean)
        rewrite(path, {"models/model.json": document.replace(target, operator)})
        with pytest.raises(ModelError, match="refused: operator"):
            load_model(f"exported:{path}")
    path.write_bytes(clean)
    rewrite(path, {"sample_inputs/model.pt": buffer.getvalue()})
    with pytest.raises(ModelError, match="more than tensors"):
        load_model(f"exported:{path}")
    for name in ("data/aotinductor/model/x.so", "data/constants/custom_obj_0", "extra/x"):
        path.write_bytes(clean)
        rewrite(path, {}, {name: b"x"})
        with pytest.raises(ModelError, match="no part of a plain exported program"):
            load_model(f"exported:{path}")
    path.write_bytes(clean)
    pickled = b'{"config": {"c": {"path_name": "tensor_0", "use_pickle": true}}}'
    rewrite(path, {"model_constants_config.json": pickled}, {"data/constants/tensor_0": b""})
    assert config != pickled
    with pytest.raises(ModelError, match="pickled objects"):
        load_model(f"exported:{path}")
    path.write_bytes(clean)
    rewrite(path, {"models/model.json": document.replace(b'"as_int": 48', b'"expr_str": "x"')})
    with pytest.raises(ModelError, match="open shapes"):
        load_model(f"exported:{path}")
    assert not trap.exists()


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_program_with_a_member_twice_is_refused(tmp_path: Path) -> None:
    path = save_program(tmp_path / "m.pt2", AddOne())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(archive.namelist()[0], b"other")
    with pytest.raises(ModelError, match="there twice"):
        load_model(f"exported:{path}")


def test_program_of_another_input(tmp_path: Path) -> None:
    program = torch.export.export(AddOne(), (torch.zeros(1, 4, 8, 8),))
    torch.export.save(program, tmp_path / "m.pt2")
    with pytest.raises(ModelError, match=r"takes torch.float32 \[1, 4, 8, 8\]"):
        load_model(f"exported:{tmp_path / 'm.pt2'}")


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
def test_null(text: str, times: dict, spin: bool, kind: str) -> None:
    model = load_model(f"null:{text}")
    assert isinstance(model.origin, NullOrigin)
    assert model.origin.script == NullScript(times, spin)
    assert model.kind == kind
    assert model.input_size == (64, 64)
    assert load_model(f"null:{text}", input_size=(240, 320)).input_size == (240, 320)


@pytest.mark.parametrize(
    "text", ["x", "-1", "nan", "inf", "1,tracking", "layer=3", "1/", "preprocess="]
)
def test_bad_null(text: str) -> None:
    with pytest.raises(ConfigurationError, match="null:"):
        load_model(f"null:{text}")


# ---- torch to ONNX


def test_export_agrees_with_torch() -> None:
    import onnxruntime

    model = make_model(Classifier(), (32, 48))
    session = onnxruntime.InferenceSession(model.onnx_model(), providers=["CPUExecutionProvider"])
    image = np.random.default_rng(0).random((1, 3, 32, 48), np.float32)
    found = session.run(None, {session.get_inputs()[0].name: image})[0]
    with torch.inference_mode():
        expected = model.torch_module()(torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert model.onnx_model() is model.onnx_model()  # exported once


class Branching(torch.nn.Module):
    """Traced, it keeps the branch that grey takes."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        if float(image.std()) > 0.01:
            return image.mean((2, 3))
        return image.amax((2, 3)) * 2.0


def test_export_that_differs_is_refused() -> None:
    with pytest.raises(ModelError, match="differs from torch by"):
        TorchOrigin.of_module("branching", Branching(), (8, 8)).onnx_model()


class Failing(torch.nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        raise ValueError("only 7x7")


class Words(torch.nn.Module):
    def forward(self, image: torch.Tensor) -> str:
        return "no tensor"


@pytest.mark.parametrize(
    ("module", "words"), [(Failing(), "cannot be run on.*only 7x7"), (Words(), "returns str")]
)
def test_modules_that_do_not_run(module: torch.nn.Module, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        TorchOrigin.of_module("bad", module, (8, 8)).probe(8, 8)


def test_every_error_is_of_the_package() -> None:
    for source in ("onnx:/nowhere", "exported:/nowhere", "torchvision:x", "null:x", "builtin:x"):
        with pytest.raises(JetsonDnnRtError):
            load_model(source)
