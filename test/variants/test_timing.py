import numpy as np

from jetson_dnn_rt.clock import VirtualClock
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.tasks import Stage
from jetson_dnn_rt.variants.measuring.timing import DISCARDED_RUNS, measure_stages


class SteppingClock(VirtualClock):
    """Moves only when a stage says so; one thread."""

    def step(self, time_ns):
        self._now_ns += time_ns


def test_cold_runs_are_discarded_and_every_stage_is_timed():
    clock = SteppingClock()
    frame = Frame(np.zeros((2, 2, 3), np.uint8), "bgr8", 0, 0)
    runs = []

    def first(work):
        runs.append(work)
        clock.step(1000 if len(runs) <= DISCARDED_RUNS else 5)

    stages = [Stage("first", first), Stage("second", lambda work: clock.step(7))]
    assert measure_stages(stages, [frame], 2, clock) == [(5, 7), (5, 7)]
    assert len(runs) == 2 + DISCARDED_RUNS
    assert len(set(map(id, runs))) == len(runs)


def test_zero_runs_run_nothing():
    frame = Frame(np.zeros((2, 2, 3), np.uint8), "bgr8", 0, 0)

    def fail(work):
        raise AssertionError

    assert measure_stages([Stage("only", fail)], [frame], 0, VirtualClock()) == []


def test_frames_are_taken_in_turn():
    frames = [Frame(np.zeros((2, 2, 3), np.uint8), "bgr8", 0, n) for n in range(3)]
    seen = []
    stages = [Stage("only", lambda work: seen.append(work.frame.sequence))]
    measure_stages(stages, frames, 4, SteppingClock())
    assert seen == [0, 1, 2, 0, 1, 2, 0]
