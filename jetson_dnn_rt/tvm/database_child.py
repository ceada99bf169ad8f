# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Reads a tuning database in a child process without rights: TVM crashes at odd kernels.

See `jetson_dnn_rt.safety.sandbox`. Imports at the top are made before rights are dropped.
"""

from __future__ import annotations

import contextlib
import json

from jetson_dnn_rt.tvm.records import register_intrinsics

with contextlib.suppress(ImportError):  # where TVM is missing, nobody calls what is below
    from tvm.s_tir.meta_schedule.database import TuningRecord, Workload


def read(data: bytes) -> int:
    """Read kernels and apply each record to its kernel; the number of records.

    `data` is JSON: the two files of a `TuningDatabase` as texts, which were checked.
    """
    kernels, records = (text.encode() for text in json.loads(data))
    register_intrinsics(records)
    read_kernels = [Workload.from_json(json.loads(line)) for line in kernels.splitlines()]
    lines = records.splitlines()
    for line in lines:
        number, record = json.loads(line)
        TuningRecord.from_json(record, read_kernels[number])
    return len(lines)
