# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Measurement of a compressed network, the one that `build` makes of a task's variant.

Whole frames through the stages of the task, with its threads: what is stored here is present for
`build`, and what `build` measured of the full network is not measured again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.lab.compress.compression import Compression
from jetson_dnn_rt.runtime.building.builder import BuildSettings, TaskBuilder, TaskPlan
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.agreement import Agreement
from jetson_dnn_rt.variants.measuring.measurement import Measurement, find_refusal
from jetson_dnn_rt.variants.progress import Progress, ignore_progress


@dataclass(frozen=True, eq=False)
class Judgement:
    """A compressed network, what it is worth, and whether it is to be used."""

    compression: Compression
    full: Measurement  # on the same back end, its time in turn with the other's
    measurement: Measurement
    agreement: Agreement  # with the full model, on held-out frames
    refused: str  # why it is not to be used, with the figures and what to try; else empty

    def to_json(self) -> dict[str, Any]:
        """The report as JSON; times of whole frames in ms."""
        before, after = self.full.total, self.measurement.total
        return {
            **self.compression.to_json(),
            "time_ms_before": before.p50_ns * 1e-6,
            "time_ms_after": after.p50_ns * 1e-6,
            "time_p99_ms_before": before.p99_ns * 1e-6,
            "time_p99_ms_after": after.p99_ns * 1e-6,
            "agreement": self.agreement.value,
            "agreement_metric": self.agreement.metric,
            "agreement_frames": self.agreement.frames,
            "agreement_evidence": self.agreement.evidence,
            "refused": self.refused,
        }


def judge(
    compression: Compression,
    plan: TaskPlan,
    library: Library,
    settings: BuildSettings,
    least_agreement: float,
    progress: Progress = ignore_progress,
) -> Judgement:
    """Measure a compressed network that is in the library as a task would run it.

    `least_agreement` is that with the full model, in [0, 1]; 0 = any. Raises `ModelError` or
    `BackendUnavailableError` when it or the full network cannot run.
    """
    builder = TaskBuilder(plan, library, settings, SteadyClock(), compression.held_out)
    measurement, full = builder.measure(compression.variant, progress)
    agreement = measurement.agreement or compression.agreement
    refused = find_refusal(compression.variant, measurement, agreement, least_agreement)
    if measurement.refused:
        refused += (
            "; try to keep less of the network, or another --backend; --keep-slower keeps it"
        )
    return Judgement(compression, full, measurement, agreement, refused)
