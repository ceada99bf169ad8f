# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A camera and a task of one process on a made-up CUDA device: frames are read where they lie."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from fake_cuda import FakeCuda, IntegratedCuda
from fake_tensorrt import make_tensorrt
from host_kernel import HostKernel, compile_for_host
from photos import write_photos
from task_bench import Seen

from jetson_dnn_rt.nodes.perception import PerceptionNode
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.variants.running import frame_processor

TENSORRT = "full@tensorrt-fp32"


@pytest.mark.parametrize("source", ["synthetic:320x240", "images:{}"], ids=["one size", "photos"])
@pytest.mark.parametrize(
    ("device", "fetched"), [(IntegratedCuda, False), (FakeCuda, True)], ids=["mapped", "pinned"]
)
def test_frames_of_the_camera_are_converted_on_the_device(
    ros, tmp_path, monkeypatch, device, fetched, source
):
    write_photos(tmp_path / "photos", 20)
    kernel = HostKernel(compile_for_host(tmp_path))
    monkeypatch.setattr(frame_processor, "load_kernel", lambda: kernel)
    monkeypatch.setitem(sys.modules, "tensorrt", make_tensorrt("10.3.0"))
    for name in (
        "backends.tensorrt.runner",
        "backends.memory",
        "variants.running.frame_processor",
        "backends.cuda.owners",  # last: the others import its function
    ):
        monkeypatch.setattr(f"jetson_dnn_rt.{name}.open_cuda", device)
    seen = Seen()

    def observe(record, work):
        # A work holds its frame, and with it one of the few buffers of the camera.
        if record.outcome is Outcome.MET and work.result is not None and len(seen.items) < 5:
            seen(record, work)

    task, camera = "front/detector", "front/camera"
    node = ros.make(
        PerceptionNode,
        overrides={
            "perception": {"tasks": [task], "cameras": [camera], "coordinator": False},
            camera: {"source": source.format(tmp_path / "photos"), "rate": 30.0},
            task: {
                "model": "builtin:detector", "variants": [TENSORRT], "warmup_runs": 1,
                "camera": camera, "deadline_ms": 5000.0, "engine_cache": "none",
            },
        },
        observer=observe,
    )  # fmt: skip
    before_frames = []
    node.on_tasks_ready = lambda: before_frames.append(kernel.launches)
    assert node.autostart(), node.fault
    loaded = node.tasks[task].loaded
    assert loaded is not None
    (measured,) = before_frames
    assert measured >= 1  # the warm-up went the same way
    ended = seen.wait(5)
    node.trigger_deactivate()
    assert kernel.launches >= measured + len(ended)
    image = loaded.variants.pipelines[TENSORRT].processor.image
    assert len({work.frame.image.shape for _, work in ended}) == (1 if "x" in source else 5)
    results = 0
    for record, work in ended:
        assert work.frame.device_address
        results = record.copied_bytes - image.nbytes - fetched * work.frame.image.nbytes
        assert 0 < results < image.nbytes  # nothing else but the outputs
    node.trigger_cleanup()
