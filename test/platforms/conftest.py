from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sysfs_trees import TREES, FakeKernel, write_tree

Board = Callable[..., FakeKernel]


@pytest.fixture
def board(tmp_path: Path) -> Board:
    """Makes the tree of a board and its fake kernel."""

    def make(name: str, **options: object) -> FakeKernel:
        root = tmp_path / name
        write_tree(root, TREES[name])
        return FakeKernel(root, **options)  # type: ignore[arg-type]

    return make
