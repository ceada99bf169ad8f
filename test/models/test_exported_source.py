"""Programs of torch.export, and those that could run code."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import make_foreign
from malice import Malicious
from networks import Classifier

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.sources.exported import check_archive
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.safety.trust import UntrustedError


def save_program(path: Path, module: torch.nn.Module, *sizes: int, **keywords: object) -> Path:
    program = torch.export.export(
        module.eval(), (torch.zeros(1, 3, *(sizes or (32, 48))),), **keywords
    )
    torch.export.save(program, path)
    return path


def test_exported_program(tmp_path):
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


def test_truncated_program(tmp_path):
    path = save_program(tmp_path / "m.pt2", Classifier())
    data = path.read_bytes()
    for share in (0.1, 0.6, 0.99):
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(ModelError, match="damaged or no exported program"):
            load_model(f"exported:{path}")


class AddOne(torch.nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image + 1.0


def test_program_with_open_shapes(tmp_path):
    shapes = ({2: torch.export.Dim("height", min=16, max=64)},)
    path = save_program(tmp_path / "m.pt2", AddOne(), dynamic_shapes=shapes)
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


def refuse(
    path: Path, words: str, change: dict[str, bytes], add: dict[str, bytes] | None = None
) -> None:
    """A program that is changed so must be refused; it is left as it was."""
    clean = path.read_bytes()
    rewrite(path, change, add)
    with pytest.raises(ModelError, match=words):
        load_model(f"exported:{path}")
    path.write_bytes(clean)


def test_programs_that_could_run_code_are_refused(tmp_path):
    trap, path = tmp_path / "trap", save_program(tmp_path / "bad.pt2", AddOne())
    buffer = io.BytesIO()
    torch.save(Malicious(trap), buffer)
    document = read_member(path, "models/model.json")
    target = b"torch.ops.aten.add.Tensor"
    assert target in document
    operators = b"torch.hub.load torch.load _operator.methodcaller math.sin _operator.mul"
    for operator in operators.split():
        changed = document.replace(target, operator)
        refuse(path, "refused: operator", {"models/model.json": changed})
    refuse(path, "more than tensors", {"sample_inputs/model.pt": buffer.getvalue()})
    for name in ("data/aotinductor/model/x.so", "data/constants/custom_obj_0", "extra/x"):
        refuse(path, "no part of a plain exported program", {}, {name: b"x"})
    pickled = b'{"config": {"c": {"path_name": "tensor_0", "use_pickle": true}}}'
    config = {"model_constants_config.json": pickled}
    refuse(path, "pickled objects", config, {"data/constants/tensor_0": b""})
    changed = document.replace(b'"as_int": 48', b'"expr_str": "x"')
    refuse(path, "open shapes", {"models/model.json": changed})
    assert not trap.exists()


def make_trap(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module ``trapped`` that Python finds; importing it makes the file that is returned."""
    marker = folder / "marker"
    (folder / "trapped.py").write_text(
        f"import enum, pathlib\npathlib.Path({str(marker)!r}).touch()\n"
        "class Kind(enum.Enum):\n    ONE = 1\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    return marker


def make_spec(kind: str | None, context: object, *children: object) -> dict[str, object]:
    return {"type": kind, "context": context, "children_spec": list(children)}


LEAF = make_spec(None, None)
FACTORY = {
    "default_factory_module": "trapped", "default_factory_name": "Kind", "dict_context": ["a"],
}  # fmt: skip
MEMBER = json.dumps([{"__enum__": True, "fqn": "trapped:Kind", "name": "ONE"}])
SPECS = {
    "collections.defaultdict": make_spec("collections.defaultdict", FACTORY, LEAF),
    "plain ones": make_spec("builtins.dict", MEMBER, LEAF),
    "context": make_spec("builtins.tuple", MEMBER, LEAF),
    "collections.namedtuple": make_spec("collections.namedtuple", '"trapped.Kind"', LEAF),
    "no tree": make_spec("builtins.dict", "[", LEAF),
}


@pytest.mark.parametrize("words", SPECS)
@pytest.mark.parametrize("where", ["in_spec", "out_spec"])
@pytest.mark.parametrize("depth", [0, 3])
def test_types_of_outputs_that_import_modules_are_refused(
    tmp_path, monkeypatch, words, where, depth
):
    """EDGES 3: loading a program imports no module that its tree specs name."""
    marker = make_trap(tmp_path, monkeypatch)
    path = save_program(tmp_path / "m.pt2", AddOne())
    program = json.loads(read_member(path, "models/model.json"))
    spec = SPECS[words]
    for _ in range(depth):
        spec = make_spec("builtins.list", "null", spec)
    program["graph_module"]["module_call_graph"][0]["signature"][where] = json.dumps([1, spec])
    refuse(path, words, {"models/model.json": json.dumps(program).encode()})
    assert not marker.exists()


def test_outputs_in_tuples_lists_and_dicts_are_read(tmp_path):
    """EDGES 3: what a plain program returns is still loaded."""

    class Nested(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> dict[str, object]:
            mean = image.mean((2, 3))
            return {"a": (mean, [mean + 1]), "b": mean * 2}

    path = save_program(tmp_path / "m.pt2", Nested())
    data = path.read_bytes()
    check_archive(path, data)
    program = torch.export.load(io.BytesIO(data))
    assert len(program.graph_signature.user_outputs) == 3


def test_names_that_are_source_text_are_refused(tmp_path, monkeypatch):
    """EDGES 3: names of values and weights become Python source, and so have to be names."""
    marker = make_trap(tmp_path, monkeypatch)
    path = save_program(tmp_path / "m.pt2", Classifier())
    program = json.loads(read_member(path, "models/model.json"))
    for old, new in (
        ("image", "image=__import__('trapped')"),
        ("image", "image\n    import trapped"),
        ("conv2d", "conv2d = __import__('trapped'); x"),
        ("layers.0.weight", 'layers" + __import__("trapped").x + "'),
    ):
        changed = json.dumps(program).replace(json.dumps(old), json.dumps(new))
        refuse(path, "is no name in a program", {"models/model.json": changed.encode()})
    assert not marker.exists()


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.__class__.mro",
        "torch.ops.aten.name.format",
        "torch.ops.aten._dir.append",
        "torch.ops.aten.add.__call__",
        "torch.ops.aten.add.op",
        "torch.ops.aten.no_such.default",
        "torch.ops.load_library",
        "torch.ops.torchvision.__init__.default",
    ],
)
def test_attributes_of_operators_are_no_operators(tmp_path, target):
    """EDGES 3: a node of a program calls an operator of torch and no other Python."""
    path = save_program(tmp_path / "m.pt2", AddOne())
    document = read_member(path, "models/model.json").decode()
    changed = document.replace("torch.ops.aten.add.Tensor", target)
    assert changed != document
    refuse(path, "refused: operator", {"models/model.json": changed.encode()})
    program = json.loads(document)
    arguments = program["graph_module"]["graph"]["nodes"][0]["inputs"]
    arguments[1]["arg"] = {"as_operator": target}
    refuse(path, "refused: operator", {"models/model.json": json.dumps(program).encode()})


def test_a_power_that_never_ends_is_refused(tmp_path):
    """Arithmetic of Python has no place where shapes are fixed: 10 ** N holds the GIL."""
    path = save_program(tmp_path / "m.pt2", AddOne())
    program = json.loads(read_member(path, "models/model.json"))
    graph = program["graph_module"]["graph"]
    graph["sym_int_values"] = {"power": {"as_int": 5}}
    inputs = [{"name": "", "arg": {"as_int": n}, "kind": 1} for n in (10, 20_000)]
    output = {"as_sym_int": {"as_name": "power"}}
    power = {"target": "_operator.pow", "inputs": inputs, "outputs": [output], "metadata": {}}
    graph["nodes"].insert(0, {**power, "is_hop_single_tensor_return": None})
    graph["nodes"][1]["inputs"][1]["arg"] = output
    changed = {"models/model.json": json.dumps(program).encode()}
    refuse(path, r"refused: operator '_operator\.pow'", changed)


class Endless(torch.nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image + torch.ones(1 << 40).sum()


def test_a_program_that_takes_too_much_is_refused_in_the_child(tmp_path):
    """It is run once where its memory and time are limited; to load it takes neither."""
    path = save_program(tmp_path / "m.pt2", Endless())
    with pytest.raises(ModelError, match=r"cannot be run .* in a process without rights"):
        load_model(f"exported:{path}")


def test_constants_that_are_unpickled_with_all_rights_are_refused(tmp_path):
    """EDGES 3: torch unpickles members called ``opaque_obj_*`` and ``custom_obj_*`` freely."""
    trap = tmp_path / "trap"
    path = save_program(tmp_path / "m.pt2", AddOne())
    for name in ("opaque_obj_0.pt", "custom_obj_0.pt", "opaque_obj_0"):
        config = {"config": {"c": {"path_name": name, "is_param": False, "use_pickle": False}}}
        changed = {"model_constants_config.json": json.dumps(config).encode()}
        refuse(path, "no tensor of the archive", changed)
    member = {"data/constants/opaque_obj_0.pt": pickle.dumps(Malicious(trap))}
    refuse(path, r"refused|damaged", {}, member)
    assert not trap.exists()


def save_old_layout(path: Path, program: dict[str, Any]) -> None:
    """The members that torch 2.1 to 2.7 wrote."""
    buffer = io.BytesIO()
    torch.save({}, buffer)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", f"{program['schema_version']['major']}.1")
        archive.writestr("serialized_exported_program.json", json.dumps(program))
        for name in ("state_dict", "constants", "example_inputs"):
            archive.writestr(f"serialized_{name}.pt", buffer.getvalue())


def test_the_layout_of_older_torch_is_checked_too(tmp_path, monkeypatch):
    """EDGES 3: the same document lies elsewhere in archives of torch 2.1 to 2.7."""
    marker = make_trap(tmp_path, monkeypatch)
    path = save_program(tmp_path / "m.pt2", AddOne())
    program = json.loads(read_member(path, "models/model.json"))
    old = tmp_path / "old.pt2"
    save_old_layout(old, program)
    check_archive(old, old.read_bytes())
    spec = json.dumps([1, SPECS["collections.defaultdict"]])
    program["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = spec
    save_old_layout(old, program)
    with pytest.raises(ModelError, match=r"collections\.defaultdict"):
        load_model(f"exported:{old}")
    assert not marker.exists()


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_program_with_a_member_twice_is_refused(tmp_path):
    path = save_program(tmp_path / "m.pt2", AddOne())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(archive.namelist()[0], b"other")
    with pytest.raises(ModelError, match="a member twice"):
        load_model(f"exported:{path}")


def test_program_of_another_input(tmp_path):
    program = torch.export.export(AddOne(), (torch.zeros(1, 4, 8, 8),))
    torch.export.save(program, tmp_path / "m.pt2")
    with pytest.raises(ModelError, match=r"takes torch.float32 \[1, 4, 8, 8\]"):
        load_model(f"exported:{tmp_path / 'm.pt2'}")


@pytest.mark.parametrize("whose", ["of all", "of another user", "in a folder of all"])
def test_a_program_that_others_can_have_changed(tmp_path, monkeypatch, whose):
    """EDGES 12: an exported program is code, and read from elsewhere only when that is said."""
    path = save_program(tmp_path / "m.pt2", Classifier())
    if whose == "of another user":
        make_foreign(path, monkeypatch)
    else:
        (path if whose == "of all" else tmp_path).chmod(0o777)
    with pytest.raises(UntrustedError, match="chown" if "another" in whose else "chmod go-w"):
        load_model(f"exported:{path}")
    assert load_model(f"exported:{path}", trust=True).input_size == (32, 48)
