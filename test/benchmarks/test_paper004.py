# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The benchmark of paper 004: relations and p99 on known figures, and one small run."""

import math

import benches
import pytest

from benchmarks import paper004


def figures(**changes):
    base = {"miss_ratio": 0.0, "accuracy": 0.95, "energy_j": 10.0, "energy_per_met_frame_j": 0.1}
    return {**base, **changes}


def all_figures(**changes):
    return {name: figures() for name in paper004.POLICIES} | changes


def find(cell, text, board="tx2", cohort=4, reading="paper"):
    judged = paper004.judge_relations({(board, cohort): cell}, reading)
    (relation,) = [relation for relation in judged if relation["claim"] == text]
    return relation


LESS = "balanced takes less energy than PredJoule"
DEAR = figures(energy_per_met_frame_j=0.2, energy_j=20.0)


@pytest.mark.parametrize("reading", paper004.READINGS)
@pytest.mark.parametrize(
    ("changes", "board", "why"),
    [
        ({}, "xavier", "the paper excepts it"),
        ({"balanced@once": figures()}, "tx2", "the delay of clock changes"),
        (
            {"balanced": figures(energy_per_met_frame_j=0.2, energy_j=5.0, miss_ratio=0.6)},
            "tx2",
            "by run it does",
        ),
        ({}, "tx2", "not in this model"),
    ],
)
def test_reasons(reading, changes, board, why):
    changes = {"balanced": DEAR, "balanced@once": DEAR} | changes
    prefix = paper004.READINGS[reading]
    cell = all_figures(**{prefix + name: figure for name, figure in changes.items()})
    relation = find(cell, LESS, board, reading=reading)
    assert relation["reproduced"] is False
    assert relation["why"].startswith(why)
    # The other reading is judged by its own figures.
    (other,) = paper004.READINGS.keys() - {reading}
    assert find(cell, LESS, board, reading=other)["reproduced"] is True


def test_misses_that_are_saved_energy():
    relation = find(all_figures(), LESS)
    assert (relation["reproduced"], relation["why"]) == (True, "")  # what holds needs no reason
    missing = figures(miss_ratio=0.1, energy_j=5.0)
    cell = all_figures(**{"neuos_balanced": missing, "neuos_balanced@once": missing})
    why = find(cell, "balanced misses less than PredJoule")["why"]
    assert "5 J against 10 J" in why


def test_ties_of_neuos_with_itself_do_not_count():
    cells = {("tx2", 4): all_figures()}
    relations = [
        relation
        for reading in paper004.READINGS
        for relation in paper004.judge_relations(cells, reading)
    ]
    # Four claims between modes are ties; that of less energy than PredJoule, that of fewer misses,
    # that of accuracy and that of few misses hold.
    expected = {"hold": 4, "of": 4, "ties": 4, "excepted": 0}
    assert paper004._count(relations) == {"paper": expected, "artifact": expected}
    saved = figures(energy_per_met_frame_j=0.05)
    frugal = find(
        all_figures(neuos_min_energy=saved), "min energy takes less energy than balanced"
    )
    assert frugal["reproduced"] is True
    frugal = find(all_figures(neuos_min_energy=DEAR), "min energy takes less energy than balanced")
    assert frugal["reproduced"] is False


@pytest.mark.parametrize(
    ("released", "times_ms", "p99_ms"),
    [
        (100, range(1, 101), 99.0),
        (100, range(1, 100), 99.0),  # one of a hundred has no result
        (100, range(1, 99), math.inf),
        (50, range(1, 50), math.inf),
        (3, (), math.inf),
    ],
)
def test_a_frame_without_a_result_takes_forever(released, times_ms, p99_ms):
    times_ns = [time * 1_000_000 for time in reversed(times_ms)]
    assert paper004._Responses(released, 0, times_ns).p99_ms() == p99_ms


def test_the_paper_is_in_time_in_5_of_24_cells():
    deadlines = {"tx2": (10, 30, 150, 40), "xavier": (5, 10, 25, 30)}
    in_time = [
        time <= deadline
        for board, cohorts in paper004.P99_MS.items()
        for times in cohorts.values()
        for time, deadline in zip(times, deadlines[board], strict=True)
    ]
    assert (len(in_time), sum(in_time)) == (24, 5)


@pytest.mark.nightly
def test_a_small_run(monkeypatch):
    monkeypatch.setattr(paper004, "P99_MS", {"tx2": {1: paper004.P99_MS["tx2"][1]}})
    monkeypatch.setattr(paper004, "COHORTS", {1: paper004.NETWORKS})
    _, result = benches.run("paper004", "--test-seeds 300 --frames 12")
    assert [row["network"] for row in result["p99"]] == list(paper004.NETWORKS)
    assert {relation["reading"] for relation in result["relations"]} == {"paper", "artifact"}
    (weights,) = [row for row in result["table3"] if row["network"] == "alexnet"]
    assert weights["original_mb"] > weights["low_rank_mb"] > weights["tables_mb"] > 0.0
    assert result["figure3"]["configurations"] == 11_760
    assert len(result["figure10"]) == 3 * 7
    text = benches.show("paper004", result)
    for title in ("reconstructions", "Table 3", "Figure 3", "Figure 10", "calibration"):
        assert title in text
