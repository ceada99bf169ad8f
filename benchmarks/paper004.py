# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""NeuOS (paper 004) in simulated worlds beside the paper's own figures, in both reconstructions.

Two readings of NeuOS: that of the paper (`neuos_*`), whose selection rule was lost, and that of
the artifact that its authors published later (`neuos_artifact_*`). TX2 (calibrated with their
measured usefulness of each layer) and AGX Xavier, the paper's four networks and deadlines, cohorts
of 1 (each network alone), 4 (one of each) and 8 (two of each).

1. p99 of each network in each of the 24 cells, where a frame without a result counts as infinite.
2. The relations that the paper states between NeuOS and others, and between its modes. Where both
   sides are NeuOS and equal, that is a tie and no relation. Some have an exception or a reason:
   one of these is tested by running NeuOS with clocks that change without delay, as the paper has
   them.
3. Table 3: memory. Weights of the networks and of their low-rank copies are counted on the
   artifact's definitions, the tables are those of the policies here.
4. Figure 3: the configuration of the least energy for each layer of AlexNet, its place in the
   artifact's list, and the approximation that these clocks need for a deadline of 12 ms.
5. Figure 10: AlexNet in cohorts of 1, 2 and 3 on the TX2 with a deadline of 25 ms, nine frames:
   mean time and energy of a frame, and what the paper says of them.

The figures are of a model, not of a board, and of reconstructions, not of NeuOS.
"""

from __future__ import annotations

import argparse
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.harness.options import Options
from benchmarks.harness.seeds import add_seeds, read_seeds
from benchmarks.harness.tables import Report, Table, say, tabulate
from benchmarks.policies import COHORTS, NETWORKS
from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.policies.apnet import make_plans
from jetson_dnn_rt.coordinator.policies.neuos_artifact import list_order
from jetson_dnn_rt.coordinator.policies.predjoule import usefulness
from jetson_dnn_rt.coordinator.tables.tables import ClockTable
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import CameraSetting, Scenario, open_scenario
from jetson_dnn_rt.lab.simulate.session import make_policy, simulate
from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame
from jetson_dnn_rt.lab.simulate.tally import Tally, summarize
from jetson_dnn_rt.platforms.clocks import ClockSpace
from jetson_dnn_rt.tasks import Outcome

READINGS = {"paper": "neuos_", "artifact": "neuos_artifact_"}
"""What the names of a reading's policies begin with."""
MODES = ("balanced", "min_energy", "max_accuracy")
OURS = "horizon"
OTHERS = ("predjoule", "poet", "apnet", "race_to_idle", "max_n", "max_q")
AT_ONCE = "@once"
"""Suffix of a policy's name: with clocks that change without delay."""
NEUOS = tuple(prefix + mode for prefix in READINGS.values() for mode in MODES)
POLICIES = (*NEUOS, *(name + AT_ONCE for name in NEUOS), *OTHERS, OURS)

P99_MS = {
    "tx2": {
        1: (9.2, 48.0, 130.3, 39.1),
        4: (10.4, 39.2, 101.7, 69.0),
        8: (13.6, 40.8, 190.0, 72.0),
    },
    "xavier": {
        1: (5.0, 12.0, 26.1, 36.2),
        4: (11.0, 12.5, 26.3, 35.9),
        8: (10.7, 54.0, 62.0, 36.1),
    },
}
"""The paper's p99, by board, cohort and in the order of `NETWORKS` (section 5.2)."""

WEIGHTS_M = {
    "alexnet": (60.965, 59.099),
    "googlenet": (6.999, 5.969),
    "resnet50": (25.610, 21.296),
    "vgg16": (143.667, 133.380),
}
"""Parameters in millions, of the network and of its low-rank copy. Counted on the Caffe
definitions of github.com/Soroosh129/NeuOS, commit 97e1264 (the originals and
models/lowrank/*_lowrank_deploy.prototxt); its VGG is VGG-19."""

Figures = Mapping[str, Any]
"""Figures of one policy in one cell."""


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    # The model, horizon and the readings of NeuOS were made on these.
    add_seeds(add, tuning="0-9,100-103", test="200-203")
    add("--frames", 120, "of the fastest camera, a seed", least=1)
    add("--quick", False, "one seed of 60 frames")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Simulate, and compare with the paper."""
    seeds = read_seeds(args)
    worlds, frames = (seeds.test[:1], 60) if args.quick else (seeds.test, args.frames)
    cells: list[dict[str, Any]] = []
    p99: list[dict[str, Any]] = []
    for board in P99_MS:
        for cohort in COHORTS:
            figures, tallies = _simulate_cell(board, cohort, worlds, frames)
            cells.append({"board": board, "cohort": cohort, "policies": figures})
            p99 += _describe_p99(board, cohort, tallies)
            say(f"paper004: {board}, cohort of {cohort}")
    relations = [
        relation
        for reading in READINGS
        for relation in judge_relations(
            {(cell["board"], cell["cohort"]): cell["policies"] for cell in cells}, reading
        )
    ]
    figure10 = _figure10(worlds)
    return {
        **seeds.describe(),
        "frames": frames,
        "calibration": _describe_calibration(),
        "p99": p99,
        "p99_in_time": _count_in_time(p99),
        "cells": cells,
        "relations": relations,
        "counts": _count(relations),
        "table3": _table3(),
        "figure3": _figure3(),
        "figure10": figure10,
        "figure10_relations": judge_figure10(figure10),
        "passed": None,
    }


# -- simulation ----------------------------------------------------------------------------------


def _open(name: str) -> Scenario:
    """A scenario, on the calibrated board where there is one."""
    scenario = open_scenario(name)
    return replace(scenario, calibrated=bool(scenario.board.usefulness))


class _AtOnce(Laboratory):
    """Board whose clocks change without delay."""

    @cached_property
    def clock_table(self) -> ClockTable:
        """The same configurations."""
        table = Laboratory(self.scenario).clock_table
        domains = [replace(domain, delay_ns=0) for domain in table.space.domains]
        return replace(table, space=ClockSpace(domains))


@dataclass
class _Responses:
    """Response times of a network's frames under one policy."""

    released: int = 0
    missed: int = 0
    times_ns: list[int] | None = None

    def p99_ms(self) -> float:
        """The smallest time within which 99 % of all frames had a result; may be infinite."""
        times = sorted(self.times_ns or ())
        rank = math.ceil(0.99 * self.released)
        return times[rank - 1] / 1e6 if 0 < rank <= len(times) else math.inf


def _simulate_cell(
    board: str, cohort: int, seeds: Sequence[int], frames: int
) -> tuple[dict[str, Figures], dict[str, dict[str, _Responses]]]:
    """Figures of all policies, and their responses by network."""
    whole: dict[str, list[Tally]] = {name: [Tally() for _ in seeds] for name in POLICIES}
    responses: dict[str, dict[str, _Responses]] = {name: {} for name in POLICIES}
    for scenario_name in COHORTS[cohort]:
        scenario = _open(f"{board}_{scenario_name}")
        networks = {task.name: task.network for task in scenario.tasks}
        usual, at_once = Laboratory(scenario), _AtOnce(scenario)
        for policy in POLICIES:
            name = policy.removesuffix(AT_ONCE)
            source = at_once if policy != name else usual
            first = source.world(seeds[0], frames)
            made = make_policy(source, name, CoordinatorConfig(), first)
            for index, seed in enumerate(seeds):
                tally = simulate(source, name, seed=seed, frames=frames, made=made)
                whole[policy][index].merge(tally, f"{scenario_name}/")
                for task, counted in tally.tasks.items():
                    mine = responses[policy].setdefault(networks[task], _Responses(times_ns=[]))
                    mine.released += counted.released
                    mine.missed += counted.released - counted.met
                    mine.times_ns = [*(mine.times_ns or ()), *counted.response_ns]
    figures: dict[str, Figures] = {}
    for policy, tallies in whole.items():
        summary = summarize(tallies)
        kept = ("miss_ratio", "accuracy", "energy_j", "energy_per_met_frame_j")
        figures[policy] = {key: summary[key] for key in kept}
    return figures, responses


# -- p99 -----------------------------------------------------------------------------------------


def _describe_p99(
    board: str, cohort: int, responses: Mapping[str, Mapping[str, _Responses]]
) -> list[dict[str, Any]]:
    deadlines = open_scenario(f"{board}_cohort4").board.deadline_ms
    rows = []
    for network, paper_ms in zip(NETWORKS, P99_MS[board][cohort], strict=True):
        row: dict[str, Any] = {
            "board": board,
            "cohort": cohort,
            "network": network,
            "deadline_ms": deadlines[network],
            "published_ms": paper_ms,
        }
        for policy in (READINGS["paper"] + MODES[0], READINGS["artifact"] + MODES[0], OURS):
            mine = responses[policy][network]
            time_ms = mine.p99_ms()
            row[policy] = {
                # JSON has no infinity.
                "p99_ms": time_ms if math.isfinite(time_ms) else None,
                "miss_ratio": mine.missed / mine.released,
            }
        rows.append(row)
    return rows


def _count_in_time(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """In how many cells the p99 is within the deadline."""
    counts = {"published": sum(row["published_ms"] <= row["deadline_ms"] for row in rows)}
    for policy in (READINGS["paper"] + MODES[0], READINGS["artifact"] + MODES[0], OURS):
        times = [(row[policy]["p99_ms"], row["deadline_ms"]) for row in rows]
        counts[policy] = sum(time is not None and time <= deadline for time, deadline in times)
    return counts


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
_BALANCED, _FRUGAL, _ACCURATE = MODES

_ALONE = (("tx2", 1, _SLOW_CLOCKS), ("xavier", 1, _SLOW_CLOCKS))
_EVERY = tuple(("xavier", cohort, _XAVIER) for cohort in (1, 4, 8))
_ENERGY_RIVALS = {
    "POET": "poet", "Race-to-idle": "race_to_idle", "Max-N": "max_n", "Max-Q": "max_q",
}  # fmt: skip

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
      for name, other in _ENERGY_RIVALS.items()),
    _Claim("balanced misses less than PredJoule", _BALANCED, "predjoule", _MISSES),
    _Claim("balanced misses less than POET", _BALANCED, "poet", _MISSES, (1,)),
    _Claim("balanced misses less than Max-Q", _BALANCED, "max_q", _MISSES, (1,)),
    _Claim("balanced is more accurate than ApNet", "apnet", _BALANCED, _ACCURACY),
)
# fmt: on


def judge_relations(
    cells: Mapping[tuple[str, int], Mapping[str, Figures]], reading: str
) -> list[dict[str, Any]]:
    """Compare the claims with the figures of one reading; `cells` by board and cohort size.

    ``reproduced`` is None for a tie of NeuOS with itself.
    """
    prefix = READINGS[reading]
    relations = []
    for (board, cohort), figures in cells.items():
        place: dict[str, Any] = {"reading": reading, "cell": f"{board}, cohort of {cohort}"}
        for claim in CLAIMS:
            if cohort not in claim.cohorts:
                continue
            mine = replace(
                claim,
                policy=prefix + claim.policy if claim.policy in MODES else claim.policy,
                other=prefix + claim.other if claim.other in MODES else claim.other,
            )
            pair = figures[mine.policy], figures[mine.other]
            tie = {claim.policy, claim.other} <= set(MODES) and pair[0][claim.key] == pair[1][
                claim.key
            ]
            holds = None if tie else _holds(mine, *pair)
            why = "" if holds else "a tie" if tie else _explain(mine, (board, cohort), figures)
            shown = _compare(mine, *pair)
            relations.append(
                place | {"claim": claim.text, "reproduced": holds, "figures": shown, "why": why}
            )
        balanced = prefix + _BALANCED
        misses = figures[balanced]["miss_ratio"]
        at_once = figures[balanced + AT_ONCE]["miss_ratio"]
        relations.append(
            place
            | {
                "claim": f"balanced misses {SELDOM:.2%} of its frames at most",
                "reproduced": misses <= SELDOM,
                "figures": f"{misses:.2%}",
                "why": ""
                if misses <= SELDOM
                else f"clocks that change at once: {at_once:.2%}; LAG leaves the scatter of the "
                "rest of the frame out",
            }
        )
    return relations


def _count(relations: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """By reading: relations that hold, that the paper excepts, that fail, and ties."""
    counts: dict[str, dict[str, int]] = {}
    for reading in READINGS:
        mine = [relation for relation in relations if relation["reading"] == reading]
        found = Counter(
            "ties"
            if relation["reproduced"] is None
            else "hold"
            if relation["reproduced"]
            else "fail"
            for relation in mine
        )
        counts[reading] = {
            "hold": found["hold"],
            "of": found["hold"] + found["fail"],
            "ties": found["ties"],
            "excepted": sum("the paper excepts it" in relation["why"] for relation in mine),
        }
    return counts


def _holds(claim: _Claim, first: Figures, second: Figures) -> bool:
    one, other = first[claim.key], second[claim.key]
    return one is not None and other is not None and bool(one <= other)


def _explain(claim: _Claim, cell: tuple[str, int], figures: Mapping[str, Figures]) -> str:
    """Explain a claim that fails: the paper's exception, the delay of clocks, or the figures."""
    for *where, text in claim.exceptions:
        if tuple(where) == cell:
            return text
    first, second = (
        figures.get(name + AT_ONCE, figures[name]) for name in (claim.policy, claim.other)
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
            f"it takes less energy for it ({runs}): its clocks leave nothing in reserve for what "
            "scatters"
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


# -- calibration, Table 3, Figure 3 --------------------------------------------------------------


def _describe_calibration() -> list[dict[str, Any]]:
    """Measured and modelled U of every stage of the TX2, before and after the calibration."""
    rows = []
    for network in NETWORKS:
        calibrated = _open(f"tx2_{network}")
        everything = replace(calibrated, clocks="all")
        before, after = (
            usefulness(replace(Laboratory(scenario).true_tables[0], usefulness=()))
            for scenario in (replace(everything, calibrated=False), everything)
        )
        stages = calibrated.networks.networks[network].stages
        measured = calibrated.board.usefulness[network]
        for stage, *values in zip(stages, measured, before, after, strict=True):
            names = ("measured", "assumed", "calibrated")
            named = zip(names, values, strict=True)
            rows.append({"network": network, "stage": stage.name, **dict(named)})
    return rows


def _table3() -> list[dict[str, Any]]:
    """Memory of NeuOS: weights, low-rank copies, and the tables of the policies here."""
    rows = []
    for network, (original, low_rank) in WEIGHTS_M.items():
        table = Laboratory(_open(f"tx2_{network}")).tables[0]
        arrays = (table.times_ns, table.slowdown, table.power_w, table.loss)
        mb, copy_mb = original * 4.0, low_rank * 4.0
        tables_mb = sum(array.nbytes for array in arrays) / 1e6
        rows.append(
            {
                "network": network,
                "original_mb": mb,
                "low_rank_mb": copy_mb,
                "tables_mb": tables_mb,
                "added_share": (copy_mb + tables_mb) / (mb + copy_mb + tables_mb),
            }
        )
    return rows


def _figure3() -> dict[str, Any]:
    """The least energy of each layer of AlexNet among all configurations of the TX2."""
    laboratory = Laboratory(replace(_open("tx2_alexnet"), clocks="all"))
    table, clocks = laboratory.true_tables[0], laboratory.clock_table
    places = np.argsort(list_order(clocks))
    times_ms = table.median_ns[0][:, np.newaxis] * table.slowdown[0] / 1e6
    energy_mj = times_ms * table.power_w[0]
    best = energy_mj.argmin(axis=1)
    limited = replace(table, deadline_ns=12_000_000)
    slow = replace(
        limited,
        times_ns=np.rint(
            table.times_ns * table.slowdown[:, np.arange(len(best)), best][:, :, np.newaxis]
        ).astype(np.int64),
    )
    times, plans = make_plans(slow, CoordinatorConfig.confidence)
    fitting = plans[min(bisect_left(times, -12_000_000), len(plans) - 1)]
    rows = []
    for stage, name in enumerate(table.stages):
        position = int(best[stage])
        rows.append(
            {
                "layer": name,
                "place": int(places[position]),
                "clocks": clocks.describe(position),
                "time_ms": float(times_ms[stage, position]),
                "energy_mj": float(energy_mj[stage, position]),
                "energy_fastest_mj": float(energy_mj[stage, clocks.fastest]),
                "energy_slowest_mj": float(energy_mj[stage, clocks.slowest]),
                "variant_for_12_ms": table.variants[fitting[stage]],
            }
        )
    return {"configurations": len(clocks), "layers": rows}


# -- Figure 10 -----------------------------------------------------------------------------------

FIGURE10_FRAMES = 9
FIGURE10_DEADLINE_MS = 25.0
FIGURE10_COHORTS = (1, 2, 3)
FIGURE10_POLICIES = (*NEUOS, "predjoule")


def _figure10_scenario(count: int) -> Scenario:
    """AlexNet `count` times, each on a camera of its own."""
    scenario = _open("tx2_alexnet")
    (task,) = scenario.tasks
    names = [f"alexnet{number}" for number in range(count)]
    tasks = tuple(
        replace(task, name=name, camera=name, deadline_ns=round(FIGURE10_DEADLINE_MS * 1e6))
        for name in names
    )
    cameras = {name: CameraSetting(task.period_ns / 1e6) for name in names}
    return replace(scenario, tasks=tasks, cameras=cameras, workers=count)


def _figure10(seeds: Sequence[int]) -> list[dict[str, Any]]:
    rows = []
    for count in FIGURE10_COHORTS:
        source = Laboratory(_figure10_scenario(count))
        for policy in FIGURE10_POLICIES:
            frames: list[SimulatedFrame] = []
            for seed in seeds:
                simulate(source, policy, seed=seed, frames=FIGURE10_FRAMES, observer=frames.append)
            rows.append({"cohort": count, "policy": policy, **_summarize_frames(frames)})
    return rows


def _summarize_frames(frames: Iterable[SimulatedFrame]) -> dict[str, Any]:
    """Means over a policy's frames, and the spread of the mean time over the iterations."""
    frames = list(frames)
    done = [f for f in frames if f.record.outcome in (Outcome.MET, Outcome.LATE)]
    by_frame: dict[int, list[float]] = {}
    for frame in done:
        by_frame.setdefault(frame.record.sequence, []).append(frame.record.response_time_ns / 1e6)
    means = [sum(times) / len(times) for _, times in sorted(by_frame.items())]
    return {
        "frames": len(frames),
        "met": sum(frame.record.outcome is Outcome.MET for frame in frames),
        "time_ms": sum(f.record.response_time_ns for f in done) / len(done) / 1e6,
        "energy_mj": sum(frame.energy_j for frame in frames) / len(frames) * 1e3,
        "accuracy": sum(frame.accuracy for frame in done) / len(done),
        "by_iteration_ms": means,
    }


def judge_figure10(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What section 5.3 says of Figure 10, against the figures here."""
    found = {(row["cohort"], row["policy"]): row for row in rows}
    relations = []
    for reading, prefix in READINGS.items():
        claims = [
            (f"balanced is faster than PredJoule, cohort of {n}", n, _BALANCED, "predjoule",
             "time_ms")
            for n in FIGURE10_COHORTS
        ]  # fmt: skip
        claims += [
            (f"balanced takes less than PredJoule, cohort of {n}", n, _BALANCED, "predjoule",
             "energy_mj")
            for n in FIGURE10_COHORTS
        ]  # fmt: skip
        claims += [
            ("alone, min energy is slower than balanced", 1, _BALANCED, _FRUGAL, "time_ms"),
            ("alone, min energy takes more than balanced", 1, _BALANCED, _FRUGAL, "energy_mj"),
            ("in a cohort of 3 min energy takes less", 3, _FRUGAL, _BALANCED, "energy_mj"),
        ]
        claims += [
            (f"max accuracy takes more than balanced, cohort of {n}", n, _BALANCED, _ACCURATE,
             "energy_mj")
            for n in FIGURE10_COHORTS
        ]  # fmt: skip
        for text, count, first, second, key in claims:
            names = [prefix + each if each in MODES else each for each in (first, second)]
            one, other = (found[count, name][key] for name in names)
            tie = names[1] != "predjoule" and one == other
            relations.append(
                {
                    "reading": reading,
                    "claim": text,
                    "reproduced": None if tie else one < other,
                    "figures": f"{names[0]} {one:.2f}, {names[1]} {other:.2f}",
                }
            )
    return relations


# -- report --------------------------------------------------------------------------------------


def _ms(policy: str) -> tuple[str, Any]:
    def cell(row: Mapping[str, Any]) -> str:
        mine = row[policy]
        time = "inf" if mine["p99_ms"] is None else f"{mine['p99_ms']:.1f}"
        return f"{time} ({mine['miss_ratio']:.1%})"

    return (policy, cell)


def _verdict(row: Mapping[str, Any]) -> str:
    return {True: "yes", False: "no", None: "tie"}[row["reproduced"]]


def report(result: Mapping[str, Any]) -> Report:
    """Make the tables in the order of the docstring."""
    paper, artifact = (prefix + MODES[0] for prefix in READINGS.values())
    in_time, counts = result["p99_in_time"], result["counts"]
    parts: list[str | Table] = [
        f"worlds {result['test_seeds']}, {result['frames']} frames each",
        "Both readings are reconstructions of NeuOS in a model of the boards. p99 in ms, of all "
        "frames: inf = more than 1 % have no result; in brackets the share that missed its "
        "deadline. The published figures are the paper's (section 5.2).",
        tabulate(
            result["p99"],
            "board, cohort, network, deadline=deadline_ms:.0f, published=published_ms:.1f",
            *(_ms(policy) for policy in (paper, artifact, OURS)),
        ),
        "p99 within the deadline, of 24: "
        + ", ".join(f"{name} {count}" for name, count in in_time.items()),
        "relations of the paper, without ties of NeuOS with itself: "
        + "; ".join(
            f"reading of the {reading}: {count['hold']} of {count['of']} hold ({count['ties']} "
            f"ties, {count['excepted']} of the others the paper excepts itself)"
            for reading, count in counts.items()
        ),
        tabulate(result["relations"], "reading, cell, claim", ("holds", _verdict), "figures, why"),
        "Table 3: memory in MB of fp32 weights, of their low-rank copy, and of the tables here; "
        "added: share of copy and tables in the whole. The paper's own figures are not in the "
        "text at hand; it says that the copy is somewhat smaller than the original and that the "
        "tables do not count.",
        tabulate(
            result["table3"],
            "network, original MB=original_mb:.1f, low rank MB=low_rank_mb:.1f",
            "tables MB=tables_mb:.3f, added=added_share:.1%",
        ),
        f"Figure 3: of {result['figure3']['configurations']} configurations, by place in the "
        "artifact's list, that of the least energy for each layer of AlexNet on the TX2; the "
        "variant is what these clocks need for 12 ms. The paper: each layer has another one, and "
        "faster ones sometimes take less energy",
        tabulate(
            result["figure3"]["layers"],
            "layer, place, clocks, ms=time_ms:.3f, mJ=energy_mj:.2f",
            "at the fastest mJ=energy_fastest_mj:.2f, at the slowest mJ=energy_slowest_mj:.2f",
            "for 12 ms=variant_for_12_ms",
        ),
        "Figure 10: AlexNet on the TX2, deadline 25 ms, nine frames of every instance",
        tabulate(
            result["figure10"],
            "cohort, policy, frames, met, mean ms=time_ms:.2f, mean mJ=energy_mj:.2f",
            "accuracy:.4f",
            ("by iteration, ms", lambda row: " ".join(f"{t:.1f}" for t in row["by_iteration_ms"])),
        ),
        tabulate(result["figure10_relations"], "reading, claim", ("holds", _verdict), "figures"),
        "calibration of the TX2: U as the authors measured it, which policies know, and of the "
        "model: as assumed, and with the power of the stage fit to it. No model of the whole "
        "board's power within its data sheet has the highest ones.",
        tabulate(
            result["calibration"], "network, stage, measured:.2f, assumed:.2f, calibrated:.2f"
        ),
    ]
    return parts
