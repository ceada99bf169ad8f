# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Records of jobs that ended, and the tasks that they are of."""

from __future__ import annotations

from jetson_dnn_rt.nodes.process.graph import TaskInfo
from jetson_dnn_rt.tasks import Admission, JobRecord, Outcome, StageRecord
from jetson_dnn_rt.traces.schema import TracedTask

TASKS = {
    "detector": TaskInfo(TracedTask(), "detection", ("person", "bicycle", "car"), "full@null"),
    "segmenter": TaskInfo(TracedTask(), "segmentation", ("road", "sky"), "full@null"),
}


def make_record(task, sequence=0, outcome=Outcome.MET):
    stages = (StageRecord("inference", "full@null", 10, 30),)
    return JobRecord(
        task, sequence, "full@null", outcome, "", 0, 5, 10, 35, 100, 0, 0, Admission.BUDGET, stages
    )
