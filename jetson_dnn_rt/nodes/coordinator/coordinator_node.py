# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The coordinator as a node: parameters, topics and diagnostics around a policy.

In the composed process it sits in the executor and decides at every stage boundary; in its own
process it decides once a frame for tasks in other processes. When it stops, tasks stay in the last
variants that kept their deadlines; it can return at any time.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.config.nodes import CoordinatorConfig, CoordinatorProcessConfig
from jetson_dnn_rt.coordinator.basis import Basis, load_basis
from jetson_dnn_rt.coordinator.clock_thread import ClockThread
from jetson_dnn_rt.coordinator.cohort import Cohort
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.policy import find_policy
from jetson_dnn_rt.coordinator.tables.tables import TaskTable
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError
from jetson_dnn_rt.nodes.coordinator.composed_cohort import ComposedCohort
from jetson_dnn_rt.nodes.coordinator.remote_cohort import RemoteCohort
from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode, on_ros_thread
from jetson_dnn_rt.nodes.process.parameters import ParameterSet
from jetson_dnn_rt.nodes.reports.diagnostics import (
    ERROR,
    OK,
    WARN,
    DiagnosticsPublisher,
    make_status,
)
from jetson_dnn_rt.nodes.reports.timing_reports import DebugTopics
from jetson_dnn_rt.safety.faults import safe_text

if TYPE_CHECKING:
    from jetson_dnn_rt.nodes.tasks.session_bridge import SessionBridge
    from jetson_dnn_rt.nodes.tasks.task_node import TaskNode

COHORT_TOPICS = ("cohort_size", "clocks", "power_w", "energy_per_met_frame_j", "decisions_per_s")
TASK_TOPICS = ("variant", "lag_ms")

REPORT_PERIOD_S = 0.1
"""Between two messages of a topic, and between two checks of the tasks."""

WINDOW_S = 1.0
"""Window over which energy is averaged: power sensors are too slow for single frames."""

RUNNING_PERIODS = 5
"""A task without a frame for this many of its periods counts as not running."""

NO_TABLES = "static"
"""The policy that needs no tables."""


@dataclass
class Rates:
    """Rates over windows of `WINDOW_S`, from counts that only grow; NaN before the first."""

    decisions_per_s: float = math.nan
    energy_per_met_frame_j: float = math.nan
    _begin_ns: int = field(default_factory=time.monotonic_ns)
    _begin: tuple[int, float, int] | None = None

    def observe(self, decisions: int, energy_j: float, met: int) -> None:
        """Take the counts of this moment."""
        now_ns, now = time.monotonic_ns(), (decisions, energy_j, met)
        before = self._begin
        if before is None or decisions < before[0] or met < before[2]:  # counted from 0 again
            self._begin_ns, self._begin = now_ns, now
            return
        seconds = (now_ns - self._begin_ns) / 1e9
        if seconds < WINDOW_S:
            return
        self.decisions_per_s = (decisions - before[0]) / seconds
        frames = met - before[2]
        # Energy of a second without a met frame goes into the next window.
        if frames == 0:
            self.energy_per_met_frame_j = math.nan
            self._begin = (decisions, before[1], met)
        else:
            self.energy_per_met_frame_j = (energy_j - before[1]) / frames
            self._begin = now
        self._begin_ns = now_ns


@dataclass(frozen=True)
class CoordinatorReport:
    """What a coordinator has decided."""

    policy: str  # that decides, or decided last
    decisions: dict[str, int]  # by policy: times that it was asked
    not_coordinated: dict[str, str]  # by task, why it has no table
    failure: str  # why no policy decides any more; empty = one does


class CoordinatorNode(ManagedNode):
    """A lifecycle node that decides on variants and clocks for all tasks together.

    `bridge` leads to the composed process' session, and `tasks` returns its task nodes by name;
    without them the tasks are in other processes. `clocks` owns the clocks while the node is
    configured, `coordinator` is the one that decides at present.
    """

    def __init__(
        self,
        name: str = "coordinator",
        *,
        bridge: SessionBridge | None = None,
        tasks: Callable[[], Mapping[str, TaskNode]] = dict,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self._declared = self.declare(CoordinatorConfig, on_change=self._apply)
        self._cohort: ComposedCohort | RemoteCohort
        if bridge is None:
            process = ParameterSet(self, CoordinatorProcessConfig)
            self._cohort = RemoteCohort(self, process.value.tasks)
        else:
            self._cohort = ComposedCohort(bridge, tasks)
        self._basis: Basis  # while `clocks` are there, like the topics
        self._topics: DebugTopics
        self.clocks: ClockThread | None = None
        self._signature: object = None
        self._active = False
        self.coordinator: Coordinator | None = None
        self._uncoordinated: dict[str, str] = {}
        self.policy_fault = ""
        self._rates = Rates()
        self._policy = ""  # that decides, or decided last
        self._decided: Counter[str] = Counter()
        self._counted = 0  # decisions of `coordinator` that are in `_decided`
        self._diagnostics = DiagnosticsPublisher(
            self, {"policy_status": self._make_status}, process=bridge is None
        )

    @property
    def parameters(self) -> CoordinatorConfig:
        """The current values."""
        return self._declared.value

    def describe_run(self) -> CoordinatorReport:
        """What it has decided so far."""
        self._count_decisions()
        return CoordinatorReport(
            self._policy or self.parameters.policy,
            dict(self._decided),
            dict(self._uncoordinated),
            self.policy_fault,
        )

    def _count_decisions(self) -> None:
        """Add the decisions since the last call to those of the present policy."""
        if (coordinator := self.coordinator) is not None:
            made = coordinator.decisions
            self._decided[self._policy] += made - self._counted
            self._counted = made

    # -- lifecycle -----------------------------------------------------------------------------

    def configure(self) -> None:
        """Open the platform, read the tables, create the publishers."""
        basis = self._basis = load_basis(self.parameters)
        for text in basis.notes:
            self.get_logger().warning(text)
        self.clocks = ClockThread(basis.platform, basis.clock_table)
        self.clocks.start()
        tasks = [name.lstrip("/") for name in self._cohort.tasks]
        names = [*COHORT_TOPICS, *(f"{task}/{name}" for task in tasks for name in TASK_TOPICS)]
        self._topics = DebugTopics(self, names, COHORT_TOPICS)
        self.create_timer(REPORT_PERIOD_S, self._report)

    # As timers start and stop coordination too, it starts and stops on the ROS thread only.

    @on_ros_thread
    def activate(self) -> None:
        """Start deciding."""
        self._active = True
        if self.parameters.enable:
            self._start(self.parameters)

    @on_ros_thread
    def deactivate(self) -> None:
        """Stop deciding."""
        self._stop()
        self._active = False

    def cleanup(self) -> None:
        """Release clocks and platform."""
        self.call_ros(self._stop)
        clocks, self.clocks = self.clocks, None
        if clocks is not None and not clocks.stop():
            self.get_logger().error(
                "the platform hangs: its clocks are restored when this process ends"
            )

    def end(self) -> None:
        """Restore the clocks at once."""
        self._active = False
        if self.clocks is not None:
            self.clocks.stop(timeout_s=0.2)
        self.cleanup()

    def restore_clocks(self) -> None:
        """Restore the clocks, whatever the ROS thread does."""
        clocks = self.clocks
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
        coordinator = self.coordinator
        if not values.enable:
            self._stop()
        elif coordinator is None:
            self._start(values)
        elif values != before:
            policy = self._create_policy(values, [m.table for m in coordinator.cohort.members])
            with self._cohort.exclusively():
                self._count_decisions()
                self._policy = values.policy
                coordinator.set_policy(policy)
            self.policy_fault = ""
            self._cohort.reconsider()

    def _start(self, values: CoordinatorConfig) -> None:
        basis, clocks = self._basis, self.clocks
        assert clocks is not None
        # Set first: after a failure, it is retried when the tasks change, not ten times a second.
        self._signature = self._cohort.signature()
        found = self._cohort.make_tables(basis.tables)
        self._uncoordinated = {task: why for task, why in found.items() if isinstance(why, str)}
        tables = [table for table in found.values() if not isinstance(table, str)]
        self.policy_fault = ""
        if values.policy != NO_TABLES:
            for task, why in self._uncoordinated.items():
                self.get_logger().warning(f"task {task} is not coordinated: {why}")
        if not tables:
            return
        policy = self._create_policy(values, tables)
        coordinator = Coordinator(
            basis.clock_table,
            tables,
            policy,
            workers=self._cohort.workers,
            interference=self._interference,
            clocks=clocks.position,
            request_clocks=clocks.request if basis.platform.writable else None,
        )
        self._policy, self._counted = values.policy, 0
        self.coordinator, self._rates = coordinator, Rates()
        try:
            self._cohort.start(coordinator)
        except Exception:
            self._stop()
            raise

    def _stop(self) -> None:
        self._count_decisions()
        coordinator, self.coordinator = self.coordinator, None
        if coordinator is not None:
            self._cohort.stop(coordinator)

    def _create_policy(self, values: CoordinatorConfig, tables: list[TaskTable]) -> Any:
        try:
            return find_policy(values.policy)(
                self._basis.clock_table,
                tables,
                values,
                workers=self._cohort.workers,
                interference=self._interference,
            )
        except (ValueError, ArithmeticError) as error:
            raise ConfigurationError(f"policy {values.policy}: {error}") from error

    @property
    def _interference(self) -> tuple[float, ...]:
        """The figures of the files, else those measured when the tasks were loaded."""
        in_files = self._basis.interference
        return in_files if len(in_files) > 1 else self._cohort.interference

    # -- reports -------------------------------------------------------------------------------

    def _report(self) -> None:
        self._cohort.watch()
        self._follow()
        coordinator, clocks = self.coordinator, self.clocks
        if coordinator is None or clocks is None:
            return
        power, cohort = clocks.power, coordinator.cohort
        self._rates.observe(coordinator.decisions, power.energy_j, self._cohort.met)
        values = {
            "cohort_size": count_running(cohort),
            "clocks": float(cohort.clock_table.indices[cohort.clocks]),
            "power_w": power.power_w,
            "energy_per_met_frame_j": self._rates.energy_per_met_frame_j,
            "decisions_per_s": self._rates.decisions_per_s,
        }
        for member in cohort.members:
            name = member.table.task.lstrip("/")
            values[f"{name}/variant"] = member.variant
            values[f"{name}/lag_ms"] = member.lag_ns / 1e6
        for name, value in values.items():
            if not math.isnan(value):
                self._topics.publish(name, value)

    def _follow(self) -> None:
        """Replace the coordinator when the tasks changed or it failed; follow the real clocks."""
        coordinator, clocks = self.coordinator, self.clocks
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
        """Start again with the present tasks, after some were added, removed or changed."""
        self._stop()
        try:
            self._start(self.parameters)
        except (JetsonDnnRtError, ValueError, ArithmeticError) as error:
            self.policy_fault = safe_text(error)
            self.get_logger().error(f"coordination stops: {self.policy_fault}")

    # -- diagnostics ---------------------------------------------------------------------------

    def _make_status(self) -> Any:
        """Make the status ``policy_status``."""
        values: dict[str, object] = {
            "state": self.state_name,
            "policy": self.parameters.policy,
            "enable": self.parameters.enable,
        }
        if self.coordinator is not None:
            values |= self._describe_decisions(self.coordinator)
        clocks = self.clocks
        if clocks is not None:
            values |= self._describe_platform(self._basis, clocks)
        values |= {f"task.{task}": text for task, text in self._cohort.states().items()}
        values |= {f"not_coordinated.{task}": why for task, why in self._uncoordinated.items()}
        level, message = self._judge()
        return make_status(level, message, values)

    def _judge(self) -> tuple[bytes, str]:
        if self.fault:
            return ERROR, self.fault
        if self.policy_fault:
            return ERROR, f"tasks keep their last variants: {self.policy_fault}"
        if self.state_name != "active":
            return OK, self.state_name
        if not self.parameters.enable:
            return OK, "disabled: tasks keep their last variants"
        policy, coordinator = self.parameters.policy, self.coordinator
        clocks = self.clocks
        if clocks is not None and clocks.fault:
            return WARN, clocks.fault
        if coordinator is None:
            return WARN, f"{policy} has no task to decide about"
        if coordinator.policy.adjusts_variants and self._uncoordinated:
            return WARN, f"{policy} does not decide about {', '.join(self._uncoordinated)}"
        if coordinator.policy.gates_frames and isinstance(self._cohort, RemoteCohort):
            return WARN, f"{policy} cannot hold back frames of other processes"
        if coordinator.policy.adjusts_clocks:
            platform = self._basis.platform
            if self.parameters.allow_clock_writes and not platform.writable:
                return WARN, f"{policy} cannot change the clocks: {platform.reason}"
            if len(self._basis.clock_table) == 1:
                return OK, f"{policy} decides; the clocks stay as they are"
        return OK, f"{policy} decides"

    def _describe_decisions(self, coordinator: Coordinator) -> dict[str, object]:
        cohort = coordinator.cohort
        values: dict[str, object] = {
            "cohort_size": count_running(cohort),
            "tasks": ", ".join(member.table.task for member in cohort.members),
            "workers": cohort.workers,
            "decisions": coordinator.decisions,
            "decisions_per_s": self._rates.decisions_per_s,
            "switches": coordinator.switches,
            "clocks": cohort.clock_table.describe(cohort.clocks),
            "clock_configurations": len(cohort.clock_table),
        }
        for member in cohort.members:
            task, table = member.table.task, member.table
            out = [v for v, there in zip(table.variants, member.usable, strict=True) if not there]
            values |= {
                f"{task}.variant": table.variants[member.variant],
                f"{task}.lag_ms": member.lag_ns / 1e6,
                f"{task}.misses_in_a_row": member.misses_in_a_row,
                f"{task}.slowdown": member.slowdown.mean,
                f"{task}.accuracy": ", ".join(
                    f"{name} {table.accuracy(v):.3f}" for v, name in enumerate(table.variants)
                ),
                f"{task}.unusable": ", ".join(out) or "none",
            }
        return values

    def _describe_platform(self, basis: Basis, clocks: ClockThread) -> dict[str, object]:
        power, platform = clocks.power, basis.platform
        return {
            "platform": platform.title,
            "clocks_writable": platform.writable,
            "clocks_reason": platform.reason or "none",
            "clock_writes": clocks.writes,
            "power_w": power.power_w,
            "power_in_tables": (
                "measured" if basis.power_measured else "not measured: busy seconds"
            ),
            "energy_per_met_frame_j": self._rates.energy_per_met_frame_j,
            **{f"rail.{rail}_w": watts for rail, watts in power.rails_w.items()},
        }


def count_running(cohort: Cohort) -> int:
    """Size of the cohort: tasks that get frames."""
    now_ns = time.monotonic_ns()
    return sum(
        member.last_release_ns is not None
        and now_ns - member.last_release_ns < RUNNING_PERIODS * member.table.period_ns
        for member in cohort.members
    )
