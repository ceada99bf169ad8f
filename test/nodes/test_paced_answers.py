# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Services that only tell something: nobody takes the frames' time by asking again and again."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from rcl_interfaces.srv import DescribeParameters

from jetson_dnn_rt.nodes.process import paced_answers
from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode
from jetson_dnn_rt.nodes.process.paced_answers import BURST, MOST_WAITING, RATE_HZ, PacedAnswers
from jetson_dnn_rt.safety.faults import FAULTS

TIMEOUT_S = 60


class Service:
    """A service as an executor serves it; who answered, when, on which thread."""

    def __init__(self, clock):
        self.sent = []
        self.all_sent = threading.Event()
        self.callback = lambda request, response: f"answer of {request}"
        self.wanted = 0

        def send(response, header):
            self.sent.append((header, response, clock.now_s, threading.current_thread().name))
            if len(self.sent) == self.wanted:
                self.all_sent.set()

        self.send_response = send

    def serve(self, number):
        self.send_response(self.callback(number, "empty"), number)


class Clock:
    """Time goes on where somebody waits for it; stands while `held`."""

    def __init__(self):
        self.now_s, self.going = 0.0, threading.Event()
        self.going.set()

    def wait(self, closed, seconds):
        self.going.wait(TIMEOUT_S)
        self.now_s += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def paced(clock):
    paced = PacedAnswers("node", lambda: clock.now_s, clock.wait)
    yield paced
    paced.close()
    clock.going.set()


def test_some_requests_are_answered_at_once_on_the_ros_thread(paced, clock):
    service = Service(clock)
    paced.pace(service)
    for number in range(BURST):
        service.serve(number)
    own = threading.current_thread().name
    assert service.sent == [(n, f"answer of {n}", 0.0, own) for n in range(BURST)]


def test_more_are_answered_in_their_order_at_a_bounded_rate_on_another_thread(paced, clock):
    """Before, four clients of `describe_parameters` cost a quarter of the frames."""
    service, count = Service(clock), BURST + 50
    service.wanted = count
    paced.pace(service)
    for number in range(count):
        service.serve(number)
    assert service.all_sent.wait(TIMEOUT_S)
    assert [(header, text) for header, text, _, _ in service.sent] == [
        (n, f"answer of {n}") for n in range(count)
    ]
    late = service.sent[BURST:]
    assert {thread for *_, thread in late} == {"answers of node"}
    assert [at_s for _, _, at_s, _ in late] == pytest.approx([k / RATE_HZ for k in range(1, 51)])


def test_services_of_a_node_share_the_rate_and_it_recovers(paced, clock):
    first, second = Service(clock), Service(clock)
    for service in (first, second):
        paced.pace(service)
    for number in range(BURST):
        first.serve(number)
    second.wanted = 1
    second.serve(0)
    assert second.all_sent.wait(TIMEOUT_S)
    assert second.sent[0][2] == pytest.approx(1 / RATE_HZ)
    while paced._is_running:
        threading.Event().wait(0.001)
    clock.now_s += 10.0
    first.sent.clear()
    for number in range(BURST):
        first.serve(number)
    assert {thread for *_, thread in first.sent} == {threading.current_thread().name}


def test_so_many_wait_and_no_more(paced, clock):
    service = Service(clock)
    service.wanted = BURST + MOST_WAITING
    paced.pace(service)
    clock.going.clear()
    for number in range(BURST + MOST_WAITING + 7):
        service.serve(number)
    assert any("requests wait" in fault.text for fault in FAULTS.snapshot())
    clock.going.set()
    assert service.all_sent.wait(TIMEOUT_S)


def test_what_waits_when_the_node_is_destroyed_gets_no_answer(paced, clock):
    service = Service(clock)
    paced.pace(service)
    clock.going.clear()
    for number in range(BURST + 5):
        service.serve(number)
    paced.close()
    clock.going.set()
    while paced._is_running:
        threading.Event().wait(0.001)
    assert len(service.sent) <= BURST + 1


def test_every_request_of_a_storm_gets_its_answer_of_a_real_node(ros, monkeypatch):
    monkeypatch.setattr(paced_answers, "RATE_HZ", 1000)
    ros.make(ManagedNode, "asked")
    client = ros.call(
        lambda: ros.probe.create_client(DescribeParameters, "asked/describe_parameters")
    )
    assert client.wait_for_service(TIMEOUT_S)
    names = ["lock_configuration", "use_sim_time"]
    done = threading.Semaphore(0)
    futures = []
    for k in range(2 * BURST):
        request = DescribeParameters.Request(names=[names[k % 2]])
        futures.append(ros.call(lambda request=request: client.call_async(request)))
        futures[-1].add_done_callback(lambda _: done.release())
        # A service keeps ten requests that have not been taken.
        assert k < 5 or done.acquire(timeout=TIMEOUT_S)
    for _ in range(5):
        assert done.acquire(timeout=TIMEOUT_S)
    assert [f.result().descriptors[0].name for f in futures] == names * BURST
