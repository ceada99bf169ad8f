"""How a job ended, kept until somebody wants the record of it."""

from __future__ import annotations

from dataclasses import dataclass

from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.lag import lag_ns, sub_deadlines_ns
from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, Work


@dataclass(slots=True, eq=False)
class Ending:
    """All that is needed to write the record of a job that ended.

    Jobs end under the driver's lock, often many at once where there is too much work; a record
    and its LAG take as long as all other decisions of a boundary together. So they are made
    later, by who reads them, from what is not changed any more.

    Attributes
    ----------
    job : Job
        The job; nobody writes to it after its end.
    outcome, reason, completion_ns
        As in `JobRecord`.
    profile_ns : tuple of int
        Median stage times at that moment, of the variant that the job began with; empty for a job
        that did not begin.
    """

    job: Job
    outcome: Outcome
    reason: str
    completion_ns: int
    profile_ns: tuple[int, ...]

    @property
    def work(self) -> Work:
        """What the job's stages handed to each other."""
        return self.job.work

    def make_record(self) -> JobRecord:
        """The job's record."""
        job = self.job
        return JobRecord(
            task=job.task,
            sequence=job.sequence,
            variant="+".join(job.variants),
            outcome=self.outcome,
            reason=self.reason,
            capture_ns=job.capture_ns,
            release_ns=job.release_ns,
            start_ns=job.start_ns,
            completion_ns=self.completion_ns,
            absolute_deadline_ns=job.absolute_deadline_ns,
            waiting_ns=job.waiting_ns,
            lag_ns=self._lag_ns(),
            # A probe that was superseded did not start.
            admission=Admission.NONE if job.start_ns is None else job.admission,
            stages=tuple(job.stages),
            copied_bytes=job.work.copied_bytes,
        )

    def _lag_ns(self) -> int:
        """LAG over the stages that ran, with the median observed times as the profile.

        See `jetson_dnn_rt.scheduling.lag`. Only execution counts here: what a frame waited for
        others is in the record as `waiting_ns`.
        """
        job = self.job
        if not any(self.profile_ns):
            return 0
        deadline_ns = job.absolute_deadline_ns - job.release_ns
        elapsed_ns = sum(stage.execution_time_ns for stage in job.stages)
        return lag_ns(sub_deadlines_ns(deadline_ns, self.profile_ns), job.next_stage, elapsed_ns)
