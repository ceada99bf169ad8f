# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The coordinator in the process of its tasks: on real DDS, counted in frames."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: two back ends are needed")
pytest.importorskip("openvino", reason="openvino is not installed: two back ends are needed")

from cohort_tables import FAST, FULL, VALUES, make_table, write_tables
from diagnostic_msgs.msg import DiagnosticArray
from sensor_msgs.msg import Image
from std_msgs.msg import Float64
from task_bench import Seen, diagnostics_of, make_image, wait_for_value

from jetson_dnn_rt.config.nodes import POLICIES
from jetson_dnn_rt.coordinator.policies.apnet import ApNet
from jetson_dnn_rt.nodes.perception import PerceptionNode
from jetson_dnn_rt.tasks import Outcome

# ApNet runs what the tables say will do, and FULL cannot: it is the policy of these tests.
ADAPTIVE = "apnet"


def make(ros, observer=None, detector=VALUES, **coordinator):
    """The composed process with one detector and no camera."""
    return ros.make(
        PerceptionNode,
        overrides={
            "perception": {"tasks": ["detector"], "cameras": [""]},
            "detector": detector,
            "coordinator": coordinator,
        },
        observer=observer,
    )


class Drive:
    """The composed process with one detector, and frames that are sent one by one."""

    def __init__(self, ros, folder, **coordinator):
        self.ros, self.seen = ros, Seen()
        tables, detector = write_tables(folder), {**VALUES, "deadline_ms": 500.0}
        self.node = make(ros, self.seen, detector, tables=[tables], **coordinator)
        assert self.node.autostart(), self.node.fault
        self.coordinator = self.node.coordinator
        self.images = ros.advertise(Image, "image_raw")
        ros.wait(lambda: self.images.get_subscription_count() == 1, "the subscription")

    def send(self):
        """Send a frame; returns the variant that it ran."""
        record = self.seen.after(lambda: self.images.publish(make_image(self.ros)))
        assert record.outcome is Outcome.MET
        return record.variant

    def set(self, name, value):
        """Set a parameter of the coordinator as ``ros2 param set`` does: over its service."""
        return self.ros.set_by_service("coordinator", **{name: value})


@pytest.mark.parametrize("policy", [ADAPTIVE, "d3", "subflow", "horizon"])
def test_a_policy_takes_effect_with_the_next_frame(ros, tmp_path, policy):
    drive = Drive(ros, tmp_path)
    assert [drive.send() for _ in range(3)] == [FULL] * 3
    assert drive.set("policy", policy).successful
    assert [drive.send() for _ in range(3)] == [FAST] * 3
    assert drive.set("policy", "static").successful
    assert drive.send() == FULL
    report = drive.coordinator.describe_run()
    assert report.policy == "static"
    assert set(report.decisions) == {"static", policy}
    assert all(count >= 3 for count in report.decisions.values())
    assert sum(report.decisions.values()) == drive.coordinator.coordinator.decisions
    # What one that is stopped has decided is not forgotten.
    drive.coordinator.trigger_deactivate()
    assert drive.coordinator.describe_run() == report


def test_a_policy_skips_what_cannot_be_in_time(ros, tmp_path):
    drive = Drive(ros, tmp_path, policy="clockwork")
    record = drive.seen.after(lambda: drive.images.publish(make_image(ros)))
    assert (record.outcome, record.reason) == (Outcome.SKIPPED, "budget")
    assert drive.set("policy", "static").successful
    assert drive.send() == FULL


def test_a_policy_that_is_not_there_is_refused_with_those_that_are(ros, tmp_path):
    drive = Drive(ros, tmp_path)
    result = drive.set("policy", "horizont")
    assert not result.successful
    assert result.reason.startswith("policy must be one of static, ")
    assert all(name in result.reason for name in POLICIES)
    assert drive.send() == FULL
    result = drive.set("confidence", 1.5)
    assert not result.successful
    assert "confidence" in result.reason


def test_without_the_coordinator_tasks_stay_in_their_last_variant(ros, tmp_path):
    drive = Drive(ros, tmp_path, policy=ADAPTIVE)
    assert [drive.send(), drive.send()] == [FAST] * 2
    drive.coordinator.trigger_deactivate()
    assert [drive.send(), drive.send()] == [FAST] * 2
    drive.coordinator.trigger_cleanup()
    assert drive.send() == FAST
    # What its user says holds all the same.
    assert ros.set(drive.node.tasks["detector"], variant=FAST).successful
    assert ros.set(drive.node.tasks["detector"], variant=FULL).successful
    assert drive.send() == FAST  # FULL is what it was set to all the time
    # It comes back and takes over.
    assert drive.coordinator.autostart(), drive.coordinator.fault
    before = drive.coordinator.coordinator.decisions
    assert drive.send() == FAST
    assert drive.coordinator.coordinator.decisions > before
    assert drive.set("policy", "static").successful
    assert drive.send() == FULL


def test_disabled_it_decides_nothing(ros, tmp_path):
    drive = Drive(ros, tmp_path, policy=ADAPTIVE, enable=False)
    assert drive.send() == FULL
    assert drive.set("enable", True).successful
    assert drive.send() == FAST
    assert drive.set("enable", False).successful
    assert drive.coordinator.coordinator is None
    assert drive.send() == FAST


def test_a_policy_that_fails_is_set_aside_and_said(ros, tmp_path, monkeypatch):
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    drive = Drive(ros, tmp_path, policy=ADAPTIVE)
    assert drive.send() == FAST

    def fail(self, cohort, now_ns):
        raise ArithmeticError("no way")

    with monkeypatch.context() as patch:
        patch.setattr(ApNet, "decide", fail)
        drive.send()
        found = diagnostics_of(inbox, "/coordinator: policy_status", level=b"\2")
    assert "no way" in found[""]
    assert drive.send() == FAST
    assert drive.set("policy", "static").successful
    assert drive.send() == FULL


def test_what_it_does_is_published(ros, tmp_path):
    names = ["cohort_size", "clocks", "decisions_per_s", "detector/variant", "detector/lag_ms"]
    inboxes = {name: ros.listen(Float64, f"coordinator/debug/{name}") for name in names}
    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
    drive = Drive(ros, tmp_path, policy=ADAPTIVE)
    topics = drive.coordinator._topics
    ros.wait(lambda: topics.wanted.issuperset(names), "the topics")
    assert drive.send() == FAST
    inboxes["cohort_size"].wait(lambda messages: any(m.data == 1.0 for m in messages))
    # By its place in the table, which has the most accurate one first.
    inboxes["detector/variant"].wait(lambda messages: any(m.data == 1.0 for m in messages))
    inboxes["clocks"].wait(lambda messages: any(m.data == 0.0 for m in messages))
    lag_ms = inboxes["detector/lag_ms"].wait(
        lambda messages: [m.data for m in messages if m.data != 0.0]
    )
    assert 0.0 < lag_ms[0] < 500.0
    drive.send()
    inboxes["decisions_per_s"].wait(lambda messages: any(m.data >= 0.0 for m in messages))
    found = wait_for_value(diagnostics, "/coordinator: policy_status", "detector.variant", FAST)
    assert found[""].startswith(f"{ADAPTIVE} decides")
    assert found["clocks_writable"] == "False"
    assert found["tasks"] == "detector"


def test_tasks_that_come_and_go_are_noticed(ros, tmp_path):
    drive = Drive(ros, tmp_path, policy=ADAPTIVE)
    detector = drive.node.tasks["detector"]
    first = drive.coordinator.coordinator
    detector.trigger_deactivate()
    ros.wait(lambda: drive.coordinator.coordinator is None)
    detector.trigger_activate()
    ros.wait(lambda: drive.coordinator.coordinator is not None)
    assert drive.coordinator.coordinator is not first
    ros.wait(lambda: drive.images.get_subscription_count() == 1)
    assert drive.send() == FAST
    assert ros.set(detector, deadline_ms=2000.0).successful

    def knows_deadline():
        # Another deadline means another coordinator: between the two there is none.
        present = drive.coordinator.coordinator
        return present is not None and present.cohort.members[0].table.deadline_ns == 2 * 10**9

    ros.wait(knows_deadline)
    assert drive.send() == FULL  # which is in time now


def test_a_table_that_does_not_fit_is_not_used(ros, tmp_path):
    other = make_table(stages=("preprocess", "inference-1", "inference-2", "decode"))
    tables = write_tables(tmp_path, other)
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    node = make(ros, tables=[tables], policy=ADAPTIVE)
    assert node.autostart(), node.fault
    found = diagnostics_of(inbox, "/coordinator: policy_status", level=b"\1")
    assert (
        "its table is of the stages preprocess, inference-1, inference-2, decode"
        in found["not_coordinated.detector"]
    )


@pytest.mark.parametrize(
    ("tables", "text"), [("/nowhere.json", "/nowhere.json"), ("{tmp}/bad.json", "no JSON")]
)
def test_a_file_that_cannot_be_used_is_named(ros, tmp_path, tables, text):
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    node = make(ros, detector={"model": "null:1"}, tables=[tables.format(tmp=tmp_path)])
    assert not node.autostart()
    assert node.fault.startswith("coordinator: ")
    assert text in node.fault


def test_tables_come_from_the_warm_up_without_a_file(ros):
    node = ros.make(
        PerceptionNode,
        overrides={
            "perception": {"cameras": [""]},
            "detector": {"model": "null:1", "warmup_runs": 4},
            "segmenter": {"model": "null:2,segmentation", "warmup_runs": 4},
            "coordinator": {"policy": "neuos_balanced"},
        },
    )
    assert node.autostart(), node.fault
    members = node.coordinator.coordinator.cohort.members
    assert [member.table.task for member in members] == ["detector", "segmenter"]
    totals_ms = [member.table.median_ns[0].sum() / 1e6 for member in members]
    assert 1.0 <= totals_ms[0] < 20.0
    assert totals_ms[1] >= 2.0
    assert math.isclose(members[0].table.accuracy(0), 1.0)
