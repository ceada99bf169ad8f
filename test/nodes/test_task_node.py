"""A task node alone, over DDS: results, bad input, parameters, reports."""

from __future__ import annotations

import array
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import DurabilityPolicy, QoSProfile
from ros_graph import Inbox, Ros
from sensor_msgs.msg import Image
from statistics_msgs.msg import MetricsMessage
from std_msgs.msg import Float64
from std_srvs.srv import SetBool
from vision_msgs.msg import Detection2DArray, LabelInfo

from jetson_dnn_rt.nodes.task_node import DetectorNode, SegmenterNode
from jetson_dnn_rt.tasks import Outcome

LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def make_image(ros: Ros, size: tuple[int, int] = (48, 64), /, **changes: Any) -> Image:
    height, width = size
    message = Image(height=height, width=width, encoding="bgr8", step=width * 3)
    message.data = array.array("B", bytes(height * width * 3))
    message.header.stamp = ros.probe.get_clock().now().to_msg()
    message.header.frame_id = "front"
    for name, value in changes.items():
        setattr(message, name, value)
    return message


class Bench:
    """A task node with a publisher before it and a subscription behind it."""

    def __init__(self, ros: Ros, node_class: Any = DetectorNode, **values: Any) -> None:
        self.ros = ros
        self.node = ros.make(
            node_class,
            parameter_overrides=_parameters({"model": "null:1", "warmup_runs": 2, **values}),
        )
        self.images = ros.advertise(Image, "image_raw")

    def start(self) -> Inbox:
        results = self.ros.listen(Detection2DArray, "detections")
        assert self.ros.call(self.node.autostart), self.node.fault
        self.ros.wait(lambda: self.images.get_subscription_count() == 1, "the subscription")
        self.ros.wait(results.subscription.get_publisher_count, "the publisher")
        self.ros.wait(lambda: self.node._results._publisher.get_subscription_count())
        return results

    def count(self, outcome: Outcome) -> int:
        return self.node.snapshot.outcomes[outcome]

    def send(self, message: Any, count: int) -> None:
        """Send a message and wait until it is the `count`-th that is accounted for."""
        self.images.publish(message)
        self.ros.wait(
            lambda: sum(self.node.snapshot.outcomes.values()) == count, f"outcome {count}"
        )


def _parameters(values: dict[str, Any]) -> list[Any]:
    from rclpy.parameter import Parameter

    return [Parameter(name, value=value) for name, value in values.items()]


def diagnostics_of(inbox: Inbox, name: str, level: bytes | None = None) -> dict[str, str]:
    """Wait for a status of that name (and level) and return its message and values."""

    def find(messages: list[Any]) -> Any:
        for message in reversed(messages):
            for status in message.status:
                if status.name == name and level in (None, status.level):
                    return status
        return None

    status = inbox.wait(find, f"diagnostics {name} at level {level!r}")
    return {"": status.message, **{v.key: v.value for v in status.values}}


def test_a_frame_becomes_a_result_under_its_own_header(ros: Ros) -> None:
    bench = Bench(ros)
    results = bench.start()
    image = make_image(ros)
    bench.send(image, 1)
    message = results.wait_count(1)[0]
    assert message.header == image.header
    # Nothing was seen, and that is said.
    assert len(message.detections) == 0
    assert bench.count(Outcome.MET) == 1


def test_masks_have_the_size_of_the_source(ros: Ros) -> None:
    bench = Bench(ros, SegmenterNode, model="null:1,segmentation", kind="segmentation")
    classes = ros.listen(Image, "class_mask")
    colours = ros.listen(Image, "color_mask")
    assert ros.call(bench.node.autostart)
    ros.wait(lambda: bench.images.get_subscription_count() == 1)
    ros.wait(lambda: bench.node._results._class_publisher.get_subscription_count())
    ros.wait(lambda: bench.node._results._color_publisher.get_subscription_count())
    image = make_image(ros, (50, 70))
    bench.send(image, 1)
    mask, colour = classes.wait_count(1)[0], colours.wait_count(1)[0]
    assert (mask.height, mask.width, mask.encoding, mask.step) == (50, 70, "mono8", 70)
    assert (colour.height, colour.width, colour.encoding) == (50, 70, "rgb8")
    assert mask.header == colour.header == image.header
    assert not np.any(np.frombuffer(mask.data, np.uint8))


BAD = {
    "encoding": {"encoding": "yuv422_yuy2"},
    "step": {"step": 10},
    "size": {"height": 0, "width": 0},
    "truncated": {"data": array.array("B", bytes(100))},
    "huge": {"height": 16384, "width": 16384, "step": 49152},
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_image_fails_alone(ros: Ros, fault: str) -> None:
    bench = Bench(ros)
    results = bench.start()
    bench.send(make_image(ros), 1)
    bench.send(make_image(ros, **BAD[fault]), 2)
    bench.send(make_image(ros), 3)
    results.wait_count(2)
    assert bench.count(Outcome.FAILED) == 1
    assert bench.count(Outcome.MET) == 2
    reason = "size" if fault == "huge" else fault
    assert bench.node.snapshot.reasons == {reason: 1}


@pytest.mark.parametrize(
    ("seconds", "nanoseconds"), [(0, 0), (2**31 - 1, 999_999_999), (-(2**31), 0), (1, 0)]
)
def test_extreme_stamps_are_worked_on_and_handed_on(
    ros: Ros, seconds: int, nanoseconds: int
) -> None:
    bench = Bench(ros, max_age_ms=500.0)
    results = bench.start()
    image = make_image(ros)
    image.header.stamp.sec, image.header.stamp.nanosec = seconds, nanoseconds
    bench.send(image, 1)
    assert results.wait_count(1)[0].header == image.header
    (stream,) = bench.node.host.inputs
    assert stream.distrusted_stamps == 1


def test_stamps_that_go_backwards_are_worked_on(ros: Ros) -> None:
    bench = Bench(ros)
    results = bench.start()
    newer, older = make_image(ros), make_image(ros)
    older.header.stamp.sec = newer.header.stamp.sec - 1
    bench.send(newer, 1)
    bench.send(older, 2)
    assert [m.header for m in results.wait_count(2)] == [newer.header, older.header]
    assert bench.node.host.inputs[0].distrusted_stamps == 1


def test_an_old_frame_is_skipped_as_stale(ros: Ros) -> None:
    bench = Bench(ros, max_age_ms=100.0)
    bench.start()
    old = make_image(ros)
    old.header.stamp.sec -= 2
    bench.send(old, 1)
    assert bench.node.snapshot.reasons == {"stale": 1}
    assert ros.set(bench.node, max_age_ms=5000).successful
    old.header.stamp.sec += 1
    bench.send(old, 2)
    assert bench.count(Outcome.MET) == 1


def test_frames_count_while_active_and_enabled_only(ros: Ros) -> None:
    bench = Bench(ros)
    bench.start()
    bench.send(make_image(ros), 1)
    reply = ros.request(SetBool, "detector/enable", SetBool.Request(data=False))
    assert reply.success
    bench.images.publish(make_image(ros))
    bench.images.publish(make_image(ros))
    # The next request is answered after those messages were taken.
    ros.request(SetBool, "detector/enable", SetBool.Request(data=True))
    ros.request(SetBool, "detector/enable", SetBool.Request(data=True))
    bench.send(make_image(ros), 2)
    assert bench.node.snapshot.released == 2
    ros.call(bench.node.trigger_deactivate)
    assert bench.node.snapshot is None
    assert bench.images.get_subscription_count() in (0, 1)  # discovery of the end takes a moment
    ros.wait(lambda: bench.images.get_subscription_count() == 0)
    assert ros.call(bench.node.autostart)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("confidence_threshold", 1.5, "confidence_threshold"),
        ("confidence_threshold", "high", "must be a float"),
        ("deadline_ms", -1.0, "deadline_ms"),
        ("late_results", "maybe", "late_results must be one of drop, publish: 'maybe'"),
        ("variant", "full@magic-fp32", "back end must be one of"),
        ("variant", "full@torch-fp32", "variant must be one of full@null"),
        ("variant", "nonsense", "must look like"),
        ("model", "null:2", "model is read when the node is configured: clean it up first"),
        ("max_detections", 0, "max_detections"),
        ("max_detections", 1.5, "Wrong parameter type"),
    ],
)
def test_a_bad_value_is_rejected_with_its_reason(
    ros: Ros, name: str, value: Any, reason: str
) -> None:
    bench = Bench(ros)
    bench.start()
    before = bench.node.get_parameter(name).value
    result = ros.set(bench.node, **{name: value})
    assert not result.successful
    assert reason in result.reason
    assert bench.node.get_parameter(name).value == before


def test_parameters_change_while_running(ros: Ros) -> None:
    bench = Bench(ros, deadline_ms=100.0)
    results = bench.start()
    bench.send(make_image(ros), 1)
    assert bench.node.snapshot.parameters.deadline_ns == 100_000_000
    # A whole number is a number of milliseconds too.
    assert ros.set(bench.node, deadline_ms=50).successful
    assert bench.node.snapshot.parameters.deadline_ns == 50_000_000
    assert ros.set(bench.node, confidence_threshold=0.9, max_detections=3).successful
    assert bench.node.loaded.settings.confidence == 0.9
    ros.set(bench.node, max_detections=3)
    assert bench.node.loaded.settings.max_detections == 3
    bench.send(make_image(ros), 2)
    results.wait_count(2)
    ros.call(bench.node.trigger_deactivate)
    ros.call(bench.node.trigger_cleanup)
    assert ros.set(bench.node, model="null:2").successful


def test_parameters_are_described(ros: Ros) -> None:
    node = Bench(ros).node
    descriptor = node.describe_parameter("confidence_threshold")
    assert descriptor.floating_point_range[0].to_value == 1.0
    assert descriptor.description == "Smallest score of a box"
    assert node.describe_parameter("deadline_ms").description.endswith("[ms]")
    assert node.describe_parameter("late_results").additional_constraints == "one of drop, publish"


def write(file: Path, data: bytes) -> str:
    file.write_bytes(data)
    return str(file)


@pytest.mark.parametrize("fault", ["missing", "empty", "truncated", "wrong task", "pickle"])
def test_a_bad_model_leaves_the_node_unconfigured_with_the_reason(
    ros: Ros, fault: str, tmp_path: Path, shared_data: Path
) -> None:
    good = shared_data / "models" / "yolox_nano.onnx"
    kind = "detection"
    if fault == "missing":
        model, reason = f"onnx:{tmp_path}/no.onnx", "no.onnx"
    elif fault == "empty":
        model, reason = "onnx:" + write(tmp_path / "empty.onnx", b""), "empty"
    elif fault == "truncated":
        data = good.read_bytes()[:100_000]
        model, reason = "onnx:" + write(tmp_path / "short.onnx", data), "short.onnx"
    elif fault == "wrong task":
        model, reason, kind = f"onnx:{good}", "segmentation", "segmentation"
    else:
        pytest.importorskip("torch", reason="torch is not installed")
        model, reason = "torchvision:ssdlite320_mobilenet_v3_large", "weights"
    bench = Bench(ros, model=model, kind=kind)
    if fault == "pickle":
        import pickle

        class Bomb:
            def __reduce__(self) -> Any:
                return (print, ("run from a weights file",))

        weights = write(tmp_path / "weights.pth", pickle.dumps(Bomb()))
        assert ros.set(bench.node, weights=weights).successful
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    assert not ros.call(bench.node.autostart)
    assert bench.node.is_unconfigured
    assert reason in bench.node.fault
    found = diagnostics_of(inbox, "detector: processing_time_status", b"\x02")
    assert found[""] == bench.node.fault
    # The mend is one parameter away.
    for name, value in {"model": "null:1", "kind": "detection"}.items():
        assert ros.set(bench.node, **{name: value}).successful
    assert ros.call(bench.node.autostart), bench.node.fault


def test_variants_are_switched_while_running(ros: Ros, shared_data: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("openvino", reason="openvino is not installed")
    variants = ["full@onnxruntime-fp32", "full@openvino-fp32"]
    bench = Bench(
        ros,
        model=f"onnx:{shared_data}/models/yolox_nano.onnx",
        variants=variants,
        deadline_ms=5000.0,
    )
    ran: list[str] = []
    bench.node._observer = lambda record, work: ran.append(record.variant)
    results = bench.start()
    bench.send(make_image(ros), 1)
    assert ros.set(bench.node, variant="full@openvino").successful
    bench.send(make_image(ros), 2)
    assert ros.set(bench.node, variant="").successful
    bench.send(make_image(ros), 3)
    results.wait_count(3)
    assert ran == [variants[0], variants[1], variants[0]]


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


@pytest.mark.parametrize(("late_results", "published"), [("drop", 0), ("publish", 1)])
def test_a_late_result_is_dropped_or_published_as_configured(
    ros: Ros, late_results: str, published: int
) -> None:
    # Three cold and two measured runs are fast; then the last stage takes too long.
    decode = "/".join(["1"] * 5 + ["80"])
    bench = Bench(ros, model=f"null:decode={decode}", deadline_ms=40.0, late_results=late_results)
    results = bench.start()
    bench.send(make_image(ros), 1)
    assert bench.count(Outcome.LATE) == 1
    assert bench.node.host.executor.wait_idle(5.0)
    assert bench.node.published == published
    if published:
        results.wait_count(1)


def test_a_hung_stage_fails_its_frame_and_the_task_comes_back(ros: Ros) -> None:
    bench = Bench(
        ros, model="null:" + "/".join(["1"] * 5 + ["1500"] + ["1"] * 20), stage_timeout_ms=100.0
    )
    bench.start()
    bench.send(make_image(ros), 1)
    assert bench.count(Outcome.FAILED) == 1
    ros.wait(lambda: not bench.node.snapshot.suspended, "the restart")
    deadline = time.monotonic() + 10.0
    count = 1
    while bench.count(Outcome.MET) == 0 and time.monotonic() < deadline:
        count += 1
        bench.send(make_image(ros), count)
    assert bench.count(Outcome.MET) == 1


def test_compressed_images_are_taken(ros: Ros) -> None:
    import cv2
    from sensor_msgs.msg import CompressedImage

    bench = Bench(ros, image_transport="compressed")
    bench.images = ros.advertise(CompressedImage, "image_raw/compressed")
    results = bench.start()
    message = CompressedImage(format="jpeg")
    message.header.stamp = ros.probe.get_clock().now().to_msg()
    message.data = cv2.imencode(".jpg", np.zeros((48, 64, 3), np.uint8))[1].tobytes()
    bench.send(message, 1)
    bench.send(CompressedImage(format="jpeg", data=b"\xff\xd8broken"), 2)
    bench.send(message, 3)
    assert results.wait_count(2)[0].header == message.header
    assert bench.node.snapshot.reasons == {"truncated": 1}


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
