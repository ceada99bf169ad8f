# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The frames of one run, counted three times: by their source, by the package, in the trace."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COUNT_FRAMES = Path(__file__).resolve().parents[1] / "campaigns" / "count_frames.py"

Ends = tuple[int, int]
"""The first and the last frame that a task got."""


@dataclass(frozen=True)
class Accounts:
    """What source and package say of the frames of a run, by task."""

    sent: Mapping[str, Ends]
    counted: Mapping[str, Mapping[str, int]]  # frames of each outcome
    traces: Sequence[Path]

    @property
    def frames(self) -> int:
        """Frames sent, once for each task that got them."""
        return sum(last + 1 - first for first, last in self.sent.values())


def count_in_traces(traces: Sequence[Path]) -> dict[str, Any]:
    """What count_frames.py says of traces; it runs with nothing of this checkout on its path."""
    done = subprocess.run(
        [sys.executable, "-I", COUNT_FRAMES, *traces], capture_output=True, text=True, check=False
    )
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"outcomes": {}, "ends": {}, "lost": 0, "faults": [done.stderr.strip()[-500:]]}
    if done.returncode and not found["faults"]:
        found["faults"].append("there is no frame in the trace")
    return found


def compare(accounts: Accounts) -> tuple[Counter[str], list[str]]:
    """Frames by outcome as the trace has them, and what does not agree; empty = all does."""
    found = count_in_traces(accounts.traces)
    faults: list[str] = list(found["faults"])
    if found["lost"]:
        faults.append(f"the trace lost {found['lost']} frames")
    for task in sorted({*accounts.sent, *accounts.counted, *found["ends"]}):
        sent, ends = accounts.sent.get(task), found["ends"].get(task)
        if sent is None or ends is None or sent != tuple(ends):
            faults.append(f"{task}: frames {sent} were sent, {ends} are in the trace")
        counted = {name: n for name, n in accounts.counted.get(task, {}).items() if n}
        if counted != (traced := found["outcomes"].get(task, {})):
            faults.append(f"{task}: the package counted {counted}, the trace has {traced}")
    total: Counter[str] = Counter()
    for outcomes in found["outcomes"].values():
        total.update(outcomes)
    return total, faults
