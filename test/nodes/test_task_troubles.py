# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A task whose stage hangs or does not return: what the services and the lifecycle make of it."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from diagnostic_msgs.msg import DiagnosticArray
from std_srvs.srv import SetBool
from task_bench import Bench, Log, diagnostics_of, make_image

from jetson_dnn_rt.backends.null import NullRunner
from jetson_dnn_rt.nodes.process.lifecycle import FAILURE, SUCCESS
from jetson_dnn_rt.nodes.reports.diagnostics import ERROR
from jetson_dnn_rt.tasks import Outcome


class Block:
    """What a null network's runs wait for, while `armed`; notes runs of a closed runner."""

    def __init__(self, monkeypatch):
        self.armed = False
        self.entered, self.let_go = threading.Event(), threading.Event()
        self.closed_in_use: list[NullRunner] = []
        self._inside: set[NullRunner] = set()
        run, close = NullRunner._run, NullRunner._close

        def waiting(runner, *args):
            if self.armed:
                self._inside.add(runner)
                self.entered.set()
                assert self.let_go.wait(60)
                self._inside.discard(runner)
            return run(runner, *args)

        def closing(runner):
            if runner in self._inside:
                self.closed_in_use.append(runner)
            close(runner)

        monkeypatch.setattr(NullRunner, "_run", waiting)
        monkeypatch.setattr(NullRunner, "_close", closing)


@pytest.fixture
def block(monkeypatch):
    return Block(monkeypatch)


def test_a_task_that_hangs_is_suspended_and_the_service_tries_again(ros, block):
    """EDGES 7: ERROR in diagnostics with what to do; `~/enable` starts it anew."""
    bench = Bench(ros, stage_timeout_ms=50.0)
    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    block.armed = True
    executor = bench.node.session.executor
    with executor.exclusively():
        # As if it had hung three times in the last minutes already.
        restarts = executor._shared.tasks["detector"].restarts
        now_ns = executor.clock.now_ns()
        assert [restarts.plan(now_ns) for _ in range(3)] == 3 * [True]
        restarts.due_ns = None
    bench.send(make_image(ros), 1)
    assert bench.count(Outcome.FAILED) == 1
    diagnostics.clear()
    status = diagnostics_of(diagnostics, "/detector: task_status", ERROR)
    assert "hangs: still running after 0.05 s; it hung 4 times" in status[""]
    assert "call detector/enable with data: true" in status[""]
    assert status["hanging_threads"] == "1"
    assert "hangs" in status["last_failure"]
    assert any(key.startswith("reason.failed: stage ") for key in status)
    bench.send(make_image(ros), 2)
    assert bench.node.snapshot.reasons["hung"] == 1
    block.armed = False
    reply = ros.request(SetBool, "detector/enable", SetBool.Request(data=True))
    assert (reply.success, reply.message) == (True, "task detector is being restarted")
    ros.wait(lambda: not bench.node.snapshot.suspended, "the restart")
    bench.send(make_image(ros), 3)
    assert bench.count(Outcome.MET) == 1
    reply = ros.request(SetBool, "detector/enable", SetBool.Request(data=True))
    assert (reply.success, reply.message) == (True, "frames are taken")
    block.let_go.set()
    ros.wait(lambda: not bench.node.snapshot.hangs, "the end of the thread")
    assert block.closed_in_use == []


@pytest.fixture
def stuck(ros, block, monkeypatch):
    """A task whose stage does not return before its removal is given up."""
    bench = Bench(ros, stage_timeout_ms=60_000.0)
    bench.start()
    executor = bench.node.session.executor
    remove = executor.remove_task
    monkeypatch.setattr(executor, "remove_task", lambda task: remove(task, timeout_s=0.05))
    block.armed = True
    bench.images.publish(make_image(ros))
    assert block.entered.wait(60)
    log = Log(bench.node)
    assert bench.node.trigger_deactivate() == SUCCESS
    assert log.count("is removed when it returns") == 1
    yield bench
    ros.wait(lambda: bench.images.get_subscription_count() == 1, "the subscription")
    bench.send(make_image(ros), 1)
    assert bench.count(Outcome.MET) == 1
    assert block.closed_in_use == []


def test_a_removal_that_times_out_is_finished_later(ros, block, stuck):
    """EDGES 15: the task can be activated again; nobody closes its runners meanwhile."""
    bench = stuck
    assert bench.node.trigger_activate() == FAILURE
    assert "still being removed" in bench.node.fault
    block.armed = False
    block.let_go.set()
    executor = bench.node.session.executor
    ros.wait(lambda: "detector" not in executor._shared.tasks, "the removal")
    assert bench.node.trigger_activate() == SUCCESS, bench.node.fault


def test_a_cleanup_while_a_stage_runs_closes_its_runners_when_it_returns(ros, block, stuck):
    """EDGES 15: deactivated and cleaned up: nothing in use is closed."""
    bench, closed = stuck, threading.Event()
    loaded = bench.node.loaded
    close = loaded.close
    loaded.close = lambda: (close(), closed.set())
    assert bench.node.trigger_cleanup() == SUCCESS
    assert not closed.is_set()
    block.armed = False
    block.let_go.set()
    assert closed.wait(60)
    assert bench.node.autostart(), bench.node.fault
