# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The harness: options, tables, rounds, processes; and every benchmark's interface."""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import benches
import numpy as np
import psutil
import pytest

from benchmarks.harness import main as harness
from benchmarks.harness import processes
from benchmarks.harness.options import Options
from benchmarks.harness.processes import BenchmarkError, Child, Neighbours, busy_phases
from benchmarks.harness.queue import FifoQueue
from benchmarks.harness.tables import UNDECIDED, Table, say_bars, tabulate, to_markdown, to_text
from benchmarks.harness.timing import (
    alternate,
    find_overhead_bounds,
    measure_rounds,
    order,
    quantile_ms,
    rotate,
    take_turns,
)

MS = 1_000_000
TIMEOUT_S = 120.0


@pytest.mark.parametrize("name", harness.BENCHMARKS)
def test_every_benchmark_has_the_interface(name):
    module = harness.load(name)
    assert module.__doc__
    assert callable(module.run)
    assert callable(module.report)
    assert benches.parse(name, "--json").output is None


def test_a_result_says_what_code_it_is_of(monkeypatch, tmp_path):
    made = SimpleNamespace(
        __doc__="Made.",
        add_arguments=lambda add: None,
        run=lambda args: {"passed": UNDECIDED},
        report=lambda result: [say_bars("none", result["passed"])],
    )
    monkeypatch.setattr(harness, "load", lambda name: made)
    file = tmp_path / "engine.json"
    code, result = benches.run("engine", "--output", str(file))
    assert code == 0  # not decided is not missed
    assert json.loads(file.read_text()) == result
    assert set(result["code"]["rooms"]) == {"jetson_dnn_rt/scheduling", "jetson_dnn_rt/tasks.py"}
    assert result["code"]["commit"] or result["code"]["reason"]
    made.run = lambda args: {"passed": False}
    assert benches.run("engine")[0] == 1


def test_benchmarks_are_listed(capsys):
    assert harness.main([]) == 0
    out = capsys.readouterr().out
    assert all(name.replace("_", "-") in out for name in harness.BENCHMARKS)
    assert harness.main(["no_such"]) == 2
    assert "there is no benchmark 'no_such'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("accuracy --size 640", "WIDTHxHEIGHT"),
        ("accuracy --size 32x32", "at least 64x64"),
        ("backends --threads -1", "--threads: must be >= 1"),
        ("batching --loads 0", "--loads: must be > 0"),
        ("coordinate --period-factor nan", "--period-factor: must be > 0"),
        ("coordinate --confidence 0", "confidence"),
        ("coordinate --variants full@torch", "at least two: full@torch-fp32"),
        ("dashcam --data /none", "give the folder with --data"),
        ("decide --policies static,best", "policy must be one of"),
        ("evt --laws nonsense", "slow mode apart"),
        ("evt --exceedances 0", "--exceedances: must be > 0"),
        ("loadgen --qps 300", "--margin-ms leaves nothing of a period"),
        ("loadgen --workloads nobody", "invalid choice"),
        ("multi-dnn --device cpu --models vgg16 --mix 1,2", "--mix needs 1 numbers"),
        ("multi-dnn --device cpu --models no_such", "has no classifier 'no_such'"),
        ("paper003 --minutes nan", "--minutes: must be >= 0"),
        ("paper003 --tune-only", "need --databases"),
        ("policies --processes 3", "--processes: must be >= 1 and <= 2"),
        ("policies --policies nobody", "--policies must be of"),
        ("scale --tasks 4 2", "--tasks must rise"),
        ("switching --variants full@torch-fp32", "must be two names"),
        ("switching --variants full@torch,full@torch-fp32", "must be two names"),
        ("switching --variants full@torch-fp32,full@onnxruntime-bf16", "full@onnxruntime-bf16"),
        ("switching --variants full@torch-fp32,svd-1.00@torch-fp32", "is not loaded"),
        ("threads --cores 2 --models null:1", "leave one split only: 1 x 2"),
        (
            "threads --cores 2 --variant tucker-0.50@null --models null:1 null:1",
            "tucker-0.50@null",
        ),
        ("tucker --seconds inf", "--seconds: must be > 0"),
        ("zero-copy --sizes 0x480", "must be WIDTHxHEIGHT"),
    ],
)
def test_bad_options_are_refused(command, text, capsys, tmp_path):
    cache = ["--engine-cache", str(tmp_path)] if command.startswith("coordinate") else []
    try:
        code = harness.main([*command.split(), *cache])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2
    assert text in capsys.readouterr().err


# -- options and tables --------------------------------------------------------------------------


def test_options_take_kind_range_and_help_from_the_default():
    parser = argparse.ArgumentParser()
    add = Options(parser)
    add("--count", 3, "things", least=1)
    add("--loads", [0.5, 2.0], above=0)
    add("--folder", Path("x"))
    add("--names", ["a"], choices=("a", "b"))
    add("--quick", False, "little")
    args = parser.parse_args(["--loads", "1", "--names", "b", "a"])
    assert vars(args) == {
        "count": 3, "loads": [1.0], "folder": Path("x"), "names": ["b", "a"], "quick": False,
    }  # fmt: skip
    text = " ".join(parser.format_help().split())
    assert "things (default 3)" in text
    assert "(default 0.5 2)" in text
    assert "of a, b" in text


def test_a_report_is_text_or_markdown():
    rows = [{"a": {"b": 0.125}, "n": 3}, {"a": {}, "n": None}]
    table = tabulate(rows, "share=a.b:.1%, n", ("twice", lambda row: row.get("x")))
    assert table == Table(["share", "n", "twice"], [["12.5%", 3, None], [None, None, None]])
    report = ["one\n  two", table]
    assert to_text(report).splitlines()[-1].split() == ["-", "-", "-"]
    assert to_markdown(report).splitlines() == [
        "one  ", "two", "", "| share | n | twice |", "| --- | --- | --- |",
        "| 12.5% | 3 | - |", "| - | - | - |",
    ]  # fmt: skip


# -- rounds --------------------------------------------------------------------------------------


def test_runs_take_turns_and_each_round_begins_with_another():
    calls = []
    times = measure_rounds(
        {name: lambda name=name: calls.append(name) for name in "abc"},
        budget_s=0.0, least=4, most=9, warm_up=1,
    )  # fmt: skip
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab" + "abc"
    assert {len(taken) for taken in times.values()} == {4}
    assert all((taken >= 0).all() for taken in times.values())
    assert len(measure_rounds({"a": lambda: None}, budget_s=1e9, least=1, most=7)["a"]) == 7
    assert quantile_ms(times["a"], 0.99) == times["a"].max() * 1e-6  # a time that was measured
    assert rotate("abc", 4) == ["b", "c", "a"]
    assert [alternate("ab", number) for number in (0, 1)] == [["a", "b"], ["b", "a"]]


@pytest.mark.parametrize("sides", ["ab", "abc", "abcd"])
def test_every_side_is_equally_often_first_last_and_before_each_other_one(sides):
    rounds = [order(sides, number) for number in range(2 * len(sides))]
    for place in range(len(sides)):
        assert {[of[place] for of in rounds].count(side) for side in sides} == {2}
    before = [(of.index("a") < of.index("b")) for of in rounds]
    assert before.count(True) == len(sides)
    taken = list(take_turns(sides, 3, "sides"))
    assert taken == [side for number in range(3) for side in order(sides, number)]


@pytest.mark.parametrize(
    ("rounds", "first", "last"),
    [
        (5, 1, 5),
        (6, 1, 6),  # 2/64 = 3.1 % lie outside
        (9, 2, 8),  # 20/512 = 3.9 %
        (12, 3, 10),  # 158/4096 = 3.9 %
        (100, 40, 61),  # as in tables
    ],
)
def test_bounds_of_a_median_are_order_statistics(rounds, first, last):
    order = np.random.default_rng(0).permutation(rounds) + 1
    plain = np.full(rounds, 100)
    assert find_overhead_bounds(plain, plain + order) == [first, last]


# -- processes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("exit(3)", "did not become ready"),
        (
            "import signal, sys; signal.signal(signal.SIGTERM, lambda *a: sys.exit(5));"
            "print('ready', flush=True); signal.pause()",
            "exit code 5",
        ),
    ],
)
def test_a_child_that_fails_is_an_error(code, text):
    with pytest.raises(BenchmarkError, match=text), Child([sys.executable, "-c", code]):
        pass


def test_a_child_that_is_not_ready_in_time_shows_its_stacks(monkeypatch, capfd):
    monkeypatch.setattr(processes, "START_LIMIT_S", 2.0)
    code = "def sleep_on():\n import time; time.sleep(600)\nsleep_on()"
    child = Child([sys.executable, "-c", code])
    with pytest.raises(BenchmarkError, match="was not ready after 2 s"), child:
        pass
    assert child.ended
    assert "in sleep_on" in capfd.readouterr().err


def test_a_child_may_end_by_itself():
    with Child([sys.executable, "-c", "print('ready')"]) as child:
        child.wait()
        assert child.ended


def test_a_child_is_ended_even_when_the_benchmark_fails():
    code = "import signal; print('ready', flush=True); signal.pause()"
    child = Child([sys.executable, "-c", code])
    with pytest.raises(KeyError), child:
        raise KeyError
    assert child.ended


def wait(condition):
    end_s = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < end_s
        time.sleep(0.005)
    return found


def is_alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_load_comes_and_goes_and_nothing_is_left():
    def children():
        return set(psutil.Process().children())

    before = children()
    with busy_phases(2, [(0.0, False), (1.0, True)]):
        wait(lambda: len(children() - before) == 2)
    assert children() == before

    def fail():
        wait(lambda: children() - before)
        raise KeyError

    with pytest.raises(KeyError), busy_phases(1, [(TIMEOUT_S, True)]):
        fail()
    assert children() == before


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc")
def test_a_load_ends_with_the_benchmark_however_that_ends():
    code = (
        "import time\n"
        "from benchmarks.harness.processes import busy_cores\n"
        "with busy_cores(1) as pids:\n"
        "    print(pids[0], flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert is_alive(pid)
    process.kill()
    process.wait(TIMEOUT_S)
    process.stdout.close()
    wait(lambda: not is_alive(pid))


def test_a_queue_runs_steps_in_the_order_in_which_they_were_ready():
    order, ended = [], []
    gate, finished = threading.Event(), threading.Event()

    def end(job, error):
        ended.append((job, error))
        if len(ended) == 4:
            finished.set()

    fifo = FifoQueue(depth=1)
    fifo.submit("gate", [gate.wait], lambda error: None)
    for job in ("a0", "b1", "a2", "a3", "b4"):
        steps = [partial(order.append, f"{job}-{step}") for step in range(2)]
        fifo.submit(job[0], steps, partial(end, job))
    gate.set()
    assert finished.wait(10.0)
    fifo.stop()
    # a2 was dropped for a3: one waits, the newest.
    assert order == ["a0-0", "b1-0", "a0-1", "b1-1", "a3-0", "b4-0", "a3-1", "b4-1"]
    assert ended == [(job, None) for job in ("a0", "b1", "a3", "b4")]


def test_a_job_that_fails_in_a_queue_runs_no_further_step():
    def fail():
        raise ValueError("no frame of mine")

    ended = queue.SimpleQueue()
    fifo = FifoQueue()
    fifo.submit("a", [fail, fail], ended.put)
    assert str(ended.get(timeout=10.0)) == "no frame of mine"
    fifo.submit("a", [lambda: None], ended.put)
    assert ended.get(timeout=10.0) is None
    fifo.stop()
    assert ended.empty()


def test_what_other_programs_take_is_told_apart(monkeypatch):
    times = psutil.cpu_times()
    zero = type(times)(*[0.0] * len(times))
    # 10 s, two cores: 12 s busy, of which 3 s were ours and 2 s those of our children.
    later = zero._replace(user=6.0, nice=1.0, system=4.0, steal=1.0, idle=8.0, guest=2.0)
    machine, own = iter([zero, later]), iter([(0.0,) * 5, (2.0, 1.0, 1.5, 0.5, 10.0)])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(machine))
    monkeypatch.setattr(os, "times", lambda: os.times_result(next(own)))
    assert Neighbours().find_cores() == pytest.approx(0.7)
