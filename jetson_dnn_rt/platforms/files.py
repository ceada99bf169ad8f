# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Kernel files below a root folder: any can be read, only those on an allow-list written.

Every path is relative to the root, so that a fake tree can replace a board. A write opens an
existing file whose path, with every symbolic link resolved, is on the list; nothing is created.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.safety.small_files import read_bytes

EMC = "sys/kernel/debug/bpmp/debug/clk/emc"  # folder of the memory's clock

WRITABLE = tuple(
    re.compile(pattern)
    for pattern in (
        # Not the first core: boards need it.
        r"sys/devices/system/cpu/cpu[1-9]\d*/online",
        r"sys/devices/system/cpu/cpufreq/policy\d+/scaling_(min|max)_freq",
        # /sys/class/devfreq has links to here. The names are those of Tegra's GPUs.
        r"sys/devices/(?:[\w.:@-]+/)*devfreq/(?:[0-9a-f]+\.)?(?:gp10b|gv11b|ga10b|gb10b|gpu)/"
        r"(min|max)_freq",
        r"sys/kernel/debug/bpmp/debug/clk/emc/(rate|state|mrq_rate_locked)",
    )
)
"""The only files that are ever written, as whole paths below the root."""

_VALUE = re.compile(r"\d{1,15}")
MAX_BYTES = 1 << 20  # largest file that is read


class UnusableError(PlatformError):
    """A file that is not on the allow-list, or a value that is no clock: never written."""


class SystemFiles:
    """The kernel's files below `root`, "/" for this machine."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root.resolve()

    def read(self, path: str) -> str | None:
        """Stripped text of a file; None where it cannot be read."""
        try:
            content = read_bytes(self.root / path, MAX_BYTES)
        except (OSError, ValueError):
            # Also EBUSY, ENODEV, EAGAIN: files of a core that is off, of a clock that is gated.
            return None
        return content.decode(errors="replace").strip().strip("\0")

    def read_int(self, path: str) -> int | None:
        """Whole number in a file; None where there is none (``<unknown>``, not readable)."""
        try:
            return int(self.read(path) or "")
        except ValueError:
            return None

    def glob(self, pattern: str) -> list[str]:
        """Matching paths, sorted, numbers in them by value."""
        try:
            found = [path.relative_to(self.root).as_posix() for path in self.root.glob(pattern)]
        except OSError:
            return []
        return sorted(found, key=_natural)

    def exists(self, path: str) -> bool:
        """Whether the file or folder exists and can be reached."""
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
        """Return the first of these that this process may not write; empty when there is none."""
        return next((str(self.root / path) for path in paths if not self.is_writable(path)), "")

    def write(self, path: str, value: int) -> None:
        """Write a whole number into a file of the allow-list.

        UnusableError: the file is not on the list or does not exist, or no clock has such a value;
        PlatformError: the kernel refuses the value.
        """
        text = str(value)
        if not _VALUE.fullmatch(text):
            raise UnusableError(f"{text:.30} is not a value for {self._name(path)}")
        place = self.check(path)
        try:
            self._store(place, text)
        except OSError as error:
            raise PlatformError(f"cannot write {text} into {place}: {error.strerror}") from error

    def check(self, path: str) -> Path:
        """Return the path of a file on the allow-list, with every symbolic link resolved.

        UnusableError when it is not on the list, or does not exist.
        """
        try:
            place = (self.root / path).resolve(strict=True)
            inside = place.is_relative_to(self.root) and place.is_file()
        # RuntimeError: a loop of links, until 3.12. ValueError: not a valid file name.
        except (OSError, RuntimeError, ValueError) as error:
            raise UnusableError(f"{self._name(path)} cannot be reached: {error!s:.300}") from error
        relative = place.relative_to(self.root).as_posix() if inside else ""
        if not any(pattern.fullmatch(relative) for pattern in WRITABLE):
            raise UnusableError(f"{self._name(path)} (= {place}) is not on the allow-list")
        return place

    def _name(self, path: str) -> str:
        # It may come from a file that others can write: anything, of any length.
        return ascii(str(self.root / path))[1:-1][:300]

    def _store(self, place: Path, text: str) -> None:
        # The path is resolved: a link that replaced it since then is not followed.
        flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(place, flags), "wb", buffering=0) as file:
            file.write(text.encode())


def _natural(path: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", path)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


@dataclass(frozen=True, slots=True)
class Limits:
    """The two files that limit a clock."""

    least: str
    greatest: str
    unit_hz: int = 1  # unit of the files: 1,000 for CPUs (kHz), else 1

    def write(self, files: SystemFiles, least: int, greatest: int) -> None:
        """Write both, in an order that never puts the lower limit above the upper one."""
        now = files.read_int(self.least)
        raising = now is None or greatest > now
        try:
            self._write_in_order(files, least, greatest, raising=raising)
        except PlatformError as first:
            # A kernel that rounds may have reversed the order.
            try:
                self._write_in_order(files, least, greatest, raising=not raising)
            except PlatformError:
                raise first from None

    def _write_in_order(
        self, files: SystemFiles, least: int, greatest: int, *, raising: bool
    ) -> None:
        pair = [(self.greatest, greatest), (self.least, least)]
        for path, value in pair if raising else reversed(pair):
            files.write(path, value)

    def pin(self, files: SystemFiles, frequency_hz: int) -> None:
        """Allow one frequency only."""
        value = frequency_hz // self.unit_hz
        self.write(files, value, value)

    def pinned_hz(self, files: SystemFiles) -> int | None:
        """The one frequency that is allowed; None where there are more."""
        least, greatest = files.read_int(self.least), files.read_int(self.greatest)
        return None if least is None or least != greatest else least * self.unit_hz

    def greatest_hz(self, files: SystemFiles) -> int | None:
        """The upper limit."""
        value = files.read_int(self.greatest)
        return None if value is None else value * self.unit_hz
