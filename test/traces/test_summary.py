"""Statistics of a run, against figures worked out by hand."""

from __future__ import annotations

import pytest

from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord
from jetson_dnn_rt.traces.summary import RunSummary, order_statistic, summarize_ms

MS = 1_000_000


def make_record(
    sequence: int,
    response_ms: int,
    *,
    outcome: Outcome = Outcome.MET,
    execution_ms: int = 5,
    waiting_ms: int = 0,
    started: bool = True,
    variant: str = "full@null-fp32",
    task: str = "detector",
    reason: str = "",
) -> JobRecord:
    release_ns = sequence * 40 * MS
    stage = StageRecord("inference", variant, release_ns, release_ns + execution_ms * MS)
    return JobRecord(
        task=task,
        sequence=sequence,
        variant=variant,
        outcome=outcome,
        reason=reason,
        capture_ns=release_ns - MS,
        release_ns=release_ns,
        start_ns=release_ns if started else None,
        completion_ns=release_ns + response_ms * MS,
        absolute_deadline_ns=release_ns + 20 * MS,
        waiting_ns=waiting_ms * MS,
        lag_ns=0,
        admission=Admission.BUDGET,
        stages=(stage,) if started else (),
    )


@pytest.mark.parametrize(
    ("quantile", "expected"), [(0.01, 1), (0.5, 50), (0.501, 51), (0.99, 99), (1.0, 100)]
)
def test_order_statistic_is_the_smallest_value_that_covers_the_share(
    quantile: float, expected: int
) -> None:
    assert order_statistic(range(1, 101), quantile) == expected


def test_order_statistic_of_one_value() -> None:
    assert order_statistic([7], 0.5) == order_statistic([7], 0.99) == 7


@pytest.mark.parametrize(("values", "quantile"), [([], 0.5), ([1], 0.0), ([1], 1.01)])
def test_order_statistic_refuses_what_has_no_answer(values: list[int], quantile: float) -> None:
    with pytest.raises(ValueError, match=r"ordered|quantile"):
        order_statistic(values, quantile)


def test_summarize_takes_times_in_any_order() -> None:
    times_ns = [3 * MS, MS, 2 * MS]
    assert summarize_ms(times_ns) == {"p50": 2.0, "p99": 3.0, "max": 3.0}


def test_nothing_observed_is_null_and_not_zero() -> None:
    assert summarize_ms([]) == {"p50": None, "p99": None, "max": None}


def test_task_of_four_jobs_by_hand() -> None:
    summary = RunSummary(["detector"])
    summary.add(make_record(0, 10, waiting_ms=3))  # overhead 2
    summary.add(make_record(1, 25, outcome=Outcome.LATE, execution_ms=24, variant="b@null-fp32"))
    summary.add(make_record(2, 0, outcome=Outcome.SKIPPED, started=False, reason="budget"))
    summary.add(make_record(3, 7, outcome=Outcome.ABORTED, reason="budget"))

    task = summary.to_dict()["detector"]

    assert task == {
        "released": 4,
        "outcomes": {
            "met": 1,
            "late": 1,
            "skipped": 1,
            "aborted": 1,
            "superseded": 0,
            "failed": 0,
        },
        "deadline_ms": 20.0,
        "response_ms": {"p50": 10.0, "p99": 25.0, "max": 25.0},
        "execution_ms": {"p50": 5.0, "p99": 24.0, "max": 24.0},
        "overhead_ms": {"p50": 1.0, "p99": 2.0, "max": 2.0},
        "variants": {"full@null-fp32": 2 / 3, "b@null-fp32": 1 / 3},
    }
    assert summary.tasks["detector"].met_ratio == 0.25
    assert summary.tasks["detector"].reasons == {"skipped: budget": 1, "aborted: budget": 1}


def test_a_task_without_frames_is_shown_with_zeros() -> None:
    task = RunSummary(["segmenter"]).to_dict()["segmenter"]
    assert isinstance(task, dict)
    assert task["released"] == 0
    assert task["variants"] == {}
    assert set(task["outcomes"].values()) == {0}


def test_tasks_are_kept_apart() -> None:
    summary = RunSummary()
    summary.add(make_record(0, 10, task="a"))
    summary.add(make_record(0, 10, task="b"))
    summary.add(make_record(1, 10, task="b"))
    assert {name: task.released for name, task in summary.tasks.items()} == {"a": 1, "b": 2}
