# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""All policies at equal objectives, in scenarios drawn from seeds that nothing was tuned on.

A test seed draws a whole scenario: board, networks, load, deadlines, noise, and at least one
disturbance (co-runner, heat, load step, bursts; fronts/worlds.py has the ranges). In its world run
every policy, each at several settings where it has a knob; those that choose variants also without
the less accurate ones (`LEAST`), since under overload a floor alone gives way to deadlines; and:

* the best static choice with hindsight: a variant for each task and the clocks for the whole run,
  searched by playing them in this very world;
* the static choice made at the desk: the same search, but in the worlds of the tuning seeds and
  without co-runners and heat, as one would when setting up a robot; then played in this world;
* the bound (jetson_dnn_rt/lab/simulate/bound.py): no run of this world takes less energy at the
  same accuracy and misses. It is a relaxation, so perhaps no run can reach it;
* `oracle`, which is horizon with the true times and instant clocks: a reference, no bound.

Contests are held at equal accuracy and at equal energy (fronts/contest.py). p99 is that of all
frames, those without a result counted as infinite.

Bars: horizon is on the front of every contest in at least 9 of 10 scenarios; nothing is below the
bound. Ours is tuned on other scenarios. Seeds 1001 to 1010 and 3001 are not held out: what
horizon lost there showed what to change in it.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import copy
from typing import Any

from benchmarks.fronts.contest import (
    DESK,
    FLOORS,
    HINDSIGHT,
    OURS,
    POLICY,
    REFERENCE,
    Point,
    describe,
    hold_contests,
    write_sentence,
)
from benchmarks.fronts.worlds import calm, draw_scenario
from benchmarks.harness.options import Options, echo
from benchmarks.harness.seeds import add_seeds, read_seeds
from benchmarks.harness.tables import Report, say, say_bars, tabulate
from jetson_dnn_rt.config.nodes import POLICIES, CoordinatorConfig
from jetson_dnn_rt.coordinator.policy import find_policy
from jetson_dnn_rt.lab.simulate.bound import Bound
from jetson_dnn_rt.lab.simulate.hindsight import TOLERANCE, Choice, Hindsight
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.session import ORACLE, simulate
from jetson_dnn_rt.lab.simulate.tally import Tally
from jetson_dnn_rt.lab.simulate.world import World
from jetson_dnn_rt.safety.children import safe_spawning

BAR = 0.9
"""Share of the scenarios in which horizon is on the front of every contest."""
EXACT = 1e-6
"""Relative error of the bound: that of the solver, and times in whole nanoseconds."""
MOST_PROCESSES = 2

LEAST = (0.95, 0.99, 1.0)
"""Least accuracy of a variant, for every policy that chooses variants: those below are not there.
Accuracy then is kept at any price: a frame for which there is no time is given up."""

_FRUGAL = {
    f"min_energy, floor {floor:g}": CoordinatorConfig(mode="min_energy", accuracy_floor=floor)
    for floor in (*FLOORS, 0.97, 0.995, 1.0)
}
SETTINGS: dict[str, dict[str, CoordinatorConfig]] = {
    OURS: {
        "balanced": CoordinatorConfig(),
        **_FRUGAL,
        "max_accuracy": CoordinatorConfig(mode="max_accuracy"),
    },
    "alert": {"most accurate": CoordinatorConfig(), **_FRUGAL},
}
"""Settings of the policies that have a knob; the others run with the defaults."""


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add_seeds(add, tuning="0-3", test="2001-2010")
    add("--frames", 60, "of the fastest camera", least=20)
    add("--processes", 1, "1 or 2", least=1, most=MOST_PROCESSES)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Play all scenarios and hold the contests."""
    seeds = read_seeds(args)
    if args.processes == 1:
        found = [_run_and_say(seed, seeds.tuning, args.frames) for seed in seeds.test]
    else:
        # Matrices are small here: threads of the linear algebra would only compete.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        with safe_spawning(), ProcessPoolExecutor(args.processes) as pool:
            jobs = [pool.submit(_run_and_say, s, seeds.tuning, args.frames) for s in seeds.test]
            found = [job.result() for job in jobs]
    bars = _judge(found)
    return {
        **seeds.describe(),
        **echo(args, "frames"),
        "scenarios": found,
        "by_settings": count_by_settings(found),
        "bars": bars,
        "passed": all(bar["met"] for bar in bars),
    }


def count_by_settings(scenarios: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Count the scenarios in which ours is on every front, also with fewer settings of all."""
    contested = {f"floor {floor:g}" for floor in FLOORS}

    def is_plain(point: Point) -> bool:
        return "variants from" not in point["setting"]

    def is_contested(point: Point) -> bool:
        *_, last = point["setting"].split(", ")
        return not last.startswith("floor") or last in contested

    keeps: dict[str, Callable[[Point], bool]] = {
        "all": lambda point: True,
        "no least accuracy of a variant": is_plain,
        "no floors but those of the contests": is_contested,
        "neither": lambda point: is_plain(point) and is_contested(point),
    }
    return [
        {
            "settings": name,
            "on_front": sum(
                all(contest["on_front"] for contest in hold_contests([*filter(keep, s["points"])]))
                for s in scenarios
            ),
        }
        for name, keep in keeps.items()
    ]


def _run_and_say(seed: int, tuning_seeds: Sequence[int], frames: int) -> dict[str, Any]:
    scenario = run_scenario(seed, tuning_seeds, frames)
    say(f"fronts: {seed}: {scenario['text']}: {scenario['sentence']}")
    return scenario


def run_scenario(seed: int, tuning_seeds: Sequence[int], frames: int) -> dict[str, Any]:
    """Play everything in the scenario of one test seed."""
    drawn = draw_scenario(seed, frames)
    source = Laboratory(drawn.scenario)
    world = source.world(seed)
    points = []
    for name in (*POLICIES, ORACLE):
        group = REFERENCE if name == ORACLE else POLICY
        for setting, config in SETTINGS.get(name, {"": CoordinatorConfig()}).items():
            tally = simulate(source, name, world=world, settings=config)
            points.append(_make_point(group, name, setting, tally))
    points += play_accurate(source, world)
    points += _play_static(source, seed, tuning_seeds)
    contests = hold_contests(points)
    bound = _find_bound(Bound(world), contests)
    return {
        "seed": seed,
        "text": drawn.text,
        "disturbances": list(drawn.disturbances),
        "points": points,
        "contests": contests,
        "bound": bound,
        "below_bound": sorted(_find_below(points, bound)),
        "sentence": write_sentence(contests),
    }


def play_accurate(source: Laboratory, world: World) -> Iterator[dict[str, Any]]:
    """Every policy that chooses variants, without those of little accuracy (`LEAST`)."""
    for least in LEAST:
        accurate = copy(source)
        accurate.tables = [
            table.take_variants(
                [n for n in range(len(table.variants)) if table.accuracy(n) >= least - 1e-9]
            )
            for table in source.tables
        ]
        for name in POLICIES:
            if find_policy(name).adjusts_variants:
                knob = name in SETTINGS
                config = CoordinatorConfig(mode="min_energy") if knob else CoordinatorConfig()
                tally = simulate(accurate, name, world=world, settings=config)
                setting = f"{'min_energy, ' if knob else ''}variants from {least:g}"
                yield _make_point(POLICY, name, setting, tally)


def _play_static(
    source: Laboratory, seed: int, tuning_seeds: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Static choices: with hindsight, and made at the desk."""
    world = source.world(seed)
    hindsight = Hindsight(source, world)
    desk = Hindsight(source, calm(source.world(tuning_seeds[seed % len(tuning_seeds)])))
    for group, search in ((HINDSIGHT, hindsight), (DESK, desk)):
        seen: set[Choice] = set()
        for floor in (*FLOORS, 1.0):
            choice = search.find(floor, improve=search is hindsight)
            if choice is not None and choice not in seen:
                seen.add(choice)
                setting = source.clock_table.describe(choice.clocks)
                variants = ", ".join(
                    task.parameters.variants[variant]
                    for task, variant in zip(world.tasks, choice.variants, strict=True)
                )
                tally = hindsight.play(choice)
                yield _make_point(group, "static", f"{variants} at {setting}", tally)


def _make_point(group: str, name: str, setting: str, tally: Tally) -> dict[str, Any]:
    return {
        "group": group,
        "name": name,
        "setting": setting,
        "miss_ratio": tally.miss_ratio,
        "energy_j": tally.energy_j / tally.met if tally.met else None,
        "accuracy": tally.accuracy,
        "p50_ms": _finite(tally.response_ms(0.50)),
        "p99_ms": _finite(tally.response_ms(0.99)),
    }


def _finite(value: float) -> float | None:
    """The value, or None if it is infinite, which JSON has not."""
    return value if math.isfinite(value) else None


def _find_bound(bound: Bound, contests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Least energy for each floor of accuracy and about the misses of its winner."""
    rows = []
    for contest in contests:
        if contest["kind"] == "accuracy":
            most = contest["winner"]["miss_ratio"] + TOLERANCE
            energy_j = bound.least_energy_j(contest["limit"], most)
            rows.append({"floor": contest["limit"], "most_misses": most, "energy_j": energy_j})
    return rows


def _find_below(points: Sequence[Point], bound: Sequence[Mapping[str, Any]]) -> set[str]:
    """Find points below the bound, which would be an error of one of the two."""
    return {
        f"{point['name']} {point['setting']}"
        for point in points
        for row in bound
        if point["accuracy"] is not None
        and point["accuracy"] >= row["floor"]
        and point["miss_ratio"] <= row["most_misses"]
        and point["energy_j"] < row["energy_j"] * (1.0 - EXACT)
    }


# -- bars and report -----------------------------------------------------------------------------


def _judge(scenarios: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    count = len(scenarios)
    on_front = [s for s in scenarios if all(contest["on_front"] for contest in s["contests"])]
    below = [f"{s['seed']}: {name}" for s in scenarios for name in s["below_bound"]]
    return [
        {
            "bar": f"on the front of every contest in {BAR:.0%} of the scenarios",
            "met": len(on_front) >= BAR * count,
            "figures": f"{len(on_front)} of {count}",
        },
        {
            "bar": "nothing is below the bound",
            "met": not below,
            "figures": ", ".join(below) or "nothing",
        },
    ]


def _count_contests(scenarios: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By contest: in how many scenarios ours is on its front, and wins it, and static does."""
    rows: dict[str, dict[str, Any]] = {}
    for scenario in scenarios:
        for contest in scenario["contests"]:
            row = rows.setdefault(
                describe(contest),
                {
                    "contest": describe(contest),
                    "held": 0,
                    "front": 0,
                    "won": 0,
                    DESK: 0,
                    HINDSIGHT: 0,
                },
            )
            row["held"] += 1
            row["front"] += contest["on_front"]
            row["won"] += contest["winner"]["name"] == OURS
            for group in (DESK, HINDSIGHT):
                row[group] += contest[f"{group} is as good"]
    return list(rows.values())


def _show(point: Point | None) -> str | None:
    if point is None:
        return None
    p99 = "infinite" if point["p99_ms"] is None else f"{point['p99_ms']:.1f} ms"
    return f"{point['miss_ratio']:.2%}, {point['energy_j']:.4f} J, {point['accuracy']:.3f}, {p99}"


def report(result: Mapping[str, Any]) -> Report:
    """Make the sentences, the counts by contest, and one table of figures by scenario."""
    scenarios = result["scenarios"]
    shown = [
        (scenario, contest)
        for scenario in scenarios
        for contest in scenario["contests"]
        if contest["kind"] == "accuracy" and contest["limit"] == 0.95
    ]
    rows = [
        {"seed": s["seed"], **contest, **row}
        for s, contest in shown
        for row in s["bound"]
        if row["floor"] == contest["limit"]
    ]
    return [
        f"tuning seeds {result['tuning_seeds']}, test seeds {result['test_seeds']}",
        tabulate(scenarios, "seed, scenario=text, who wins=sentence"),
        "scenarios in which horizon is on the front, wins, and a static choice is as good",
        tabulate(
            _count_contests(scenarios),
            f"at equal=contest, held, on the front=front, won, {DESK}, {HINDSIGHT}",
        ),
        "at accuracy 0.95: misses, energy by met frame, accuracy, p99 of all frames",
        tabulate(
            rows,
            "seed",
            ("winner", lambda row: f"{row['winner']['name']}: {_show(row['winner'])}"),
            ("horizon", lambda row: _show(row["ours"])),
            (HINDSIGHT, lambda row: _show(row[HINDSIGHT])),
            (DESK, lambda row: _show(row[DESK])),
            "bound J=energy_j:.4f",
        ),
        tabulate(result["by_settings"], "settings, scenarios on every front=on_front"),
        tabulate(result["bars"], "bars of horizon=bar, met, figures"),
        say_bars("; ".join(bar["bar"] for bar in result["bars"]), result["passed"]),
    ]
