# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Networks and weights: ONNX, programs of ``torch.export``, safetensors and ``torch.save``."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import torch
from google.protobuf.message import Message
from networks import Classifier, make_onnx

from fuzzing.formats import Files, Format
from fuzzing.mutations import INTEGERS, TEXTS, TRAP, spoil_bytes
from fuzzing.texts import spoil_json
from jetson_dnn_rt.models.sources.files import load_weights
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.models.sources.torch import TorchOrigin

_SIZE = (32, 48)
_OPERATORS = sorted({schema.name for schema in onnx.defs.get_all_schemas()})


class Onnx(Format):
    """ONNX files, opened, run once and made torch operators of."""

    packages = ("onnx", "onnx2torch", "onnxruntime", "torch")

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        names = {"names": "{0: 'a', 1: 'b', 2: 'c', 3: 'd', 4: 'e'}"}
        made = {
            "maps": make_onnx(folder / "maps.onnx").read_bytes(),
            "named": make_onnx(folder / "named.onnx", metadata=names).read_bytes(),
            "classes": TorchOrigin.of_module("test", Classifier(), _SIZE).onnx_model(),
        }
        return {name: {"net.onnx": data} for name, data in made.items()}

    def make_crafted(self, folder: Path, sound: Mapping[str, Files]) -> dict[str, Files]:
        """Metadata that is Python's literals: long numbers, and expressions without end."""
        texts = {
            "a key of 5,000 digits": "{'" + "9" * 5000 + "': 'a'}",
            "a name of 50,000 digits": "{0: 0x" + "f" * 50_000 + "}",
            "many minuses": "-" * 60_000 + "1",
            "many additions": "1" + "+1" * 30_000,
            "many brackets": "[" * 60_000,
        }
        made = {}
        for name, text in texts.items():
            metadata = {"names": text, "task": "segment"}
            path = make_onnx(folder / "a.onnx", metadata=metadata)
            made[name] = {"net.onnx": path.read_bytes()}
        return made

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        data = files["net.onnx"]
        if rng.random() < 0.25:
            return {"net.onnx": spoil_bytes(data, rng, other["net.onnx"])}
        try:
            model = onnx.load_model_from_string(data)
            for _ in range(rng.choice((1, 1, 2, 4))):
                spoil_message(model, rng)
            return {"net.onnx": model.SerializeToString()}
        except Exception:  # protobuf's, of what was spoilt before
            return {"net.onnx": spoil_bytes(data, rng, other["net.onnx"])}

    def read(self, folder: Path, work: Path) -> list[int]:
        model = load_model(f"onnx:{folder / 'net.onnx'}")
        model.torch_module()
        return list(model.input_shape)


def spoil_message(model: Message, rng: random.Random) -> None:
    """Change one field of a message of protobuf, or of one within it."""
    waiting, messages = [model], []
    while waiting:
        message = waiting.pop()
        messages.append(message)
        for field, value in message.ListFields():
            if field.message_type is not None:
                waiting.extend(value if _is_repeated(field) else [value])
    message = rng.choice(messages)
    present = [field for field, _ in message.ListFields()]
    field = rng.choice(present if present and rng.random() < 0.7 else message.DESCRIPTOR.fields)
    try:
        _change_field(message, field, rng)
    except (TypeError, ValueError, OverflowError):  # a value that its type does not take
        message.ClearField(field.name)


def _is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)  # protobuf 6.31; `label` is gone in 7
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _change_field(message: Any, field: Any, rng: random.Random) -> None:
    value = getattr(message, field.name)
    if not _is_repeated(field):
        if field.message_type is None:
            setattr(message, field.name, _make_value(field, value, rng))
        elif rng.random() < 0.5:
            message.ClearField(field.name)
        else:
            value.SetInParent()
        return
    place = rng.randrange(len(value)) if value else 0
    how = rng.randrange(5)
    if how == 0 and value:
        del value[place]
    elif how == 1 and value:
        value.extend([value[place]] * rng.choice((1, 1, 100)))
    elif how == 2 and len(value) > 1:
        items = list(value)
        items.insert(0, items.pop(place))
        copies = [item if field.message_type is None else _copy(item) for item in items]
        message.ClearField(field.name)
        value.extend(copies)
    elif field.message_type is not None:
        value.add()
    elif value:
        value[place] = _make_value(field, value[place], rng)
    else:
        value.append(_make_value(field, field.default_value or 0, rng))


def _copy(message: Any) -> Any:
    made = type(message)()
    made.CopyFrom(message)
    return made


def _make_value(field: Any, old: Any, rng: random.Random) -> Any:
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return spoil_bytes(old or b"", rng)
        words = [text for text in TEXTS if text.isprintable()]
        return rng.choice((rng.choice(_OPERATORS), rng.choice(words), f"{old}x", "image0"))
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    if kind == field.CPPTYPE_BOOL:
        return not old
    if field.enum_type is not None:
        return rng.choice([one.number for one in field.enum_type.values])
    return rng.choice((old + 1, old - 1, -old, 2 * old, *INTEGERS, rng.randrange(30)))


class Program(Format):
    """Programs of ``torch.export``."""

    packages = ("torch",)
    starts_python = True

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        stream = io.BytesIO()
        program = torch.export.export(Classifier().eval(), (torch.zeros(1, 3, *_SIZE),))
        torch.export.save(program, stream)
        return {"classes": {"net.pt2": stream.getvalue()}}

    def make_crafted(self, folder: Path, sound: Mapping[str, Files]) -> dict[str, Files]:
        """A member that is inflated to a gigabyte, and names for which zipfile has no error."""
        data = sound["classes"]["net.pt2"]
        made = {
            "a name that is no text": data.replace(b"weights/weight_0", b"weights/\xff\xfe\xff_0"),
            "encrypted": _set_flag(data, 0x1),
            "a name in another encoding": _set_flag(data, 0x800),
        }
        stream = io.BytesIO(data)
        with zipfile.ZipFile(stream, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            start = archive.namelist()[0].split("/")[0]
            with archive.open(f"{start}/data/weights/weight_99", "w", force_zip64=True) as member:
                for _ in range(1300):
                    member.write(bytes(1 << 20))
        made["a bomb"] = stream.getvalue()
        return {name: {"net.pt2": content} for name, content in made.items()}

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        data = files["net.pt2"]
        if rng.random() < 0.3:
            return {"net.pt2": spoil_bytes(data, rng)}
        try:
            return {"net.pt2": spoil_archive(data, rng)}
        except Exception:  # zipfile's, of what was spoilt before
            return {"net.pt2": spoil_bytes(data, rng)}

    def read(self, folder: Path, work: Path) -> list[int]:
        model = load_model(f"exported:{folder / 'net.pt2'}", labels=list("abcdefg"))
        return list(model.input_shape)


def _set_flag(data: bytes, flag: int) -> bytes:
    """Set a flag of every member in an archive's directory; one name is no UTF-8 then."""
    changed = bytearray(data.replace(b"weights/weight_0", b"weights/w\xff\xfeght_0"))
    place = changed.find(b"PK\x01\x02")
    while place >= 0:
        changed[place + 8 : place + 10] = struct.pack("<H", flag)
        place = changed.find(b"PK\x01\x02", place + 4)
    return bytes(changed)


def spoil_archive(data: bytes, rng: random.Random) -> bytes:
    """Change a member of a Zip archive, its name, or how it is stored."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    place = rng.choice([
        number for number, (name, content) in enumerate(members) if content
    ])  # fmt: skip
    if rng.random() < 0.5:
        # The program itself is the largest of the documents.
        documents = [n for n, (name, _) in enumerate(members) if name.endswith(".json")]
        place = max(documents, key=lambda n: len(members[n][1]), default=place)
    name, content = members[place]
    how = rng.randrange(10)
    if how == 0:
        del members[place]
    elif how == 1:
        words = (TRAP, "custom_obj_0", "data/constants/tensor_9", "../x", "é", "")
        members[place] = name[: rng.randrange(len(name))] + rng.choice(words), content
    elif how == 2:
        members.append((name, content))
    elif name.endswith(".json"):
        members[place] = name, spoil_json(content, b"", rng)
    else:
        members[place] = name, spoil_bytes(content, rng)
    packing = rng.choice((zipfile.ZIP_STORED,) * 4 + (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return stream.getvalue()


class Weights(Format):
    """State dictionaries."""

    packages = ("torch", "safetensors")

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        import safetensors.torch

        state = {"a.weight": torch.arange(12.0).reshape(3, 4), "a.bias": torch.ones(3).half()}
        stream, old = io.BytesIO(), io.BytesIO()
        torch.save(state, stream)
        torch.save({"state_dict": state}, old, _use_new_zipfile_serialization=False)
        made = {
            "w.safetensors": safetensors.torch.save(state),
            "w.pt": stream.getvalue(),
            "w.pth": old.getvalue(),
        }
        return {name: {name: data} for name, data in made.items()}

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        ((name, data),) = files.items()
        ((_, piece),) = other.items()
        if name == "w.safetensors" and rng.random() < 0.6 and len(data) > 8:
            (length,) = struct.unpack_from("<Q", data)
            head, rest = data[8 : 8 + length], data[8 + length :]
            head = spoil_json(head, b"", rng)
            return {name: struct.pack("<Q", len(head)) + head + rest}
        if name == "w.pt" and rng.random() < 0.5:
            try:
                return {name: spoil_archive(data, rng)}
            except Exception:  # zipfile's, of what was spoilt before
                pass
        return {name: spoil_bytes(data, rng, piece)}

    def read(self, folder: Path, work: Path) -> int:
        (path,) = folder.iterdir()
        return len(load_weights(path))
