# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""All policies on simulated boards: deadlines met, accuracy, and energy.

TX2 and Xavier, the four networks of the NeuOS paper with its deadlines, in cohorts of 1 (each
network alone: four runs combined), 4 (one of each) and 8 (two of each). Every policy runs in the
same worlds, seed by seed. `oracle` is horizon with every execution time known and with clocks that
change at once: a reference, but no bound, since it guesses like horizon what will run side by
side. Energy is the board's over the whole run, idle time included, by met frame; accuracy is the
mean of the met frames. Settings of horizon were chosen on the tuning seeds of these scenarios, so
that none of them is judged.

Bars, for `horizon` in balanced mode, in every cell: misses of at most 0.5 % where the oracle has
none; energy at most 5 % above the oracle's, accuracy at most 5 % below. Who is best at the same
accuracy or energy, with a true bound and in scenarios that nothing was tuned on, is told by
`python -m benchmarks fronts`.

The figures are of the model, not of a board: see docs/simulator.md for its assumptions.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from typing import Any

from benchmarks.harness.options import Options
from benchmarks.harness.seeds import add_seeds, read_seeds
from benchmarks.harness.tables import Report, Table, flatten, say, say_bars, tabulate
from jetson_dnn_rt.config.nodes import POLICIES, CoordinatorConfig
from jetson_dnn_rt.coordinator.policy import Policy
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.oracle import Oracle
from jetson_dnn_rt.lab.simulate.scenario import open_scenario
from jetson_dnn_rt.lab.simulate.session import ORACLE, make_policy, simulate
from jetson_dnn_rt.lab.simulate.tally import Tally, summarize
from jetson_dnn_rt.safety.children import safe_spawning

BOARDS = ("tx2", "xavier")
NETWORKS = ("alexnet", "googlenet", "resnet50", "vgg16")
COHORTS = {1: NETWORKS, 4: ("cohort4",), 8: ("cohort8",)}
"""By size: the scenarios, without their board, that are combined."""

OURS = "horizon"

MISS_BAR = 0.005
SHARE_BAR = 0.05
MOST_PROCESSES = 2


Figures = Mapping[str, Any]
"""Figures of one policy in one cell."""

Cell = dict[str, Any]
"""Board and cohort size, with the figures of each policy."""


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add_seeds(add, tuning="0-9", test="100-109")
    add("--frames", 200, "of the fastest camera, a seed", least=1)
    add("--policies", "", "only these, beside horizon and the oracle", metavar="A,B")
    add("--processes", MOST_PROCESSES, "1 or 2", least=1, most=MOST_PROCESSES)
    add("--quick", False, "two seeds of 120 frames")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Simulate, compare and judge; `ConfigurationError` for an unknown policy."""
    seeds, frames = read_seeds(args), args.frames
    if args.quick:
        seeds, frames = seeds._replace(test=seeds.test[:2]), 120
    policies = _choose(args.policies)
    tallies = _simulate_all(policies, seeds.test, frames, args.processes)
    cells = [
        _describe(board, cohort, policies, seeds.test, tallies)
        for board in BOARDS
        for cohort in COHORTS
    ]
    bars = _judge(cells)
    return {
        **seeds.describe(),
        "frames": frames,
        "settings": {"mode": CoordinatorConfig.mode, "confidence": CoordinatorConfig.confidence},
        "cells": cells,
        "bars": bars,
        "passed": all(bar["met"] for bar in bars),
    }


# -- simulation ----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _source(scenario: str) -> tuple[Laboratory, dict[str, Policy]]:
    """Make a scenario's source, and its policies so far."""
    return Laboratory(open_scenario(scenario)), {}


def _simulate(
    scenario: str, seed: int, frames: int, policies: tuple[str, ...]
) -> dict[str, Tally]:
    """Simulate one world under every policy."""
    source, made = _source(scenario)
    tallies = {}
    for policy in policies:
        if policy not in made:
            world = source.world(seed, frames)
            made[policy] = make_policy(source, policy, CoordinatorConfig(), world)
        decider = made[policy]
        if isinstance(decider, Oracle):
            decider.show(source.world(seed, frames))
        tallies[policy] = simulate(source, policy, seed=seed, frames=frames, made=decider)
    return tallies


def _simulate_all(
    policies: tuple[str, ...], seeds: Sequence[int], frames: int, processes: int
) -> dict[tuple[str, int], dict[str, Tally]]:
    """Simulate all scenarios and seeds, large cohorts first, so that processes end together."""
    scenarios = [
        f"{board}_{name}"
        for cohort in sorted(COHORTS, reverse=True)
        for board in BOARDS
        for name in COHORTS[cohort]
    ]
    jobs = [(scenario, seed) for scenario in scenarios for seed in seeds]
    done: dict[tuple[str, int], dict[str, Tally]] = {}
    # Matrices are tiny here: threads of the linear algebra would only compete.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with safe_spawning(), ProcessPoolExecutor(processes) as pool:
        futures = {
            pool.submit(_simulate, scenario, seed, frames, policies): (scenario, seed)
            for scenario, seed in jobs
        }
        for future in as_completed(futures):
            done[futures[future]] = future.result()
            if len(done) % 10 == 0 or len(done) == len(jobs):
                say(f"policies: {len(done)} of {len(jobs)} runs")
    return done


def _choose(text: str) -> tuple[str, ...]:
    if not text:
        return (*POLICIES, ORACLE)
    names = [name for name in text.split(",") if name not in (OURS, ORACLE)]
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise ConfigurationError(f"--policies must be of {', '.join(POLICIES)}: {unknown[0]!r}")
    return (*names, OURS, ORACLE)


def _describe(
    board: str,
    cohort: int,
    policies: Sequence[str],
    seeds: Sequence[int],
    tallies: Mapping[tuple[str, int], Mapping[str, Tally]],
) -> Cell:
    figures: dict[str, Figures] = {}
    for policy in policies:
        merged = []
        for seed in seeds:
            whole = Tally()
            for name in COHORTS[cohort]:
                whole.merge(tallies[f"{board}_{name}", seed][policy], f"{name}/")
            merged.append(whole)
        summary: dict[str, Any] = summarize(merged)
        kept = ("miss_ratio", "max_burst", "accuracy", "energy_j", "energy_per_met_frame_j")
        figures[policy] = {
            **{key: summary[key] for key in kept},
            "miss_ratio_ci95": tuple(summary["miss_ratio_ci95"]),
            "p50_ms": summary["response_ms"]["p50"],
            "p99_ms": summary["response_ms"]["p99"],
        }
    return {"board": board, "cohort": cohort, "policies": figures}


# -- bars ----------------------------------------------------------------------------------------


def _judge(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Judge each bar in each cell, with its figures."""
    bars: list[dict[str, Any]] = []
    for cell in cells:
        figures = cell["policies"]
        ours, reference = figures[OURS], figures[ORACLE]
        where = f"{cell['board']}, cohort of {cell['cohort']}"

        def add(what: str, met: bool, text: str, where: str = where) -> None:
            bars.append({"bar": what, "cell": where, "met": met, "figures": text})

        add(
            "misses",
            ours["miss_ratio"] <= MISS_BAR or reference["miss_ratio"] > 0.0,
            f"{ours['miss_ratio']:.2%} (bar {MISS_BAR:.1%}), oracle {reference['miss_ratio']:.2%}",
        )
        for key, low in (("energy_per_met_frame_j", False), ("accuracy", True)):
            mine, best = ours[key], reference[key]
            if mine is None or best is None:
                add(key, False, "no frame was met")
                continue
            share = mine / best - 1.0
            met = share >= -SHARE_BAR if low else share <= SHARE_BAR
            add(key, met, f"{mine:.4f}, oracle {best:.4f}: {share:+.1%} (bar {SHARE_BAR:.0%})")
    return bars


# -- report --------------------------------------------------------------------------------------


def report(result: Mapping[str, Any]) -> Report:
    """Make a table for each cell, and the bars."""
    parts: list[str | Table] = []
    for cell in result["cells"]:
        parts += [
            f"{cell['board']}, cohort of {cell['cohort']}",
            tabulate(
                flatten(cell["policies"], "policy"),
                "policy, misses=miss_ratio:.2%",
                (
                    "95 % interval",
                    lambda row: " .. ".join(f"{v:.2%}" for v in row["miss_ratio_ci95"]),
                ),
                "burst=max_burst, accuracy:.4f, J/met frame=energy_per_met_frame_j:.4f",
                "p50 ms=p50_ms:.1f, p99 ms=p99_ms:.1f",
            ),
        ]
    return [
        *parts,
        tabulate(result["bars"], "bars of horizon=bar, cell, met, figures"),
        say_bars(
            f"horizon in every cell: misses <= {MISS_BAR:.1%} or the oracle misses too, energy "
            f"and accuracy within {SHARE_BAR:.0%} of the oracle's",
            result["passed"],
        ),
    ]
