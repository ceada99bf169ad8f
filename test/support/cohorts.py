# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Small profile tables and cohorts, whose decisions can be calculated by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st
from virtual_drive import drive, make_task

from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Cohort, Decision, FrameSample, Member, StageSample
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.policy import Policy
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.platforms.clocks import ClockDomain, ClockOption, ClockSpace
from jetson_dnn_rt.scheduling.engine import Engine
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.tasks import JobRecord

P = TypeVar("P", bound=Policy)

MS = 1_000_000
SPEEDS = (1.0, 2.0, 4.0)
"""Of the three configurations of the usual clock table, relative to the slowest."""
POWERS_W = (2.0, 6.0, 20.0)
IDLE_W = (1.0, 1.5, 3.0)


def make_clock_table(
    count: int = 3,
    *,
    idle_w: Sequence[float] | None = None,
    max_n: int | None = None,
    max_q: int = 0,
    delay_ns: int = 5 * MS,
) -> ClockTable:
    """`count` GPU clocks and nothing else."""
    options = tuple(ClockOption(100_000_000 * (1 + i)) for i in range(count))
    space = ClockSpace([ClockDomain("gpu", options, delay_ns)])
    if idle_w is None:
        idle_w = IDLE_W if count == 3 else [1.0 + i / count for i in range(count)]
    idle, fastest = np.asarray(idle_w, float), count - 1 if max_n is None else max_n
    return ClockTable(space, np.arange(count), idle, fastest, max_q)


def make_table(
    task: str = "task",
    *,
    times_ms: Sequence[Sequence[float]] = ((1.0, 2.0, 1.0), (0.5, 1.0, 0.5)),
    frames: Sequence[float] = (1.0,),
    speeds: Sequence[float] | Any = SPEEDS,
    powers_w: Sequence[float] | Any = POWERS_W,
    loss: Sequence[Sequence[float]] | None = None,
    deadline_ms: float = 10.0,
    period_ms: float = 33.0,
) -> TaskTable:
    """A task of V variants and K stages.

    `times_ms` [V, K] are those at the fastest clocks, the median frame's when `frames` [S], a
    factor on all times for each profiled frame, has 1.0 in its middle. `speeds` and `powers_w`
    are [C] or [K, C], the same in all variants. `loss` [V, K] grows by 0.01 from variant to
    variant unless given.
    """
    base = np.asarray(times_ms, float)
    v, k = base.shape
    times = np.rint(base[:, :, np.newaxis] * np.asarray(frames, float) * MS).astype(np.int64)
    speed = np.broadcast_to(np.asarray(speeds, float), (k, np.shape(speeds)[-1]))
    slowdown = np.broadcast_to(speed[:, -1:] / speed, (v, *speed.shape))
    power = np.broadcast_to(np.asarray(powers_w, float), slowdown.shape)
    if loss is None:
        loss = [[0.01 * variant] * k for variant in range(v)]
    return TaskTable(
        task,
        tuple(f"stage-{i}" for i in range(k)),
        ("full", *(f"fast-{i}" for i in range(1, v))),
        round(deadline_ms * MS),
        round(period_ms * MS),
        times,
        slowdown.copy(),
        power.copy(),
        np.asarray(loss, float),
    )


def make_member(table: TaskTable, *, lag_ms: float = 0.0, stage: int = 0, **more: Any) -> Member:
    """A member with a frame in flight, released at time 0."""
    fields: dict[str, Any] = {
        "deadline_ns": table.deadline_ns,
        "absolute_deadline_ns": table.deadline_ns,
        "configured": 0,
        "usable": (True,) * len(table.variants),
        "active": True,
        "started": stage > 0,
        "stage": stage,
        "lag_ns": round(lag_ms * MS),
        "stages_done": stage,
        **more,
    }
    return Member(table, **fields)


def make_cohort(
    clock_table: ClockTable, members: Sequence[Member], *, clocks: int | None = None, **more: Any
) -> Cohort:
    """A cohort whose first member decides, at the fastest clocks."""
    present = clock_table.fastest if clocks is None else clocks
    fields: dict[str, Any] = {
        "workers": max(1, len(members)),
        "interference": (1.0,),
        "clocks": present,
        "clocks_target": present,
        "deciding": 0,
        **more,
    }
    return Cohort(clock_table, list(members), **fields)


def make_policy(cls: type[P], cohort: Cohort, **settings: Any) -> P:
    """A policy for a cohort."""
    return cls(
        cohort.clock_table,
        [member.table for member in cohort.members],
        CoordinatorConfig(**settings),
        workers=cohort.workers,
        interference=cohort.interference,
    )


def drive_policy(
    cls: type[Policy],
    tables: Sequence[TaskTable],
    arrivals: Iterable[tuple[float, str]],
    execution_ms: Callable[[Job], float],
    *,
    workers: int = 1,
    **settings: Any,
) -> list[JobRecord]:
    """Run the arrivals (ms, task) under a policy on the engine, at the fastest clocks."""
    clock_table = make_clock_table()
    policy = cls(
        clock_table, tables, CoordinatorConfig(**settings), workers=workers, interference=(1.0,)
    )
    engine = Engine(workers)
    engine.selector = Coordinator(clock_table, tables, policy, workers=workers)
    for table in tables:
        names = {"stages": table.stages, "variants": table.variants, "variant": table.variants[0]}
        engine.add_task(make_task(table.task, table.deadline_ns, table.period_ns, **names))
    released = [(round(time_ms * MS), task) for time_ms, task in arrivals]
    return drive(engine, released, lambda job: round(execution_ms(job) * MS))


def run_stage(member: Member, time_ms: float, *, variant: int = 0, clocks: int = 2) -> None:
    """The member finishes the stage it is at; the next one is the first after the last."""
    member.last_stage = StageSample(variant, member.stage, clocks, round(time_ms * MS))
    member.stages_done += 1
    member.started = True
    member.stage = (member.stage + 1) % len(member.table.stages)


def snapshot(cohort: Cohort) -> tuple[object, ...]:
    """All that a policy could have changed."""
    states = tuple(
        tuple(getattr(member, name) for name in Member.__annotations__ if name != "slowdown")
        for member in cohort.members
    )
    rest = tuple(getattr(cohort, name) for name in Cohort.__annotations__ if name != "members")
    windows = tuple(tuple(member.slowdown._recent) for member in cohort.members)
    return states, rest, windows


def check_pure(policy: Policy, cohort: Cohort, now_ns: int = 0) -> Decision:
    """Ask twice, and once more with the memory of the answer: nothing changes, nothing differs."""
    before = snapshot(cohort)
    decision = policy.decide(cohort, now_ns)
    assert policy.decide(cohort, now_ns) == decision
    assert snapshot(cohort) == before
    memory = cohort.memory
    cohort.memory = decision.memory
    assert policy.decide(cohort, now_ns) == decision
    cohort.memory = memory
    assert len(decision.variants) == len(cohort.members)
    assert 0 <= decision.clocks < len(cohort.clock_table)
    return decision


@st.composite
def cohorts(draw: st.DrawFn) -> Cohort:
    """Any small cohort in any state."""
    count = draw(st.integers(1, 12))
    clock_table = make_clock_table(
        count, max_n=draw(st.integers(0, count - 1)), max_q=draw(st.integers(0, count - 1))
    )
    # Hundreds of figures: drawn one by one they would take most of a test's time.
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    members = []
    for number in range(draw(st.integers(1, 4))):
        v, k = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        gains = generator.uniform(1.0, 1.6, (v, k))
        times = generator.uniform(0.5, 5.0, k) / np.cumprod(gains, axis=0)
        # Steps of no gain at all are among them.
        steps = np.maximum(1.0, generator.uniform(0.8, 1.6, (k, count)))
        speeds = np.cumprod(steps, axis=1)
        powers = generator.uniform(0.5, 30.0, (k, count))
        table = make_table(
            f"task-{number}",
            times_ms=times.tolist(),
            frames=(1.0, *draw(st.lists(st.floats(0.8, 1.5), max_size=3))),
            speeds=speeds,
            powers_w=powers,
            deadline_ms=draw(st.floats(1.0, 40.0)),
        )
        usable = draw(st.lists(st.booleans(), min_size=v, max_size=v).filter(any))
        active = draw(st.booleans())
        # Without a frame it is where the last one ended.
        stage = draw(st.integers(0, k - 1)) if active else k
        member = make_member(
            table,
            stage=stage,
            usable=tuple(usable),
            configured=draw(st.integers(0, v - 1)),
            active=active,
            variant=draw(st.integers(0, v - 1)),
            frames_done=draw(st.integers(0, 3)),
        )
        if not active:
            member.started = False
        if member.frames_done:
            times_ns = (draw(st.integers(0, n * table.deadline_ns)) for n in (2, 1))
            member.last_frame = FrameSample(draw(st.booleans()), *times_ns)
        if member.frames_done or stage:
            member.lag_ns = round(draw(st.floats(-2.0, 1.0)) * table.deadline_ns)
            most = (v - 1, k - 1, count - 1, table.deadline_ns)
            member.last_stage = StageSample(*(draw(st.integers(0, each)) for each in most))
            member.slowdown.observe(draw(st.floats(0.5, 4.0)))
        members.append(member)
    cohort = make_cohort(clock_table, members, clocks=draw(st.integers(0, count - 1)))
    cohort.clocks_target = draw(st.integers(0, count - 1))
    # Boundaries belong to frames.
    active = [number for number, member in enumerate(members) if member.active]
    cohort.deciding = draw(st.sampled_from([-1, *active]))
    return cohort


def decide(policy: Policy, cohort: Cohort) -> Decision:
    """Check a decision, and keep its memory for the next one."""
    decision = check_pure(policy, cohort)
    cohort.memory = decision.memory
    return decision
