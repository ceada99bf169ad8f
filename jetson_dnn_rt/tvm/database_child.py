# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Reads a tuning database in a child process without rights: TVM crashes at odd kernels.

See `jetson_dnn_rt.safety.sandbox`. Imports at the top are made before rights are dropped.
"""

from __future__ import annotations

import contextlib
import json

with contextlib.suppress(ImportError):  # where TVM is missing, nobody calls what is below
    from tvm.s_tir.meta_schedule.database import TuningRecord, Workload


def read(data: bytes) -> int:
    """Read kernels and apply each record to its kernel; the number of records.

    `data` is JSON: the lines of the two files of a `TuningDatabase`, which were checked.
    """
    kernels, records = json.loads(data)
    if any('"Tensorize"' in line for line in records):
        import tvm.s_tir.tensor_intrin  # noqa: F401  # which takes half a minute
    read_kernels = [Workload.from_json(json.loads(line)) for line in kernels]
    for line in records:
        number, record = json.loads(line)
        TuningRecord.from_json(record, read_kernels[number])
    return len(records)
