# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The split of the cores is looked at again while tasks run: said once, nothing is changed."""

from __future__ import annotations

import pytest

from jetson_dnn_rt.runtime.sharing.core_split import share_cores
from jetson_dnn_rt.runtime.sharing.split_choice import SplitChoice
from jetson_dnn_rt.runtime.sharing.split_watch import SplitWatch
from jetson_dnn_rt.runtime.verdict_watch import PresentVerdict
from jetson_dnn_rt.scheduling.analysis import analyse

MS = 1_000_000
PLANNED = share_cores(2, 2)
DEADLINES = {"a": 20 * MS, "b": 20 * MS}
CHOICE = SplitChoice(PLANNED, dict.fromkeys("ab", 20 * MS), DEADLINES)
UNKNOWN = "1 x 2 or 2 x 1 was chosen under other conditions: "


def at(a_hz, b_hz=50.0, assumed=()):
    return PresentVerdict(analyse([]), {"a": a_hz, "b": b_hz}, frozenset(assumed))


@pytest.fixture
def watch():
    watch = SplitWatch(CHOICE, lambda *given: None, lambda text: said.append(text))
    said: list[str] = []
    watch.said = said
    return watch


def test_nothing_is_said_while_all_is_as_it_was(watch):
    for rate_hz in (50.0, 41.0, 60.0):
        assert watch.review(at(rate_hz), DEADLINES) == ""
    # Nothing is known of a rate that is assumed.
    assert watch.review(at(5.0, assumed="a"), DEADLINES) == ""
    assert watch.said == []


def test_another_rate_is_said_once_with_what_to_do(watch):
    text = watch.review(at(30.0), DEADLINES)
    assert text.startswith(
        f"{UNKNOWN}frames of a come at 30.0 Hz, not at 50.0. What is better now"
    )
    assert "set expected_frequency and deadline_ms of the tasks to what they are" in text
    assert text.endswith("which measures it in at most 30 s")
    assert watch.review(at(29.0), DEADLINES) != text  # diagnostics are up to date
    assert watch.said == [f"threads: auto: {text}"]
    # It comes back, and goes again.
    assert watch.review(at(50.0), DEADLINES) == ""
    watch.review(at(30.0), DEADLINES)
    assert len(watch.said) == 2


def test_another_deadline_another_task_and_drift_are_said(watch):
    assert "the deadline of b is 10.0 ms, not 20.0" in watch.review(
        at(50.0), {"a": 20 * MS, "b": 10 * MS}
    )
    assert "b does not run" in watch.review(at(50.0), {"a": 20 * MS})
    assert "c runs, too" in watch.review(at(50.0), {**DEADLINES, "c": MS})
    watch.note_drift("b", True)
    text = watch.review(at(50.0), DEADLINES)
    assert "times of b no longer match its profile" in text
    # What the library has was measured before.
    assert "fix: jetson-dnn-rt library prune --kind split" in text
    assert len(watch.said) == 4
    watch.note_drift("b", False)
    assert watch.review(at(50.0), DEADLINES) == ""


def test_what_the_library_knows_is_said_with_the_parameters():
    asked, said = [], list[str]()
    known = [PLANNED.narrow]

    def find(periods_ns, deadlines_ns):
        asked.append((periods_ns, deadlines_ns))
        return known[0]

    watch = SplitWatch(CHOICE, find, said.append)
    assert "2 x 1 was better at such rates and deadlines; fix: set workers: 2 and threads" in (
        watch.review(at(25.0), DEADLINES)
    )
    assert asked == [({"a": 40 * MS, "b": 20 * MS}, DEADLINES)]
    known[0] = PLANNED.wide
    assert "set workers: 1 and threads: 2" in watch.review(at(25.5), DEADLINES)
    # The same split is the right one there, too.
    known[0] = PLANNED
    assert watch.review(at(26.0), DEADLINES) == ""
    assert len(said) == 1


def test_the_library_is_asked_once_for_one_verdict():
    asked = []
    watch = SplitWatch(CHOICE, lambda *given: asked.append(given), str)
    present = at(25.0)
    for _ in range(3):  # diagnostics of three nodes
        watch.review(present, DEADLINES)
    assert len(asked) == 1
