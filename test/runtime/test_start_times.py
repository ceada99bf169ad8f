# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The parts of a start add up to the whole."""

import os
import subprocess
import sys
import time

from jetson_dnn_rt.runtime.start_times import StartTimes

S = 1_000_000_000


def test_parts_begin_where_others_end():
    now_ns = 10 * S
    times = StartTimes(8 * S, lambda: now_ns)
    times.end("imports", at_ns=9 * S)
    times.end("nodes")
    now_ns = 12 * S
    times.end("detector", {"model": S // 2, "variants": S})
    now_ns = 12 * S + 1_000_000  # too short to be told
    times.end("sharing")
    times.end("nodes", at_ns=11 * S)  # a time before the last part's end takes nothing
    now_ns = 15 * S
    times.end("nodes")
    assert str(times) == (
        "first result after 7.00 s: imports 1.00, nodes 4.00, detector 2.00 (model 0.50, variants "
        "1.00)"
    )


def test_birth_of_a_process_is_when_it_was_started():
    tick_ns = S // os.sysconf("SC_CLK_TCK")
    code = "from jetson_dnn_rt.runtime import start_times; print(start_times.find_birth_ns())"
    begin_ns = time.monotonic_ns()
    birth_ns = int(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE).stdout)
    assert begin_ns - tick_ns <= birth_ns <= time.monotonic_ns()
