"""How long work says how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it is done, and how much there is of it."""


def ignore_progress(phase: str, done: int, total: int) -> None:
    """For those who do not want to know."""
