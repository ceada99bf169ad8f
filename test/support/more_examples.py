# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A plugin of pytest (``-p more_examples``): every property takes ``TIMES`` as many examples."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

TIMES = "PROPERTY_EXAMPLES_TIMES"
_SETTINGS = "_hypothesis_internal_use_settings"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Multiply them."""
    functions = {
        getattr(item.obj, "__func__", item.obj)
        for item in items
        if isinstance(item, pytest.Function) and item.get_closest_marker("hypothesis")
    }
    for one in functions:
        own = getattr(one, _SETTINGS, None) or settings.default
        many = own.max_examples * int(os.environ[TIMES])
        setattr(one, _SETTINGS, settings(own, max_examples=many))
