"""Programs of torch.export, and those that could run code."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
import torch
from foreign import make_foreign
from malice import Malicious
from networks import Classifier

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.sources import load_model
from jetson_dnn_rt.trust import UntrustedError


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


@pytest.mark.parametrize("whose", ["of all", "of another user", "in a folder of all"])
def test_a_program_that_others_can_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """EDGES 12: an exported program is code, and read from elsewhere only when that is said."""
    path = save_program(tmp_path / "m.pt2", Classifier())
    if whose == "of another user":
        make_foreign(path, monkeypatch)
    else:
        (path if whose == "of all" else tmp_path).chmod(0o777)
    with pytest.raises(UntrustedError, match="chown" if "another" in whose else "chmod go-w"):
        load_model(f"exported:{path}")
    assert load_model(f"exported:{path}", trust=True).input_size == (32, 48)
