# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which examples the properties are tested with: the same in each run, or fresh ones.

The verdict of `make test` is not drawn by lot. `test/campaigns/properties.py` draws fresh
examples (``pytest --hypothesis-profile=drawn``); what it finds becomes an ``@example``.
"""

from __future__ import annotations

import importlib
from typing import Any

from hypothesis import HealthCheck, settings

FIXED, DRAWN = "fixed", "drawn"


def load_profiles() -> None:
    """Register both profiles and load the fixed one."""
    # No example fails for the time that it takes on a busy machine, as by default after 200 ms.
    both: dict[str, Any] = {
        "database": None,
        "deadline": None,
        "suppress_health_check": [HealthCheck.too_slow],
    }
    settings.register_profile(FIXED, derandomize=True, **both)
    # Hypothesis derandomizes by default where it finds a server's variables, as CI.
    settings.register_profile(DRAWN, derandomize=False, print_blob=True, **both)
    settings.load_profile(FIXED)
    _draw_no_constants_of_modules()


def _draw_no_constants_of_modules() -> None:
    """Keep hypothesis from drawing numbers that stand in the source of what is loaded by then.

    That depends on the tests before. It has no switch for it; versions before 2025 do not do it.
    """
    try:
        providers = importlib.import_module("hypothesis.internal.conjecture.providers")
    except ImportError:
        return
    none = getattr(providers, "_local_constants", None)
    if none is not None:
        assert not len(none), "hypothesis has read the modules already"
        providers._get_local_constants = lambda: none
