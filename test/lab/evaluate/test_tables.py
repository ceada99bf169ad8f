# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tables of evaluations for people."""

from __future__ import annotations

import pytest

from jetson_dnn_rt.lab.evaluate.report import describe_times, format_sequential
from jetson_dnn_rt.traces.histogram import Histogram

MS = 1_000_000


@pytest.mark.parametrize(
    ("runs", "shown"), [(99, {}), (221, {"p99"}), (999, {"p99"}), (1000, {"p99", "p99.9"})]
)
def test_a_percentile_that_is_the_highest_time_is_not_printed(runs, shown):
    """The p99.9 of 221 runs was the high-water mark under another name."""
    times = Histogram()
    for number in range(runs):
        times.record((10 + number) * MS)
    variant = {"runs": runs, "failed": 0, "execution_ms": describe_times(times)}
    summary = {
        "tasks": {"detector": {"variants": {"full": variant}}},
        "bags": [],
        "identical": None,
        "lost": 0,
    }
    header, _, row = format_sequential(summary).splitlines()
    cells = dict(zip(header.replace(" ms", "").split(), row.split(), strict=True))
    assert {name for name in ("p99", "p99.9") if cells[name] != "-"} == set(shown)
    assert cells["hwm"] == f"{9.0 + runs:.1f}"
