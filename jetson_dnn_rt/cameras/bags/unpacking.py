"""Files of bags that were compressed as a whole: unpacked once in a process, as far as they go."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from jetson_dnn_rt.cameras.bags.storage import BagFile, DamagedFileError
from jetson_dnn_rt.cameras.bags.zstd import import_zstd
from jetson_dnn_rt.errors import SourceError

_BLOCK, _MOST = 1 << 16, 1 << 20
"""Bytes that go into the decompressor at once, and that may come out."""

_FREE, _MAX_RATIO = 1 << 30, 100
"""A file may become so many bytes, whatever its own size, and so many for each of them."""

_Key = tuple[Path, int, int]


@dataclass(frozen=True)
class _Unpacked:
    folder: tempfile.TemporaryDirectory[str]
    file: Path
    note: str


_lock = threading.Lock()
_unpacked: dict[_Key, _Unpacked] = {}
"""Files of the bag that was opened last: the chunks of a bag are evaluated one after the other."""


def open_unpacked(path: Path, opener: Callable[[Path], BagFile]) -> BagFile:
    """Open a compressed file by its plain copy in the folder of temporary files.

    Parameters
    ----------
    path : Path
        It begins as Zstandard does.
    opener : callable
        Opens the plain copy.

    Raises
    ------
    DamagedFileError
        When nothing of it can be unpacked or read.
    SourceError
        When there is no room for it.
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


def forget() -> None:
    """Remove what is unpacked; else it goes with the process."""
    with _lock:
        while _unpacked:
            _unpacked.popitem()[1].folder.cleanup()


def _unpack(path: Path) -> _Unpacked:
    folder = tempfile.TemporaryDirectory(prefix="jetson_dnn_rt_bag_")
    plain = Path(folder.name, path.name.removesuffix(".zstd"))
    try:
        with path.open("rb") as packed, plain.open("wb") as out:
            note = _decompress(packed, out, path.name)
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


def _decompress(packed: BinaryIO, out: BinaryIO, name: str) -> str:
    """Unpack as much as there is; gives what is wrong with it, or nothing."""
    zstd = import_zstd()
    decompressor = zstd.ZstdDecompressor()
    limit = _FREE + _MAX_RATIO * os.fstat(packed.fileno()).st_size
    while True:
        block = b""
        if decompressor.eof:  # frames may follow each other
            block = decompressor.unused_data or packed.read(_BLOCK)
            if not block:
                return ""
            decompressor = zstd.ZstdDecompressor()
        elif decompressor.needs_input:
            block = packed.read(_BLOCK)
            if not block:
                return f"{name} is cut off: {out.tell()} bytes could be unpacked"
        try:
            out.write(decompressor.decompress(block, max_length=_MOST))
        except zstd.ZstdError as error:
            return f"{name}: its compression is damaged behind {out.tell()} bytes: {error}"
        if out.tell() > limit:
            return f"{name} becomes more than the {limit} bytes accepted: the rest is left out"
