# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Cuts that cost nothing: chosen on a virtual clock by runners whose times are known."""

from itertools import cycle, pairwise, repeat
from types import SimpleNamespace

import numpy as np
import pytest

from jetson_dnn_rt.variants import free_cuts
from jetson_dnn_rt.variants.free_cuts import (
    FreeCuts,
    find_free_cuts,
    judge,
    load_free_cuts,
    select_cuts,
)
from jetson_dnn_rt.variants.library.library import EntryKey, Library
from jetson_dnn_rt.variants.network import IMAGE, Piece

MS = 1_000_000
KEY = EntryKey("0" * 64, "0" * 64, "full", "artefact", options="cuts stages=auto threads=1")


class Bench:
    """A network of stages that take `stages_ms`; a boundary, unless inside a run, `cuts_ms`.

    The runs of runner i, as they are made, take `factors[i]` times as long one after the other.
    """

    def __init__(self, stages_ms, cuts_ms, *, together=1.0, factors=()):
        self.now_ns = 0
        self.stages = len(stages_ms)
        self.cuts = tuple(f"cut{index}" for index in range(1, self.stages))
        self.model = SimpleNamespace(source="test:model")
        self.open = []
        self._stages_ms, self._cuts_ms, self._together = stages_ms, cuts_ms, together
        self._factors = [cycle(of_runner) for of_runner in factors]

    def perf_counter_ns(self):
        return self.now_ns

    def cover(self, form, bounds):
        assert form == "full"
        pieces = []
        for first, end in pairwise(bounds):
            cost_ms = sum(self._stages_ms[first:end])
            if first:
                # In a chain of more than two pieces a boundary may cost more than alone.
                more = self._together if 2 < len(bounds) - 1 < self.stages - 1 else 1.0
                cost_ms += more * self._cuts_ms[first - 1]
            values = (IMAGE, *self.cuts)
            last = end == self.stages
            outputs = () if last and not first else ("out",) if last else (values[end],)
            part = SimpleNamespace(cost_ms=cost_ms)
            results = ("out",) if last and first else ()
            inputs = (values[first],)
            pieces.append(Piece(part, first, end - first, inputs, outputs, inputs, results))
        return pieces

    def make_runner(self, part):
        factors = self._factors.pop(0) if self._factors else repeat(1.0)
        runner = SimpleNamespace(
            allocate_input=lambda: np.zeros(1, np.float32),
            close=lambda: self.open.remove(runner),
            can_cancel=False,
        )

        def run(values):
            assert len(values) == 1
            self.now_ns += round(part.cost_ms * next(factors) * MS)
            return (np.zeros(1, np.float32),)

        runner.run = run
        self.open.append(runner)
        return runner


def choose(monkeypatch, *args, **kwargs):
    bench = Bench(*args, **kwargs)
    monkeypatch.setattr(free_cuts, "time", bench)
    found = find_free_cuts(bench, bench.make_runner)
    assert not bench.open
    return found


def test_all_cuts_stay_where_they_cost_nothing(monkeypatch):
    found = choose(monkeypatch, [25, 25, 25, 25], [0.5, 0.5, 0.5])
    assert found.cuts == ("cut1", "cut2", "cut3")
    assert found.cost == pytest.approx(0.015)
    assert (found.whole_ns, found.longest_ns) == (100 * MS, round(100 * MS * 25.5 / 101.5))


def test_only_free_cuts_stay_and_of_those_what_shortens_the_longest_stage(monkeypatch):
    # The middle would balance best but costs 10 %.
    found = choose(monkeypatch, [20, 30, 30, 20], [0.5, 10, 1])
    assert found.cuts == ("cut1", "cut3")
    assert found.cost == pytest.approx(0.015)
    assert found.costs == pytest.approx({"cut1": 0.005, "cut2": 0.1, "cut3": 0.01})


def test_no_cut_is_free(monkeypatch):
    found = choose(monkeypatch, [1, 1], [0.5])
    assert found == FreeCuts((), 0.0, {"cut1": 0.25}, 2 * MS, 2 * MS)
    assert str(found) == "1 stage: no cut is free (cut1 +25.0 %)"


def test_a_set_that_costs_more_than_its_cuts_alone_gives_way_to_a_cheaper_one(monkeypatch):
    found = choose(monkeypatch, [20] * 5, [0.6, 9, 9, 0.5], together=4.0)
    assert found.cuts == ("cut4",)
    assert found.cost == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("rounds", "over", "verdict"),
    [
        # The looks share 0.05: each may be wrong with 1/120. By P(heads <= over):
        (12, 1, True),  # 13/4096 = 1/315
        (12, 2, None),  # 79/4096 = 1/52
        (12, 10, None),
        (12, 11, False),
        (24, 5, True),  # 1/301
        (24, 6, None),  # 1/88
        (96, 35, True),  # 1/192
        (96, 36, None),  # 1/108
        (96, 60, None),
        (96, 61, False),
        (384, 168, True),  # 1/123
        (384, 169, None),  # 1/97
        (6, 0, None),  # too few to say anything
    ],
)
def test_verdict(rounds, over, verdict):
    # How far a round is off does not matter: another program ran.
    assert judge([9.0] * over + [1.02] * (rounds - over)) is verdict


def test_what_rounds_do_not_decide_is_measured_longer(monkeypatch):
    # Every third round of the cut network is disturbed: too many of 12, 24 and 48, not of 96.
    disturbed = [1.0, 1.0, 1.5]
    found = choose(monkeypatch, [5, 5], [0.0], factors=[[1.0], disturbed, disturbed, disturbed])
    assert found.cuts == ("cut1",)
    # The same, where there is time for 48 only.
    assert choose(monkeypatch, [10, 10], [0.0], factors=[[1.0], disturbed, disturbed]).cuts == ()
    # Half of them, as long as there is time: nobody knows.
    disturbed = [1.0, 1.5]
    found = choose(monkeypatch, [10, 10], [0.0], factors=[[1.0], disturbed, disturbed])
    assert found.cuts == ()


def test_cuts_that_only_one_comparison_finds_free_are_not_taken(monkeypatch):
    # The whole network had bad luck with its memory the first time, and seems slower by 6 %.
    found = choose(monkeypatch, [50, 50], [4.0], factors=[[1.06]])
    assert found.cuts == ()
    assert found.whole_ns == 100 * MS
    assert found.costs == pytest.approx({"cut1": 0.04})


def test_a_network_without_places_to_cut_stays_whole(monkeypatch):
    found = choose(monkeypatch, [7], [])
    assert found == FreeCuts((), 0.0, {}, 7 * MS, 7 * MS)


@pytest.mark.parametrize(
    ("costs", "times", "allowed", "chosen"),
    [
        ([0.01, 0.01, 0.01], [1, 1, 1, 1], 0.02, (2,)),  # two do not shorten the longest further
        ([0.01, 0.005, 0.01], [1, 1, 1, 1], 0.03, (1, 2, 3)),
        ([0.03], [1, 1], 0.02, ()),
        ([0.0, 0.0], [10, 1, 1], 0.02, (1,)),  # the second does not help
        ([0.02, 0.001], [100, 2, 100], 0.03, (2,)),  # as good within 5 %
        ([], [1], 0.02, ()),
    ],
)
def test_selection(costs, times, allowed, chosen):
    assert select_cuts(costs, times, allowed) == chosen


def test_what_contains_a_set_that_failed_is_not_selected():
    times = [1, 1, 1, 1]
    assert select_cuts([0.0] * 3, times, 0.0, [(1, 2, 3)]) == (2,)
    assert select_cuts([0.0] * 3, times, 0.0, [(1, 2, 3), (2,)]) == (1, 3)
    assert select_cuts([0.0] * 3, times, 0.0, [(2,), (1,), (3,)]) == ()


def test_a_choice_is_measured_once(monkeypatch, tmp_path):
    library = Library(tmp_path)
    bench = Bench([25, 25], [0.5])
    monkeypatch.setattr(free_cuts, "time", bench)
    first = load_free_cuts(bench, bench.make_runner, library, KEY)
    assert first.cuts == ("cut1",)
    now_ns = bench.now_ns
    assert load_free_cuts(bench, bench.make_runner, library, KEY) == first
    assert bench.now_ns == now_ns


@pytest.mark.parametrize("cuts", ["all", ["cut1", "cut7"]])
def test_a_choice_of_no_use_is_measured_again(monkeypatch, tmp_path, caplog, cuts):
    """One that cannot be read, or has a cut that the network has not."""
    library = Library(tmp_path)
    kept = {"cost": 0.0, "costs": {}, "whole_ns": 1, "longest_ns": 1}
    library.store(KEY, {}, {"cuts": cuts, **kept}, model="test:model")
    bench = Bench([25, 25], [0.5])
    monkeypatch.setattr(free_cuts, "time", bench)
    assert load_free_cuts(bench, bench.make_runner, library, KEY).cuts == ("cut1",)
    assert "measured again" in caplog.text
