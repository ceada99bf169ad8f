# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Programs of torch.export, and those that could run code."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import pytest
import torch
from foreign import make_foreign
from malice import Malicious
from networks import Classifier

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.sources.exported import check_archive
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.safety.trust import UntrustedError


class AddOne(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Parameter(torch.ones(()))

    def forward(self, image):
        return image + self.one


def save_program(path, module, shape=(1, 3, 32, 48), **keywords):
    program = torch.export.export(module.eval(), (torch.zeros(shape),), **keywords)
    torch.export.save(program, path)
    return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_program(tmp_path_factory.mktemp("programs") / "m.pt2", AddOne()).read_bytes()


@pytest.fixture
def path(saved, tmp_path):
    """A sound program."""
    path = tmp_path / "m.pt2"
    path.write_bytes(saved)
    return path


@pytest.fixture
def program(path):
    """Its document."""
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("models/model.json"))
        return json.loads(archive.read(name))


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


def test_truncated_program(path, saved):
    for share in (0.1, 0.6, 0.99):
        path.write_bytes(saved[: int(len(saved) * share)])
        with pytest.raises(ModelError, match="damaged or no exported program"):
            load_model(f"exported:{path}")


class Endless(torch.nn.Module):
    def forward(self, image):
        return image + torch.ones(1 << 40).sum()


HEIGHTS = ({2: torch.export.Dim("height", min=16, max=64)},)


@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        (AddOne(), {"dynamic_shapes": HEIGHTS}, "open shapes"),
        (AddOne(), {"shape": (1, 4, 8, 8)}, r"takes torch.float32 \[1, 4, 8, 8\]"),
        # It is run once where its memory and time are limited; to load it takes neither.
        (Endless(), {}, r"cannot be run .* in a process without rights"),
    ],
)
def test_programs_that_cannot_be_used(tmp_path, module, arguments, words):
    path = save_program(tmp_path / "m.pt2", module, **arguments)
    with pytest.raises(ModelError, match=words):
        load_model(f"exported:{path}")


def refuse(path, words, change, add=None):
    """With members replaced (by the end of their names), and others added, it must be refused.

    The file is left as it was.
    """
    clean = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    folder = next(iter(members)).split("/")[0]
    for end, data in change.items():
        name = next(name for name in members if name.endswith(end))
        members[name] = data if isinstance(data, bytes) else json.dumps(data).encode()
    for name, data in (add or {}).items():
        members[f"{folder}/{name}"] = data
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)

    with pytest.raises(ModelError, match=words):
        load_model(f"exported:{path}")
    path.write_bytes(clean)


def replace(program, old, new):
    """The program with another text in it."""
    document = json.dumps(program)
    assert old in document
    return {"models/model.json": document.replace(old, new).encode()}


def test_programs_that_could_run_code_are_refused(tmp_path, path, program):
    trap = tmp_path / "trap"
    buffer = io.BytesIO()
    torch.save(Malicious(trap), buffer)
    refuse(path, "more than tensors", {"sample_inputs/model.pt": buffer.getvalue()})
    for name in ("data/aotinductor/model/x.so", "data/constants/custom_obj_0", "extra/x"):
        refuse(path, "not part of a plain exported program", {}, {name: b"x"})
    pickled = {"config": {"c": {"path_name": "tensor_0", "use_pickle": True}}}
    config = {"model_constants_config.json": pickled}
    refuse(path, "pickled objects", config, {"data/constants/tensor_0": b""})
    refuse(path, "open shapes", replace(program, '"as_int": 48', '"expr_str": "x"'))
    # torch unpickles members called ``opaque_obj_*`` and ``custom_obj_*`` freely (EDGES 3).
    for name in ("opaque_obj_0.pt", "custom_obj_0.pt", "opaque_obj_0"):
        config = {"config": {"c": {"path_name": name, "is_param": False, "use_pickle": False}}}
        refuse(path, "not a tensor of the archive", {"model_constants_config.json": config})
    member = {"data/constants/opaque_obj_0.pt": pickle.dumps(Malicious(trap))}
    refuse(path, r"refused|damaged", {}, member)
    assert not trap.exists()


def make_trap(folder, monkeypatch):
    """A module ``trapped`` that Python finds; importing it makes the file that is returned."""
    marker = folder / "marker"
    (folder / "trapped.py").write_text(
        f"import enum, pathlib\npathlib.Path({str(marker)!r}).touch()\n"
        "class Kind(enum.Enum):\n    ONE = 1\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    return marker


def make_spec(kind, context, *children):
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
    "is not a tree": make_spec("builtins.dict", "[", LEAF),
}


@pytest.mark.parametrize("words", SPECS)
@pytest.mark.parametrize("where", ["in_spec", "out_spec"])
def test_types_of_outputs_that_import_modules_are_refused(
    tmp_path, monkeypatch, path, program, words, where
):
    """EDGES 3: loading a program imports no module that its tree specs name."""
    marker = make_trap(tmp_path, monkeypatch)
    spec = SPECS[words]
    for _ in range(3):
        program["graph_module"]["module_call_graph"][0]["signature"][where] = json.dumps([1, spec])
        refuse(path, words, {"models/model.json": program})
        spec = make_spec("builtins.list", "null", spec)
    assert not marker.exists()


def test_outputs_in_tuples_lists_and_dicts_are_read(tmp_path):
    """EDGES 3: what a plain program returns is still loaded."""

    class Nested(torch.nn.Module):
        def forward(self, image):
            mean = image.mean((2, 3))
            return {"a": (mean, [mean + 1]), "b": mean * 2}

    path = save_program(tmp_path / "m.pt2", Nested())
    check_archive(path, path.read_bytes())
    assert len(torch.export.load(path).graph_signature.user_outputs) == 3


def test_names_that_are_source_text_are_refused(tmp_path, monkeypatch, path, program):
    """EDGES 3: names of values and weights become Python source, and so have to be names."""
    marker = make_trap(tmp_path, monkeypatch)
    for old, new in (
        ("image", "image=__import__('trapped')"),
        ("image", "image\n    import trapped"),
        ("add", "add = __import__('trapped'); x"),
        ("one", 'one" + __import__("trapped").x + "'),
    ):
        changed = replace(program, json.dumps(old), json.dumps(new))
        refuse(path, "is not a name in a program", changed)
    assert not marker.exists()


TARGETS = (
    "torch.ops.aten.from_file.default", "torch.ops.aten.__class__.mro",
    "torch.ops.aten.name.format", "torch.ops.aten._dir.append", "torch.ops.aten.add.__call__",
    "torch.ops.aten.add.op", "torch.ops.aten.no_such.default", "torch.ops.load_library",
    "torch.ops.torchvision.__init__.default", "torch.hub.load", "torch.load",
    "_operator.methodcaller", "math.sin", "_operator.mul",
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_no_operator_of_a_network_is_refused(path, program, target):
    """EDGES 3: a node of a program calls an operator of torch and no other Python."""
    refuse(path, "refused: operator", replace(program, "torch.ops.aten.add.Tensor", target))
    arguments = program["graph_module"]["graph"]["nodes"][0]["inputs"]
    arguments[1]["arg"] = {"as_operator": target}
    refuse(path, "refused: operator", {"models/model.json": program})


def test_a_power_that_never_ends_is_refused(path, program):
    """Arithmetic of Python has no place where shapes are fixed: 10 ** N holds the GIL."""
    graph = program["graph_module"]["graph"]
    graph["sym_int_values"] = {"power": {"as_int": 5}}
    inputs = [{"name": "", "arg": {"as_int": n}, "kind": 1} for n in (10, 20_000)]
    output = {"as_sym_int": {"as_name": "power"}}
    power = {"target": "_operator.pow", "inputs": inputs, "outputs": [output], "metadata": {}}
    graph["nodes"].insert(0, {**power, "is_hop_single_tensor_return": None})
    graph["nodes"][1]["inputs"][1]["arg"] = output
    refuse(path, r"refused: operator '_operator\.pow'", {"models/model.json": program})


def save_old_layout(path, program):
    """The members that torch 2.1 to 2.7 wrote."""
    buffer = io.BytesIO()
    torch.save({}, buffer)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", f"{program['schema_version']['major']}.1")
        archive.writestr("serialized_exported_program.json", json.dumps(program))
        for name in ("state_dict", "constants", "example_inputs"):
            archive.writestr(f"serialized_{name}.pt", buffer.getvalue())


def test_the_layout_of_older_torch_is_checked_too(tmp_path, monkeypatch, program):
    """EDGES 3: the same document lies elsewhere in archives of torch 2.1 to 2.7."""
    marker = make_trap(tmp_path, monkeypatch)
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
def test_program_with_a_member_twice_is_refused(path):
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(archive.namelist()[0], b"other")
    with pytest.raises(ModelError, match="a member twice"):
        load_model(f"exported:{path}")


@pytest.mark.parametrize("whose", ["of all", "of another user", "in a folder of all"])
def test_a_program_that_others_can_have_changed(tmp_path, monkeypatch, path, whose):
    """EDGES 12: an exported program is code, and read from elsewhere only when that is said."""
    if whose == "of another user":
        make_foreign(path, monkeypatch)
    else:
        (path if whose == "of all" else tmp_path).chmod(0o777)
    with pytest.raises(UntrustedError, match="chown" if "another" in whose else "chmod go-w"):
        load_model(f"exported:{path}")
    assert load_model(f"exported:{path}", trust=True).input_size == (32, 48)
