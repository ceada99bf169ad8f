# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Limits of the disk space of one process run's traces."""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jetson_dnn_rt.config.process import TRACE_LIMIT_MB

logger = logging.getLogger(__name__)

FREE_BYTES, FREE_SHARE = 2**30, 0.05
"""Space left free on the disk, the smaller of: a gibibyte for the system's logs and updates, and a
twentieth of a small disk, which ext4 reserves too."""

PART_BYTES = 256 * 2**20
PARTS = 8
"""Least number of parts within a limit, so that making room removes a small piece of the trace."""


class NoRoomError(OSError):
    """The limit is reached or the disk nearly full, and no older part can be removed."""


@dataclass(frozen=True)
class _ClosedPart:
    path: Path
    size: int
    forget: Callable[[], None]


def describe_full_disk(place: Path | int, more_bytes: int = 0) -> str:
    """Reason not to write more bytes to the disk of a folder or an open file; empty if allowed.

    OSError when the disk cannot be queried.
    """
    disk = os.statvfs(place)
    floor_bytes = min(FREE_BYTES, int(FREE_SHARE * disk.f_blocks * disk.f_frsize))
    if disk.f_bavail * disk.f_frsize - more_bytes >= floor_bytes:
        return ""
    return f"less than {floor_bytes / 1e6:,.1f} MB would be free on the disk"


def check_disk(file: int) -> None:
    """Raise OSError when the disk of an open file is nearly full, or cannot be queried."""
    if lack := describe_full_disk(file):
        raise NoRoomError(errno.ENOSPC, lack)


class TraceRoom:
    """Disk space of the traces of one process run: the oldest parts make room for new ones.

    A nearly full disk is handled as by journald: the traces keep the space that they have, the
    oldest part making room for the newest, and grow again when there is more space. Used by one
    writer at a time, on its thread.

    `limit_mb` (10**6 bytes; 0 = only the disk limits) is for all traces of the run together, and
    may be changed between two traces. Without `ring`, for a command that needs the whole trace,
    older parts stay, and jobs after the limit are lost.
    """

    def __init__(self, limit_mb: int = TRACE_LIMIT_MB, *, ring: bool = True) -> None:
        self.limit_mb = limit_mb
        self._ring = ring
        self._parts: deque[_ClosedPart] = deque()
        self._closed_bytes = 0
        self._frozen_bytes: int | None = None
        self._said = self._ended = False

    @property
    def part_bytes(self) -> int:
        """Size at which a part is closed."""
        return min(PART_BYTES, self.limit_mb * 10**6 // PARTS) if self.limit_mb else PART_BYTES

    def make(self, folder: Path, part_bytes: int, more_bytes: int) -> None:
        """Make room in a folder for `more_bytes` at the end of a part of `part_bytes`.

        NoRoomError when there is none; OSError when the disk cannot be queried, or an older part
        cannot be removed.
        """
        while lack := self._find_lack(folder, part_bytes, more_bytes):
            if not self._parts:
                raise NoRoomError(errno.ENOSPC, lack)
            self._remove_oldest(folder, lack)

    def drop_oldest(self, folder: Path, error: OSError) -> bool:
        """Remove the oldest part after a write had no space; False when there is none."""
        if not self._parts:
            return False
        self._remove_oldest(folder, str(error))
        return True

    def add(self, path: Path, forget: Callable[[], None]) -> None:
        """Add a closed part; `forget` is called when it is removed."""
        size = path.stat().st_size
        self._closed_bytes += size
        if self._ring:
            self._parts.append(_ClosedPart(path, size, forget))

    def _find_lack(self, folder: Path, part_bytes: int, more_bytes: int) -> str:
        own_bytes = self._closed_bytes + part_bytes
        # During its conversion to Parquet a part exists twice.
        most_bytes = own_bytes + part_bytes + 2 * more_bytes
        if self._ended or (self.limit_mb and most_bytes > self.limit_mb * 10**6):
            # No gap into which a smaller batch fits.
            self._ended = not self._ring
            return f"the traces of this run have reached trace_limit_mb ({self.limit_mb} MB)"
        lack = describe_full_disk(folder, more_bytes)
        if not lack:
            self._frozen_bytes = None
        elif self._frozen_bytes is None:
            self._frozen_bytes = own_bytes
        elif own_bytes + more_bytes <= self._frozen_bytes:
            return ""
        return lack

    def _remove_oldest(self, folder: Path, lack: str) -> None:
        part = self._parts[0]
        part.path.unlink(missing_ok=True)
        self._parts.popleft()
        self._closed_bytes -= part.size
        part.forget()
        if part.path.parent != folder:
            with suppress(OSError):  # other parts are in it
                part.path.parent.rmdir()
        if not self._said:
            self._said = True
            logger.warning("trace: %s: from now on the oldest parts make room for new ones", lack)
