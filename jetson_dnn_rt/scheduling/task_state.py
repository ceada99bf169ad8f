# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""State of a task in the engine: its variants, their budgets, its jobs and its counts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from operator import mul
from typing import TypeVar

from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.weakly_hard import WeaklyHard, worth
from jetson_dnn_rt.tasks import SHARED_STAGES, Outcome, TaskParameters

T = TypeVar("T")

WINDOW = 256  # execution times that a budget is computed from

LUCKY = 10
"""One run in so many is quick enough to be called lucky."""

CANCEL_QUANTILE = 0.9
"""Of the times that cancelled runs took to end: there are few, and the slowest of ten is often a
thread that woke late, not a long operator."""

INTERVALS = 5  # between releases, whose median tells when the next is due

WITHDRAW_AFTER = 2  # failed jobs in a row after which a variant is withdrawn

TEXT_LENGTH = 500  # maximum length of a stored error text


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a variant: the task's stages that its back end runs at once."""

    span: int = 1  # number of stages
    device: str = "cpu"  # ``cpu``, ``cuda``, ... See ``max_inflight`` of the engine
    batches: bool = False
    """Whether it can run for frames of several tasks of a batch group at once."""
    cancels: bool = False  # whether it can be ended while it runs


class BudgetEstimator:
    """Quantile of the last `window` execution times of one stage in one variant.

    A window, because machines throttle and warm up, and co-runners change; a quantile and not the
    mean, because a budget that half of the frames overrun meets no deadline. The budget is the
    smallest observed time that covers the share `quantile`, in (0, 1]. Kept sorted: an observation
    costs about a microsecond, reading nothing.
    """

    __slots__ = ("_recent", "_sorted", "budget_ns", "median_ns", "quantile")

    def __init__(self, quantile: float, window: int = WINDOW) -> None:
        self.quantile = quantile
        self._recent: deque[int] = deque(maxlen=window)
        self._sorted: list[int] = []
        self.budget_ns = 0
        self.median_ns = 0

    def observe(self, execution_time_ns: int) -> None:
        """Add an execution time; the oldest is dropped when the window is full."""
        recent, ordered = self._recent, self._sorted
        if len(recent) != len(ordered):
            # An observation was interrupted. What is in one of the two alone would be looked for
            # in vain when it leaves the window, at every frame from then on.
            ordered[:] = sorted(recent)
        if len(recent) == recent.maxlen:
            del ordered[bisect_left(ordered, recent[0])]
        recent.append(execution_time_ns)
        insort(ordered, execution_time_ns)
        count = len(ordered)
        self.budget_ns = ordered[ceil(self.quantile * count) - 1]
        self.median_ns = ordered[(count - 1) // 2]

    @property
    def count(self) -> int:
        """Number of times in the window."""
        return len(self._sorted)

    def share_within(self, time_ns: int) -> float:
        """Share of the times in the window that are no longer; 0 = it is empty."""
        ordered = self._sorted
        return bisect_right(ordered, time_ns) / len(ordered) if ordered else 0.0

    @property
    def lucky_ns(self) -> int:
        """Time that one run in `LUCKY` stays below; 0 = it is empty."""
        return self._sorted[len(self._sorted) // LUCKY] if self._sorted else 0

    @property
    def largest_ns(self) -> int:
        """Largest time in the window; 0 = it is empty."""
        return self._sorted[-1] if self._sorted else 0

    def reset(self, execution_times_ns: Iterable[int]) -> None:
        """Replace all times by these: earlier ones no longer describe the machine."""
        self._recent.clear()
        self._sorted.clear()
        self.budget_ns = self.median_ns = 0
        for time_ns in execution_times_ns:
            self.observe(time_ns)


@dataclass(slots=True, eq=False)
class TaskState:
    """State of a task in the engine; read by others under the driver's lock."""

    parameters: TaskParameters
    budgets: dict[str, list[BudgetEstimator]] = field(default_factory=dict)
    spans: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Number of stages that run at once from each stage on, by variant; 0 where the variant cannot
    be entered, because it covers the stage together with earlier ones."""
    runs: dict[str, tuple[Run | None, ...]] = field(default_factory=dict)
    """The runs behind `spans`; None where that is 0."""
    time_scales: Mapping[str, Sequence[float]] | None = None
    """Time of each stage at the present clocks relative to the reference clocks, by variant;
    budgets refer to the reference clocks, so that they stay valid through a change. None: the
    clocks do not change, or their effect is unknown."""
    fastest_scales: Mapping[str, Sequence[float]] | None = None
    """The same at the fastest available clocks: no frame that could make it there is aborted. The
    milliseconds that a change takes are ignored: it may be under way already, and work continues
    meanwhile. None: only the present clocks."""
    _cancels: dict[str, BudgetEstimator] = field(default_factory=dict)
    """How long a running stage takes to end after it was told to, by variant."""
    _rest: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)
    """Budgets, and usual times, from each stage to the last: sums that would be computed several
    times at every boundary."""
    is_prepared: bool = field(init=False)  # its first stage comes before the network
    network_end: int = field(init=False)  # index of the first stage after the network
    waiting: Job | None = None
    in_flight: Job | None = None
    misses_in_a_row: int = 0
    weakly_hard: WeaklyHard | None = field(init=False)
    """Outcomes of the last frames, where the task has a weakly hard limit (`met_of`)."""
    worth: float = 1.0  # of its next frame: more than 1 near that limit
    suspended: str = ""  # why every released frame is skipped; empty = none is
    kept_out: int = 0  # frames in a row that would have run with a smaller budget
    probe_after: int = 1
    """So many of them before one probes, where by its usual time none makes its deadline."""
    failures: Counter[str] = field(default_factory=Counter)
    withdrawn: dict[str, str] = field(default_factory=dict)
    """Withdrawn variants, with the reason."""
    released: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """Counts of ended jobs by reason, with a bounded number of kinds."""
    last_failure: str = ""
    next_release_ns: int = 0  # when the next frame is expected; 0 = unknown
    narrow: BudgetEstimator | None = None
    """How many times as long its network takes narrow, beside others, in thousandths of the usual
    wide time; None = it is never narrow."""
    has_one_core: bool = False
    """Whether its network uses one core at most, so that narrow runs are as long as wide ones."""
    load: float = 0.0  # share of the time of one worker that its frames ask for
    _released_ns: int = 0  # the last
    _intervals_ns: list[int] = field(default_factory=list)
    """Between the last releases, the oldest first."""

    def __post_init__(self) -> None:
        stages = self.parameters.stages
        self.is_prepared = stages[0] == SHARED_STAGES[0]
        self.network_end = len(stages) - (stages[-1] == SHARED_STAGES[1])
        limit = self.parameters.met_of
        self.weakly_hard = WeaklyHard(limit[0], limit[1]) if limit else None
        self._weigh()

    def see_end(self, number: int, *, met: bool) -> None:
        """Count a frame that ended in the weakly hard limit; `number` as in `Job`."""
        assert self.weakly_hard is not None
        self.weakly_hard.end(number, met)
        self._weigh()

    def _weigh(self) -> None:
        if self.weakly_hard is not None:
            self.worth = worth(self.weakly_hard.distance)

    def see_release(self, now_ns: int) -> None:
        """Learn from the time of a release when the next one is due, and the load."""
        intervals_ns, before_ns = self._intervals_ns, self._released_ns
        self._released_ns = now_ns
        if not before_ns:
            return
        if len(intervals_ns) == INTERVALS:
            del intervals_ns[0]
        intervals_ns.append(now_ns - before_ns)
        interval_ns = sorted(intervals_ns)[len(intervals_ns) // 2]
        if len(intervals_ns) < INTERVALS or interval_ns <= 0:
            return
        self.next_release_ns = now_ns + interval_ns
        self.load = self.remaining_usual_ns(self.parameters.variant) / interval_ns

    def usable(self, variant: str, stage: int) -> bool:
        """Whether a variant may run from this stage on."""
        return (
            variant in self.spans
            and self.spans[variant][stage] > 0
            and variant not in self.withdrawn
        )

    def batches(self, variant: str, stage: int) -> bool:
        """Whether the run that begins with this stage can be done for several frames at once."""
        run = self.runs[variant][stage]
        return run is not None and run.batches

    def set_variant(self, variant: str) -> None:
        """Set the variant of later jobs; ValueError when it is unknown or was withdrawn."""
        if variant in self.withdrawn:
            raise ValueError(
                f"variant {variant!r} of task {self.parameters.name!r} was withdrawn: "
                f"{self.withdrawn[variant]}"
            )
        self.parameters = replace(self.parameters, variant=variant)

    def set_deadline(self, deadline_ns: int) -> None:
        """Change the relative deadline of the jobs released from now on."""
        self.parameters = replace(self.parameters, deadline_ns=deadline_ns)

    def set_max_age(self, max_age_ns: int) -> None:
        """Change the age above which a frame is stale at its release; 0 = no limit."""
        self.parameters = replace(self.parameters, max_age_ns=max_age_ns)

    # -- variants ------------------------------------------------------------------------------

    def set_spans(self, variant: str, spans: Sequence[int | Run] | None) -> None:
        """Set the runs of a variant, or the number of stages of each; its budgets start empty.

        ValueError when the runs do not cover every stage once.
        """
        count = len(self.parameters.stages)
        runs = _complete((1,) * count if spans is None else spans)
        done = tuple(run.span for run in runs)
        if sum(done) != count or min(done) < 1:
            raise ValueError(
                f"runs of variant {variant!r} of task {self.parameters.name!r} do {done} stages, "
                f"the task has {count}"
            )
        self.spans[variant] = tuple(_spread(done, done, 0))
        self._lay_out(variant, runs)
        quantile = self.parameters.budget_quantile
        self.budgets[variant] = [BudgetEstimator(quantile) for _ in range(count)]
        self._rest[variant] = ([0] * (count + 1), [0] * (count + 1))

    def _lay_out(self, variant: str, runs: Sequence[Run]) -> None:
        self.runs[variant] = tuple(_spread(runs, [run.span for run in runs], None))

    def add_variant(self, variant: str, spans: Sequence[int | Run] | None = None) -> None:
        """Add a variant, or one that was rebuilt after its withdrawal."""
        self.set_spans(variant, spans)
        self.withdrawn.pop(variant, None)
        self.failures.pop(variant, None)
        if variant not in self.parameters.variants:
            variants = (*self.parameters.variants, variant)
            self.parameters = replace(self.parameters, variants=variants)

    def replace_variants(self, spans: Mapping[str, Sequence[int | Run]]) -> None:
        """Replace all variants by rebuilt ones, with the runs of each.

        A variant that is missing is withdrawn; one whose runs changed must learn its budgets
        again.
        """
        for variant in self.parameters.variants:
            if variant not in spans:
                self.withdrawn[variant] = "it could not be rebuilt"
                continue
            runs = _complete(spans[variant])
            if [span for span in self.spans[variant] if span] != [run.span for run in runs]:
                self.set_spans(variant, runs)
            else:
                self._lay_out(variant, runs)
        if self.parameters.variant in self.withdrawn:
            others = [v for v in self.parameters.variants if v not in self.withdrawn]
            if others:
                self.parameters = replace(self.parameters, variant=others[0])

    def blame(self, variant: str, reason: str) -> str:
        """Count a failed job against a variant; after `WITHDRAW_AFTER` in a row withdraw it.

        Returns the variant if this withdraws it, else an empty string. The last variant of a task
        is never withdrawn.
        """
        self.failures[variant] += 1
        if self.failures[variant] < WITHDRAW_AFTER or variant in self.withdrawn:
            return ""
        left_out = {variant, *self.withdrawn}
        others = [v for v in self.parameters.variants if v not in left_out]
        if not others:
            return ""
        self.withdrawn[variant] = reason
        if self.parameters.variant == variant:
            self.parameters = replace(self.parameters, variant=others[0])
        return variant

    # -- times ---------------------------------------------------------------------------------

    def set_time_scales(
        self,
        present: Mapping[str, Sequence[float]] | None,
        fastest: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """Set `time_scales` and `fastest_scales`, after the clocks changed or may do so."""
        self.time_scales, self.fastest_scales = present, fastest

    def set_narrow(self, slowdowns: Sequence[float]) -> None:
        """Let its network run narrow, so many times as long in runs beside others; none: never.

        Exactly as long in all of them: it has one core anyway.
        """
        self.narrow = None
        self.has_one_core = bool(slowdowns) and set(slowdowns) == {1.0}
        if slowdowns:
            self.narrow = BudgetEstimator(self.parameters.budget_quantile)
            self.narrow.reset(round(1000 * slowdown) for slowdown in slowdowns)

    def observe_narrow(self, variant: str, stage: int, execution_time_ns: int) -> None:
        """Learn from the time of a narrow run, which says nothing about one with more cores."""
        wide_ns = self.usual_ns(variant, stage)
        if self.narrow is not None and wide_ns:
            self.narrow.observe(1000 * execution_time_ns // wide_ns)

    def narrow_ns(self, variant: str, first: int, end: int) -> tuple[int, int]:
        """Budget and usual time of these stages of its network, narrow."""
        assert self.narrow is not None
        wide_ns = self.remaining_usual_ns(variant, first) - self.remaining_usual_ns(variant, end)
        if self.has_one_core:
            return self.remaining_budget_ns(variant, first) - self.remaining_budget_ns(
                variant, end
            ), wide_ns
        return wide_ns * self.narrow.budget_ns // 1000, wide_ns * self.narrow.median_ns // 1000

    def chance(self, variant: str, stage: int, slack_ns: int, *, narrow: bool) -> float:
        """Share of the runs of its network from a stage on that take no longer, by the last times.

        Of a network in several runs the longest counts, with its part of `slack_ns`.
        """
        first, end = max(stage, int(self.is_prepared)), self.network_end
        usual_ns = self.remaining_usual_ns(variant, first) - self.remaining_usual_ns(variant, end)
        if usual_ns <= 0:  # nothing is known yet
            return float(slack_ns >= 0)
        if narrow and not self.has_one_core:
            return self.narrow.share_within(1000 * slack_ns // usual_ns) if self.narrow else 0.0
        largest = max(range(first, end), key=lambda part: self.usual_ns(variant, part))
        part_ns = slack_ns * self.usual_ns(variant, largest) // usual_ns
        budget = self.budgets[variant][largest]
        return budget.share_within(self.unscaled_ns(part_ns, variant, largest))

    def network_free_ns(self, job: Job, now_ns: int, *, narrow: bool) -> int:
        """Until when a job that goes on now may need a network: its cancel, or its budget."""
        stage, end = max(job.next_stage, int(self.is_prepared)), self.network_end
        run = self.runs[job.variant][stage]
        if run is not None and run.cancels:
            return job.absolute_deadline_ns + (self.cancel_latency_ns(job.variant) or 0)
        ahead_ns = self.remaining_budget_ns(job.variant, job.next_stage)
        after_ns = self.remaining_budget_ns(job.variant, max(stage, end))
        if narrow and stage < end:
            ahead_ns -= self.remaining_budget_ns(job.variant, stage) - after_ns
            ahead_ns += self.narrow_ns(job.variant, stage, end)[0]
        return max(job.absolute_deadline_ns, now_ns + ahead_ns - after_ns)

    def observe_cancel(self, variant: str, latency_ns: int) -> None:
        """Learn how long a stage of a variant took to end after it was told to."""
        if variant not in self._cancels:
            self._cancels[variant] = BudgetEstimator(CANCEL_QUANTILE)
        self._cancels[variant].observe(latency_ns)

    def cancel_latency_ns(self, variant: str) -> int | None:
        """Time in which most of a variant's runs end when told to; None = unknown."""
        observed = self._cancels.get(variant)
        return None if observed is None else observed.budget_ns

    def observe(self, variant: str, stage: int, execution_time_ns: int) -> None:
        """Learn from an execution time at the present clocks."""
        if self.time_scales:
            execution_time_ns = self.unscaled_ns(execution_time_ns, variant, stage)
        estimator = self.budgets[variant][stage]
        budget_ns, median_ns = estimator.budget_ns, estimator.median_ns
        estimator.observe(execution_time_ns)
        self._update_rest(variant, stage, budget_ns, median_ns)

    def seed(self, variant: str, stage: int, execution_times_ns: Iterable[int]) -> None:
        """Restart a stage's budget from these times; without any it is empty."""
        estimator = self.budgets[variant][stage]
        budget_ns, median_ns = estimator.budget_ns, estimator.median_ns
        estimator.reset(execution_times_ns)
        self._update_rest(variant, stage, budget_ns, median_ns)

    def _update_rest(self, variant: str, stage: int, budget_ns: int, median_ns: int) -> None:
        """Update the sums after a stage's figures changed from these."""
        estimator = self.budgets[variant][stage]
        budgets_ns, medians_ns = self._rest[variant]
        if change_ns := estimator.budget_ns - budget_ns:
            for index in range(stage + 1):
                budgets_ns[index] += change_ns
        if change_ns := estimator.median_ns - median_ns:
            for index in range(stage + 1):
                medians_ns[index] += change_ns

    def learn_from_probe(self, job: Job) -> None:
        """Keep only what a probe measured that took no longer than usual: the machine is faster.

        A slower one is an observation like any other: one slow run replaces no budget.
        """
        usual_ns = sum([self.usual_ns(variant, index) for variant, index in job.path])
        if sum([stage.execution_time_ns for stage in job.stages]) > usual_ns:
            return
        for (variant, index), stage in zip(job.path, job.stages, strict=True):
            if stage.narrow:
                continue
            self.seed(variant, index, ())
            self.observe(variant, index, stage.execution_time_ns)

    def usual_ns(self, variant: str, stage: int) -> int:
        """Median time of a stage at the present clocks."""
        return self.scaled_ns(self.budgets[variant][stage].median_ns, variant, stage)

    def budget_ns(self, variant: str, stage: int) -> int:
        """Budget of a stage at the present clocks."""
        return self.scaled_ns(self.budgets[variant][stage].budget_ns, variant, stage)

    def scaled_ns(self, time_ns: int, variant: str, stage: int) -> int:
        """Convert a time from the reference clocks to the present ones."""
        scale = self._scale(variant, stage)
        return time_ns if scale == 1.0 else ceil(time_ns * scale)

    def unscaled_ns(self, time_ns: int, variant: str, stage: int) -> int:
        """Convert a time from the present clocks to the reference ones."""
        scale = self._scale(variant, stage)
        return time_ns if scale == 1.0 else ceil(time_ns / scale)

    def remaining_budget_ns(self, variant: str, stage: int = 0) -> int:
        """Budgets of the stages from `stage` to the last, at the fastest available clocks."""
        scales = self.fastest_scales or self.time_scales
        if not scales or variant not in scales:
            return self._rest[variant][0][stage]
        times_ns = [budget.budget_ns for budget in self.budgets[variant][stage:]]
        return _scaled_sum_ns(times_ns, scales[variant][stage:])

    def least_budget_ns(self) -> int:
        """Time that the stages of a job take at least by their budgets, in any of its variants.

        At the fastest available clocks; 0 = not known.
        """
        scales = self.fastest_scales or self.time_scales or {}
        unscaled = (1.0,) * len(self.parameters.stages)
        ways = [
            [int(stage.budget_ns * scales.get(variant, unscaled)[index])
             for index, stage in enumerate(stages)]
            for variant, stages in self.budgets.items()
            if variant not in self.withdrawn
        ]  # fmt: skip
        return sum(map(min, zip(*ways, strict=True)))

    def remaining_usual_ns(self, variant: str, stage: int = 0) -> int:
        """Median times of the stages from `stage` to the last, at the fastest available clocks."""
        scales = self.fastest_scales or self.time_scales
        if not scales or variant not in scales:
            return self._rest[variant][1][stage]
        times_ns = [budget.median_ns for budget in self.budgets[variant][stage:]]
        return _scaled_sum_ns(times_ns, scales[variant][stage:])

    def remaining_lucky_ns(self, variant: str, stage: int = 0) -> int:
        """The same of times that one run in `LUCKY` stays below."""
        scales = self.fastest_scales or self.time_scales
        times_ns = [budget.lucky_ns for budget in self.budgets[variant][stage:]]
        if not scales or variant not in scales:
            return sum(times_ns)
        return _scaled_sum_ns(times_ns, scales[variant][stage:])

    def _scale(self, variant: str, stage: int) -> float:
        scales = self.time_scales and self.time_scales.get(variant)
        return scales[stage] if scales else 1.0

    def medians_ns(self, variant: str) -> tuple[int, ...]:
        """Median times of all stages at the reference clocks."""
        return tuple([stage.median_ns for stage in self.budgets[variant]])


def is_first(state: TaskState, job: Job) -> bool:
    """Whether the job's next stage prepares its frame."""
    return state.is_prepared and job.next_stage == 0


def is_in_network(state: TaskState, job: Job) -> bool:
    """Whether the job's next stage is a part of its network."""
    return job.next_stage < state.network_end and not is_first(state, job)


def has_all_cores(state: TaskState, job: Job) -> bool:
    """Whether the job's next stage, of its network, leaves its worker no core for others."""
    run = state.runs[job.variant][job.next_stage]
    return not job.work.narrow and (run is None or run.device == "cpu")


def network_ns(state: TaskState, job: Job, stage: int) -> int:
    """Usual time of the job's network from a stage on, which may be past it."""
    rest_ns = state.remaining_usual_ns(job.variant, min(stage, state.network_end))
    return rest_ns - state.remaining_usual_ns(job.variant, state.network_end)


def _spread(parts: Sequence[T], spans: Sequence[int], rest: T) -> list[T]:
    """Each part followed by `rest` up to the length of its span."""
    spread: list[T] = []
    for part, span in zip(parts, spans, strict=True):
        spread.append(part)
        spread += [rest] * (span - 1)
    return spread


def _scaled_sum_ns(times_ns: Sequence[int], scales: Sequence[float]) -> int:
    total: float = sum(map(mul, times_ns, scales))
    return ceil(total)


def _complete(runs: Sequence[int | Run]) -> list[Run]:
    return [run if isinstance(run, Run) else Run(run) for run in runs]
