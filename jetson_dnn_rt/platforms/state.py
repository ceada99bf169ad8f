# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The original clocks, stored on disk so that they are restored however the process exits.

They are written before the first clock is changed. A process that exits through Python restores
them itself; otherwise its guardian does (`jetson_dnn_rt.platforms.guardian`), or, if that was
killed too, the next process that opens the platform.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.files import EMC, MAX_BYTES, Limits, SystemFiles, UnusableError
from jetson_dnn_rt.safety.small_files import read_bytes

BOOT_ID = "proc/sys/kernel/random/boot_id"
_VERSION = 1
_MOST_NAMED = 5
# Errors of links, sockets, other special files and files that are too large: not our file.
_NO_FILE = (errno.ELOOP, errno.ENXIO, errno.EINVAL, errno.EFBIG)


def read_values(files: SystemFiles, paths: Iterable[str]) -> dict[str, int]:
    """Read the values to restore later."""
    values = {path: files.read_int(path) for path in paths}
    return {path: value for path, value in values.items() if value is not None}


def write_values(files: SystemFiles, values: Mapping[str, int]) -> list[PlatformError]:
    """Restore the result of `read_values`: cores on, clocks, memory, cores off.

    Everything is tried, even after failures. Every path is checked against the allow-list before
    it is even read: the values may come from a file that others can write. Returns the failures;
    `UnusableError` for values that can never be restored.
    """
    failures: list[PlatformError] = []

    def attempt(path: str) -> None:
        try:
            files.check(path)
            if files.read_int(path) != values[path]:
                files.write(path, values[path])
        except PlatformError as error:
            failures.append(error)

    switches = {path: value for path, value in values.items() if path.endswith("/online")}
    for path, value in switches.items():
        if value == 1:
            attempt(path)
    for least in values:
        greatest = least.replace("min_freq", "max_freq")
        if greatest != least and greatest in values:
            pair = least, greatest
            try:
                for path in pair:
                    files.check(path)
                if [files.read_int(path) for path in pair] != [values[path] for path in pair]:
                    Limits(*pair).write(files, values[least], values[greatest])
            except PlatformError as error:
                failures.append(error)
    # The rate first: once unlocked, the kernel's own requests count again.
    for name in ("rate", "state", "mrq_rate_locked"):
        if f"{EMC}/{name}" in values:
            attempt(f"{EMC}/{name}")
    for path, value in switches.items():
        if value != 1:
            attempt(path)
    return failures


def list_failures(failures: Sequence[PlatformError]) -> str:
    """The first failure, as text."""
    more = len(failures) - _MOST_NAMED
    words = [str(error) for error in failures[:_MOST_NAMED]]
    return "; ".join(words + [f"and {more} more"] * (more > 0))


class ClockState:
    """The state file of one machine, and the lock that shows that its owner is alive.

    The file is in `folder`, which is created if missing; ``/run`` is a good place. `lock` is the
    descriptor of a lock that is already held: a guardian inherits it, so that no other process
    sets clocks between a process's exit and the restoration. PlatformError: the folder cannot be
    used, the boot cannot be identified, or another process has the clocks.
    """

    def __init__(self, files: SystemFiles, folder: Path, *, lock: int | None = None) -> None:
        self._files = files
        self.folder = folder
        self._file = folder / "clocks.json"
        self._owner = os.getpid()
        self.remarks: list[str] = []
        """Unusable parts of the file. The caller logs them after the lock is released: the reader
        of the log may hang."""
        boot = files.read(BOOT_ID)
        if not boot:
            raise PlatformError(f"cannot read {files.root / BOOT_ID}")
        self._boot = boot
        self.lock = _take_lock(folder) if lock is None else lock

    def read(self) -> dict[str, int]:
        """Read the values left by a process in this boot; empty when there is nothing to restore.

        The file is not trusted: only whole numbers for paths are used, and `SystemFiles` checks
        the paths. An unusable file is renamed to ``clocks.unusable``. PlatformError: this process
        may not read it.
        """
        try:
            text = read_bytes(self._file, MAX_BYTES, flags=os.O_NOFOLLOW, check=self._check_owner)
            content = json.loads(text)
            values = content["values"]
            if content["version"] != _VERSION or not all(
                isinstance(path, str) and type(value) is int for path, value in values.items()
            ):
                raise ValueError("it is not one of this version")
            boot = content["boot_id"]
        except FileNotFoundError:
            return {}
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise PlatformError(f"cannot read {self._file}: {error.strerror}") from error
            self._set_aside("it is not a regular file of ours")
            return {}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._set_aside(f"{error!a:.300}")
            return {}
        # A reboot resets the clocks: values of an earlier boot do not apply.
        return dict(values) if boot == self._boot else {}

    def _check_owner(self, status: os.stat_result) -> None:
        # A group may share the folder, and a member restores what another left; otherwise a file
        # of another user is only possible in a world-writable folder.
        shared = stat.S_IMODE(self.folder.stat().st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
        if status.st_uid not in (0, os.geteuid()) and shared != stat.S_IWGRP:
            raise ValueError(f"it belongs to another user ({status.st_uid})")

    def _set_aside(self, reason: str) -> None:
        self.remarks.append(f"{self._file} is not used: {reason}")
        try:
            self._file.replace(self._file.with_suffix(".unusable"))
        except OSError as error:
            self.remarks.append(f"{self._file} cannot be set aside: {error.strerror}")

    def write(self, values: Mapping[str, int]) -> None:
        """Store `values` atomically."""
        content = {"version": _VERSION, "boot_id": self._boot, "values": dict(values)}
        new = self._file.with_suffix(".new")
        try:
            # Our own new file, never one that another user put there, or the target of a link.
            new.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(new, flags, 0o640), "w") as file:
                os.fchmod(file.fileno(), 0o640)  # whatever the umask: see `_take_lock`
                file.write(json.dumps(content, indent=1))
            # No fsync: a crash that loses the page cache also ends the boot.
            new.replace(self._file)
        except OSError as error:
            raise PlatformError(f"cannot write {self._file}: {error.strerror}") from error

    def forget(self) -> None:
        """Remove the file: everything is restored."""
        self._file.unlink(missing_ok=True)

    def give_back(self, *, keep: bool = False) -> bool:
        """Restore the clocks that a process left changed; False when there are none.

        With `keep` the file stays: the process may still be there.

        Values that can never be restored are skipped, with a remark, so that clocks can be set
        again. PlatformError: some could not be restored; the file stays for the next attempt.
        """
        values = self.read()
        if not values:
            return False
        failures = write_values(self._files, values)
        unusable = [error for error in failures if isinstance(error, UnusableError)]
        if unusable:
            self.remarks.append(f"not used of {self._file}: {list_failures(unusable)}")
        refused = [error for error in failures if error not in unusable]
        if refused:
            raise PlatformError(
                "clocks that a killed process left changed were not restored (a reboot "
                f"restores them): {list_failures(refused)}"
            )
        if not keep:
            self.forget()
        return True

    def close(self) -> None:
        """Release the lock, even if a forked process has its descriptor."""
        if self.lock >= 0:
            if os.getpid() == self._owner:
                fcntl.flock(self.lock, fcntl.LOCK_UN)
            os.close(self.lock)
            self.lock = -1


def _take_lock(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The kernel releases the lock however its owner exits; a process ID could be reused. It is
        # a separate file, never replaced.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        lock = os.open(folder / "clocks.lock", flags, 0o660)
    except OSError as error:
        raise PlatformError(f"no place for the state file in {folder}: {error}") from error
    try:
        status = os.fstat(lock)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise PlatformError(f"{folder / 'clocks.lock'} is no file of its own: remove it")
        if status.st_uid == os.geteuid():
            # Regardless of the umask: users who share the folder share the lock.
            os.fchmod(lock, 0o660)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(lock)
        place = folder / "clocks.lock"
        if isinstance(error, BlockingIOError):
            raise PlatformError(f"another process sets the clocks (it holds {place})") from error
        if isinstance(error, OSError):
            raise PlatformError(f"{place} cannot be held: {error}") from error
        raise
    return lock
