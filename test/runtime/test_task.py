# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What a task has loaded, and what is added while it runs; without ROS."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from jetson_dnn_rt.backends.base import RunnerClosedError
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.runtime import task as loading
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.variants.free_cuts import FreeCuts
from jetson_dnn_rt.variants.running import variant_set

FIRST, SECOND, MISSING = "full@torch-fp32", "full@onnxruntime-fp32", "tucker-0.50@torch-fp32"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return tmp_path_factory.mktemp("library")


def load(library, *variants, cancels=False, **values):
    parameters = TaskConfig(variants=variants, warmup_runs=1, engine_cache=str(library), **values)
    return Task(
        parameters,
        (48, 64),
        threads=1,
        clock=SteadyClock(),
        log=lambda text: None,
        cancels=cancels,
    )


def test_it_measures_how_long_cancelling_takes_where_that_is_wanted(library):
    task = load(library, FIRST, SECOND, cancels=True)
    assert task.cancel_latencies_ns[FIRST] == []  # torch cannot
    assert min(task.cancel_latencies_ns[SECOND]) > 0
    task.close()
    task = load(library, SECOND)
    assert task.cancel_latencies_ns == {}
    task.close()


@pytest.fixture
def loaded(library):
    task = load(library, FIRST, MISSING)
    yield task
    task.close()


def test_one_more_is_warmed_up_without_a_trace_in_the_others(loaded):
    image = loaded.variants.pipelines[FIRST].processor.image
    image[:] = 7.0
    loaded.add(SECOND)
    assert np.all(image == 7.0)
    assert loaded.variant_names == (FIRST, SECOND)
    assert list(loaded.stages) == [FIRST, SECOND]
    assert len(loaded.warm_up_times_ns[SECOND]) == 1
    # From now on it reads what the others read.
    assert loaded.variants.pipelines[SECOND].processor.image is image


def test_one_that_fails_its_warm_up_is_closed(loaded, monkeypatch):
    runners = []

    def fail(stages, *arguments):
        runners.append(loaded.variants.pipelines[SECOND].segments[0].runner)
        raise RuntimeError("no memory left")

    monkeypatch.setattr(loading, "measure_stages", fail)
    with pytest.raises(ModelError, match="fails on its warm-up frame: no memory left"):
        loaded.add(SECOND)
    assert loaded.variant_names == tuple(loaded.stages) == (FIRST,)
    (runner,) = runners
    with pytest.raises(RunnerClosedError):
        runner.run([])


def test_a_missing_variant_stands_back_until_it_is_there(library):
    task = load(library, MISSING, FIRST, variant=MISSING)
    try:
        assert (task.missing, list(task.left_out)) == ((MISSING,), [MISSING])
        assert task.choose_variant("") == task.choose_variant(MISSING) == FIRST
        with pytest.raises(ConfigurationError, match="is being built"):
            task.resolve_variant(MISSING)
        task.give_up(MISSING, "neither faster nor lighter")
        assert task.missing == ()
        assert task.choose_variant(MISSING) == FIRST
        with pytest.raises(ConfigurationError, match="neither faster nor lighter"):
            task.resolve_variant(MISSING)
        with pytest.raises(ConfigurationError, match="must be one of"):
            task.choose_variant(SECOND)
    finally:
        task.close()


def test_nothing_is_handed_over_while_variants_are_made(loaded, monkeypatch):
    taken: list[Any] = []
    begun, go_on = threading.Event(), threading.Event()
    measure = loading.measure_stages

    def wait(*arguments):
        begun.set()
        assert go_on.wait(60.0)
        return measure(*arguments)

    monkeypatch.setattr(loading, "measure_stages", wait)
    thread = threading.Thread(target=loaded.add, args=(SECOND,))
    thread.start()
    assert begun.wait(60.0)
    # Not ready, though it is loaded already.
    assert loaded.variant_names == (FIRST,)
    assert not loaded.hand_over(FIRST, lambda *given: taken.append(given))
    go_on.set()
    thread.join()
    assert loaded.hand_over(SECOND, lambda *given: taken.append(given))
    assert taken == [(loaded.stages[SECOND], loaded.warm_up_times_ns[SECOND])]


def test_everything_that_was_ready_is_built_anew(library):
    task = load(library, FIRST, stages=3)
    try:
        task.add(SECOND)
        before, names = task.stages, task.stage_names
        after = task.rebuild(lambda close: None)
        assert list(after) == list(before) == [FIRST, SECOND]
        assert task.stage_names == names
        assert not set(map(id, after[SECOND])) & set(map(id, before[SECOND]))
    finally:
        task.close()


def test_free_cuts_are_logged_and_kept_when_everything_is_built_anew(library, monkeypatch):
    def choose(network, make_runner, library, key):
        return FreeCuts(network.cuts[3:4], 0.01, {}, 2_000_000, 1_200_000)

    monkeypatch.setattr(variant_set, "load_free_cuts", choose)
    lines: list[str] = []
    config = TaskConfig(variants=(FIRST,), warmup_runs=1, engine_cache=str(library), stages="auto")
    task = Task(config, (48, 64), threads=1, clock=SteadyClock(), log=lines.append)
    try:
        (line,) = [line for line in lines if "stages auto: " in line]
        assert "2 stages, cut at " in line
        assert line.endswith(": +1.0 %, the longest stage 1.20 of 2.00 ms")
        monkeypatch.setattr(variant_set, "load_free_cuts", pytest.fail)
        names = task.stage_names
        task.rebuild(lambda close: None)
        assert task.stage_names == names == ("preprocess", "inference-1", "inference-2", "decode")
        assert len(task.stages[FIRST]) == 4
    finally:
        task.close()


def test_nothing_is_added_after_the_end(library):
    task = load(library, FIRST)
    task.close()
    with pytest.raises(ConfigurationError, match="cleaned up"):
        task.add(SECOND)


@pytest.mark.parametrize(("stages", "is_said"), [(1, False), (2, True), (0, True)])
def test_cutting_is_said_before_it_takes_time(library, stages, is_said):
    lines: list[str] = []
    config = TaskConfig(variants=(FIRST,), warmup_runs=1, engine_cache=str(library), stages=stages)
    Task(config, (48, 64), threads=1, clock=SteadyClock(), log=lines.append).close()
    assert any("into stages" in line for line in lines) is is_said


def test_memory_of_a_device_is_of_no_effect_on_the_cpu_and_that_is_said(library):
    lines: list[str] = []
    parameters = TaskConfig(
        variants=(FIRST,), warmup_runs=1, engine_cache=str(library), memory="pinned", camera="c"
    )
    task = Task(parameters, (48, 64), threads=1, clock=SteadyClock(), log=lines.append)
    assert task.variants.memory == ""
    assert task.allocate_frame is None
    assert f"memory: pinned has no effect, {FIRST} runs on the CPU" in lines
    task.close()
