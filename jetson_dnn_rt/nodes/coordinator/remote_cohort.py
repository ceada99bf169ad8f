# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The cohort of tasks in other processes: decided once a frame, over their topics and parameters.

Each task publishes the LAG of a finished frame on ``~/debug/lag_ms`` and its misses on
``~/debug/deadline_misses``; decisions go into its parameter ``variant``. Everything here runs on
the ROS thread, and nothing waits: a request without an answer is given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from rcl_interfaces.msg import Parameter, ParameterEvent, ParameterType, ParameterValue
from rcl_interfaces.srv import GetParameters, SetParameters
from std_msgs.msg import Float64

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.coordinator.basis import ALONE
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.tables.tables import TaskTable
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.nodes.coordinator.composed_cohort import fastest
from jetson_dnn_rt.nodes.coordinator.remote_values import (
    MAX_COUNT,
    MAX_TEXT,
    check_length,
    lag_limits_ms,
    read_number,
    read_task_parameter,
)
from jetson_dnn_rt.nodes.process.qos import RELIABLE
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.task_state import TaskState
from jetson_dnn_rt.tasks import Outcome, StageRecord, Work

if TYPE_CHECKING:
    from rclpy.node import Node

ANSWER_LIMIT_NS = 1_000_000_000
"""A request without an answer for this long is given up: the task's process is gone or busy."""

RETRY_NS = 5_000_000_000
"""A variant that a task refused (perhaps it is still being built) is not requested again for this
long."""

SILENT_PERIODS = 5
"""After this many periods without a message a task has no frame under way."""

EVENTS_DEPTH = 100
WANTED = ("variant", "variants", "deadline_ms")

_FRAME = Frame(np.zeros((1, 1, 3), np.uint8), "bgr8", 0, 0)


class Requests:
    """Requests to a service of another process, one at a time; unanswered ones are given up."""

    def __init__(self, node: Node, kind: Any, name: str) -> None:
        self._node, self._client = node, node.create_client(kind, name)
        self._pending: Any = None
        self._asked_ns = 0
        self.name = name

    @property
    def pending(self) -> bool:
        """Whether an answer is outstanding."""
        return self._pending is not None

    def service_is_ready(self) -> bool:
        """Whether the service has a server."""
        return bool(self._client.service_is_ready())

    def ask(self, request: Any, on_answer: Callable[[Any, int], None]) -> None:
        """Send a request; `on_answer` gets the answer, if any, and the time of the request."""

        def finish(future: Any) -> None:
            if future is self._pending:
                self._pending = None
                on_answer(future.result(), asked_ns)

        asked_ns = self._asked_ns = time.monotonic_ns()
        self._pending = self._client.call_async(request)
        self._pending.add_done_callback(finish)

    def give_up(self, now_ns: int) -> bool:
        """Forget a request older than `ANSWER_LIMIT_NS`; returns whether there was one."""
        if self._pending is None or now_ns - self._asked_ns <= ANSWER_LIMIT_NS:
            return False
        self._client.remove_pending_request(self._pending)
        self._pending = None
        return True

    def close(self) -> None:
        """Destroy the client."""
        self._node.destroy_client(self._client)
        self._pending = None


class RemoteTask:
    """A task in another process: turns its messages into jobs and sets its variant.

    The LAG of a finished frame is its relative deadline minus its execution time, which tells how
    long the frame ran. The times of its stage boundaries are unknown: all count as passed at the
    frame's end.

    `node` owns subscriptions and clients; the task's node has the name in `table`, relative to its
    namespace. `on_deadline` gets the task's deadline in ms (0 = one period) when the task reports
    it.
    """

    def __init__(
        self,
        node: Node,
        table: TaskTable,
        coordinator: Coordinator,
        on_deadline: Callable[[float], None],
    ) -> None:
        self._node, self._table, self._coordinator = node, table, coordinator
        self._on_deadline = on_deadline
        # Resolved like a topic: relative to the namespace, and remapped like one.
        name = self.full_name = node.resolve_topic_name(table.task)
        variants = table.variants
        self._state = TaskState(
            TaskConfig(table.task).for_engine(
                table.stages, variants, period_ns=table.period_ns, deadline_ns=table.deadline_ns
            )
        )
        for variant in variants:
            self._state.set_spans(variant, None)
        self.met = 0
        self.refusals: dict[str, str] = {}
        self._sequence = 0
        self._misses = -1.0
        self._missed = False
        self._heard_ns = 0
        # The variant that runs, as far as known, since when, and the one that ran before.
        self._running = ""
        self._since_ns = 0
        self._before = ""
        self._waiting: Job | None = None
        self._asked = ""
        self._refused_ns: dict[str, int] = {}
        self._subscriptions = [
            node.create_subscription(
                Float64, f"{name}/debug/deadline_misses", self._on_misses, RELIABLE
            ),
            node.create_subscription(Float64, f"{name}/debug/lag_ms", self._on_lag, RELIABLE),
        ]
        self._setter = Requests(node, SetParameters, f"{name}/set_parameters")
        self._getter = Requests(node, GetParameters, f"{name}/get_parameters")

    def describe(self) -> str:
        """Known state of the task, for diagnostics."""
        if not self._heard_ns:
            return "nothing heard yet"
        text = self._running or "its variant is not known"
        if self.refusals:
            text += "; refused: " + "; ".join(self.refusals.values())
        return text

    def close(self) -> None:
        """Destroy subscriptions and clients."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._setter.close()
        self._getter.close()

    # -- what the task reports -----------------------------------------------------------------

    def _on_misses(self, message: Float64) -> None:
        misses = read_number(
            f"topic {self.full_name}/debug/deadline_misses", message.data, (0, MAX_COUNT)
        )
        if misses is None:
            return
        before, self._misses = self._misses, misses
        self._heard_ns = time.monotonic_ns()
        if misses < before:
            # A new process, or a node that was reconfigured: with a variant of its own.
            self._running = ""
        if 0 <= before < misses:
            self._missed = True
            self._state.misses_in_a_row += round(misses - before)
            self._end_waiting(Outcome.SKIPPED, self._heard_ns)
            self.decide(self._heard_ns)

    def _on_lag(self, message: Float64) -> None:
        """A frame is finished: report its job, and decide about the next frame."""
        lag_ms = read_number(f"topic {self.full_name}/debug/lag_ms", message.data, lag_limits_ms())
        if lag_ms is None:
            return
        now_ns = self._heard_ns = time.monotonic_ns()
        state, coordinator = self._state, self._coordinator
        deadline_ns = state.parameters.deadline_ns
        elapsed_ns = max(1, deadline_ns - round(lag_ms * 1e6))
        start_ns = now_ns - elapsed_ns
        job = self._make_job(start_ns)
        job.variant = self._running if start_ns >= self._since_ns else self._before
        job.variant = job.variant or state.parameters.variant
        missed, self._missed = self._missed, False
        if not missed:
            self.met += 1
            state.misses_in_a_row = 0
        self._waiting = None
        coordinator.released(state, job, start_ns)
        job.start_ns, state.in_flight = start_ns, job
        coordinator.started(state, job, start_ns)
        job.stages.append(StageRecord("frame", job.variant, start_ns, now_ns))
        job.path.append((job.variant, 0))
        job.next_stage = len(state.parameters.stages)
        coordinator.passed(state, job, now_ns)
        state.in_flight = None
        coordinator.ended(state, job, Outcome.LATE if missed else Outcome.MET, now_ns)
        self.decide(now_ns)

    def note_running(self, variant: str) -> None:
        """The task is set to another variant; empty = unknown."""
        if variant == self._running:
            return
        self._before, self._running = self._running, variant
        self._since_ns = time.monotonic_ns()
        if variant in self._table.variants and variant != self._asked:
            # Not requested by this node, so the user has set it.
            self._state.parameters = replace(self._state.parameters, variant=variant)

    def watch(self, now_ns: int) -> None:
        """Notice when the task has fallen silent, and give up requests without an answer."""
        self._getter.give_up(now_ns)
        if self._setter.give_up(now_ns):
            # A successor comes with the variant of its own configuration.
            self._running = ""
        for variant, refused_ns in list(self._refused_ns.items()):
            if now_ns - refused_ns > RETRY_NS:
                del self._refused_ns[variant]
                self._state.withdrawn.pop(variant, None)
        if now_ns - self._heard_ns > SILENT_PERIODS * self._table.period_ns:
            self._end_waiting(Outcome.SKIPPED, now_ns)

    # -- what the task is told -----------------------------------------------------------------

    def decide(self, now_ns: int) -> None:
        """Ask the coordinator for the variant of the next frame, and set it where it differs."""
        state = self._state
        self._end_waiting(Outcome.SUPERSEDED, now_ns)
        job = self._waiting = self._make_job(now_ns)
        self._coordinator.released(state, job, now_ns)
        chosen = self._coordinator.choose(state, job, now_ns)
        if self._coordinator.policy.adjusts_variants and not self._coordinator.failure:
            self.request(chosen)

    def request(self, variant: str) -> None:
        """Set the task's variant, unless it runs already or an answer is outstanding."""
        if variant in self._refused_ns or self._setter.pending:
            return
        if not self._setter.service_is_ready():
            return
        # Ask what runs, once: later it is known from what was requested, and from events.
        if not self._running and not self._getter.pending and self._getter.service_is_ready():
            self._getter.ask(GetParameters.Request(names=list(WANTED)), self._on_read)
        if variant == self._running:
            return
        value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=variant)
        request = SetParameters.Request(parameters=[Parameter(name="variant", value=value)])
        self._asked = variant
        self._setter.ask(request, self._on_answer)

    def _on_answer(self, response: Any, asked_ns: int) -> None:
        if not check_length(f"service {self._setter.name}", response.results, 1):
            return
        result = response.results[0]
        variant, reason = self._asked, result.reason[:MAX_TEXT]
        if result.successful:
            # Events take another path than answers: one that came meanwhile is newer, and may
            # report a variant that another node has set since.
            if self._since_ns <= asked_ns:
                self.note_running(variant)
            self.refusals.pop(variant, None)
            return
        if self.refusals.get(variant) != reason:
            self._node.get_logger().warning(f"{self.full_name}: {reason}")
        self.refusals[variant] = reason
        self._refused_ns[variant] = time.monotonic_ns()
        self._state.withdrawn[variant] = reason

    def _on_read(self, response: Any, asked_ns: int) -> None:
        place = f"service {self._getter.name}"
        if not check_length(place, response.values, len(WANTED)):
            return
        variant, variants, deadline_ms = (
            read_task_parameter(place, name, value)
            for name, value in zip(WANTED, response.values, strict=True)
        )
        if not self._running and variant is not None and variants is not None:
            self.note_running(variant or (variants or ("",))[0])
        if deadline_ms is not None:
            self._on_deadline(deadline_ms)

    def _make_job(self, release_ns: int) -> Job:
        parameters = self._state.parameters
        self._sequence += 1
        return Job(
            parameters.name,
            self._sequence,
            release_ns,
            release_ns,
            release_ns + parameters.deadline_ns,
            Work(_FRAME),
            parameters.variant,
        )

    def _end_waiting(self, outcome: Outcome, now_ns: int) -> None:
        job, self._waiting = self._waiting, None
        if job is not None:
            self._coordinator.ended(self._state, job, outcome, now_ns)


class RemoteCohort:
    """Listens to tasks in other processes and sets their variants.

    `tasks` are the names of their nodes, relative to the namespace of `node`, which owns
    subscriptions and clients.
    """

    failure = ""
    """Always empty: errors of the coordinator itself are not swallowed here by an engine."""

    interference = ALONE
    """Tasks of other processes were never measured side by side."""

    def __init__(self, node: Node, tasks: Sequence[str]) -> None:
        self._node = node
        self.tasks = tuple(tasks)
        self.workers = max(1, len(self.tasks))  # each task has a process, and workers, of its own
        # Resolved like topics: relative to the namespace, and remapped like them.
        self._by_node = {node.resolve_topic_name(name): name for name in self.tasks}
        self._remote: dict[str, RemoteTask] = {}
        self._deadlines_ns: dict[str, int] = {}
        self._in_files_ns: dict[str, int] = {}
        # Reports changes of a task's variant or deadline by hand.
        self._events = node.create_subscription(
            ParameterEvent, "/parameter_events", self._on_event, EVENTS_DEPTH
        )

    @property
    def met(self) -> int:
        """Frames met, as far as reported."""
        return sum(task.met for task in self._remote.values())

    def signature(self) -> object:
        """Deadlines that differ from the files; when they change, tables are made again."""
        return tuple(sorted(self._deadlines_ns.items()))

    def make_tables(self, given: Mapping[str, TaskTable]) -> dict[str, TaskTable | str]:
        """For each task its table from a file, or the reason why there is none."""
        found: dict[str, TaskTable | str] = {}
        self._in_files_ns = {name: table.deadline_ns for name, table in given.items()}
        for name in self.tasks:
            table = given.get(name)
            if table is None:
                found[name] = "no file of the parameter `tables` has its table"
            else:
                deadline_ns = self._deadlines_ns.get(name, table.deadline_ns)
                found[name] = replace(table, deadline_ns=deadline_ns)
        return found

    def start(self, coordinator: Coordinator) -> None:
        """Let the coordinator decide from each task's next frame on."""
        for member in coordinator.cohort.members:
            name = member.table.task
            self._remote[name] = RemoteTask(
                self._node, member.table, coordinator, partial(self._note_deadline, name)
            )

    def _note_deadline(self, name: str, deadline_ms: float) -> None:
        """A task reports its deadline, which changes its table; 0 = one period, as in a file."""
        deadline_ns = int(deadline_ms * 1e6)
        if deadline_ns in (0, self._in_files_ns.get(name)):
            self._deadlines_ns.pop(name, None)
        else:
            self._deadlines_ns[name] = deadline_ns

    def exclusively(self) -> AbstractContextManager[None]:
        """Hold nothing: everything runs on one thread."""
        return nullcontext()

    def reconsider(self) -> None:
        """Ask a new policy now, so that each task's next frame runs accordingly."""
        for task in self._remote.values():
            task.decide(time.monotonic_ns())

    def stop(self, coordinator: Coordinator) -> None:
        """Stop; a task whose last frame missed goes on in its fastest variant, the others stay."""
        decides = coordinator.policy.adjusts_variants and not coordinator.failure
        for member in coordinator.cohort.members:
            task = self._remote.get(member.table.task)
            if task is not None and decides and member.misses_in_a_row:
                task.request(fastest(member.table, member.usable))
        coordinator.close()
        for task in self._remote.values():
            task.close()
        self._remote = {}

    def watch(self) -> None:
        """Notice tasks that have fallen silent; called periodically."""
        now_ns = time.monotonic_ns()
        for task in self._remote.values():
            task.watch(now_ns)

    def states(self) -> dict[str, str]:
        """Known state of each task, for diagnostics."""
        return {name: task.describe() for name, task in self._remote.items()}

    def close(self) -> None:
        """Destroy the subscription."""
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
