# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The comparison of back ends: its arithmetic by hand, and one small run of the whole."""

from contextlib import ExitStack
from types import SimpleNamespace

import benches
import numpy as np
import onnx
import pytest
import torch
from networks import Classifier, make_model
from onnx import TensorProto, helper

from benchmarks.backends import bench as backends
from benchmarks.backends.opencv import OpenCvRunner, check_engine, list_engines
from benchmarks.harness.networks import Chain, Lineup, Shown
from benchmarks.harness.numerics import make_plausible
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.results import Classification
from jetson_dnn_rt.variants.free_cuts import FreeCuts
from jetson_dnn_rt.variants.network import Network
from jetson_dnn_rt.variants.spec import FULL

MS = 1_000_000


def make_shown(*outputs, best=0, listed=False):
    arrays = [(np.array(values, np.float32),) for values in outputs]
    result = Classification(np.array([best]), np.array([0.5], np.float32))
    return Shown("classification", listed, arrays, [result] * len(arrays))


# ---- what networks say


def test_the_error_is_relative_to_the_largest_value():
    expected = make_shown([0.0, -4.0], [1.0, 2.0])
    assert make_shown([0.0, -4.0], [1.0, 2.0]).find_error(expected) == 0.0
    assert make_shown([0.5, -4.0], [1.0, 1.9]).find_error(expected) == pytest.approx(0.125)
    assert make_shown([0.5], [1.0, 2.0]).find_error(expected) == float("inf")


@pytest.mark.parametrize(
    ("values", "best", "listed", "fault"),
    [
        ([1.001, 2.0], 0, False, ""),
        ([1.1, 2.0], 0, False, "off by 0.05 of the largest value"),
        ([float("nan"), 2.0], 0, False, "off by inf of the largest value"),
        # Lists are compared by agreement alone.
        ([7.0], 0, True, ""),
        ([1.0], 1, True, "agreement 0.000"),
    ],
)
def test_a_fault_is_more_than_rounding(values, best, listed, fault):
    shown = make_shown(values, best=best, listed=listed)
    assert shown.find_fault(make_shown([1.0, 2.0], listed=listed)) == fault
    assert (shown.find_error(make_shown([1.0, 2.0])) is None) == listed


# ---- the report


def test_report_by_hand():
    times = {
        "torch-eager": np.array([10, 20, 12]) * MS,
        "torch-fp32": np.array([10, 20, 12]) * MS,
        "openvino-fp32": np.array([4, 4, 5]) * MS,
        "opencv-fp32": np.array([6, 9, 6]) * MS,
    }
    # In turns of their own, in which both happened to be faster.
    turns = {
        "torch-fp32": {
            "torch-fp32": np.array([5, 10, 6]) * MS,
            "torch-fp32 staged": np.array([5.5, 10, 6]) * MS,
        },
        "openvino-fp32": {
            "openvino-fp32": np.array([2, 2, 2.5]) * MS,
            "openvino-fp32 staged": np.array([3, 3, 2.5]) * MS,
        },
    }
    keys = {*times, *(key for own in turns.values() for key in own)}
    shown = {key: make_shown([1.0, 2.0]) for key in keys}
    shown["openvino-fp32"] = make_shown([1.0, 1.0], best=1)
    names = ["torch-eager", "torch-fp32", "torch-bf16", "openvino-fp32", "opencv-fp32"]
    notes = {"torch-bf16": "no bf16", "torch-bf16 staged": "no bf16"}
    model = load_model("null:1")
    lineup = Lineup(model, [], ExitStack())
    lineup.shown, lineup.notes = shown, notes
    found = backends._summarize(model, 8, names, times, turns, lineup)
    rows = {row["backend"]: row for row in found["rows"]}
    assert [rows[name].get("p50_ms") for name in names] == [12.0, 12.0, None, 4.0, 6.0]
    staged = rows["torch-fp32"]["staged"]
    assert (staged["p50_ms"], staged["overhead_percent"]) == (6.0, 0.0)  # median of +10 %, 0, 0
    assert staged["whole_p50_ms"] == 6.0
    assert rows["openvino-fp32"]["staged"]["whole_p50_ms"] == 2.0
    assert rows["openvino-fp32"]["staged"]["overhead_percent"] == 50.0
    assert rows["openvino-fp32"]["relative_error"] == 0.5
    assert rows["openvino-fp32"]["agreement"] == 0.0
    assert rows["torch-bf16"]["note"] == "no bf16"
    assert found["fastest"] == "openvino-fp32"
    assert found["times_faster_than_torch"] == 3.0
    assert found["times_faster_than_opencv"] == 1.5
    assert found["passed"] is False
    del times["opencv-fp32"]
    assert backends._summarize(model, 8, names, times, turns, lineup)["passed"] is True
    # What auto chose: nothing, and two cuts that turn out to cost more than promised.
    none = FreeCuts((), 0.0, {"a": 0.25, "b": 0.1}, 4 * MS, 4 * MS)
    free = {"openvino-fp32": none}
    found = backends._summarize(model, 8, names, times, turns, lineup, free=free)
    rows = {row["backend"]: row for row in found["rows"]}
    assert rows["openvino-fp32"]["auto"] == {
        "stages": 1,
        "cuts": [],
        "expected_percent": 0.0,
        "overhead_percent": None,
        "overhead_bounds_percent": None,
        "longest_share": 1.0,
        "cut_percent": {"a": 25.0, "b": 10.0},
    }
    assert found["passed"] is True
    free["torch-fp32"] = FreeCuts(("a", "b"), 0.015, {}, 12 * MS, 3 * MS)
    turns["torch-fp32"]["torch-fp32 auto"] = np.array([5.5, 11, 6]) * MS
    found = backends._summarize(model, 8, names, times, turns, lineup, free=free)
    auto = next(row["auto"] for row in found["rows"] if row["backend"] == "torch-fp32")
    assert (auto["stages"], auto["overhead_percent"], auto["longest_share"]) == (3, 10.0, 0.25)
    assert auto["overhead_bounds_percent"] == [0.0, 10.0]  # of three rounds
    assert found["passed"] is False
    turns["torch-fp32"]["torch-fp32 staged"] = np.array([5.5, 11, 6]) * MS
    assert backends._summarize(model, 8, names, times, turns, lineup)["passed"] is False


def test_what_was_not_measured_is_a_dash():
    """Also in results of earlier versions, which lack some figures."""
    staged = {"p50_ms": 6.0, "p99_ms": 9.0, "overhead_percent": 20.0}
    auto = {"stages": 1, "overhead_percent": None, "longest_share": 1.0}
    rows = [
        {"backend": "new", "note": "", "staged": {**staged, "whole_p50_ms": 5.0}, "auto": auto},
        {"backend": "old", "note": "", "staged": staged},
    ]
    found = {"input": [1, 3, 8, 8], "stages": 8, "rounds": 3, "fastest": "new", "rows": rows}
    result = {"models": {"net": found}, "busy": 0, "threads": 1, "vnni": False, "passed": True}
    _, table, _ = backends.report(result)
    shown = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [row["whole p50"] for row in shown] == ["5.00", None]
    assert [row["staged p50"] for row in shown] == ["6.00", "6.00"]
    assert [row["auto overhead %"] for row in shown] == [None, None]
    assert [row["auto"] for row in shown] == [1, None]


# ---- parts


@pytest.mark.parametrize("engine", list_engines())
def test_opencv_computes_what_torch_does(engine):
    model = make_model(Classifier(), (32, 48))
    image = np.random.default_rng(0).random((1, 3, 32, 48), np.float32)
    checked = check_engine(model, engine, 1, [image, image * 0.5])
    runner = OpenCvRunner(model, engine, 1)
    with torch.inference_mode():
        expected = model.torch_module()(torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(runner.run([image])[0], expected, atol=1e-5)
    np.testing.assert_allclose(checked[0][0], expected, atol=1e-5)
    assert len(checked) == 2
    assert not np.array_equal(checked[0][0], checked[1][0])
    runner.close()


def test_what_opencv_cannot_read_is_said():
    """A part with an operator that is nobody's."""
    shape = (1, 3, 8, 8)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y")]
    node = helper.make_node("NoSuchOperator", ["x"], ["y"], domain="nobody")
    graph = helper.make_graph([node], "net", ends[:1], ends[1:])
    data = onnx.ModelProto.SerializeToString(helper.make_model(graph))
    part = SimpleNamespace(name="strange", input_shapes=(shape,), onnx_model=lambda: data)
    engine = next(iter(list_engines()))
    with pytest.raises(ModelError, match=r"strange fails in cv2.dnn: .+"):
        check_engine(part, engine, 1, [np.zeros(shape, np.float32)])


def test_a_chain_of_stages_gives_what_the_whole_gives():
    model = load_model("builtin:detector")
    network = Network(model, 4)
    image = np.random.default_rng(0).random(model.input_shape, np.float32)

    def make(part):
        return backends.make_runner("torch-fp32", 1, part)

    whole, staged = (Chain(network.pieces(FULL, count), make) for count in (1, 4))
    expected = [array.copy() for array in whole.run(image)]
    for one, other in zip(staged.run(image), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    whole.close()
    staged.close()


def test_plausible_weights_let_few_boxes_pass():
    model = load_model("torchvision:ssdlite320_mobilenet_v3_large", weights="none")
    rng = np.random.default_rng(0)
    images = [rng.standard_normal(model.input_shape, np.float32) for _ in range(2)]
    plausible = make_plausible(model, images)
    with torch.inference_mode():
        module = plausible.torch_module()
        image = torch.from_numpy(images[0])
        logits = module.head(list(module.backbone(image).values()))["cls_logits"][0]
    passing = (logits.softmax(-1)[:, 1:] > module.suppression.score_threshold).float().mean()
    assert 0.001 < float(passing) < 0.02
    assert float(logits[:, 1:].std()) > 1.0


def test_models_that_are_not_there_are_left_out(tmp_path):
    _, result = benches.run("backends", "--models", "yolox_nano", "--data", str(tmp_path))
    skipped = result["models"]["yolox_nano"]["skipped"]
    assert skipped.endswith("yolox_nano.onnx is not there; fix: give --data")
    assert "yolox_nano: left out" in benches.show("backends", result)


@pytest.mark.nightly
def test_a_small_run(tmp_path):
    names = ("torch-fp32", "onnxruntime-fp32", "opencv-fp32")
    options = "--quick --threads 1 --stages 2 --seconds 0.001 --busy 1"
    _, result = benches.run(
        "backends", "--models", "detector", "--backends", *names, options, "--data", str(tmp_path)
    )
    found = result["models"]["detector"]
    assert (found["stages"], found["rounds"]) == (2, 3)
    rows = {row["backend"]: row for row in found["rows"]}
    assert list(rows) == ["torch-eager", *names]
    for name, row in rows.items():
        assert 0.0 < row["p50_ms"] <= row["p99_ms"]
        assert row["relative_error"] < 1e-4
        assert row["agreement"] > 0.99
        assert ("staged" in row) == (name not in ("torch-eager", "opencv-fp32"))
        assert ("auto" in row) == ("staged" in row)
    assert rows["torch-fp32"]["staged"]["relative_error"] < 1e-5
    assert rows["torch-eager"]["times_faster_than_torch"] == 1.0
    assert "engine" in rows["opencv-fp32"]["note"]
    table = benches.show("backends", result)
    assert "detector (240x320), 1 threads, 2 stages, 3 rounds" in table


def test_a_bar_without_figures_is_not_judged():
    whole = {"stages": 1, "overhead_percent": 0.0}
    cut = {"stages": 2, "overhead_percent": 2.1}
    found = {"times_faster_than_torch": None, "rows": [{"auto": whole}]}
    assert set(backends.judge_model(found, vnni=True).values()) == {None}
    assert backends.rejudge({"models": {"a": found}, "vnni": True}) is None
    assert backends.rejudge({"models": {"a": {"skipped": "no file"}}, "vnni": True}) is None
    assert backends.judge_model({"rows": [{"auto": cut}]}, vnni=True)["auto"] is False
    slow = {"products": 9, "points_lost": 0.1, "times_faster_than_fp32": 1.4}
    assert backends.judge_model({"rows": [slow]}, vnni=True)["int8"] is False
    assert backends.judge_model({"rows": [slow]}, vnni=False)["int8"] is None
