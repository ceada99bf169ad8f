"""What the engine keeps of a task: its variants, their budgets, its jobs and its counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from operator import mul

from jetson_dnn_rt.scheduling.budgets import BudgetEstimator
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.lag import lag_ns, sub_deadlines_ns
from jetson_dnn_rt.tasks import Outcome, TaskParameters


@dataclass(slots=True, eq=False)
class TaskState:
    """What the engine keeps of a task; others read it, under the driver's lock.

    `spans` says for each variant and stage how many stages are run from there at once; 0 where
    the variant cannot be entered, because it covers the stage together with earlier ones.

    `time_scales` says for each variant and stage how much longer it takes at the present clocks
    than at the reference clocks; budgets are kept at the reference clocks, so that they hold
    through a change. None: the clocks do not change, or nobody knows what that does.

    `fastest_scales` are those of the fastest clocks that can be had: no frame is given up that
    could make it there. That they take milliseconds to come is left out: they may be on their way
    already, and the work goes on meanwhile. None: only the present ones.
    """

    parameters: TaskParameters
    budgets: dict[str, list[BudgetEstimator]] = field(default_factory=dict)
    spans: dict[str, tuple[int, ...]] = field(default_factory=dict)
    time_scales: Mapping[str, Sequence[float]] | None = None
    fastest_scales: Mapping[str, Sequence[float]] | None = None
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

    def usable(self, variant: str, stage: int) -> bool:
        """Whether a variant may run from this stage on."""
        return (
            variant in self.spans
            and self.spans[variant][stage] > 0
            and variant not in self.withdrawn
        )

    # -- variants ------------------------------------------------------------------------------

    def set_spans(self, variant: str, spans: Sequence[int] | None) -> None:
        """Say how many stages each run of a variant does; its budgets start empty.

        Raises
        ------
        ValueError
            When the runs do not do every stage once.
        """
        count = len(self.parameters.stages)
        runs = (1,) * count if spans is None else tuple(spans)
        if sum(runs) != count or min(runs) < 1:
            raise ValueError(
                f"runs of variant {variant!r} of task {self.parameters.name!r} do {runs} stages, "
                f"the task has {count}"
            )
        self.spans[variant] = tuple(part for span in runs for part in (span, *(0,) * (span - 1)))
        quantile = self.parameters.budget_quantile
        self.budgets[variant] = [BudgetEstimator(quantile) for _ in range(count)]

    def add_variant(self, variant: str, spans: Sequence[int] | None) -> None:
        """Take one more variant, or one that was made anew after its withdrawal."""
        self.set_spans(variant, spans)
        self.withdrawn.pop(variant, None)
        self.failures[variant] = 0
        if variant not in self.parameters.variants:
            variants = (*self.parameters.variants, variant)
            self.parameters = replace(self.parameters, variants=variants)

    def replace_variants(self, spans: Mapping[str, Sequence[int]]) -> None:
        """All variants were made anew: which there are, and how many stages each run does.

        One that is not there any more is withdrawn; one whose runs are others than before has to
        learn its budgets again.
        """
        for variant in self.parameters.variants:
            if variant not in spans:
                self.withdrawn[variant] = "it could not be made anew"
            elif tuple(span for span in self.spans[variant] if span) != tuple(spans[variant]):
                self.set_spans(variant, spans[variant])
        if self.parameters.variant in self.withdrawn:
            others = [v for v in self.parameters.variants if v not in self.withdrawn]
            if others:
                self.parameters = replace(self.parameters, variant=others[0])

    # -- times ---------------------------------------------------------------------------------

    def observe(self, variant: str, stage: int, execution_time_ns: int) -> None:
        """Learn from an execution time at the present clocks."""
        if (scale := self._scale(variant, stage)) != 1.0:
            execution_time_ns = ceil(execution_time_ns / scale)
        self.budgets[variant][stage].observe(execution_time_ns)

    def forget(self, variant: str, stage: int) -> None:
        """Forget what was observed of a stage: it no longer describes the machine."""
        self.budgets[variant][stage].reset(())

    def usual_ns(self, variant: str, stage: int) -> int:
        """Median time of a stage at the present clocks."""
        return ceil(self.budgets[variant][stage].median_ns * self._scale(variant, stage))

    def remaining_budget_ns(self, variant: str, stage: int = 0) -> int:
        """Budgets of the stages from `stage` to the last, at the best clocks that can be had."""
        return self._remaining_ns([b.budget_ns for b in self.budgets[variant]], variant, stage)

    def remaining_usual_ns(self, variant: str, stage: int = 0) -> int:
        """Median times of the stages from `stage` to the last, the same way."""
        return self._remaining_ns([b.median_ns for b in self.budgets[variant]], variant, stage)

    def _remaining_ns(self, times_ns: list[int], variant: str, stage: int) -> int:
        scales = self.fastest_scales or self.time_scales
        if not scales or variant not in scales:
            return sum(times_ns[stage:])
        scaled: float = sum(map(mul, times_ns[stage:], scales[variant][stage:]))
        return ceil(scaled)

    def _scale(self, variant: str, stage: int) -> float:
        scales = self.time_scales and self.time_scales.get(variant)
        return scales[stage] if scales else 1.0

    def lag_ns(self, job: Job) -> int:
        """LAG over the stages that ran, with the median observed times as the profile.

        See `jetson_dnn_rt.scheduling.lag`. Only execution counts here: what a frame waited for
        others is in the record as `waiting_ns`.
        """
        # Of the variant that the frame began with: one that is faster shows as being ahead.
        profile = [estimator.median_ns for estimator in self.budgets[job.variants[0]]]
        if not job.stages or not any(profile):
            return 0
        deadline_ns = job.absolute_deadline_ns - job.release_ns
        elapsed_ns = sum(stage.execution_time_ns for stage in job.stages)
        return lag_ns(sub_deadlines_ns(deadline_ns, profile), job.next_stage, elapsed_ns)
