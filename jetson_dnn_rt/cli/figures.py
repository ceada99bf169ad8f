# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Settings of matplotlib for the figures of this package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def figure_settings(settings: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Draw with matplotlib's own defaults and these settings.

    matplotlib reads a ``matplotlibrc`` in the working folder, whoever put it there; one that sets
    ``text.usetex`` has every text written by TeX, with a preamble from the file.
    """
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings or {})
        yield
