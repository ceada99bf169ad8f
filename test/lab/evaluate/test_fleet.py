# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A fleet answers every request once, equal to what one process finds; also when workers die."""

from __future__ import annotations

import os

import pytest
from bags import make_image, write_bag
from fleet_work import (
    KEY,
    die_always,
    die_once_then_look,
    lack_the_model,
    look_at_frames,
    see_less,
    stumble,
)

from jetson_dnn_rt.errors import ConfigurationError, ModelError, SourceError
from jetson_dnn_rt.lab.evaluate.chunk import ChunkRequest, merge_variants
from jetson_dnn_rt.lab.evaluate.fleet import LostWorkersError, evaluate_chunks, run_with_dask

COUNT, FRAMES = 35, 5


@pytest.fixture
def bag(tmp_path):
    """35 frames, two of which are none."""
    messages = [make_image(i, encoding="bgr8" if i % 20 else "yuv999") for i in range(COUNT)]
    return write_bag(tmp_path / "bag", messages)


def start_cluster(**options):
    from distributed import LocalCluster

    return LocalCluster(dashboard_address=":0", host="127.0.0.1", **options)


@pytest.fixture(scope="module")
def cluster():
    with start_cluster(n_workers=2, threads_per_worker=1, processes=True) as cluster:
        yield cluster


def split(bag):
    return [ChunkRequest(str(bag), "", first, FRAMES, ()) for first in range(0, COUNT, FRAMES)]


@pytest.mark.parametrize(
    ("where", "run"),
    [
        ("here", look_at_frames),
        *(("processes", run) for run in (look_at_frames, die_once_then_look)),
        *(("cluster", run) for run in (look_at_frames, die_once_then_look)),
    ],
)
def test_every_request_is_answered_once_as_by_one_process(bag, cluster, run, where):
    given = {"processes": {"workers": 2}, "cluster": {"scheduler": cluster.scheduler_address}}
    results = list(evaluate_chunks(split(bag), run, **given.get(where, {})))
    assert (bag / "died").exists() == (run is die_once_then_look)
    assert sorted(r.request.first for r in results) == list(range(0, COUNT, FRAMES))
    assert sum(r.frames for r in results) == COUNT - 2
    assert sorted(m.index for r in results for m in r.bad) == [0, 20]
    alone = [look_at_frames(request) for request in split(bag)]
    ours, theirs = (merge_variants([r.variants[KEY] for r in found]) for found in (results, alone))
    assert ours.digests == theirs.digests
    assert ours.execution == theirs.execution


def test_what_kills_every_process_is_named(bag):
    with pytest.raises(LostWorkersError, match=r"messages 5 to 9 of .*3 workers.*killed"):
        list(evaluate_chunks(split(bag), die_always, workers=2))


def test_errors_of_workers_come_back_as_what_they_are(bag, cluster):
    for where in ({}, {"workers": 1}, {"scheduler": cluster.scheduler_address}):
        with pytest.raises(ModelError, match=f"{os.uname().nodename}: model weights.pt is not"):
            list(evaluate_chunks(split(bag), lack_the_model, **where))
        with pytest.raises(RuntimeError, match=r"(?s)messages 0 to 4 .*of all things") as raised:
            list(evaluate_chunks(split(bag)[:1], stumble, **where))
        assert "fleet_work.py" in str(raised.value)
    with pytest.raises(SourceError, match=r"4 instead of 5 in messages 5 to 9 .*is its copy"):
        list(evaluate_chunks(split(bag)[1:], see_less))
    with pytest.raises(ValueError, match="workers must be >= 0: -1"):
        list(evaluate_chunks(split(bag), look_at_frames, workers=-1))


def test_a_cluster_names_the_bag_that_is_not_seen(bag, cluster):
    requests = [ChunkRequest("/nowhere/drive", "", 0, 5, ()), *split(bag)]
    with pytest.raises(SourceError, match=r"does not see /nowhere/drive: .*same path"):
        list(evaluate_chunks(requests, look_at_frames, scheduler=cluster.scheduler_address))


def test_what_kills_workers_of_a_cluster_is_named(bag, cluster, monkeypatch):
    # Dask's own figure is 3; each worker that is started anew takes seconds.
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    address = cluster.scheduler_address
    with pytest.raises(LostWorkersError, match=r"messages [0-9]+ to [0-9]+ of .*tcp://"):
        list(evaluate_chunks(split(bag), die_always, scheduler=address))


def test_a_cluster_without_workers_is_not_waited_for_without_end(bag):
    with (
        start_cluster(n_workers=0) as empty,
        pytest.raises(LostWorkersError, match="has no worker: start some with `dask worker tcp:"),
    ):
        list(run_with_dask(split(bag), look_at_frames, empty.scheduler_address, patience_s=0.1))


def test_a_scheduler_that_goes_away_is_reported(bag):
    with start_cluster(n_workers=1, processes=False, protocol="tcp") as short:
        answers = evaluate_chunks(split(bag), look_at_frames, scheduler=short.scheduler_address)
        next(answers)
        short.close()
        with pytest.raises(LostWorkersError, match=r"connection to the Dask scheduler at .* lost"):
            list(answers)


def test_a_scheduler_that_is_not_there_is_reported(bag, monkeypatch):
    monkeypatch.setattr("jetson_dnn_rt.lab.evaluate.fleet._CONNECT_S", 0.2)
    with pytest.raises(ConfigurationError, match=r"at tcp://127.0.0.1:1 does not answer"):
        list(evaluate_chunks(split(bag), look_at_frames, scheduler="tcp://127.0.0.1:1"))
