"""The coordinator as a node: parameters, topics and diagnostics around a policy.

In the composed process it sits in the executor and decides at every stage boundary; in a process
of its own it decides once a frame for tasks in other processes. When it goes, tasks go on in the
last variants that kept their deadlines, and it can come back at any time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rclpy.clock import Clock, ClockType

from jetson_dnn_rt.config.nodes import (
    CoordinatorConfig,
    CoordinatorProcessConfig,
)
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.policy import PolicySettings
from jetson_dnn_rt.coordinator.registry import create_policy
from jetson_dnn_rt.coordinator.tables.tables import TaskTable
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.nodes.coordinator.clock_thread import ClockThread, PowerReport
from jetson_dnn_rt.nodes.coordinator.cohort_tables import Basis, load_basis
from jetson_dnn_rt.nodes.coordinator.composed_cohort import ComposedCohort
from jetson_dnn_rt.nodes.coordinator.coordinator_status import count_running, policy_status
from jetson_dnn_rt.nodes.coordinator.coordinator_topics import CoordinatorTopics, Rates
from jetson_dnn_rt.nodes.coordinator.remote_cohort import RemoteCohort
from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode
from jetson_dnn_rt.nodes.process.parameters import ParameterSet
from jetson_dnn_rt.nodes.reports.diagnostics import DiagnosticsPublisher
from jetson_dnn_rt.safety.faults import safe_text

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from jetson_dnn_rt.nodes.tasks.host import Host
    from jetson_dnn_rt.nodes.tasks.task_node import TaskNode
    from jetson_dnn_rt.traces.clock_log import ClockLog

REPORT_PERIOD_S = 0.1
"""Between two messages of a topic, and between two looks at what the tasks have become."""

NO_TABLES = "static"
"""The policy that needs to know nothing."""


class TaskCohort(Protocol):
    """The tasks, in this process or in others."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks."""

    @property
    def workers(self) -> int:
        """Stages that run side by side."""

    @property
    def interference(self) -> tuple[float, ...]:
        """How much slower a stage is with 1, 2, ... side by side, as was measured here."""

    @property
    def met(self) -> int:
        """Frames met."""

    @property
    def failure(self) -> str:
        """Why the coordinator itself is not asked any more; empty as long as it is."""

    def signature(self) -> object:
        """Changes when tables have to be made anew."""

    def make_tables(self, given: Mapping[str, TaskTable]) -> dict[str, TaskTable | str]:
        """Tables of the tasks that run, or why there is none."""

    def start(self, coordinator: Coordinator) -> None:
        """Let it decide."""

    def exclusively(self) -> AbstractContextManager[None]:
        """Nothing is decided meanwhile."""

    def reconsider(self) -> None:
        """The policy is another."""

    def watch(self) -> None:
        """Called every `REPORT_PERIOD_S`."""

    def stop(self, coordinator: Coordinator) -> None:
        """Let it decide no more."""

    def states(self) -> dict[str, str]:
        """Notes on single tasks, for diagnostics."""

    def close(self) -> None:
        """Give back what the constructor took."""


class CoordinatorNode(ManagedNode):
    """A lifecycle node that decides on variants and clocks for all tasks together.

    Parameters
    ----------
    name : str
        Of the node.
    host : Host, optional
        The composed process' executor; without it the tasks are in other processes.
    tasks : callable, optional
        Returns the task nodes of the composed process by name.
    options : dict
        Keyword arguments of `rclpy.node.Node`.
    """

    def __init__(
        self,
        name: str = "coordinator",
        *,
        host: Host | None = None,
        tasks: Callable[[], Mapping[str, TaskNode]] = dict,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self._declared = ParameterSet(
            self,
            CoordinatorConfig,
            is_fixed=lambda: not self.is_unconfigured,
            on_change=self._apply,
        )
        self._cohort: TaskCohort
        if host is None:
            process = ParameterSet(self, CoordinatorProcessConfig)
            self._cohort = RemoteCohort(self, process.value.tasks)
        else:
            self._cohort = ComposedCohort(host, tasks)
        self._basis: Basis | None = None
        self._clocks: ClockThread | None = None
        self._topics: CoordinatorTopics | None = None
        self._timer: Any = None
        self._signature: object = None
        self._active = False
        self.coordinator: Coordinator | None = None
        self.uncoordinated: dict[str, str] = {}
        self.policy_fault = ""
        self.rates = Rates()
        self._diagnostics = DiagnosticsPublisher(
            self, {"policy_status": lambda: policy_status(self)}, process=host is None
        )

    @property
    def parameters(self) -> CoordinatorConfig:
        """The present values."""
        return self._declared.value

    @property
    def basis(self) -> Basis | None:
        """Platform and tables; None while unconfigured."""
        return self._basis

    @property
    def clocks(self) -> ClockThread | None:
        """Who writes the clocks; None while unconfigured."""
        return self._clocks

    @property
    def clock_log(self) -> ClockLog | None:
        """Which clocks held when; None while unconfigured."""
        return None if self._clocks is None else self._clocks.log

    @property
    def power(self) -> PowerReport:
        """What was measured last; NaN where nothing can be."""
        return PowerReport() if self._clocks is None else self._clocks.power

    def task_states(self) -> dict[str, str]:
        """Notes on single tasks, for diagnostics."""
        return self._cohort.states()

    # -- lifecycle -----------------------------------------------------------------------------

    def configure(self) -> None:
        """Open the platform, read the tables, make the publishers."""
        values = self.parameters
        basis = self._basis = load_basis(values)
        for text in basis.notes:
            self.get_logger().warning(text)
        self._clocks = ClockThread(basis.platform, basis.clock_table)
        self._clocks.start()
        self._topics = CoordinatorTopics(self, [name.lstrip("/") for name in self._cohort.tasks])
        self._timer = self.create_timer(
            REPORT_PERIOD_S, self._report, clock=Clock(clock_type=ClockType.STEADY_TIME)
        )

    def activate(self) -> None:
        """Decide from now on."""
        self._active = True
        if self.parameters.enable:
            self._start(self.parameters)

    def deactivate(self) -> None:
        """Decide no more."""
        self._stop()
        self._active = False

    def cleanup(self) -> None:
        """Give clocks, platform and publishers back."""
        self._stop()
        if self._timer is not None:
            self.destroy_timer(self._timer)
            self._timer = None
        if self._topics is not None:
            self._topics.close()
            self._topics = None
        clocks, self._clocks = self._clocks, None
        if clocks is not None and not clocks.stop():
            self.get_logger().error(
                "the platform hangs: its clocks come back when this process ends"
            )
        self._basis = None

    def end(self) -> None:
        """Bring the clocks back at once."""
        self._active = False
        if self._clocks is not None:
            self._clocks.stop(timeout_s=0.2)
        self.cleanup()

    def restore_clocks(self) -> None:
        """Bring the clocks back, whatever the ROS thread does."""
        clocks = self._clocks
        if clocks is not None:
            clocks.restore()

    def destroy_node(self) -> None:
        """Destroy the node."""
        self._cohort.close()
        super().destroy_node()

    # -- deciding ------------------------------------------------------------------------------

    def _apply(self, before: CoordinatorConfig, values: CoordinatorConfig) -> None:
        """Bring dynamic parameters into effect at the next boundary."""
        if not self._active:
            return
        if not values.enable:
            self._stop()
        elif self.coordinator is None:
            self._start(values)
        elif _decides(values) != _decides(before):
            coordinator = self.coordinator
            policy = self._make_policy(values, coordinator)
            with self._cohort.exclusively():
                coordinator.set_policy(policy)
            self.policy_fault = ""
            self._cohort.reconsider()

    def _start(self, values: CoordinatorConfig) -> None:
        basis, clocks = self._basis, self._clocks
        assert basis is not None
        assert clocks is not None
        # First: what fails for these tasks is tried again with others, not ten times a second.
        self._signature = self._cohort.signature()
        found = self._cohort.make_tables(basis.tables)
        self.uncoordinated = {task: why for task, why in found.items() if isinstance(why, str)}
        tables = [table for table in found.values() if not isinstance(table, str)]
        self.policy_fault = ""
        if values.policy != NO_TABLES:
            for task, why in self.uncoordinated.items():
                self.get_logger().warning(f"task {task} is not coordinated: {why}")
        if not tables:
            return
        policy = self._create(values, tables)
        coordinator = Coordinator(
            basis.clock_table,
            tables,
            policy,
            workers=self._cohort.workers,
            interference=self._interference,
            clocks=clocks.position,
            request_clocks=clocks.request if basis.platform.writable else None,
        )
        self.coordinator, self.rates = coordinator, Rates()
        try:
            self._cohort.start(coordinator)
        except Exception:
            self._stop()
            raise

    def _stop(self) -> None:
        coordinator, self.coordinator = self.coordinator, None
        if coordinator is not None:
            self._cohort.stop(coordinator)

    def _make_policy(self, values: CoordinatorConfig, coordinator: Coordinator) -> Any:
        return self._create(values, [member.table for member in coordinator.cohort.members])

    def _create(self, values: CoordinatorConfig, tables: list[TaskTable]) -> Any:
        basis = self._basis
        assert basis is not None
        try:
            return create_policy(
                values.policy,
                basis.clock_table,
                tables,
                PolicySettings.of(values),
                workers=self._cohort.workers,
                interference=self._interference,
            )
        except (ValueError, ArithmeticError) as error:
            raise ConfigurationError(f"policy {values.policy}: {error}") from error

    @property
    def _interference(self) -> tuple[float, ...]:
        """As the files have it, else as it was measured when the tasks were loaded."""
        assert self._basis is not None
        in_files = self._basis.interference
        return in_files if len(in_files) > 1 else self._cohort.interference

    # -- reports -------------------------------------------------------------------------------

    def _report(self) -> None:
        self._cohort.watch()
        self._follow()
        coordinator, clocks, topics = self.coordinator, self._clocks, self._topics
        if coordinator is None or clocks is None or topics is None:
            return
        power, cohort = clocks.power, coordinator.cohort
        self.rates.observe(coordinator.decisions, power.energy_j, self._cohort.met)
        values = {
            "cohort_size": count_running(cohort),
            "clocks": float(cohort.clock_table.indices[cohort.clocks]),
            "power_w": power.power_w,
            "energy_per_met_frame_j": self.rates.energy_per_met_frame_j,
            "decisions_per_s": self.rates.decisions_per_s,
        }
        for member in cohort.members:
            name = member.table.task.lstrip("/")
            values[f"{name}/variant"] = member.variant
            values[f"{name}/lag_ms"] = member.lag_ns / 1e6
        topics.publish({name: value for name, value in values.items() if not math.isnan(value)})

    def _follow(self) -> None:
        """See to it that the coordinator fits the tasks and the clocks that there are."""
        coordinator, clocks = self.coordinator, self._clocks
        if not self._active or not self.parameters.enable or clocks is None:
            return
        failure = (coordinator.failure or self._cohort.failure) if coordinator is not None else ""
        if failure:
            self.policy_fault = failure
            self.get_logger().error(
                f"policy {self.parameters.policy} failed, tasks keep their last variants: "
                f"{failure}"
            )
            self._stop()
        elif self._cohort.signature() != self._signature:
            self._restart()
        elif coordinator is not None and clocks.fault:
            cohort = coordinator.cohort
            if cohort.clocks_target != clocks.position:
                with self._cohort.exclusively():
                    cohort.clocks_target, cohort.clocks_at_ns = clocks.position, 0

    def _restart(self) -> None:
        """Tasks came, went or changed: decide about those that there are now."""
        self._stop()
        try:
            self._start(self.parameters)
        except (JetsonDnnRtError, ValueError, ArithmeticError) as error:
            self.policy_fault = safe_text(error)
            self.get_logger().error(f"coordination stops: {self.policy_fault}")


def _decides(values: CoordinatorConfig) -> tuple[str, PolicySettings]:
    return values.policy, PolicySettings.of(values)
