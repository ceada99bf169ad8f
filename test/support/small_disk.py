# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A small disk: a real one in memory, where it may be mounted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PAGE = 4096


class NotAllowedError(Exception):
    """Disks may not be mounted here."""


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A tmpfs of a size, on a folder that is made; `NotAllowedError` where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(folder)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        folder.rmdir()
        raise NotAllowedError("a small disk needs the right to mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


@contextmanager
def mount_small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """The same for a test, which is skipped where that is not allowed."""
    import pytest

    with ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk(folder, size_bytes))
        except NotAllowedError as error:
            pytest.skip(str(error))
        yield disk


def make_read_only(folder: Path) -> None:
    """Let nothing be written to a small disk from now on."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)


def fill(folder: Path, left_bytes: int = 0) -> Path:
    """Fill a disk but for so many bytes, with a file that is returned."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        while (more := free_bytes(folder) - left_bytes) >= PAGE:
            file.write(bytes(min(more // PAGE * PAGE, 1 << 20)))
    return filler


def free_bytes(folder: Path) -> int:
    """What an ordinary user may still write."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize
