# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Bags played to the executor: every frame ends in one outcome of every task."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from bags import PERIOD_NS, TOPIC, make_image, write_bag
from fleet_work import make_spec

from jetson_dnn_rt.cameras.bags.image_bag import BagImage, open_image_bag
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.errors import ConfigurationError, SourceError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.evaluate.plan import OpenTask
from jetson_dnn_rt.lab.evaluate.realtime import RecordedAges, play, warm_up
from jetson_dnn_rt.lab.evaluate.streams import plan_arrivals
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.tasks import JobRecord, Outcome

MS = 1_000_000
PROCESS = ProcessConfig(gc_freeze=False, mallopt=False, switch_interval_us=0)
MINUTE_NS = 60_000 * MS
DEADLINES_NS = {"detector": MINUTE_NS, "other": MINUTE_NS}


@contextmanager
def open_session(*specs):
    with Session(PerceptionConfig((), process=PROCESS)) as session:
        for spec in specs:
            session.adopt(OpenTask(spec))
        yield session


@pytest.fixture
def session():
    """Two that take no time, with all the time there is."""
    given = {"deadline_ns": MINUTE_NS, "period_ns": PERIOD_NS, "warmup_runs": 3}
    specs = [make_spec("null:0.01", name=name, **given) for name in DEADLINES_NS]
    with open_session(*specs) as made:
        yield made


def test_each_of_the_first_frames_ends_once_in_every_task(tmp_path, session):
    images = [make_image(n, encoding="bayer?" if n == 4 else "bgr8") for n in range(25)]
    seen: list[tuple[JobRecord, int]] = []

    def observe(record, work):
        seen.append((record, work.frame.stamp_ns))

    with open_image_bag(write_bag(tmp_path / "drive", images), TOPIC) as bag:
        arrivals = plan_arrivals(bag.log_times_ns, rate_hz=200.0)
        warm_up(bag, session.tasks.values())
        given = {"count": 20, "first_sequence": 100}
        playback = play(bag, session, DEADLINES_NS, arrivals, observe, **given)
    assert playback.frames == 19
    assert [message.index for message in playback.bad] == [4]
    counts = Counter((record.task, record.sequence) for record, _ in seen)
    expected = {(name, 100 + n) for name in ("detector", "other") for n in range(20) if n != 4}
    assert set(counts) == expected
    assert set(counts.values()) == {1}
    assert all(stamp_ns == (record.sequence - 100) * PERIOD_NS for record, stamp_ns in seen)


def test_deadlines_are_enforced(tmp_path):
    """A millisecond for a job that takes twenty: not one is met, and not one is lost."""
    values = {"deadline_ns": MS, "period_ns": PERIOD_NS, "warmup_runs": 3, "met_of": (1, 2)}
    spec = make_spec("null:20", **values)
    outcomes: Counter[Outcome] = Counter()

    def observe(job, work):
        outcomes[job.outcome] += 1

    path = write_bag(tmp_path / "drive", map(make_image, range(10)))
    with open_session(spec) as session, open_image_bag(path) as bag:
        arrivals = plan_arrivals(bag.log_times_ns, rate_hz=200.0)
        times = warm_up(bag, session.tasks.values())
        assert len(times["detector"]["full@null"]) == 3
        playback = play(bag, session, {"detector": MS}, arrivals, observe)
    assert "Met in this run: detector 0 of 10" in playback.verdict
    assert "met_of [1, 2] of task detector cannot hold by its budgets" in playback.verdict
    assert playback.limits["detector"].violations == 9  # of any two frames none was met
    assert outcomes.total() == 10
    assert not outcomes[Outcome.MET]


def test_a_bag_without_a_frame(tmp_path, session):
    path = write_bag(tmp_path / "drive", [make_image(0, encoding="bayer?")])
    with open_image_bag(path) as bag, pytest.raises(SourceError, match="is a frame"):
        warm_up(bag, session.tasks.values())


def record(logged_ms, stamp_ms, **changes):
    frame = Frame(np.zeros((2, 2, 3), np.uint8), "bgr8", stamp_ms * MS, 0, **changes)
    return BagImage(0, logged_ms * MS, frame)


@pytest.mark.parametrize(
    ("logged_ms", "stamp_ms", "age_ms", "doubt"),
    [
        (1003, 1000, 3, ""),
        (1000, 1003, 0, ""),
        (10**9, 1000, 10**9 - 1000, ""),
        (1000, 1101, 0, "stamp"),
        (1000, 0, 0, "stamp"),
    ],
)
def test_age_of_a_frame(session, logged_ms, stamp_ms, age_ms, doubt):
    ages = RecordedAges("/image_raw", session.tasks.values())
    assert ages.find(record(logged_ms, stamp_ms)) == (age_ms * MS, doubt)


def test_a_frozen_recording_and_one_of_another_clock(session):
    ages = RecordedAges("/image_raw", session.tasks.values())
    found = [ages.find(record(1000 + 40 * number, 990)) for number in range(3)]
    assert found == [(10 * MS, ""), (50 * MS, "frozen"), (90 * MS, "frozen")]
    task = next(iter(session.tasks.values()))
    own = SimpleNamespace(config=replace(task.config, stamp_clock="unsynchronised"))
    ages = RecordedAges("/image_raw", [own])
    found = [ages.find(record(1000 + 40 * number, 9000 + 39 * number)) for number in range(3)]
    assert found == [(0, ""), (1 * MS - 4000, ""), (2 * MS - 8000, "")]
    with pytest.raises(ConfigurationError, match="stamp_clock of all tasks of one bag must be"):
        RecordedAges("/image_raw", [task, own])


def test_a_photo_is_of_now(session):
    ages = RecordedAges("photos", session.tasks.values())
    assert ages.find(record(1000, 0, file="a.png")) == (0, "")
