# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Simulated runs drawn by chance: boards, tasks, loads, policies and what goes wrong in them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from accounts import Accounts
from raising import RaisingSelector

from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.lab.simulate.scenario import NETWORKS, Scenario, load_scenario, scenario_folder
from jetson_dnn_rt.lab.simulate.session import make_policy, make_source, policy_names, seed_budgets
from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame, Simulation
from jetson_dnn_rt.scheduling.job import Job
from jetson_dnn_rt.tasks import Outcome, Work
from jetson_dnn_rt.traces.schema import TraceMetadata
from jetson_dnn_rt.traces.writer import TraceWriter

ALONE_MS = {"alexnet": 4.5, "googlenet": 13.5, "resnet50": 67.5, "vgg16": 18.0}
"""About what a full network takes on the TX2 at its fastest clocks."""

SELECTOR_METHODS = ("choose", "allowed", "released", "started", "passed", "ended")


class Misfortune:
    """Stands before an engine: frames that are no images, stages that raise, tasks that hang.

    Each befalls `share` of the calls; after a hang the task is suspended for some frames, as the
    executor suspends it while it is restarted.
    """

    def __init__(self, engine: Any, rng: random.Random, share: float) -> None:
        self._engine, self._rng, self._share = engine, rng, share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def release(self, task: str, now_ns: int, capture_ns: int, work: Work) -> None:
        """Release a frame, or reject it."""
        state, fate = self._engine.tasks[task], self._rng.random()
        if state.suspended and fate < 0.2:
            self._engine.resume(task)
        if fate < self._share:
            self._engine.reject(task, now_ns, capture_ns, work, "it is no image")
        else:
            self._engine.release(task, now_ns, capture_ns, work)

    def boundary(self, job: Job, now_ns: int, start_ns: int, end_ns: int) -> None:
        """Account for a stage that is done, that raised, or that was given up."""
        fate = self._rng.random()
        if fate < self._share:
            self._engine.fail(job, now_ns, "made to raise", "RuntimeError")
        elif fate < 1.2 * self._share:
            self._engine.fail(job, now_ns, "made to hang", "hangs")
            self._engine.flush(job.task, now_ns, "restarting")
            self._engine.suspend(job.task, "restarting")
        else:
            self._engine.boundary(job, now_ns, start_ns, end_ns)


def draw_networks(rng: random.Random, folder: Path) -> None:
    """The package's networks with some of their stages only, as a file beside the scenario."""
    values = yaml.safe_load((scenario_folder() / NETWORKS).read_text(encoding="utf-8"))
    for network in values["networks"].values():
        network["stages"] = network["stages"][: rng.choice((1, 1, 2, 3, 8))]
    (folder / NETWORKS).write_text(yaml.safe_dump(values), encoding="utf-8")


def draw_scenario(rng: random.Random, folder: Path, frames: int) -> Scenario:
    """A scenario of one to six tasks on one to three cameras, from idle to five times too much."""
    draw_networks(rng, folder)
    networks = rng.choices(list(ALONE_MS), k=rng.randint(1, 6))
    workers = rng.randint(1, 3)
    load = rng.choice((0.4, 0.9, 1.2, 2.0, 5.0)) * rng.uniform(0.8, 1.2)
    period_ms = sum(ALONE_MS[network] for network in networks) / workers / load
    cameras = [f"camera{number}" for number in range(rng.randint(1, 3))]
    periods_ms = {name: period_ms * rng.uniform(0.7, 1.4) for name in cameras}
    length_s = frames * min(periods_ms.values()) / 1e3
    tasks: list[dict[str, Any]] = []
    for number, network in enumerate(networks):
        begin_s = rng.choice((0.0, 0.0, rng.uniform(0.0, 0.4) * length_s))
        tasks.append(
            {
                "name": f"task{number}",
                "network": network,
                "camera": rng.choice(cameras),
                "deadline_ms": ALONE_MS[network] * rng.uniform(0.6, 4.0),
                "from_s": begin_s,
                "until_s": rng.choice((0.0, 0.0, begin_s + rng.uniform(0.2, 0.6) * length_s)),
            }
        )
    values: dict[str, Any] = {
        "board": rng.choice(("tx2", "xavier")),
        "workers": workers,
        "discipline": rng.choice(("edf", "fifo", "priority")),
        "cameras": {
            name: {"period_ms": value, "jitter_ms": rng.choice((0.0, 0.3 * value))}
            for name, value in periods_ms.items()
        },
        "tasks": tasks,
        "noise": {
            "frame_sigma": rng.uniform(0.0, 0.3),
            "frame_correlation": 0.6,
            "stage_sigma": rng.uniform(0.0, 0.1),
            "spike_probability": 0.01,
            "spike_factor": rng.uniform(1.0, 4.0),
        },
    }
    if rng.random() < 0.3:
        span_s = length_s * rng.uniform(0.1, 0.5)
        values["co_runners"] = [
            {"from_s": 0.3 * length_s, "until_s": 0.3 * length_s + span_s, "slowdown": 1.5}
        ]
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return load_scenario(path, (scenario_folder(),))


def simulate_once(
    rng: random.Random, folder: Path, frames: int, policies: Sequence[str] = ()
) -> Accounts:
    """Draw a scenario of about so many frames and run it with a policy; all into a trace."""
    scenario = draw_scenario(rng, folder, frames)
    source = make_source(scenario)
    world = source.world(rng.randrange(1 << 20), frames)
    policy = rng.choice(policies or policy_names())
    counted: dict[str, Counter[str]] = defaultdict(Counter)
    trace = folder / "trace"
    with TraceWriter(trace, TraceMetadata(source="simulate")) as writer:

        def observe(frame: SimulatedFrame) -> None:
            writer.write(frame.record, wait=True)

        simulation = Simulation(world, observe, instant_clocks=policy == "oracle")
        tables = source.true_tables if policy == "oracle" else source.tables
        coordinator = Coordinator(
            source.clock_table,
            tables,
            make_policy(source, policy, CoordinatorConfig(), world),
            workers=world.workers,
            interference=source.interference,
            clocks=simulation.clocks,
            request_clocks=simulation.request_clocks,
        )
        engine, selector = simulation.engine, coordinator
        if rng.random() < 0.3:
            method, first = rng.choice(SELECTOR_METHODS), rng.randrange(frames)
            selector = RaisingSelector(coordinator, method, first, times=rng.randint(1, 2))
        engine.selector = selector
        seed_budgets(simulation, tables, source.warm_up_ns)
        share = rng.choice((0.0, 0.002, 0.02))
        simulation.engine = Misfortune(engine, rng, share)  # type: ignore[assignment]
        simulation.run()
    sent = {}
    for task in world.tasks:
        numbers = [sequence for _, _, sequence in task.arrivals]
        name = task.parameters.name
        if numbers:
            sent[name] = numbers[0], numbers[-1]
            assert len(numbers) == numbers[-1] + 1 - numbers[0]
        state = engine.tasks[name]
        counted[name] = Counter({o.value: state.outcomes[o] for o in Outcome})
        if state.released != len(numbers):
            counted[name]["released, not sent"] = state.released - len(numbers)
    return Accounts(sent, counted, [trace])
