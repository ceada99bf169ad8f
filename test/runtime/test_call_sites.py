# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The list of calls that threads make is complete as far as it says."""

from __future__ import annotations

import call_sites
import pytest
from call_sites import FOLDERS, ROOTS, THREAD_STARTS, Program


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


# A task of another process has no engine here: this class is in its place.
OWN_STATE = "nodes.coordinator.remote_cohort:RemoteTask."


def test_the_state_of_the_engine_changes_through_its_methods_only(monkeypatch):
    """Whoever sets an attribute of it from outside passes by what has to change with it."""
    monkeypatch.setattr(call_sites, "FOLDERS", (*FOLDERS, "lab"))
    sources = Program()
    owners = {"Engine", "TaskState"}
    found, checked = [], 0
    for function in (one for several in sources.all_functions.values() for one in several):
        if function.module.name.startswith("scheduling"):
            continue
        for name, owner in sources.writes_of(function):
            checked += 1
            if owner.name in owners and not function.key.startswith(OWN_STATE):
                found.append(f"{function.key}: {owner.name}.{name}")
    assert checked > 500  # it is no empty search
    assert found == []
