"""Programs of `torch.export.save`, read only when nothing in the file can run code.

``torch.export.load`` unpickles with all rights, evaluates the expressions of open shapes, and
resolves the names of operators anywhere below ``torch``. So the archive is looked through first:
its members, its pickles (with ``weights_only``), its operators, and that its shapes are fixed.
"""

from __future__ import annotations

import inspect
import io
import json
import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.files import (
    MAX_MODEL_BYTES,
    hash_bytes,
    read_model_file,
    unpickle_tensors,
)
from jetson_dnn_rt.models.model import Opened, SourceOptions
from jetson_dnn_rt.models.torch_source import TorchOrigin
from jetson_dnn_rt.trust import check_trusted

if TYPE_CHECKING:
    import torch

# Members of the archives of torch 2.8 and later, below a folder named after the file, and those
# of torch 2.1 to 2.7. Compiled libraries and pickled objects of other classes are not among them.
_MEMBERS = re.compile(
    r"([^/]+/)?(data/(weights|constants)/((weight|tensor)_\d+|[\w.-]+_config\.json|[\w.-]+\.pt)"
    r"|data/sample_inputs/[\w.-]+\.pt|models/[\w.-]+\.json"
    r"|archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)"
    r"|serialized_(exported_program\.json|(state_dict|constants|example_inputs)\.(pt|json)))"
)
_OPERATORS = re.compile(
    r"torch\.ops\.(aten|torchvision|prims)\.(?!from_file\b)\w+\.\w+"
    r"|torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)"
    r"|_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|neg|pow|eq|ne|lt|le|gt|ge)"
)


def open_exported(path: Path, options: SourceOptions) -> Opened:
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

    data = read_model_file(path if options.trust else check_trusted(path))
    check_archive(path, data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(io.BytesIO(data))
    except Exception as error:  # a program of another torch fails in many ways
        raise ModelError(
            f"{path} cannot be read by torch {torch.__version__}: {error}; export it anew with "
            "this version"
        ) from error
    size = _find_input_size(path, program)
    if options.input_size not in (None, size):
        raise ModelError(f"{path} takes {size[0]}x{size[1]}, input_size says {options.input_size}")
    return Opened(
        TorchOrigin(f"exported:{path}", lambda: _make_module(program), size),
        hash_bytes(data),
        size,
    )


def check_archive(path: Path, data: bytes) -> None:
    """Look through an archive for anything that could run code when it is loaded.

    Raises
    ------
    ModelError
        When there is something, or the archive is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            # Bytes before the first member, or after the last, are an archive inside another:
            # a truncated file looks so, and one made to be read differently by two readers.
            if archive.comment or min((m.header_offset for m in members), default=0) > 0:
                raise zipfile.BadZipFile("its directory is not its own")
            if sum(member.file_size for member in members) > MAX_MODEL_BYTES:
                raise ModelError(f"{path} unpacks to more than {MAX_MODEL_BYTES} bytes")
            if len({member.filename for member in members}) != len(members):
                raise ModelError(f"{path} is refused: a member is there twice")
            for member in members:
                _check_member(path, member.filename, archive.read(member))
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError) as error:
        raise ModelError(f"{path} is damaged or no exported program: {error}") from error
    if not any(member.filename.endswith(".json") for member in members):
        raise ModelError(f"{path} holds no exported program")


def _check_member(path: Path, name: str, data: bytes) -> None:
    if not _MEMBERS.fullmatch(name):
        raise ModelError(f"{path} is refused: {name} is no part of a plain exported program")
    if name.endswith((".pt", "state_dict.json", "constants.json")) and data:
        unpickle_tensors(data, f"{path}: {name}")
    elif name.endswith(".json"):
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path} is damaged: {name}: {error}") from error
        for key, value in _walk(content):
            _check_entry(path, key, value)


def _check_entry(path: Path, key: str, value: object) -> None:
    if key == "expr_str":
        raise ModelError(f"{path} has open shapes: export it with a fixed input [1, 3, H, W]")
    if key == "use_pickle" and value:
        raise ModelError(f"{path} is refused: it holds pickled objects, not plain tensors")
    if key == "nodes" and isinstance(value, list):
        for node in value:
            target = node.get("target") if isinstance(node, dict) else None
            if not isinstance(target, str) or not _OPERATORS.fullmatch(target):
                raise ModelError(f"{path} is refused: operator {target!r} is not a network's")


def _walk(content: object) -> Iterator[tuple[str, object]]:
    """Every key and value of a JSON document."""
    waiting = [content]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield from item.items()
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)


def _find_input_size(path: Path, program: Any) -> tuple[int, int]:
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


def _make_module(program: Any) -> torch.nn.Module:
    """A module that returns the program's outputs as a flat tuple."""
    import torch
    from torch.utils import _pytree as pytree

    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # Its guards are Python text made of names in the file; one fixed shape needs none.
            guarded = "check_guards" in inspect.signature(program.module).parameters
            self.graph: torch.nn.Module = (
                program.module(check_guards=False) if guarded else program.module()
            )

        def train(self, mode: bool = True) -> Program:
            return self  # the mode was fixed at the export

        @property
        def static_graph(self) -> torch.nn.Module:
            return self.graph

        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(pytree.tree_leaves(self.graph(image)))

    return Program()
