# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Texts from files on a terminal: none of them becomes a command to it."""

from __future__ import annotations

import logging


def make_printable(text: str, *, lines: bool = False) -> str:
    """Make a text one line that every terminal takes; ``?`` for what cannot be shown.

    With `lines` its line breaks and tabs are kept.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    # Other spaces than " " do not count as printable; controls below U+00A0 do harm.
    return "".join(
        c if c.isprintable() or c in kept or (c > "\x9f" and c.isspace()) else "?" for c in text
    )


class PrintableFormatter(logging.Formatter):
    """Formats records, in which names from files occur, for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        return make_printable(super().format(record), lines=True)
