# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The list of calls that threads make is complete as far as it says."""

from __future__ import annotations

import pytest
from call_sites import ROOTS, THREAD_STARTS, Program


@pytest.fixture(scope="module")
def sources():
    return Program()


def test_every_thread_of_the_package_is_in_the_campaign_or_left_out_by_name(sources):
    """A new one has to be put into `ROOTS`, or into `THREAD_STARTS` with its test."""
    assert sources.thread_starts == sorted(THREAD_STARTS)
    assert set(filter(None, THREAD_STARTS.values())) == set(ROOTS)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("worker", "scheduling.engine:Engine._close"),  # through four calls
        ("watchdog", "runtime.supervision:Supervisor._begin_restart"),
        ("delivery", "scheduling.job:Ending._lag_ns"),
        ("trace", "traces.schema:make_record_batch"),
        ("clock", "platforms.power:Ina3221Meter.power"),  # a subclass, by an attribute's type
        ("camera", "scheduling.engine:Engine._arrive"),  # a frame is released on its thread
        ("camera", "cameras.files:ImagesSource.read"),
    ],
)
def test_calls_are_followed(sources, kind, function):
    assert function in {one.key for one in sources.functions_of(kind).values()}


def test_threads_are_not_followed_into_those_that_they_start(sources):
    """The watchdog replaces workers: what these do is not done by it."""
    keys = {one.key for one in sources.functions_of("watchdog").values()}
    assert "runtime.supervision:Supervisor.start_worker" in keys
    assert "runtime.executor:Executor._work" not in keys
