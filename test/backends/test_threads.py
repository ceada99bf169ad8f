# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The libraries below take the threads that they were given, and no more.

Counted by the kernel, as time on a core: that does not depend on how busy the machine is.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")
pytest.importorskip("torch", reason="torch is not installed")

import cv2
import torch
from networks import make_model

from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.backends.threads import count_cores, limit_opencv
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running.variant_set import VariantSet

IDLE = 0.04
"""Share of the work below which a thread counts as idle: it was woken, and slept again."""

SIZE = (128, 128)
WORK_NS = 60_000_000


def read_thread_times():
    """Time on a core of each thread of this process, in ns; `OSError` if it is not counted."""
    files = Path("/proc/self/task").glob("*/schedstat")
    return {file.parent.name: int(file.read_text().split()[0]) for file in files}


class Convolutions(torch.nn.Module):
    """Nothing but convolutions, which oneDNN computes without asking torch for threads."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.layers = torch.nn.Sequential(
                torch.nn.Conv2d(3, 32, 3, 1, 1),
                torch.nn.Conv2d(32, 32, 3, 1, 1),
                torch.nn.Conv2d(32, 4, 3, 2, 1),
            )

    def forward(self, image):
        return self.layers(image)


@pytest.fixture(scope="module")
def model():
    return make_model(Convolutions(), SIZE, ("a", "b", "c", "d"))


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


def count_busy(works):
    """Threads of this process that worked while each of these was repeated on a thread."""
    ready, done = threading.Barrier(len(works) + 1), threading.Barrier(len(works) + 1)
    leave = threading.Event()

    def run(work):
        ready.wait()
        end_ns = time.thread_time_ns() + WORK_NS
        while time.thread_time_ns() < end_ns:
            work()
        done.wait()
        leave.wait()  # a thread that has ended is not counted

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    before = read_thread_times()
    ready.wait()
    done.wait()
    after = read_thread_times()
    leave.set()
    for thread in threads:
        thread.join()
    spent_ns = [time_ns - before.get(thread, 0) for thread, time_ns in after.items()]
    return sum(time_ns > IDLE * sum(spent_ns) for time_ns in spent_ns)


@pytest.mark.parametrize("backend", ["torch", "onnxruntime", "openvino"])
@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (2, 1), (1, 2)])
def test_no_more_threads_work_than_workers_times_threads(backend, workers, threads, model):
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    image = np.random.default_rng(0).random((1, 3, *SIZE), np.float32)
    runners = [create_runner(model, backend, "fp32", threads=threads) for _ in range(workers)]
    # What torch's process-wide setting is must not matter: a new thread begins with it.
    torch.set_num_threads(count_cores())
    try:
        works = [lambda runner=runner: runner.run([image]) for runner in runners]
        busy = count_busy(works)
    finally:
        torch.set_num_threads(1)
        for runner in runners:
            runner.close()
    assert workers <= busy <= workers * threads


def test_whole_pipelines_stay_within_their_workers(model, several_cores):
    """With preprocessing and the mask in the picture's size, which are OpenCV's."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    variant = "full@onnxruntime-fp32"
    frame = Frame(np.zeros((1080, 1920, 3), np.uint8), "bgr8", 0, 0)
    cv2.setNumThreads(count_cores())
    sets = [VariantSet(TaskConfig(variants=(variant,)), model) for _ in range(2)]
    pipelines = [variants.pipelines[variant] for variants in sets]
    try:
        assert count_busy([lambda: pipelines[0].run(Work(frame))]) == 1
        busy = count_busy([lambda p=pipeline: p.run(Work(frame)) for pipeline in pipelines])
        assert busy == 2
    finally:
        for variants in sets:
            variants.close()


def test_a_runner_finds_its_number_on_a_thread_that_has_another(model):
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


def test_opencv_takes_its_share(several_cores):
    frame = np.zeros((1080, 1920, 3), np.uint8)
    small = np.empty((360, 640, 3), np.uint8)

    def resize():
        cv2.resize(frame, (640, 360), dst=small, interpolation=cv2.INTER_LINEAR)

    cv2.setNumThreads(count_cores())
    limit_opencv(1)
    assert count_busy([resize]) == 1
    assert count_busy([resize, resize]) == 2


def test_the_pool_is_not_made_anew_without_need(monkeypatch):
    calls: list[int] = []
    limit_opencv(1)
    monkeypatch.setattr(cv2, "setNumThreads", calls.append)
    limit_opencv(1)
    limit_opencv(2)
    assert calls == [2]
