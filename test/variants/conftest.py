# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""An empty library."""

import one_torch_thread  # noqa: F401
import pytest

from jetson_dnn_rt.variants.library.library import Library


@pytest.fixture
def library(tmp_path):
    return Library(tmp_path / "cache")
