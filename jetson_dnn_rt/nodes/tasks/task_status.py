# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Values of a task in the diagnostics: outcomes, budgets, verdict, trace; drift."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.reports.diagnostics import OK, WARN, make_status
from jetson_dnn_rt.traces.drift import LEARNED_TIMES

if TYPE_CHECKING:
    from diagnostic_msgs.msg import DiagnosticStatus

    from jetson_dnn_rt.runtime.building.background_build import BackgroundBuild
    from jetson_dnn_rt.runtime.drift_watch import DriftSnapshot, DriftState
    from jetson_dnn_rt.runtime.session import Session
    from jetson_dnn_rt.runtime.task import Task
    from jetson_dnn_rt.runtime.task_entry import TaskSnapshot


def drift_status(drift: DriftSnapshot) -> DiagnosticStatus:
    """Make the status ``drift_status``: whether times still match the profile."""
    values: dict[str, object] = {"profile": drift.source or f"first {LEARNED_TIMES} frames"}
    for state in drift.states:
        values |= {
            f"{state.title}.profiled_p99_ms": state.p99_ms,
            f"{state.title}.profiled_frames": state.profiled,
            f"{state.title}.judged_frames": state.judged,
            f"{state.title}.recent_exceedance": state.recent,
            f"{state.title}.level": state.level,
            f"{state.title}.alarms": state.alarms,
        }
    if drift.unknown:
        values["not_profiled"] = ", ".join(drift.unknown)
    level, message = _judge_drift(drift)
    return make_status(level, message, values)


def _judge_drift(drift: DriftSnapshot) -> tuple[bytes, str]:
    alarms = [state for state in drift.states if state.alarm]
    if alarms:
        texts = "; ".join(map(_describe_drift, alarms))
        return WARN, f"times no longer match the profile: {texts}"
    if any(state.judged for state in drift.states):
        return OK, "times match the profile"
    if drift.states and not drift.source:
        first = drift.states[0]
        return OK, f"learning: {first.profiled} of {LEARNED_TIMES} frames of {first.title}"
    if drift.unknown:
        return OK, "not profiled: " + ", ".join(drift.unknown)
    return OK, "no frame yet"


def _describe_drift(state: DriftState) -> str:
    return (
        f"{state.title}: {100 * state.recent:.0f} % of the last frames took longer than its p99 "
        f"of {state.p99_ms:.2f} ms"
    )


def describe_variants(loaded: Task, build: BackgroundBuild | None) -> dict[str, object]:
    """Variants that are loaded, the others with the reason, and the progress of a build."""
    values: dict[str, object] = {
        "stages": len(loaded.stage_names) - 2,
        **({"stages_chosen": str(chosen)} if (chosen := loaded.variants.free_cuts) else {}),
        "variants": ", ".join(loaded.variant_names),
        "memory_mb": loaded.memory_bytes / 1e6,
        "input": loaded.variants.describe_input(),
        "input_plans": loaded.variants.pipelines[loaded.default].processor.planned,
        "left_out": ", ".join(loaded.left_out) or "none",
    }
    values |= {f"left_out.{variant}": why for variant, why in loaded.left_out.items()}
    if build is not None:
        values["build"] = build.progress
    return values


def session_values(session: Session) -> dict[str, object]:
    """Verdicts, of now and of the start, and real-time settings of a process."""
    values: dict[str, object] = {}
    try:
        executor = session.executor
    except ConfigurationError:  # it does not run
        executor = None
    if executor is not None:
        values |= {"workers": session.split.workers, "threads": session.split.threads}
        values |= executor.describe()
    if (choice := session.split_choice) is not None:
        values |= {"split": str(choice), "split_review": session.review_split() or "none"}
    if session.cohort_slowdown:
        factors = (f"{count}: {factor:.2f}" for count, factor in session.cohort_slowdown.items())
        values["cohort_slowdown_at_start"] = ", ".join(factors)
    if (present := session.judge()) is not None:
        values["schedulable"] = present.verdict.schedulable
        values["utilization"] = present.verdict.utilization
        values["schedulability"] = str(present.verdict)
        values["rates"] = present.describe_rates()
        values["schedulability_at_start"] = str(session.verdict)
    if executor is not None:
        for setting in executor.realtime.settings:
            state = "applied" if setting.applied else "NOT applied"
            values[f"realtime.{setting.name}"] = f"{state}: {setting.detail}"
    values |= session.describe_trace()[1]
    return values


def explain_limit(snapshot: TaskSnapshot) -> str:
    """Explain that the weakly hard limit of a task is violated now; empty while it holds."""
    limit = snapshot.limit
    if limit is None or limit.distance:
        return ""
    few = f"fewer than {limit.least} of the last {limit.frames} frames were met"
    return f"{limit} is violated: {few}"


def describe_counts(snapshot: TaskSnapshot, published: int) -> dict[str, object]:
    """Outcomes, budgets and withdrawn variants of a task."""
    parameters = snapshot.parameters
    values: dict[str, object] = {
        "variant": parameters.variant,
        "deadline_ms": parameters.deadline_ns / 1e6,
        "released": snapshot.released,
        "published": published,
    }
    values |= {f"outcome.{o.value}": n for o, n in snapshot.outcomes.items()}
    values |= {f"reason.{reason}": count for reason, count in sorted(snapshot.reasons.items())}
    if (limit := snapshot.limit) is not None:
        values |= {
            "met_of": list(parameters.met_of),
            "met_of_distance": limit.distance,
            "met_of_violations": limit.violations,
        }
    values |= {
        f"budget_ms.{variant}": " + ".join(f"{b:.3f}" for b in budgets)
        for variant, budgets in snapshot.budgets_ms.items()
    }
    values |= {
        f"cpu_ms.{variant}": ", ".join(
            f"{stage} {cpu_ms:.2f} of {wall_ms:.2f}" for stage, (wall_ms, cpu_ms) in stages.items()
        )
        for variant, stages in snapshot.stage_ms.items()
    }
    values |= {f"cancel_ms.{v}": f"{ms:.3f}" for v, ms in snapshot.cancel_ms.items()}
    if snapshot.last_failure:
        values["last_failure"] = snapshot.last_failure
    values["hanging_threads"] = snapshot.hangs
    values |= {f"withdrawn.{variant}": why for variant, why in snapshot.withdrawn.items()}
    return values
