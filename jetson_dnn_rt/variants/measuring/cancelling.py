# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""How long a run takes to end when it is told to: at most about its longest operator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from jetson_dnn_rt.errors import ModelError, RunCancelledError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.tasks import Stage, Work

CANCELS = 10  # runs of a variant that are told to end, to measure how long that takes

TIMEOUT_S = 60.0

_FIRST, _LAST = 0.1, 0.9
"""Moments of the first and the last order, in shares of the usual time of the run."""


def time_cancel(
    run: Callable[[], object], cancel: Callable[[], None], pause_ns: float
) -> int | None:
    """Time from the order to the end of a run on another thread; None if it was done before.

    The order comes `pause_ns` after the run began. `ModelError` when it does not end at all.
    """
    begun = threading.Event()
    ended: list[tuple[int, BaseException | None]] = []

    def work() -> None:
        begun.set()
        error: BaseException | None = None
        try:
            run()
        except BaseException as raised:
            error = raised
        ended.append((time.perf_counter_ns(), error))

    thread = threading.Thread(target=work, name="cancelled-run", daemon=True)
    thread.start()
    begun.wait(TIMEOUT_S)
    time.sleep(pause_ns / 1e9)
    asked_ns = time.perf_counter_ns()
    cancel()
    thread.join(TIMEOUT_S)
    if not ended:
        raise ModelError(f"a run that was told to end still runs after {TIMEOUT_S:g} s")
    (ended_ns, error), *_ = ended
    if error is None:
        return None
    if not isinstance(error, RunCancelledError):
        raise error
    return ended_ns - asked_ns


def measure_cancels(
    stages: Sequence[Stage], frame: Frame, runs: Sequence[Sequence[int]]
) -> list[int]:
    """Latencies of cancels in the longest stage that can be cancelled; empty where none can.

    `runs` are times of the stages, run by run. The orders are spread over the stage; those that
    came too late give none.
    """
    times_ns = [sorted(times)[len(times) // 2] for times in zip(*runs, strict=True)]
    able = [index for index, stage in enumerate(stages) if stage.cancel is not None]
    if not able:
        return []
    index = max(able, key=lambda index: times_ns[index])
    stage, latencies_ns = stages[index], []
    assert stage.cancel is not None
    for number in range(CANCELS):
        work = Work(frame)
        for before in stages[:index]:
            before.run(work)
        share = _FIRST + (_LAST - _FIRST) * number / (CANCELS - 1)
        run = partial(stage.run, work)
        latency_ns = time_cancel(run, stage.cancel, share * times_ns[index])
        if latency_ns is not None:
            latencies_ns.append(latency_ns)
    return latencies_ns
