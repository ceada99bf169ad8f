# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Programs of `torch.export.save`, read only when nothing in the file can run code.

``torch.export.load`` unpickles with all rights, evaluates the expressions of open shapes, and
resolves the names of operators anywhere below ``torch``. So the archive is inspected first:
its members, its pickles (with ``weights_only``), its operators, its names, which become Python
source, the types of its inputs and outputs, and that its shapes are fixed. Then a child process
without rights loads it and runs it once (`safety.sandbox`), and only after that this one.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import logging
import re
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.model import Opened, SourceOptions
from jetson_dnn_rt.models.sources.files import hash_bytes, read_model_file, unpickle_tensors
from jetson_dnn_rt.models.sources.torch import TorchOrigin
from jetson_dnn_rt.safety.sandbox import Limits, SandboxError, run_restricted

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

# Members of the archives of torch 2.8 and later, below a folder named after the file, and those
# of torch 2.1 to 2.7. Compiled libraries and pickled objects of other classes are not among them.
_MEMBERS = re.compile(
    r"([^/]+/)?(data/(weights|constants)/((weight|tensor)_\d+|[\w.-]+_config\.json|[\w.-]+\.pt)"
    r"|data/sample_inputs/[\w.-]+\.pt|models/[\w.-]+\.json"
    r"|archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)"
    r"|serialized_(exported_program\.json|(state_dict|constants|example_inputs)\.(pt|json)))"
)
_OVERLOADS = re.compile(r"torch\.ops\.(aten|torchvision|prims)\.(\w+)\.(\w+)")
# Of Python's operators only the one that takes an output apart: where all shapes are fixed, no
# other is needed, and `pow` of two large numbers never ends.
_FUNCTIONS = re.compile(
    r"torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)|_operator\.getitem"
)
_READS_FILES = ("aten::from_file",)

# torch.fx writes names into the source text of ``forward`` as they are, and names of weights
# between quotation marks. Values under the keys of _TEXTS are data: quoted, or not used.
_NAMES = ("name", "as_name", "forward_arg_names")
_NAME = re.compile(r"([A-Za-z_]\w*)?", re.ASCII)
_WORD = re.compile(r"[\w.@:+/ -]*", re.ASCII)
_TEXTS = (
    "as_string", "as_strings", "custom", "from_node", "guards_code", "in_spec", "nn_module_stack",
    "out_spec", "source_fn_stack", "stack_trace", "torch_fn",
)  # fmt: skip

# Pickled objects have other names; torch unpickles those with all rights.
_PATH_NAME = re.compile(r"(weight|tensor)_\d+")

# Of ``torch.utils._pytree``; the contexts of other types name modules that are imported.
_CONTAINERS = {"builtins.tuple": "null", "builtins.list": "null", "builtins.dict": None}
_MAX_SPEC_DEPTH = 32

# Modules that torch imports only when it needs them.
_PACKAGES = ("functorch", "mpmath", "networkx", "numpy", "optree", "sympy", "torch", "torchgen")

_tried: set[str] = set()


def open_source(name: str, options: SourceOptions) -> Opened:
    """Check and load a program.

    Raises
    ------
    ModelError
        When the file is missing, damaged, refused, or its input is not one float32 image
        ``[1, 3, H, W]`` of fixed size.
    UntrustedError
        When others may change the file, and `options` do not say that it is trusted.
    """
    import torch

    path = Path(name)
    data = read_model_file(path, is_code=not options.trust)
    check_archive(path, data)
    _try_in_child(path, data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(io.BytesIO(data))
    except Exception as error:  # a program of another torch fails in many ways
        raise ModelError(
            f"{path} cannot be read by torch {torch.__version__}: {error}; export it again with "
            "this version"
        ) from error
    size = find_input_size(path, program)
    if options.input_size not in (None, size):
        text = (
            f"{path} takes {size[0]}x{size[1]}, input_size says {options.input_size}; fix: leave "
            "it out, or export the network for that size"
        )
        raise ModelError(text, "input_size")
    origin = TorchOrigin(f"exported:{path}", lambda: _make_module(program), size)
    return Opened(origin, hash_bytes(data), size)


def _try_in_child(path: Path, data: bytes) -> None:
    """Load and run it first where it can do no harm: the checks find only known attacks."""
    import torch

    digest = hash_bytes(data)
    if digest in _tried:
        return
    limits = Limits(memory_bytes=(4 << 30) + 8 * len(data), packages=_PACKAGES)
    try:
        guards = run_restricted(
            "jetson_dnn_rt.models.sources.exported_child:load_and_run", data, limits
        ).guards
    except SandboxError as error:
        raise ModelError(
            f"{path} cannot be run by torch {torch.__version__} in a process without rights: "
            f"{error}; export it again with this version"
        ) from error
    logger.debug("%s was run in a child first: %s", path, ", ".join(guards))
    _tried.add(digest)


def check_archive(path: Path, data: bytes) -> None:
    """Search an archive for anything that could run code when it is loaded.

    `ModelError` where there is any, or the archive is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            # Bytes before the first member, or after the last, are an archive inside another:
            # a truncated file looks so, and one made to be read differently by two readers.
            if archive.comment or min((m.header_offset for m in members), default=0) > 0:
                raise zipfile.BadZipFile("its directory is not its own")
            if sum(member.file_size for member in members) > len(data):
                raise ModelError(
                    f"{path} is refused: it unpacks to more bytes than it has, and torch writes "
                    "programs uncompressed; export it again"
                )
            if len({member.filename for member in members}) != len(members):
                raise ModelError(f"{path} is refused: it holds a member twice")
            for member in members:
                _check_member(path, member.filename, archive.read(member))
    except ModelError:
        raise
    except Exception as error:  # zipfile raises anything on damage: names, lengths, passwords
        raise ModelError(f"{path} is damaged or no exported program: {error}") from error
    if not any(member.filename.endswith(".json") for member in members):
        raise ModelError(f"{path} holds no exported program")


def _check_member(path: Path, name: str, data: bytes) -> None:
    if not _MEMBERS.fullmatch(name):
        raise ModelError(f"{path} is refused: {name} is not part of a plain exported program")
    if name.endswith((".pt", "state_dict.json", "constants.json")) and data:
        unpickle_tensors(data, f"{path}: {name}")
    elif name.endswith(".json"):
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path} is damaged: {name}: {error}") from error
        _check_document(path, content)


def _check_document(path: Path, content: object) -> None:
    """Search one JSON document of an archive."""
    waiting: list[tuple[str, object]] = [("", content)]
    while waiting:
        key, value = waiting.pop()
        if key == "expr_str":
            raise ModelError(f"{path} has open shapes: export it with a fixed input [1, 3, H, W]")
        if key == "use_pickle" and value:
            raise ModelError(f"{path} is refused: it holds pickled objects, not plain tensors")
        if key == "path_name" and not (isinstance(value, str) and _PATH_NAME.fullmatch(value)):
            raise ModelError(f"{path} is refused: {value!r:.100} is not a tensor of the archive")
        if key == "nodes" and isinstance(value, list):
            for node in value:
                _check_operator(path, node.get("target") if isinstance(node, dict) else None)
        if key == "as_operator":
            _check_operator(path, value)
        if key in ("in_spec", "out_spec"):
            _check_spec(path, key, value)
        if isinstance(value, dict):
            for name, item in value.items():
                _check_text(path, key, name)
                waiting.append((name, item))
        elif isinstance(value, list):
            waiting.extend((key, item) for item in value)
        elif isinstance(value, str):
            _check_text(path, key, value)


def _check_text(path: Path, key: str, text: str) -> None:
    allowed = _NAME if key in _NAMES else _WORD
    if key not in _TEXTS and not allowed.fullmatch(text):
        raise ModelError(f"{path} is refused: {text!r:.100} is not a name in a program ({key})")


def _check_operator(path: Path, target: object) -> None:
    """Refuse anything but the operators of a network: their attributes are Python."""
    import torch

    words = target if isinstance(target, str) else ""
    if _FUNCTIONS.fullmatch(words):
        return
    found = _OVERLOADS.fullmatch(words)
    if found is not None:
        space, name, overload = found.groups()
        if space == "torchvision":
            with contextlib.suppress(ImportError):
                import torchvision  # noqa: F401  # registers them
        packet = getattr(getattr(torch.ops, space), name, None)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            operator = getattr(packet, overload, None)
            if isinstance(operator, torch._ops.OpOverload) and (
                operator._schema.name not in _READS_FILES
            ):
                return
    raise ModelError(f"{path} is refused: operator {target!r:.100} is not a network's")


def _check_spec(path: Path, key: str, text: object) -> None:
    """Allow tuples, lists and dicts of tensors alone: other types import modules."""
    try:
        protocol, spec = json.loads(text if isinstance(text, str) else "")
        if protocol != 1:
            raise ValueError(f"protocol {protocol!r:.20}")
        waiting = [(spec, 1)]
        while waiting:
            node, depth = waiting.pop()
            kind, context, children = (node[k] for k in ("type", "context", "children_spec"))
            if kind is None and context is None and children == []:
                continue
            if kind not in _CONTAINERS:
                raise ModelError(f"{path} is refused: {key} holds the type {kind!r:.100}")
            if kind == "builtins.dict":
                keys = json.loads(context)
                if not isinstance(keys, list) or not all(isinstance(k, str | int) for k in keys):
                    raise ModelError(f"{path} is refused: {key} has keys that are not plain ones")
            elif context != _CONTAINERS[kind]:
                raise ModelError(f"{path} is refused: {key} has the context {context!r:.100}")
            if depth == _MAX_SPEC_DEPTH or not isinstance(children, list):
                raise ValueError("no tree, or a deep one")
            waiting.extend((child, depth + 1) for child in children)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: {key} is not a tree of types: {error!r}") from error


def find_input_size(path: Path, program: Any) -> tuple[int, int]:
    """Height and width of the image that a program takes.

    `ModelError` where it takes something else than one float32 image of fixed size.
    """
    import torch

    names = program.graph_signature.user_inputs
    values = [node.meta["val"] for node in program.graph.nodes if node.name in names]
    if len(values) != 1 or not isinstance(values[0], torch.Tensor):
        raise ModelError(f"{path} has {len(values)} inputs, needed is one image")
    shape = tuple(values[0].shape)
    if len(shape) != 4 or shape[:2] != (1, 3) or values[0].dtype != torch.float32:
        raise ModelError(
            f"{path} takes {values[0].dtype} {list(shape)}, needed is float32 [1, 3, H, W]"
        )
    return int(shape[2]), int(shape[3])


def unlift(program: Any) -> torch.nn.Module:
    """A program as a module, whose source torch writes and compiles here."""
    # Its guards are Python text made of names in the file; one fixed shape needs none.
    guarded = "check_guards" in inspect.signature(program.module).parameters
    module: torch.nn.Module = program.module(check_guards=False) if guarded else program.module()
    return module


def _make_module(program: Any) -> torch.nn.Module:
    """A module that returns the program's outputs as a flat tuple."""
    import torch
    from torch.utils import _pytree as pytree

    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.graph: torch.nn.Module = unlift(program)

        def train(self, mode: bool = True) -> Program:
            return self  # the mode was fixed at the export

        @property
        def static_graph(self) -> torch.nn.Module:
            return self.graph

        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(pytree.tree_leaves(self.graph(image)))

    return Program()
