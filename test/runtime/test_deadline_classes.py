"""Works carry the deadline class of their task, by which a GPU chooses between streams."""

import numpy as np

from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.tasks import Stage, TaskParameters

MS = 1_000_000
PLAIN = RealtimeConfig(gc_freeze=False, mallopt=False, switch_interval_us=0)


class Tasks:
    """An executor whose stages note the class that they were given."""

    def __init__(self):
        self.executor = Executor(realtime=PLAIN)
        self.seen = {}

    def add(self, name, deadline_ms):
        def run(work):
            self.seen[name] = work.urgency

        self.executor.add_task(
            TaskParameters(name, deadline_ms * MS, deadline_ms * MS, ("s",), ("v",), "v"),
            {"v": [Stage("s", run)]},
            lambda record, work: None,
        )

    def classes(self):
        self.seen.clear()
        names = list(self.executor._tasks)
        frame = Frame(np.zeros((2, 2, 3), np.uint8), "bgr8", 0, 0)
        self.executor.submit(names, frame, self.executor.clock.now_ns())
        assert self.executor.wait_idle(10.0)
        return self.seen


def test_shorter_deadlines_are_higher_classes():
    tasks = Tasks()
    tasks.executor.start()
    try:
        tasks.add("slow", 90_000)
        assert tasks.classes() == {"slow": 0}
        tasks.add("fast", 10_000)
        tasks.add("middle", 40_000)
        tasks.add("also fast", 10_000)
        assert tasks.classes() == {"slow": 0, "middle": 1, "fast": 2, "also fast": 2}
        tasks.executor.set_deadline("slow", 5_000 * MS)
        assert tasks.classes() == {"middle": 0, "fast": 1, "also fast": 1, "slow": 2}
        tasks.executor.remove_task("middle")
        assert tasks.classes() == {"fast": 0, "also fast": 0, "slow": 1}
    finally:
        assert tasks.executor.stop(5.0)
