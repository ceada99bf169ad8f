# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The short forms of `test/campaigns`, run as programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "campaigns"


def run_campaign(name: str, *arguments: str, may_miss: bool = False) -> dict[str, Any]:
    """Run a campaign that must not miss a bar, unless it may; its report."""
    done = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    codes = (0, 1) if may_miss else (0,)
    assert done.returncode in codes, done.stdout[-5000:] + done.stderr[-20_000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report
