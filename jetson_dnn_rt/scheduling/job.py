# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A job in the engine (one frame of one task), its ending, and its LAG.

Sub-deadlines and LAG are those of NeuOS (Bateni & Liu, USENIX ATC 2020, section 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from jetson_dnn_rt.tasks import SHARED_STAGES, Admission, JobRecord, Outcome, StageRecord, Work


@dataclass(slots=True, eq=False)
class Job:
    """Mutable state of one frame in one task; owned by the engine, read by the executor.

    A job is *ready* when it only needs a free worker, and *in flight* from its first stage to its
    end. Before the start, `admission` is PROBE for a future probe, else NONE.
    """

    task: str
    sequence: int
    capture_ns: int
    release_ns: int
    absolute_deadline_ns: int
    work: Work
    variant: str
    number: int = 0  # among the task's frames, from 1, in the order of release
    next_stage: int = 0  # index of the stage that runs now or next
    start_ns: int | None = None
    running: bool = False
    ended: bool = False
    admission: Admission = Admission.NONE
    cancel_reason: str = ""
    ready_ns: int = 0
    waiting_ns: int = 0
    waits_for: int = 0  # kind of place, see `places`
    saturated_at_ready_ns: int = 0
    delay_ns: int = 0
    """Time that its network will wait for another one, if it is prepared now."""
    held_ns: int | None = None  # time since which it waits for its device, not for a worker
    queued: bool = False
    place: int = 0  # number of its last arrival in the ready queue
    usual_end_ns: int = 0  # expected end of the running stage, by its usual time
    due_ns: int = 0  # the same by its budget
    hopeless_ns: int = 0
    """Time after which the job misses its deadline even if the running stage ended at once; 0
    where that stage cannot be cancelled, or is not to be."""
    yields: bool = False  # whether its running stage is cancelled for a more urgent frame
    cancelled_ns: int = 0  # time of the stages that were cancelled
    device: str = ""  # device of the running stage, if it has a limit
    mates: tuple[Job, ...] = ()  # the other jobs of the batch that it leads now
    stages: list[StageRecord] = field(default_factory=list)
    path: list[tuple[str, int]] = field(default_factory=list)
    """Variant and index of each executed stage."""

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that ran, in the order of their first use; before that the chosen one."""
        return tuple(dict.fromkeys(variant for variant, _ in self.path)) or (self.variant,)

    @property
    def network_variants(self) -> tuple[str, ...]:
        """Those that its network ran in; all `variants` as long as it did not begin."""
        ran = (stage.variant for stage in self.stages if stage.name not in SHARED_STAGES)
        return tuple(dict.fromkeys(ran)) or self.variants


@dataclass(slots=True, eq=False)
class Ending:
    """Data of an ended job, from which its record is made.

    Jobs end under the driver's lock, many at once under overload, and a record with its LAG takes
    as long as all other decisions of a boundary together. So the reader makes it later, from state
    that no longer changes.
    """

    job: Job
    outcome: Outcome
    reason: str
    completion_ns: int
    profile_ns: tuple[int, ...]
    """Median stage times at the end, of the job's first variant; empty if it never started."""

    @property
    def work(self) -> Work:
        """The data that the job's stages passed on."""
        return self.job.work

    def make_record(self) -> JobRecord:
        """The job's record."""
        job = self.job
        return JobRecord(
            task=job.task,
            sequence=job.sequence,
            variant="+".join(job.network_variants),
            outcome=self.outcome,
            reason=self.reason,
            capture_ns=job.capture_ns,
            release_ns=job.release_ns,
            start_ns=job.start_ns,
            completion_ns=self.completion_ns,
            absolute_deadline_ns=job.absolute_deadline_ns,
            waiting_ns=job.waiting_ns,
            lag_ns=self._lag_ns(),
            # A superseded probe did not start.
            admission=Admission.NONE if job.start_ns is None else job.admission,
            stages=tuple(job.stages),
            copied_bytes=job.work.copied_bytes,
            cancelled_ns=job.cancelled_ns,
        )

    def _lag_ns(self) -> int:
        """LAG over the executed stages, with the median observed times as the profile.

        Only execution counts here; waiting for other jobs is `JobRecord.waiting_ns`.
        """
        job = self.job
        if not any(self.profile_ns):
            return 0
        deadline_ns = job.absolute_deadline_ns - job.release_ns
        elapsed_ns = sum(stage.execution_time_ns for stage in job.stages)
        return lag_ns(sub_deadlines_ns(deadline_ns, self.profile_ns), job.next_stage, elapsed_ns)


def sub_deadlines_ns(deadline_ns: int, profile_ns: Sequence[int]) -> tuple[int, ...]:
    """Divide a relative deadline among stages by their profiled times: ``d_l = D e_l / sum(e)``.

    Every prefix is rounded down; together they are exactly D. Not all times may be 0.
    """
    total_ns = sum(profile_ns)
    if total_ns <= 0 or min(profile_ns) < 0:
        raise ValueError(f"profile_ns must be >= 0 and not all 0: {tuple(profile_ns)}")
    bounds = [deadline_ns * passed // total_ns for passed in accumulate(profile_ns, initial=0)]
    return tuple(after - before for before, after in pairwise(bounds))


def lag_ns(sub_deadlines: Sequence[int], finished: int, elapsed_ns: int) -> int:
    """``LAG = sum(d_l - m_l)`` over the finished stages; negative = behind, positive = ahead.

    `elapsed_ns` is the sum of their times m_l. Measured from boundary to boundary, as in the
    paper, it is the time since the release, and waiting counts.
    """
    return sum(sub_deadlines[:finished]) - elapsed_ns
