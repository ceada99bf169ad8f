# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Entries of a library as one file, to copy what was built on one board to others of its kind.

The file is a plain tar: for every entry a folder named by its digest, ``entry.json`` first. Names,
sizes and hashes are checked before anything is stored, and machine code (engines, compiled
kernels) is never imported: it is made where it will run, from what is imported. But a tuning
database decides what code is made, so a file is trusted as a program is.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jetson_dnn_rt.backends.registry import BUILT_BEFOREHAND, KEEPS_COMPILED
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.variants.library.entry import (
    HEADER,
    MAX_HEADER_BYTES,
    DamagedEntryError,
    EntryKey,
    Header,
)
from jetson_dnn_rt.variants.library.library import Library, Listing

MAX_ENTRY_BYTES = 1 << 30
"""Bytes of all files of one entry, which are held in memory until they are stored."""

# Of an entry that is damaged or of another release, ValueError; the others are tarfile's, for
# headers with odd numbers: a member of 2^70 bytes, a map of holes that is none.
_DAMAGE = (ValueError, LookupError, MemoryError, OverflowError)

_MEMBER = re.compile(r"([0-9a-f]{64})/([A-Za-z0-9][A-Za-z0-9._-]{0,99})")


@dataclass(frozen=True)
class Transfer:
    """Outcome of one entry; `reason` says why it was left out, else it is empty."""

    header: Header
    size_bytes: int
    reason: str = ""


def holds_code(key: EntryKey) -> bool:
    """Whether an entry holds what is run as it is: an engine, a compiled library."""
    return key.kind == "artefact" and key.backend in (*BUILT_BEFOREHAND, *KEEPS_COMPILED)


def export_entries(
    library: Library, file: Path, is_wanted: Callable[[Listing], bool]
) -> list[Transfer]:
    """Write the wanted entries into a file, replacing an older one; those with code are left out.

    Returns one transfer for each that was wanted. Raises `ConfigurationError` when the file cannot
    be written; then an older one stays.
    """
    half = file.with_name(f".{file.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    transfers = []
    try:
        with tarfile.open(half, "x", format=tarfile.PAX_FORMAT) as archive:
            for listing in filter(is_wanted, library.entries()):
                if listing.header is not None:
                    transfers.append(_export(library, listing.header, archive))
        half.replace(file)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            half.unlink()
    return transfers


def _export(library: Library, header: Header, archive: tarfile.TarFile) -> Transfer:
    if holds_code(header.key):
        return Transfer(header, 0, "it is machine code, which is made where it runs")
    entry = library.load(header.key)
    if entry is None:
        return Transfer(header, 0, "it is damaged, or gone")
    size = sum(map(len, entry.files.values()))
    if size > MAX_ENTRY_BYTES:
        return Transfer(header, size, f"it has {size} bytes, at most {MAX_ENTRY_BYTES}")
    for name, data in {HEADER: entry.header.encode(), **entry.files}.items():
        member = tarfile.TarInfo(f"{header.key.digest}/{name}")
        member.size, member.mode = len(data), 0o644
        member.mtime = int(entry.header.created.timestamp())
        archive.addfile(member, io.BytesIO(data))
    return Transfer(entry.header, size)


def import_entries(library: Library, file: Path, *, replace: bool = False) -> list[Transfer]:
    """Store the entries of a file that the user trusts, each after all of it was checked.

    With `replace` those too whose key is there already. Returns one transfer for each entry of the
    file. Raises `ConfigurationError` when the file cannot be read, or is not what `export_entries`
    writes, naming the member; entries before it are stored.
    """
    transfers = []
    try:
        # Not compressed: a member is as large as the file says, and no larger.
        with tarfile.open(file, "r:") as archive:
            for header, files in _read(archive):
                transfers.append(_import(library, header, files, replace))
    except (tarfile.TarError, EOFError, *_DAMAGE) as error:
        raise ConfigurationError(f"{file} is refused: {error or type(error).__name__}") from error
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}") from error
    return transfers


def _import(library: Library, header: Header, files: dict[str, bytes], replace: bool) -> Transfer:
    size = sum(map(len, files.values()))
    if holds_code(header.key):
        return Transfer(header, size, "it is machine code, which is made where it runs")
    if not replace and library.load(header.key) is not None:
        return Transfer(header, size, "the library has it; --replace takes this one instead")
    entry = library.store(header.key, files, header.facts, model=header.model)
    return Transfer(header, size, "" if entry.path else "the library cannot be written")


def _read(archive: tarfile.TarFile) -> Iterator[tuple[Header, dict[str, bytes]]]:
    """Entries one after the other, whole and checked."""
    header: Header | None = None
    files: dict[str, bytes] = {}
    for member in archive:
        digest, name = _check_member(member)
        if header is None:
            if name != HEADER:
                raise DamagedEntryError(f"{member.name}: an entry begins with {HEADER}")
            header = _read_header(archive, member, digest)
        elif digest != header.key.digest or name in files or name not in header.files:
            raise DamagedEntryError(f"{member.name} is not of the entry before it")
        else:
            if member.size != header.files[name].size:
                size = header.files[name].size
                raise DamagedEntryError(f"{member.name} has {member.size} bytes, not {size}")
            files[name] = _extract(archive, member)
            header.files[name].check(member.name, files[name])
        if len(files) == len(header.files):
            yield header, files
            header, files = None, {}
    if header is not None:
        missing = sorted(set(header.files) - set(files))
        raise DamagedEntryError(f"it ends within an entry, {', '.join(missing)} is missing")


def _check_member(member: tarfile.TarInfo) -> tuple[str, str]:
    found = _MEMBER.fullmatch(member.name)
    # `isreg` holds for sparse files too, whose size is not what they take in the archive.
    if found is None or member.type != tarfile.REGTYPE or member.issparse() or member.size < 0:
        raise DamagedEntryError(f"{member.name[:200]!r} is not a file of an entry")
    return found[1], found[2]


def _read_header(archive: tarfile.TarFile, member: tarfile.TarInfo, digest: str) -> Header:
    if member.size > MAX_HEADER_BYTES:
        raise DamagedEntryError(f"{member.name} has {member.size} bytes")
    header = Header.decode(_extract(archive, member))
    if header.key.digest != digest:
        raise DamagedEntryError(f"{member.name}: its key is not that of its folder")
    size = sum(facts.size for facts in header.files.values())
    if size > MAX_ENTRY_BYTES:
        raise DamagedEntryError(f"{member.name}: {size} bytes, at most {MAX_ENTRY_BYTES}")
    return header


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None  # it is a regular file
    with stream:
        return stream.read()
