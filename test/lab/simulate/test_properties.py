"""What holds in every world, for every policy."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import IDLE_W, make_task, make_world, run

from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import load_scenario
from jetson_dnn_rt.lab.simulate.session import simulate
from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame
from jetson_dnn_rt.lab.simulate.world import World
from jetson_dnn_rt.tasks import Outcome

SCENARIOS = Path(__file__).resolve().parents[3] / "config/scenarios"
POLICIES = ("static", "max_q", "race_to_idle", "poet", "alert", "neuos_balanced", "predjoule")


@cache
def laboratory(name: str) -> Laboratory:
    return Laboratory(load_scenario(SCENARIOS / f"{name}.yaml"))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    times = st.floats(0.2, 8.0)
    tasks = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        gaps = draw(st.lists(st.floats(0.1, 15.0), min_size=1, max_size=8))
        releases = [sum(gaps[: index + 1]) for index in range(len(gaps))]
        stages = draw(st.lists(times, min_size=1, max_size=4))
        noise = draw(
            st.lists(
                st.lists(st.floats(0.5, 3.0), min_size=len(stages), max_size=len(stages)),
                min_size=len(gaps),
                max_size=len(gaps),
            )
        )
        deadline = draw(st.floats(1.0, 40.0))
        tasks.append(make_task(name, releases, stages, deadline_ms=deadline, noise=noise))
    workers = draw(st.integers(1, 3))
    return make_world(*tasks, workers=workers, interference=(1.0, 1.3, 1.6), end_ms=50.0)


@given(worlds(), st.dictionaries(st.floats(0.0, 50.0), st.integers(0, 1), max_size=4))
@settings(deadline=None, max_examples=80)
def test_counts_add_up_and_energy_is_at_least_idle(
    world: World, requests: dict[float, int]
) -> None:
    simulation, frames = run(world, dict(sorted(requests.items())))
    released = sum(len(task.arrivals) for task in world.tasks)
    assert len(frames) == released
    assert len({(f.record.task, f.record.sequence) for f in frames}) == released
    states = simulation.engine.tasks.values()
    assert sum(state.released for state in states) == released
    seconds = simulation.now_ns * 1e-9
    assert simulation.energy_j >= 1.0 * seconds * (1.0 - 1e-9)
    assert simulation.energy_j <= (IDLE_W + 10.0) * seconds * (1.0 + 1e-9)
    assert sum(f.energy_j for f in frames) <= simulation.energy_j * (1.0 + 1e-9)
    for frame in frames:
        record = frame.record
        assert record.release_ns <= record.completion_ns
        in_time = record.completion_ns <= record.absolute_deadline_ns
        assert in_time or record.outcome is not Outcome.MET
        ends = [record.release_ns, *(stage.end_ns for stage in record.stages)]
        starts = [stage.start_ns for stage in record.stages]
        assert all(end <= start for end, start in zip(ends, starts, strict=False))


@given(worlds())
@settings(deadline=None, max_examples=30)
def test_no_more_stages_at_once_than_workers(world: World) -> None:
    _, frames = run(world)
    stages = [stage for frame in frames for stage in frame.record.stages]
    for stage in stages:
        beside = sum(other.start_ns <= stage.start_ns < other.end_ns for other in stages)
        assert beside <= world.workers


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_run(policy: str) -> None:
    runs: list[list[SimulatedFrame]] = [[], [], []]
    for seed, frames in zip((3, 3, 4), runs, strict=True):
        simulate(laboratory("tx2_cohort4"), policy, seed=seed, frames=20, observer=frames.append)
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_policies_see_the_same_world() -> None:
    """Arrivals, and noise of a (task, sequence, stage), whatever ran before."""
    seen: dict[str, dict[tuple[str, int, int], float]] = {}
    arrivals: dict[str, set[tuple[str, int, int]]] = {}
    lab = laboratory("tx2_alexnet")
    median = lab.true_tables[0].median_ns
    for policy in ("static", "alert"):
        frames: list[SimulatedFrame] = []
        simulate(lab, policy, seed=1, frames=60, observer=frames.append)
        arrivals[policy] = {
            (f.record.task, f.record.sequence, f.record.release_ns) for f in frames
        }
        seen[policy] = {}
        if policy == "static":
            for frame in frames:
                for k, stage in enumerate(frame.record.stages):
                    time_ns = stage.execution_time_ns
                    seen[policy]["alexnet", frame.record.sequence, k] = time_ns / median[0, k]
    assert arrivals["static"] == arrivals["alert"]
    world = lab.world(1, 60)
    for (_, sequence, k), factor in seen["static"].items():
        release_ns = next(r for _, s, r in arrivals["static"] if s == sequence)
        assert factor == pytest.approx(world.stage_factors("alexnet", release_ns)[k], rel=1e-4)


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short, long = (laboratory("tx2_cohort4").world(5, frames) for frames in (30, 60))
    for a, b in zip(short.tasks, long.tasks, strict=True):
        assert a.arrivals == b.arrivals[: len(a.arrivals)]
        assert (a.noise == b.noise[: len(a.noise)]).all()
