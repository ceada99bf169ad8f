# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Reads untrusted files: never more than a limit, and never blocking for ever.

Text may begin with a byte order mark, as editors of Windows write it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

_POINTERS = (
    (b"version https://git-lfs.github.com/spec/", "Git LFS", "git lfs pull"),
    (b"version https://hawser.github.com/spec/", "Git LFS", "git lfs pull"),
    (b"/annex/objects/", "git-annex", "git annex get"),
)
"""First bytes of the files that stand for large ones in a checkout without them."""


def describe_pointer(head: bytes) -> str:
    """Describe a pointer file by its first bytes; empty for any other file."""
    for start, program, command in _POINTERS:
        if head.startswith(start):
            return f"is a pointer of {program}, not the file itself; fetch it: {command}"
    return ""


def read_bytes(
    path: Path,
    limit: int,
    *,
    flags: int = 0,
    check: Callable[[os.stat_result], None] = lambda status: None,
) -> bytes:
    """Read a whole regular file of at most `limit` bytes; links are followed.

    A FIFO, on which reading would wait for ever, is refused, and so is a device, which may have no
    end. `flags` are added to those of `os.open`. `check` gets the status of the open file and
    raises where it must not be read. OSError when the file is missing, unreadable, not a regular
    file, larger than `limit`, or a pointer of Git LFS.
    """
    _check(os.stat(path), path, limit)  # first, as some devices act when they are opened
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | flags)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        size = _check(status, path, limit)
        check(status)
        data = file.read(size + 1)
        if len(data) > size:  # it grows, or its file system reports no size
            data += file.read(limit - size)
    if len(data) > limit:
        raise _too_large(path, limit)
    if pointer := describe_pointer(data):
        raise OSError(errno.EINVAL, pointer, str(path))
    return data


def read_text(path: Path, limit: int) -> str:
    """Read a file as `read_bytes` does, as UTF-8; a ValueError when it is not.

    A byte order mark is left out: it would belong to the first name.
    """
    return read_bytes(path, limit).decode("utf-8-sig")


def _check(status: os.stat_result, path: Path, limit: int) -> int:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    if status.st_size > limit:
        raise _too_large(path, limit)
    return status.st_size


def _too_large(path: Path, limit: int) -> OSError:
    return OSError(errno.EFBIG, f"is larger than {limit} bytes", str(path))
