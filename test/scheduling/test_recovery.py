# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""EDGES 8: what an exception in the engine or in a selector leaves behind: nothing."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import replace

import pytest
from planned_selector import PlannedSelector
from raising import InjectedError, RaisingSelector, Saboteur, spoil_engine
from virtual_drive import drive, make_task, make_work

from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.selection import StaticSelector
from jetson_dnn_rt.scheduling.task_state import Run
from jetson_dnn_rt.tasks import Outcome

STAGES = ("first", "second", "third")
VARIANTS = ("full@null", "fast@null")
SELECTOR_METHODS = ("choose", "allowed", "released", "started", "passed", "ended")


def make_engine(workers, tasks, batches, helpers=0):
    engine = Engine(workers, max_inflight={"cuda": 2}, helpers=helpers)
    for index, name in enumerate(tasks):
        task = make_task(name, 60 + 20 * index, stages=STAGES, variants=VARIANTS)
        runs = [Run(1), Run(1, "cuda", True), Run(1)]
        group = "g" if batches and index < 3 else ""
        engine.add_task(replace(task, batch_group=group), dict.fromkeys(VARIANTS, runs))
        for variant in VARIANTS:
            engine.seed_budgets(name, variant, [(2, 10, 2)])
    if batches:
        engine.seed_batch_budgets(tasks[0], VARIANTS[0], 1, 2, [12])
    return engine


def run_sabotaged(seed, share):
    """Random arrivals through an engine that raises anywhere; the driver does as the executor."""
    rng = random.Random(seed)
    engine = make_engine(
        rng.randint(1, 3), "abcdef"[: rng.randint(2, 6)], rng.random() < 0.5, rng.choice((0, 0, 2))
    )
    if rng.random() < 0.5:
        engine.selector = PlannedSelector({"a": (VARIANTS[1], VARIANTS[0], VARIANTS[1])})
    saboteur = Saboteur(seed, share, rng.randint(1, 12))
    spoil_engine(engine, saboteur)
    running: dict = {}
    works, events, ended = [], [], []
    for order in range(60):
        events.append((rng.randint(0, 800), 1, order, rng.choice(list(engine.tasks))))
    heapq.heapify(events)
    order = len(events)

    def guarded(now_ns, call, *arguments):
        try:
            return call(*arguments)
        except InjectedError:
            for _ in range(20):
                try:
                    engine.recover(list(running), now_ns)
                    break
                except InjectedError:
                    continue
            return None

    idle_looks = 0
    while events or running:
        if events:
            now_ns, kind, _, subject = heapq.heappop(events)
        if kind == 1:
            work = make_work(len(works))
            works.append(work)
            guarded(now_ns, engine.release, subject, now_ns, now_ns, work)
            if not engine.has_seen(work):
                guarded(now_ns, engine.reject, subject, now_ns, now_ns, work, "unseen")
        elif kind == 0:
            start_ns = running.pop(subject)
            if rng.random() < 0.1:
                guarded(now_ns, engine.fail, subject, now_ns, "made to fail", "Error")
            else:
                guarded(now_ns, engine.boundary, subject, now_ns, start_ns, now_ns)
        while True:
            before = len(saboteur.raised)
            job = guarded(now_ns, engine.next, now_ns)
            if job is None:
                if len(saboteur.raised) == before:
                    break
                continue
            assert job not in running
            running[job] = now_ns
            order += 1
            heapq.heappush(events, (now_ns + rng.randint(1, 15), 0, order, job))
        ended += engine.take_endings()
        if engine.ask_again_ns is not None:
            order += 1
            heapq.heappush(events, (engine.ask_again_ns, 2, order, None))
        idle_looks += 1
        assert idle_looks < 10_000
    return works, ended, engine, saboteur


@pytest.mark.parametrize("share", [0.002, 0.02, 0.3])
def test_every_frame_ends_once_wherever_the_engine_raises(share):
    """EDGES 8: an exception in the middle of any call: each frame in exactly one outcome."""
    raised: Counter[str] = Counter()
    for seed in range(150):
        works, ended, engine, saboteur = run_sabotaged(seed, share)
        raised.update(saboteur.raised)
        seen = Counter(id(ending.work) for ending in ended)
        assert seen == Counter(map(id, works)), f"seed {seed}"
        outcomes = sum((state.outcomes for state in engine.tasks.values()), Counter())
        assert sum(outcomes.values()) == len(works), f"seed {seed}"
        assert sum(state.released for state in engine.tasks.values()) == len(works)
        assert all(engine.is_idle(task) for task in engine.tasks), f"seed {seed}"
        assert not engine._running
        assert not any(engine._devices._in_flight.values()), f"seed {seed}"
        assert not any(group.running for group in engine.groups.values()), f"seed {seed}"
        # And it works as on the first day.
        saboteur.limit = 0
        for state in engine.tasks.values():
            state.kept_out = 0
        now_ns = 10**6
        records = drive(engine, [(now_ns, task) for task in engine.tasks], lambda job: 1)
        assert [r.outcome for r in records] == len(engine.tasks) * [Outcome.MET], f"seed {seed}"
    assert share < 0.02 or len(raised) > 15, raised


@pytest.mark.parametrize("method", SELECTOR_METHODS)
def test_a_selector_that_raises_twice_is_replaced_by_a_static_one(method, caplog):
    """EDGES 8: no frame is lost to a selector; the second exception is its last."""
    engine = make_engine(1, "ab", batches=False)
    plan = {"a": (VARIANTS[1],) * 3, "b": (VARIANTS[1],) * 3}
    engine.selector = selector = RaisingSelector(PlannedSelector(plan), method)
    arrivals = [(100 * n, task) for n in range(4) for task in "ab"]
    records = drive(engine, arrivals, lambda job: 2)
    assert [r.outcome for r in records] == 8 * [Outcome.MET]
    assert selector.calls == 2
    assert engine.selector_failure.startswith("RaisingSelector raised 2 times")
    assert records[-1].variant == VARIANTS[0]  # what the task is set to
    assert caplog.text.count("it is set aside") == 1
    [fault] = FAULTS.snapshot()
    assert (fault.kind, fault.count) == ("selector of variants: InjectedError", 2)
    engine.selector = StaticSelector()
    assert engine.selector_failure == ""


def test_a_selector_that_raises_once_goes_on_deciding():
    """EDGES 8: once may be a hiccup."""
    engine = make_engine(1, "a", batches=False)
    engine.selector = RaisingSelector(
        PlannedSelector({"a": (VARIANTS[1],) * 3}), "choose", first=0, times=1
    )
    first, second = drive(engine, [(0, "a"), (100, "a")], lambda job: 2)
    assert [first.outcome, second.outcome] == [Outcome.MET, Outcome.MET]
    assert second.variant == VARIANTS[1]
    assert engine.selector_failure == ""


def test_reasons_are_kinds_and_bounded():
    """EDGES 10: 298 different texts are one reason; no more than 32 kinds and one for the rest."""
    engine = make_engine(1, "a", batches=False)
    for number in range(298):
        engine.release("a", number, number, make_work())
        job = engine.next(number)
        assert job is not None
        engine.fail(job, number, f"RuntimeError: address {number:x}", "RuntimeError")
    state = engine.tasks["a"]
    first, second = (f"failed: stage first of {v}: RuntimeError" for v in VARIANTS)
    # The first variant was withdrawn after two.
    assert state.reasons == {first: 2, second: 296}
    assert state.last_failure == f"RuntimeError: address {297:x}"
    for number in range(100):
        engine.reject("a", 1000, 1000, make_work(), f"reason {number}" + 10_000 * "!")
    assert len(state.reasons) == 33
    assert state.reasons["other"] == 100 - 30
    assert sum(state.reasons.values()) == 398
    assert len(state.last_failure) <= 500
