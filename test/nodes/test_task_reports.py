"""What a task node says of itself, over DDS: labels, timing, diagnostics, pictures, its graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import DurabilityPolicy, QoSProfile
from ros_graph import Ros
from sensor_msgs.msg import Image
from statistics_msgs.msg import MetricsMessage
from std_msgs.msg import Float64
from task_bench import Bench, diagnostics_of, make_image
from vision_msgs.msg import LabelInfo

LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def test_labels_are_latched(ros: Ros) -> None:
    bench = Bench(ros, labels=["car", "truck"])
    bench.start()
    message = ros.listen(LabelInfo, "label_info", LATCHED).wait_count(1)[0]
    assert [(c.class_id, c.class_name) for c in message.class_map] == [(0, "car"), (1, "truck")]
    assert message.threshold == pytest.approx(0.3)
    own = ros.listen(LabelInfo, "detector/label_info", LATCHED)
    assert own.wait_count(1)[0].class_map == message.class_map


def test_timing_is_published_for_whoever_listens(ros: Ros) -> None:
    bench = Bench(ros)
    names = ("processing_time_ms", "pipeline_latency_ms", "lateness_ms", "wcet_ms", "pwcet_ms")
    counters = ("deadline_misses", "deadline_miss_ratio")
    topics = {n: ros.listen(Float64, f"detector/debug/{n}") for n in (*names, *counters)}
    bench.start()
    for name in topics:
        ros.wait(lambda n=name: bench.node._topics.wants(n), name)
    bench.send(make_image(ros), 1)
    values = {name: inbox.wait_count(1)[0].data for name, inbox in topics.items()}
    assert 1.0 <= values["processing_time_ms"] == values["wcet_ms"]
    assert values["pipeline_latency_ms"] >= values["processing_time_ms"]
    assert -1000.0 / 30.0 < values["lateness_ms"] < 0.0
    assert math.isnan(values["pwcet_ms"])  # one frame proves nothing
    assert (values["deadline_misses"], values["deadline_miss_ratio"]) == (0.0, 0.0)
    bench.send(make_image(ros, step=1), 2)
    assert topics["deadline_misses"].wait_count(2)[1].data == 1.0
    assert topics["deadline_miss_ratio"].wait_count(2)[1].data == 0.5


def test_statistics_are_windows_of_the_last_second(ros: Ros) -> None:
    bench = Bench(ros)
    inbox = ros.listen(MetricsMessage, "/statistics")
    bench.start()
    bench.send(make_image(ros), 1)

    def find(messages: list[Any]) -> Any:
        return [
            m for m in messages
            if m.metrics_source == "processing_time" and m.statistics[4].data == 1.0
        ]  # fmt: skip

    message = inbox.wait(find)[0]
    assert (message.measurement_source_name, message.unit) == ("/detector", "ms")
    kinds = [point.data_type for point in message.statistics]
    assert kinds == [1, 2, 3, 4, 5]
    mean, least, most, deviation, count = (point.data for point in message.statistics)
    assert mean == least == most >= 1.0
    assert (deviation, count) == (0.0, 1.0)


def test_diagnostics_say_what_is_going_on(ros: Ros) -> None:
    bench = Bench(ros)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    assert diagnostics_of(inbox, "detector: task_status")[""] == "unconfigured"
    bench.start()
    assert diagnostics_of(inbox, "detector: camera_status", b"\x03")[""] == "no frame yet"
    bench.send(make_image(ros), 1)
    inbox.clear()
    found = diagnostics_of(inbox, "detector: processing_time_status", b"\x00")
    assert float(found["processing_time_ms"]) >= 1.0
    assert found["is_processing_time_ms_in_expected_range"] == "True"
    camera = diagnostics_of(inbox, "detector: camera_status")
    assert camera["frames_received"] == "1"
    assert camera["expected_frequency"] == "30.000"
    task = diagnostics_of(inbox, "detector: task_status")
    assert task["outcome.met"] == "1"
    assert task["released"] == "1"
    assert task["schedulable"] == "True"
    assert "applied" in task["realtime.mallopt"]


def test_a_picture_is_drawn_while_somebody_looks(ros: Ros) -> None:
    bench = Bench(ros)
    results = bench.start()
    bench.send(make_image(ros), 1)
    results.wait_count(1)
    assert bench.node._debug_image.drawn == 0
    pictures = ros.listen(Image, "debug_image")
    ros.wait(lambda: bench.node._debug_image.wanted)
    image = make_image(ros)
    bench.send(image, 2)
    picture = pictures.wait_count(1)[0]
    assert picture.header == image.header
    assert (picture.height, picture.width, picture.encoding) == (48, 64, "bgr8")
    assert np.any(np.frombuffer(picture.data, np.uint8))  # the caption
    assert bench.node._debug_image.drawn == 1


def test_an_incompatible_publisher_is_said(ros: Ros) -> None:
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench = Bench(ros, input_qos="DEFAULT")  # reliable; the publisher is best effort
    assert ros.call(bench.node.autostart)
    ros.wait(lambda: bench.node.host.inputs[0].incompatible == "RELIABILITY")
    found = diagnostics_of(inbox, "detector: camera_status", b"\x02")
    assert found[""] == "/image_raw: incompatible QoS: RELIABILITY"


def test_a_missing_camera_raises_deadline_events(ros: Ros) -> None:
    from rclpy.duration import Duration
    from rclpy.qos import qos_profile_sensor_data

    bench = Bench(ros, input_qos_deadline_ms=50.0)
    qos = QoSProfile(
        depth=1,
        reliability=qos_profile_sensor_data.reliability,
        deadline=Duration(nanoseconds=50_000_000),
    )
    ros.call(lambda: ros.probe.destroy_publisher(bench.images))
    bench.images = ros.advertise(Image, "image_raw", qos)
    bench.start()
    bench.send(make_image(ros), 1)
    ros.wait(lambda: bench.node.host.inputs[0].deadline_events > 0, "a deadline event")


def test_quality_of_service_can_be_overridden(ros: Ros) -> None:
    bench = Bench(ros, **{"qos_overrides./image_raw.subscription.depth": 3})
    bench.start()
    assert bench.node.get_parameter("qos_overrides./image_raw.subscription.depth").value == 3
    (info,) = ros.probe.get_subscriptions_info_by_topic("/image_raw")
    assert info.node_name == "detector"
    ros.call(bench.node.trigger_deactivate)
    assert ros.call(bench.node.autostart)


def test_simulated_time_gives_the_age_of_a_frame(ros: Ros) -> None:
    from rosgraph_msgs.msg import Clock

    bench = Bench(ros, use_sim_time=True, deadline_ms=1000.0)
    clock = ros.advertise(Clock, "/clock", 10)
    captures: list[int] = []
    bench.node._observer = lambda record, work: captures.append(
        record.release_ns - record.capture_ns
    )
    bench.start()
    ros.wait(clock.get_subscription_count)
    now = Clock()
    now.clock.sec = 1000
    clock.publish(now)
    ros.wait(lambda: bench.node.get_clock().now().nanoseconds == 1000 * 10**9)
    image = make_image(ros)
    image.header.stamp.sec, image.header.stamp.nanosec = 999, 950_000_000
    bench.send(image, 1)
    assert bench.node.host.executor.wait_idle(5.0)
    # 50 ms by simulated time, plus the way from arrival to release.
    assert 50_000_000 <= captures[0] < 1_000_000_000
    assert bench.node.host.inputs[0].distrusted_stamps == 0


def test_a_misspelt_parameter_of_a_file_is_said(ros: Ros) -> None:
    said: list[str] = []
    bench = Bench(ros, deadlin_ms=5.0)
    logger = bench.node.get_logger()
    bench.node.get_logger = lambda: type("Log", (), {
        **{n: staticmethod(getattr(logger, n)) for n in ("info", "error", "warn")},
        "warning": staticmethod(said.append),
    })  # fmt: skip
    assert ros.call(bench.node.autostart)
    assert "there is no parameter deadlin_ms: its value is not used" in said
