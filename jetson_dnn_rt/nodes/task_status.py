"""The status of a task in the diagnostics: outcomes, budgets, verdict, real-time settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_dnn_rt.nodes.diagnostics import ERROR, OK, WARN, ProcessingLimits, make_status

if TYPE_CHECKING:
    from diagnostic_msgs.msg import DiagnosticStatus

    from jetson_dnn_rt.executor.executor import TaskSnapshot
    from jetson_dnn_rt.nodes.host import Host
    from jetson_dnn_rt.nodes.loading import LoadedTask
    from jetson_dnn_rt.nodes.task_node import TaskNode
    from jetson_dnn_rt.nodes.task_timing import TimingSnapshot


def processing_limits(node: TaskNode) -> ProcessingLimits:
    """Limits of a task's processing time: its own, else its deadline."""
    values = node.parameters
    allowed_ms = values.allowed_processing_ms or values.deadline_ms
    return ProcessingLimits(allowed_ms or 1000.0 / node.frequency_hz, values.acceptable_delay_ms)


def task_status(node: TaskNode, timing: TimingSnapshot) -> DiagnosticStatus:
    """Make the status ``<node>: task_status``."""
    values: dict[str, object] = {
        "state": node.state_name,
        "model": node.parameters.model,
        "kind": node.parameters.kind,
    }
    level, message = OK, node.state_name
    if node.fault:
        level, message = ERROR, node.fault
    snapshot = node.snapshot
    if snapshot is not None:
        values |= _counts(snapshot, node.published)
        if snapshot.suspended:
            level, message = ERROR, f"suspended: {snapshot.suspended}"
        elif snapshot.withdrawn:
            level, message = WARN, "withdrawn: " + ", ".join(snapshot.withdrawn)
    if node.loaded is not None:
        values |= _variants(node.loaded, node.build_progress)
        lost = set(node.loaded.left_out) - set(node.loaded.missing)
        if level == OK and lost:
            level, message = WARN, "left out: " + ", ".join(sorted(lost))
    for variant, figures in timing.percentiles.items():
        values |= {f"{variant}.{key}_ms": value for key, value in figures.items()}
    values |= {"deadline_misses": timing.misses, "deadline_miss_ratio": timing.miss_ratio}
    values |= host_values(node.host)
    verdict = node.host.verdict
    active = level == OK and node.state_name == "active"
    if active and verdict is not None and verdict.schedulable is not True:
        level, message = WARN, str(verdict)
    return make_status(f"{node.get_name()}: task_status", level, message, values)


def _variants(loaded: LoadedTask, build_progress: str) -> dict[str, object]:
    """What is loaded, what is not and why, and how far its building is."""
    values: dict[str, object] = {
        "stages": len(loaded.stage_names) - 2,
        "variants": ", ".join(loaded.variant_names),
        "memory_mb": loaded.memory_bytes / 1e6,
        "left_out": ", ".join(loaded.left_out) or "none",
    }
    values |= {f"left_out.{variant}": why for variant, why in loaded.left_out.items()}
    if build_progress:
        values["build"] = build_progress
    return values


def host_values(host: Host) -> dict[str, object]:
    """Verdict and real-time settings of a process."""
    values: dict[str, object] = {}
    if host.verdict is not None:
        values["schedulable"] = host.verdict.schedulable
        values["utilization"] = host.verdict.utilization
        values["schedulability"] = str(host.verdict)
    if host.realtime is not None:
        for setting in host.realtime.settings:
            state = "applied" if setting.applied else "NOT applied"
            values[f"realtime.{setting.name}"] = f"{state}: {setting.detail}"
    return values


def _counts(snapshot: TaskSnapshot, published: int) -> dict[str, object]:
    parameters = snapshot.parameters
    values: dict[str, object] = {
        "variant": parameters.variant,
        "deadline_ms": parameters.deadline_ns / 1e6,
        "released": snapshot.released,
        "published": published,
    }
    values |= {f"outcome.{o.value}": n for o, n in snapshot.outcomes.items()}
    values |= {f"reason.{reason}": count for reason, count in sorted(snapshot.reasons.items())}
    values |= {
        f"budget_ms.{variant}": " + ".join(f"{b:.3f}" for b in budgets)
        for variant, budgets in snapshot.budgets_ms.items()
    }
    values |= {f"withdrawn.{variant}": why for variant, why in snapshot.withdrawn.items()}
    return values
