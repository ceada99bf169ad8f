# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`threads: auto`: which split is chosen by which rounds, and what the library keeps of it."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict, replace
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import pytest

from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.runtime.sharing import split_chooser
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit, NarrowTimes, share_cores
from jetson_dnn_rt.runtime.sharing.split_choice import (
    LIMIT_NS,
    Comparison,
    ImplausibleError,
    SplitChoice,
    choose,
    count_periods,
    list_splits,
    read_choice,
)
from jetson_dnn_rt.runtime.sharing.split_chooser import SplitChooser
from jetson_dnn_rt.variants.library.library import Library

MS = 1_000_000
PLANNED = share_cores(2, 2)
WIDE, NARROW = PLANNED.wide, PLANNED.narrow
ALL = [WIDE, PLANNED, NARROW]
TIMES = NarrowTimes({"a": [1.6], "b": [1.7]}, beside={"a": [(16 * MS,)], "b": [(17 * MS,)]})
PERIODS, DEADLINES = {"a": 20 * MS, "b": 20 * MS}, {"a": 20 * MS, "b": 15 * MS}


class HandClock(SteadyClock):
    """Moves when a round is played."""

    def __init__(self):
        self.time_ns = MS

    def now_ns(self):
        return self.time_ns


class Rounds:
    """Shares of the frames that are met, round by round; a round takes `round_ms`."""

    def __init__(self, clock, round_ms=100, **shares):
        self.clock, self.round_ms = clock, round_ms
        self.shares = {split: cycle(shares[name]) for split, name in NAMES.items()}
        self.played = []

    def play(self, split):
        self.clock.time_ns += self.round_ms * MS
        self.played.append(split)
        share = next(self.shares[split])
        if isinstance(share, Exception):
            raise share
        return share


NAMES = {WIDE: "wide", PLANNED: "either", NARROW: "narrow"}


def decide(splits=ALL, limit_ns=LIMIT_NS, round_ms=100, **shares):
    clock = HandClock()
    rounds = Rounds(clock, round_ms, **{**{key: [0.5] for key in NAMES.values()}, **shares})
    return choose(splits, rounds.play, clock, limit_ns), rounds


# -- the decision --------------------------------------------------------------------------------


def test_the_split_that_meets_more_round_by_round_is_chosen():
    choice, rounds = decide(wide=[0.5], either=[0.6], narrow=[0.4])
    assert choice.split == PLANNED
    first, second = choice.comparisons
    assert (first.kept, first.rival, first.is_better, first.rounds) == (WIDE, PLANNED, True, 12)
    assert (second.kept, second.rival, second.is_better) == (PLANNED, NARROW, False)
    assert len(rounds.played) == 48
    text = str(replace(choice, periods_ns=PERIODS, deadlines_ns=DEADLINES))
    assert text == (
        "1 x 2 or 2 x 1 (workers x threads): 1 x 2 meets 50.0 %, 1 x 2 or 2 x 1 60.0 % of the "
        "frames (more in 12, fewer in 0 of 12 rounds): decided for 1 x 2 or 2 x 1; "
        "1 x 2 or 2 x 1 meets 60.0 %, 2 x 1 40.0 % of the frames (more in 0, fewer in 12 of 12 "
        "rounds): decided for 1 x 2 or 2 x 1; at a 50.0 Hz within 20.0 ms, b 50.0 Hz within "
        "15.0 ms"
    )
    assert decide(wide=[0.5], either=[0.5], narrow=[0.6])[0].split == NARROW
    assert decide(wide=[0.6], either=[0.5], narrow=[0.5])[0].split == WIDE


def test_as_good_is_not_better():
    choice, _ = decide(wide=[1.0], either=[1.0], narrow=[1.0])
    assert choice.split == WIDE
    assert [one.is_better for one in choice.comparisons] == [False, False]


def test_what_time_does_not_decide_keeps_the_default_and_says_so():
    # Half of the rounds for either side.
    choice, rounds = decide([WIDE, PLANNED], wide=[0.5], either=[0.7, 0.4])
    (one,) = choice.comparisons
    assert (choice.split, one.is_better, one.wins) == (WIDE, None, one.rounds // 2)
    # 30 s are 150 rounds of 0.2 s; the next would end too late.
    assert one.rounds == 150
    assert rounds.clock.time_ns <= MS + LIMIT_NS
    assert str(one).endswith(
        "(more in 75, fewer in 75 of 150 rounds): not decided, kept 1 x 2: the time was over"
    )


def test_both_comparisons_share_the_time():
    choice, rounds = decide(either=[0.7, 0.4], narrow=[0.7, 0.4])
    assert [one.rounds for one in choice.comparisons] == [75, 75]
    assert rounds.clock.time_ns == MS + LIMIT_NS


def test_no_round_is_begun_for_which_there_is_no_time():
    choice, rounds = decide([WIDE, PLANNED], limit_ns=450 * MS, either=[0.6])
    assert choice.comparisons[0].rounds == 2  # a third one would end at 600 ms
    assert choice.split == WIDE
    choice, rounds = decide([WIDE, PLANNED], limit_ns=-1, either=[0.6])
    assert (choice.comparisons[0].rounds, rounds.played) == (0, [])
    assert choice.comparisons[0].reason == "there was no time for a round"


@pytest.mark.parametrize("share", [math.nan, -0.5, 1.5, math.inf, ImplausibleError("2 failed")])
def test_what_is_implausible_never_chooses_a_split(share):
    choice, _ = decide([WIDE, PLANNED], wide=[0.1], either=[1.0] * 11 + [share])
    (one,) = choice.comparisons
    assert (choice.split, one.is_better, one.rounds) == (WIDE, None, 0)
    assert "not decided, kept 1 x 2" in str(one)
    # Nor one of the split that is kept.
    choice, _ = decide([WIDE, PLANNED], wide=[0.1] * 11 + [share], either=[1.0])
    assert (choice.split, choice.comparisons[0].is_better) == (WIDE, None)


def test_where_no_split_meets_a_frame_nothing_is_decided():
    choice, _ = decide([WIDE, PLANNED], wide=[0.0], either=[0.0])
    assert (choice.split, choice.comparisons[0].is_better) == (WIDE, None)
    assert choice.comparisons[0].reason == "neither met a single frame"


def test_only_one_split_is_left_where_no_network_can_be_either():
    assert list_splits(PLANNED, NarrowTimes(), 2) == [PLANNED]
    single = NarrowTimes({"a": [1.0], "b": [1.0]}, frozenset("ab"))
    assert list_splits(PLANNED, single, 2) == [PLANNED]
    assert list_splits(PLANNED, TIMES, 2) == ALL
    # A third one that is always wide would share the cores of the workers.
    assert list_splits(PLANNED, TIMES, 3) == [WIDE, PLANNED]


def test_a_round_is_short_enough_for_a_first_look():
    assert count_periods({"a": 33 * MS, "b": 10 * MS}, 2) == 8
    assert count_periods({"a": 100 * MS}, 2) == 5
    assert count_periods({"a": 250 * MS}, 2) == 2
    assert count_periods({"a": 500 * MS}, 2) == 0


# -- from the library ----------------------------------------------------------------------------


def make_task(name, library, *, warm_up_ms=12, model_hash="", **values):
    model = SimpleNamespace(
        source=f"test:{name}", model_hash=(model_hash or name) * 64, reading="0" * 8
    )
    given = {
        "name": name,
        "model": model,
        "library": library,
        "default": "full@null-fp32",
        "stage_names": ("preprocess", "inference", "decode"),
        "threads": 2,
        "narrow_threads": 1,
        "frame": Frame(np.zeros((4, 4, 3), np.uint8), "bgr8", 0, 0),
        "warm_up_times_ns": {"full@null-fp32": [(MS, warm_up_ms * MS)]},
    }
    return SimpleNamespace(**{**given, **values})


class Machine:
    """Tasks and a library; `start` does what a process does, with injected rounds."""

    def __init__(self, monkeypatch, tmp_path):
        self.library = Library(tmp_path / "library")
        self.tasks = {name: make_task(name, self.library) for name in "ab"}
        self.clock, self.said = HandClock(), list[str]()
        self.rounds = Rounds(self.clock, wide=[0.5], either=[0.6], narrow=[0.4])
        monkeypatch.setattr(split_chooser, "SplitTrial", self._make_trial)

    def _make_trial(self, *given):
        self.periods = given[-1]
        return SimpleNamespace(play=self.rounds.play, close=lambda: None)

    def start(self, periods_ns=PERIODS, deadlines_ns=DEADLINES, *, process=None, times=TIMES):
        self.rounds.played.clear()
        self.said.clear()
        self.chooser = SplitChooser(
            self.tasks, PLANNED, times, process or ProcessConfig(), self.clock, self.said.append
        )
        return self.chooser.choose(periods_ns, deadlines_ns)

    @property
    def entry(self):
        (listing,) = self.library.entries()
        return listing


@pytest.fixture
def machine(monkeypatch, tmp_path):
    return Machine(monkeypatch, tmp_path)


def test_a_choice_is_measured_once_and_read_at_later_starts(machine):
    first = machine.start()
    assert (first.split, len(machine.rounds.played), machine.periods) == (PLANNED, 48, 8)
    assert "takes at most 30 s" in machine.said[0]
    assert machine.said[-1].startswith("threads: auto: 1 x 2 or 2 x 1 (workers x threads): 1 x 2 ")
    assert machine.said[-1].endswith("(measured in 4.8 s)")
    again = machine.start()
    assert machine.rounds.played == []
    assert again == first
    assert "library prune --kind split drops it" in machine.said[-1]
    key = machine.entry.header.key
    assert (key.kind, key.variant) == ("split", "split")
    assert machine.entry.header.model == "test:a + test:b"


@pytest.mark.parametrize(
    "change",
    [
        {"periods_ns": {"a": 30 * MS, "b": 20 * MS}},
        {"deadlines_ns": {"a": 20 * MS, "b": 13 * MS}},
        {"process": ProcessConfig(discipline="fifo")},
        {"process": ProcessConfig(helpers=3)},
        {"process": ProcessConfig(cancel_for_urgent=True)},
    ],
)
def test_other_conditions_are_measured_anew(machine, change):
    machine.start()
    machine.start(**change)
    assert len(machine.rounds.played) == 48
    assert len(machine.library.entries()) == 2
    machine.start()
    assert machine.rounds.played == []


def test_similar_rates_and_deadlines_need_no_other_trial(machine):
    """A bag or a camera does not have the same rate twice."""
    machine.start()
    near = {"a": 21 * MS, "b": 19 * MS}, {"a": 20 * MS, "b": 16 * MS}
    choice = machine.start(*near)
    assert (choice.split, machine.rounds.played) == (PLANNED, [])
    # What it was measured for is what it is compared with while tasks run.
    assert (choice.periods_ns, choice.deadlines_ns) == (PERIODS, DEADLINES)
    # Of several the nearest one.
    machine.rounds.shares[NARROW] = cycle([0.9])
    slow = {"a": 24 * MS, "b": 24 * MS}
    assert machine.start(slow, DEADLINES).split == NARROW
    assert machine.start(dict.fromkeys("ab", int(21.9 * MS)), DEADLINES).split == PLANNED
    assert machine.start(dict.fromkeys("ab", int(22.1 * MS)), DEADLINES).split == NARROW
    assert machine.rounds.played == []


def test_other_networks_and_threads_are_measured_anew(machine):
    machine.start()
    for change in (
        {"default": "full@null-fp16"}, {"threads": 1}, {"stage_names": ("one",)}, {},
        {"model_hash": "c"},
    ):  # fmt: skip
        variants = ("full@null-fp32", "full@null-fp16")
        values = {"warm_up_times_ns": {key: [(12 * MS,)] for key in variants}}
        machine.tasks["a"] = make_task("a", machine.library, **{**values, **change})
        machine.start()
        assert bool(machine.rounds.played) is bool(change)


def test_names_of_tasks_do_not_matter(machine):
    machine.start()
    machine.tasks = {"c": machine.tasks["a"], "d": machine.tasks["b"]}
    choice = machine.start(
        {"c": 20 * MS, "d": 20 * MS},
        {"c": 20 * MS, "d": 15 * MS},
        times=NarrowTimes({"c": [1.6], "d": [1.7]}),
    )
    assert machine.rounds.played == []
    assert choice.periods_ns == {"c": 20 * MS, "d": 20 * MS}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"split": asdict(CoreSplit(2, 2))}, "2 x 2 is not what the comparisons say"),
        ({"comparisons": []}, "must have what decided"),
        ({"split": {**asdict(PLANNED), "workers": 0}}, "split.workers"),
        ({"periods_ns": {"a": -5}}, "periods_ns"),
        ({"date": "2026-11-29T12:00:00"}, "date"),
        ({"more": 1}, "more"),
    ],
)
def test_an_invalid_entry_is_measured_again_and_replaced(machine, caplog, change, why):
    first = machine.start()
    header = machine.entry.header
    machine.library.store(header.key, {}, {**header.facts, **change}, model=header.model)
    with caplog.at_level(logging.WARNING):
        assert machine.start().split == first.split
    assert len(machine.rounds.played) == 48
    assert why in caplog.text
    assert "the split is measured again" in caplog.text
    assert read_choice(machine.entry.header.facts).split == first.split


@pytest.mark.parametrize(
    "change", [{"kept_met": math.nan}, {"rival_met": 1.5}, {"rounds": 3}, {"wins": 13}]
)
def test_comparisons_that_cannot_be_are_refused(change):
    one = Comparison(WIDE, PLANNED, True, 12, 12, 0, 0.5, 0.6)
    facts = asdict(SplitChoice(PLANNED, PERIODS, DEADLINES, (one,)))
    assert read_choice(facts).split == PLANNED
    facts["comparisons"] = [{**asdict(one), **change}]
    with pytest.raises(ValueError, match=r"split\.comparisons"):
        read_choice(facts)


def test_an_entry_for_a_split_that_cannot_be_taken_is_measured_again(machine, caplog):
    machine.rounds.shares[NARROW] = cycle([0.9])
    assert machine.start().split == NARROW
    header = machine.entry.header
    # The same key would be another one's if there were two splits only: as if by hand.
    one = Comparison(WIDE, CoreSplit(1, 7), True, 12, 12, 0, 0.5, 0.6)
    other = SplitChoice(CoreSplit(1, 7), PERIODS, DEADLINES, (one,))
    machine.library.store(header.key, {}, asdict(other), model=header.model)
    assert machine.start().split == NARROW
    assert "1 x 7 is none of 1 x 2, 1 x 2 or 2 x 1, 2 x 1" in caplog.text


def test_implausible_rounds_are_not_kept(machine):
    machine.rounds.shares[PLANNED] = cycle([ImplausibleError("with 1 x 2 or 2 x 1 2 failed")])
    assert machine.start().split == WIDE
    assert "not decided, kept 1 x 2: with 1 x 2 or 2 x 1 2 failed" in machine.said[-1]
    assert machine.library.entries() == []


def test_what_is_not_decided_is_kept_as_such(machine):
    machine.rounds.shares[PLANNED] = cycle([0.7, 0.4])
    first = machine.start()
    assert (first.split, first.comparisons[0].is_better) == (WIDE, None)
    assert "not decided, kept 1 x 2" in machine.said[-1]
    again = machine.start()
    assert (machine.rounds.played, again) == ([], first)
    assert "not decided, kept 1 x 2" in machine.said[-1]


def test_nothing_is_tried_where_all_frames_are_in_time_anyway(machine):
    # 13 ms each: 26 of 33 ms.
    choice = machine.start(dict.fromkeys("ab", 33 * MS), dict.fromkeys("ab", 33 * MS))
    assert (choice.split, machine.rounds.played) == (WIDE, [])
    assert "at most 26.0 of 33.0 ms, no frame is late" in machine.said[-1]
    machine.start(dict.fromkeys("ab", 33 * MS), dict.fromkeys("ab", 32 * MS))
    assert machine.rounds.played


def test_without_a_library_it_is_measured_at_every_start(machine):
    for task in machine.tasks.values():
        task.library = None
    assert machine.start().split == PLANNED
    assert machine.start().split == PLANNED
    assert len(machine.rounds.played) == 48


def test_default_is_kept_with_the_reason_where_nothing_can_be_tried(machine):
    for task in machine.tasks.values():
        task.warm_up_times_ns = {task.default: []}
    assert machine.start().split == WIDE
    assert "not decided, kept 1 x 2: no frame was measured, see warmup_runs" in machine.said[-1]
    for task in machine.tasks.values():
        task.warm_up_times_ns = {task.default: [(900 * MS,)]}
    rare = dict.fromkeys("ab", 900 * MS)
    assert machine.start(rare, rare).split == WIDE
    assert "not decided, kept 1 x 2: frames come too rarely" in machine.said[-1]
    assert machine.rounds.played == []


def test_helpers_are_more_only_where_narrow_networks_need_them(machine):
    planned = share_cores(4, 4)
    times = NarrowTimes({name: [1.5] for name in "abcd"})
    tasks = {name: make_task(name, None) for name in "abcd"}
    chooser = SplitChooser(tasks, planned, times, ProcessConfig(), machine.clock, str)
    assert chooser.helpers == {planned.wide: 1, planned: 3, planned.narrow: 1}


# -- while it runs -------------------------------------------------------------------------------


def test_what_was_better_at_other_rates_is_found_by_the_names(machine):
    machine.start()
    machine.rounds.shares[NARROW] = cycle([0.9])
    slow = {"a": 30 * MS, "b": 30 * MS}
    assert machine.start(slow, DEADLINES).split == NARROW
    choice = machine.start()
    watch = machine.chooser.make_watch(choice, str)
    # As measured, 8 % off.
    assert watch._find_known({"a": 32 * MS, "b": 29 * MS}, DEADLINES) == NARROW
    assert watch._find_known({"a": 60 * MS, "b": 30 * MS}, DEADLINES) is None
    assert watch._find_known(slow, {"a": 5 * MS, "b": 5 * MS}) is None
    assert watch._find_known({"a": 30 * MS}, {"a": 20 * MS}) is None


def test_what_was_not_decided_is_not_said_to_be_better(machine):
    machine.start()
    machine.rounds.shares[PLANNED] = cycle([0.7, 0.4])
    slow = {"a": 30 * MS, "b": 30 * MS}
    assert machine.start(slow, DEADLINES).split == WIDE
    watch = machine.chooser.make_watch(machine.start(), str)
    assert watch._find_known(slow, DEADLINES) is None
