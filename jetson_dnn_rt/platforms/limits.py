"""Limits of a clock, two files of the kernel; imports nothing heavy, for the guardian."""

from __future__ import annotations

from dataclasses import dataclass

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.files import SystemFiles

EMC = "sys/kernel/debug/bpmp/debug/clk/emc"
"""Folder of the memory's clock."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The two files that hold a clock between them.

    Attributes
    ----------
    least, greatest : str
        Paths of the files.
    unit_hz : int
        What one in them means: 1,000 for CPUs (kHz), else 1.
    """

    least: str
    greatest: str
    unit_hz: int = 1

    def write(self, files: SystemFiles, least: int, greatest: int) -> None:
        """Write both, in an order in which the least is never above the greatest.

        Raises
        ------
        PlatformError
            The kernel refuses.
        """
        now = files.read_int(self.least)
        raising = now is None or greatest > now
        try:
            self._write_in_order(files, least, greatest, raising=raising)
        except PlatformError as first:
            # A kernel that rounds may have turned the one order into the other.
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
