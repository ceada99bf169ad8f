# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The coordinator of tasks in other processes: over their topics and their parameter."""

from __future__ import annotations

import signal

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: two back ends are needed")
pytest.importorskip("openvino", reason="openvino is not installed: two back ends are needed")

from cohort_tables import FAST, FULL, VALUES, make_table, write_tables
from diagnostic_msgs.msg import DiagnosticArray
from node_process import Process
from std_msgs.msg import Float64
from task_bench import Bench, diagnostics_of, make_image, start_coordinator, wait_for_value

ADAPTIVE = "apnet"

TRIES, FRAMES = 3, 1000
"""Fast DDS may leave a process deaf that starts after another was killed, until it is started
again (test/campaigns/neighbours.py): so many processes are tried, each for so many frames."""


class Task:
    """A detector with an executor of its own, and frames that are sent one by one."""

    def __init__(self, ros, **values):
        self.ros = ros
        self.bench = Bench(ros, **{**VALUES, "deadline_ms": 500.0, **values})
        self.bench.start()

    def send(self):
        """Send a frame; returns the variant that it ran."""
        image = make_image(self.ros)
        return self.bench.seen.after(lambda: self.bench.images.publish(image)).variant

    @property
    def variant(self):
        """Its parameter."""
        return str(self.bench.node.parameters.variant)

    def wait_for_listener(self):
        """Wait until a coordinator hears its LAG."""
        self.ros.wait(
            lambda: (
                self.bench.node.count_subscribers("detector/debug/lag_ms") == 1
                and "lag_ms" in self.bench.node._reports.topics.wanted
            )
        )

    def settle(self, wanted):
        """Wait until the parameter has a value: an answer takes its way over DDS."""
        self.ros.wait(lambda: self.variant == wanted, f"variant {wanted}")


def start(ros, tables, **values):
    node = start_coordinator(ros, tables, **values)
    remote = node._cohort._remote
    ros.wait(lambda: all(task._setter.service_is_ready() for task in remote.values()))
    return node


def member_of(node):
    """The only task; None between two coordinators, as another deadline means another one."""
    coordinator = node.coordinator
    return None if coordinator is None else coordinator.cohort.members[0]


def test_a_frame_later_the_task_runs_what_the_policy_wants(ros, tmp_path):
    task = Task(ros)
    node = start(ros, write_tables(tmp_path))
    task.wait_for_listener()
    assert [task.send(), task.send()] == [FULL] * 2
    assert task.variant == ""
    # The policy is asked at once, so the next frame already runs accordingly.
    assert ros.set(node, policy=ADAPTIVE).successful
    task.settle(FAST)
    assert [task.send(), task.send()] == [FAST] * 2
    member = node.coordinator.cohort.members[0]
    ros.wait(lambda: member.frames_done == 4)
    assert member.last_frame.met
    assert member.last_stage.variant == 1
    assert member.slowdown.latest > 1.0  # it takes longer than the millisecond of the table


def test_a_task_keeps_its_variant_without_it_and_it_takes_over_again(ros, tmp_path):
    task = Task(ros)
    node = start(ros, write_tables(tmp_path), policy=ADAPTIVE)
    task.wait_for_listener()
    task.send()
    task.settle(FAST)
    node.trigger_deactivate()
    assert [task.send(), task.send()] == [FAST] * 2
    assert ros.set(task.bench.node, variant=FULL).successful
    assert task.send() == FULL
    assert node.autostart()
    task.wait_for_listener()
    ros.wait(lambda: node._cohort._remote["detector"]._setter.service_is_ready())
    task.send()
    task.settle(FAST)
    assert task.send() == FAST


def test_who_changes_the_variant_by_hand_is_overruled_with_the_next_frame(ros, tmp_path):
    task = Task(ros)
    node = start(ros, write_tables(tmp_path), policy=ADAPTIVE)
    task.wait_for_listener()
    task.send()
    task.settle(FAST)
    assert ros.set(task.bench.node, variant=FULL).successful
    remote = node._cohort._remote["detector"]
    ros.wait(lambda: remote._running == FULL, "the parameter event")
    task.send()
    task.settle(FAST)
    # With a policy that leaves variants alone it is what its user wants.
    assert ros.set(node, policy="static").successful
    assert ros.set(task.bench.node, variant=FULL).successful
    assert [task.send(), task.send()] == [FULL] * 2
    assert task.variant == FULL


def test_a_variant_that_a_task_does_not_have_is_said(ros, tmp_path):
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    task = Task(ros, variants=[FULL])
    node = start(ros, write_tables(tmp_path), policy=ADAPTIVE)
    task.wait_for_listener()
    for _ in range(3):
        assert task.send() == FULL
    ros.wait(lambda: node.coordinator.cohort.members[0].usable == (True, False))
    found = wait_for_value(inbox, "/coordinator: policy_status", "task.detector", "refused")
    assert FAST in found["task.detector"]
    assert found["detector.unusable"] == FAST


def test_a_miss_is_heard(ros, tmp_path):
    task = Task(ros, variant=FULL)
    node = start(ros, write_tables(tmp_path))
    task.wait_for_listener()
    task.send()
    ros.wait(lambda: node.coordinator.cohort.members[0].frames_done == 1)
    assert ros.set(task.bench.node, deadline_ms=0.5).successful
    ros.wait(lambda: (member := member_of(node)) and member.table.deadline_ns == 500_000)
    task.wait_for_listener()
    # How many there were before is not known, so the first message says nothing yet.
    task.send()
    task.send()
    ros.wait(lambda: node.coordinator.cohort.members[0].misses_in_a_row >= 1)


def test_tasks_without_a_table_are_named(ros, tmp_path):
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    tables = write_tables(tmp_path, make_table("other"))
    node = start(ros, tables, policy=ADAPTIVE)
    found = diagnostics_of(inbox, "/coordinator: policy_status", level=b"\1")
    assert "no file of the parameter `tables`" in found["not_coordinated.detector"]
    assert node.coordinator is None


def test_a_policy_that_holds_frames_back_cannot_do_so_from_another_process(ros, tmp_path):
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    task = Task(ros)
    start(ros, write_tables(tmp_path), policy="clockwork")
    found = diagnostics_of(inbox, "/coordinator: policy_status", level=b"\1")
    assert found["policy"] == "clockwork"
    assert task.send() == FULL


@pytest.fixture
def processes():
    started: list[Process] = []
    yield started
    for process in started:
        process.close()


def test_a_process_that_is_killed_leaves_the_task_as_it_was_and_its_successor_goes_on(
    ros, tmp_path, processes
):
    task = Task(ros)
    arguments = [
        *("-p", "tasks:=[detector]", "-p", f"tables:=[{write_tables(tmp_path)}]"),
        *("-p", f"policy:={ADAPTIVE}", "-p", "autostart:=true"),
    ]

    def run():
        processes.append(Process("coordinator", *arguments))
        task.wait_for_listener()
        ros.wait(lambda: ros.probe.count_clients("detector/set_parameters"))
        return processes[-1]

    lag = ros.listen(Float64, "coordinator/debug/detector/lag_ms")

    def drive():
        """Start a process that drives the task."""
        for _ in range(TRIES):
            process = run()
            # Discovery of the service takes its time; a frame without it is not lost.
            if any(task.send() and task.variant == FAST for _ in range(FRAMES)):
                return process
            assert process.end(signal.SIGTERM) == 0, process.said
        raise AssertionError(f"{TRIES} processes did not drive the task, the last: {process.said}")

    process = drive()
    lag.wait_count(1)
    assert process.end(signal.SIGKILL) == -signal.SIGKILL
    assert [task.send() for _ in range(3)] == [FAST] * 3
    assert ros.set(task.bench.node, variant=FULL).successful
    process = drive()
    assert process.end(signal.SIGTERM) == 0, process.said
    assert "Traceback" not in process.said, process.said
    assert task.send() == FAST
