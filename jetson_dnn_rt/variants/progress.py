# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Callbacks by which long work reports its progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the phase, the amount done and the total."""


def ignore_progress(phase: str, done: int, total: int) -> None:
    """Ignore a report."""
