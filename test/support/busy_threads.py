# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Threads that work while something runs, counted by the kernel as time on a core.

That does not depend on how busy the machine is. A module of its own: a test calls these functions
in a fresh process, as what earlier tests left behind (DDS, thread pools) works now and then too.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from networks import make_model

from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.backends.threads import count_cores, limit_opencv
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running.variant_set import VariantSet

IDLE = 0.1
"""Share of the work below which a thread counts as idle: it was woken, or handed over and waited,
and slept again. One that takes part has a third or more."""

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


def make_convolutions():
    return make_model(Convolutions(), SIZE, ("a", "b", "c", "d"))


def wait_until_idle():
    """Return once no other thread works: OpenMP's spin for some ms after a parallel part."""
    caller = str(threading.get_native_id())
    before = read_thread_times()
    while True:
        time.sleep(0.01)
        after = read_thread_times()
        if all(after[thread] == before.get(thread) for thread in after if thread != caller):
            return
        before = after


def count_busy(works):
    """Threads of this process that worked while each of these was repeated on a thread.

    Without the calling thread: reading the times of many threads takes it milliseconds.
    """
    ready, done = threading.Barrier(len(works) + 1), threading.Barrier(len(works) + 1)
    leave = threading.Event()

    def run(work):
        ready.wait()
        # Of the process: a back end may work on a thread of its own.
        end_ns = time.process_time_ns() + len(works) * WORK_NS
        while time.process_time_ns() < end_ns:
            work()
        done.wait()
        leave.wait()  # a thread that has ended is not counted

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    wait_until_idle()
    before = read_thread_times()
    ready.wait()
    done.wait()
    after = read_thread_times()
    leave.set()
    for thread in threads:
        thread.join()
    del after[str(threading.get_native_id())]
    spent_ns = [time_ns - before.get(thread, 0) for thread, time_ns in after.items()]
    return sum(time_ns > IDLE * sum(spent_ns) for time_ns in spent_ns)


def count_runners(backend, workers, threads):
    model = make_convolutions()
    image = np.random.default_rng(0).random((1, 3, *SIZE), np.float32)
    runners = [create_runner(model, backend, "fp32", threads=threads) for _ in range(workers)]
    # What torch's process-wide setting is must not matter: a new thread begins with it.
    torch.set_num_threads(count_cores())
    works = [lambda runner=runner: runner.run([image]) for runner in runners]
    busy = count_busy(works)
    for runner in runners:
        runner.close()
    return busy


def count_pipelines():
    """One pipeline, then two at once."""
    variant = "full@onnxruntime-fp32"
    frame = Frame(np.zeros((1080, 1920, 3), np.uint8), "bgr8", 0, 0)
    cv2.setNumThreads(count_cores())
    model = make_convolutions()
    sets = [VariantSet(TaskConfig(variants=(variant,)), model) for _ in range(2)]
    pipelines = [variants.pipelines[variant] for variants in sets]
    one = count_busy([lambda: pipelines[0].run(Work(frame))])
    two = count_busy([lambda p=pipeline: p.run(Work(frame)) for pipeline in pipelines])
    for variants in sets:
        variants.close()
    return one, two


def count_resizes(threads, calls):
    frame = np.zeros((1080, 1920, 3), np.uint8)
    small = np.empty((360, 640, 3), np.uint8)

    def resize():
        cv2.resize(frame, (640, 360), dst=small, interpolation=cv2.INTER_LINEAR)

    cv2.setNumThreads(count_cores())
    limit_opencv(threads)
    return count_busy([resize] * calls)
