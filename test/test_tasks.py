# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

import pytest

from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord, TaskParameters


def test_times_of_a_record():
    stages = (StageRecord("one", "v", 20, 25), StageRecord("two", "v", 30, 37))
    record = JobRecord(
        "a", 0, "v", Outcome.LATE, "", 5, 10, 20, 40, 38, 11, 0, Admission.BUDGET, stages
    )
    assert record.execution_time_ns == 12
    assert record.response_time_ns == 30
    assert record.lateness_ns == 2
    assert record.overhead_ns == 30 - 12 - 11


@pytest.mark.parametrize(
    ("end_ns", "reason", "outcome", "lag_ns"),
    [
        (40, "", Outcome.MET, 0),
        (35, "", Outcome.MET, 5),
        (41, "", Outcome.LATE, -1),
        (20, "stage: no", Outcome.FAILED, 20),
    ],
)
def test_a_frame_that_ran_alone_is_judged_against_its_deadline(end_ns, reason, outcome, lag_ns):
    stages = (StageRecord("first", "v", 10, end_ns),)
    record = JobRecord.alone("a", 3, "v", (10, end_ns, 30), stages, reason)
    assert (record.outcome, record.reason, record.lag_ns) == (outcome, reason, lag_ns)
    assert (record.capture_ns, record.release_ns, record.start_ns) == (10, 10, 10)
    assert record.absolute_deadline_ns == 40
    assert record.overhead_ns == record.waiting_ns == 0


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"deadline_ns": 0}, "deadline_ns"),
        ({"period_ns": -1}, "period_ns"),
        ({"max_age_ns": -1}, "max_age_ns"),
        ({"stages": ()}, "stage"),
        ({"variant": "other"}, "variant"),
        ({"budget_quantile": 1.5}, "budget_quantile"),
        ({"met_of": (3, 2)}, "met_of"),
        ({"met_of": (0, 2)}, "met_of"),
        ({"met_of": (1,)}, "met_of"),
    ],
)
def test_bad_task_parameters_name_the_argument(change, name):
    good = {
        "name": "a",
        "deadline_ns": 1,
        "period_ns": 1,
        "stages": ("only",),
        "variants": ("v",),
        "variant": "v",
    }
    with pytest.raises(ValueError, match=name):
        TaskParameters(**{**good, **change})
