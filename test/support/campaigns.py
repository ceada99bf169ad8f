# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Made-up statements about a worst case."""

from __future__ import annotations

import math

from jetson_dnn_rt.lab.wcet.statement import Bound, Campaign, Support, TestResult


def make_campaign(
    title: str = "detector, full@null",
    *,
    upper_ns: float = 15e6,
    support: Support = Support.EXTRAPOLATED,
) -> Campaign:
    """With bounds at 1e-3 and 1e-4; without any where it is unproven."""
    unproven = support is Support.UNPROVEN
    uppers = (math.nan, math.nan) if unproven else (0.9 * upper_ns, upper_ns)
    backed = (Support.UNPROVEN,) * 2 if unproven else (Support.SUPPORTED, support)
    bounds = tuple(
        Bound(exceedance, how, 0.97 * upper, upper, "GPD")
        for exceedance, how, upper in zip((1e-3, 1e-4), backed, uppers, strict=True)
    )
    return Campaign(
        title=title,
        count=4000,
        best_ns=7e6,
        mean_ns=9e6,
        p50_ns=8.9e6,
        p99_ns=12e6,
        hwm_ns=13e6,
        support=support,
        smallest_supported=math.nan if unproven else 1e-3,
        confidence=0.95,
        bounds=bounds,
        tests=(
            TestResult("KPSS", 0.2, 0.08, True, "the times do not drift"),
            TestResult(
                "Ljung-Box", 90.0, 1e-9, not unproven, "frames resemble <their> neighbours"
            ),
        ),
        extremal_index=0.4 if unproven else 0.97,
        longest_burst=3,
        rule_of_three=3 / 4000,
        statement=f"{support.value}: as tested",
        advice=("fix the clocks: `jetson-dnn-rt doctor`",),
    )
