# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Cells of overload: rounds put together and judged in pairs, and runs in parts."""

import argparse
import json
from pathlib import Path

import benches
import pytest

from benchmarks.harness import main as harness
from benchmarks.harness.intervals import LEAST_ROUNDS
from benchmarks.harness.parts import describe_parts, read_result, take_earlier
from benchmarks.harness.processes import BenchmarkError
from benchmarks.harness.tables import UNDECIDED
from benchmarks.overload import bench
from benchmarks.overload.bench import (
    ConsumerSpec,
    FrameRow,
    Played,
    Rounds,
    count_rounds,
    describe,
    rejudge,
    summarize,
)
from benchmarks.overload.cells import judge, judge_average, pool
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError

SETTINGS = {"models": {"detector": "a", "segmenter": "b"}, "threads": 2, "seconds_per_round": 6.0}


def side(met, age=10.0, *, frames=100, admitted=1.0, failures=()):
    """Figures of one side in one round."""
    found = describe(Rounds(), [], 1, 0)
    in_time = round(met * frames)
    return found | {
        "seconds": 6.0, "frames": frames, "started": frames, "admitted": frames,
        "published": frames, "in_time": in_time, "met_ratio": in_time / frames,
        "met_ratio_admitted": admitted,
        "age_ms": {"p50": age, "p99": None if age is None else 2 * age},
        "in_time_by_task": {"detector": in_time}, "outcomes": {"met": in_time},
        "failures": list(failures),
    }  # fmt: skip


def play(number, load=1.0, factor=1.5, cost=30.0, **sides):
    return {
        "load": load, "deadline_factor": factor, "round": number, "costs_ms": {"detector": cost},
        "rate_hz": 1e3 * load / cost, "deadline_ms": factor * cost, "sides": sides,
        "listener": {"detections": 7},
    }  # fmt: skip


def repeat(count=LEAST_ROUNDS, **sides):
    return [play(number, **sides) for number in range(count)]


@pytest.mark.parametrize(
    ("ours", "naive", "passed"),
    [
        (side(0.8, 9.0), side(0.7, 10.0), True),
        (side(0.7, 9.0), side(0.8, 10.0), False),  # fewer in time
        (side(0.8, 11.0), side(0.7, 10.0), False),  # older
        (side(0.8, 9.0, admitted=0.9), side(0.7, 10.0), False),
        (side(0.98, 9.0), side(1.0, 10.0), True),  # both keep up
        (side(0.97, 9.0), side(1.0, 10.0), False),
        (side(0.1, 9.0), side(0.0, None), True),  # nothing is older than any
        (side(0.0, None), side(0.1, 9.0), False),
        (side(0.8, 9.0), side(0.7, 10.0, failures=["exit code 1"]), False),
        (side(0.8, 9.0, failures=["exit code 1"]), side(0.7, 10.0), False),
    ],
)
def test_bars_of_a_cell(ours, naive, passed):
    assert judge([ours] * LEAST_ROUNDS, [naive] * LEAST_ROUNDS)["passed"] is passed


def test_a_cell_is_not_decided_where_rounds_disagree_or_are_few():
    better, worse = side(0.8, 9.0), side(0.6, 9.0)
    other = [side(0.7, 10.0)] * 10
    assert judge([better] * 9 + [worse], other)["passed"] is True  # one round of ten
    mixed = judge([better] * 8 + [worse] * 2, other)
    assert mixed["passed"] == UNDECIDED
    assert (mixed["verdicts"]["in_time"], mixed["verdicts"]["age_p50"]) == (UNDECIDED, True)
    assert mixed["in_time"]["median"] == pytest.approx(0.8 / 0.7)
    assert judge([better] * 9, other[:9])["passed"] == UNDECIDED


def test_each_round_is_held_against_its_own():
    """A machine that is now fast, now slow, decides nothing as a whole, and all in pairs."""
    shares = [0.3, 0.9, 0.5, 0.7, 0.2, 0.8, 0.4, 0.6, 0.35, 0.85]
    ours = [side(share + 0.02, 9.0) for share in shares]
    assert judge(ours, [side(share, 10.0) for share in shares])["passed"] is True
    assert (
        judge(ours, [side(share, 10.0) for share in shares[1:] + shares[:1]])["passed"]
        == UNDECIDED
    )


def test_the_other_commit_may_be_two_per_cent_better_in_a_cell_but_not_on_average():
    ours, naive = side(0.99, 9.0, frames=200), side(0.5, 10.0, frames=200)
    same = summarize(SETTINGS, repeat(ours=ours, naive=naive, against=side(1.0, frames=200)))
    assert same["cells"][0]["compared"]["against"]["passed"] is True
    assert same["against_on_average"]["median"] == pytest.approx(0.99)
    assert same["passed"] is False
    worse = summarize(
        SETTINGS,
        repeat(ours=side(0.9, 9.0), naive=naive, against=side(1.0))
        + [play(n, load=2.0, ours=side(0.9), naive=naive, against=side(0.5)) for n in range(10)],
    )
    by_load = {cell["load"]: cell["compared"]["against"]["passed"] for cell in worse["cells"]}
    assert by_load == {1.0: False, 2.0: True}
    assert worse["against_on_average"]["low"] == pytest.approx(1.8 / 1.5)
    assert worse["passed"] is False


def test_only_whole_rounds_count_on_average():
    played = repeat(ours=side(0.9), naive=side(0.9), against=side(0.8))
    played.append(play(0, load=2.0, ours=side(0.5), naive=side(0.5), against=side(0.5)))
    average, verdict = judge_average(played)
    assert (average["rounds"], verdict) == (1, UNDECIDED)
    assert judge_average(repeat(ours=side(0.9), naive=side(0.9))) == (None, None)


def test_rounds_are_put_together():
    both = pool([side(0.5, 10.0), side(0.8, 30.0, frames=50), side(0.0, None)])
    assert (both["frames"], both["in_time"], both["seconds"]) == (250, 90, 18.0)
    assert both["met_ratio"] == 90 / 250
    assert both["age_ms"] == {"p50": 20.0, "p99": 40.0}
    assert both["in_time_by_task"] == {"detector": 90}
    assert pool([describe(Rounds([], ["failed"]), [], 1, 0)])["failures"] == ["failed"]
    assert pool([side(0.5) | {"cores": 1.0}, side(0.5) | {"cores": 2.0}])["cores"] == 1.5


def test_the_cost_is_that_of_all_rounds():
    played = [
        play(n, cost=cost, ours=side(1), naive=side(1)) for n, cost in enumerate((33, 59, 34))
    ]
    result = summarize(SETTINGS, played)
    assert result["execution_alone_ms"] == {"detector": 34}
    assert result["cells"][0]["deadline_ms"] == 1.5 * 34
    assert [one["deadline_ms"] for one in result["played"]] == [1.5 * c for c in (33, 59, 34)]


def test_a_result_is_judged_again_from_its_rounds():
    result = summarize(SETTINGS, repeat(ours=side(0.8, 9.0), naive=side(0.7, 10.0)))
    assert (result["passed"], rejudge(json.loads(json.dumps(result)))) == (True, True)
    for one in result["played"]:
        one["sides"]["ours"]["met_ratio"] = 0.6
    assert rejudge(result) is False
    assert rejudge({"cells": [{"passed": True}, {"passed": False}]}) is False  # without rounds


def test_the_report_names_what_is_not_decided():
    result = summarize(
        {**SETTINGS, "admitted_bar": 0.95, "against": {"commit": "0123456789", "bar": 0.98}},
        repeat(3, ours=side(0.8), naive=side(0.7, 20.0), against=side(0.8)),
    )
    shown = benches.show("overload", result)
    assert "1.14 (- to -)" in shown
    assert "in_time not decided" in shown
    assert "those in time of 01234567 in every cell" in shown
    assert shown.endswith(": not decided")


# -- a round -------------------------------------------------------------------------------------


def test_every_side_plays_each_deadline_of_every_round(monkeypatch, tmp_path):
    """The usual node, too: it was once measured for all deadlines at once."""
    played, rates = [], set()

    class Children:
        """Camera and listener that ended."""

        def __init__(self, command):
            rows = {"camera": "1000000 1000000 x\n", "listener": '{"detections": [1]}'}
            for role, text in rows.items():
                if role in command:
                    Path(command[-1]).write_text(text)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    def play_side(side, spec, seconds, grace_s):
        played.append((side, spec.deadline_ms, spec.follows_load, grace_s))
        rates.update(task.expected_frequency for task in spec.tasks)
        if side == "against":
            raise BenchmarkError("ended with exit code 1")
        row = FrameRow("detector", 1_000_000, 1, 1_000_000 + 40_000_000, True, "met")
        return Played([row], 0, 2_000_000)

    monkeypatch.setattr(bench, "Child", Children)
    monkeypatch.setattr(bench, "play", play_side)
    sides = ["ours", "sequential", "naive", "against"]
    args = benches.parse("overload", "--deadline-factors 1.1 2")
    spec = ConsumerSpec((TaskConfig("detector"),), 2, 0.0, tmp_path / "log")
    earlier = []
    for number in range(2):
        found = bench._play_load(0.5, {"a": 10.0, "b": 20.0}, spec, sides, earlier, args)
        earlier += found
        assert [one["round"] for one in found] == [number] * 2
    tight, loose = earlier[:2]
    assert (tight["deadline_ms"], loose["deadline_ms"]) == (1.1 * 30.0, 60.0)
    assert tight["rate_hz"] == 0.5e3 / 30.0
    assert rates == {0.5e3 / 30.0}
    assert [one["sides"]["naive"]["in_time"] for one in (tight, loose)] == [0, 1]
    assert tight["sides"]["against"]["failures"] == ["ended with exit code 1"]
    assert tight["listener"] == {"detections": 1}
    assert [side for side, *_ in played] == [*sides * 2, *sides[::-1] * 2]
    assert {(ms, grace) for _, ms, _, grace in played} == {(29.0, 0.066), (56.0, 0.12)}
    assert {side for side, _, follows, _ in played if follows} == {"ours", "against"}


# -- in parts ------------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch):
    """Overload without processes: every side of a round is made up."""
    calls = []

    def play_load(load, costs_ms, spec, sides, earlier, args):
        calls.append((load, [count_rounds(earlier, load, f) for f in args.deadline_factors]))
        return [
            play(count_rounds(earlier, load, f), load, f, ours=side(0.9, 9.0), naive=side(0.8))
            for f in args.deadline_factors
        ]

    def measure_alone(task, threads, frames):
        calls.append(task.name)
        return 15.0

    monkeypatch.setattr(bench, "_play_load", play_load)
    monkeypatch.setattr(bench, "export", lambda task, folder: task)
    monkeypatch.setattr(bench, "measure_alone", measure_alone)
    return calls


GIVEN = ["--detector", "null:1", "--segmenter", "null:1,segmentation", "--no-sequential"]


def run(file, *options):
    return benches.run("overload", *GIVEN, "--output", str(file), *options)


def end(file, *options):
    return harness.main(["overload", *GIVEN, "--output", str(file), *options])


def test_a_run_in_parts_keeps_all_rounds(measured, tmp_path):
    file = tmp_path / "overload.json"
    cells = ("--loads", "1", "2", "--deadline-factors", "1.5")
    code, first = run(file, *cells, "--rounds", "4")
    assert (code, first["passed"], len(first["played"])) == (0, UNDECIDED, 8)
    code, second = run(file, *cells, "--rounds", "6", "--resume", str(file))
    assert json.loads(file.read_text()) == second
    assert (code, second["passed"], second["rounds"]) == (0, True, 10)
    assert second["played"][:8] == first["played"]
    numbers = [one["round"] for one in second["played"] if one["load"] == 2.0]
    assert numbers == list(range(10))
    assert [part["command"] for part in second["parts"]] == [first["command"], second["command"]]
    # A further cell has no ten rounds yet.
    _, third = run(
        file, "--loads", "3", "--deadline-factors", "2", "--rounds", "1", "--resume", str(file)
    )
    assert (third["passed"], third["rounds"], len(third["parts"])) == (UNDECIDED, 1, 3)
    assert [cell["passed"] for cell in third["cells"]] == [True, True, UNDECIDED]


def test_each_load_of_a_round_has_its_own_costs_and_the_order_of_loads_changes(measured, tmp_path):
    run(tmp_path / "x", "--loads", "1", "2", "--deadline-factors", "1.5", "2", "--rounds", "2")
    costs = ["detector", "segmenter"]
    loads = [(1.0, [0, 0]), (2.0, [0, 0]), (2.0, [1, 1]), (1.0, [1, 1])]
    assert measured == [one for load in loads for one in (*costs, load)]


def test_a_forced_end_keeps_the_rounds_so_far(measured, tmp_path, monkeypatch):
    file = tmp_path / "overload.json"
    play_load = bench._play_load

    def fail(load, *rest):
        if load == 2.0:
            raise KeyboardInterrupt
        return play_load(load, *rest)

    monkeypatch.setattr(bench, "_play_load", fail)
    options = ("--loads", "1", "2", "--deadline-factors", "1.5", "--rounds", "1")
    assert end(file, *options) == 130
    assert len(json.loads(file.read_text())["played"]) == 1
    monkeypatch.setattr(bench, "_play_load", play_load)
    _, result = run(file, *options, "--resume", str(file))
    assert [cell["rounds"] for cell in result["cells"]] == [2, 1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--seconds", "7"], "seconds_per_round was 6.0, and is 7.0 now"),
        (["--threads", "1"], "threads was 2, and is 1 now"),
        (["--margin-ms", "5"], "margin_ms was 4.0, and is 5.0 now"),
    ],
)
def test_parts_of_different_runs_are_not_mixed(measured, tmp_path, capsys, options, reason):
    file = tmp_path / "overload.json"
    run(file, "--rounds", "1", "--threads", "2")
    before = file.read_bytes()
    given = ["--rounds", "1", "--threads", "2", "--resume", str(file), *options]
    assert end(file, *given) == 2
    assert reason in capsys.readouterr().err
    assert file.read_bytes() == before


def test_rounds_of_other_code_or_another_machine_are_not_mixed(measured, tmp_path):
    _, result = run(tmp_path / "overload.json", "--rounds", "1")
    assert take_earlier(result, "overload", {"threads": result["threads"]}) == result["played"]
    assert take_earlier(None, "overload", {}) == []
    rooms = {**result["code"]["rooms"], "jetson_dnn_rt/scheduling": "0"}
    for other, reason in [
        ({"code": {**result["code"], "rooms": rooms}}, "changed since: jetson_dnn_rt/scheduling"),
        ({"machine": {**result["machine"], "cpu": "another"}}, "cpu was another"),
        ({"benchmark": "streaming"}, "benchmark was streaming"),
    ]:
        with pytest.raises(ConfigurationError, match=reason):
            take_earlier({**result, **other}, "overload", {})


def test_only_results_with_rounds_can_be_resumed(tmp_path):
    for text in ("", "{}", '{"played": []}'):
        file = tmp_path / "x.json"
        file.write_text(text)
        with pytest.raises(ConfigurationError, match="--resume"):
            read_result(file)
    assert read_result(None) is None


def test_parts_of_parts_are_kept():
    machine = {"date": "d", "load_average_1min": 1.0}
    one = {"command": "1", "machine": machine, "code": {"commit": "a"}}
    parts = describe_parts(one, {**one, "command": "2"})
    assert [part["command"] for part in parts] == ["1", "2"]
    again = describe_parts({**one, "parts": parts}, {**one, "command": "3"})
    assert [part["command"] for part in again] == ["1", "2", "3"]


def test_the_options_are_those_of_the_bars():
    args = benches.parse("overload")
    assert isinstance(args, argparse.Namespace)
    assert (args.loads, args.deadline_factors) == ([0.5, 1.0, 2.0, 3.0], [1.1, 1.25, 1.5, 2.0])
    assert (args.rounds, args.seconds) == (LEAST_ROUNDS, 6.0)
    assert isinstance(benches.parse("overload", "--resume", "x").resume, Path)
