# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Entries of the library: key, files, and the text that describes both.

``entry.json`` holds a schema number, the SHA-256 of its content, and the content: the key, the
files with size and SHA-256, and the facts. What is read from it is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from jetson_dnn_rt.printable import make_printable
from jetson_dnn_rt.safety.records import (
    Rule,
    at_most,
    check_record,
    matching,
    one_of,
    read_record,
    within,
)

SCHEMA = 1
HEADER = "entry.json"
KINDS = ("weights", "artefact", "tuning", "measurement", "split")

MAX_HEADER_BYTES = 4 << 20
MAX_FILE_BYTES = 4 << 30
MAX_FILES = 256

_MAX_TEXT = 300
_WORD = r"[a-z0-9][a-z0-9._-]{0,63}"

_Hash = Annotated[str, matching(r"[0-9a-f]{64}", "64 hex digits")]
_Word = Annotated[str, matching(_WORD, "a short word of lower case")]
_OptionalWord = Annotated[str, matching(rf"({_WORD})?", "a short word of lower case, or empty")]
_Line = Annotated[str, at_most(_MAX_TEXT), Rule("one line that can be printed", str.isprintable)]
_Shape = Annotated[tuple[Annotated[int, within(0, (1 << 31) - 1)], ...], at_most(16)]
_FileName = Annotated[
    str,
    matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", "the name of a file of an entry"),
    Rule(f"another file than {HEADER}", lambda name: name != HEADER),
]


class DamagedEntryError(ValueError):
    """An entry is not what the library wrote; the text says why."""


class OtherSchemaError(ValueError):
    """An entry was written by a release with another format of entries."""


@dataclass(frozen=True)
class EntryKey:
    """All that decides the content of an entry: where one field differs, it is another entry.

    An invalid field raises a `ValueError`, which names it. Those of the back
    end are empty where the content does not depend on it, as for weights.
    """

    model_hash: _Hash  # of several models: of their hashes
    graph_hash: _Hash  # of the graph that was built, with its weights: the network or a part
    decomposition: _Word  # "full", "tucker-0.50"
    # An artefact is an engine or compiled model, a split how the cores are shared.
    kind: Annotated[str, one_of(*KINDS)]
    backend: _OptionalWord = ""
    backend_version: _Line = ""
    device: _Line = ""  # the GPU with its compute capability, or the CPU
    precision: _OptionalWord = ""
    shapes: Annotated[tuple[_Shape, ...], at_most(256)] = ()  # of the inputs
    options: _Line = ""  # anything else that decides: "threads=2"

    def __post_init__(self) -> None:
        check_record(self)

    @property
    def digest(self) -> str:
        """SHA-256 over all fields, hexadecimal."""
        return hashlib.sha256(encode_canonical(asdict(self))).hexdigest()

    @property
    def variant(self) -> str:
        """The variant's name: ``tucker-0.50@torch-fp32``; without a back end ``tucker-0.50``."""
        backend = "-".join(part for part in (self.backend, self.precision) if part)
        return f"{self.decomposition}@{backend}" if backend else self.decomposition

    def differences(self, other: EntryKey) -> dict[str, tuple[Any, Any]]:
        """Fields in which another key differs: (here, there)."""
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@dataclass(frozen=True)
class FileFacts:
    """Size in bytes and SHA-256 of one file of an entry."""

    size: Annotated[int, within(0, MAX_FILE_BYTES)]
    sha256: _Hash

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
    model: _Line  # as the user named it, for people
    created: datetime  # in UTC
    files: Annotated[dict[_FileName, FileFacts], at_most(MAX_FILES)]
    facts: dict[str, Any]  # whatever was stored with it

    def encode(self) -> bytes:
        """Write ``entry.json``.

        Raises `ValueError` when a file's name is not allowed, there are too many, or the facts are
        not JSON or too large.
        """
        header = replace(self, model=make_printable(self.model)[:_MAX_TEXT])
        check_record(header)
        created = self.created.isoformat(timespec="seconds")
        content = {**asdict(header), "created": created}
        digest = hashlib.sha256(encode_canonical(content)).hexdigest()
        sealed = {"schema": SCHEMA, "sha256": digest, "content": content}
        text = json.dumps(sealed, indent=1, allow_nan=False).encode()
        if len(text) > MAX_HEADER_BYTES:
            raise ValueError(f"facts must fit into {MAX_HEADER_BYTES} bytes: {len(text)}")
        return text

    @staticmethod
    def decode(text: bytes) -> Header:
        """Read ``entry.json``.

        Raises `OtherSchemaError` when another release wrote it, `DamagedEntryError` when it is
        anything but the output of `encode`.
        """
        try:
            header = json.loads(text, parse_constant=_refuse_constant)
            canonical = encode_canonical(header["content"]) if "content" in header else b""
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise DamagedEntryError(f"{HEADER} cannot be read: {_tell(error)}") from error
        schema = header.get("schema") if isinstance(header, dict) else None
        if type(schema) is int and schema != SCHEMA:
            raise OtherSchemaError(f"schema {str(schema)[:20]}, this release has {SCHEMA}")
        if type(schema) is not int or set(header) != {"schema", "sha256", "content"}:
            raise DamagedEntryError(f"{HEADER} is not that of an entry")
        if hashlib.sha256(canonical).hexdigest() != header["sha256"]:
            raise DamagedEntryError(f"SHA-256 of {HEADER} differs")
        try:
            return read_record(Header, header["content"])
        except ValueError as error:
            raise DamagedEntryError(f"{HEADER}: {_tell(error)}") from error


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry with the content of its files, as it was read and checked.

    `files` holds the bytes that were hashed, whatever happens to the files on disk.
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


def _tell(error: Exception) -> str:
    return make_printable(str(error))[:_MAX_TEXT]


def encode_canonical(value: object) -> bytes:
    """Encode JSON in the one form that is hashed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
