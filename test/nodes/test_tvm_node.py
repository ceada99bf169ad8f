# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A task node runs tuned kernels among its other variants; what is tuned elsewhere is compiled."""

from __future__ import annotations

import json
import shutil

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("tvm", reason="TVM is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import ros_graph
import yaml
from networks import make_onnx
from sensor_msgs.msg import Image
from task_bench import Bench, make_image

from jetson_dnn_rt.cli import main
from jetson_dnn_rt.nodes.tasks.task_node import SegmenterNode
from jetson_dnn_rt.runtime.building import background_build
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.variants.library.library import Library

ONNX, TVM = "full@onnxruntime-fp32", "full@tvm-fp32"
BUILD_TIMEOUT_S = 600.0


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Builds do not wait for cores that other tests use."""
    monkeypatch.setattr(background_build, "NICE", 0)


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """Parameters of a task on a network of one convolution."""
    file = make_onnx(tmp_path_factory.mktemp("model") / "tiny.onnx", shape=(1, 3, 16, 16))
    return {
        "kind": "segmentation",
        "model": f"onnx:{file}",
        "variants": [ONNX, TVM],
        "threads": 1,
        "tvm_trials": 2,
    }


@pytest.fixture(scope="module")
def built(values, tmp_path_factory):
    """A library that the command has built."""
    folder = tmp_path_factory.mktemp("built")
    params = folder / "params.yaml"
    nodes = {
        "/perception": {"ros__parameters": {"tasks": ["segmenter"]}},
        "/segmenter": {"ros__parameters": {**values, "engine_cache": str(folder / "library")}},
    }
    params.write_text(yaml.safe_dump(nodes))
    arguments = ["build", "--params", str(params), "--runs", "2", "--frames", "synthetic:1"]
    assert main.main(arguments) == 0
    return folder / "library"


def make_bench(ros, values, library):
    given = {**values, "engine_cache": str(library), "deadline_ms": 20_000.0}
    bench = Bench(ros, SegmenterNode, **given)
    ros.listen(Image, "class_mask")
    assert bench.node.autostart(), bench.node.fault
    ros.wait(lambda: bench.images.get_subscription_count() == 1)
    return bench


def test_it_is_switched_to_and_from_while_frames_come(ros, values, built):
    bench = make_bench(ros, values, built)
    assert bench.node.loaded.variant_names == (ONNX, TVM)
    names = ["", TVM, TVM, ONNX, "full@tvm", ""]
    for count, name in enumerate(names, 1):
        assert ros.set(bench.node, variant=name).successful
        bench.send(make_image(ros), count)
    assert bench.count(Outcome.MET) == len(names)
    assert bench.seen.variants == [ONNX, TVM, TVM, ONNX, TVM, ONNX]


def test_what_was_tuned_on_another_board_is_compiled_in_the_background(
    ros, values, built, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(ros_graph, "TIMEOUT_S", BUILD_TIMEOUT_S)
    library, file = tmp_path / "library", tmp_path / "tuned.tar"
    source, target = ["--engine-cache", str(built)], ["--engine-cache", str(library)]
    assert main.main(["library", "export", str(file), "--kind", "tuning", *source]) == 0
    assert main.main(["library", "import", str(file), "--trust", *target, "--json"]) == 0
    (taken,) = json.loads(capsys.readouterr().out.splitlines()[-1])["taken"]
    assert (taken["variant"], taken["kind"], taken["left_out"]) == (TVM, "tuning", "")
    bench = make_bench(ros, values, library)
    # It runs with what is there meanwhile.
    bench.send(make_image(ros), 1)
    assert bench.node.loaded.missing in ((TVM,), ())
    ros.wait(lambda: bench.node.session.find_build("segmenter") is None, "the end of the build")
    assert bench.node.loaded.variant_names == (ONNX, TVM)
    assert ros.set(bench.node, variant=TVM).successful
    bench.send(make_image(ros), 2)
    assert bench.count(Outcome.MET) == 2
    assert bench.seen.variants == [ONNX, TVM]


def test_untuned_it_is_left_out_with_what_to_do(ros, values, tmp_path, monkeypatch):
    """Beside running tasks kernels are not tuned: their times would say nothing."""
    monkeypatch.setattr(ros_graph, "TIMEOUT_S", BUILD_TIMEOUT_S)
    bench = make_bench(ros, values, tmp_path / "library")
    assert bench.node.loaded.variant_names == (ONNX,)
    ros.wait(lambda: bench.node.session.find_build("segmenter") is None, "the end of the build")
    assert "run jetson-dnn-rt build" in bench.node.loaded.left_out[TVM]
    result = ros.set(bench.node, variant=TVM)
    assert not result.successful
    assert "kernels of onnx:" in result.reason
    kept = Library(tmp_path / "library").entries()
    assert all(entry.header.key.kind != "tuning" for entry in kept if entry.header)
    shutil.rmtree(tmp_path / "library")
