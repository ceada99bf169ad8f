# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What a task node says of itself, over DDS: labels, timing, diagnostics, pictures, its graph."""

from __future__ import annotations

import array
import ast
import math
import platform
import re
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from dds_ports import find_own_ports, hidden
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from sensor_msgs.msg import CompressedImage, Image
from statistics_msgs.msg import MetricsMessage
from std_msgs.msg import Float64
from task_bench import Bench, Log, diagnostics_of, make_image, wait_for_value
from timing_keys import read_documented_keys
from vision_msgs.msg import LabelInfo

from jetson_dnn_rt.coordinator.tables.files import TableFile, save_tables
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.nodes.reports import timing_reports
from jetson_dnn_rt.nodes.tasks import image_input
from jetson_dnn_rt.nodes.tasks.task_node import DetectorNode
from jetson_dnn_rt.platforms.clocks import ClockSpace
from jetson_dnn_rt.platforms.load import LOAD, Load
from jetson_dnn_rt.tasks import Outcome

ROOT = Path(__file__).parents[2]

LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def test_labels_are_latched(ros):
    bench = Bench(ros, labels=["car", "truck"])
    bench.start()
    message = ros.listen(LabelInfo, "label_info", LATCHED).wait_count(1)[0]
    assert [(c.class_id, c.class_name) for c in message.class_map] == [(0, "car"), (1, "truck")]
    assert message.threshold == pytest.approx(0.3)
    own = ros.listen(LabelInfo, "detector/label_info", LATCHED)
    assert own.wait_count(1)[0].class_map == message.class_map


def test_timing_is_published_for_whoever_listens(ros):
    bench = Bench(ros)
    names = ("processing_time_ms", "pipeline_latency_ms", "lateness_ms", "wcet_ms", "pwcet_ms")
    counters = ("deadline_misses", "deadline_miss_ratio", "copied_bytes")
    topics = {n: ros.listen(Float64, f"detector/debug/{n}") for n in (*names, *counters)}
    bench.start()
    for name in topics:
        ros.wait(lambda n=name: n in bench.node._reports.topics.wanted, name)
    bench.send(make_image(ros), 1)
    values = {name: inbox.wait_count(1)[0].data for name, inbox in topics.items()}
    assert 1.0 <= values["processing_time_ms"] == values["wcet_ms"]
    assert values["pipeline_latency_ms"] >= values["processing_time_ms"]
    assert -500.0 < values["lateness_ms"] < 0.0
    assert math.isnan(values["pwcet_ms"])  # one frame proves nothing
    # The conversion into the input, and nothing else: three channels of float32.
    assert values["copied_bytes"] == 3 * 4 * 48 * 64
    assert (values["deadline_misses"], values["deadline_miss_ratio"]) == (0.0, 0.0)
    bench.send(make_image(ros, step=1), 2)
    assert topics["deadline_misses"].wait_count(2)[1].data == 1.0
    assert topics["deadline_miss_ratio"].wait_count(2)[1].data == 0.5


def test_figures_are_published_by_task_and_by_variant(ros):
    bench = Bench(ros, variants=["full@null"], deadline_ms=500.0)
    names = ("count", "best_ms", "mean_ms", "p50_ms", "hwm_ms")
    topics = {n: ros.listen(Float64, f"detector/debug/{n}") for n in names}
    path = "detector/debug/variants/full_null"
    own = {n: ros.listen(Float64, f"{path}/{n}") for n in names[3:]}
    deadline = ros.listen(Float64, "detector/debug/deadline_ms")
    bench.start()
    ros.wait(lambda: "deadline_ms" in bench.node._reports.topics.wanted, "deadline_ms")
    for number in range(1, 4):
        bench.send(make_image(ros), number)
    assert deadline.wait_count(3)[0].data == 500.0
    whole = bench.node.timing.snapshot().whole
    assert whole.count == 3
    # Once a second, so that sooner or later all are those of three frames.
    for name, inbox in [*topics.items(), *own.items()]:
        value = getattr(whole, name)
        inbox.wait(lambda messages, v=value: messages and messages[-1].data == v, name)
    assert 1.0 <= whole.best_ms <= whole.mean_ms <= whole.hwm_ms
    assert whole.best_ms <= whole.p50_ms <= whole.hwm_ms


def test_outputs_that_cannot_be_right_are_a_warning(ros):
    bench = Bench(ros, deadline_ms=500.0)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    bench.node.loaded.output_check.note_nan()
    found = diagnostics_of(inbox, "/detector: task_status", b"\x01")
    assert found[""] == found["outputs.nan"]
    assert "the outputs hold NaN" in found[""]


def test_drift_is_published_and_diagnosed(ros, tmp_path):
    stages = ("preprocess", "inference", "decode")
    # Profiled at 3 us: a model that takes 1 ms is far from it.
    table = TaskTable(
        "detector", stages, ("full@null",), 10**9, 10**9, np.full((1, 3, 100), 1000),
        np.ones((1, 3, 1)), np.ones((1, 3, 1)), np.zeros((1, 3)),
    )  # fmt: skip
    clocks = ClockTable(ClockSpace([]), np.array([0]), np.zeros(1), 0, 0)
    save_tables(tmp_path / "tables.json", TableFile(clocks, (table,)))
    bench = Bench(ros, profile=str(tmp_path), deadline_ms=500.0)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    level = ros.listen(Float64, "detector/debug/drift")
    bench.start()
    assert diagnostics_of(inbox, "/detector: drift_status")[""] == "no frame yet"
    for number in range(1, 13):
        bench.send(make_image(ros), number)
    found = diagnostics_of(inbox, "/detector: drift_status", b"\x01")
    assert found[""].startswith("times no longer match the profile: full@null: ")
    assert found["profile"] == str(tmp_path / "tables.json")
    assert "100 % of the last frames took longer than its p99 of 0.00 ms" in found[""]
    assert found["full@null.profiled_p99_ms"] == "0.003"
    level.wait(lambda messages: messages and messages[-1].data >= 1.0)


def test_statistics_are_windows_of_the_last_second(ros):
    bench = Bench(ros)
    inbox = ros.listen(MetricsMessage, "/statistics")
    bench.start()
    bench.send(make_image(ros), 1)

    def find(metric):
        return inbox.wait(
            lambda messages: [
                m for m in messages
                if m.metrics_source == metric and m.statistics[4].data == 1.0
            ],
            metric,
        )[0]  # fmt: skip

    message = find("processing_time")
    assert (message.measurement_source_name, message.unit) == ("/detector", "ms")
    assert [point.data_type for point in message.statistics] == [1, 2, 3, 4, 5]
    mean_ms, least, most, deviation, count = (point.data for point in message.statistics)
    assert mean_ms == least == most >= 1.0
    assert (deviation, count) == (0.0, 1.0)
    # Variants are told apart, and there are the percentiles.
    assert find("processing_time/full@null").statistics[0].data == mean_ms
    for metric in ("p50", "hwm"):  # a p99 takes 100 frames
        found_ms = find(f"processing_time_{metric}").statistics[0].data
        assert found_ms == pytest.approx(mean_ms, rel=1e-3)


def test_diagnostics_say_what_is_going_on(ros):
    bench = Bench(ros, allowed_processing_ms=9000.0, expected_frequency=2.0)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    assert diagnostics_of(inbox, "/detector: task_status")[""] == "unconfigured"
    bench.start()
    silent = diagnostics_of(inbox, "/detector: camera_status", b"\x01")
    assert silent[""] == "no frame yet: 1 publisher of /image_raw, from which nothing comes"
    assert (silent["publishers"], silent["publishers_connected"]) == ("1", "1")
    bench.send(make_image(ros), 1)
    inbox.clear()
    found = diagnostics_of(inbox, "/detector: processing_time_status", b"\x00")
    assert float(found["processing_time_ms"]) >= 1.0
    assert found["is_processing_time_ms_in_expected_range"] == "True"
    camera = diagnostics_of(inbox, "/detector: camera_status")
    assert camera["frames_received"] == "1"
    assert camera["expected_frequency"] == "2.000"
    task = diagnostics_of(inbox, "/detector: task_status")
    assert task["outcome.met"] == "1"
    assert task["released"] == "1"
    assert task["schedulable"] == "True"
    assert task["schedulability_at_start"].startswith("schedulable: utilisation")
    assert task["rates"] == "detector 2.0 Hz (assumed)"
    assert re.fullmatch(
        r"preprocess [\d.]+ of [\d.]+, inference [\d.]+ of [\d.]+, decode [\d.]+ of [\d.]+",
        task["cpu_ms.full@null"],
    )


def test_diagnostics_say_that_other_programs_have_the_cores(ros, monkeypatch):
    """D5: with 4 busy processes beside it nothing in diagnostics said so."""
    crowded = Load(5.0, 2, 0.1, 1.9, 0.8)
    monkeypatch.setattr(LOAD, "look", lambda: crowded)
    bench = Bench(ros, expected_frequency=2.0)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    sentence = (
        "other programs used 1.9 of 2 cores, this process 0.1, whose threads waited 0.8 s of each "
        "second for a core"
    )
    inbox.clear()
    process = diagnostics_of(inbox, "/detector: process_status", b"\x01")
    assert process[""] == sentence
    assert (process["others_cores"], process["cores"]) == ("1.900", "2")
    task = diagnostics_of(inbox, "/detector: task_status", b"\x00")
    assert task[""] == f"active; {sentence}"
    # What is unknown says so, and is no warning.
    monkeypatch.setattr(LOAD, "look", lambda: Load(5.0, 2, 0.1, None, None))
    inbox.clear()
    process = diagnostics_of(inbox, "/detector: process_status", b"\x00")
    assert process["others_cores"] == "unknown"


def test_violations_of_a_weakly_hard_limit_are_counted_and_warned_of(ros):
    """Two of three: one frame that is no image is nothing, the second in a row violates it."""
    bench = Bench(ros, met_of=[2, 3], deadline_ms=60_000.0, expected_frequency=0.1)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    good, bad = (lambda: make_image(ros)), (lambda: make_image(ros, step=1))

    def send(number, make):
        bench.send(make(), number)
        limit = bench.node.snapshot.limit
        return limit.distance, limit.violations

    assert [send(1, good), send(2, bad)] == [(2, 0), (1, 0)]
    inbox.clear()
    task = diagnostics_of(inbox, "/detector: task_status", b"\x00")
    assert task["met_of"] == "[2, 3]"
    assert (task["met_of_distance"], task["met_of_violations"]) == ("1", "0")
    assert [send(3, bad), send(4, good)] == [(0, 1), (0, 2)]
    inbox.clear()
    task = diagnostics_of(inbox, "/detector: task_status", b"\x01")
    text = "met_of [2, 3] is violated: fewer than 2 of the last 3 frames were met"
    assert task[""].startswith(text)  # of a busy machine there is more
    assert (task["met_of_distance"], task["met_of_violations"]) == ("0", "2")
    # It is over, and still counted.
    assert send(5, good) == (2, 2)
    inbox.clear()
    task = diagnostics_of(inbox, "/detector: task_status", b"\x00")
    assert task["met_of_violations"] == "2"


def test_a_task_without_a_weakly_hard_limit_says_nothing_of_one(ros):
    bench = Bench(ros, expected_frequency=2.0)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    bench.send(make_image(ros, step=1), 1)
    inbox.clear()
    task = diagnostics_of(inbox, "/detector: task_status")
    assert not [key for key in task if key.startswith("met_of")]


def test_a_deadline_that_was_changed_is_in_the_verdict_of_diagnostics(ros):
    """D4: what was too short for any frame stayed "schedulable", as at the start."""
    bench = Bench(ros, deadline_ms=500.0, expected_frequency=2.0)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    wait_for_value(inbox, "/detector: task_status", "schedulable", "True")
    [done] = bench.node.set_parameters([Parameter("deadline_ms", value=0.04)])
    assert done.successful, done.reason
    task = wait_for_value(inbox, "/detector: task_status", "schedulable", "False")
    assert task[""].startswith("NOT schedulable: ")
    assert "task detector alone needs" in task[""]
    assert task["schedulability_at_start"].startswith("schedulable: ")
    assert "applied" in task["realtime.mallopt"]


def test_a_picture_is_drawn_while_somebody_looks(ros):
    """EDGES 23: the first frame is past the point where a picture of it would be drawn."""
    bench = Bench(ros, deadline_ms=500.0)
    results = bench.start()
    bench.send(make_image(ros), 1)
    results.wait_count(1)
    assert bench.node._debug_image.drawn == 0
    pictures = ros.listen(Image, "debug_image", qos_profile_sensor_data)
    small = ros.listen(CompressedImage, "debug_image/compressed", qos_profile_sensor_data)
    drawing = bench.node._debug_image
    for publisher in (drawing._publishers[1], drawing._compressed[1]):
        ros.wait(publisher.get_subscription_count)
    image = make_image(ros)
    bench.send(image, 2)
    picture = pictures.wait_count(1)[0]
    found = small.wait_count(1)[0]
    assert (found.header, found.format) == (image.header, "bgr8; jpeg compressed bgr8")
    jpeg = cv2.imdecode(np.frombuffer(found.data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert jpeg.shape == (48, 64, 3)
    (info,) = bench.node.get_publishers_info_by_topic("/debug_image")
    assert info.qos_profile.reliability == ReliabilityPolicy.RELIABLE  # as RViz asks for
    assert picture.header == image.header
    assert (picture.height, picture.width, picture.encoding) == (48, 64, "bgr8")
    assert np.any(np.frombuffer(picture.data, np.uint8))  # the caption
    ros.wait(lambda: bench.node._debug_image.drawn == 1)  # counted behind the sending


@pytest.mark.parametrize(
    ("encoding", "pixel", "rows"),
    [("nv12", 1, 72), ("yuv422_yuy2", 2, 48), ("bayer_grbg8", 1, 48)],
)
def test_frames_of_cameras_without_a_converter(ros, encoding, pixel, rows):
    """YUV and Bayer, rows padded: a result, its bytes, a picture in colours."""
    bench = Bench(ros)
    results = bench.start()
    pictures = ros.listen(Image, "debug_image", qos_profile_sensor_data)
    copied = ros.listen(Float64, "detector/debug/copied_bytes")
    ros.wait(lambda: bench.node._debug_image.wanted)
    ros.wait(lambda: "copied_bytes" in bench.node._reports.topics.wanted)
    step = 64 * pixel + 32
    data = array.array("B", bytes([128]) * (step * rows))
    bench.send(make_image(ros, encoding=encoding, step=step, data=data), 1)
    results.wait_count(1)
    assert copied.wait_count(1)[0].data == 3 * 4 * 48 * 64
    picture = pictures.wait_count(1)[0]
    assert (picture.height, picture.width, picture.encoding) == (48, 64, "bgr8")
    pixels = np.frombuffer(picture.data, np.uint8).reshape(48, 64, 3)
    # 1.164 * (128 - 16) = 130 of Y; a Bayer sample is what it is.
    assert pixels[40, 10].tolist() == [128 if encoding.startswith("bayer") else 130] * 3


def test_each_reason_for_a_topic_without_images_is_logged_once(ros, monkeypatch):
    monkeypatch.setattr(image_input, "SILENCE_S", 0.1)
    bench = Bench(ros, node_class=lambda **options: DetectorNode(namespace="front", **options))
    log = Log(bench.node)
    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
    assert bench.node.autostart(), bench.node.fault
    ros.wait(lambda: log.count("no image 0 s after subscribing"), "the warning")
    camera = diagnostics_of(diagnostics, "/front/detector: camera_status", b"\x01")
    assert camera[""] == "no frame yet: no publisher of /front/image_raw was discovered"
    assert camera["publishers"] == "0"
    images = ros.advertise(Image, "/front/image_raw")
    ros.wait(lambda: log.count("1 publisher of /front/image_raw, from which nothing comes"))
    assert log.count("no publisher of /front/image_raw was discovered") == 1
    stream = bench.node.bridge.inputs[bench.node.input_key]
    images.publish(make_image(ros))
    ros.wait(lambda: bench.count(Outcome.MET) == 1)
    ros.wait(lambda: stream._silence is None, "the end of the wait")
    assert log.count("from which nothing comes") == 1


def test_lost_shared_memory_is_named_as_the_reason(ros, monkeypatch):
    """Campaign neighbours: a process that started beside killed ones never got an image."""
    monkeypatch.setattr(image_input, "SILENCE_S", 0.1)
    if not (ports := find_own_ports()):
        pytest.skip("this middleware has no ports in shared memory")
    bench = Bench(ros)
    log = Log(bench.node)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    with hidden(ports[-1]):
        bench.start()
        lost = (
            f"Fast DDS has lost the shared memory that this process receives in ({ports[-1].name})"
        )
        ros.wait(lambda: log.count(lost), "the warning")
        found = inbox.wait(
            lambda messages: [
                status.message
                for message in messages
                for status in message.status
                if status.name == "/detector: camera_status" and lost in status.message
            ]
        )
        assert found[0].endswith("): start it again")
    # Nothing was lost in this test: the same memory has its name again.
    bench.send(make_image(ros), 1)
    assert log.count(lost) == 1


def test_a_topic_with_images_is_not_called_silent(ros, monkeypatch):
    monkeypatch.setattr(image_input, "SILENCE_S", 1.0)
    bench = Bench(ros)
    log = Log(bench.node)
    bench.start()
    stream = bench.node.bridge.inputs[bench.node.input_key]
    bench.send(make_image(ros), 1)
    ros.wait(lambda: stream._silence is None, "the end of the wait")
    assert log.count("subscribing") == 0


def test_an_incompatible_publisher_is_said(ros):
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench = Bench(ros, input_qos="DEFAULT")  # reliable; the publisher is best effort
    assert bench.node.autostart()
    ros.wait(lambda: bench.node.bridge.inputs[bench.node.input_key].incompatible == "RELIABILITY")
    found = diagnostics_of(inbox, "/detector: camera_status", b"\x02")
    assert found[""] == "/image_raw: incompatible QoS: RELIABILITY"


def test_a_missing_camera_raises_deadline_events(ros):
    from rclpy.duration import Duration

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
    ros.wait(
        lambda: bench.node.bridge.inputs[bench.node.input_key].deadline_events > 0,
        "a deadline event",
    )


def test_quality_of_service_can_be_overridden(ros):
    bench = Bench(ros, **{"qos_overrides./image_raw.subscription.depth": 3})
    bench.start()
    assert bench.node.get_parameter("qos_overrides./image_raw.subscription.depth").value == 3
    (info,) = ros.probe.get_subscriptions_info_by_topic("/image_raw")
    assert info.node_name == "detector"
    bench.node.trigger_deactivate()
    assert bench.node.autostart()


def test_simulated_time_gives_the_age_of_a_frame(ros):
    from rosgraph_msgs.msg import Clock

    bench = Bench(ros, use_sim_time=True, deadline_ms=1000.0)
    clock = ros.advertise(Clock, "/clock", 10)
    bench.start()
    ros.wait(clock.get_subscription_count)
    now = Clock()
    now.clock.sec = 1000
    clock.publish(now)
    ros.wait(lambda: bench.node.get_clock().now().nanoseconds == 1000 * 10**9)
    image = make_image(ros)
    image.header.stamp.sec, image.header.stamp.nanosec = 999, 950_000_000
    bench.send(image, 1)
    # 50 ms by simulated time, plus the way from arrival to release.
    ((record, _),) = bench.seen.items
    assert 50_000_000 <= record.release_ns - record.capture_ns < 1_000_000_000
    assert bench.node.bridge.inputs[bench.node.input_key].stamps.distrusted == 0


def test_a_misspelt_parameter_of_a_file_is_said(ros):
    bench = Bench(ros, deadlin_ms=5.0)
    log = Log(bench.node)
    assert bench.node.autostart()
    assert log.count("there is no parameter deadlin_ms: its value is not used") == 1


def values_of(message):
    (status,) = message.status
    return {item.key: item.value for item in status.values}


def listen_to_timing(ros, bench):
    inbox = ros.listen(DiagnosticArray, "detector/debug/timing")
    ros.wait(lambda: bench.node._frame_timing.wanted, "the subscription to debug/timing")
    return inbox


def test_every_frame_that_ends_has_a_timing_message(ros):
    bench = Bench(ros, stages=2)
    bench.start()
    inbox = listen_to_timing(ros, bench)
    image = make_image(ros)
    bench.send(image, 1)
    bench.send(make_image(ros, step=1), 2)  # not an image: it is counted as failed
    met, failed = inbox.wait_count(2)
    assert met.header == image.header
    assert [m.status[0].name for m in (met, failed)] == ["/detector"] * 2
    assert [(m.status[0].level, m.status[0].message) for m in (met, failed)] == [
        (b"\x00", "met"),
        (b"\x02", "failed"),
    ]
    record = bench.seen.items[0][0]
    found = values_of(met)
    assert found["task"] == "detector"
    assert found["variant"] == "full@null"
    assert found["release_ns"] == str(record.release_ns)
    assert found["response_ms"] == f"{record.response_time_ns / 1e6:.3f}"
    assert found["lateness_ms"] == f"{record.lateness_ns / 1e6:.3f}"
    assert found["deadline_ms"] == "500.000"
    assert found["deadline_misses"] == "0"
    stages = [key for key in found if key.startswith("stage.")]
    assert stages == [f"stage.{stage.name}_ms" for stage in record.stages]
    assert sum(float(found[key]) for key in stages) == pytest.approx(
        float(found["processing_time_ms"]), abs=0.01
    )
    # One frame proves no bound, and there is no frame before it.
    assert not {"pwcet_ms", "cyclic_time_ms", "reason"} & set(found)
    found = values_of(failed)
    assert found["reason"]
    assert found["deadline_misses"] == "1"
    assert found["deadline_miss_ratio"] == "0.500"
    assert not {"processing_time_ms", "lateness_ms", "wcet_ms"} & set(found)
    documented = {"stage" if key.startswith("stage.") else key for key in read_documented_keys()}
    assert {key.partition(".")[0] for m in (met, failed) for key in values_of(m)} <= documented


@pytest.mark.usefixtures("empty_domain")
def test_topics_of_numbers_are_there_while_somebody_subscribes(ros, monkeypatch):
    bench = Bench(ros, debug_topics=["lateness_ms"])
    bench.start()
    node = bench.node

    def find_own():
        found = node.get_publisher_names_and_types_by_node("detector", "/")
        return {topic for topic, kinds in found if kinds == ["std_msgs/msg/Float64"]}

    assert find_own() == {"/detector/debug/lateness_ms"}
    inbox = ros.listen(Float64, "detector/debug/lag_ms")
    ros.wait(lambda: "lag_ms" in node._reports.topics.wanted, "lag_ms")
    assert find_own() == {f"/detector/debug/{name}" for name in ("lateness_ms", "lag_ms")}
    bench.send(make_image(ros), 1)
    inbox.wait_count(1)
    # Without a subscriber it goes again; the one of the parameter stays.
    monkeypatch.setattr(timing_reports, "IDLE_LOOKS", 1)
    ros.call(lambda: ros.probe.destroy_subscription(inbox.subscription))
    ros.wait(lambda: find_own() == {"/detector/debug/lateness_ms"}, "the end of lag_ms")
    inbox = ros.listen(Float64, "detector/debug/lag_ms")
    ros.wait(lambda: "lag_ms" in node._reports.topics.wanted, "lag_ms")
    bench.send(make_image(ros), 1)
    inbox.wait_count(1)
    assert node.trigger_deactivate() == node.trigger_cleanup()
    assert find_own() == set()


@pytest.mark.usefixtures("empty_domain")
def test_what_the_launch_file_records_is_there_by_itself(ros):
    """A recorder subscribes to the topics that it sees, and to no others."""
    tree = ast.parse((ROOT / "launch" / "perception.launch.py").read_text("utf-8"))
    (value,) = (
        one.value
        for one in tree.body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "OF_TASK"
    )
    names = [one.value for one in ast.walk(value) if isinstance(one, ast.Constant)]
    assert "debug/timing" in names
    Bench(ros).start()

    def missing():
        found = ros.probe.get_publisher_names_and_types_by_node("detector", "/")
        return {f"/detector/{name}" for name in names} - {topic for topic, _ in found}

    ros.wait(lambda: not missing(), f"{names}")


def test_a_debug_topic_that_is_not_there_is_refused(ros):
    bench = Bench(ros, debug_topics=["latenes_ms"])
    assert not bench.node.autostart()
    assert bench.node.fault.startswith(
        "debug_topics: 'latenes_ms' is not one of processing_time_ms"
    )


def test_timing_messages_have_budgets_and_percentiles_of_the_last_second(ros):
    bench = Bench(ros)
    bench.start()
    inbox = listen_to_timing(ros, bench)
    bench.send(make_image(ros), 1)
    ros.wait(lambda: bench.node._frame_timing._figures, "the figures")
    whole = bench.node.timing.snapshot().whole
    bench.send(make_image(ros), 2)
    found = values_of(inbox.wait_count(2)[1])
    assert {name: found[name] for name in ("p50_ms", "hwm_ms")} == {
        name: f"{getattr(whole, name):.3f}" for name in ("p50_ms", "hwm_ms")
    }
    assert "p99_ms" not in found
    assert float(found["budget_ms"]) >= 1.0


def test_the_timing_of_a_task_with_another_name_than_its_node_says_both(ros):
    bench = Bench(ros, node_class=lambda **options: DetectorNode(task="front", **options))
    bench.start()
    inbox = listen_to_timing(ros, bench)
    bench.send(make_image(ros), 1)
    assert inbox.wait_count(1)[0].status[0].name == "/detector: front"


def test_two_nodes_of_one_name_have_statuses_of_their_own(ros):
    bench = Bench(ros, node_class=lambda **options: DetectorNode(namespace="front", **options))
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    assert diagnostics_of(inbox, "/front/detector: task_status")[""] == "unconfigured"
    assert {s.hardware_id for m in inbox.messages for s in m.status} == {platform.node()}
    assert bench.node.get_fully_qualified_name() == "/front/detector"


def test_topics_have_statuses_of_their_own_for_greenwave(ros):
    bench = Bench(ros, expected_frequency=10.0, tolerance=0.2)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench.start()
    found = diagnostics_of(inbox, "/image_raw", b"\x01")[""]
    assert found == "no frame yet: 1 publisher of /image_raw, from which nothing comes"
    bench.send(make_image(ros), 1)
    inbox.clear()
    for topic in ("/image_raw", "/detections"):
        found = diagnostics_of(inbox, topic)
        assert found["frames_received"] == "1"
        assert (found["expected_frequency"], found["tolerance"]) == ("10.000", "20.000")
        assert float(found["current_delay_from_realtime_ms"]) >= 0.0
