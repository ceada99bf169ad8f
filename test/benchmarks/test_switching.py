# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`switching` on few frames: what it measures, not how fast this machine is."""

import benches
import pytest

from benchmarks.switching import BAR_US
from jetson_dnn_rt.backends.registry import inspect_backend


def test_half_of_the_boundaries_are_switches():
    if "bf16" not in inspect_backend("torch").precisions:
        pytest.skip("no bf16 on this CPU")
    _, result = benches.run("switching", "--frames 40 --stages 3")
    gaps = result["gap_us"]
    assert result["frames"] == 40
    assert gaps["kept"]["count"] + gaps["switched"]["count"] == 40 * (result["stages"] - 1)
    assert min(gaps["kept"]["count"], gaps["switched"]["count"]) > 40
    assert 0.0 < gaps["kept"]["p50"] <= gaps["kept"]["p99"] <= gaps["kept"]["max"]
    added = gaps["switched"]["p99"] - gaps["kept"]["p99"]
    assert result["added_us"]["p99"] == pytest.approx(added, abs=0.11)
    assert result["passed"] == (result["added_us"]["p99"] <= BAR_US)
