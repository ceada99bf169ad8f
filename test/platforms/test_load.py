# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What other programs have of the cores, from texts of the kernel: nothing here makes a load."""

from __future__ import annotations

import pytest

from jetson_dnn_rt.platforms.load import (
    CpuReading,
    Load,
    LoadWatch,
    compare,
    parse_busy_ns,
    parse_pressure,
    parse_waited_ns,
    read_cpu,
)

S = 1_000_000_000

STAT = """\
cpu  900 10 300 5000 40 5 15 30 7 0
cpu0 400 10 100 2500 20 5 5 10 7 0
cpu1 300 0 100 2400 10 0 5 10 0 0
cpu2 200 0 100 100 10 0 5 10 0 0
intr 123 4 5
ctxt 99
"""


def reading(at_s, busy_s=0.0, own_s=0.0, waited=None, cores=2):
    busy_ns = None if busy_s is None else int(busy_s * S)
    return CpuReading(int(at_s * S), cores, busy_ns, int(own_s * S), waited)


def test_the_work_of_the_cores_that_the_process_may_use_is_counted():
    # user, nice, system, irq, softirq, steal; not idle, iowait, nor guest, which is in user.
    assert parse_busy_ns(STAT, {0}) == (400 + 10 + 100 + 5 + 5 + 10) * S // 100
    assert parse_busy_ns(STAT, {0, 1}) == (530 + 415) * S // 100
    assert parse_busy_ns(STAT, {0}, ticks_per_s=1000) == 530 * S // 1000
    assert parse_busy_ns(STAT, {7}) is None  # a core that is off
    assert parse_busy_ns("", {0}) is None


def test_other_files_of_the_kernel():
    assert parse_waited_ns("123456 789 42\n") == 789
    text = "some avg10=49.57 avg60=34.95 avg300=47.26 total=1\nfull avg10=0.00 avg60=0.00\n"
    assert parse_pressure(text) == 49.57
    assert parse_pressure("") is None


def test_other_programs_that_have_the_cores_are_told_in_a_sentence():
    """D5: with 4 busy processes beside it nothing but `report` said so."""
    before = reading(10, busy_s=3.0, own_s=1.0, waited={1: 0, 2: 5 * S})
    after = reading(15, busy_s=12.9, own_s=1.5, waited={1: 2 * S, 2: 7 * S, 3: S // 2})
    load = compare(before, after)
    assert load == Load(5.0, 2, 0.1, pytest.approx(1.88), pytest.approx(0.9))
    assert load.is_crowded
    assert str(load) == (
        "other programs used 1.9 of 2 cores, this process 0.1, whose threads waited 0.9 s of each "
        "second for a core"
    )


@pytest.mark.parametrize(
    ("own", "others", "waiting", "crowded"),
    [
        (1.9, 0.1, 3.0, False),  # its own threads wait for each other
        (0.3, 1.0, 0.0, False),  # there is room
        (0.3, 1.0, 0.2, True),  # the scheduler let it wait all the same
        (0.8, 1.1, None, True),  # full, as far as the kernel tells
        (0.8, None, 0.5, False),  # unknown
    ],
)
def test_the_cores_are_crowded_where_others_hold_the_process_up(own, others, waiting, crowded):
    assert Load(5.0, 2, own, others, waiting).is_crowded is crowded


def test_what_the_kernel_does_not_tell_is_unknown():
    load = compare(reading(0, None), reading(2, None, 1.0))
    assert (load.own, load.others, load.waiting) == (0.5, None, None)
    assert str(load) == "this process used 0.5 of 2 cores"
    assert compare(reading(3), reading(3)) is None


def test_more_ticks_than_time_are_not_more_than_all_cores():
    load = compare(reading(0), reading(1, busy_s=2.02, own_s=0.0))
    assert load.others == 2.0
    assert compare(reading(0), reading(1, busy_s=0.99, own_s=1.0)).others == 0.0


def test_the_load_is_that_of_the_last_seconds(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic_ns", lambda: int(now[0] * S))
    readings = []

    def read():
        readings.append(now[0])
        # Others have everything for ten seconds, then nothing.
        return reading(now[0], busy_s=2.0 * min(now[0], 10.0))

    watch = LoadWatch(read)
    assert watch.look() is None
    now[0] = 0.5
    assert watch.look() is None  # read once a second at most
    for second in range(1, 11):
        now[0] = float(second)
        assert watch.look().others == 2.0
    for second in range(11, 16):
        now[0] = float(second)
        load = watch.look()
    assert load.others == 0.0
    assert load.seconds == 5.0
    assert readings == [0.0, *map(float, range(1, 16))]


def test_this_machine_can_be_read(tmp_path):
    first, second = read_cpu(), read_cpu()
    assert second.own_ns >= first.own_ns > 0
    assert first.cores >= 1
    # Without /proc nothing is known but the process' own time.
    blind = read_cpu(tmp_path)
    assert (blind.busy_ns, blind.waited_ns) == (None, None)
