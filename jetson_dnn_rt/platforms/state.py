"""The clocks that were there before, kept so that they come back whatever ends the process.

They are on disk before the first clock is changed. A process that ends in any way that Python sees
gives them back itself; else its guardian does (`jetson_dnn_rt.platforms.guardian`); where that was
killed too, the next process that opens the platform.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_dnn_rt import small_files
from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.files import SystemFiles
from jetson_dnn_rt.platforms.limits import EMC, Limits

if TYPE_CHECKING:  # it imports numpy, which the guardian does not wait for
    from jetson_dnn_rt.platforms.controls import Control

logger = logging.getLogger(__name__)

BOOT_ID = "proc/sys/kernel/random/boot_id"
_VERSION = 1
_MOST_BYTES = 1 << 20


def read_values(files: SystemFiles, controls: Iterable[Control]) -> dict[str, int]:
    """What is in every file that the controls may change, to be given back later."""
    values = {path: files.read_int(path) for control in controls for path in control.paths}
    return {path: value for path, value in values.items() if value is not None}


def write_values(files: SystemFiles, values: Mapping[str, int]) -> list[str]:
    """Give back what `read_values` found: cores on, clocks, memory, cores off.

    Everything is tried, whatever fails before.

    Returns
    -------
    list of str
        What could not be given back, and why.
    """
    failures: list[str] = []

    def attempt(path: str, value: int) -> None:
        if files.read_int(path) != value:
            try:
                files.write(path, value)
            except PlatformError as error:
                failures.append(str(error))

    switches = {path: value for path, value in values.items() if path.endswith("/online")}
    for path, value in switches.items():
        if value == 1:
            attempt(path, 1)
    for least in values:
        greatest = least.replace("min_freq", "max_freq")
        if greatest != least and greatest in values:
            if [files.read_int(path) for path in (least, greatest)] == [
                values[least],
                values[greatest],
            ]:
                continue
            try:
                Limits(least, greatest).write(files, values[least], values[greatest])
            except PlatformError as error:
                failures.append(str(error))
    # The rate first: after the lock is gone the kernel's own wishes count again.
    for name in ("rate", "state", "mrq_rate_locked"):
        if f"{EMC}/{name}" in values:
            attempt(f"{EMC}/{name}", values[f"{EMC}/{name}"])
    for path, value in switches.items():
        if value == 0:
            attempt(path, 0)
    return failures


class ClockState:
    """The state file of one machine, and the lock that says that its owner lives.

    Parameters
    ----------
    files : SystemFiles
        Of the machine.
    folder : pathlib.Path
        Where the file lies; made when it is not there. ``/run`` is a good place.
    lock : int, optional
        Descriptor of the lock where it is held already: a guardian inherits it, so that between
        the end of a process and the restoring nobody else sets clocks.

    Raises
    ------
    PlatformError
        The folder cannot be used, the machine does not tell which boot this is, or another
        process has the clocks.
    """

    def __init__(self, files: SystemFiles, folder: Path, *, lock: int | None = None) -> None:
        self._files = files
        self.folder = folder
        self._file = folder / "clocks.json"
        self._owner = os.getpid()
        boot = files.read(BOOT_ID)
        if not boot:
            raise PlatformError(f"cannot read {files.root / BOOT_ID}")
        self._boot = boot
        self.lock = _take_lock(folder) if lock is None else lock

    def read(self) -> dict[str, int]:
        """What a process left behind in this boot; empty when there is nothing to give back.

        The file is not trusted: what is not a whole number for some path is not used, and
        `SystemFiles.write` looks at the paths.

        Raises
        ------
        PlatformError
            There is a file, and this process may not read it.
        """
        try:
            if self._file.stat().st_size > _MOST_BYTES:
                raise ValueError("it is too large")
            content = json.loads(small_files.read_text(self._file, _MOST_BYTES))
            values = content["values"]
            if content["version"] != _VERSION or not all(
                isinstance(path, str) and type(value) is int for path, value in values.items()
            ):
                raise ValueError("it is not one of this version")
            boot = content["boot_id"]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise PlatformError(f"cannot read {self._file}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            logger.error("%s is not used: %s", self._file, error)
            return {}
        # After a restart the clocks are new: what an earlier boot had is no business of this one.
        return dict(values) if boot == self._boot else {}

    def write(self, values: Mapping[str, int]) -> None:
        """Keep `values`, in one step.

        Raises
        ------
        PlatformError
            They cannot be kept.
        """
        content = {"version": _VERSION, "boot_id": self._boot, "values": dict(values)}
        new = self._file.with_suffix(".new")
        try:
            # No fsync: a crash that loses the page cache also ends the boot.
            new.write_text(json.dumps(content, indent=1))
            new.replace(self._file)
        except OSError as error:
            raise PlatformError(f"cannot write {self._file}: {error.strerror}") from error

    def forget(self) -> None:
        """Remove the file: all is given back."""
        self._file.unlink(missing_ok=True)

    def give_back(self) -> bool:
        """Bring back the clocks that a process left changed; False when there are none.

        Raises
        ------
        PlatformError
            Some could not be brought back; the file stays for the next attempt.
        """
        values = self.read()
        if not values:
            return False
        failures = write_values(self._files, values)
        if failures:
            raise PlatformError(
                "clocks that a killed process left were not given back (a restart of the machine "
                f"does it): {'; '.join(failures)}"
            )
        self.forget()
        return True

    def close(self) -> None:
        """Let go of the lock, also where a process that was forked off has its descriptor."""
        if self.lock >= 0:
            if os.getpid() == self._owner:
                fcntl.flock(self.lock, fcntl.LOCK_UN)
            os.close(self.lock)
            self.lock = -1


def _take_lock(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The kernel lets go of the lock when its owner ends, in whatever way; a number of a
        # process would say nothing after its reuse. It is a file of its own, never replaced.
        lock = os.open(folder / "clocks.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        if os.fstat(lock).st_uid == os.geteuid():
            # Whatever the umask: who shares the folder, shares the lock.
            os.fchmod(lock, 0o660)
    except OSError as error:
        raise PlatformError(
            f"no place for the state file in {folder}: {error.strerror}"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise PlatformError(
            f"another process sets the clocks (it holds {folder / 'clocks.lock'})"
        ) from error
    return lock
