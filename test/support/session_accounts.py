# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Sessions in real time drawn by chance, with everything that may befall a frame on the way."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from accounts import Accounts
from networks import Classifier, make_model

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.runtime.task_entry import Stages
from jetson_dnn_rt.tasks import JobRecord, Outcome, Stage, Work

SIZE = (32, 48)
IMAGE = np.zeros((*SIZE, 3), np.uint8)
RATE_HZ = 500.0
LIMIT_S = 120.0
VARIANTS = ("full@onnxruntime-fp32", "full@openvino-fp32")


class UnluckyTask(Task):
    """A task whose network raises now and then; when `hangs` is set, its next run hangs once."""

    rng = random.Random(0)
    share = 0.0
    hangs, let_go = False, threading.Event()

    @property
    def stages(self) -> Stages:
        """The stages of every variant, the network's made unreliable."""
        reliable = super().stages
        return {
            name: [first, self._spoil(network), *rest]
            for name, (first, network, *rest) in reliable.items()
        }

    def _spoil(self, stage: Stage) -> Stage:
        def run(work: Work) -> None:
            if self.hangs:
                self.hangs = False
                self.let_go.wait(LIMIT_S)
            if self.rng.random() < self.share:
                raise RuntimeError("made to raise")
            stage.run(work)

        return replace(stage, run=run)


def draw_task(rng: random.Random, number: int) -> TaskConfig:
    """A task that takes scripted times, now and then longer than it has, or a small network."""
    usual_ms, spike_ms = rng.uniform(0.05, 2.0), rng.uniform(2.0, 10.0)
    network = "/".join([f"{usual_ms:.3f}"] * rng.randint(5, 50) + [f"{spike_ms:.3f}"])
    return TaskConfig(
        f"task{number}",
        model=f"null:inference={network};decode=0/0/0/{rng.uniform(0.0, 4.0):.3f}",
        warmup_runs=rng.choice((0, 5)),
        engine_cache="none",
        expected_frequency=RATE_HZ,
        deadline_ms=rng.uniform(1.0, 12.0),
        max_age_ms=rng.choice((0.0, 50.0)),
        stage_timeout_ms=200.0,
        batch="off",
    )


class Run:
    """One session, its source of frames, and what happens to its tasks on the way."""

    def __init__(self, rng: random.Random, folder: Path, frames: int) -> None:
        self._rng, self._frames = rng, frames
        self._tasks = [draw_task(rng, number) for number in range(rng.randint(2, 4))]
        self._tasks[0] = replace(self._tasks[0], variants=VARIANTS, model="test:network")
        process = ProcessConfig(
            workers=rng.randint(1, 3),
            helpers=rng.randint(0, 1),
            discipline=rng.choice(("edf", "fifo", "priority")),
            trace_dir=str(folder / "traces"),
            gc_freeze=False,
        )
        self._folder = folder / "traces"
        self._session = Session(PerceptionConfig((), process=process))
        self._sent: dict[str, tuple[int, int]] = {}
        self._seen: dict[str, Counter[str]] = defaultdict(Counter)
        self._spoiled: list[UnluckyTask] = []
        self._session.observe(self._observe)
        self.faults: list[str] = []

    def run(self) -> Accounts:
        """Run it to its end."""
        session, rng = self._session, self._rng
        joiner, leaver = self._tasks[-1], self._tasks[1]
        session.start()
        try:
            for config in self._tasks:
                self._load(config)
            for config in self._tasks[:-1]:
                session.activate(config.name)
            session.commit()
            events: dict[int, Callable[[], None]] = {
                number: rng.choice((self._switch, self._change_deadline, self._hang))
                for number in rng.sample(range(self._frames), k=min(8, self._frames // 10))
            }
            # Beside the frames, as transitions of nodes are.
            joining = threading.Thread(target=self._join, args=(joiner,))
            events[self._frames // 3] = joining.start
            if leaver is not joiner:
                events[2 * self._frames // 3] = lambda: session.deactivate(leaver.name)
            self._drive(events)
            self._let_go()
            joining.join()
            if not session.wait_idle(LIMIT_S):
                self.faults.append("the session does not come to rest")
            counted = dict(self._seen)
            for name in filter(session.is_active, self._sent):
                counted[name] = self._ask(name)
        finally:
            self._let_go()
            session.close()
        return Accounts(self._sent, counted, sorted(self._folder.iterdir()))

    def _load(self, config: TaskConfig) -> None:
        model = make_model(Classifier().eval(), SIZE) if config.variants else None
        task = UnluckyTask(config, SIZE, threads=1, clock=SteadyClock(), model=model)
        task.rng = random.Random(self._rng.random())
        task.share = self._rng.choice((0.0, 0.002, 0.02))
        task.let_go = threading.Event()
        self._spoiled.append(task)
        self._session.adopt(task)

    def _drive(self, events: dict[int, Callable[[], None]]) -> None:
        """Send all frames in real time; some are no images, or older than they may be."""
        session, rng = self._session, self._rng
        begin_s = time.monotonic()
        for number in range(self._frames):
            time.sleep(max(0.0, begin_s + number / RATE_HZ - time.monotonic()))
            if number in events:
                events[number]()
            names = [task.name for task in self._tasks if session.is_active(task.name)]
            now_ns, fate = time.monotonic_ns(), rng.random()
            frame = Frame(IMAGE, "nonsense" if fate < 0.01 else "bgr8", now_ns, number)
            if 0.01 <= fate < 0.02:
                for name in names:
                    session.executor.reject(name, frame, now_ns, "made to be no image")
            else:
                capture_ns = now_ns - (100_000_000 if fate > 0.98 else 0)
                session.submit(frame, names, capture_ns=capture_ns)
            for name in names:
                self._sent[name] = self._sent.get(name, (number, number))[0], number

    def _observe(self, record: JobRecord, result: Result | None) -> None:
        self._seen[record.task][record.outcome.value] += 1
        if record.sequence % 97 == 0:
            raise ValueError("an observer that fails")

    def _ask(self, name: str) -> Counter[str]:
        """What the session counts of an active task; observers must have seen the same."""
        found = self._session.snapshot(name)
        if found is None:
            self.faults.append(f"{name}: the session does not know it")
            return Counter()
        counted = Counter({outcome.value: found.outcomes[outcome] for outcome in Outcome})
        if found.released != counted.total():
            self.faults.append(f"{name}: {found.released} frames released, {counted} ended")
        if counted != self._seen[name]:
            self.faults.append(f"{name}: {counted} counted, observers saw {self._seen[name]}")
        return counted

    # -- events --------------------------------------------------------------------------------

    def _join(self, config: TaskConfig) -> None:
        self._session.activate(config.name)
        self._session.commit()

    def _switch(self) -> None:
        task = self._session.tasks[self._tasks[0].name]
        ready = [name for name in task.variant_names if name != task.config.variant]
        withdrawn = self._session.executor.snapshot(task.name).withdrawn
        if wanted := [name for name in ready if name not in withdrawn]:
            with contextlib.suppress(ConfigurationError):  # withdrawn in this moment
                self._session.update(replace(task.config, variant=self._rng.choice(wanted)))

    def _change_deadline(self) -> None:
        task = self._rng.choice(list(self._session.tasks.values()))
        self._session.update(replace(task.config, deadline_ms=self._rng.uniform(0.5, 20.0)))

    def _hang(self) -> None:
        self._rng.choice(self._spoiled).hangs = True

    def _let_go(self) -> None:
        for task in self._spoiled:
            task.hangs = False
            task.let_go.set()
