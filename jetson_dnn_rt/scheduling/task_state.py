"""What the engine keeps of a task: its variants, their budgets, its jobs and its counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from operator import mul

from jetson_dnn_rt.scheduling.budgets import BudgetEstimator
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.runs import Run
from jetson_dnn_rt.tasks import Outcome, TaskParameters

WITHDRAW_AFTER = 2
"""Jobs in a row that a variant may fail before it is withdrawn."""

MAX_REASONS, OTHER_REASON = 32, "other"
"""Reasons that are counted apart; what comes after so many is counted together."""

TEXT_LENGTH = 500
"""Characters that are kept of an error's text."""


@dataclass(slots=True, eq=False)
class TaskState:
    """What the engine keeps of a task; others read it, under the driver's lock.

    `spans` says for each variant and stage how many stages are run from there at once; 0 where
    the variant cannot be entered, because it covers the stage together with earlier ones.

    `runs` says the same with more about each run; None where `spans` is 0.

    `time_scales` says for each variant and stage how much longer it takes at the present clocks
    than at the reference clocks; budgets are kept at the reference clocks, so that they hold
    through a change. None: the clocks do not change, or nobody knows what that does.

    `fastest_scales` are those of the fastest clocks that can be had: no frame is given up that
    could make it there. That they take milliseconds to come is left out: they may be on their way
    already, and the work goes on meanwhile. None: only the present ones.

    `reasons` counts how jobs ended, by kinds that are bounded in number; `last_failure` is the
    text of the last failure.
    """

    parameters: TaskParameters
    budgets: dict[str, list[BudgetEstimator]] = field(default_factory=dict)
    spans: dict[str, tuple[int, ...]] = field(default_factory=dict)
    runs: dict[str, tuple[Run | None, ...]] = field(default_factory=dict)
    time_scales: Mapping[str, Sequence[float]] | None = None
    fastest_scales: Mapping[str, Sequence[float]] | None = None
    _rest: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)
    """Budgets, and usual times, from each stage to the last: sums that would be made anew several
    times at every boundary."""
    waiting: Job | None = None
    in_flight: Job | None = None
    misses_in_a_row: int = 0
    suspended: str = ""
    kept_out: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    withdrawn: dict[str, str] = field(default_factory=dict)
    released: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    last_failure: str = ""

    def usable(self, variant: str, stage: int) -> bool:
        """Whether a variant may run from this stage on."""
        return (
            variant in self.spans
            and self.spans[variant][stage] > 0
            and variant not in self.withdrawn
        )

    # -- variants ------------------------------------------------------------------------------

    def set_spans(self, variant: str, spans: Sequence[int | Run] | None) -> None:
        """Say how many stages each run of a variant does; its budgets start empty.

        Raises
        ------
        ValueError
            When the runs do not do every stage once.
        """
        count = len(self.parameters.stages)
        runs = _complete((1,) * count if spans is None else spans)
        done = tuple(run.span for run in runs)
        if sum(done) != count or min(done) < 1:
            raise ValueError(
                f"runs of variant {variant!r} of task {self.parameters.name!r} do {done} stages, "
                f"the task has {count}"
            )
        self.spans[variant] = tuple(part for span in done for part in (span, *(0,) * (span - 1)))
        self._lay_out(variant, runs)
        quantile = self.parameters.budget_quantile
        self.budgets[variant] = [BudgetEstimator(quantile) for _ in range(count)]
        self._rest[variant] = ([0] * (count + 1), [0] * (count + 1))

    def _lay_out(self, variant: str, runs: Sequence[Run]) -> None:
        self.runs[variant] = tuple(
            part for run in runs for part in (run, *(None,) * (run.span - 1))
        )

    def add_variant(self, variant: str, spans: Sequence[int | Run] | None) -> None:
        """Take one more variant, or one that was made anew after its withdrawal."""
        self.set_spans(variant, spans)
        self.withdrawn.pop(variant, None)
        self.failures.pop(variant, None)
        if variant not in self.parameters.variants:
            variants = (*self.parameters.variants, variant)
            self.parameters = replace(self.parameters, variants=variants)

    def replace_variants(self, spans: Mapping[str, Sequence[int | Run]]) -> None:
        """All variants were made anew: which there are, and how many stages each run does.

        One that is not there any more is withdrawn; one whose runs are others than before has to
        learn its budgets again.
        """
        for variant in self.parameters.variants:
            if variant not in spans:
                self.withdrawn[variant] = "it could not be made anew"
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
        """A job failed in a variant, which is withdrawn if it was not the first in a row.

        Returns
        -------
        str
            The variant if it is withdrawn by this, or an empty string. The last one of a task is
            never withdrawn: it is all the task has.
        """
        self.failures[variant] += 1
        if self.failures[variant] < WITHDRAW_AFTER or variant in self.withdrawn:
            return ""
        others = [v for v in self.parameters.variants if v not in (variant, *self.withdrawn)]
        if not others:
            return ""
        self.withdrawn[variant] = reason
        if self.parameters.variant == variant:
            self.parameters = replace(self.parameters, variant=others[0])
        return variant

    # -- times ---------------------------------------------------------------------------------

    def observe(self, variant: str, stage: int, execution_time_ns: int) -> None:
        """Learn from an execution time at the present clocks."""
        if self.time_scales:
            execution_time_ns = self.unscaled_ns(execution_time_ns, variant, stage)
        estimator = self.budgets[variant][stage]
        budget_ns, median_ns = estimator.budget_ns, estimator.median_ns
        estimator.observe(execution_time_ns)
        self._account(variant, stage, budget_ns, median_ns)

    def seed(self, variant: str, stage: int, execution_times_ns: Iterable[int]) -> None:
        """Start a stage's budget anew, from these times; of none it knows nothing again."""
        estimator = self.budgets[variant][stage]
        budget_ns, median_ns = estimator.budget_ns, estimator.median_ns
        estimator.reset(execution_times_ns)
        self._account(variant, stage, budget_ns, median_ns)

    def _account(self, variant: str, stage: int, budget_ns: int, median_ns: int) -> None:
        """A stage's figures changed from these: so do those of all that goes before it."""
        estimator = self.budgets[variant][stage]
        budgets_ns, medians_ns = self._rest[variant]
        if change_ns := estimator.budget_ns - budget_ns:
            for index in range(stage + 1):
                budgets_ns[index] += change_ns
        if change_ns := estimator.median_ns - median_ns:
            for index in range(stage + 1):
                medians_ns[index] += change_ns

    def start_anew(self, job: Job) -> None:
        """A probe ran: what was known of its stages before no longer describes the machine."""
        for (variant, index), stage in zip(job.path, job.stages, strict=True):
            self.seed(variant, index, ())
            self.observe(variant, index, stage.execution_time_ns)

    def usual_ns(self, variant: str, stage: int) -> int:
        """Median time of a stage at the present clocks."""
        return self.scaled_ns(self.budgets[variant][stage].median_ns, variant, stage)

    def budget_ns(self, variant: str, stage: int) -> int:
        """Budget of a stage at the present clocks."""
        return self.scaled_ns(self.budgets[variant][stage].budget_ns, variant, stage)

    def scaled_ns(self, time_ns: int, variant: str, stage: int) -> int:
        """What a time at the reference clocks is at the present ones."""
        scale = self._scale(variant, stage)
        return time_ns if scale == 1.0 else ceil(time_ns * scale)

    def unscaled_ns(self, time_ns: int, variant: str, stage: int) -> int:
        """What a time at the present clocks would have been at the reference clocks."""
        scale = self._scale(variant, stage)
        return time_ns if scale == 1.0 else ceil(time_ns / scale)

    def remaining_budget_ns(self, variant: str, stage: int = 0) -> int:
        """Budgets of the stages from `stage` to the last, at the best clocks that can be had."""
        scales = self.fastest_scales or self.time_scales
        if not scales or variant not in scales:
            return self._rest[variant][0][stage]
        budgets = self.budgets[variant][stage:]
        return _scaled_sum_ns([b.budget_ns for b in budgets], scales[variant][stage:])

    def remaining_usual_ns(self, variant: str, stage: int = 0) -> int:
        """Median times of the stages from `stage` to the last, the same way."""
        scales = self.fastest_scales or self.time_scales
        if not scales or variant not in scales:
            return self._rest[variant][1][stage]
        budgets = self.budgets[variant][stage:]
        return _scaled_sum_ns([b.median_ns for b in budgets], scales[variant][stage:])

    def _scale(self, variant: str, stage: int) -> float:
        scales = self.time_scales and self.time_scales.get(variant)
        return scales[stage] if scales else 1.0

    def medians_ns(self, variant: str) -> tuple[int, ...]:
        """Median times of all stages at the reference clocks."""
        return tuple([stage.median_ns for stage in self.budgets[variant]])


def _scaled_sum_ns(times_ns: Sequence[int], scales: Sequence[float]) -> int:
    total: float = sum(map(mul, times_ns, scales))
    return ceil(total)


def _complete(runs: Sequence[int | Run]) -> list[Run]:
    return [run if isinstance(run, Run) else Run(run) for run in runs]
