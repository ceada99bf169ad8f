# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The graph inside a process: every frame is accounted for, whatever ends the run."""

from __future__ import annotations

import gc
import re
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.process.graph import GraphInfo, run_graph
from jetson_dnn_rt.tasks import JobRecord, Outcome

OVERRIDES: dict[str, dict[str, object]] = {
    "camera": {"source": "synthetic:64x64", "rate": 100.0},
    "detector": {"model": "null:1", "warmup_runs": 2},
    "segmenter": {"model": "null:1,segmentation", "warmup_runs": 2},
}


@pytest.fixture(autouse=True)
def collected_nodes():
    """Let no node of a run outlive its test: rclpy frees a participant when Python collects."""
    yield
    gc.collect()


def run(overrides=None, **options):
    records: list[JobRecord] = []

    def observe(record, work):
        records.append(record)

    arguments: dict[str, Any] = {"frames": None, "seconds": None, "observer": observe, **options}
    file = arguments.pop("params_file", None)
    return run_graph(file, {**OVERRIDES, **(overrides or {})}, **arguments), records


def check_counts(report, records):
    for task, counts in report.counts.items():
        assert counts.released == sum(counts.outcomes.values())
        assert counts.released == report.cameras["camera"].frames
        sequences = [r.sequence for r in records if r.task == task]
        assert sorted(sequences) == list(range(counts.released))


def test_so_many_frames_are_run_and_accounted_for():
    infos: list[GraphInfo] = []
    report, records = run(frames=40, on_ready=infos.append)
    assert report.cameras["camera"].frames == 40
    check_counts(report, records)
    task = infos[0].tasks["detector"]
    traced = task.traced
    assert (traced.deadline_ns, traced.period_ns) == (10_000_000, 10_000_000)
    assert task.variant == "full@null"
    assert infos[0].cameras["camera"].frames == 0
    assert report.info.verdict == infos[0].verdict


def test_an_overloaded_run_accounts_for_every_frame_too():
    report, records = run({"detector": {"model": "null:9", "warmup_runs": 2}}, frames=60)
    check_counts(report, records)
    assert (
        report.counts["detector"].outcomes[Outcome.SKIPPED]
        + report.counts["detector"].outcomes[Outcome.SUPERSEDED]
        + report.counts["segmenter"].outcomes[Outcome.SKIPPED]
        > 0
    )
    counts = report.counts["detector"]
    # On a busy machine the times of either may be the worse ones.
    rests = r"it rests on task (detector|segmenter) with \d+\.\d ms a frame"
    assert re.search(rests, report.verdict)
    assert f"Met in this run: detector {counts.outcomes[Outcome.MET]} of 60" in report.verdict


def test_the_end_of_the_sources_ends_it(tmp_path):
    import cv2
    import numpy as np

    for index in range(5):
        cv2.imwrite(str(tmp_path / f"{index}.png"), np.zeros((64, 64, 3), np.uint8))
    camera = {"source": f"images:{tmp_path}", "loop": False, "rate": 50.0}
    report, records = run({"camera": camera})
    assert report.cameras["camera"].frames == 5
    check_counts(report, records)


def test_seconds_end_it():
    report, records = run(seconds=0.3)
    assert 0.3 <= report.seconds < 5.0
    assert report.cameras["camera"].frames > 10
    check_counts(report, records)


def test_an_event_ends_it():
    stop = threading.Event()
    report, records = run(stop=stop, on_ready=lambda info: stop.set())
    check_counts(report, records)


def test_a_parameter_file_counts_below_the_overrides(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(
        "/**/perception: {ros__parameters: {tasks: [detector]}}\n"
        "/**/detector: {ros__parameters: {deadline_ms: 77, variants: ['full@null']}}\n"
        "/**/camera: {ros__parameters: {source: 'video:/nowhere.mp4', frame_id: front}}\n"
    )
    overrides = {k: v for k, v in OVERRIDES.items() if k != "segmenter"}
    observed: list[JobRecord] = []
    report = run_graph(
        file, overrides, frames=3, seconds=None, observer=lambda r, w: observed.append(r)
    )
    assert report.info.tasks["detector"].traced.deadline_ns == 77_000_000
    assert list(report.info.tasks) == ["detector"]
    assert len(observed) == 3


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"detector": {"model": "onnx:/nowhere.onnx"}}, "task detector: .*nowhere.onnx"),
        ({"camera": {"source": "video:/nowhere.mp4"}}, "camera camera: .*nowhere.mp4"),
        ({"detector": {"deadline_ms": -5.0}}, "deadline_ms"),
        ({"nobody": {"x": 1}}, "there is no nobody"),
    ],
)
def test_what_cannot_run_says_why(overrides, text):
    with pytest.raises(ConfigurationError, match=text):
        run(overrides, frames=1)


def test_a_parameter_file_that_cannot_be_read_is_said(tmp_path):
    file = tmp_path / "p.yaml"
    with pytest.raises(ConfigurationError, match=r"parameter file .*p\.yaml does not exist"):
        run(params_file=file, frames=1)
    file.write_text("detector: [1, 2\n")
    with pytest.raises(ConfigurationError, match=r"p\.yaml"):
        run(params_file=file, frames=1)


def test_the_shipped_parameter_file_is_the_code():
    """Every key of the file exists, every parameter is in the file, and the values are equal."""
    import yaml

    from jetson_dnn_rt.config.declaration import describe
    from jetson_dnn_rt.config.nodes import CameraConfig, CoordinatorConfig, PerceptionNodeConfig
    from jetson_dnn_rt.config.process import CommonConfig
    from jetson_dnn_rt.config.task import TaskConfig

    def flatten(tree, prefix=""):
        flat: dict[str, Any] = {}
        for key, value in tree.items():
            name = prefix + key
            flat |= flatten(value, name + ".") if isinstance(value, dict) else {name: value}
        return flat

    root = Path(__file__).resolve().parents[2]
    content = yaml.safe_load((root / "config" / "perception.param.yaml").read_text())
    assert content["/**"]["ros__parameters"] == {
        item.name: item.default for item in describe(CommonConfig)
    }
    declared = {
        "perception": PerceptionNodeConfig,
        "camera": CameraConfig,
        "coordinator": CoordinatorConfig,
        "detector": TaskConfig,
    }
    for node, declaration in declared.items():
        items = {item.name: item.to_ros(item.default) for item in describe(declaration)}
        items.pop("camera", None)  # its default depends on the process; the file says so
        assert flatten(content[f"/**/{node}"]["ros__parameters"]) == items
