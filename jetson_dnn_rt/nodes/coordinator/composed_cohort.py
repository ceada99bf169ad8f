# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The cohort of a composed process: the coordinator is called directly at stage boundaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from jetson_dnn_rt.coordinator.basis import ALONE
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.tables.tables import TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.scheduling.selection import StaticSelector
from jetson_dnn_rt.tasks import Outcome

if TYPE_CHECKING:
    from jetson_dnn_rt.nodes.tasks.session_bridge import SessionBridge
    from jetson_dnn_rt.nodes.tasks.task_node import TaskNode
    from jetson_dnn_rt.scheduling.job import Job
    from jetson_dnn_rt.scheduling.task_state import TaskState


class ComposedCohort:
    """Puts a coordinator into the executor that runs the tasks, and takes it out again.

    `tasks` returns the task nodes by name; `bridge` owns the executor.
    """

    def __init__(self, bridge: SessionBridge, tasks: Callable[[], Mapping[str, TaskNode]]) -> None:
        self._bridge, self._tasks = bridge, tasks

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, whether they are active or not."""
        return tuple(self._tasks())

    @property
    def workers(self) -> int:
        """Stages that run side by side."""
        return self._bridge.session.split.workers

    @property
    def interference(self) -> tuple[float, ...]:
        """Slow-down of tasks side by side, where it was measured when they were loaded."""
        return tuple(self._bridge.session.cohort_slowdown.values()) or ALONE

    @property
    def met(self) -> int:
        """Frames met since the tasks were activated."""
        snapshots = [node.snapshot for node in self._tasks().values()]
        return sum(snapshot.outcomes[Outcome.MET] for snapshot in snapshots if snapshot)

    @property
    def failure(self) -> str:
        """Why the executor replaced the coordinator; empty while it uses it."""
        return self._bridge.session.selector_failure

    def signature(self) -> object:
        """Active tasks with variants and deadlines; when it changes, tables are made again."""
        return [
            (name, snapshot.parameters.variants, snapshot.parameters.deadline_ns)
            for name, node in self._tasks().items()
            if (snapshot := node.snapshot) is not None
        ]

    def make_tables(self, given: Mapping[str, TaskTable]) -> dict[str, TaskTable | str]:
        """For each active task its table, or the reason why there is none.

        Tables of files (`given`) have precedence over those from the warm-up.
        """
        return {
            name: _make_table(node, given.get(name))
            for name, node in self._tasks().items()
            if node.snapshot is not None
        }

    def start(self, coordinator: Coordinator) -> None:
        """Let the coordinator decide from the next boundary on."""
        self._bridge.session.executor.set_selector(coordinator)

    def exclusively(self) -> AbstractContextManager[None]:
        """Hold the executor: no boundary passes meanwhile."""
        return self._bridge.session.executor.exclusively()

    def reconsider(self) -> None:
        """Do nothing: a new policy is asked at the next boundary."""

    def watch(self) -> None:
        """Do nothing: the executor tells the coordinator what happens."""

    def states(self) -> dict[str, str]:
        """Tasks whose stages keep policies from switching inside a frame."""
        found = {}
        for name, node in self._tasks().items():
            loaded = node.loaded
            if loaded is None or node.snapshot is None:
                continue
            stages = loaded.stages.items()
            if coarse := [variant for variant, runs in stages if any(r.span > 1 for r in runs)]:
                found[name] = (
                    f"{', '.join(coarse)}: several stages with one run, no boundary between them; "
                    "set finest_stages for policies that switch inside a frame"
                )
        return found

    def close(self) -> None:
        """Do nothing: the constructor acquired nothing."""

    def stop(self, coordinator: Coordinator) -> None:
        """Take the coordinator out; each task stays in the variant that last met a deadline."""
        if not self._bridge.session.running:
            return
        executor = self._bridge.session.executor
        kept = self._choose_kept(coordinator) if coordinator.policy.adjusts_variants else {}
        with executor.exclusively():
            coordinator.close()
        executor.set_selector(KeptVariants(kept))

    def _choose_kept(self, coordinator: Coordinator) -> dict[str, tuple[str, str]]:
        kept = {}
        for member in coordinator.cohort.members:
            name = member.table.task
            node = self._tasks().get(name)
            snapshot = None if node is None else node.snapshot
            if node is None or snapshot is None or not member.frames_done:
                continue
            ran = () if member.misses_in_a_row else node.timing.snapshot().last_met.split("+")
            variant = fastest(member.table, member.usable, ran)
            kept[name] = snapshot.parameters.variant, variant
        return kept


class KeptVariants(StaticSelector):
    """Keeps tasks in the variants in which a coordinator left them, until they are set to others.

    `kept` maps each task to the variant that it is set to and the one that it runs as long as that
    does not change; other tasks run the variant they are set to.
    """

    def __init__(self, kept: Mapping[str, tuple[str, str]]) -> None:
        self._kept = dict(kept)

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        """The kept variant at the job's start, afterwards the job's own."""
        configured, variant = self._kept.get(job.task, ("", ""))
        if job.start_ns is None and variant and configured == state.parameters.variant:
            return variant
        return super().choose(state, job, now_ns)


def _make_table(node: TaskNode, given: TaskTable | None) -> TaskTable | str:
    """Table of a configured task, or why there is none.

    It comes from the file's table `given`, else from the warm-up and the library.
    """
    loaded = node.loaded
    if loaded is None:
        return "it is being cleaned up"
    if given is not None:
        if given.stages != loaded.stage_names:
            return (
                f"its table is of the stages {', '.join(given.stages)}, the task has "
                f"{', '.join(loaded.stage_names)}: profile it with the same `stages`"
            )
        return replace(given, deadline_ns=node.deadline_ns, period_ns=node.period_ns)
    try:
        return loaded.make_table(node.deadline_ns, node.period_ns)
    except ConfigurationError as error:
        return str(error)


def fastest(table: TaskTable, usable: Sequence[bool], among: Sequence[str] = ()) -> str:
    """The fastest usable variant in `among`, or of all where none of them is usable."""
    totals = table.median_ns.sum(axis=1).tolist()
    candidates = [v for v, there in enumerate(usable) if there] or list(range(len(totals)))
    wanted = [v for v in candidates if table.variants[v] in among] or candidates
    return table.variants[min(wanted, key=totals.__getitem__)]
