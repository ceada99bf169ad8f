# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The search for the layers that stay in fp32, on networks whose every answer is known."""

from __future__ import annotations

import pytest

from jetson_dnn_rt.lab.quantize.search import MAX_GROUPS, group_layers, search


class MadeUpNetwork:
    """Each layer that is quantized costs its share of agreement, and its error of the outputs."""

    def __init__(self, costs):
        self.costs = costs
        self.judged = []
        self.ranked = []

    def judge(self, kept):
        self.judged.append(frozenset(kept))
        return round(1.0 - sum(cost for name, cost in self.costs.items() if name not in kept), 6)

    def rank(self, group):
        self.ranked.append(tuple(group))
        return sum(self.costs[name] for name in group)

    def search(self, asked, **options):
        return search(list(self.costs), self.judge, self.rank, asked=asked, **options)


def test_a_network_that_agrees_is_not_searched():
    network = MadeUpNetwork({"a": 0.005, "b": 0.005})
    found = network.search(0.98)
    assert (found.kept, found.agreement, found.tries, found.enough) == ((), 0.99, 1, True)
    assert network.ranked == []


def test_the_worst_layers_stay_and_no_more():
    costs = dict.fromkeys("abcdefgh", 0.001)
    network = MadeUpNetwork({**costs, "c": 0.1, "g": 0.05})
    found = network.search(0.98)
    assert found.kept == ("c", "g")
    assert found.agreement == pytest.approx(0.994)
    assert found.enough
    # All in INT8; each alone; by bisection 4, 2 and 1 of 8.
    assert found.tries == 1 + 8 + 3
    assert [len(kept) for kept in network.judged] == [0, 4, 2, 1]


def test_one_less_than_all_is_the_most_that_stays():
    network = MadeUpNetwork(dict.fromkeys("abcde", 0.02))
    found = network.search(0.99)
    assert not found.enough
    assert len(found.kept) == 4
    assert found.agreement == pytest.approx(0.98)
    assert all(len(kept) < 5 for kept in network.judged)


def test_the_best_is_told_where_none_is_enough_whatever_the_order():
    answers = {0: 0.7, 2: 0.9, 3: 0.8}
    found = search(list("abcd"), lambda kept: answers[len(kept)], lambda group: 1.0, asked=0.95)
    assert (found.agreement, len(found.kept), found.enough) == (0.9, 2, False)


def test_a_network_of_one_layer():
    network = MadeUpNetwork({"only": 0.5})
    found = network.search(0.98)
    assert (found.kept, found.agreement, found.tries, found.enough) == ((), 0.5, 1, False)


@pytest.mark.parametrize("count", [17, 100, 1000])
def test_the_number_of_tries_is_bounded(count):
    names = [f"layer{index}" for index in range(count)]
    network = MadeUpNetwork(dict.fromkeys(names, 0.5 / count))
    steps = []
    found = network.search(0.9, progress=lambda phase, done, total: steps.append((done, total)))
    assert found.enough
    assert found.tries == len(network.judged) + len(network.ranked) <= 1 + MAX_GROUPS + 4
    assert [done for done, _ in steps] == list(range(found.tries + 1))
    assert {total for _, total in steps} == {1 + MAX_GROUPS + 4}


def test_groups_are_neighbours_and_hold_every_layer():
    names = list(range(35))
    groups = group_layers(names)
    assert [name for group in groups for name in group] == names
    assert len(groups) == MAX_GROUPS
    assert {len(group) for group in groups} == {2, 3}
    assert group_layers(names[:3]) == [(0,), (1,), (2,)]
