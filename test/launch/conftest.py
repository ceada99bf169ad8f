# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What launch and launch_testing themselves leave open is not held against the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

# launch_testing 3.4 never closes its event loop; whenever that is collected, it is a warning.
_FILTERS = (
    "ignore:unclosed:ResourceWarning",
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(item.fspath).parent == Path(__file__).parent:
            for text in _FILTERS:
                item.add_marker(pytest.mark.filterwarnings(text))
