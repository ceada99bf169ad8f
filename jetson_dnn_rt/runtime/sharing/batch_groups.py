# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Groups of tasks of a process that run batches together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.task import BatchKey, Task
from jetson_dnn_rt.variants.running.batching import BatchGroup, BatchReport


class BatchGroups:
    """The batch groups of a process; `tasks` are the loaded ones, kept by its owner."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._groups: dict[str, BatchGroup] = {}

    def find_like(self, key: BatchKey) -> Task | None:
        """A loaded task that another one with this `Task.batch_key` may run batches with."""
        return next((t for t in self._tasks.values() if t.may_batch and t.batch_key == key), None)

    def form(self, workers: int, clock: Clock, log: Callable[[str], object]) -> None:
        """Make groups of the tasks that are in none; none of these may be active.

        `log` takes a line for each size of batch that was tried.
        """
        alike: dict[BatchKey, dict[str, Task]] = {}
        for name, task in self._tasks.items():
            if task.may_batch and not task.batch_group:
                alike.setdefault(task.batch_key, {})[name] = task
        for members in alike.values():
            if len(members) > 1:
                self._form(members, workers, clock, log)

    def _form(
        self, members: Mapping[str, Task], workers: int, clock: Clock, log: Callable[[str], object]
    ) -> None:
        first = next(iter(members.values()))
        variants = {name: task.variants for name, task in members.items()}
        group = BatchGroup(variants, workers=workers, clock=clock)
        rooms = [room for task in members.values() if (room := task.room_bytes) is not None]
        group.prepare(
            first.frame,
            first.config.warmup_runs,
            # Each task bears its share.
            room_bytes=min(rooms) * len(members) if rooms else None,
        )
        name = ", ".join(members)
        for report in group.reports:
            log(f"{name}: {report}")
        self._groups[name] = group
        for task in members.values():
            task.batch_tasks = len(members)
            task.batch_group = name
            task.batch_bytes = group.memory_bytes // len(members)

    def seed(self, executor: Executor) -> None:
        """Let the executor form the batches of groups whose tasks it has."""
        groups = executor.read_tasks(lambda state: state.parameters.batch_group)
        for name, group in self._groups.items():
            tasks = [t for t, own in groups.items() if own == name and self._is_member(t, name)]
            for report in group.reports:
                if report.used and report.size <= len(tasks):
                    self._seed(executor, tasks[0], report)

    def _is_member(self, task: str, group: str) -> bool:
        """Whether a task was not reloaded since its group was made."""
        return task in self._tasks and self._tasks[task].batch_group == group

    def _seed(self, executor: Executor, task: str, report: BatchReport) -> None:
        names = [stage.name for stage in self._tasks[task].stages[report.variant]][1:-1]
        for index, stage in enumerate(names):
            times_ns = [run[index] for run in report.times_ns]
            executor.seed_batch_budgets(task, report.variant, stage, report.size, times_ns)

    def find_group(self, task: str) -> str:
        """The group that a task is in for the executor; empty where no batch is of use.

        The engine decides faster for tasks that are in none.
        """
        used = any(report.used for report in self.reports_of(task))
        return self._tasks[task].batch_group if used else ""

    def reports_of(self, task: str) -> list[BatchReport]:
        """The sizes of batch that were tried for a task; empty where it runs alone."""
        loaded = self._tasks.get(task)
        group = self._groups.get(loaded.batch_group) if loaded is not None else None
        return [] if group is None else group.reports

    def describe(self, task: str) -> dict[str, object]:
        """Values for a task's diagnostics: its group and the batches that were tried."""
        loaded = self._tasks.get(task)
        if loaded is None or not loaded.batch_group:
            return {"batch_group": "none"}
        values: dict[str, object] = {"batch_group": loaded.batch_group}
        for report in self.reports_of(task):
            text = str(report).partition(f" in {report.variant}")[2].removeprefix(": ")
            values[f"batch.{report.variant}.{report.size}"] = text
        return values

    def leave(self, task: str) -> list[BatchGroup]:
        """Return what to close with a task that leaves: the group whose last member it is."""
        over = []
        for name, group in list(self._groups.items()):
            if task not in group.tasks:
                continue
            if task in self._tasks and not self._is_member(task, name):
                # It was reloaded because a stage hung, which may still use the runners.
                del self._groups[name]
            elif not any(self._is_member(o, name) for o in group.tasks if o != task):
                over.append(self._groups.pop(name))
        return over
