"""A fleet answers every request once, equal to what one process finds; also when workers die."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bags import make_image, write_bag
from fleet_work import (
    KEY,
    die_always,
    die_once_then_evaluate,
    die_once_then_look,
    lack_the_model,
    look_at_frames,
    make_spec,
    see_less,
    stumble,
)

from benchmarks.replay.bag import read_frames
from benchmarks.replay.bag import write_bag as write_video_bag
from jetson_dnn_rt.errors import ConfigurationError, ModelError, SourceError
from jetson_dnn_rt.lab.evaluate.chunk import (
    ChunkRequest,
    ChunkResult,
    digest_results,
    merge_variants,
    release,
    run_chunk,
)
from jetson_dnn_rt.lab.evaluate.fleet import LostWorkersError, evaluate_chunks, run_with_dask
from jetson_dnn_rt.lab.evaluate.plan import fix_task

COUNT, FRAMES = 35, 5

Run = Callable[[ChunkRequest], ChunkResult]


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    """35 frames, two of which are none."""
    messages = [make_image(i, encoding="bgr8" if i % 20 else "yuv999") for i in range(COUNT)]
    return write_bag(tmp_path / "bag", messages)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", host="127.0.0.1"
    ) as cluster:
        yield cluster


def split(bag: Path) -> list[ChunkRequest]:
    return [ChunkRequest(str(bag), "", first, FRAMES, ()) for first in range(0, COUNT, FRAMES)]


def check_equal(results: list[ChunkResult], bag: Path) -> None:
    """As one process finds it, nothing lost and nothing twice."""
    alone = [look_at_frames(request) for request in split(bag)]
    assert sorted(r.request.first for r in results) == list(range(0, COUNT, FRAMES))
    assert sum(r.frames for r in results) == COUNT - 2
    assert sorted(m.index for r in results for m in r.bad) == [0, 20]
    ours = merge_variants([r.variants[KEY] for r in results])
    theirs = merge_variants([r.variants[KEY] for r in alone])
    assert ours.digests == theirs.digests
    assert ours.execution == theirs.execution


@pytest.mark.parametrize("run", [look_at_frames, die_once_then_look])
def test_this_process_and_others_find_the_same(bag: Path, run: Run) -> None:
    if run is look_at_frames:
        check_equal(list(evaluate_chunks(split(bag), run)), bag)
    check_equal(list(evaluate_chunks(split(bag), run, workers=2)), bag)
    assert (bag / "died").exists() == (run is die_once_then_look)


def test_what_kills_every_process_is_named(bag: Path) -> None:
    with pytest.raises(LostWorkersError, match=r"messages 5 to 9 of .*3 workers.*killed"):
        list(evaluate_chunks(split(bag), die_always, workers=2))


def test_errors_of_workers_come_back_as_what_they_are(bag: Path, cluster: Any) -> None:
    words = rf"{os.uname().nodename}: model weights.pt is not there"
    for where in ({"workers": 1}, {"scheduler": cluster.scheduler_address}):
        with pytest.raises(ModelError, match=words):
            list(evaluate_chunks(split(bag), lack_the_model, **where))
    with pytest.raises(SourceError, match=r"4 instead of 5 in messages 5 to 9 .*is its copy"):
        list(evaluate_chunks(split(bag)[1:], see_less))
    with pytest.raises(ValueError, match="workers must be >= 0: -1"):
        list(evaluate_chunks(split(bag), look_at_frames, workers=-1))


def test_unexpected_errors_come_with_their_traceback(bag: Path, cluster: Any) -> None:
    for where in ({}, {"workers": 1}, {"scheduler": cluster.scheduler_address}):
        with pytest.raises(RuntimeError, match=r"(?s)messages 0 to 4 .*of all things") as raised:
            list(evaluate_chunks(split(bag)[:1], stumble, **where))
        assert "fleet_work.py" in str(raised.value)


@pytest.mark.parametrize("run", [look_at_frames, die_once_then_look])
def test_a_cluster_finds_the_same(bag: Path, cluster: Any, run: Run) -> None:
    address = cluster.scheduler_address
    check_equal(list(evaluate_chunks(split(bag), run, scheduler=address)), bag)
    assert (bag / "died").exists() == (run is die_once_then_look)


@pytest.mark.slow
def test_detections_of_a_cluster_that_loses_a_worker_are_those_of_one_process(
    tmp_path: Path, shared_data: Path, cluster: Any
) -> None:
    video = shared_data / "video" / "dashcam_white_right.mp4"
    path = tmp_path / "drive"
    write_video_bag(path, read_frames(video, 40, 270), compression="file")
    spec = make_spec("builtin:detector", "full@torch-fp32", confidence_threshold=0.1)
    task = fix_task(spec).spec
    requests = [ChunkRequest(str(path), "", first, 8, (task,), 2) for first in range(0, 40, 8)]
    try:
        alone = list(evaluate_chunks(requests, run_chunk))
    finally:
        release()
    address = cluster.scheduler_address
    fleet = list(evaluate_chunks(requests, die_once_then_evaluate, scheduler=address))
    assert (path / "died").exists()
    key = "detector", "full@torch-fp32"
    one, many = (merge_variants([r.variants[key] for r in results]) for results in (alone, fleet))
    assert len(one.digests) == len(set(one.digests.values())) == 40
    assert digest_results(one.digests) == digest_results(many.digests)
    assert one.execution.count == many.execution.count == 40
    assert sum(result.frames for result in fleet) == 40
    assert sorted(result.request.first for result in fleet) == [0, 8, 16, 24, 32]


def test_a_cluster_names_the_bag_that_is_not_seen(bag: Path, cluster: Any) -> None:
    requests = [ChunkRequest("/nowhere/drive", "", 0, 5, ()), *split(bag)]
    with pytest.raises(SourceError, match=r"does not see /nowhere/drive: .*same path"):
        list(evaluate_chunks(requests, look_at_frames, scheduler=cluster.scheduler_address))


def test_what_kills_workers_of_a_cluster_is_named(
    bag: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Dask's own figure is 3; each worker that is started anew takes seconds.
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    address = cluster.scheduler_address
    with pytest.raises(LostWorkersError, match=r"messages [0-9]+ to [0-9]+ of .*tcp://"):
        list(evaluate_chunks(split(bag), die_always, scheduler=address))


def test_a_cluster_without_workers_is_not_waited_for_without_end(bag: Path) -> None:
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=0, dashboard_address=":0", host="127.0.0.1") as empty,
        pytest.raises(LostWorkersError, match="has no worker: start some with `dask worker tcp:"),
    ):
        list(run_with_dask(split(bag), look_at_frames, empty.scheduler_address, patience_s=0.1))


def test_a_scheduler_that_goes_away_is_reported(bag: Path) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, processes=False, protocol="tcp", dashboard_address=":0", host="127.0.0.1"
    ) as short:
        answers = evaluate_chunks(split(bag), look_at_frames, scheduler=short.scheduler_address)
        next(answers)
        short.close()
        with pytest.raises(LostWorkersError, match=r"connection to the Dask scheduler at .* lost"):
            list(answers)


def test_a_scheduler_that_is_not_there_is_reported(
    bag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetson_dnn_rt.lab.evaluate.fleet._CONNECT_S", 0.2)
    with pytest.raises(
        ConfigurationError, match=r"scheduler at tcp://127.0.0.1:1 does not answer"
    ):
        list(evaluate_chunks(split(bag), look_at_frames, scheduler="tcp://127.0.0.1:1"))
