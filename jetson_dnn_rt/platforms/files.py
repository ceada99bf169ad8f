"""Files of the kernel below a root folder: read freely, written from an allow-list only.

Every path is relative to the root, so that a made-up tree can stand for a board. A write opens an
existing file whose place, with every symbolic link resolved, is on the list; nothing is created.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
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
            return (self.root / path).read_bytes().decode(errors="replace").strip().strip("\0")
        except OSError:
            # Also EBUSY, ENODEV, EAGAIN: files of a core that is off, of a clock that is gated.
            return None

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
            place = self._resolve(path)
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
        PlatformError
            The file is not on the list, is not there, or the kernel refuses the value.
        """
        text = str(value)
        if not _VALUE.fullmatch(text):
            raise PlatformError(f"{value} is nothing to write into {self.root / path}")
        place = self._resolve(path)
        try:
            self._store(place, text)
        except OSError as error:
            raise PlatformError(f"cannot write {text} into {place}: {error.strerror}") from error

    def _resolve(self, path: str) -> Path:
        try:
            place = (self.root / path).resolve(strict=True)
        except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links, until 3.12
            raise PlatformError(f"{self.root / path} cannot be reached: {error}") from error
        inside = place.is_relative_to(self.root) and place.is_file()
        relative = place.relative_to(self.root).as_posix() if inside else ""
        if not any(pattern.fullmatch(relative) for pattern in WRITABLE):
            raise PlatformError(f"{self.root / path} (= {place}) is not on the allow-list")
        return place

    def _store(self, place: Path, text: str) -> None:
        # The path is resolved: a link that took its place since then is not followed.
        flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(place, flags)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _natural(path: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", path)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
