# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Trust checks of files that are run as code, by the rule that ssh has for its keys.

Shared objects, engines, exported programs and tuning databases are code. They are loaded only
from where nobody else can have put them: the file, and every folder on the way to it from ``/``,
belongs to root or to this user and may be written by nobody else. Each level is opened first and
then checked, and what is open is used: a folder swapped after the check gains nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jetson_dnn_rt.errors import ConfigurationError

FOLDER = os.O_RDONLY | os.O_DIRECTORY
"""Flags of `open_trusted` for a folder that is to be listed."""

# Passing through a folder needs fewer rights than reading it.
_STEP = os.O_PATH | os.O_DIRECTORY
_ALWAYS = os.O_NOFOLLOW | os.O_CLOEXEC


class UntrustedError(ConfigurationError):
    """A file that would be run may be changed by other users; the text has the fix."""


class UntrustedPathError(PermissionError):
    """The same as an `OSError`: ``filename`` is the untrusted path, ``strerror`` the reason."""


def find_fault(status: os.stat_result, path: Path, *, above: bool = False) -> str:
    """Why an open file or folder is not trusted, with the fix; empty where it is.

    `above` marks a folder above the one that matters. There a folder of root with the sticky bit
    is accepted, such as ``/tmp``, which ssh refuses: everybody may add to it, but nobody may
    rename or remove what belongs to others, and what belongs to others is refused one level down.
    """
    name = shlex.quote(os.fspath(path))
    recursive = "-R " if stat.S_ISDIR(status.st_mode) else ""
    if status.st_uid not in (0, os.geteuid()):
        fix = f"copy it, or chown {recursive}{os.geteuid()} {name}"
        return f"{path} belongs to another user ({status.st_uid}), and is run: {fix}"
    if above and status.st_uid == 0 and status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        fix = f"chmod {'' if above else recursive}go-w {name}"
        return f"{path} may be written by other users, and what is in it is run: {fix}"
    return ""


def check_open(fd: int, path: Path, *, above: bool = False) -> None:
    """Raise UntrustedPathError when `find_fault` finds one in an open file or folder."""
    fault = find_fault(os.fstat(fd), path, above=above)
    if fault:
        raise UntrustedPathError(errno.EACCES, fault, os.fspath(path))


def open_trusted(path: Path, flags: int) -> int:
    """Open a file or folder, and check it and every folder above it.

    `path` is absolute and without links, as `Path.resolve` returns it; no link is followed.
    OSError when it cannot be opened, UntrustedPathError when it is not trusted.
    """
    steps = [_STEP] * (len(path.parts) - 1) + [flags]
    current, fd = Path("/"), os.open("/", steps[0] | _ALWAYS)
    try:
        for part, step in zip(path.parts[1:], steps[1:], strict=True):
            check_open(fd, current, above=True)
            current /= part
            inner = os.open(part, step | _ALWAYS, dir_fd=fd)
            os.close(fd)
            fd = inner
        check_open(fd, current)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_code(path: Path, flags: int = os.O_RDONLY | os.O_NONBLOCK) -> tuple[int, Path]:
    """Open a file or folder that holds code, when it and every folder above it are trusted.

    What was checked is what is open: nothing can be swapped in between a check and a read. Returns
    the descriptor and its path, absolute and without links. UntrustedError when it is not trusted
    or cannot be reached, FileNotFoundError when there is none.
    """
    try:
        path = path.expanduser().resolve()
        return open_trusted(path, flags), path
    except FileNotFoundError:
        raise
    except UntrustedPathError as error:
        raise UntrustedError(str(error.strerror)) from error
    except (OSError, RuntimeError) as error:  # a file on the way, a loop of links, no home folder
        raise UntrustedError(f"{path} cannot be opened: {error}") from error


def check_trusted(path: Path) -> Path:
    """Check a folder that holds code, and every folder above it.

    The path returned, absolute and without links, is the one that was checked and must be used;
    nobody who is not trusted can put anything else into its place. UntrustedError when it is not
    trusted, cannot be reached, or is missing: whoever creates it later was not checked.
    """
    try:
        fd, path = open_code(path, os.O_PATH)
    except FileNotFoundError as error:
        raise UntrustedError(f"{path} does not exist") from error
    os.close(fd)
    return path


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder for code that can only be loaded by its path.

    UntrustedError when other users may change what lies where temporary files go.
    """
    with tempfile.TemporaryDirectory(prefix="jetson_dnn_rt-") as folder:
        yield check_trusted(Path(folder))
