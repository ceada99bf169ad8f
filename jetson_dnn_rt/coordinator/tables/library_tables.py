# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tables from measurements of a task's variants: warm-up runs, the library, a profile.

The measurements are times of *runs* of stages (a back end may cover several stages with one run)
and, for a whole variant, its agreement with the full model. Two steps from there to a table are
derived, not measured:

* The time of a run that covers several stages is divided among them in the proportions of the most
  accurate variant that runs them one by one, so that sums over whole runs stay exact.
* The loss of a variant, 1 - agreement, is divided among the stages of the network in the same
  proportions; preprocessing and decoding are the same in all variants and lose nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.config.task import LEAST_AGREEMENT
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, Floats, Integers, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.platforms.clocks import ClockConfiguration, ClockSpace
from jetson_dnn_rt.scheduling.job import sub_deadlines_ns
from jetson_dnn_rt.tasks import SHARED_STAGES, Stage
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.agreement import Agreement
from jetson_dnn_rt.variants.measuring.machine import find_stale
from jetson_dnn_rt.variants.measuring.measurement import Measurement, approximates, find_refusal
from jetson_dnn_rt.variants.measuring.store import find_agreement, load_measurement
from jetson_dnn_rt.variants.spec import VariantSpec

logger = logging.getLogger(__name__)

UNKNOWN_BUSY_W, UNKNOWN_IDLE_W = 1.0, 0.0
"""Placeholders where power cannot be read: energy is then the time the machine was busy."""


@dataclass(frozen=True, eq=False)
class VariantProfile:
    """Measurements of one variant."""

    spans: tuple[int, ...]  # number of stages in each of its R runs
    times_ns: Integers
    """Times of S frames at the fastest of the clocks, [S, R]; each row is the same frame in all
    variants of a task, as far as that is known."""
    accuracy: float | None  # agreement with the full model, in [0, 1]; None = unknown
    slowdown: Floats = field(default_factory=lambda: np.ones((1, 1)))
    """Time relative to the fastest clocks, [R, C] or [1, C]; by default one configuration."""
    power_w: Floats = field(default_factory=lambda: np.array([UNKNOWN_BUSY_W]))
    """Mean power of the board while it runs, [C]; by default unknown."""

    @staticmethod
    def of(
        spec: VariantSpec, runs: Sequence[Stage], rows: npt.ArrayLike, agreement: Agreement | None
    ) -> VariantProfile:
        """Make a profile at one clock configuration from times in nanoseconds, [S, R].

        A variant without approximation agrees by definition, where nothing was compared.
        """
        accuracy = None if agreement is None else agreement.value
        if accuracy is None and not approximates(spec):
            accuracy = 1.0
        spans = tuple(stage.span for stage in runs)
        times_ns = np.asarray(rows, np.int64).reshape(-1, len(spans))
        return VariantProfile(spans, times_ns, accuracy)


def load_profiles(
    variants: Mapping[str, Sequence[Stage]],
    warm_up_ns: Mapping[str, Sequence[Sequence[int]]],
    *,
    library: Library | None = None,
    model: Model | None = None,
    threads: int = 1,
    stages: int | str = 0,
    amp_lists: str = "",
    frames: str = "",
    least: float = LEAST_AGREEMENT,
) -> dict[str, VariantProfile]:
    """Return profiles of loaded variants, from the library or else from their warm-up.

    The library's times are of real frames, and are used if the variant was cut as it is now. Only
    the library has the agreement. Variants that are refused (`find_refusal`), or agree less than
    `least`, are left out.

    `variants` has the stages of each, `warm_up_ns` stage times of warm-up runs, a row per run, the
    only source without `library` and `model`. `threads` of one inference, `stages` asked for (0 =
    automatic) and `amp_lists` are as they were measured; an agreement that was measured with other
    threads or stages is of `frames` (empty = any).
    """
    profiles = {}
    for name, runs in variants.items():
        spec = VariantSpec.parse(name)
        found, agreement = None, None
        if library is not None and model is not None:
            found = load_measurement(
                library, model, spec, threads=threads, stages=stages, amp_lists=amp_lists
            )
            agreement = find_agreement(
                library, model, spec, found,
                threads=threads, stages=stages, amp_lists=amp_lists, frames=frames,
            )  # fmt: skip
        refusal = find_refusal(spec, found, agreement, least)
        if refusal:
            logger.warning("variant %s is left out of the tables: %s", name, refusal)
            continue
        measured = _rows_of(found, runs) if found is not None else None
        rows = warm_up_ns[name] if measured is None else measured
        profiles[name] = VariantProfile.of(spec, runs, rows, agreement)
    return profiles


def _rows_of(measurement: Measurement, runs: Sequence[Stage]) -> Integers | None:
    """Joint samples of a measurement, [S, R]; None where it was cut differently."""
    if [stage.name for stage in measurement.stages] != [stage.name for stage in runs]:
        return None
    kept = min(len(stage.times_ns) for stage in measurement.stages)
    columns = [stage.times_ns[len(stage.times_ns) - kept :] for stage in measurement.stages]
    return np.array(columns, dtype=np.int64).T if kept else None


def list_variants(library: Library, model: Model) -> list[str]:
    """Names of the variants of a model that the library has measured for this machine."""
    names: list[str] = []
    for listing in library.entries():
        key = listing.header.key if listing.header and not listing.problem else None
        if key is None or key.kind != "measurement" or key.model_hash != model.model_hash:
            continue
        if not find_stale(key):
            names.append(str(VariantSpec(key.decomposition, key.backend, key.precision)))
    return list(dict.fromkeys(names))


def make_clock_table(
    space: ClockSpace, configuration: ClockConfiguration, idle_w: float = UNKNOWN_IDLE_W
) -> ClockTable:
    """Make a clock table with the platform's present clocks as its one configuration."""
    position = space.nearest(configuration)
    return ClockTable(space, np.array([position]), np.array([idle_w]), 0, 0)


def make_task_table(
    task: str,
    stages: Sequence[str],
    profiles: Mapping[str, VariantProfile],
    *,
    deadline_ns: int,
    period_ns: int,
) -> TaskTable:
    """Make the table of a task; variants of unknown accuracy are left out, with a warning.

    The most accurate variant comes first, of equal ones the faster. Its frames are the last ones,
    as many as the variant with the fewest has. All profiles are at the same clocks.
    ConfigurationError: there is no variant of known accuracy, or one was never timed; ValueError:
    a profile does not fit the stages or the others.
    """
    known = {}
    for name, profile in profiles.items():
        if profile.accuracy is None:
            logger.warning(
                "task %s: variant %s is left out of the tables: how far it agrees with the full "
                "model is unknown; run jetson-dnn-rt build with frames of your camera", task, name,
            )  # fmt: skip
            continue
        if not len(profile.times_ns):
            raise ConfigurationError(
                f"task {task}: variant {name} was never timed: set warmup_runs above 0, or run "
                "jetson-dnn-rt build"
            )
        rows, clocks = profile.slowdown.shape
        if sum(profile.spans) != len(stages) or rows not in (1, len(profile.spans)):
            raise ValueError(
                f"variant {name} of task {task} does {profile.spans} of {len(stages)} stages, "
                f"with slowdown {profile.slowdown.shape}"
            )
        if profile.power_w.shape != (clocks,):
            raise ValueError(f"power_w of {name} of task {task} must be {(clocks,)}")
        known[name] = profile
    if not known:
        raise ConfigurationError(
            f"task {task}: there is no variant of known accuracy: run jetson-dnn-rt build"
        )
    medians = {name: np.median(known[name].times_ns.sum(axis=1)) for name in known}
    order = sorted(known, key=lambda name: (-(known[name].accuracy or 0.0), medians[name]))
    ordered = [known[name] for name in order]
    weights = _weigh_stages(ordered, len(stages))
    samples = min(len(profile.times_ns) for profile in known.values())
    in_network = [
        weight * (s not in SHARED_STAGES) for s, weight in zip(stages, weights, strict=True)
    ]
    shares = np.array(in_network if any(in_network) else weights, dtype=np.float64)
    return TaskTable(
        task,
        tuple(stages),
        tuple(order),
        deadline_ns,
        period_ns,
        np.stack([_share_out(profile, weights, samples) for profile in ordered]),
        np.stack([_spread(profile) for profile in ordered]),
        np.stack([np.tile(profile.power_w, (len(stages), 1)) for profile in ordered]),
        np.stack([(1.0 - (p.accuracy or 0.0)) * shares / shares.sum() for p in ordered]),
    )


def leave_out_inaccurate(table: TaskTable, least: float) -> TaskTable:
    """A table without the variants that are less accurate than `least`, which are logged.

    ConfigurationError: none is left.
    """
    kept = []
    for number, name in enumerate(table.variants):
        accuracy = table.accuracy(number)
        if round(accuracy, 3) >= least:
            kept.append(number)
        else:
            logger.warning(
                "task %s: variant %s is left out of the tables: it agrees %.3f with the full "
                "model, at least %g is asked for (least_agreement)",
                table.task, name, accuracy, least,
            )  # fmt: skip
    if not kept:
        raise ConfigurationError(
            f"tables: no variant of task {table.task} agrees {least:g} with the full model; fix: "
            "profile it with the full variant, or lower least_agreement"
        )
    return table.take_variants(kept)


def _weigh_stages(profiles: Sequence[VariantProfile], stages: int) -> list[int]:
    """Median times of the first variant that runs its stages one by one; else equal weights."""
    for profile in profiles:
        if len(profile.spans) == stages:
            return [max(1, int(median)) for median in np.median(profile.times_ns, axis=0)]
    return [1] * stages


def _spread(profile: VariantProfile) -> Floats:
    """Slow-down of stages, [K, C], from that of runs."""
    rows = np.broadcast_to(profile.slowdown, (len(profile.spans), profile.slowdown.shape[1]))
    spread: Floats = np.repeat(rows, profile.spans, axis=0)
    return spread


def _share_out(profile: VariantProfile, weights: Sequence[int], samples: int) -> Integers:
    """Times of stages, [K, S], from times of runs."""
    rows = profile.times_ns[-samples:]
    columns: list[Integers] = []
    first = 0
    for run, span in enumerate(profile.spans):
        parts = [sub_deadlines_ns(int(t), weights[first : first + span]) for t in rows[:, run]]
        columns += [np.array(column, dtype=np.int64) for column in zip(*parts, strict=True)]
        first += span
    # A stage of zero time would have no share of a deadline.
    times: Integers = np.maximum(np.stack(columns), 1)
    return times
