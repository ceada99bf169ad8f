# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What a frame's time costs in mode `streaming`: results age while it runs.

Streaming accuracy judges the newest result at every moment (Li, Wang, Ramanan, ECCV 2020). If the
accuracy of a result falls with its age as ``exp(-age / lifetime)``, that of a variant is worth
``(1 - loss) exp(-age / lifetime)``. Its logarithm is ``-loss - age / lifetime`` for small losses,
and is what this mode adds up over the tasks: a plan costs its loss, and the ages that its time
adds in lifetimes. A more accurate variant runs where its gain pays its delay.
"""

from __future__ import annotations

from collections.abc import Sequence

from jetson_dnn_rt.coordinator.tables.tables import TaskTable


def find_aging(tables: Sequence[TaskTable], workers: int) -> float:
    """Find the age that a nanosecond more of one frame adds to all results together, in ns.

    Derived: its own result is a nanosecond older. Of the others, which are released with it, half
    run after it and wait as much longer, shared among the workers. Where the most accurate
    variants are more work than the workers can do, results also come less often: each lasts half
    a nanosecond longer on average, whosever it is.
    """
    work = sum(int(table.median_ns[0].sum()) / table.period_ns for table in tables)
    lasting = 0.5 if work > workers else 0.0
    return 1.0 + lasting + (len(tables) - 1) / workers * (0.5 + lasting)
