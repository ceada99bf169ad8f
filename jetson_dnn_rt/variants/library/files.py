# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Files of the library: opened without following links, read with a limit, checked by hash."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from jetson_dnn_rt.printable import make_printable
from jetson_dnn_rt.safety.trust import FOLDER, check_open, find_fault, open_trusted
from jetson_dnn_rt.variants.library.entry import (
    HEADER,
    MAX_HEADER_BYTES,
    DamagedEntryError,
    Entry,
    Header,
    OtherSchemaError,
)

# A pipe in the place of a file must not stop the reader.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DAY_S = 86_400.0
# Of <fcntl.h> and <linux/fs.h>.
_AT_CWD, _RENAME_EXCHANGE = -100, 2

# Whatever the umask leaves to the group: what others may write to is not read again.
_FOLDER_MODE, _FILE_MODE = 0o755, 0o644


@dataclass(frozen=True)
class Listing:
    """An entry as `Library.entries` lists it: its files are counted, not read."""

    path: Path  # its folder
    size_bytes: int
    used: datetime  # when it was stored or last loaded, to a day, in UTC
    header: Header | None  # None where it cannot be read
    problem: str  # why it cannot be used; empty where nothing looks wrong
    foreign: bool = False  # it holds files that the library does not write, so it is not removed


def make_root(path: Path) -> None:
    """Make a folder and what is missing above it, for others to read; OSError where that fails."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(_FOLDER_MODE)


@contextlib.contextmanager
def open_below(root: Path, parts: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
    """Open a folder below the root; no link on the way is followed, and every level is checked.

    Raises
    ------
    OSError
        FileNotFoundError where it is missing and not to be made; NotADirectoryError, or ELOOP,
        where something else is in its place; PermissionError where others may write to a level of
        it, see `jetson_dnn_rt.safety.trust`.
    """
    folder = open_trusted(root, FOLDER)
    try:
        for part in parts:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, _FOLDER_MODE, dir_fd=folder)
            inner = os.open(part, FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder, root = inner, root / part
            check_open(folder, root)
        yield folder
    finally:
        os.close(folder)


def list_names(root: Path, parts: tuple[str, ...] = ()) -> list[str]:
    """Names in a folder below the root, sorted; none where it is not a folder, or a link to one.

    Raises `PermissionError` when it cannot be read, or others may write to a level of it.
    """
    try:
        with open_below(root, parts) as folder:
            return sorted(os.listdir(folder))
    except PermissionError:
        raise
    except OSError:
        return []


def exchange(path: Path, folder: int, name: str) -> bool:
    """Swap a folder with one of an open folder, in one step; False where that is not possible.

    At every moment, and whatever ends the process, one of the two is there. Raises `OSError`,
    `FileNotFoundError` when there is none to swap with.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:  # a C library before glibc 2.28
        return False
    if not rename(_AT_CWD, os.fsencode(path), folder, os.fsencode(name), _RENAME_EXCHANGE):
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):  # of the file system, of the kernel
        return False
    raise OSError(code, os.strerror(code))


def write_file(folder: int, name: str, data: bytes) -> None:
    """Write a new file of an open folder, down to the disk; OSError where that fails."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, _FILE_MODE, dir_fd=folder), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_file(folder: int, path: Path, limit: int) -> bytes:
    """Read a regular file of an open folder, which `path` names.

    Raises `DamagedEntryError` when it is missing, a link, not a file, not trusted, or larger than
    `limit` bytes.
    """
    name = path.name
    try:
        fd = os.open(name, _FILE, dir_fd=folder)
    except FileNotFoundError as error:
        raise DamagedEntryError(f"{name} is missing") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise DamagedEntryError(f"{name} is not a regular file") from error
        raise
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise DamagedEntryError(f"{name} is not a regular file")
    with os.fdopen(fd, "rb") as file:
        if fault := find_fault(status, path):
            raise DamagedEntryError(fault)
        if status.st_size > limit:
            raise DamagedEntryError(f"{name} has {status.st_size} bytes, at most {limit}")
        return file.read(min(limit, status.st_size) + 1)  # one that grows has another size


def _read_header(folder: int, path: Path) -> Header:
    header = Header.decode(read_file(folder, path / HEADER, MAX_HEADER_BYTES))
    if header.key.digest != path.name:
        raise DamagedEntryError("its key is not that of its folder")
    return header


def read_entry(folder: int, path: Path) -> Entry:
    """Read an entry from its open folder and check all of it.

    Raises `DamagedEntryError` when a file is missing, not a file, of another size or of another
    hash; `OtherSchemaError` when another release wrote it.
    """
    header = _read_header(folder, path)
    files = {}
    for name, facts in header.files.items():
        data = read_file(folder, path / name, facts.size)
        facts.check(name, data)
        files[name] = data
    return Entry(header, files, path)


def describe_entry(folder: int, path: Path) -> Listing:
    """Describe an entry from its open folder; of its files only the sizes are compared."""
    sizes, foreign, fault = {}, "", ""
    for name in os.listdir(folder):
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue  # another process is just removing the entry
        sizes[name] = status.st_size
        if stat.S_ISREG(status.st_mode):
            fault = fault or find_fault(status, path / name)
        elif not stat.S_ISLNK(status.st_mode):
            foreign = f"{make_printable(name)} is not a regular file"
    header, problem = None, ""
    try:
        header = _read_header(folder, path)
        for name, facts in header.files.items():
            if name not in sizes:
                raise DamagedEntryError(f"{name} is missing")
            if sizes[name] != facts.size:
                raise DamagedEntryError(f"{name} has {sizes[name]} bytes, not {facts.size}")
        problem = fault
    except (DamagedEntryError, OtherSchemaError) as error:
        problem = str(error)
    except OSError as error:
        problem = f"{HEADER}: {error.strerror}"
    if HEADER not in sizes:
        foreign = foreign or f"there is no {HEADER}"
    # A date in the future comes from a wrong clock, and may be beyond any calendar.
    used_s = min(max(_used_s(folder), 0.0), time.time())
    used = datetime.fromtimestamp(used_s, timezone.utc)
    return Listing(path, sum(sizes.values()), used, header, foreign or problem, bool(foreign))


def _used_s(folder: int) -> float:
    """When it was used last: the time of the header file, which `touch` updates."""
    try:
        return os.stat(HEADER, dir_fd=folder, follow_symlinks=False).st_mtime
    except OSError:
        return os.fstat(folder).st_mtime


def touch(folder: int) -> None:
    """Record the day of use, where the folder is writable."""
    if time.time() - _used_s(folder) > _DAY_S:
        with contextlib.suppress(OSError):
            os.utime(HEADER, dir_fd=folder, follow_symlinks=False)
