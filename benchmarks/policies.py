# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""All policies on simulated boards: deadlines met, accuracy, and energy.

TX2 and Xavier, the four networks of the NeuOS paper with its deadlines, in cohorts of 1 (each
network alone: four runs combined), 4 (one of each) and 8 (two of each). Every policy runs in the
same worlds, seed by seed. `oracle` knows every execution time and changes clocks at once: the
bound. Energy is the board's over the whole run, idle time included, by met frame; accuracy is the
mean of the met frames.

Then the paper's claims about NeuOS in relation to others, whether these figures confirm them, and
if not, why. One of the reasons is tested by running NeuOS a second time with clocks that change
without delay, as the paper assumes.

Bars, for `horizon` in balanced mode, in every cell: misses of at most 0.5 % where the oracle has
none; no other policy as good on misses and better on both energy and accuracy; energy at most 5 %
above the oracle's, accuracy at most 5 % below.

The figures are of the model, not of a board: see docs/simulator.md for its assumptions.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from benchmarks.harness.options import Options
from benchmarks.harness.tables import Report, Table, flatten, say, tabulate
from jetson_dnn_rt.config.nodes import POLICIES, CoordinatorConfig
from jetson_dnn_rt.coordinator.policy import Policy
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
"""By size: the scenarios, without their board, that are combined."""

OURS = "horizon"
AT_ONCE = "@once"
"""Suffix of a policy's name: with clocks that change without delay."""
DELAY_FREE = tuple(
    name + AT_ONCE for name in ("neuos_min_energy", "neuos_max_accuracy", "neuos_balanced")
)

MISS_BAR = 0.005
SHARE_BAR = 0.05
MOST_PROCESSES = 2


Figures = Mapping[str, Any]
"""Figures of one policy in one cell."""

Cell = dict[str, Any]
"""Board and cohort size, with the figures of each policy."""


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--seeds", 10, "worlds", least=1)
    add("--frames", 200, "of the fastest camera, a seed", least=1)
    add("--policies", "", "only these, beside horizon and the oracle", metavar="A,B")
    add("--processes", MOST_PROCESSES, "1 or 2", least=1, most=MOST_PROCESSES)
    add("--quick", False, "two seeds of 120 frames")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Simulate, compare and judge; `ConfigurationError` for an unknown policy."""
    seeds, frames = (2, 120) if args.quick else (args.seeds, args.frames)
    policies = _choose(args.policies)
    tallies = _simulate_all(policies, seeds, frames, args.processes)
    cells = [
        _describe(board, cohort, policies, seeds, tallies)
        for board in BOARDS
        for cohort in COHORTS
    ]
    bars = _judge(cells)
    by_name = {(cell["board"], cell["cohort"]): cell["policies"] for cell in cells}
    return {
        "seeds": seeds,
        "frames": frames,
        "settings": {"mode": CoordinatorConfig.mode, "confidence": CoordinatorConfig.confidence},
        "cells": cells,
        "relations": [] if args.policies else judge_relations(by_name, AT_ONCE),
        "bars": bars,
        "passed": all(bar["met"] for bar in bars),
    }


# -- simulation ----------------------------------------------------------------------------------


class _AtOnce(Laboratory):
    """Board whose clocks change without delay."""

    @cached_property
    def clock_table(self) -> ClockTable:
        """The same configurations."""
        table = Laboratory(self.scenario).clock_table
        domains = [replace(domain, delay_ns=0) for domain in table.space.domains]
        return replace(table, space=ClockSpace(domains))


@lru_cache(maxsize=1)
def _sources(scenario: str) -> tuple[Laboratory, Laboratory, dict[str, Policy]]:
    """Make a scenario's sources, unchanged and with instant clocks, and their policies so far."""
    opened = open_scenario(scenario)
    return Laboratory(opened), _AtOnce(opened), {}


def _simulate(
    scenario: str, seed: int, frames: int, policies: tuple[str, ...]
) -> dict[str, Tally]:
    """Simulate one world under every policy."""
    usual, at_once, made = _sources(scenario)
    tallies = {}
    for policy in policies:
        source = at_once if policy.endswith(AT_ONCE) else usual
        name = policy.removesuffix(AT_ONCE)
        if policy not in made:
            world = source.world(seed, frames)
            made[policy] = make_policy(source, name, CoordinatorConfig(), world)
        decider = made[policy]
        if isinstance(decider, Oracle):
            decider.show(source.world(seed, frames))
        tallies[policy] = simulate(source, name, seed=seed, frames=frames, made=decider)
    return tallies


def _simulate_all(
    policies: tuple[str, ...], seeds: int, frames: int, processes: int
) -> dict[tuple[str, int], dict[str, Tally]]:
    """Simulate all scenarios and seeds, large cohorts first, so that processes end together."""
    scenarios = [
        f"{board}_{name}"
        for cohort in sorted(COHORTS, reverse=True)
        for board in BOARDS
        for name in COHORTS[cohort]
    ]
    jobs = [(scenario, seed) for scenario in scenarios for seed in range(seeds)]
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
        return (*POLICIES, *DELAY_FREE, ORACLE)
    names = [name for name in text.split(",") if name not in (OURS, ORACLE)]
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise ConfigurationError(f"--policies must be of {', '.join(POLICIES)}: {unknown[0]!r}")
    return (*names, OURS, ORACLE)


def _describe(
    board: str,
    cohort: int,
    policies: Sequence[str],
    seeds: int,
    tallies: Mapping[tuple[str, int], Mapping[str, Tally]],
) -> Cell:
    figures: dict[str, Figures] = {}
    for policy in policies:
        merged = []
        for seed in range(seeds):
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
            mine, best = ours[key], bound[key]
            if mine is None or best is None:
                add(key, False, "no frame was met")
                continue
            share = mine / best - 1.0
            met = share >= -SHARE_BAR if low else share <= SHARE_BAR
            add(key, met, f"{mine:.4f}, oracle {best:.4f}: {share:+.1%} (bar {SHARE_BAR:.0%})")
    return bars


def _beats(other: Figures, ours: Figures) -> bool:
    """Whether another policy misses no more and is better on both energy and accuracy."""
    keys = ("energy_per_met_frame_j", "accuracy")
    (energy, accuracy), (own_energy, own_accuracy) = (
        [one[key] for key in keys] for one in (other, ours)
    )
    if energy is None or accuracy is None:
        return False
    if own_energy is None or own_accuracy is None:
        return True
    fewer = other["miss_ratio"] <= ours["miss_ratio"]
    return bool(fewer and energy < own_energy and accuracy > own_accuracy)


# -- relations -----------------------------------------------------------------------------------

SELDOM = 0.0325
"""Misses of NeuOS in the paper."""


@dataclass(frozen=True)
class _Claim:
    """Claim that one policy has at most as much of a figure as another.

    The paper claims it for these `cohorts`; `exceptions` are its own: board, cohort, reason.
    """

    text: str
    policy: str
    other: str
    key: str
    cohorts: tuple[int, ...] = (1, 4, 8)
    exceptions: tuple[tuple[str, int, str], ...] = ()


_SLOW_CLOCKS = (
    "the paper excepts it: alone, min energy falls into very slow and inefficient clocks"
)
_XAVIER = "the paper excepts it: PredJoule misses the deadlines there that NeuOS pays energy for"
_ENERGY, _MISSES, _ACCURACY = "energy_per_met_frame_j", "miss_ratio", "accuracy"
_BALANCED, _FRUGAL, _ACCURATE = "neuos_balanced", "neuos_min_energy", "neuos_max_accuracy"

_ALONE = (("tx2", 1, _SLOW_CLOCKS), ("xavier", 1, _SLOW_CLOCKS))
_EVERY = tuple(("xavier", cohort, _XAVIER) for cohort in (1, 4, 8))
_OTHERS = {"POET": "poet", "Race-to-idle": "race_to_idle", "Max-N": "max_n", "Max-Q": "max_q"}

# fmt: off
CLAIMS = (
    _Claim("min energy takes less energy than balanced", _FRUGAL, _BALANCED, _ENERGY,
           exceptions=_ALONE),
    _Claim("min energy is at most as accurate as balanced", _FRUGAL, _BALANCED, _ACCURACY),
    _Claim("max accuracy is at least as accurate as balanced", _BALANCED, _ACCURATE, _ACCURACY),
    _Claim("max accuracy takes more energy than balanced", _BALANCED, _ACCURATE, _ENERGY),
    _Claim("balanced takes less energy than PredJoule", _BALANCED, "predjoule", _ENERGY,
           exceptions=_EVERY),
    *(_Claim(f"balanced takes less energy than {name}", _BALANCED, other, _ENERGY, (1,))
      for name, other in _OTHERS.items()),
    _Claim("balanced misses less than PredJoule", _BALANCED, "predjoule", _MISSES),
    _Claim("balanced misses less than POET", _BALANCED, "poet", _MISSES, (1,)),
    _Claim("balanced misses less than Max-Q", _BALANCED, "max_q", _MISSES, (1,)),
    _Claim("balanced is more accurate than ApNet", "apnet", _BALANCED, _ACCURACY),
)
# fmt: on


def judge_relations(
    cells: Mapping[tuple[str, int], Mapping[str, Figures]], at_once: str
) -> list[dict[str, Any]]:
    """Compare the claims with the figures.

    `cells` are by board and cohort size, then by policy; `at_once` is the suffix of a policy's
    name for clocks without delay.
    """
    relations = []
    for (board, cohort), figures in cells.items():

        def add(claim: str, holds: bool, shown: str, why: str) -> None:
            cell = f"{board}, cohort of {cohort}"  # noqa: B023
            relations.append(
                {"claim": claim, "cell": cell, "reproduced": holds, "figures": shown, "why": why}
            )

        for claim in CLAIMS:
            if cohort in claim.cohorts:
                pair = figures[claim.policy], figures[claim.other]
                holds = _holds(claim, *pair)
                why = "" if holds else _explain(claim, (board, cohort), figures, at_once)
                add(claim.text, holds, _compare(claim, *pair), why)
        misses = figures[_BALANCED]["miss_ratio"]
        why = (
            f"clocks that change at once: {figures[_BALANCED + at_once]['miss_ratio']:.2%}; the "
            "selection rule is a reading (REFERENCE 1.7), and LAG leaves the scatter of the rest "
            "of the frame out"
        )
        text = f"balanced misses {SELDOM:.2%} of its frames at most"
        add(text, misses <= SELDOM, f"{misses:.2%}", "" if misses <= SELDOM else why)
    return relations


def _holds(claim: _Claim, first: Figures, second: Figures) -> bool:
    one, other = first[claim.key], second[claim.key]
    return one is not None and other is not None and bool(one <= other)


def _explain(
    claim: _Claim, cell: tuple[str, int], figures: Mapping[str, Figures], at_once: str
) -> str:
    """Explain a claim that fails: the paper's exception, the delay of clocks, or the figures."""
    for *where, text in claim.exceptions:
        if tuple(where) == cell:
            return text
    first, second = (
        figures.get(name + at_once, figures[name]) for name in (claim.policy, claim.other)
    )
    if _holds(claim, first, second):
        without = _compare(claim, first, second)
        return f"the delay of clock changes, which the paper does not know: without it {without}"
    first, second = figures[claim.policy], figures[claim.other]
    energy, other_energy = first["energy_j"], second["energy_j"]
    misses = f"misses {first['miss_ratio']:.1%} against {second['miss_ratio']:.1%}"
    runs = f"{energy:.0f} J against {other_energy:.0f} J by run"
    if claim.key == _ENERGY and energy <= other_energy:
        return (
            f"by run it does ({energy:.2f} J against {other_energy:.2f} J), but with "
            f"{first['miss_ratio']:.1%} misses against {second['miss_ratio']:.1%} fewer frames "
            "bear it"
        )
    if claim.key == _MISSES and energy < other_energy:
        return (
            f"it takes less energy for it ({runs}): it slows the clocks until LAG is 0, which "
            "leaves nothing in reserve for what scatters"
        )
    if claim.key == _ACCURACY and energy > other_energy:
        return (
            f"{claim.policy} is faster all the time and has less need to approximate ({runs}); "
            f"{misses}"
        )
    return f"not in this model: {misses}, {runs}"


def _compare(claim: _Claim, first: Figures, second: Figures) -> str:
    one, other = first[claim.key], second[claim.key]
    texts = [
        "none met" if value is None else f"{value:.2%}" if claim.key == _MISSES else f"{value:.4f}"
        for value in (one, other)
    ]
    return f"{claim.policy} {texts[0]}, {claim.other} {texts[1]}"


# -- report --------------------------------------------------------------------------------------


def report(result: Mapping[str, Any]) -> Report:
    """Make a table for each cell, the relations of the paper, and the bars."""
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
    if result["relations"]:
        parts += [
            "the paper's claims about NeuOS, and these figures",
            tabulate(result["relations"], "cell, claim, reproduced, figures, why"),
        ]
    return [*parts, tabulate(result["bars"], "bars of horizon=bar, cell, met, figures")]
