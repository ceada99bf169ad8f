# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The campaign of a stage that hangs for ever, beside a task that must not notice."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from networks import Classifier, make_model

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.runtime.task_entry import Stages
from jetson_dnn_rt.tasks import JobRecord, Outcome, Stage, TaskParameters, Work

RATE_HZ = 20.0
STAGE_TIMEOUT_NS = 200_000_000
MAX_THREADS, MAX_GROWTH, MAX_CHANGE = 8, 0.05, 0.01
SIZE = (240, 320)


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def count_threads() -> int:
    """Of this process, those of libraries too."""
    return len(list(Path("/proc/self/task").iterdir()))


class Victim:
    """Stages that run a network until `hangs`; then they wait until `let_go`."""

    def __init__(self, loaded: Task) -> None:
        self._loaded = loaded
        self.hangs, self.let_go = False, threading.Event()

    def spoil(self, stages: Stages) -> Stages:
        return {
            name: [self._spoil(stage) if n == 1 else stage for n, stage in enumerate(runs)]
            for name, runs in stages.items()
        }

    def _spoil(self, stage: Stage) -> Stage:
        def run(work: Work) -> None:
            if self.hangs:
                self.let_go.wait()
            stage.run(work)

        return Stage(stage.name, run, stage.span, stage.device)


def load(name: str) -> Task:
    """A small network on ONNX Runtime."""
    return Task(
        TaskConfig(
            model=name,
            variants=("full@onnxruntime-fp32",),
            warmup_runs=20,
            engine_cache="none",
            threads=1,
            batch="off",
        ),
        SIZE,
        threads=1,
        clock=SteadyClock(),
        log=lambda text: None,
        model=make_model(Classifier().eval(), (32, 48)),
    )


def run(minutes: float) -> dict[str, Any]:
    """The campaign; returns its figures."""
    loaded = {name: load(name) for name in ("victim", "other")}
    executor = Executor(2, realtime=RealtimeConfig(gc_freeze=False))
    outcomes: dict[str, Counter[Outcome]] = {name: Counter() for name in loaded}

    def observe(record: JobRecord, work: Work) -> None:
        outcomes[record.task][record.outcome] += 1

    victim = Victim(loaded["victim"])
    closed: list[int] = []

    def give_back(close: Any) -> None:
        def closing() -> None:
            close()
            closed.append(time.monotonic_ns())

        executor.supervisor.when_unused("victim", closing)

    restarts = {
        "victim": lambda: victim.spoil(loaded["victim"].rebuild(give_back)),
        "other": partial(loaded["other"].rebuild, give_back),
    }
    for name, task in loaded.items():
        stages = victim.spoil(task.stages) if name == "victim" else task.stages
        executor.add_task(
            TaskParameters(
                name=name,
                deadline_ns=45_000_000,
                period_ns=int(1e9 / RATE_HZ),
                stages=task.stage_names,
                variants=task.variant_names,
                variant=task.default,
            ),
            stages,
            observe,
            warm_up_times_ns=task.warm_up_times_ns,
            restart=restarts[name],
            stage_timeout_ns=STAGE_TIMEOUT_NS,
        )
    executor.start()
    sequence = 0

    def drive(seconds: float, threads: list[int]) -> dict[str, Counter[Outcome]]:
        nonlocal sequence
        before = {name: Counter(counts) for name, counts in outcomes.items()}
        start_s = time.monotonic()
        for number in range(int(seconds * RATE_HZ)):
            time.sleep(max(0.0, start_s + number / RATE_HZ - time.monotonic()))
            image = np.full((*SIZE, 3), sequence % 256, np.uint8)
            now_ns = time.monotonic_ns()
            executor.submit(tuple(loaded), Frame(image, "bgr8", now_ns, sequence), now_ns)
            sequence += 1
            threads.append(count_threads())
        executor.wait_idle(1.0)
        return {name: counts - before[name] for name, counts in outcomes.items()}

    calm_s = max(1.0, minutes * 60 / 5)
    drive(1.0, [])
    gc.collect()
    calm = drive(calm_s, [])
    threads_before, bytes_before = count_threads(), resident_bytes()
    victim.hangs = True
    threads: list[int] = []
    rough = drive(minutes * 60, threads)
    bytes_after = resident_bytes()
    snapshot = executor.snapshot("victim")
    other = executor.snapshot("other")
    victim.hangs = False
    victim.let_go.set()
    end_s = time.monotonic() + 10.0
    while executor.snapshot("victim").hangs and time.monotonic() < end_s:
        time.sleep(0.01)
    asked = executor.supervisor.retry("victim")
    end_s = time.monotonic() + 10.0
    while executor.snapshot("victim").suspended and time.monotonic() < end_s:
        time.sleep(0.01)
    cured = drive(1.0, [])
    gc.collect()
    figures = {
        "minutes": minutes,
        "threads_before": threads_before,
        "threads_most": max(threads),
        "memory_before_mb": bytes_before / 1e6,
        "memory_growth": bytes_after / bytes_before - 1.0,
        "hangs": snapshot.hangs,
        "suspended": snapshot.suspended,
        "reasons": snapshot.reasons,
        "met_before": share_met(calm["other"]),
        "met_meanwhile": share_met(rough["other"]),
        "victim_met_afterwards": share_met(cured["victim"]),
        "asked": asked,
        "networks_closed": len(closed),
        "threads_afterwards": count_threads(),
        "counts_add_up": all(
            sum(one.outcomes.values()) == one.released for one in (snapshot, other)
        ),
    }
    executor.stop()
    for task in loaded.values():
        task.close()
    return figures


def share_met(counts: Counter[Outcome]) -> float:
    """Of all frames."""
    return counts[Outcome.MET] / max(1, sum(counts.values()))


def list_broken(figures: dict[str, Any]) -> list[str]:
    """Which limits were."""
    checks = {
        "threads": figures["threads_most"] <= figures["threads_before"] + MAX_THREADS,
        "memory": figures["memory_growth"] < MAX_GROWTH,
        "met frames": figures["met_meanwhile"] >= figures["met_before"] - MAX_CHANGE,
        "suspension": "hangs: still running" in figures["suspended"],
        "counts": figures["counts_add_up"],
        "cure": figures["victim_met_afterwards"] > 0.0,
        "networks": figures["networks_closed"] >= figures["hangs"],
        "threads afterwards": figures["threads_afterwards"] <= figures["threads_before"],
    }
    return [what for what, kept in checks.items() if not kept]
