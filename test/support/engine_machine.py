# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The scheduling engine as a state machine: every call that a driver may make, in any order.

A driver here is as unkind as threads can be: workers ask for work late or never, stages end in any
order, hang and come back after they were given up, tasks come, go and change while jobs run. After
every transition each job that was released has exactly one place or exactly one outcome.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from virtual_drive import IMAGE, make_task

from jetson_dnn_rt.config.process import DISCIPLINES
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.scheduling.selection import Gate, StaticSelector
from jetson_dnn_rt.scheduling.task_state import Run, TaskState
from jetson_dnn_rt.tasks import Admission, Work

NAMES, VARIANTS, GROUP = "abcd", ("v", "w"), "g"
STAGES = ("preprocess", "inference", "decode")
CUDA_LIMIT = 1
SHARES = {
    "release": 40, "take": 40, "boundary": 32, "advance": 16, "reject": 4, "fail": 6,
    "give_up": 3, "come_back": 3, "cancel": 6, "add_task": 3, "remove_task": 3, "flush": 4,
    "change": 8, "set_selector": 2, "know_batches": 3, "recover": 3,
}  # fmt: skip
OPERATIONS = tuple(name for name, share in SHARES.items() for _ in range(share))
"""What a driver may do, each so often."""


class Moody(StaticSelector):
    """A selector whose answers follow from the numbers of the jobs."""

    def choose(self, state: TaskState, job: Job, now_ns: int) -> str:
        return VARIANTS[(job.sequence + job.next_stage) % 2]

    def allowed(self, state: TaskState, job: Job) -> tuple[str, ...]:
        return VARIANTS

    def gate(self, state: TaskState, job: Job, now_ns: int) -> Gate:
        return (Gate.OPEN, Gate.OPEN, Gate.HELD, Gate.CLOSED)[job.sequence % 4]


class Raising(Moody):
    """One that breaks down in the middle."""

    def passed(self, state: TaskState, job: Job, now_ns: int) -> None:
        if job.sequence % 5 == 4:
            raise ValueError("a policy with a fault")


SELECTORS = (StaticSelector, Moody, Raising)


class EngineMachine(RuleBasedStateMachine):
    """An engine, what runs, and what was seen of its jobs."""

    transitions: ClassVar[Counter[str]] = Counter()
    """By operation, of all machines so far."""
    _make_engine = Engine

    @initialize(
        workers=st.integers(1, 3),
        helpers=st.sampled_from((0, 0, 1)),
        discipline=st.sampled_from(DISCIPLINES),
        limited=st.booleans(),
        cancels=st.booleans(),
        batches=st.booleans(),
        tasks=st.lists(st.integers(0, 1008), min_size=1, max_size=4),
    )
    def begin(
        self,
        workers: int,
        helpers: int,
        discipline: str,
        limited: bool,
        cancels: bool,
        batches: bool,
        tasks: list[int],
    ) -> None:
        limits = {"cuda": CUDA_LIMIT} if limited else {}
        self.engine = self._make_engine(workers, discipline, limits, helpers, cancels)
        self.limited, self.batches = limited, batches
        self.now, self.sequence = 1, 0
        self.running: dict[Job, int] = {}  # since when
        self.left_behind: list[tuple[Job, int]] = []  # given up, their stages go on
        self.layouts: dict[str, dict[str, list[Run]]] = {}
        self.released: dict[Job, str] = {}  # that have no outcome yet
        self.released_by: Counter[str] = Counter()
        self.ended: set[int] = set()
        self.failed, self.woken = False, True
        self.kept: list[Job] = []  # lest a number is used again
        for name, value in zip(NAMES, tasks, strict=False):
            self._add(name, value)

    # -- transitions ---------------------------------------------------------------------------

    @rule(words=st.binary(min_size=2, max_size=48))
    def go(self, words: bytes) -> None:
        """Make calls, each chosen by one byte, with the next one as its argument."""
        for choice, value in pairwise(words):
            name = OPERATIONS[choice % len(OPERATIONS)]
            self.failed = True  # unless it is over
            if getattr(self, name)(value) is not False:
                EngineMachine.transitions[name] += 1
                self.each_job_has_one_place_or_one_outcome()
                if name != "take":
                    self.woken = True
            self.failed = False

    def advance(self, value: int) -> None:
        self.now += value % 20

    def add_task(self, value: int) -> bool | None:
        name = NAMES[value % len(NAMES)]
        if name in self.engine.tasks:
            return False
        self._add(name, value * 7919 % 1009)
        return None

    def _add(self, name: str, value: int) -> None:
        group = GROUP if self.batches and value % 3 else ""
        task = make_task(
            name, 1 + value % 60, 1 + value % 37, stages=STAGES, variants=VARIANTS, variant="v",
            priority=ord(name), batch_group=group,
        )  # fmt: skip
        device = "cuda" if value % 2 else "cpu"
        network = Run(1, device, batches=bool(group), cancels=value % 5 > 1 and not group)
        last = [Run(2, device)] if name == "d" and not group else [network, Run()]
        layouts = self.layouts[name] = {"v": [Run(), network, Run()], "w": [Run(), *last]}
        self.engine.add_task(task, layouts).set_narrow(((), (1.0,), (1.2, 1.5))[value // 3 % 3])
        usual = value // 7 % 12
        for variant, layout in layouts.items():
            self.engine.seed_budgets(name, variant, [(usual,) * len(layout)] * 2)

    def _known(self, value: int) -> str:
        names = [*self.engine.tasks]
        return names[value % len(names)] if names else ""

    def flush(self, value: int) -> bool | None:
        if not (name := self._known(value)):
            return False
        self.engine.flush(name, self.now, ("deactivated", "restarting")[value // 8 % 2])
        return None

    def remove_task(self, value: int) -> bool | None:
        name = self._known(value)
        if not name or not self.engine.is_idle(name):
            return False
        self._settle(name)
        self.engine.remove_task(name)
        del self.released_by[name]
        return None

    def change(self, value: int) -> bool | None:
        if not (name := self._known(value)):
            return False
        state, kind, value = self.engine.tasks[name], value // 4 % 7, value // 28
        if kind == 0:
            state.set_deadline(1 + 7 * value)
        elif kind == 1:
            state.set_max_age(value % 3 * 10)
        elif kind == 2:
            if value % 3 == 2:
                self.engine.suspend(name, "hung")
            else:
                self.engine.resume(name)
        elif kind == 3:
            if "w" not in state.withdrawn:
                return False
            state.add_variant("w", self.layouts[name]["w"])  # it was rebuilt
        elif kind == 4:
            wanted = VARIANTS[value % 2]
            if wanted in state.withdrawn:
                return False
            state.set_variant(wanted)
        elif kind == 5:
            scale = (1.0, 2.0, 3.0)[value % 3]
            state.set_time_scales({v: (scale,) * len(STAGES) for v in VARIANTS})
        else:
            state.set_time_scales(None)
        return None

    def set_selector(self, value: int) -> None:
        self.engine.selector = SELECTORS[value % len(SELECTORS)]()

    def know_batches(self, value: int) -> bool | None:
        states = self.engine.tasks.values()
        grouped = [s.parameters.name for s in states if s.parameters.batch_group]
        if not grouped:
            return False
        if value % 8 == 0:
            self.engine.forget_batches(GROUP)
        else:
            name = grouped[value % len(grouped)]
            times = [1 + value // 8] * 2
            self.engine.seed_batch_budgets(name, "v", 1, 2 + value % 3, times)
        return None

    # -- frames --------------------------------------------------------------------------------

    def release(self, value: int) -> bool | None:
        if not (name := self._known(value)):
            return False
        self.sequence += 1
        job = self.engine.release(name, self.now, self.now - value // 4 % 15, self._work())
        self.released[job] = name
        self.released_by[name] += 1
        return None

    def _work(self) -> Work:
        return Work(Frame(IMAGE, "bgr8", 0, self.sequence))

    def reject(self, value: int) -> bool | None:
        if not (name := self._known(value)):
            return False
        self.released_by[name] += 1
        self.sequence += 1
        self.engine.reject(name, self.now, self.now, self._work(), "no picture")
        return None

    # -- workers -------------------------------------------------------------------------------

    def take(self, value: int) -> None:
        """A worker looks for work."""
        self._take()

    def _take(self) -> Job | None:
        engine = self.engine
        # Of this moment: as time goes on, the first ready job may become hopeless.
        look_ns = None if self.woken else engine.look_ns(self.now)
        ready = engine.has_ready
        job = engine.next(self.now)
        if job is None:
            self._check_nothing_is_left()
            return None
        assert ready, f"job {job.sequence} was started though nothing was ready"
        assert self.woken or look_ns is not None, "no thread is woken for a job that can start"
        self.woken = False
        for member in (job, *job.mates):
            assert member in self.released, f"job {member.sequence} starts, and had ended"
            assert member.running
            assert not member.ended
        assert job not in self.running, "a job runs twice"
        self.running[job] = self.now
        self._check_order(job)
        return job

    def _check_nothing_is_left(self) -> None:
        """An idle machine runs what is there, or says when to ask again."""
        engine = self.engine
        if self.running or engine.ask_again_ns is not None:
            return
        left = [name for name in engine.tasks if not engine.is_idle(name)]
        assert not left, f"jobs of {left} wait for ever"

    def _check_order(self, job: Job) -> None:
        """No admitted job starts before a more urgent one that has started and is ready."""
        engine = self.engine
        plain = type(engine.selector) is StaticSelector and not self.limited
        if engine._queue.discipline != "edf" or not plain or engine.forms_batches:
            return
        if engine._places.helpers or job.admission is not Admission.BUDGET or job.next_stage:
            return
        for state in engine.tasks.values():
            other = state.in_flight
            if other is None or other is job or other.running or not other.queued:
                continue
            if other.admission is Admission.BUDGET:
                assert job.absolute_deadline_ns <= other.absolute_deadline_ns, (
                    f"{job.task} starts before {other.task}, which is more urgent"
                )

    def _one(self, value: int) -> tuple[Job, int]:
        jobs = [*self.running]
        job = jobs[value % len(jobs)]
        return job, self.running.pop(job)

    def boundary(self, value: int) -> bool | None:
        if not self.running:
            return False
        job, start = self._one(value)
        self.now += value // 3 % 20
        self.engine.boundary(job, self.now, start, self.now)
        return None

    def fail(self, value: int) -> bool | None:
        if not self.running:
            return False
        job, _ = self._one(value)
        blame = value // 3 % 2 == 0
        self.engine.fail(job, self.now, "broken", "ValueError", blame_variant=blame)
        return None

    def give_up(self, value: int) -> bool | None:
        """A stage hangs: its thread is left behind."""
        if not self.running:
            return False
        job, start = self._one(value)
        members = [member.task for member in (job, *job.mates)]
        self.engine.fail(job, self.now, "hangs", "hangs")
        for name in members:
            self.engine.flush(name, self.now, "restarting")
        self.left_behind.append((job, start))
        return None

    def come_back(self, value: int) -> bool | None:
        """A stage that was given up returns after all."""
        if not self.left_behind:
            return False
        job, start = self.left_behind.pop(0)
        self.engine.boundary(job, self.now, start, self.now)
        return None

    def cancel(self, value: int) -> bool | None:
        """A stage ends because it was told to."""
        told = [job for job in self.running if job.hopeless_ns or job.yields]
        if not told:
            return False
        job = told[value % len(told)]
        if not (job.yields or job.cancel_reason):
            self.now = max(self.now, job.hopeless_ns + 1)
        start, asked = self.running.pop(job), self.now
        self.now += value // 3 % 20
        self.engine.cancelled(job, self.now, start, self.now, asked)
        return None

    def recover(self, value: int) -> None:
        """A driver that was frightened for nothing."""
        self.engine.recover([*self.running], self.now)

    # -- what always holds ---------------------------------------------------------------------

    def each_job_has_one_place_or_one_outcome(self) -> None:
        engine = self.engine
        for ending in engine.take_endings():
            job = ending.job
            assert id(job) not in self.ended, f"job {job.sequence} ended twice"
            assert job.ended
            self.ended.add(id(job))
            self.kept.append(job)
            self.released.pop(job, None)
        places: Counter[Job] = Counter()
        for name in engine.tasks:
            self._settle(name)
            state = engine.tasks[name]
            for job in (state.waiting, state.in_flight):
                if job is not None:
                    places[job] += 1
                    assert not job.ended
        assert set(places) == set(self.released), "a job is neither here nor ended"
        assert set(places.values()) <= {1}
        threads = [*self.running]
        assert len(threads) <= engine.threads, "more stages than threads"
        at_work = [member for job in threads for member in (job, *job.mates)]
        assert len(at_work) == len(set(at_work)), "a job runs twice"
        for member in at_work:
            assert engine.tasks[member.task].in_flight is member
        if self.limited:
            on_gpu = [job for job in threads if job.device == "cuda"]
            assert len(on_gpu) <= CUDA_LIMIT, "more stages on a device than its limit"

    def _settle(self, name: str) -> None:
        state = self.engine.tasks[name]
        open_jobs = sum(job is not None for job in (state.waiting, state.in_flight))
        assert state.released == self.released_by[name]
        assert sum(state.outcomes.values()) + open_jobs == state.released

    def teardown(self) -> None:
        """Everything that is left comes to an end by itself."""
        if not hasattr(self, "engine") or self.failed:
            return
        engine = self.engine
        self.woken = True
        for _ in range(10_000):
            while self._take() is not None:
                pass
            if self.running:
                job, start = self._one(0)
                self.now += 1
                engine.boundary(job, self.now, start, self.now)
                self.woken = True
            elif engine.ask_again_ns is not None:
                self.now = max(self.now + 1, engine.ask_again_ns)
                self.woken = True
            else:
                break
        else:
            raise AssertionError("the engine does not come to rest")
        self.each_job_has_one_place_or_one_outcome()
        assert not self.released, f"{len(self.released)} jobs never end"


def run_machine(seed: int, examples: int, steps: int, *, shrink: bool = True) -> None:
    """Run so many machines, each up to so many times some calls; raises what they find.

    To `shrink` it to the least that does the same takes a minute or more.
    """
    machine = type("SeededMachine", (EngineMachine,), {"_hypothesis_internal_use_seed": seed})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=(Phase.generate, *([Phase.shrink] if shrink else ())),
            suppress_health_check=list(HealthCheck),
        ),
    )
