# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""When networks run narrow: with fewer threads, for several side by side, on the helpers.

Each takes longer, together they get more done. A network that uses one core whatever there is
always runs narrow; another one if it makes its deadline so by its budget, and one of these holds:

* more frames come than wide networks one after the other can keep up with;
* the frame that would run next is there already, would probably be late behind this job's wide
  network, and makes its deadline narrow: two tasks on one camera have such pairs.

Where nothing else is expected before their deadlines, two run narrow by their chances, too: if
more of them are met so on average. They are no longer admitted ones then.

Budgets are those of wide networks; how many times as long narrow ones take is learned beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.task_state import TaskState, is_first, network_ns
from jetson_dnn_rt.tasks import Admission

if TYPE_CHECKING:
    from jetson_dnn_rt.scheduling.places import Places
    from jetson_dnn_rt.scheduling.queue import Rank

EVEN, LIKELY, SURE = 0.5, 0.9, 0.98
"""Chances from which on a frame is tried in spare time, in any, and without doing more for it."""


class NarrowNetworks:
    """Decides which networks run narrow."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self.allowed = True
        """Whether two networks may run on the CPU at once."""

    def begins(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether the network that begins now runs narrow: another one does, or the next will."""
        if not self._places.helping or state.narrow is None or not self.allowed:
            return False
        if state.has_one_core:
            run = state.runs[job.variant][job.next_stage]
            return run is None or run.device == "cpu"
        by_budget = self.makes_it(state, job, now_ns)
        then: TaskState | None = None  # the task of the job whose network would begin next
        after: Job | None = None
        first: Rank | None = None
        for its in self._places.tasks.values():
            other = its.in_flight or its.waiting
            if other is None or other is job or other.next_stage >= its.network_end:
                continue
            if other in self._places.networks:
                if other.work.narrow:
                    return by_budget or self._joins_lucky(state, job, now_ns)
                continue
            rank = self._places.rank(its, other)
            if first is None or rank < first:
                then, after, first = its, other, rank
        if then is None or after is None:
            return False
        follows = by_budget and self._can_follow(then, after, job, now_ns)
        if self._places.wants_more:
            return follows
        behind = self._chance_behind(then, after, state, job, now_ns)
        if behind >= SURE:
            return False  # one after the other is fresher
        return follows or self._pays_off(state, job, then, after, behind, now_ns)

    def joins(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether the job's network may begin narrow beside narrow ones, once it is prepared."""
        if not (self._places.wants_more or self._is_running):
            return False
        by_budget_ns = usually_ns = now_ns
        if is_first(state, job) and not job.running:
            by_budget_ns += state.budget_ns(job.variant, 0)
            usually_ns += state.usual_ns(job.variant, 0)
        if self.makes_it(state, job, by_budget_ns):
            return True
        return self._joins_lucky(state, job, usually_ns)

    def makes_it(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether the job makes its deadline by its budget if its network begins narrow now."""
        if state.narrow is None or not self.allowed:
            return False
        stage, end = max(job.next_stage, int(state.is_prepared)), state.network_end
        rest_ns, _ = state.narrow_ns(job.variant, stage, end)
        rest_ns += state.remaining_budget_ns(job.variant, end)
        return now_ns + rest_ns <= job.absolute_deadline_ns

    def _joins_lucky(self, state: TaskState, job: Job, now_ns: int) -> bool:
        """Whether the job has a better chance narrow now than wide after the narrow one there is.

        Where other frames are expected they could use the core, too: then it must be likely.
        """
        if state.narrow is None or job.admission is Admission.PROBE:
            return False
        others = list(self._places.networks)
        if len(others) != 1 or not others[0].work.narrow:
            return False
        other = others[0]
        slack_ns = self._slack_ns(state, job, now_ns)
        narrow = state.chance(job.variant, job.next_stage, slack_ns, narrow=True)
        wide_ns = slack_ns - max(0, other.usual_end_ns - now_ns)
        wide = state.chance(job.variant, job.next_stage, wide_ns, narrow=False)
        if not job.work.narrow and (narrow <= wide or wide >= SURE):
            return False  # one that has begun narrow goes on so
        if narrow >= LIKELY:
            return True
        until_ns = max(
            state.network_free_ns(job, now_ns, narrow=True),
            self._places.tasks[other.task].network_free_ns(other, now_ns, narrow=True),
        )
        return self._places.is_idle_until(until_ns, job, other)

    def _chance_behind(
        self, then: TaskState, after: Job, state: TaskState, job: Job, now_ns: int
    ) -> float:
        """Chance of the next job if both networks run wide: it is prepared while this decodes."""
        end_ns = now_ns + network_ns(state, job, job.next_stage)
        decode_ns = state.remaining_usual_ns(job.variant, state.network_end)
        prepare_ns = then.usual_ns(after.variant, 0) if is_first(then, after) else 0
        slack_ns = self._slack_ns(then, after, end_ns + max(decode_ns, prepare_ns))
        return then.chance(after.variant, after.next_stage, slack_ns, narrow=False)

    def _pays_off(
        self, state: TaskState, job: Job, then: TaskState, after: Job, behind: float, now_ns: int
    ) -> bool:
        """Whether more of two frames, the only ones for now, are expected to be met narrow.

        One after the other the second depends on luck as well: its chance `behind` the first.
        """
        if then.narrow is None or Admission.PROBE in (job.admission, after.admission):
            return False
        if after.start_ns is not None or list(self._places.claims) != [job]:
            return False
        if self._places.by_priority and state.parameters.priority != then.parameters.priority:
            return False  # the higher one would pay for the lower one
        until_ns = max(
            state.network_free_ns(job, now_ns, narrow=True),
            then.network_free_ns(after, now_ns, narrow=True),
        )
        if not self._places.is_idle_until(until_ns, job, after):
            return False
        prepare_ns = then.usual_ns(after.variant, 0) if then.is_prepared else 0
        joined_ns = self._slack_ns(then, after, now_ns + prepare_ns)
        second = then.chance(after.variant, after.next_stage, joined_ns, narrow=True)
        if second < EVEN:
            return False
        slack_ns = self._slack_ns(state, job, now_ns)
        variant, stage = job.variant, job.next_stage
        narrow = state.chance(variant, stage, slack_ns, narrow=True) + second
        return narrow > state.chance(variant, stage, slack_ns, narrow=False) + behind

    def _can_follow(self, state: TaskState, job: Job, narrow: Job, now_ns: int) -> bool:
        """Whether a job could join a network that begins narrow now."""
        others = [other for other in self._places.claims if other not in (job, narrow)]
        if len(others) + 1 >= self._places.threads:
            return False
        for other in others:
            if other in self._places.networks:
                if not other.work.narrow:
                    return False
            elif not self.makes_it(self._places.tasks[other.task], other, now_ns):
                return False
        return self.makes_it(state, job, now_ns + state.usual_ns(job.variant, 0))

    @property
    def _is_running(self) -> bool:
        """Whether a network runs narrow."""
        return self._places.helping and any(job.work.narrow for job in self._places.networks)

    def _slack_ns(self, state: TaskState, job: Job, begin_ns: int) -> int:
        """Time for the job's network, from its begin until only its decoding is left to do."""
        decode_ns = state.remaining_usual_ns(job.variant, state.network_end)
        return job.absolute_deadline_ns - begin_ns - decode_ns
