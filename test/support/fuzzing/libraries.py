# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The library of variants: its files for other boards, and the headers of its entries."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Mapping
from pathlib import Path

from library_entries import FACTS, FILES, make_key, seal, store

from fuzzing.formats import Files, Format, read_folder
from fuzzing.mutations import INTEGERS, TEXTS, spoil_bytes
from fuzzing.texts import spoil_json
from jetson_dnn_rt.cli import main
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.variants.library.entry import HEADER
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.library.transfer import export_entries, import_entries

_BLOCK = 512
_FIELDS = (
    (0, 100), (100, 8), (108, 8), (116, 8), (124, 12), (136, 12), (156, 1), (157, 100), (257, 8),
    (265, 32), (329, 8), (345, 155), (386, 12), (482, 1), (483, 12),
)  # fmt: skip
"""Of a tar header: where each begins, and how long it is; the last three of GNU's."""

GOOD = make_key(model_hash="e" * 64)
SPOILT = make_key(kind="measurement")


def spoil_header(data: bytes, rng: random.Random) -> bytes:
    """Change the content of an ``entry.json``, mostly with the hash that fits."""
    how = rng.random()
    if how < 0.7:
        try:
            content = json.dumps(json.loads(data)["content"]).encode()
            return seal(json.loads(spoil_json(content, b"", rng))).encode()
        except (ValueError, LookupError, TypeError):  # spoilt before, or no JSON
            pass
    return spoil_json(data, b"", rng) if how < 0.9 else spoil_bytes(data, rng)


class EntryFile(Format):
    """A header in a library beside a good entry, and all that is done with a library."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        library = Library(folder / "cache")
        store(library, model_hash="e" * 64)
        store(library, kind="measurement")
        return {"two entries": read_folder(folder)}

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        (name,) = (one for one in files if one.endswith(f"{SPOILT.digest}/{HEADER}"))
        return {**files, name: spoil_header(files[name], rng)}

    def read(self, folder: Path, work: Path) -> int:
        library = Library(folder / "cache")
        found = library.load(SPOILT)
        good = library.load(GOOD)
        assert good is not None, "the good entry is lost"
        assert dict(good.files) == FILES, "the good entry is lost"
        assert GOOD in [one.header.key for one in library.entries() if one.header]
        library.prune(
            find_stale=lambda key: "", unused_days=1e6, limit_bytes=1 << 40, dry_run=True
        )
        export_entries(library, work / "all.tar", lambda listing: True)
        where = ["--engine-cache", str(folder / "cache")]
        for command in (["list"], ["list", "--json"], ["prune", "--dry-run", "--json"]):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                assert main.main(["library", *command, *where]) == 0
            text = out.getvalue()
            text.encode()
            assert "\x1b" not in text, "an escape sequence is printed"
        if found is None:
            raise ConfigurationError("the entry is reported, and not used")
        return len(found.files)


class Transfer(Format):
    """Files of ``library export``."""

    def make_seeds(self, folder: Path) -> dict[str, Files]:
        library = Library(folder / "cache")
        store(library, kind="weights", backend="")
        store(library, kind="tuning", backend="tvm", device="ä" * 9)
        library.store(make_key(kind="measurement"), {}, FACTS, model="onnx:a.onnx")
        export_entries(library, folder / "all.tar", lambda listing: True)
        return {"three entries": {"all.tar": (folder / "all.tar").read_bytes()}}

    def make_crafted(self, folder: Path, sound: Mapping[str, Files]) -> dict[str, Files]:
        """Headers with numbers for which tarfile has no error of its own, or no end."""
        first, *rest = _split(sound["three entries"]["all.tar"])
        made = {
            f"{name} of {size} bytes": _make_head(rest[0][0], kind, size)
            for name, kind in (("a file", b"0"), ("an extension", b"x"), ("a long name", b"L"))
            for size in (-(1 << 80), -512, -1, 1 << 33, 1 << 80)
        }
        for line in (b"size=99999999999999999999", b"size=-512", b"GNU.sparse.map=1,x",
                     b"GNU.sparse.size=x", b"hdrcharset=fuzz_trap"):  # fmt: skip
            content = b"%d %s\n" % (len(line) + 4, line)
            head, _ = _make_head(rest[0][0], b"x", len(content))
            made[f"an extension with {line.decode()}"] = head, content
        return {name: {"all.tar": _join([first, member, *rest])} for name, member in made.items()}

    def spoil(self, files: Files, other: Files, rng: random.Random) -> Files:
        data = files["all.tar"]
        if rng.random() < 0.2:
            return {"all.tar": spoil_bytes(data, rng)}
        return {"all.tar": _join(_spoil_members(_split(data), rng))}

    def read(self, folder: Path, work: Path) -> int:
        library = Library(work / "cache")
        taken = import_entries(library, folder / "all.tar")
        return sum(not one.reason for one in taken)


_Member = tuple[bytearray, bytes]


def _split(data: bytes) -> list[_Member]:
    members, place = [], 0
    while place + _BLOCK <= len(data) and any(data[place : place + _BLOCK]):
        head = bytearray(data[place : place + _BLOCK])
        try:
            size = int(head[124:136].rstrip(b"\0 ") or b"0", 8)
        except ValueError:  # spoilt before
            size = 0
        place += _BLOCK
        members.append((head, data[place : place + size]))
        place += -(-size // _BLOCK) * _BLOCK
    return members


def _join(members: list[_Member]) -> bytes:
    parts = [bytes(head) + content + bytes(-len(content) % _BLOCK) for head, content in members]
    return b"".join(parts) + bytes(2 * _BLOCK)


def _spoil_members(members: list[_Member], rng: random.Random) -> list[_Member]:
    members = list(members)
    if not members:
        return members
    place = rng.randrange(len(members))
    head, content = bytearray(members[place][0]), members[place][1]
    how = rng.randrange(10)
    if how == 0:
        del members[place]
        return members
    if how == 1:
        members[place:place] = [members[place]] * rng.choice((1, 3, 50))
        return members
    if how == 2:
        members.insert(rng.randrange(len(members)), members.pop(place))
        return members
    if how < 5 and head[156:157] in b"xg":
        content = _spoil_extension(content, rng)
        _set_size(head, len(content))
    elif how < 5:
        content = spoil_header(content, rng)
        _set_size(head, len(content))
    elif how == 5:
        content = spoil_bytes(content, rng)
    elif how == 6:
        # An extension header of pax or GNU before the member.
        extension = bytearray(head)
        extension[156:157] = rng.choice((b"x", b"g", b"L", b"K", b"S", b"V"))
        body = _spoil_extension(b"11 path=abc\n", rng)
        _set_size(extension, len(body))
        members.insert(place, (_seal_head(extension), body))
        place += 1
    else:
        start, width = rng.choice(_FIELDS)
        head[start : start + width] = _make_field(width, rng)
    members[place] = _seal_head(head), content
    return members


def _spoil_extension(content: bytes, rng: random.Random) -> bytes:
    """Records of pax: ``LENGTH KEY=VALUE`` and a line break."""
    keys = (
        "path", "linkpath", "size", "mtime", "uid", "hdrcharset", "GNU.sparse.major",
        "GNU.sparse.minor", "GNU.sparse.map", "GNU.sparse.size", "GNU.sparse.realsize",
        "GNU.sparse.name", "GNU.sparse.offset", "GNU.sparse.numblocks", "comment",
    )  # fmt: skip
    lines = content
    for _ in range(rng.choice((1, 1, 3))):
        value = rng.choice((*map(str, INTEGERS), *TEXTS, "1.5", "0,1,2", "0,9" * 50, "BINARY"))
        body = f" {rng.choice(keys)}={value}\n".encode("utf-8", "surrogatepass")
        length = len(body) + len(str(len(body) + 4))
        length = rng.choice((length, length, length, rng.choice(INTEGERS)))
        lines += str(length).encode() + body
    return lines if rng.random() < 0.8 else spoil_bytes(lines, rng)


def _make_field(width: int, rng: random.Random) -> bytes:
    number = rng.choice(INTEGERS)
    if width == 1:
        return bytes((rng.choice(b"\x000123456789xgLKSVDXA"),))
    texts = (
        b"%o" % abs(number),
        (b"\x80" if number >= 0 else b"\xff")
        + (number % (1 << 8 * (width - 1))).to_bytes(width - 1, "big"),
        rng.choice(TEXTS).encode("utf-8", "surrogatepass"),
        rng.randbytes(width),
        b"\xff" * width,
    )
    return rng.choice(texts)[:width].ljust(width, b"\0")


def _make_head(head: bytearray, kind: bytes, size: int) -> _Member:
    """A header of a type, with a size in the form that the number needs."""
    made = bytearray(head)
    made[156:157] = kind
    if 0 <= size < 8**11:
        _set_size(made, size)
    else:
        made[124:136] = (size % (1 << 96)).to_bytes(12, "big")
        made[124] = 0x80 if size > 0 else 0xFF
    return _seal_head(made), b""


def _set_size(head: bytearray, size: int) -> None:
    head[124:136] = b"%011o\0" % size


def _seal_head(head: bytearray) -> bytearray:
    """The checksum that fits."""
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return head
