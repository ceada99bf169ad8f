# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Comparison of recordings: tasks alone and beside others, or before and after an update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jetson_dnn_rt.lab.report.recording import Recording, quantile
from jetson_dnn_rt.lab.wcet.comparison import Comparison, compare
from jetson_dnn_rt.lab.wcet.samples import Sample

ALL_VARIANTS = "all variants"
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
LEAST_TIMES = 20
LEAST_COMPARED = 100
LEAST_SHARE = 0.1
"""Least share of the frames for a variant to be compared by itself."""
LEAST_ABOVE = 3
"""A quantile is compared if both recordings have this many times above it."""


@dataclass(frozen=True, eq=False)
class Shift:
    """A task in one variant, under two conditions.

    `condition` is the label of the second recording. `times_ns` are execution times before and
    after, by quantile and ``highest seen``; `missed` the shares of the task's frames that were
    missed. `comparison` is None if there are too few times.
    """

    task: str
    variant: str
    condition: str
    before: Sample
    after: Sample
    times_ns: dict[str, tuple[int, int]]
    missed: tuple[float, float]
    comparison: Comparison | None

    def ratio(self, name: str) -> float:
        """Return the time after over that before."""
        before, after = self.times_ns[name]
        return after / max(1, before)


def find_shifts(recordings: Sequence[Recording]) -> list[Shift]:
    """Compare every later recording with the first one, campaign by campaign.

    Tasks are compared variant by variant where most frames of all recordings ran in the same ones,
    and as a whole where a coordinator mixed them.
    """
    shifts = []
    for task in recordings[0].tasks:
        others = [other for other in recordings[1:] if task in other.tasks]
        for samples in _choose_samples([recordings[0], *others], task) if others else []:
            for other, after in zip(others, samples[1:], strict=True):
                if len(after) >= LEAST_TIMES:
                    shifts.append(_shift(recordings[0], other, task, samples[0], after))
    return shifts


def _choose_samples(recordings: Sequence[Recording], task: str) -> list[list[Sample]]:
    """Choose samples of each recording that can be compared, the most frames first."""
    by_key = [{sample.key: sample for sample in r.samples_of(task)} for r in recordings]
    counts = [sum(len(sample) for sample in samples.values()) for samples in by_key]
    shares = {
        key: min(
            len(samples[key]) / count if key in samples else 0.0
            for samples, count in zip(by_key, counts, strict=True)
        )
        for key in by_key[0]
    }
    chosen = [key for key, share in shares.items() if share >= LEAST_SHARE]
    if sum(shares[key] for key in chosen) >= 0.5:
        found = [[samples[key] for samples in by_key] for key in chosen]
    else:
        found = [[recording.whole_of(task) for recording in recordings]]
    return [samples for samples in found if len(samples[0]) >= LEAST_TIMES]


def _shift(first: Recording, other: Recording, task: str, before: Sample, after: Sample) -> Shift:
    ordered = [np.sort(sample.times_ns) for sample in (before, after)]
    least = min(len(before), len(after))
    times = {
        name: (int(quantile(ordered[0], q)), int(quantile(ordered[1], q)))
        for name, q in QUANTILES.items()
        if name == "p50" or least * (1.0 - q) >= LEAST_ABOVE
    }
    times["highest seen"] = (int(ordered[0][-1]), int(ordered[1][-1]))
    missed = [float(recording.tasks[task].missed.mean()) for recording in (first, other)]
    variant = before.subtitle or ALL_VARIANTS
    comparison = None
    if least >= LEAST_COMPARED:
        comparison = compare(before.times_ns, after.times_ns, title=f"{task}, {variant}")
    return Shift(
        task, variant, other.label, before, after, times, (missed[0], missed[1]), comparison
    )


def pair_stages(first: Recording, other: Recording, sample: Sample) -> list[tuple[Sample, Sample]]:
    """Pair the stages of a campaign that are in both recordings, in their order."""
    key = dict(sample.key)
    before, after = (
        r.stages_of(key["task"], sample) if "variant" in key else r.whole_stages_of(key["task"])
        for r in (first, other)
    )
    counterparts = {stage.key: stage for stage in after}
    return [(stage, counterparts[stage.key]) for stage in before if stage.key in counterparts]
