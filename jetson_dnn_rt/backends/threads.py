# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Thread counts of the libraries, limited so that together they stay within the budget.

Where the number is set:

=============  ====================================================================================
ONNX Runtime   each session: threads of one run, no inter-op threads, no spinning
OpenVINO       each compiled network: threads of one run, one stream, not pinned
torch          each calling thread: under OpenMP the number is the thread's own (`TorchRunner`)
OpenCV         the process: `limit_opencv`
=============  ====================================================================================
"""

from __future__ import annotations

import os


def limit_opencv(threads: int) -> None:
    """Set the threads of one call of OpenCV, >= 1, in the whole process; the last call decides.

    By default it takes all cores: with two workers, preprocessing would run on twice as many
    threads as there are cores. With 1 the calling thread does everything.
    """
    import cv2

    # Setting it recreates the pool, even with the same number.
    if cv2.getNumThreads() != threads:
        cv2.setNumThreads(threads)


def count_cores() -> int:
    """Cores that the calling thread may run on."""
    return len(os.sched_getaffinity(0))
