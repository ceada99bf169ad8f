"""The status of the coordinator in the diagnostics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jetson_dnn_rt.nodes.reports.diagnostics import ERROR, OK, WARN, make_status

if TYPE_CHECKING:
    from diagnostic_msgs.msg import DiagnosticStatus

    from jetson_dnn_rt.coordinator.cohort import Cohort
    from jetson_dnn_rt.coordinator.coordinator import Coordinator
    from jetson_dnn_rt.nodes.coordinator.coordinator_node import CoordinatorNode


RUNNING_PERIODS = 5
"""A task that was given no frame for so many of its periods does not run at present."""


def count_running(cohort: Cohort) -> int:
    """Size of the cohort: tasks that frames come to."""
    now_ns = time.monotonic_ns()
    return sum(
        member.last_release_ns is not None
        and now_ns - member.last_release_ns < RUNNING_PERIODS * member.table.period_ns
        for member in cohort.members
    )


def policy_status(node: CoordinatorNode) -> DiagnosticStatus:
    """Make the status ``<node>: policy_status``."""
    values: dict[str, object] = {
        "state": node.state_name,
        "policy": node.parameters.policy,
        "enable": node.parameters.enable,
    }
    coordinator = node.coordinator
    if coordinator is not None:
        values |= _decisions(node, coordinator)
    values |= _platform(node)
    values |= {f"task.{task}": text for task, text in node.task_states().items()}
    values |= {f"not_coordinated.{task}": why for task, why in node.uncoordinated.items()}
    level, message = _judge(node)
    return make_status(f"{node.get_name()}: policy_status", level, message, values)


def _judge(node: CoordinatorNode) -> tuple[bytes, str]:
    if node.fault:
        return ERROR, node.fault
    if node.policy_fault:
        return ERROR, f"tasks keep their last variants: {node.policy_fault}"
    if node.state_name != "active":
        return OK, node.state_name
    if not node.parameters.enable:
        return OK, "disabled: tasks keep their last variants"
    policy = node.parameters.policy
    if node.clocks is not None and node.clocks.fault:
        return WARN, node.clocks.fault
    if node.coordinator is None:
        return WARN, f"{policy} has no task to decide about"
    if node.coordinator.policy.adjusts_variants and node.uncoordinated:
        return WARN, f"{policy} does not decide about {', '.join(node.uncoordinated)}"
    basis = node.basis
    assert basis is not None
    if not node.coordinator.policy.adjusts_clocks:
        return OK, f"{policy} decides"
    if node.parameters.allow_clock_writes and not basis.platform.writable:
        return WARN, f"{policy} cannot change the clocks: {basis.platform.reason}"
    if len(basis.clock_table) == 1:
        return OK, f"{policy} decides; the clocks stay as they are"
    return OK, f"{policy} decides"


def _decisions(node: CoordinatorNode, coordinator: Coordinator) -> dict[str, object]:
    cohort = coordinator.cohort
    values: dict[str, object] = {
        "cohort_size": count_running(cohort),
        "tasks": ", ".join(member.table.task for member in cohort.members),
        "workers": cohort.workers,
        "decisions": coordinator.decisions,
        "decisions_per_s": node.rates.decisions_per_s,
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


def _platform(node: CoordinatorNode) -> dict[str, object]:
    basis, clocks = node.basis, node.clocks
    if basis is None or clocks is None:
        return {}
    power = clocks.power
    return {
        "platform": basis.platform.title,
        "clocks_writable": basis.platform.writable,
        "clocks_reason": basis.platform.reason or "none",
        "clock_writes": clocks.writes,
        "power_w": power.power_w,
        "power_in_tables": "measured" if basis.power_measured else "not measured: busy seconds",
        "energy_per_met_frame_j": node.rates.energy_per_met_frame_j,
        **{f"rail.{rail}_w": watts for rail, watts in power.rails_w.items()},
    }
