"""The cohort of a composed process: decided at stage boundaries, by a direct call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.tables.tables import TaskTable
from jetson_dnn_rt.nodes.coordinator.cohort_tables import ALONE, table_of_task
from jetson_dnn_rt.scheduling.selection import StaticSelector
from jetson_dnn_rt.tasks import Outcome

if TYPE_CHECKING:
    from jetson_dnn_rt.nodes.tasks.host import Host
    from jetson_dnn_rt.nodes.tasks.task_node import TaskNode
    from jetson_dnn_rt.scheduling.job import Job
    from jetson_dnn_rt.scheduling.task_state import TaskState


class ComposedCohort:
    """Puts a coordinator into the executor that runs the tasks, and takes it out again.

    Parameters
    ----------
    host : Host
        Owns the executor.
    tasks : callable
        Returns the task nodes by name.
    """

    def __init__(self, host: Host, tasks: Callable[[], Mapping[str, TaskNode]]) -> None:
        self._host, self._tasks = host, tasks

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, whether they are active or not."""
        return tuple(self._tasks())

    @property
    def workers(self) -> int:
        """Stages that run side by side."""
        return self._host.session.split.workers

    @property
    def interference(self) -> tuple[float, ...]:
        """The slow-down side by side, as far as it was measured when the tasks were loaded."""
        return tuple(self._host.session.cohort_slowdown.values()) or ALONE

    @property
    def met(self) -> int:
        """Frames met since the tasks were activated."""
        snapshots = [node.snapshot for node in self._tasks().values()]
        return sum(snapshot.outcomes[Outcome.MET] for snapshot in snapshots if snapshot)

    @property
    def failure(self) -> str:
        """Why the executor replaced the coordinator; empty as long as it asks it."""
        return self._host.executor.selector_failure if self._host.session.running else ""

    def signature(self) -> object:
        """Which tasks are active, with which variants and deadlines."""
        return [
            (name, snapshot.parameters.variants, snapshot.parameters.deadline_ns)
            for name, node in self._tasks().items()
            if (snapshot := node.snapshot) is not None
        ]

    def make_tables(self, given: Mapping[str, TaskTable]) -> dict[str, TaskTable | str]:
        """For each active task its table, or the reason why there is none.

        Parameters
        ----------
        given : mapping of str to TaskTable
            What files say; it goes before what the warm-up says.
        """
        return {
            name: table_of_task(node, given.get(name))
            for name, node in self._tasks().items()
            if node.snapshot is not None
        }

    def start(self, coordinator: Coordinator) -> None:
        """Let it decide from the next boundary on."""
        self._host.executor.set_selector(coordinator)

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """No boundary passes meanwhile."""
        with self._host.executor.exclusively():
            yield

    def reconsider(self) -> None:
        """The policy is another: nothing to do, it is asked at the next boundary."""

    def watch(self) -> None:
        """Nothing: the executor tells the coordinator what happens."""

    def states(self) -> dict[str, str]:
        """What stands in the way of policies that switch inside a frame."""
        found = {}
        for name, node in self._tasks().items():
            coarse = coarse_variants(node)
            if coarse and node.snapshot is not None:
                found[name] = (
                    f"{', '.join(coarse)}: several stages with one run, no boundary between them; "
                    "set finest_stages for policies that switch inside a frame"
                )
        return found

    def close(self) -> None:
        """Nothing was taken."""

    def stop(self, coordinator: Coordinator) -> None:
        """Take it out; each task goes on in the variant that last kept a deadline."""
        if not self._host.session.running:
            return
        executor = self._host.executor
        held = self._hold(coordinator) if coordinator.policy.adjusts_variants else {}
        with executor.exclusively():
            coordinator.close()
        executor.set_selector(Held(held))

    def _hold(self, coordinator: Coordinator) -> dict[str, Hold]:
        held = {}
        for member in coordinator.cohort.members:
            name = member.table.task
            node = self._tasks().get(name)
            snapshot = None if node is None else node.snapshot
            if node is None or snapshot is None or not member.frames_done:
                continue
            ran = () if member.misses_in_a_row else node.timing.last_met.split("+")
            variant = fastest(member.table, member.usable, ran)
            held[name] = Hold(snapshot.parameters.variant, variant)
        return held


class Hold(NamedTuple):
    """What a task goes on with, as long as it is set to what it was set to."""

    configured: str
    variant: str


class Held(StaticSelector):
    """Leaves tasks in the variants that a coordinator left them in.

    Until their own setting is changed: then that holds.

    Parameters
    ----------
    held : mapping of str to Hold
        By task; others run what they are set to.
    """

    def __init__(self, held: Mapping[str, Hold]) -> None:
        self._held = dict(held)

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        """What is held at the job's start, afterwards what the job has."""
        hold = self._held.get(job.task)
        if job.start_ns is None and hold and hold.configured == state.parameters.variant:
            return hold.variant
        return super().choose(state, job, now_ns)


def coarse_variants(node: TaskNode) -> list[str]:
    """Variants of a task that cover several of its stages with one run."""
    loaded = node.loaded
    if loaded is None:
        return []
    return [name for name, runs in loaded.stages.items() if any(run.span > 1 for run in runs)]


def decides(coordinator: Coordinator) -> bool:
    """Whether it is the coordinator who chooses variants now."""
    return coordinator.policy.adjusts_variants and not coordinator.failure


def fastest(table: TaskTable, usable: Sequence[bool], among: Sequence[str] = ()) -> str:
    """The fastest usable variant of some, or of all where none of them is."""
    totals = table.median_ns.sum(axis=1).tolist()
    candidates = [v for v, there in enumerate(usable) if there] or list(range(len(totals)))
    wanted = [v for v in candidates if table.variants[v] in among] or candidates
    return table.variants[min(wanted, key=totals.__getitem__)]
