# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Files of another user, whoever runs the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

STRANGER = 54_321


def make_foreign(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a file to another user; who may not do that becomes another user in its place."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
