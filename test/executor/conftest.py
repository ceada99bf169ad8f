"""What the tests of the executor share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jetson_dnn_rt.faults import FAULTS


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    """Begin and end with a clean count of faults: it is the process'."""
    FAULTS.clear()
    yield
    FAULTS.clear()
