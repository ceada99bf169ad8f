"""Files of the kernel below a root folder: read freely, written from an allow-list only.

Every path is relative to the root, so that a made-up tree can stand for a board. A write opens an
existing file whose place, with every symbolic link resolved, is on the list; nothing is created.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from jetson_dnn_rt.errors import PlatformError

WRITABLE = tuple(
    re.compile(pattern)
    for pattern in (
        # Not the first core: no board goes on well without it.
        r"sys/devices/system/cpu/cpu[1-9]\d*/online",
        r"sys/devices/system/cpu/cpufreq/policy\d+/scaling_(min|max)_freq",
        # /sys/class/devfreq holds links to here. The names are those of the GPUs of Tegra.
        r"sys/devices/(?:[\w.:@-]+/)*devfreq/(?:[0-9a-f]+\.)?(?:gp10b|gv11b|ga10b|gb10b|gpu)/"
        r"(min|max)_freq",
        r"sys/kernel/debug/bpmp/debug/clk/emc/(rate|state|mrq_rate_locked)",
    )
)
"""All that is ever written, as whole paths below the root."""

_VALUE = re.compile(r"\d{1,15}")
_MOST_BYTES = 1 << 20


class UnusableError(PlatformError):
    """Never to be written: no file of the allow-list, or no value of a clock."""


class SystemFiles:
    """The kernel's files below `root`.

    Parameters
    ----------
    root : pathlib.Path
        "/" for this machine.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root.resolve()

    def read(self, path: str) -> str | None:
        """Text of a file without blanks around it; None where it cannot be read."""
        try:
            content = read_regular(self.root / path)
        except (OSError, ValueError):
            # Also EBUSY, ENODEV, EAGAIN: files of a core that is off, of a clock that is gated.
            return None
        return content.decode(errors="replace").strip().strip("\0")

    def read_int(self, path: str) -> int | None:
        """A whole number in a file; None where there is none (``<unknown>``, not readable)."""
        try:
            return int(self.read(path) or "")
        except ValueError:
            return None

    def glob(self, pattern: str) -> list[str]:
        """Paths that fit, sorted, numbers in them by value."""
        try:
            found = [path.relative_to(self.root).as_posix() for path in self.root.glob(pattern)]
        except OSError:
            return []
        return sorted(found, key=_natural)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder that can be reached."""
        try:
            return (self.root / path).exists()
        except OSError:
            return False

    def is_writable(self, path: str) -> bool:
        """Whether this process may write this file."""
        try:
            place = self.check(path)
        except PlatformError:
            return False
        return os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids)

    def find_unwritable(self, paths: Iterable[str]) -> str:
        """The first of these that this process may not write; empty when there is none."""
        return next((str(self.root / path) for path in paths if not self.is_writable(path)), "")

    def write(self, path: str, value: int) -> None:
        """Write a whole number into a file of the allow-list.

        Raises
        ------
        UnusableError
            The file is not on the list or not there, or no clock has such a value.
        PlatformError
            The kernel refuses the value.
        """
        text = str(value)
        if not _VALUE.fullmatch(text):
            raise UnusableError(f"{text:.30} is nothing to write into {self._name(path)}")
        place = self.check(path)
        try:
            self._store(place, text)
        except OSError as error:
            raise PlatformError(f"cannot write {text} into {place}: {error.strerror}") from error

    def check(self, path: str) -> Path:
        """Where a file of the allow-list lies, every symbolic link resolved; it is not opened.

        Raises
        ------
        UnusableError
            The file is not on the list, or not there.
        """
        try:
            place = (self.root / path).resolve(strict=True)
            inside = place.is_relative_to(self.root) and place.is_file()
        # RuntimeError: a circle of links, until 3.12. ValueError: no name that a file can have.
        except (OSError, RuntimeError, ValueError) as error:
            raise UnusableError(f"{self._name(path)} cannot be reached: {error!s:.300}") from error
        relative = place.relative_to(self.root).as_posix() if inside else ""
        if not any(pattern.fullmatch(relative) for pattern in WRITABLE):
            raise UnusableError(f"{self._name(path)} (= {place}) is not on the allow-list")
        return place

    def _name(self, path: str) -> str:
        # It may come from a file that others write: anything, of any length.
        return ascii(str(self.root / path))[1:-1][:300]

    def _store(self, place: Path, text: str) -> None:
        # The path is resolved: a link that took its place since then is not followed.
        flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(place, flags)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def read_regular(
    place: Path, flags: int = 0, check: Callable[[os.stat_result], None] | None = None
) -> bytes:
    """Read a file that is neither a pipe, which might never answer, nor anything else but a file.

    Parameters
    ----------
    place : pathlib.Path
    flags : int
        More of those of `os.open`.
    check : callable, optional
        Called with what is known of the open file; raises where that is not to be read.

    Raises
    ------
    OSError
        It cannot be opened or read.
    ValueError
        It is no regular file, or has more than 1 MiB.
    """
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is no regular file")
    with open(descriptor, "rb") as file:
        if check is not None:
            check(os.fstat(descriptor))
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError("it is too large")
    return content


def _natural(path: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", path)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
