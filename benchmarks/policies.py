"""All policies on simulated boards: who keeps the deadlines, how accurately, at what energy.

TX2 and Xavier, the four networks of the NeuOS paper with its deadlines, in cohorts of 1 (each
network alone: four runs taken together), 4 (one of each) and 8 (two of each). Every policy meets
the same worlds, seed by seed. `oracle` knows every execution time and changes clocks at once: the
bound. Energy is the board's over the whole run, idle time included, by met frame; accuracy is the
mean of the met frames.

Then what the paper says of NeuOS in relation to others, and whether these figures say the same;
where they do not, why. One of the reasons is looked into by running NeuOS a second time with
clocks that change without delay, as the paper takes them to.

Bars, for `horizon` in balanced mode, in every cell: misses of at most 0.5 % where the oracle has
none; no other policy as good on misses and better on both energy and accuracy; energy at most 5 %
above the oracle's, accuracy at most 5 % below.

The mechanics of the model, not of a board: see docs/simulator.md for what is assumed.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TypedDict, cast

from benchmarks.relations import Figures, Relation, judge_relations
from jetson_dnn_rt.coordinator.policy import Policy, PolicySettings
from jetson_dnn_rt.coordinator.registry import POLICIES
from jetson_dnn_rt.coordinator.tables.tables import ClockTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.oracle import Oracle
from jetson_dnn_rt.lab.simulate.scenario import open_scenario
from jetson_dnn_rt.lab.simulate.session import ORACLE, make_policy, simulate
from jetson_dnn_rt.lab.simulate.tally import Tally, summarize
from jetson_dnn_rt.platforms.clocks import ClockSpace
from jetson_dnn_rt.safety.children import safe_spawning

BOARDS = ("tx2", "xavier")
NETWORKS = ("alexnet", "googlenet", "resnet50", "vgg16")
COHORTS = {1: NETWORKS, 4: ("cohort4",), 8: ("cohort8",)}
"""By size: the scenarios, without their board, that are taken together."""

OURS = "horizon"
AT_ONCE = "@once"
"""After the name of a policy: with clocks that change without delay."""
DELAY_FREE = tuple(
    name + AT_ONCE for name in ("neuos_min_energy", "neuos_max_accuracy", "neuos_balanced")
)

MISS_BAR = 0.005
SHARE_BAR = 0.05
MOST_PROCESSES = 2


class Cell(TypedDict):
    """A board with a cohort size."""

    board: str
    cohort: int
    policies: dict[str, Figures]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's arguments."""
    add = parser.add_argument
    add("--seeds", type=int, default=10, help="worlds (default 10)")
    add("--frames", type=int, default=200, help="of the fastest camera, a seed (default 200)")
    add("--policies", default="", metavar="A,B", help="only these, beside horizon and the oracle")
    add("--processes", type=int, default=MOST_PROCESSES, help="1 or 2 (default 2)")
    add("--quick", action="store_true", help="two seeds of 120 frames")


def run(args: argparse.Namespace) -> dict[str, object]:
    """Simulate, compare, judge.

    Raises
    ------
    ConfigurationError
        For an unknown policy or a count out of range.
    """
    seeds, frames = (2, 120) if args.quick else (args.seeds, args.frames)
    if seeds < 1 or frames < 1 or not 1 <= args.processes <= MOST_PROCESSES:
        raise ConfigurationError(
            f"--seeds and --frames must be >= 1, --processes in [1, {MOST_PROCESSES}]"
        )
    policies = _wanted(args.policies)
    tallies = _simulate_all(policies, seeds, frames, args.processes)
    cells = [
        _cell(board, cohort, policies, seeds, tallies) for board in BOARDS for cohort in COHORTS
    ]
    bars = _judge(cells)
    relations = [] if args.policies else judge_relations(cells_by_name(cells), AT_ONCE)
    return {
        "benchmark": "policies",
        "seeds": seeds,
        "frames": frames,
        "settings": {"mode": PolicySettings().mode, "confidence": PolicySettings().confidence},
        "cells": cells,
        "relations": relations,
        "bars": bars,
        "passed": all(bar["met"] for bar in bars),
    }


def cells_by_name(cells: list[Cell]) -> dict[tuple[str, int], dict[str, Figures]]:
    """Figures of every policy by board and cohort size."""
    return {(cell["board"], cell["cohort"]): cell["policies"] for cell in cells}


# -- simulation ----------------------------------------------------------------------------------


class _AtOnce(Laboratory):
    """A board whose clocks change without delay."""

    @cached_property
    def clock_table(self) -> ClockTable:
        """The same configurations."""
        table = Laboratory(self.scenario).clock_table
        domains = [replace(domain, delay_ns=0) for domain in table.space.domains]
        return replace(table, space=ClockSpace(domains))


@lru_cache(maxsize=1)
def _sources(scenario: str) -> tuple[Laboratory, Laboratory, dict[str, Policy]]:
    """A scenario as it is and with clocks at once, and the policies made for it so far."""
    opened = open_scenario(scenario)
    return Laboratory(opened), _AtOnce(opened), {}


def _simulate(
    scenario: str, seed: int, frames: int, policies: tuple[str, ...]
) -> dict[str, Tally]:
    """One world under every policy."""
    usual, at_once, made = _sources(scenario)
    tallies = {}
    for policy in policies:
        source = at_once if policy.endswith(AT_ONCE) else usual
        name = policy.removesuffix(AT_ONCE)
        if policy not in made:
            world = source.world(seed, frames)
            made[policy] = make_policy(source, name, PolicySettings(), world)
        decider = made[policy]
        if isinstance(decider, Oracle):
            decider.show(source.world(seed, frames))
        tallies[policy] = simulate(source, name, seed=seed, frames=frames, made=decider)
    return tallies


def _simulate_all(
    policies: tuple[str, ...], seeds: int, frames: int, processes: int
) -> dict[tuple[str, int], dict[str, Tally]]:
    """All scenarios and seeds; the large cohorts first, so that the processes end together."""
    scenarios = [
        f"{board}_{name}"
        for cohort in sorted(COHORTS, reverse=True)
        for board in BOARDS
        for name in COHORTS[cohort]
    ]
    jobs = [(scenario, seed) for scenario in scenarios for seed in range(seeds)]
    done: dict[tuple[str, int], dict[str, Tally]] = {}
    # Matrices are tiny here: threads of the linear algebra would only stand in each other's way.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with safe_spawning(), ProcessPoolExecutor(processes) as pool:
        futures = {
            pool.submit(_simulate, scenario, seed, frames, policies): (scenario, seed)
            for scenario, seed in jobs
        }
        for future in as_completed(futures):
            done[futures[future]] = future.result()
            if len(done) % 10 == 0 or len(done) == len(jobs):
                print(f"policies: {len(done)} of {len(jobs)} runs", file=sys.stderr, flush=True)
    return done


def _wanted(text: str) -> tuple[str, ...]:
    if not text:
        return (*POLICIES, *DELAY_FREE, ORACLE)
    names = [name for name in text.split(",") if name not in (OURS, ORACLE)]
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise ConfigurationError(f"--policies must be of {', '.join(POLICIES)}: {unknown[0]!r}")
    return (*names, OURS, ORACLE)


def _cell(
    board: str,
    cohort: int,
    policies: tuple[str, ...],
    seeds: int,
    tallies: dict[tuple[str, int], dict[str, Tally]],
) -> Cell:
    figures: dict[str, Figures] = {}
    for policy in policies:
        merged = []
        for seed in range(seeds):
            whole = Tally()
            for name in COHORTS[cohort]:
                whole.merge(tallies[f"{board}_{name}", seed][policy], f"{name}/")
            merged.append(whole)
        figures[policy] = _figures(summarize(merged))
    return {"board": board, "cohort": cohort, "policies": figures}


def _figures(summary: dict[str, object]) -> Figures:
    response = cast("dict[str, float | None]", summary["response_ms"])
    interval = cast("tuple[float, float]", summary["miss_ratio_ci95"])
    return {
        "miss_ratio": cast(float, summary["miss_ratio"]),
        "miss_ratio_ci95": (interval[0], interval[1]),
        "max_burst": cast(int, summary["max_burst"]),
        "accuracy": cast("float | None", summary["accuracy"]),
        "energy_j": cast(float, summary["energy_j"]),
        "energy_per_met_frame_j": cast("float | None", summary["energy_per_met_frame_j"]),
        "p50_ms": response["p50"],
        "p99_ms": response["p99"],
    }


# -- bars ----------------------------------------------------------------------------------------


def _judge(cells: list[Cell]) -> list[dict[str, object]]:
    """Each bar in each cell, with its figures."""
    bars: list[dict[str, object]] = []
    for cell in cells:
        figures = cell["policies"]
        ours, bound = figures[OURS], figures[ORACLE]
        where = f"{cell['board']}, cohort of {cell['cohort']}"

        def add(what: str, met: bool, text: str, where: str = where) -> None:
            bars.append({"bar": what, "cell": where, "met": met, "figures": text})

        add(
            "misses",
            ours["miss_ratio"] <= MISS_BAR or bound["miss_ratio"] > 0.0,
            f"{ours['miss_ratio']:.2%} (bar {MISS_BAR:.1%}), oracle {bound['miss_ratio']:.2%}",
        )
        better = [
            name
            for name, other in figures.items()
            if name not in (OURS, ORACLE) and not name.endswith(AT_ONCE) and _beats(other, ours)
        ]
        add("not beaten", not better, ", ".join(better) if better else "by none")
        for key, low in (("energy_per_met_frame_j", False), ("accuracy", True)):
            mine, best = ours[key], bound[key]  # type: ignore[literal-required]
            if mine is None or best is None:
                add(key, False, "no frame was met")
                continue
            share = mine / best - 1.0
            met = share >= -SHARE_BAR if low else share <= SHARE_BAR
            add(key, met, f"{mine:.4f}, oracle {best:.4f}: {share:+.1%} (bar {SHARE_BAR:.0%})")
    return bars


def _beats(other: Figures, ours: Figures) -> bool:
    """Whether another policy misses no more and is better on both energy and accuracy."""
    energy, accuracy = other["energy_per_met_frame_j"], other["accuracy"]
    own_energy, own_accuracy = ours["energy_per_met_frame_j"], ours["accuracy"]
    if energy is None or accuracy is None:
        return False
    if own_energy is None or own_accuracy is None:
        return True
    return (
        other["miss_ratio"] <= ours["miss_ratio"]
        and energy < own_energy
        and accuracy > own_accuracy
    )


# -- table ---------------------------------------------------------------------------------------


def format_table(result: dict[str, object]) -> str:
    """Return the result as tables for people."""
    lines = []
    for cell in cast("list[Cell]", result["cells"]):
        lines += [
            f"{cell['board']}, cohort of {cell['cohort']}",
            f"{'policy':<24}{'misses':>8}{'95 % interval':>18}{'burst':>7}{'accuracy':>10}"
            f"{'J/met frame':>13}{'p50 ms':>9}{'p99 ms':>9}",
        ]
        for name, figures in cell["policies"].items():
            low, high = figures["miss_ratio_ci95"]
            lines.append(
                f"{name:<24}{figures['miss_ratio']:>8.2%}{f'{low:.2%} .. {high:.2%}':>18}"
                f"{figures['max_burst']:>7}{_number(figures['accuracy']):>10}"
                f"{_number(figures['energy_per_met_frame_j']):>13}"
                f"{_number(figures['p50_ms'], 1):>9}{_number(figures['p99_ms'], 1):>9}"
            )
        lines.append("")
    relations = cast("list[Relation]", result["relations"])
    if relations:
        lines.append("what the paper says of NeuOS, and these figures")
        for relation in relations:
            word = "yes" if relation["reproduced"] else "NO "
            lines.append(f"  {word} {relation['cell']:<22} {relation['claim']}")
            lines.append(f"      {relation['figures']}")
            if relation["why"]:
                lines.append(f"      {relation['why']}")
        lines.append("")
    lines.append("bars of horizon")
    for bar in cast("list[dict[str, object]]", result["bars"]):
        word = "met   " if bar["met"] else "MISSED"
        lines.append(f"  {word} {bar['cell']:<22} {bar['bar']}: {bar['figures']}")
    return "\n".join(lines)


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
