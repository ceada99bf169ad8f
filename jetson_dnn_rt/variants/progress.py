"""Callbacks by which long work reports its progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the phase, how much of it is done, and how much there is of it."""


def ignore_progress(phase: str, done: int, total: int) -> None:
    """Report to nobody."""
