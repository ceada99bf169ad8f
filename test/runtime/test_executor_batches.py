# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Batches in the executor on the virtual clock: real threads, exact times."""

import pytest
from executor_bench import MS, Bench, frame

from jetson_dnn_rt.tasks import Outcome, Stage, TaskParameters

NAMES = ("preprocess", "inference", "decode")


class BatchBench(Bench):
    """Tasks of one batch group: 1 ms before the network, 10 in it (2 more a mate), 1 after it."""

    def __init__(self, tasks="abc", workers=1, sizes=(2, 3), max_inflight=None):
        super().__init__(workers, max_inflight=max_inflight)
        self.tasks = tasks
        self.records = {}
        self.batches = []
        self.fails = False
        for name in tasks:
            self.add(name)
        for size in sizes if tasks else ():
            times = [(8 + 2 * size) * MS]
            self.executor.seed_batch_budgets(tasks[0], "v", "inference", size, times)
        self.executor.start()

    def sleep(self, milliseconds):
        self.clock.sleep_until_ns(self.clock.now_ns() + milliseconds * MS)

    def stages(self):
        def run_batch(works):
            self.batches.append([work.frame.sequence for work in works])
            if self.fails:
                raise RuntimeError("no memory left")
            self.sleep(8 + 2 * len(works))
            for work in works:
                work.copied_bytes = 100 * len(works)

        return [
            Stage("preprocess", lambda work: self.sleep(1)),
            Stage("inference", lambda work: self.sleep(10), device="cuda", run_batch=run_batch),
            Stage("decode", lambda work: self.sleep(1)),
        ]

    def add(self, name, stages=None, preprocess_ms=1, **options):
        parameters = TaskParameters(name, 100 * MS, 100 * MS, NAMES, ("v",), "v", batch_group="g")
        self.executor.add_task(
            parameters,
            {"v": stages or self.stages()},
            lambda record, work: self.records.setdefault(record.sequence, []).append(record),
            warm_up_times_ns={"v": [(preprocess_ms * MS, 10 * MS, MS)]},
            stage_timeout_ns=50 * MS,
            **options,
        )

    def submit(self, sequence):
        """One frame for all tasks, at one instant."""
        self.executor.submit(tuple(self.tasks), frame(sequence), self.clock.now_ns())
        self.clock.settle()


def inference(record):
    stage = record.stages[1]
    assert stage.name == "inference"
    return stage.start_ns / MS, stage.end_ns / MS, stage.batch


def test_one_worker_runs_the_network_once_for_all():
    bench = BatchBench()
    bench.submit(7)
    bench.run_to(100)
    records = bench.finish()[7]
    assert bench.batches == [[7, 7, 7]]
    assert {inference(record) for record in records} == {(3, 17, 3)}
    assert [record.completion_ns / MS for record in records] == [18, 19, 20]
    assert all(record.overhead_ns == 0 for record in records)
    assert all(record.copied_bytes == 300 for record in records)


def run_beside_a_mate(preprocess_ms):
    """Records of `a`, preprocessed in 1 ms, and of `b`, on another worker; 5 ms are budgeted."""
    bench = BatchBench("", workers=2, max_inflight={"cuda": 1})
    for name, taken_ms in (("a", 1), ("b", preprocess_ms)):
        stages = bench.stages()
        stages[0] = Stage("preprocess", lambda work, ms=taken_ms: bench.sleep(ms))
        bench.add(name, stages, preprocess_ms=5)
    bench.tasks = "ab"
    bench.executor.seed_batch_budgets("a", "v", "inference", 2, [12 * MS])
    bench.submit(0)
    bench.run_to(100)
    return sorted(bench.finish()[0], key=lambda record: record.task)


def test_a_job_waits_for_the_mate_that_another_worker_brings():
    """And then the worker that waited takes one of the two that the batch leaves."""
    records = run_beside_a_mate(4)
    assert [inference(record) for record in records] == [(4, 16, 2), (4, 16, 2)]
    assert [record.waiting_ns / MS for record in records] == [3, 0]
    for record in records:
        assert (record.completion_ns, record.overhead_ns) == (17 * MS, 0)


def test_it_goes_on_alone_when_that_takes_too_long():
    records = run_beside_a_mate(30)
    assert [inference(record) for record in records] == [(5, 15, 1), (30, 40, 1)]
    assert records[0].waiting_ns == 4 * MS


def test_a_batch_that_raises_is_said_and_not_formed_again(caplog):
    bench = BatchBench()
    bench.fails = True
    bench.submit(0)
    bench.run_to(50)
    bench.fails = False
    bench.submit(1)
    bench.run_to(100)
    records = bench.finish()
    assert {(r.outcome, r.reason) for r in records[0]} == {
        (Outcome.FAILED, "RuntimeError: no memory left")
    }
    assert "a batch of 3 frames (inference, v) failed" in caplog.text
    # Those of two are still there.
    assert sorted(inference(record)[2] for record in records[1]) == [1, 2, 2]
    assert bench.executor.snapshot("a").withdrawn == {}


def test_a_batch_that_hangs_restarts_every_member():
    bench = BatchBench("")
    hung = Stage("inference", lambda work: None, run_batch=bench.hang)
    for name in "abc":
        stages = bench.stages()
        bench.add(name, [stages[0], hung, stages[2]], restart=lambda: {"v": bench.stages()})
    bench.tasks = "abc"
    bench.executor.seed_batch_budgets("a", "v", "inference", 3, [14 * MS])
    bench.submit(0)
    bench.run_to(60)
    assert [bench.executor.snapshot(name).suspended for name in "abc"] == ["", "", ""]
    bench.submit(1)
    bench.run_to(160)
    records = bench.finish()
    assert {(r.outcome, r.reason) for r in records[0]} == {
        (Outcome.FAILED, "stage inference of v hangs: still running after 0.05 s")
    }
    assert [inference(record)[2] for record in records[1]] == [1, 1, 1]
    assert {record.outcome for record in records[1]} == {Outcome.MET}


def test_an_unknown_stage_has_no_batches():
    bench = BatchBench()
    with pytest.raises(ValueError, match="no stage 'postprocess'"):
        bench.executor.seed_batch_budgets("a", "v", "postprocess", 2, [MS])
    bench.finish()
