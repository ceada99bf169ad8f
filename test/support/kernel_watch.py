# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which files of some folders were opened, told by the kernel (inotify), whatever opened them.

An audit hook sees Python alone; this sees libraries in C++, children, and children of theirs.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_OPENED, _FOLDER_ITSELF = 0x20, 0x40000000  # IN_OPEN, IN_ISDIR
_OVERFLOW = 0x4000
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # those of inotify are the same


class KernelWatch:
    """Watches folders and all that are in them when it begins; to be used as a context."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._fd = _LIBC.inotify_init1(_FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._folders: dict[int, Path] = {}
        for top in folders:
            for folder, _, _ in os.walk(top):
                number = _LIBC.inotify_add_watch(self._fd, os.fsencode(folder), _OPENED)
                if number < 0:
                    raise OSError(ctypes.get_errno(), "inotify_add_watch", folder)
                self._folders[number] = Path(folder)

    def read_opened(self) -> set[Path]:
        """Files that were opened since the last call; folders that were listed are left out."""
        opened: set[Path] = set()
        while data := self._read():
            place = 0
            while place < len(data):
                number, mask, _, length = struct.unpack_from("iIII", data, place)
                name = data[place + 16 : place + 16 + length].rstrip(b"\0")
                place += 16 + length
                if mask & _OVERFLOW:
                    raise OverflowError("more files were opened than the kernel remembers")
                if name and not mask & _FOLDER_ITSELF:
                    opened.add(self._folders[number] / os.fsdecode(name))
        return opened

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return b""

    def __enter__(self) -> KernelWatch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
