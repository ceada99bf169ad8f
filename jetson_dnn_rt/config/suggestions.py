# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What a misspelt name was probably meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

RESEMBLES = 0.8
"""Share of two names that is alike, from which on one counts as the other, misspelt."""


def find_similar(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known name that is most like this one; empty when none is.

    The last part of a name with dots or slashes alone finds it, too: ``color`` is
    ``preprocessing.color``.
    """
    names = list(known)
    lower = {one.lower(): one for one in names}
    if name.lower() in lower:
        return lower[name.lower()]
    ends = [one for one in names if one.endswith((f".{name}", f"/{name}"))]
    close = ends or difflib.get_close_matches(name, names, 1, cutoff)
    return close[0] if close else ""


def suggest(name: str, known: Iterable[str], form: str = "{}") -> str:
    """``; did you mean X?``, as the end of a sentence; empty when no name is like it.

    `form` is how the known name is written, as ``/**/{}``.
    """
    found = find_similar(name, known)
    return f"; did you mean {form.format(found)}?" if found else ""
