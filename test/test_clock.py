# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

import threading

import pytest

from jetson_dnn_rt.clock import SteadyClock, VirtualClock


def spawn(clock, target):
    def run():
        try:
            target()
        finally:
            clock.leave()

    clock.participate()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_steady_clock_sleeps_until():
    clock = SteadyClock()
    until_ns = clock.now_ns() + 2_000_000
    clock.sleep_until_ns(until_ns)
    assert clock.now_ns() >= until_ns


def test_steady_condition_times_out_and_is_notified():
    clock = SteadyClock()
    condition = clock.condition()
    with condition:
        condition.wait_until(clock.now_ns() - 1)
    seen = threading.Event()

    def wait():
        with condition:
            ready.set()
            condition.wait_until(None)
            seen.set()

    ready = threading.Event()
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    ready.wait(5)
    with condition:
        condition.notify_all()
    assert seen.wait(5)


def test_virtual_sleepers_wake_in_the_order_of_their_times():
    clock = VirtualClock()
    woken = []

    def sleeper(time_ns):
        clock.sleep_until_ns(time_ns)
        woken.append((time_ns, clock.now_ns()))

    threads = [spawn(clock, lambda t=t: sleeper(t)) for t in (30, 10, 20)]
    clock.run_until(25)
    assert woken == [(10, 10), (20, 20)]
    assert clock.now_ns() == 25
    clock.run_until(100)
    for thread in threads:
        thread.join(5)
    assert woken[-1] == (30, 30)


def test_virtual_time_stands_still_while_a_notified_thread_runs():
    clock = VirtualClock()
    condition = clock.condition()
    log = []

    def waiter():
        with condition:
            condition.wait_until(None)
            log.append(("notified", clock.now_ns()))
        clock.sleep_until_ns(clock.now_ns() + 5)
        log.append(("slept", clock.now_ns()))

    def notifier():
        clock.sleep_until_ns(10)
        with condition:
            condition.notify_all()

    spawn(clock, waiter)
    spawn(clock, notifier)
    clock.run_until(1000)
    assert log == [("notified", 10), ("slept", 15)]


def test_virtual_condition_times_out():
    clock = VirtualClock(100)
    condition = clock.condition()
    log = []

    def waiter():
        with condition:
            condition.wait_until(107)
            log.append(clock.now_ns())
            condition.wait_until(50)
            log.append(clock.now_ns())

    spawn(clock, waiter)
    clock.run_until(200)
    assert log == [107, 107]


def test_a_participant_that_never_waits_is_reported():
    clock = VirtualClock()
    clock.participate()
    with pytest.raises(TimeoutError, match="1 participants still run"):
        clock.run_until(1, timeout_s=0.01)
