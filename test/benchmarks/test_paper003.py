# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The table of paper 003: the budget and the bars by hand, and one small run of the whole."""

import benches
import numpy as np
import pytest
import torch
from networks import make_model

pytest.importorskip("tvm")


from benchmarks import paper003
from benchmarks.harness.networks import Shown
from benchmarks.paper003 import (
    BOTH,
    DEFAULT,
    GRAPH_ROWS,
    NETWORKS,
    OPENCV,
    ORT,
    ORT_PLAIN,
    PLAIN,
    ROWS,
    SPENT,
    TUNED,
    DatabaseFolder,
    Entry,
    Job,
    find_allowance_s,
    judge,
    plan_jobs,
    tune_all,
)
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.results import Classification
from jetson_dnn_rt.tvm.database import DatabaseError
from jetson_dnn_rt.tvm.target import TvmTarget, find_local_target
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames

MS = 1_000_000


def load_tiny():
    """One convolution, each of whose outputs counts as a class: few kernels to be tuned."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        module = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 8, 8), torch.nn.ReLU(), torch.nn.Flatten()
        )
    return make_model(module, (16, 16)), list(open_frames("synthetic", 2))


# ---- the budget


def test_shares_are_those_of_all_networks_and_fp32_comes_first():
    jobs = plan_jobs({n: {"fp32": one.fp32, "fp16": one.fp16} for n, one in NETWORKS.items()})
    assert sum(job.share for job in jobs) == pytest.approx(1.0)
    assert [job.name for job in jobs[:2]] == ["mobilenet_v2-fp32", "detector-fp32"]
    assert {job.precision for job in jobs[:5]} == {"fp32"}
    barred = sum(job.share for job in jobs[:5] if NETWORKS[job.network].barred)
    assert barred > sum(job.share for job in jobs[:5]) / 2
    (one, other) = plan_jobs({"resnet50": {"fp32": 0.13, "fp16": 0.04}})
    assert (one.share, other.share) == pytest.approx((0.13 / 0.17, 0.04 / 0.17))


@pytest.mark.parametrize(
    ("index", "spent_s", "expected_s"),
    [
        (0, {}, 49.5),  # of 99: the last batch ends late
        (1, {"a-fp32": 10.0}, 0.8 * 99.0 - 10.0),
        (1, {"a-fp32": 70.0}, 0.8 * 99.0 - 70.0),  # too long before: the next one has less
        (1, {"a-fp32": 90.0}, 0.0),
        # An earlier run took its part; nobody gets more than is left of the whole.
        (0, {"a-fp32": 20.0}, 49.5 - 20.0),
        (0, {"c-fp32": 90.0}, 99.0 - 90.0),
    ],
)
def test_what_is_left_over_goes_to_the_next(index, spent_s, expected_s):
    jobs = [Job("a", "fp32", 0.5), Job("b", "fp32", 0.3), Job("c", "fp32", 0.2)]
    assert find_allowance_s(jobs, index, spent_s, 100.0) == pytest.approx(expected_s)


def test_one_that_fails_leaves_the_others(tmp_path):
    target = find_local_target(1)
    folder = DatabaseFolder(tmp_path, target)
    jobs = [Job("lost", "fp32", 0.5), Job("tiny", "fp32", 0.5)]
    model, _ = load_tiny()

    def find_part(name):
        if name == "lost":
            raise ModelError("lost.onnx is not there")
        return model

    found = tune_all(jobs, find_part, folder, minutes=0.0, trials=1)
    assert found["lost-fp32"]["note"] == "ModelError: lost.onnx is not there"
    assert (found["tiny-fp32"]["tuned"], found["tiny-fp32"]["seconds"]) == (0, 0.0)
    assert found["tiny-fp32"]["kernels"] > 0


def test_databases_of_another_target_are_refused(tmp_path):
    target = find_local_target(1)
    job = Job("tiny", "fp32", 1.0)
    mine = DatabaseFolder(tmp_path, target)
    mine.store(job, mine.load(job), 12.5)
    assert mine.find_spent_s(job) == 12.5
    other = TvmTarget(target.kind, target.cpu, target.triple, target.arch, 2)
    with pytest.raises(DatabaseError, match="threads=1"):
        DatabaseFolder(tmp_path, other).load(job)
    (tmp_path / job.name / SPENT).write_text("{}")
    with pytest.raises(ConfigurationError, match=r"spent\.json is damaged"):
        mine.find_spent_s(job)


def test_two_runs_do_not_tune_into_one_folder(tmp_path):
    target = find_local_target(1)
    one, other = DatabaseFolder(tmp_path, target), DatabaseFolder(tmp_path, target)
    with one.lock(), pytest.raises(ConfigurationError, match="another run tunes into"):
        tune_all([], lambda name: None, other, minutes=1.0, trials=1)
    assert tune_all([], lambda name: None, other, minutes=1.0, trials=1) == {}


# ---- the report


def make_shown(*values):
    result = Classification(np.array([0]), np.array([0.5], np.float32))
    return Shown("classification", False, [(np.array(values, np.float32),)], [result])


def test_rows_by_hand():
    times = {
        "torch-eager": np.array([10, 20, 12]) * MS,
        PLAIN: np.array([80, 90, 90]) * MS,
        ORT_PLAIN: np.array([8, 8, 8]) * MS,
        ORT: np.array([4, 4, 5]) * MS,
        DEFAULT: np.array([60, 50, 70]) * MS,
        TUNED: np.array([6, 4, 5]) * MS,
        OPENCV: np.array([8, 8, 9]) * MS,
        BOTH: np.array([5, 5, 5]) * MS,
    }
    shown = {name: make_shown(1.0, 2.0) for name in times}
    shown[TUNED] = make_shown(1.0, 1.0)
    shown[BOTH] = make_shown(1.0, 2.01)
    rows = {
        row["row"]: row
        for row in paper003.describe_rows(times, shown, {"openvino-bf16": "no bf16 here"})
    }
    assert list(rows) == list(ROWS)
    assert (rows[TUNED]["mean_ms"], rows[TUNED]["p50_ms"], rows[TUNED]["p99_ms"]) == (5, 5, 6)
    assert rows[TUNED]["times_faster_than_default"] == 12.0
    assert rows[TUNED]["times_faster_than_unoptimised"] == 18.0
    assert rows[ORT]["times_faster_than_unoptimised"] == 2.0
    assert rows["torch-eager"]["times_faster_than_unoptimised"] is None
    assert rows[TUNED]["times_faster_than_opencv"] == 1.6
    assert rows[TUNED]["fault"] == "off by 0.5 of the largest value"
    assert rows[BOTH]["fault"] == ""  # rounding to FP16 is none
    assert rows["openvino-bf16"] == {"row": "openvino-bf16", "note": "no bf16 here", "fault": ""}


def test_what_the_paper_compares_by_hand():
    means_ms = {PLAIN: 100, DEFAULT: 80, "tvm +amp": 60, TUNED: 30, BOTH: 20, ORT_PLAIN: 8, ORT: 6}
    rows = [{"row": name, "mean_ms": float(mean)} for name, mean in means_ms.items()]
    table = paper003._compare_paper({"models": {"resnet50": {"rows": rows}}})
    found = dict(zip(table.header, table.rows[0], strict=True))
    assert found["graph saves %"] == "20"
    assert found["of ONNX Runtime %"] == "25"
    assert found["graph and AMP %"] == "40"
    assert found["graph and tuning %"] == "70"
    assert found["share of tuning %"] == "71"  # 50 of the 70 ms
    assert (found["both x unoptimised"], found["both x default"]) == ("5.0", "4.0")
    theirs = dict(zip(table.header, table.rows[1], strict=True))
    assert theirs["graph and tuning %"] == "60 to 77"
    assert theirs["both x unoptimised"] == "3.2 to 5.4"
    assert theirs["AMP saves tuned %"] == "10 to 34"


def make_result(**changes):
    tuned = {"row": TUNED, "p50_ms": 5.0, "fault": "", "note": ""}
    tuned |= {"times_faster_than_default": 5.0, "times_faster_than_opencv": 1.1}
    opencv = {"row": OPENCV, "p50_ms": 5.5}
    return {
        "tuning": {"a-fp32": {"seconds": 3000.0}, "a-fp16": {"seconds": 600.0}},
        "models": {"a": {"rows": [tuned | changes, opencv]}},
        "accuracy": {"a": {"points_lost": 0.3}},
    }


def test_bars_by_hand():
    result = make_result()
    aims = judge(result, {"a": True})
    assert len(aims) == 5
    assert all(aims.values())
    assert len(judge(result, {"a": False})) == 2  # no bar of speed
    for change in (
        {"times_faster_than_default": 4.99},
        {"times_faster_than_opencv": 1.0},
        {"fault": "off by 0.5 of the largest value"},
    ):
        assert list(judge(make_result(**change), {"a": True}).values()).count(False) == 1
    result["tuning"]["a-fp16"]["seconds"] = 601.0
    result["accuracy"]["a"]["points_lost"] = 0.31
    assert list(judge(result, {"a": True}).values()).count(False) == 2
    # Nothing was tuned: no time to judge.
    result["tuning"] = {}
    assert list(judge(result, {"a": False}).values()) == [None, False]
    # OpenCV cannot run it: nothing to compare with. TVM cannot: not passed.
    result = make_result()
    del result["models"]["a"]["rows"][1]["p50_ms"]
    assert list(judge(result, {"a": True}).values()).count(None) == 1
    del result["models"]["a"]["rows"][0]["p50_ms"]
    assert list(judge(result, {"a": True}).values()).count(False) == 3


# ---- runs


def test_amp_is_compared_with_ground_truth():
    """Nothing is tuned: ONNX Runtime computes the coloured graph, and it is said."""
    target = find_local_target(1)
    model = load_model("builtin:segmenter")

    class Untuned(paper003.Compiler):
        def compile_tuned(self, precision, part):
            raise ModelError("none of its 9 kernels is tuned")

    found = paper003.measure_amp("segmenter", model, Untuned(target, {}), 1, 3)
    assert found["computed_by"].startswith("onnxruntime on the graph of AMP (none of its 9")
    assert found["metric"] == "mIoU"
    assert 0.5 < found["amp"] < 1.0
    assert found["fp32"] != found["amp"]  # it did compute in FP16
    assert found["points_lost"] == pytest.approx(100 * (found["fp32"] - found["amp"]), abs=2e-3)


def test_a_small_run_that_is_continued(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(NETWORKS, "resnet50", Entry("", 0.5, 0.5, barred=True))
    monkeypatch.setattr(Entry, "load", lambda entry: load_tiny())
    options = ("--models", "resnet50", "--quick", "--trials", "4", "--databases", str(tmp_path))
    tuned = paper003.run(benches.parse("paper003", *options, "--tune-only"))
    assert (tuned["models"], tuned["passed"]) == ({}, None)
    for found in tuned["tuning"].values():
        assert found["tuned"] == found["kernels"] > 0
        assert found["trials"] >= found["kernels"]
        assert found["seconds"] > 0.0
    assert "not judged" in benches.show("paper003", tuned)

    result = paper003.run(benches.parse("paper003", *options, "--no-tuning"))
    for name, again in result["tuning"].items():
        before = tuned["tuning"][name]
        assert (again["trials"], again["seconds"]) == (before["trials"], before["seconds"])
    found = result["models"]["resnet50"]
    rows = {row["row"]: row for row in found["rows"]}
    assert list(rows) == list(ROWS)
    for name in ("torch-eager", PLAIN, DEFAULT, TUNED, ORT_PLAIN, ORT):
        assert 0.0 < rows[name]["p50_ms"] <= rows[name]["p99_ms"]
        assert rows[name]["relative_error"] < 1e-4
        assert (rows[name]["runs"], rows[name]["fault"]) == (3, "")
    for name in ("tvm +amp", BOTH):
        assert 1e-6 < rows[name]["relative_error"] < 5e-2  # sums in FP16
    assert rows["tensorrt-fp16"]["note"] or rows["tensorrt-fp16"]["p50_ms"] > 0.0
    assert "resnet50: tuned computes what torch does" in result["reached"]
    table = benches.show("paper003", result)
    assert "resnet50 (16x16)" in table
    assert "5.57" in table  # the paper's
    assert "paper003: resnet50-fp32 (1 of 2)" in capsys.readouterr().err


def test_the_graph_alone(monkeypatch):
    monkeypatch.setitem(NETWORKS, "resnet50", Entry("", 0.5, 0.5, barred=True))
    monkeypatch.setattr(Entry, "load", lambda entry: load_tiny())
    options = "--models resnet50 --graph-only --runs 3 --slow-runs 2"
    result = paper003.run(benches.parse("paper003", options))
    rows = {row["row"]: row for row in result["models"]["resnet50"]["rows"]}
    assert tuple(rows) == GRAPH_ROWS
    assert all((row["fault"], row["runs"]) == ("", 3) for row in rows.values())
    assert rows[DEFAULT]["times_faster_than_unoptimised"] > 0.0
    assert (result["tuning"], result["accuracy"], result["passed"]) == ({}, {}, None)
    assert "nothing is tuned" in benches.show("paper003", result)


def test_unoptimised_is_a_kernel_for_each_operator():
    """A convolution, a bias and an activation: three kernels that the graph's passes fuse."""
    from jetson_dnn_rt.tvm.lowering import lower

    model, _ = load_tiny()
    target = find_local_target(1)

    def count_kernels(**options):
        return len(lower(model, "fp32", target, channels_last=False, **options).functions) - 1

    assert count_kernels(graph_passes=False) > count_kernels()


def test_onnx_runtime_unoptimised_leaves_the_graph_as_it_is(monkeypatch):
    import onnxruntime

    levels = []
    original = onnxruntime.InferenceSession

    def watch(data, options, **more):
        levels.append(options.graph_optimization_level)
        return original(data, options, **more)

    model, _ = load_tiny()
    model.onnx_model()  # whose export is checked in a session of its own
    monkeypatch.setattr(onnxruntime, "InferenceSession", watch)
    paper003.open_unoptimised(1, model).close()
    assert levels == [onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL]
