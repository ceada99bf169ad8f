# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Decompression within limits: of messages, of chunks, and of files compressed as a whole.

Zstandard and LZ4 are of the extra ``bags``, bzip2 is of Python.
"""

from __future__ import annotations

import bz2
import errno
import importlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from jetson_dnn_rt.cameras.bags.storage import BagFile, DamagedFileError, DamagedMessageError
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError, SourceError

MAGIC = b"\x28\xb5\x2f\xfd"
"""First bytes of a Zstandard frame (RFC 8878, section 3.1.1); no CDR message begins so."""

MAX_PLAIN = 256 << 20
"""Bytes of a message, or of a chunk of messages."""

_MAX_RATIO = 100  # decompressed bytes accepted for each stored one, besides ...
_FREE = 32 << 20  # ... so many of any message: black images shrink to a ten-thousandth
_FREE_FILE = 1 << 30  # ... and so many of any file
_PIECE, _MOST = 1 << 16, 1 << 20
"""Bytes that go into a decompressor at once, and that may come out."""


class BadCompressionError(JetsonDnnRtError):
    """Bytes cannot be decompressed, or would become too many."""


def decompress(
    data: bytes | memoryview, *, compression: str = "zstd", size: int | None = None
) -> memoryview:
    """Decompress a message or a chunk piece by piece; beyond the limits it counts as a bomb.

    `data` is one frame; of one that is cut off, as much as there is. `compression` is ``zstd``,
    ``lz4`` or ``bz2``. `size` is that of the plain bytes as declared by their container; bytes
    beyond it are left out. BadCompressionError when the data are damaged, or more than the limit.
    """
    limit = min(MAX_PLAIN, _FREE + _MAX_RATIO * len(data))
    if size is not None and size > limit:
        raise BadCompressionError(
            f"{len(data)} compressed bytes claim a size of {size}, more than the {limit} accepted"
        )
    if compression == "zstd":
        decompressor = import_zstd().ZstdDecompressor()
    elif compression == "lz4":
        decompressor = _import_lz4().LZ4FrameDecompressor()
    elif compression == "bz2":
        decompressor = bz2.BZ2Decompressor()
    else:
        raise BadCompressionError(f"compression {compression[:20]!r} is not known")
    end = limit + 1 if size is None else size
    plain = bytearray()
    position = 0
    try:
        while len(plain) < end and not decompressor.eof:
            piece = memoryview(b"")
            if decompressor.needs_input is not False:
                if position == len(data):
                    break  # cut off
                piece = memoryview(data)[position : position + _PIECE]
                position += len(piece)
            plain += decompressor.decompress(piece, max_length=min(_MOST, end - len(plain)))
    except Exception as error:  # each library has its own
        raise BadCompressionError(str(error)[:200]) from error
    if len(plain) > limit:
        raise BadCompressionError(f"{len(data)} bytes become more than the {limit} accepted")
    return memoryview(plain)


def decompress_message(data: bytes | memoryview) -> bytes | memoryview:
    """Decompress a message that was compressed on its own; others are returned as they are."""
    if bytes(data[:4]) != MAGIC:
        return data
    try:
        return decompress(data)
    except BadCompressionError as error:
        raise DamagedMessageError(f"its compression is damaged: {error}") from error


def import_zstd() -> Any:
    """Import the module with ``ZstdDecompressor``; ConfigurationError when there is none."""
    newer = sys.version_info >= (3, 14)
    try:
        return importlib.import_module("compression.zstd" if newer else "backports.zstd")
    except ImportError as error:
        raise _name_fix(error) from error


def _import_lz4() -> Any:
    try:
        return importlib.import_module("lz4.frame")
    except ImportError as error:
        raise _name_fix(error) from error


def _name_fix(error: ImportError) -> ConfigurationError:
    return ConfigurationError(
        f"compressed bags need the extra bags: pip install 'jetson_dnn_rt[bags]' ({error})"
    )


# -- files compressed as a whole, unpacked once in a process -----------------------------------


@dataclass(frozen=True)
class _Unpacked:
    folder: tempfile.TemporaryDirectory[str]
    file: Path
    note: str


_lock = threading.Lock()
_unpacked: dict[tuple[Path, int, int], _Unpacked] = {}
"""Files of the bag that was opened last: the chunks of a bag are evaluated one after the other."""


def open_unpacked(path: Path, opener: Callable[[Path], BagFile]) -> BagFile:
    """Open a Zstandard file by its plain copy in the folder of temporary files.

    DamagedFileError when nothing of it can be unpacked or read; SourceError when there is no space
    for it.
    """
    status = path.stat()
    key = (path.resolve(), status.st_mtime_ns, status.st_size)
    with _lock:
        for other in [other for other in _unpacked if other[0].parent != key[0].parent]:
            # Files that are still open stay readable until they are closed.
            _unpacked.pop(other).folder.cleanup()
        if key not in _unpacked:
            _unpacked[key] = _unpack(path)
        entry = _unpacked[key]
    file = opener(entry.file)
    if entry.note:
        file.notes.append(entry.note)
    return file


def remove_unpacked() -> None:
    """Remove the unpacked files, which are otherwise removed with the process."""
    with _lock:
        while _unpacked:
            _unpacked.popitem()[1].folder.cleanup()


def _unpack(path: Path) -> _Unpacked:
    folder = tempfile.TemporaryDirectory(prefix="jetson_dnn_rt_bag_")
    plain = Path(folder.name, path.name.removesuffix(".zstd"))
    try:
        with path.open("rb") as packed, plain.open("wb") as out:
            note = _decompress_file(packed, out, path.name)
        if not plain.stat().st_size:
            raise DamagedFileError(note or f"{path.name}: it is empty")
    except BaseException as error:
        folder.cleanup()
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise SourceError(
                f"bag {path} does not fit into {folder.name} when it is unpacked: set TMPDIR to "
                "a folder with more room"
            ) from error
        raise
    return _Unpacked(folder, plain, note)


def _decompress_file(packed: BinaryIO, out: BinaryIO, name: str) -> str:
    """Unpack as much as there is; returns its fault, or an empty text."""
    zstd = import_zstd()
    decompressor = zstd.ZstdDecompressor()
    limit = _FREE_FILE + _MAX_RATIO * os.fstat(packed.fileno()).st_size
    while True:
        block = b""
        if decompressor.eof:  # frames may follow each other
            block = decompressor.unused_data or packed.read(_PIECE)
            if not block:
                return ""
            decompressor = zstd.ZstdDecompressor()
        elif decompressor.needs_input:
            block = packed.read(_PIECE)
            if not block:
                return f"{name} is cut off: {out.tell()} bytes could be unpacked"
        try:
            out.write(decompressor.decompress(block, max_length=_MOST))
        except zstd.ZstdError as error:
            return f"{name}: its compression is damaged behind {out.tell()} bytes: {error}"
        if out.tell() > limit:
            return f"{name} becomes more than the {limit} bytes accepted: the rest is left out"
