# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The libraries below take the threads that they were given, and no more."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("torch", reason="torch is not installed")

import cv2
import torch
from busy_threads import (
    SIZE,
    count_pipelines,
    count_resizes,
    count_runners,
    make_convolutions,
    read_thread_times,
)
from networks import skip_on_gpu

from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.backends.threads import count_cores, limit_opencv


@pytest.fixture(scope="module")
def model():
    return make_convolutions()


@pytest.fixture(scope="module")
def alone():
    """Call a function of `busy_threads` in a process in which nothing else runs."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        yield lambda function, *arguments: executor.submit(function, *arguments).result()


@pytest.fixture(autouse=True)
def kernel_counts():
    try:
        read_thread_times()
    except OSError as error:
        pytest.skip(f"this kernel does not count the time of threads: {error}")


@pytest.fixture
def several_cores():
    if count_cores() < 2:
        pytest.skip("one core: a library that takes them all takes one")


@pytest.fixture(autouse=True)
def opencv_as_before():
    before = cv2.getNumThreads()
    yield
    cv2.setNumThreads(before)


@pytest.mark.parametrize("backend", ["torch", "onnxruntime", "openvino"])
@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (2, 1), (1, 2)])
def test_no_more_threads_work_than_workers_times_threads(backend, workers, threads, alone):
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    if backend == "torch":
        skip_on_gpu("CUDA has threads of its own")
    assert workers <= alone(count_runners, backend, workers, threads) <= workers * threads


def test_whole_pipelines_stay_within_their_workers(several_cores, alone):
    """With preprocessing and the mask in the picture's size, which are OpenCV's."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    assert alone(count_pipelines) == (1, 2)


def test_a_runner_finds_its_number_on_a_thread_that_has_another(model):
    skip_on_gpu("it has no number of threads")
    image = np.zeros((1, 3, *SIZE), np.float32)
    one, two = (create_runner(model, "torch", "fp32", threads=n) for n in (1, 2))
    found = []

    def run():
        for runner in (two, one, two):
            runner.run([image])
            found.append(torch.get_num_threads())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    one.close()
    two.close()
    assert found == [2, 1, 2]


def test_opencv_takes_its_share(several_cores, alone):
    assert alone(count_resizes, 1, 1) == 1
    assert alone(count_resizes, 1, 2) == 2


def test_the_pool_is_not_made_anew_without_need(monkeypatch):
    calls: list[int] = []
    limit_opencv(1)
    monkeypatch.setattr(cv2, "setNumThreads", calls.append)
    limit_opencv(1)
    limit_opencv(2)
    assert calls == [2]
