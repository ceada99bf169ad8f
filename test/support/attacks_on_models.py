# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Models and weights that would run code, or read files that nobody has named."""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import zipfile

from attack_arena import TRAPPED, Arena, Hostile, attack, expect
from malice import Malicious, make_library

# -- ONNX: tensors in other files -------------------------------------------------------------

_LOAD = "import onnx\nonnx.load({path!r})"
_RUN = (
    "import onnxruntime as ort\n"
    "ort.InferenceSession({path!r}).run(None, {{'image': __import__('numpy').ones((1, 3), 'f')}})"
)


def _make_external(location: str, rng_name: str = "weight") -> object:
    import onnx

    tensor = onnx.TensorProto(name=rng_name, data_type=onnx.TensorProto.FLOAT, dims=[1, 3])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "12")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def _make_onnx(place: str, location: str) -> bytes:
    """A network that adds a tensor which is in another file."""
    from onnx import TensorProto, helper

    tensor = _make_external(location)
    names = {"image": [1, 3], "out": [1, 3]}
    image, out = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in names.items())
    constant = helper.make_node("Constant", [], ["weight"], value=tensor)
    nodes, held, functions = [], {}, []
    opsets = [helper.make_opsetid("", 17)]
    if place == "an initializer":
        held["initializer"] = [tensor]
    elif place == "a sparse initializer":
        indices = helper.make_tensor("indices", TensorProto.INT64, [3], [0, 1, 2])
        tensor.dims[:] = [3]
        held["sparse_initializer"] = [helper.make_sparse_tensor(tensor, indices, [1, 3])]
    elif place == "a constant":
        nodes.append(constant)
    elif place == "a branch":
        inner_out = helper.make_tensor_value_info("inner", TensorProto.FLOAT, [1, 3])
        inner = [constant, helper.make_node("Identity", ["weight"], ["inner"])]
        branch = helper.make_graph(inner, "branch", [], [inner_out])
        true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
        nodes.append(helper.make_node("Constant", [], ["always"], value=true))
        both = {"then_branch": branch, "else_branch": branch}
        nodes.append(helper.make_node("If", ["always"], ["weight"], **both))
    else:
        body = [constant, helper.make_node("Identity", ["weight"], ["y"])]
        functions = [helper.make_function("own", "Weight", [], ["y"], body, opsets)]
        nodes.append(helper.make_node("Weight", [], ["weight"], domain="own"))
        opsets = [*opsets, helper.make_opsetid("own", 1)]
    nodes.append(helper.make_node("Add", ["image", "weight"], ["out"]))
    graph = helper.make_graph(nodes, "graph", [image], [out], **held)
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)
    return bytes(model.SerializeToString())


PLACES = ("an initializer", "a sparse initializer", "a constant", "a branch", "a function")


def _register_onnx(place: str) -> None:
    control = _LOAD if place in ("an initializer", "a constant", "a branch") else _RUN

    @attack("model", f"ONNX: a tensor of another file in {place}", edge=14)
    def lay(arena: Arena) -> Hostile:
        # Beside it, as the libraries that read it without care refuse to leave its folder.
        beside = arena.write(f"data{arena.rng.randrange(100)}/weights.bin", bytes(12))
        location = os.fspath(beside.relative_to(arena.inside))
        path = os.fspath(arena.write("model.onnx", _make_onnx(place, location)))
        return Hostile(f"onnx:{path}", control.format(path=path))


for _place in PLACES:
    _register_onnx(_place)


@attack("model", "ONNX: a tensor of a file far away", edge=14)
def lay_far_tensor(arena: Arena) -> Hostile:
    secret = os.fspath(arena.secret("weights.bin", bytes(12)))
    location = arena.rng.choice([secret, f"../{arena.outside.name}/weights.bin"])
    path = arena.write("model.onnx", _make_onnx(arena.rng.choice(PLACES[:4]), location))
    # The libraries refuse it themselves by now; the older ones that robots have do not.
    control = f"open({secret!r})"
    return Hostile(f"onnx:{path}", control)


@attack("model", "ONNX: an engine in another file")
def lay_engine_context(arena: Arena) -> Hostile | None:
    """ONNX Runtime's ``EPContext``, whose code is a file that its attribute names."""
    from onnx import TensorProto, helper

    code = make_library(arena.inside / "engine.so", arena.marker)
    if code is None:
        return None
    attributes = {"embed_mode": 0, "main_context": 1, "ep_cache_context": "engine.so"}
    attributes |= {"source": "TensorrtExecutionProvider", "partition_name": "x"}
    node = helper.make_node("EPContext", ["image"], ["out"], domain="com.microsoft", **attributes)
    image, out = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, 8, 8]) for n in ("image", "out")
    )
    graph = helper.make_graph([node], "graph", [image], [out])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path = arena.write("model.onnx", model.SerializeToString())
    return Hostile(f"onnx:{path}", f"import ctypes\nctypes.CDLL({os.fspath(code)!r})")


@attack("model", "ONNX: a name of a node that is source text")
def lay_node_name(arena: Arena) -> Hostile:
    """torch.fx writes ``getattr(self, "NAME")`` into the source of its modules."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    name = f'training"), __import__("{TRAPPED}"), getattr(self, "to'
    weight = numpy_helper.from_array(np.ones((5, 3, 1, 1), np.float32), "weight")
    node = helper.make_node("Conv", ["image", "weight"], ["logits"], name=name)
    image, logits = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, 8, 8])
        for name, channels in (("image", 3), ("logits", 5))
    )
    graph = helper.make_graph([node], "graph", [image], [logits], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = os.fspath(arena.write("model.onnx", model.SerializeToString()))
    control = (
        "import onnx, onnx2torch, torch\n"
        f"onnx2torch.convert(onnx.load({path!r}))(torch.zeros(1, 3, 8, 8))"
    )
    return Hostile(f"onnx:{path}", control)


@attack("model", "ONNX: OpenVINO's own format under another name")
def lay_openvino(arena: Arena) -> Hostile:
    xml = """<?xml version="1.0"?><net name="x" version="11"><layers>
    <layer id="0" name="c" type="Const" version="opset1">
    <data element_type="f32" shape="1,3,8,8" offset="0" size="768"/>
    <output><port id="0" precision="FP32"><dim>1</dim><dim>3</dim><dim>8</dim><dim>8</dim></port>
    </output></layer><layer id="1" name="r" type="Result" version="opset1"><input>
    <port id="0" precision="FP32"><dim>1</dim><dim>3</dim><dim>8</dim><dim>8</dim></port></input>
    </layer></layers><edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges>
    </net>"""
    path = arena.write("model.onnx", xml)
    arena.write("model.bin", bytes(768))
    arena.write("model.xml", xml)
    control = (
        f"import openvino\nopenvino.Core().read_model({os.fspath(path.with_suffix('.xml'))!r})"
    )
    return Hostile(f"onnx:{path}", control)


@attack("model", "ONNX: libraries of its name beside it")
def lay_neighbours(arena: Arena) -> Hostile | None:
    code = make_library(arena.inside / "model.so", arena.marker)
    if code is None:
        return None
    for name in ("lib.so", "libmodel.so", "model.onnx.so", "libtvm_runtime.so", "model.plan"):
        arena.write(name, code.read_bytes())
    for name in ("model.onnx.data", "model.json", "model.params", "timing.cache"):
        arena.write(name, b"x")
    path = arena.write("model.onnx", _make_names("a harmless name"))
    return Hostile(f"onnx:{path}", f"import ctypes\nctypes.CDLL({os.fspath(code)!r})")


TERMINAL = "\x1b]0;owned\x07\x1b[2J\x9b1mx"
"""It sets the title of a terminal and clears it."""


def _make_names(name: str, *, known: bool = True) -> bytes:
    """A classifier, or with a head that is not known, whose texts are the attacker's."""
    from onnx import TensorProto, helper

    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 16, 16])
    out = helper.make_tensor_value_info(
        "out", TensorProto.FLOAT, [1, 3] if known else [1, 3, 1, 1]
    )
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
        helper.make_node("Flatten" if known else "Identity", ["mean"], ["out"]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "graph", [image], [out]),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    texts = {"author": name, "description": name, name: name, "labels": f"{name}1\n{name}2\nc"}
    helper.set_model_props(model, texts)
    return bytes(model.SerializeToString())


@attack("model", "ONNX: terminal commands in its metadata")
def lay_metadata(arena: Arena) -> Hostile:
    path = arena.write("model.onnx", _make_names(TERMINAL, known=False))
    return Hostile(f"onnx:{path}", control="")


# -- programs of torch.export ------------------------------------------------------------------


@functools.cache
def _save_program() -> bytes:
    import torch

    class AddOne(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = torch.nn.Parameter(torch.ones(()))

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return image + self.one

    file = io.BytesIO()
    torch.export.save(torch.export.export(AddOne().eval(), (torch.zeros(1, 3, 32, 48),)), file)
    return file.getvalue()


def _change_program(
    arena: Arena, change: dict[str, bytes], add: dict[str, bytes], old: str = "", new: str = ""
) -> str:
    """A sound program with other members; returns its path."""
    with zipfile.ZipFile(io.BytesIO(_save_program())) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    folder = next(iter(members)).split("/")[0]
    for end, data in change.items():
        members[next(name for name in members if name.endswith(end))] = data
    if old:
        name = next(name for name in members if name.endswith("models/model.json"))
        text = members[name].decode()
        assert old in text
        members[name] = text.replace(old, new).encode()
    members |= {f"{folder}/{name}": data for name, data in add.items()}
    names = list(members)
    arena.rng.shuffle(names)
    path = arena.inside / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, members[name])
    return os.fspath(path)


def _load_program(path: str) -> str:
    return (
        "import torch\n"
        f"program = torch.export.load({path!r})\n"
        "program.module(check_guards=False)(torch.zeros(1, 3, 32, 48))"
    )


def _pickle(arena: Arena) -> bytes:
    import torch

    file = io.BytesIO()
    torch.save(Malicious(arena.marker), file)
    return file.getvalue()


@attack("model", "torch.export: a pickle for its sample inputs", edge=3)
def lay_sample_inputs(arena: Arena) -> Hostile:
    data = _pickle(arena)
    path = _change_program(arena, {"sample_inputs/model.pt": data}, {})
    control = f"import io, torch\ntorch.load(io.BytesIO({data!r}), weights_only=False)"
    return Hostile(f"exported:{path}", control)


@attack("model", "torch.export: an opaque object", edge=3)
def lay_opaque(arena: Arena) -> Hostile:
    name = arena.rng.choice(["opaque_obj_0", "custom_obj_0"])
    config = {"config": {"c": {"path_name": name, "is_param": False, "use_pickle": True,
                               "tensor_meta": None}}}  # fmt: skip
    data = pickle.dumps(Malicious(arena.marker))
    path = _change_program(
        arena,
        {"model_constants_config.json": json.dumps(config).encode()},
        {f"data/constants/{name}": data},
    )
    return Hostile(f"exported:{path}", f"import pickle\npickle.loads({data!r})")


@attack("model", "torch.export: a type of outputs that imports a module", edge=3)
def lay_out_spec(arena: Arena) -> Hostile:
    factory = {
        "default_factory_module": TRAPPED, "default_factory_name": "Kind", "dict_context": ["a"],
    }  # fmt: skip
    leaf = {"type": None, "context": None, "children_spec": []}
    spec: dict[str, object] = {
        "type": "collections.defaultdict", "context": factory, "children_spec": [leaf],
    }  # fmt: skip
    for _ in range(arena.rng.randrange(3)):
        spec = {"type": "builtins.list", "context": "null", "children_spec": [spec]}
    with zipfile.ZipFile(io.BytesIO(_save_program())) as archive:
        name = next(name for name in archive.namelist() if name.endswith("models/model.json"))
        program = json.loads(archive.read(name))
    signature = program["graph_module"]["module_call_graph"][0]["signature"]
    signature["out_spec"] = json.dumps([1, spec])
    path = _change_program(arena, {"models/model.json": json.dumps(program).encode()}, {})
    return Hostile(f"exported:{path}", _load_program(path))


@attack("model", "torch.export: a name that is source text", edge=3)
def lay_source_text(arena: Arena) -> Hostile:
    new = json.dumps(f"image=__import__('{TRAPPED}')")
    path = _change_program(arena, {}, {}, json.dumps("image"), new)
    return Hostile(f"exported:{path}", _load_program(path))


@attack("model", "torch.export: an operator that reads a file", edge=3)
def lay_from_file(arena: Arena) -> Hostile:
    secret = os.fspath(arena.secret("tensor.bin", bytes(4 * 3 * 32 * 48)))
    path = _change_program(
        arena, {}, {}, '"torch.ops.aten.add.Tensor"', '"torch.ops.aten.from_file.default"'
    )
    control = f"import torch\ntorch.from_file({secret!r}, size=3)"
    return Hostile(f"exported:{path}", control)


@attack("model", "torch.export: a Python function for an operator", edge=3)
def lay_operator(arena: Arena) -> Hostile:
    target = arena.rng.choice(["torch.hub.load", "torch.load", "torch.ops.load_library"])
    path = _change_program(arena, {}, {}, '"torch.ops.aten.add.Tensor"', json.dumps(target))
    code = make_library(arena.root / "marks" / "own.so", arena.marker)
    control = f"import torch\ntorch.ops.load_library({os.fspath(code)!r})" if code else ""
    return Hostile(f"exported:{path}", control)


@attack("model", "torch.export: a compiled library", edge=3)
def lay_compiled(arena: Arena) -> Hostile | None:
    code = make_library(arena.root / "marks" / "own.so", arena.marker)
    if code is None:
        return None
    member = {"data/aotinductor/model/model.so": code.read_bytes()}
    path = _change_program(arena, {}, member)
    return Hostile(f"exported:{path}", f"import ctypes\nctypes.CDLL({os.fspath(code)!r})")


@attack("model", "torch.export: an expression for a shape", edge=3)
def lay_expression(arena: Arena) -> Hostile:
    text = f"__import__('{TRAPPED}').Kind"
    path = _change_program(
        arena, {}, {}, '"as_int": 48', f'"as_expr": {{"expr_str": {json.dumps(text)}}}'
    )
    return Hostile(f"exported:{path}", f"import sympy\nsympy.sympify({text!r})")


@attack("model", "torch.export: a file of another user", edge=12)
def lay_foreign_program(arena: Arena) -> Hostile:
    path = arena.write("model.pt2", _save_program())
    arena.secret("model.pt2", _save_program())
    os.chown(path, 12345, 12345)
    words = expect("belongs to another user")
    return Hostile(f"exported:{path}", check=words, needs_root=True)


@attack("model", "torch.export: a file that others may change", edge=12)
def lay_open_program(arena: Arena) -> Hostile:
    path = arena.write("model.pt2", _save_program())
    whose = arena.rng.choice([path, arena.inside])
    whose.chmod(0o777)
    words = expect("may be written by other users")
    return Hostile(f"exported:{path}", check=words, sees=False)


# -- weights -----------------------------------------------------------------------------------


def _register_weights(name: str, legacy: bool) -> None:
    @attack("weights", name)
    def lay(arena: Arena) -> Hostile:
        import torch

        path = arena.inside / f"weights{arena.rng.choice(['.pt', '.pth', '.bin'])}"
        state = {"fc.bias": torch.zeros(3), "x": Malicious(arena.marker)}
        torch.save(state, path, _use_new_zipfile_serialization=not legacy)
        control = f"import torch\ntorch.load({os.fspath(path)!r}, weights_only=False)"
        return Hostile(os.fspath(path), control)


_register_weights("torch.save: a pickle in an archive", False)
_register_weights("torch.save: a pickle of an older torch", True)


@attack("weights", "torch.save: a script module")
def lay_script(arena: Arena) -> Hostile:
    """TorchScript is code; the loader sends such files to another reader."""
    path = arena.inside / "weights.pt"
    data = pickle.dumps(Malicious(arena.marker), protocol=2)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (("data.pkl", data), ("constants.pkl", data), ("version", b"3\n"),
                              ("code/__torch__.py", b"import os\n")):  # fmt: skip
            archive.writestr(f"archive/{name}", content)
    return Hostile(os.fspath(path), f"import pickle\npickle.loads({data!r})")


@attack("weights", "a pickle that is called safetensors")
def lay_false_safetensors(arena: Arena) -> Hostile:
    data = pickle.dumps(Malicious(arena.marker))
    path = arena.write("weights.safetensors", data)
    return Hostile(os.fspath(path), f"import pickle\npickle.loads({data!r})")
