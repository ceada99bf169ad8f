# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Sizes of the frames of one stream: changes are counted, each new size is logged."""

from __future__ import annotations

from collections.abc import Callable

from jetson_dnn_rt.frames import Frame

NAMED = 8
"""Sizes of a stream that are logged and named; all changes are counted."""


class FrameSizes:
    """Watches the sizes of one stream; `changes` counts frames of another size than the last."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._last: tuple[int, int] | None = None
        self._seen: list[tuple[int, int]] = []
        self._more = False
        self.changes = 0

    def observe(self, frame: Frame, log: Callable[[str], object]) -> None:
        """Note a frame's size; `log` gets a line for each new one but the first."""
        size = frame.width, frame.height
        if size == self._last:
            return
        self.changes += self._last is not None
        self._last = size
        if size in self._seen or self._more:
            return
        if len(self._seen) == NAMED:
            self._more = True
            log(f"{self._stream}: frames of more than {NAMED} sizes, further ones are counted")
            return
        self._seen.append(size)
        if len(self._seen) > 1:
            log(f"{self._stream}: frame {frame.sequence} has another size, {self._name(size)}")

    def describe(self) -> dict[str, object]:
        """Values for diagnostics."""
        sizes = ", ".join(map(self._name, self._seen)) + (" and more" if self._more else "")
        return {"sizes": sizes or "none", "size_changes": self.changes}

    @staticmethod
    def _name(size: tuple[int, int]) -> str:
        return f"{size[0]}x{size[1]}"
