# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Searches for fast schedules of a network's kernels with MetaSchedule, within a budget.

Paper 003 gives its search 800 to 1000 trials per kernel and hours. A robot's library is filled in
minutes: every kernel gets one batch first, the largest before the others, so that none is left
without a schedule when time runs out. After that, the kernel with the largest expected gain is
next: its share of the network's time, divided by its trials so far.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.tvm.database import TuningDatabase
from jetson_dnn_rt.tvm.guesses import find_vector_unit, make_candidates
from jetson_dnn_rt.tvm.measuring import Measurer, RpcMeasurer
from jetson_dnn_rt.tvm.records import check_scheduled
from jetson_dnn_rt.tvm.target import TVM_FIX, TvmTarget

if TYPE_CHECKING:
    import tvm

logger = logging.getLogger(__name__)

BATCH = 16
"""Candidates of a kernel that are compiled together; then the cost model learns."""

CHECKPOINT_S = 30.0

# Smaller than MetaSchedule's (512 and 4): with them choosing 16 candidates takes longer than
# timing them, and the best of 64 trials is not slower (detector's kernels, two cores).
_POPULATION, _UNMEASURED, _GENERATIONS = 64, 16, 2

# The space of schedules is MetaSchedule's own for LLVM.
_JOBS_PER_CORE = 16
_VECTOR = 64
_UNROLLED = [0, 16, 64, 512]
_MUTATIONS = {"MutateTileSize": 0.9, "MutateComputeLocation": 0.05, "MutateUnroll": 0.03}
_PARALLEL_MUTATION = 0.02


@dataclass(frozen=True)
class TuningState:
    """How far a network's kernels are tuned."""

    kernels: int  # distinct ones
    tuned: int  # with a schedule
    trials: int  # candidates measured
    seconds: float  # tuning time of the database so far

    @property
    def complete(self) -> bool:
        """Whether every kernel has a schedule."""
        return self.tuned == self.kernels


def count_tuned(module: tvm.IRModule, database: TuningDatabase) -> TuningState:
    """Count which of a lowered network's kernels a database has schedules for."""
    kernels = [task.dispatched[0] for task in _extract(module, database.target)]
    tuned = sum(database.find_best_s(kernel) < math.inf for kernel in kernels)
    trials = sum(database.count_trials(kernel) for kernel in kernels)
    return TuningState(len(kernels), tuned, trials, database.seconds)


def tune(
    module: tvm.IRModule,
    database: TuningDatabase,
    trials: int,
    *,
    minutes: float = 0.0,
    progress: Callable[[str, int, int], None] = lambda phase, done, total: None,
    rpc: str = "",
    stop: Callable[[], bool] = lambda: False,
    checkpoint: Callable[[TuningDatabase], None] = lambda database: None,
) -> TuningState:
    """Measure candidates until the budget is spent; continues from the database.

    Parameters
    ----------
    database : TuningDatabase
        Without `rpc` its target must be this machine.
    trials : int
        Candidates to measure per kernel, including those in the database; >= 1.
    minutes : float
        Time from now after which no further batch begins; 0 = no limit.
    progress : callable
        Called after every batch: phase, trials made, total trials.
    rpc : str
        ``HOST:PORT`` of a board that measures; empty: this machine does.
    stop : callable
        Asked before every batch.
    checkpoint : callable
        Called with the database about every 30 s and at the end, in every case.

    Raises
    ------
    BackendUnavailableError
        When a package of the extra is missing, or the board does not answer.
    """
    session = _Session(module, database, trials)
    measurer = RpcMeasurer(rpc, database.target) if rpc else Measurer(database.target)
    began_s = saved_s = time.monotonic()
    end_s = began_s + 60 * minutes if minutes else math.inf
    spent_s = database.seconds
    try:
        while not stop() and time.monotonic() < end_s:
            kernel = session.choose()
            if kernel is None:
                break
            progress(f"tuning {kernel.name}", session.trials, session.total)
            kernel.measure_batch(measurer, session.cost_model)
            now_s = time.monotonic()
            database.seconds = spent_s + now_s - began_s
            if now_s - saved_s > CHECKPOINT_S:
                checkpoint(database)
                saved_s = now_s
        progress("tuning", session.trials, session.total)
    finally:
        measurer.close()
        checkpoint(database)
    return count_tuned(module, database)


class _Kernel:
    """A kernel being tuned, with its search."""

    def __init__(self, task: Any, number: int, database: TuningDatabase, trials: int) -> None:
        self.name = str(task.task_name)
        self.weight = int(task.weight)
        self.module = task.dispatched[0]
        self._number, self._target, self._database = number, database.target, database
        self._limit = trials
        self._context: Any = None
        self.trials = database.count_trials(self.module)
        self.best_s = database.find_best_s(self.module)

    @property
    def is_done(self) -> bool:
        """Whether its budget is spent, or nothing is left to try."""
        return self.trials >= self._limit or self._database.is_exhausted(self.module)

    @property
    def expected_s(self) -> float:
        """Expected gain of one more trial: the kernel's seconds per frame by trials so far."""
        return self.weight * self.best_s / max(1, self.trials)

    def measure_batch(self, measurer: Measurer, cost_model: Any) -> None:
        """Let the search choose candidates, and report their times to it."""
        if self._context is None and self.trials == 0 and self._target.kind == "llvm":
            self._measure_guesses(measurer, cost_model)
            if self.trials:
                return
        if self._context is None:
            left = self._limit - self.trials
            self._context = self._make_context(left)
            options = (None, self._database.records, cost_model)
            self._context.pre_tuning(left, min(BATCH, left), *options)
        candidates = self._context.generate_measure_candidates()
        if not candidates:
            self._database.mark_exhausted(self.module)
            self._context.post_tuning()
            self._context = None
            return
        results = self._measure(measurer, candidates)
        self._context.notify_runner_results(candidates, results)
        cost_model.update(self._context, candidates, results)
        if self.trials >= self._limit:
            self._context.post_tuning()
            self._context = None

    def _measure_guesses(self, measurer: Measurer, cost_model: Any) -> None:
        """Begin with candidates that are known to be fast."""
        context = self._make_context(1)
        unit = find_vector_unit(self._target)
        candidates = make_candidates(context, self.module, unit, min(BATCH, self._limit))
        if candidates:
            results = self._measure(measurer, candidates)
            cost_model.update(context, candidates, results)

    def _measure(self, measurer: Measurer, candidates: Sequence[Any]) -> list[Any]:
        """Time candidates and store the times; returns MetaSchedule's results."""
        from tvm.s_tir import meta_schedule

        for candidate in candidates:  # some derive from the database, which came from a file
            check_scheduled(self.module, candidate.sch.mod)
        times = measurer.measure(candidates, self.best_s)
        if min(times) == math.inf:
            reason = measurer.failures[0] if measurer.failures else "unknown"
            logger.warning("%s: no candidate of %d runs: %s", self.name, len(times), reason)
        for candidate, seconds in zip(candidates, times, strict=True):
            self._database.add(self.module, candidate, seconds)
        self.best_s = min(self.best_s, *times)
        self.trials += len(candidates)
        result = meta_schedule.runner.RunnerResult
        return [result([s], None) if s < math.inf else result(None, "failed") for s in times]

    def _make_context(self, left: int) -> Any:
        from tvm.s_tir import meta_schedule

        strategy = meta_schedule.search_strategy.EvolutionarySearch(
            population_size=min(_POPULATION, 4 * left),
            init_min_unmeasured=min(_UNMEASURED, left),
            genetic_num_iters=_GENERATIONS,
        )
        return _make_context(self.module, self._target, strategy, self.name, 1 + self._number)


class _Session:
    """The kernels of one network, and the choice of the next one."""

    def __init__(self, module: tvm.IRModule, database: TuningDatabase, trials: int) -> None:
        try:
            from tvm.s_tir import meta_schedule

            self.cost_model = meta_schedule.cost_model.XGBModel(num_tuning_cores=1)
        except ImportError as error:
            raise BackendUnavailableError(f"TVM cannot tune: {error}; {TVM_FIX}") from error
        tasks = sorted(_extract(module, database.target), key=_size_of, reverse=True)
        self.kernels = [_Kernel(task, i, database, trials) for i, task in enumerate(tasks)]
        self.total = trials * len(self.kernels)

    @property
    def trials(self) -> int:
        """Trials made; a finished kernel counts with its full budget."""
        limit = self.total // max(1, len(self.kernels))
        return sum(limit if kernel.is_done else kernel.trials for kernel in self.kernels)

    def choose(self) -> _Kernel | None:
        """The kernel whose turn it is; None when all are done."""
        left = [kernel for kernel in self.kernels if not kernel.is_done]
        if not left:
            return None
        fresh = next((kernel for kernel in left if kernel.trials == 0), None)
        return fresh or max(left, key=lambda kernel: kernel.expected_s)


def _extract(module: tvm.IRModule, target: TvmTarget) -> list[Any]:
    from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

    return list(extract_tasks(module, target.to_tvm(), {}, module_equality="ignore-tensor"))


def _size_of(task: Any) -> float:
    """Operations of a kernel, times its occurrences in the network."""
    from tvm.s_tir.analysis import estimate_tir_flops

    return float(task.weight) * float(estimate_tir_flops(task.dispatched[0]))


def _make_context(
    module: tvm.IRModule, target: TvmTarget, strategy: Any, name: str, seed: int
) -> Any:
    """Make a ``TuneContext``.

    For CPUs without its constructor: that imports the tensor instructions of all devices, half a
    minute of parsing beside torch, none of which the space of `_make_space` uses.
    """
    import tvm
    from tvm.s_tir import meta_schedule

    space, cores = _make_space(target), len(os.sched_getaffinity(0))
    quiet = logging.getLogger(f"{__name__}.search")
    quiet.setLevel(logging.ERROR)
    if target.kind == "cuda":
        return meta_schedule.TuneContext(
            module, target=target.to_tvm(), space_generator=space, search_strategy=strategy,
            task_name=name, rand_state=seed, num_threads=cores, logger=quiet,
        )  # fmt: skip
    names = "s_tir.meta_schedule.TuneContext", "s_tir.meta_schedule.TuneContextInitialize"
    make, initialize = map(tvm.get_global_func, names)
    said = meta_schedule.logging.get_logging_func(quiet)
    context = make(module, target.to_tvm(), space, strategy, name, cores, seed, said)
    initialize(context)
    return context


def _make_space(target: TvmTarget) -> Any:
    """Space of schedules of a kernel; with one thread there are no parallel loops."""
    from tvm.s_tir import meta_schedule

    if target.kind == "cuda":
        return meta_schedule.space_generator.PostOrderApply()
    rules, mutators = meta_schedule.schedule_rule, meta_schedule.mutator
    steps = meta_schedule.postproc
    parallel = target.threads > 1
    mutations = {getattr(mutators, name)(): share for name, share in _MUTATIONS.items()}
    if parallel:
        mutations[mutators.MutateParallel(_JOBS_PER_CORE)] = _PARALLEL_MUTATION
    return meta_schedule.space_generator.PostOrderApply(
        sch_rules=[
            rules.ApplyCustomRule(),
            rules.InlineConstantScalars(),
            rules.AutoInline(
                into_producer=False, into_consumer=True, inline_const_tensor=True,
                disallow_if_then_else=True, require_injective=True, require_ordered=True,
                disallow_op=["tirx.exp"],
            ),
            rules.AddRFactor(max_jobs_per_core=_JOBS_PER_CORE, max_innermost_factor=_VECTOR),
            rules.MultiLevelTiling(
                "SSRSRS", max_innermost_factor=_VECTOR,
                reuse_write=rules.ReuseType("may", [1, 2], "global"),
            ),
            rules.ParallelizeVectorizeUnroll(
                max_jobs_per_core=_JOBS_PER_CORE if parallel else -1, unroll_explicit=True,
                max_vectorize_extent=_VECTOR, unroll_max_steps=_UNROLLED,
            ),
            rules.RandomComputeLocation(),
        ],
        postprocs=[
            steps.DisallowDynamicLoop(),
            steps.RewriteParallelVectorizeUnroll(),
            steps.RewriteReductionBlock(),
            steps.RewriteLayout(),
        ],
        mutator_probs=mutations,
    )  # fmt: skip
