"""Which tasks of a process run batches with each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.variants.running.batching import BatchGroup, BatchReport

if TYPE_CHECKING:
    from jetson_dnn_rt.nodes.tasks.loading import BatchKey, LoadedTask
    from jetson_dnn_rt.runtime.executor import Executor


class BatchGroups:
    """The batch groups of a process, from the loading of their tasks to their clean-up."""

    def __init__(self) -> None:
        self._loaded: dict[str, LoadedTask] = {}
        self._groups: dict[str, BatchGroup] = {}

    def find_like(self, key: BatchKey) -> LoadedTask | None:
        """A loaded task that another one of this `LoadedTask.batch_key` may run batches with."""
        for loaded in self._loaded.values():
            if loaded.may_batch and loaded.batch_key == key:
                return loaded
        return None

    def join(self, task: str, loaded: LoadedTask) -> None:
        """A task was loaded."""
        self._loaded[task] = loaded

    def form(self, workers: int, clock: Clock, log: Callable[[str], None]) -> None:
        """Make groups of the tasks that are in none; none of these may be active.

        Parameters
        ----------
        workers : int
            Of the executor.
        clock : Clock
            Measures.
        log : callable
            Takes what was found, a line for each size that was tried.
        """
        alike: dict[BatchKey, dict[str, LoadedTask]] = {}
        for task, loaded in self._loaded.items():
            if loaded.may_batch and not loaded.batch_group:
                alike.setdefault(loaded.batch_key, {})[task] = loaded
        for members in alike.values():
            if len(members) > 1:
                self._form(members, workers, clock, log)

    def _form(
        self,
        members: Mapping[str, LoadedTask],
        workers: int,
        clock: Clock,
        log: Callable[[str], None],
    ) -> None:
        first = next(iter(members.values()))
        group = BatchGroup(
            {task: loaded.variants for task, loaded in members.items()},
            workers=workers,
            clock=clock,
        )
        rooms = [room for one in members.values() if (room := one.room_bytes) is not None]
        group.prepare(
            first.frame,
            first.warmup_runs,
            # Each task bears its share.
            room_bytes=min(rooms) * len(members) if rooms else None,
        )
        name = ", ".join(members)
        for report in group.reports:
            log(f"{name}: {report}")
        self._groups[name] = group
        for loaded in members.values():
            loaded.batch_tasks = len(members)
            loaded.batch_group = name
            loaded.batch_bytes = group.memory_bytes // len(members)

    def seed(self, executor: Executor) -> None:
        """Let the executor form the batches of groups whose tasks it has."""
        for name, group in self._groups.items():
            tasks = [task for task in executor.tasks_of(name) if self._is_member(task, name)]
            for report in group.reports:
                if report.used and report.size <= len(tasks):
                    self._seed(executor, tasks[0], report)

    def _is_member(self, task: str, group: str) -> bool:
        """Whether a task still is what it was when its group was made."""
        return task in self._loaded and self._loaded[task].batch_group == group

    def _seed(self, executor: Executor, task: str, report: BatchReport) -> None:
        names = [stage.name for stage in self._loaded[task].stages[report.variant]][1:-1]
        for index, stage in enumerate(names):
            times_ns = [run[index] for run in report.times_ns]
            executor.seed_batch_budgets(task, report.variant, stage, report.size, times_ns)

    def find_group(self, task: str) -> str:
        """The group that a task is in for the executor; empty where no batch is of use.

        The engine decides faster for tasks that are in none.
        """
        used = any(report.used for report in self.reports_of(task))
        return self._loaded[task].batch_group if used else ""

    def reports_of(self, task: str) -> list[BatchReport]:
        """What was found for a task's batches; empty where it runs alone."""
        loaded = self._loaded.get(task)
        group = self._groups.get(loaded.batch_group) if loaded is not None else None
        return [] if group is None else group.reports

    def describe(self, task: str) -> dict[str, object]:
        """Values for a task's diagnostics: with whom it runs batches, and which."""
        loaded = self._loaded.get(task)
        if loaded is None or not loaded.batch_group:
            return {"batch_group": "none"}
        values: dict[str, object] = {"batch_group": loaded.batch_group}
        for report in self.reports_of(task):
            text = str(report).partition(f" in {report.variant}")[2].removeprefix(": ")
            values[f"batch.{report.variant}.{report.size}"] = text
        return values

    def leave(self, task: str) -> list[BatchGroup]:
        """A task is cleaned up; returns what is to be closed with it: the last one of a group."""
        over = []
        for name, group in list(self._groups.items()):
            if task not in group.tasks:
                continue
            if task in self._loaded and not self._is_member(task, name):
                # It was made anew because a stage hung, which may have the runners in use yet.
                del self._groups[name]
            elif not any(self._is_member(o, name) for o in group.tasks if o != task):
                over.append(self._groups.pop(name))
        self._loaded.pop(task, None)
        return over
