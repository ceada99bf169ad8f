"""A job inside the engine: one frame on its way through one task."""

from __future__ import annotations

from dataclasses import dataclass, field

from jetson_dnn_rt.tasks import Admission, StageRecord, Work


@dataclass(slots=True, eq=False)
class Job:
    """Mutable state of one frame in one task; owned by the engine, read by the executor.

    `next_stage` is the index of the stage that runs now or next. A job is *ready* when nothing
    but a free worker is missing, and *in flight* from its first stage to its end. Before the
    start, `admission` is PROBE for a job that is to be one, else NONE.
    """

    task: str
    sequence: int
    capture_ns: int
    release_ns: int
    absolute_deadline_ns: int
    work: Work
    variant: str
    next_stage: int = 0
    start_ns: int | None = None
    running: bool = False
    ended: bool = False
    admission: Admission = Admission.NONE
    cancel_reason: str = ""
    ready_ns: int = 0
    waiting_ns: int = 0
    saturated_at_ready_ns: int = 0
    held_ns: int | None = None
    """Since when it waits for its device, not for a worker."""
    queued: bool = False
    place: int = 0
    """Number of its last arrival in the ready queue."""
    usual_end_ns: int = 0
    """When the stage that runs is done, as usual."""
    due_ns: int = 0
    """When the stage that runs is done, if it takes its budget."""
    device: str = ""
    """Where the stage that runs does so, where that is counted."""
    mates: tuple[Job, ...] = ()
    """The others whose stage runs now as one batch with this job's."""
    stages: list[StageRecord] = field(default_factory=list)
    path: list[tuple[str, int]] = field(default_factory=list)
    """For each executed stage its variant and index."""

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that ran, in the order of their first use; before that the chosen one."""
        return tuple(dict.fromkeys(variant for variant, _ in self.path)) or (self.variant,)
