"""Entries of the library: key, files, and the text that describes both.

``entry.json`` holds a schema number, the SHA-256 of its content, and the content: the key, the
files with size and SHA-256, and the facts. What is read from it is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

SCHEMA = 1
HEADER = "entry.json"
KINDS = ("weights", "artefact", "tuning", "measurement")

MAX_HEADER_BYTES = 4 << 20
MAX_FILE_BYTES = 4 << 30
MAX_FILES = 256

_HASH = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MAX_TEXT = 300
_MAX_SHAPES, _MAX_RANK, _MAX_SIDE = 256, 16, 1 << 31


# What reading JSON of any other form than ours can raise: wrong types, missing keys, dates beyond
# the calendar, nesting without end.
_WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class DamagedEntryError(ValueError):
    """An entry is not what the library wrote; the text says why."""


class OtherSchemaError(ValueError):
    """An entry was written by a release with another form of entries."""


@dataclass(frozen=True)
class EntryKey:
    """All that decides the content of an entry: where one field differs, it is another entry.

    A field that cannot be what it stands for is a `ValueError`, which names it. Those of the back
    end are empty where the content does not depend on it, as for weights.
    """

    model_hash: str  # SHA-256, hexadecimal
    graph_hash: str  # of the graph that was built, with its weights: the network or a part
    decomposition: str  # "full", "tucker-0.50"
    kind: str  # one of `KINDS`; an artefact is an engine or compiled model
    backend: str = ""
    backend_version: str = ""
    device: str = ""  # the GPU with its compute capability, or the CPU
    precision: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()  # of the inputs
    options: str = ""  # whatever else decides: "threads=2"

    def __post_init__(self) -> None:
        for name in ("model_hash", "graph_hash"):
            _expect(_is_match(_HASH, getattr(self, name)), name, getattr(self, name), "64 hex")
        _expect(self.kind in KINDS, "kind", self.kind, f"one of {', '.join(KINDS)}")
        word = "a short word of lower case"
        _expect(_is_match(_WORD, self.decomposition), "decomposition", self.decomposition, word)
        for name in ("backend", "precision"):
            value = getattr(self, name)
            _expect(value == "" or _is_match(_WORD, value), name, value, word)
        for name in ("backend_version", "device", "options"):
            value = getattr(self, name)
            _expect(_is_text(value), name, value, f"one line of at most {_MAX_TEXT} characters")
        _expect(_are_shapes(self.shapes), "shapes", self.shapes, "tuples of sides >= 0")

    @property
    def digest(self) -> str:
        """SHA-256 over all fields, hexadecimal."""
        return hashlib.sha256(encode_canonical(self.to_json())).hexdigest()

    @property
    def variant(self) -> str:
        """The variant's name: ``tucker-0.50@torch-fp32``; without a back end ``tucker-0.50``."""
        backend = "-".join(part for part in (self.backend, self.precision) if part)
        return f"{self.decomposition}@{backend}" if backend else self.decomposition

    def differences(self, other: EntryKey) -> dict[str, tuple[Any, Any]]:
        """Fields in which another key differs: (here, there)."""
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def to_json(self) -> dict[str, Any]:
        """All fields, as JSON has them."""
        return {**asdict(self), "shapes": [list(shape) for shape in self.shapes]}

    @staticmethod
    def from_json(value: object) -> EntryKey:
        """Read what `to_json` gave; raises `ValueError` when it is not that."""
        names = {field.name for field in fields(EntryKey)}
        if not isinstance(value, dict) or set(value) != names:
            raise ValueError(f"a key must have the fields {', '.join(sorted(names))}")
        shapes = value["shapes"]
        if not isinstance(shapes, list) or not all(isinstance(s, list) for s in shapes):
            raise ValueError(f"shapes must be a list of lists: {shapes!r}"[:_MAX_TEXT])
        return EntryKey(**{**value, "shapes": tuple(tuple(shape) for shape in shapes)})


@dataclass(frozen=True)
class FileFacts:
    """Size in bytes and SHA-256 of one file of an entry."""

    size: int
    sha256: str

    @staticmethod
    def of(data: bytes) -> FileFacts:
        """Facts of these bytes."""
        return FileFacts(len(data), hashlib.sha256(data).hexdigest())

    def check(self, name: str, data: bytes) -> None:
        """Raise `DamagedEntryError` when a file's content has another size or hash."""
        if len(data) != self.size:
            raise DamagedEntryError(f"{name} has {len(data)} bytes, not {self.size}")
        if FileFacts.of(data) != self:
            raise DamagedEntryError(f"SHA-256 of {name} differs")


@dataclass(frozen=True)
class Header:
    """The content of ``entry.json``."""

    key: EntryKey
    model: str  # as the user named it, for people
    created: datetime  # in UTC
    files: dict[str, FileFacts]  # by file name
    facts: dict[str, Any]  # whatever was stored with it

    def encode(self) -> bytes:
        """Write ``entry.json``.

        Raises `ValueError` when a file's name is not allowed, there are too many, or the facts are
        no JSON or too large.
        """
        for name in self.files:
            check_file_name(name)
        if len(self.files) > MAX_FILES:
            raise ValueError(f"files must be at most {MAX_FILES}: {len(self.files)}")
        content = {
            "key": self.key.to_json(),
            "model": make_printable(self.model)[:_MAX_TEXT],
            "created": self.created.isoformat(timespec="seconds"),
            "files": {name: asdict(facts) for name, facts in self.files.items()},
            "facts": self.facts,
        }
        digest = hashlib.sha256(encode_canonical(content)).hexdigest()
        header = {"schema": SCHEMA, "sha256": digest, "content": content}
        text = json.dumps(header, indent=1, allow_nan=False).encode()
        if len(text) > MAX_HEADER_BYTES:
            raise ValueError(f"facts must fit into {MAX_HEADER_BYTES} bytes: {len(text)}")
        return text

    @staticmethod
    def decode(text: bytes) -> Header:
        """Read ``entry.json``.

        Raises `OtherSchemaError` when another release wrote it, `DamagedEntryError` when it is
        anything else than what `encode` gave.
        """
        try:
            header = json.loads(text, parse_constant=_refuse_constant)
            canonical = encode_canonical(header["content"]) if "content" in header else b""
        except _WRONG as error:
            raise DamagedEntryError(f"{HEADER} cannot be read: {_tell(error)}") from error
        schema = header.get("schema") if isinstance(header, dict) else None
        if type(schema) is int and schema != SCHEMA:
            raise OtherSchemaError(f"schema {str(schema)[:20]}, this release has {SCHEMA}")
        if type(schema) is not int or set(header) != {"schema", "sha256", "content"}:
            raise DamagedEntryError(f"{HEADER} is not that of an entry")
        if hashlib.sha256(canonical).hexdigest() != header["sha256"]:
            raise DamagedEntryError(f"SHA-256 of {HEADER} differs")
        try:
            return Header._from_content(header["content"])
        except _WRONG as error:
            raise DamagedEntryError(f"{HEADER}: {_tell(error)}") from error

    @staticmethod
    def _from_content(content: Mapping[str, Any]) -> Header:
        files = {check_file_name(n): FileFacts(**f) for n, f in content["files"].items()}
        for name, facts in files.items():
            if type(facts.size) is not int or not 0 <= facts.size <= MAX_FILE_BYTES:
                raise ValueError(f"size of {name}: {facts.size!r}")
            _expect(_is_match(_HASH, facts.sha256), f"sha256 of {name}", facts.sha256, "64 hex")
        if len(files) > MAX_FILES or not isinstance(content["facts"], dict):
            raise ValueError("too many files, or facts that are no object")
        created = datetime.fromisoformat(content["created"])
        if created.tzinfo is None:
            raise ValueError(f"created has no time zone: {created}")
        key = EntryKey.from_json(content["key"])
        model = content["model"]
        _expect(_is_text(model), "model", model, f"one line of at most {_MAX_TEXT} characters")
        return Header(key, model, created.astimezone(timezone.utc), files, content["facts"])


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry with the content of its files, as it was read and checked.

    What was hashed is what is in `files`, whatever becomes of the files on disk.
    """

    header: Header
    files: Mapping[str, bytes]
    path: Path | None  # its folder; None where it could not be stored

    @property
    def key(self) -> EntryKey:
        """Key of the entry."""
        return self.header.key

    @property
    def facts(self) -> dict[str, Any]:
        """Whatever was stored with it."""
        return self.header.facts


def check_file_name(name: str) -> str:
    """Return a name that a file of an entry may have; raises `ValueError` for any other."""
    if not _is_match(_FILE_NAME, name) or name == HEADER:
        raise ValueError(f"files: {name!r} is no name for a file of an entry")
    return name


def make_printable(text: str) -> str:
    """Make a text one line that every terminal takes; ``?`` for what cannot be shown."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _tell(error: Exception) -> str:
    return make_printable(str(error))[:_MAX_TEXT]


def encode_canonical(value: object) -> bytes:
    """Encode JSON in the one form that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _expect(right: bool, name: str, value: object, expected: str) -> None:
    if not right:
        raise ValueError(f"{name} must be {expected}: {str(value)[:_MAX_TEXT]!r}")


def _is_match(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_TEXT and value.isprintable()


def _are_shapes(shapes: object) -> bool:
    return (
        isinstance(shapes, tuple)
        and len(shapes) <= _MAX_SHAPES
        and all(isinstance(shape, tuple) and len(shape) <= _MAX_RANK for shape in shapes)
        and all(type(side) is int and 0 <= side < _MAX_SIDE for shape in shapes for side in shape)
    )
