# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable

import pytest
from sysfs_trees import TREES, FakeKernel, write_tree

Board = Callable[..., FakeKernel]


@pytest.fixture
def board(tmp_path):
    """Makes the tree of a board and its fake kernel."""

    def make(name, **options):
        root = tmp_path / name
        write_tree(root, TREES[name])
        return FakeKernel(root, **options)  # type: ignore[arg-type]

    return make
