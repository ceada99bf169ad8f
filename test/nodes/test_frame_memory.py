"""A camera and a task of one process on a made-up CUDA device: frames are read where they lie."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from fake_cuda import FakeCuda, IntegratedCuda
from fake_tensorrt import make_tensorrt
from host_kernel import HostKernel, compile_for_host
from ros_graph import TIMEOUT_S, Ros

from jetson_dnn_rt.nodes.perception import PerceptionNode
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work
from jetson_dnn_rt.variants.running import frame_processor

TENSORRT = "full@tensorrt-fp32"


class Seen:
    """Keeps what ends, and waits for it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._ended: list[tuple[JobRecord, Work]] = []
        self._enough = threading.Event()

    def __call__(self, record: JobRecord, work: Work) -> None:
        if record.outcome is Outcome.MET and work.result is not None:
            self._ended.append((record, work))
        if len(self._ended) >= self._count:
            self._enough.set()

    def wait(self) -> list[tuple[JobRecord, Work]]:
        assert self._enough.wait(TIMEOUT_S), self._ended
        return self._ended[: self._count]


@pytest.mark.parametrize(
    ("device", "fetched"), [(IntegratedCuda, False), (FakeCuda, True)], ids=["mapped", "pinned"]
)
def test_frames_of_the_camera_are_converted_on_the_device(
    ros: Ros, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Any, fetched: bool
) -> None:
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
    seen = Seen(5)
    task, camera = "front/detector", "front/camera"
    node = ros.make(
        PerceptionNode,
        overrides={
            "perception": {"tasks": [task], "cameras": [camera], "coordinator": False},
            camera: {"source": "synthetic:320x240", "rate": 30.0},
            task: {
                "model": "builtin:detector", "variants": [TENSORRT], "warmup_runs": 1,
                "camera": camera, "deadline_ms": 5000.0, "engine_cache": "none",
            },
        },
        observer=seen,
    )  # fmt: skip
    assert ros.call(node.autostart), node.fault
    loaded = node.tasks[task].loaded
    assert loaded is not None
    measured = kernel.launches
    assert measured >= 1  # the warm-up went the same way
    ended = seen.wait()
    ros.call(node.trigger_deactivate)
    assert kernel.launches >= measured + len(ended)
    image = loaded.variants.pipelines[TENSORRT].processor.image
    results = 0
    for record, work in ended:
        assert work.frame.device_address
        results = record.copied_bytes - image.nbytes - fetched * work.frame.image.nbytes
        assert 0 < results < image.nbytes  # nothing else but the outputs
    ros.call(node.trigger_cleanup)
