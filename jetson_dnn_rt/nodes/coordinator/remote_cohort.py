"""The cohort of tasks in other processes: decided once a frame, over their topics and parameters.

Each task tells the LAG of a finished frame on ``~/debug/lag_ms`` and its misses on
``~/debug/deadline_misses``; what is decided goes into its parameter ``variant``. Everything here
runs on the ROS thread, and nothing waits: an answer that does not come is given up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rcl_interfaces.msg import ParameterEvent

from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.tables.tables import TaskTable
from jetson_dnn_rt.nodes.coordinator.cohort_tables import ALONE
from jetson_dnn_rt.nodes.coordinator.composed_cohort import decides, fastest
from jetson_dnn_rt.nodes.coordinator.remote_task import RemoteTask
from jetson_dnn_rt.nodes.coordinator.remote_values import read_task_parameter

if TYPE_CHECKING:
    from rclpy.node import Node

EVENTS_DEPTH = 100


class RemoteCohort:
    """Listens to tasks in other processes and sets their variants.

    Parameters
    ----------
    node : Node
        Owns subscriptions and clients.
    tasks : sequence of str
        Names of the task nodes, relative to the node's namespace.
    """

    def __init__(self, node: Node, tasks: Sequence[str]) -> None:
        self._node = node
        self._names = tuple(tasks)
        # Resolved like topics: relative to the namespace, and remapped like them.
        self._by_node = {node.resolve_topic_name(name): name for name in self._names}
        self._remote: dict[str, RemoteTask] = {}
        self._deadlines_ns: dict[str, int] = {}
        self._in_files_ns: dict[str, int] = {}
        self._coordinator: Coordinator | None = None
        # Who changes a task's variant or deadline by hand is heard here.
        self._events = node.create_subscription(
            ParameterEvent, "/parameter_events", self._on_event, EVENTS_DEPTH
        )

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, whether they are there or not."""
        return self._names

    @property
    def workers(self) -> int:
        """Each task has a process, and workers, of its own."""
        return max(1, len(self._names))

    @property
    def interference(self) -> tuple[float, ...]:
        """Nobody measured tasks of other processes side by side."""
        return ALONE

    @property
    def met(self) -> int:
        """Frames met as far as was heard."""
        return sum(task.met for task in self._remote.values())

    @property
    def failure(self) -> str:
        """Empty: what the coordinator raises here is not swallowed by an engine."""
        return ""

    def signature(self) -> object:
        """Deadlines that differ from those in the files, as the tasks say."""
        return tuple(sorted(self._deadlines_ns.items()))

    def make_tables(self, given: Mapping[str, TaskTable]) -> dict[str, TaskTable | str]:
        """For each task its table out of a file, or the reason why there is none."""
        found: dict[str, TaskTable | str] = {}
        self._in_files_ns = {name: table.deadline_ns for name, table in given.items()}
        for name in self._names:
            table = given.get(name)
            if table is None:
                found[name] = "no file of the parameter `tables` has its table"
            else:
                deadline_ns = self._deadlines_ns.get(name, table.deadline_ns)
                found[name] = replace(table, deadline_ns=deadline_ns)
        return found

    def start(self, coordinator: Coordinator) -> None:
        """Let it decide, from each task's next frame on."""
        self._coordinator = coordinator
        for member in coordinator.cohort.members:
            name = member.table.task
            self._remote[name] = RemoteTask(
                self._node, member.table, coordinator, partial(self._note_deadline, name)
            )

    def _note_deadline(self, name: str, deadline_ms: float) -> None:
        """A task says its deadline: its table is made anew then; 0 = one period, as in a file."""
        deadline_ns = int(deadline_ms * 1e6)
        if deadline_ns in (0, self._in_files_ns.get(name)):
            self._deadlines_ns.pop(name, None)
        else:
            self._deadlines_ns[name] = deadline_ns

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Nothing to hold: everything runs on one thread."""
        yield

    def reconsider(self) -> None:
        """The policy is another: decide now, so that each task's next frame runs accordingly."""
        for task in self._remote.values():
            task.decide(time.monotonic_ns())

    def stop(self, coordinator: Coordinator) -> None:
        """Stop; a task whose last frame missed goes on in its fastest variant, the others stay."""
        for member in coordinator.cohort.members:
            task = self._remote.get(member.table.task)
            if task is not None and decides(coordinator) and member.misses_in_a_row:
                task.request(fastest(member.table, member.usable))
        coordinator.close()
        for task in self._remote.values():
            task.close()
        self._remote, self._coordinator = {}, None

    def watch(self) -> None:
        """Note tasks that have fallen silent; called now and then."""
        now_ns = time.monotonic_ns()
        for task in self._remote.values():
            task.watch(now_ns)

    def states(self) -> dict[str, str]:
        """What is known of the way to each task, for diagnostics."""
        return {name: task.describe() for name, task in self._remote.items()}

    def close(self) -> None:
        """Drop the subscription."""
        self._node.destroy_subscription(self._events)

    def _on_event(self, event: ParameterEvent) -> None:
        name = self._by_node.get(event.node)
        if name is None:
            return
        place = f"parameter events of {event.node}"
        for parameter in (*event.new_parameters, *event.changed_parameters):
            if parameter.name not in ("variant", "deadline_ms"):
                continue
            value = read_task_parameter(place, parameter.name, parameter.value)
            if value is None:
                continue
            if parameter.name == "deadline_ms":
                self._note_deadline(name, value)
            elif name in self._remote:
                self._remote[name].note_running(value)
