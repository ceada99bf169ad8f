"""A task in another process, as the coordinator sees it: a job per finished frame."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import GetParameters, SetParameters
from std_msgs.msg import Float64

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.tables.tables import TaskTable
from jetson_dnn_rt.frames import Frame
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
"""A request that has no answer after this is given up: the task's process is gone or busy."""

RETRY_NS = 5_000_000_000
"""A variant that a task refused (it is still being built, perhaps) is not asked for that long."""

SILENT_PERIODS = 5
"""After so many periods without a message a task has no frame under way."""

WANTED = ("variant", "variants", "deadline_ms")

_FRAME = Frame(np.zeros((1, 1, 3), np.uint8), "bgr8", 0, 0)


class Requests:
    """A service of another process, asked one thing at a time; what is not answered is given up.

    Parameters
    ----------
    node : Node
        Owns the client.
    kind : type
        Of the service.
    name : str
        Of the service.
    """

    def __init__(self, node: Node, kind: Any, name: str) -> None:
        self._node, self._client = node, node.create_client(kind, name)
        self._pending: Any = None
        self._asked_ns = 0
        self.name = name

    @property
    def pending(self) -> bool:
        """Whether an answer is still to come."""
        return self._pending is not None

    def service_is_ready(self) -> bool:
        """Whether somebody is there to answer."""
        return bool(self._client.service_is_ready())

    def ask(self, request: Any, on_answer: Callable[[Any, int], None]) -> None:
        """Send a request; `on_answer` gets the answer and when it was asked for, if one comes."""

        def finish(future: Any) -> None:
            if future is self._pending:
                self._pending = None
                on_answer(future.result(), asked_ns)

        asked_ns = self._asked_ns = time.monotonic_ns()
        self._pending = self._client.call_async(request)
        self._pending.add_done_callback(finish)

    def give_up(self, now_ns: int) -> bool:
        """Forget a request that has waited for longer than `ANSWER_LIMIT_NS`; whether it had."""
        if self._pending is None or now_ns - self._asked_ns <= ANSWER_LIMIT_NS:
            return False
        self._client.remove_pending_request(self._pending)
        self._pending = None
        return True

    def close(self) -> None:
        """Drop the client."""
        self._node.destroy_client(self._client)
        self._pending = None


class RemoteTask:
    """Turns a task's messages into what an executor tells the coordinator, and sets its variant.

    The LAG of a finished frame is its relative deadline minus its execution time, so it says how
    long the frame ran. Where its stages' boundaries were is not known: they count as passed at
    the frame's end.

    Parameters
    ----------
    node : Node
        Owns subscriptions and clients.
    table : TaskTable
        Of the task; its name is that of the node, relative to `node`'s namespace.
    coordinator : Coordinator
        Decides.
    on_deadline : callable
        Called with the task's deadline in ms (0 = one period) when it is heard.
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
        self.full_name = node.resolve_topic_name(table.task)
        variants = table.variants
        self._state = TaskState(
            TaskConfig(table.task).for_engine(
                table.stages,
                variants,
                period_ns=table.period_ns,
                deadline_ns=table.deadline_ns,
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
        # What runs, as far as it is known, since when, and what ran before that.
        self._running = ""
        self._since_ns = 0
        self._before = ""
        self._waiting: Job | None = None
        self._asked = ""
        self._refused_ns: dict[str, int] = {}
        name = self.full_name
        self._subscriptions = [
            node.create_subscription(
                Float64, f"{name}/debug/deadline_misses", self._on_misses, RELIABLE
            ),
            node.create_subscription(Float64, f"{name}/debug/lag_ms", self._on_lag, RELIABLE),
        ]
        self._setter = Requests(node, SetParameters, f"{name}/set_parameters")
        self._getter = Requests(node, GetParameters, f"{name}/get_parameters")

    # -- what the task says --------------------------------------------------------------------

    def _on_misses(self, message: Float64) -> None:
        misses = read_number(
            f"topic {self.full_name}/debug/deadline_misses", message.data, (0, MAX_COUNT)
        )
        if misses is None:
            return
        before, self._misses = self._misses, misses
        self._heard_ns = time.monotonic_ns()
        if misses < before:
            # A new process, or a node that was configured anew: with a variant of its own.
            self._running = ""
        if 0 <= before < misses:
            self._missed = True
            self._state.misses_in_a_row += round(misses - before)
            self._end_waiting(Outcome.SKIPPED, self._heard_ns)
            self.decide(self._heard_ns)

    def _on_lag(self, message: Float64) -> None:
        """A frame is finished; decide about the next one."""
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
        """The task is set to another variant; empty = it is not known to which."""
        if variant == self._running:
            return
        self._before, self._running = self._running, variant
        self._since_ns = time.monotonic_ns()
        if variant in self._table.variants and variant != self._asked:
            # Not asked for by us: this is what its user wants.
            self._state.parameters = replace(self._state.parameters, variant=variant)

    def watch(self, now_ns: int) -> None:
        """Note when the task has fallen silent, and give up what is not answered."""
        self._getter.give_up(now_ns)
        if self._setter.give_up(now_ns):
            # Whoever comes back comes with the variant of its own configuration.
            self._running = ""
        for variant, refused_ns in list(self._refused_ns.items()):
            if now_ns - refused_ns > RETRY_NS:
                del self._refused_ns[variant]
                self._state.withdrawn.pop(variant, None)
        if now_ns - self._heard_ns > SILENT_PERIODS * self._table.period_ns:
            self._end_waiting(Outcome.SKIPPED, now_ns)

    # -- what it is told -----------------------------------------------------------------------

    def decide(self, now_ns: int) -> None:
        """Ask the coordinator for the variant of the next frame, and set it where it differs."""
        state = self._state
        self._end_waiting(Outcome.SUPERSEDED, now_ns)
        job = self._waiting = self._make_job(now_ns)
        self._coordinator.released(state, job, now_ns)
        chosen = self._coordinator.choose(state, job, now_ns)
        if self._coordinator.failure or not self._coordinator.policy.adjusts_variants:
            return
        self.request(chosen)

    def request(self, variant: str) -> None:
        """Set the task's variant, unless it runs already or an answer is still to come."""
        if variant in self._refused_ns or self._setter.pending:
            return
        if not self._setter.service_is_ready():
            return
        if not self._running:
            self._read()
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
            # Events go another way than answers: one that came meanwhile is newer, and may be of
            # somebody who has set another variant since.
            if self._since_ns <= asked_ns:
                self.note_running(variant)
            self.refusals.pop(variant, None)
            return
        if self.refusals.get(variant) != reason:
            self._node.get_logger().warning(f"{self.full_name}: {reason}")
        self.refusals[variant] = reason
        self._refused_ns[variant] = time.monotonic_ns()
        self._state.withdrawn[variant] = reason

    def _read(self) -> None:
        """Ask what runs, once: what is asked for afterwards is known."""
        if not self._getter.pending and self._getter.service_is_ready():
            self._getter.ask(GetParameters.Request(names=list(WANTED)), self._on_read)

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

    # -- inside --------------------------------------------------------------------------------

    def describe(self) -> str:
        """What is known of the way to it."""
        if not self._heard_ns:
            return "nothing heard yet"
        text = self._running or "its variant is not known"
        if self.refusals:
            text += "; refused: " + "; ".join(self.refusals.values())
        return text

    def close(self) -> None:
        """Drop subscriptions and clients."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._setter.close()
        self._getter.close()

    def _make_job(self, release_ns: int) -> Job:
        parameters = self._state.parameters
        self._sequence += 1
        deadline_ns = release_ns + parameters.deadline_ns
        return Job(
            parameters.name,
            self._sequence,
            release_ns,
            release_ns,
            deadline_ns,
            Work(_FRAME),
            parameters.variant,
        )

    def _end_waiting(self, outcome: Outcome, now_ns: int) -> None:
        job, self._waiting = self._waiting, None
        if job is not None:
            self._coordinator.ended(self._state, job, outcome, now_ns)
