# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Histograms for tests."""

from collections.abc import Iterable

from jetson_dnn_rt.traces.histogram import Histogram


def histogram_of(times_ns: Iterable[int]) -> Histogram:
    """Histogram of times."""
    made = Histogram()
    for time_ns in times_ns:
        made.record(time_ns)
    return made
