# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The thread that writes clocks and reads power, on trees of kernel files."""

from __future__ import annotations

import math
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from cohort_tables import make_clocks, write_clock_tables
from sysfs_trees import TREES, FakeKernel, read_all, write_tree
from thread_kills import kill_thread

from jetson_dnn_rt.coordinator.clock_thread import (
    WAKE_NS,
    ClockThread,
    ClockWatch,
    nearest_position,
)
from jetson_dnn_rt.coordinator.tables.tables import ClockTable
from jetson_dnn_rt.platforms.clocks import ClockSpace
from jetson_dnn_rt.platforms.detect import detect
from jetson_dnn_rt.platforms.platform import UnknownPlatform
from jetson_dnn_rt.safety.faults import FAULTS

TIMEOUT_S = 120.0


def wait(condition, what):
    """Wait for another thread that sends no event."""
    end_s = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < end_s, f"{what} did not come in {TIMEOUT_S} s"
        time.sleep(0.002)
    return found


@pytest.fixture
def board(tmp_path):
    """The files of a TX2."""
    write_tree(tmp_path / "tx2", TREES["tx2"])
    return FakeKernel(tmp_path / "tx2")


def read_settings(kernel):
    """What is set; where a clock goes within its limits is the governor's business."""
    files = read_all(kernel.root).items()
    return {path: text for path, text in files if not path.endswith("cur_freq")}


def run_gpu_at(board, hz):
    """As others, or the heat, make it."""
    (running,) = board.root.glob("sys/class/devfreq/*gp10b/cur_freq")
    running.write_text(f"{hz}\n")


@pytest.fixture
def platform(board):
    opened = detect(board.root, allow_writes=True, files=board)
    assert opened.writable, opened.reason
    return opened


def test_what_is_asked_for_is_written_and_comes_back_at_the_end(board, platform):
    before = read_settings(board)
    clocks = make_clocks(platform.space)
    thread = ClockThread(platform, clocks)
    assert thread.position == clocks.fastest
    thread.start()
    effective_ns = thread.request(0, 1_000)
    assert effective_ns == 1_000 + WAKE_NS + clocks.delay_ns(clocks.fastest, 0)
    wait(lambda: thread.position == 0, "the slowest clocks")
    assert platform.read() == platform.space[0]
    thread.request(1, 2_000)
    wait(lambda: thread.position == 1, "the middle clocks")
    assert (thread.writes, thread.fault) == (2, "")
    assert thread.stop(TIMEOUT_S)
    assert read_settings(board).items() >= before.items()


def test_the_logs_tell_what_was_set_and_what_the_board_made_of_it(board, platform):
    clocks = make_clocks(platform.space)
    thread = ClockThread(platform, clocks)
    fastest, slowest = clocks.describe(clocks.fastest), clocks.describe(0)
    assert thread.settings.last == fastest
    begin_ns = time.monotonic_ns()
    thread.start()
    thread.request(0, begin_ns)
    wait(lambda: thread.log.last == slowest, "the slowest clocks")
    delay_ns = clocks.delay_ns(clocks.fastest, 0)
    assert thread.settings.at(begin_ns + delay_ns - 1) == fastest
    wait(lambda: thread.settings.at(time.monotonic_ns()) == slowest, "the delay's end")
    # The board throttles: what was set stays, what held does not.
    thread.request(clocks.fastest, time.monotonic_ns())
    wait(lambda: thread.position == clocks.fastest, "the fastest clocks")
    run_gpu_at(board, 114750000)
    wait(lambda: thread.log.last not in (fastest, slowest), "the throttled clocks")
    assert thread.settings.last == fastest
    assert thread.stop(TIMEOUT_S)


def test_a_kernel_that_refuses_is_said_and_the_position_is_the_true_one(board, platform):
    thread = ClockThread(platform, make_clocks(platform.space))
    board.refuse = "devfreq"
    thread.start()
    thread.request(0, 0)
    wait(lambda: thread.fault, "the fault")
    assert "clocks cannot be changed" in thread.fault
    assert thread.position != 0
    # Only what is asked for anew is tried again.
    board.refuse = ""
    thread.request(1, 0)
    wait(lambda: thread.position == 1, "the middle clocks")
    assert thread.fault == ""
    assert thread.stop(TIMEOUT_S)


def test_a_thread_that_is_killed_serves_requests_again(board, platform):
    """EDGES 0: a clock thread that died left its requests unserved, and said nothing."""
    before = read_settings(board)
    thread = ClockThread(platform, make_clocks(platform.space))
    thread.start()
    kill_thread("clocks")
    wait(FAULTS.snapshot, "the fault")
    assert [one.kind for one in FAULTS.snapshot()] == ["thread clocks: KilledError"]
    thread.request(0, 0)
    wait(lambda: thread.position == 0, "the slowest clocks")
    assert thread.stop(TIMEOUT_S)
    assert read_settings(board).items() >= before.items()
    assert not FAULTS.dead_threads


@pytest.mark.parametrize("thread_name", ["clocks", "clock-watch"])
def test_a_platform_with_a_fault_does_not_end_its_thread(
    board, platform, monkeypatch, thread_name
):
    """EDGES 0: an exception that a platform does not declare ended the thread for good."""
    read, faults = platform.read, iter([ValueError("garbage in a file of the kernel")])
    made = threading.Event()

    def fail_first():
        if made.is_set() and (error := next(faults, None)) is not None:
            raise error
        return read()

    monkeypatch.setattr(platform, "read", fail_first)
    watched = thread_name == "clock-watch"
    thread = (
        ClockWatch(platform) if watched else ClockThread(platform, make_clocks(platform.space))
    )
    if isinstance(thread, ClockThread):
        thread.start()
    made.set()
    wait(FAULTS.snapshot, "the fault")
    assert [one.kind for one in FAULTS.snapshot()] == [f"thread {thread_name}: ValueError"]
    before = thread.log.last
    run_gpu_at(board, 1300500000)
    wait(lambda: thread.log.last != before, "the new clocks")
    assert thread.stop(TIMEOUT_S)


def test_clocks_that_could_not_be_restored_are_restored_at_the_next_try(
    board, platform, monkeypatch
):
    """Campaign of faults: they stayed as they were set for as long as the process lived."""
    before = read_settings(board)
    thread = ClockThread(platform, make_clocks(platform.space))
    thread.start()
    thread.request(0, 0)
    wait(lambda: thread.position == 0, "the slowest clocks")
    close, failures = platform.close, [RuntimeError("once")]

    def fail_first():
        if failures:
            raise failures.pop()
        close()

    monkeypatch.setattr(platform, "close", fail_first)
    assert thread.stop(TIMEOUT_S)
    assert read_settings(board).items() >= before.items()


def test_a_watch_notes_clocks_that_others_change(board):
    platform = detect(board.root, files=board)
    before = platform.space.describe(platform.space.nearest(platform.read()))
    watch = ClockWatch(platform)
    assert watch.log.last == before
    run_gpu_at(board, 1300500000)
    wait(lambda: watch.log.last != before, "the new clocks")
    assert "gpu 1300.5 MHz" in watch.log.last
    assert watch.stop(TIMEOUT_S)


def test_power_is_measured_and_summed_up(platform):
    expected_w = platform.power().total_w
    assert expected_w is not None
    thread = ClockThread(platform, make_clocks(platform.space))
    assert math.isnan(thread.power.power_w)
    begin_ns = time.monotonic_ns()
    thread.start()
    wait(lambda: thread.power.energy_j > 0.0, "energy")
    report = thread.power
    longest_s = (time.monotonic_ns() - begin_ns) / 1e9
    assert thread.stop(TIMEOUT_S)
    assert report.power_w == pytest.approx(expected_w)
    assert report.rails_w
    assert 0.0 < report.energy_j <= expected_w * longest_s


def test_a_machine_that_shows_nothing_has_no_power():
    space = ClockSpace([])
    thread = ClockThread(UnknownPlatform(), ClockTable(space, np.array([0]), np.zeros(1), 0, 0))
    thread.start()
    assert thread.stop(TIMEOUT_S)
    assert math.isnan(thread.power.power_w)
    assert math.isnan(thread.power.energy_j)


def test_the_nearest_of_a_few_positions_is_found(platform):
    clocks = make_clocks(platform.space)
    platform.apply(len(platform.space) // 2)
    assert nearest_position(clocks, platform) == 1
    platform.apply(1)
    assert nearest_position(clocks, platform) == 0
    platform.close()


@pytest.fixture
def kernel(board, monkeypatch):
    """The board in the place of this machine."""
    from jetson_dnn_rt.coordinator import basis

    monkeypatch.setattr(
        basis, "detect", lambda **options: detect(board.root, files=board, **options)
    )
    return board


def start(ros, kernel, folder, trace_dir="", **values):
    from jetson_dnn_rt.nodes.perception import PerceptionNode

    space = detect(kernel.root, switch_cores=False, files=kernel).space
    node = ros.make(
        PerceptionNode,
        overrides={
            "perception": {"tasks": ["detector"], "trace_dir": trace_dir},
            "camera": {"source": "synthetic:64x64", "rate": 50.0},
            "detector": {"model": "null:1", "warmup_runs": 4, "deadline_ms": 1000.0},
            "coordinator": {"tables": [write_clock_tables(folder, make_clocks(space))], **values},
        },
    )
    assert node.autostart(), node.fault
    return node


def test_the_node_changes_clocks_and_gives_them_back_when_it_ends(ros, kernel, tmp_path):
    from diagnostic_msgs.msg import DiagnosticArray
    from std_msgs.msg import Float64
    from task_bench import diagnostics_of

    before = read_settings(kernel)
    power_w = ros.listen(Float64, "coordinator/debug/power_w")
    energy_j = ros.listen(Float64, "coordinator/debug/energy_per_met_frame_j")
    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
    node = start(ros, kernel, tmp_path, policy="max_q", allow_clock_writes=True)
    clocks = node.coordinator.clocks
    ros.wait(lambda: clocks.position == 0, "the slowest clocks")
    assert read_settings(kernel) != before
    assert power_w.wait_count(1)[0].data > 0.0
    assert energy_j.wait_count(1)[0].data > 0.0
    found = diagnostics_of(diagnostics, "/coordinator: policy_status", level=b"\0")
    assert found["clocks_writable"] == "True"
    assert ros.set(node.coordinator, policy="max_n").successful
    ros.wait(lambda: clocks.position == 2, "the fastest clocks")
    assert ros.set(node.coordinator, policy="max_q").successful
    ros.wait(lambda: clocks.position == 0, "the slowest clocks")
    # What a signal does.
    node.trigger_shutdown()
    assert read_settings(kernel).items() >= before.items()


def test_traces_hold_the_clocks_at_which_stages_ran(ros, kernel, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: traces need it")
    from jetson_dnn_rt.traces.reader import open_trace

    folder = tmp_path / "traces"
    node = start(ros, kernel, tmp_path, str(folder), policy="max_q", allow_clock_writes=True)
    clocks, timing = node.coordinator.clocks, node.tasks["detector"].timing
    words = [clocks._clock_table.describe(position) for position in (0, 2)]
    for policy, position in (("max_q", 0), ("max_n", 2)):
        assert ros.set(node.coordinator, policy=policy).successful
        ros.wait(lambda at=position: clocks.position == at, f"position {position}")
        # Of those that ran: a skipped one has no clocks. The first may have begun before.
        count = timing.snapshot().whole.count
        ros.wait(lambda n=count: timing.snapshot().whole.count >= n + 6, "six more frames")
    # Its log is asked for the last jobs when the owner of the clocks has gone.
    node.trigger_shutdown()
    (trace,) = map(open_trace, folder.iterdir())
    found = [job.clocks[0] for job in trace.jobs() if job.clocks]
    changes = [found[0]] + [b for a, b in pairwise(found) if a != b]
    # At most the beginning is at other clocks than the two asked for.
    assert changes[-2:] == words
    assert found[-5:] == [words[1]] * 5
    # What was learned is told apart by the clocks that were set.
    drift = timing.snapshot().drift
    assert {state.clocks for state in drift.states} >= set(words)


def test_clocks_are_left_alone_unless_allowed(ros, kernel, tmp_path):
    node = start(ros, kernel, tmp_path, policy="max_q")
    coordinator = node.coordinator.coordinator
    ros.wait(lambda: coordinator.decisions > 4)
    assert len(coordinator.cohort.clock_table) == 1
    assert kernel.writes == []


def test_clocks_that_cannot_be_set_are_said(ros, kernel, tmp_path):
    from diagnostic_msgs.msg import DiagnosticArray
    from task_bench import diagnostics_of

    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
    node = start(ros, kernel, tmp_path, policy="static", allow_clock_writes=True)
    coordinator, clocks = node.coordinator.coordinator, node.coordinator.clocks
    kernel.refuse = "devfreq"
    assert ros.set(node.coordinator, policy="max_q").successful
    found = diagnostics_of(diagnostics, "/coordinator: policy_status", level=b"\1")
    assert "clocks cannot be changed" in found[""]
    # Frames are planned for the clocks that there are.
    ros.wait(lambda: coordinator.cohort.clocks == clocks.position)
    kernel.refuse = ""
