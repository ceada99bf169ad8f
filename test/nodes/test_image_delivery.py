# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Which reliability the image subscription takes, and what is said of images that are lost."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image
from task_bench import Bench, Log, make_image, wait_for_value
from vision_msgs.msg import Detection2DArray

from jetson_dnn_rt.nodes.reports.arrivals import Arrivals
from jetson_dnn_rt.nodes.reports.diagnostics import ERROR, OK, WARN, judge_losses, stream_status
from jetson_dnn_rt.nodes.reports.losses import Losses
from jetson_dnn_rt.nodes.tasks import image_input

RELIABLE = QoSProfile(depth=20, reliability=ReliabilityPolicy.RELIABLE)
SECOND_NS = 10**9


def info(number, publisher=b"one"):
    return {"publication_sequence_number": number, "publisher_gid": {"data": publisher}}


class Stream:
    """A detector on ``image_raw``; `values` are its parameters."""

    def __init__(self, ros, **values):
        self.ros = ros
        self.bench = Bench(ros, input_qos_depth=20, **values)
        ros.call(lambda: ros.probe.destroy_publisher(self.bench.images))
        self.log = Log(self.bench.node)

    def start(self):
        assert self.bench.node.autostart(), self.bench.node.fault

    @property
    def input(self):
        return self.bench.node.bridge.inputs[self.bench.node.input_key]

    def reliabilities(self):
        found = self.ros.probe.get_subscriptions_info_by_topic("/image_raw")
        return [one.qos_profile.reliability for one in found]

    def wait_for(self, *wanted):
        self.ros.wait(lambda: sorted(self.reliabilities()) == sorted(wanted), f"{wanted}")

    def send(self, publisher, count):
        """Send numbered images, between which the node does what it has to do."""
        for _ in range(count):
            publisher.publish(make_image(self.ros))


BEST_EFFORT_ONLY = (ReliabilityPolicy.BEST_EFFORT,)
RELIABLE_ONLY = (ReliabilityPolicy.RELIABLE,)


@pytest.mark.parametrize(
    ("offers", "taken"),
    [
        ([RELIABLE], RELIABLE_ONLY),
        ([RELIABLE, RELIABLE], RELIABLE_ONLY),
        ([qos_profile_sensor_data], BEST_EFFORT_ONLY),
        ([RELIABLE, qos_profile_sensor_data], BEST_EFFORT_ONLY),
    ],
)
def test_the_subscription_is_reliable_where_every_publisher_is(ros, offers, taken):
    stream = Stream(ros)
    publishers = [ros.advertise(Image, "image_raw", qos) for qos in offers]
    stream.start()
    stream.wait_for(*taken)
    for publisher in publishers:
        ros.wait(lambda one=publisher: one.get_subscription_count() == 1)
        publisher.publish(make_image(ros))
    ros.wait(lambda: stream.input.losses.snapshot().arrived == len(offers))
    assert stream.log.count("RELIABILITY") == 0


@pytest.mark.parametrize(
    ("qos", "taken"), [(RELIABLE, RELIABLE_ONLY), (qos_profile_sensor_data, BEST_EFFORT_ONLY)]
)
def test_the_first_image_of_a_publisher_that_comes_later_arrives(ros, qos, taken):
    """As long as nobody publishes there is a subscription of either kind."""
    stream = Stream(ros)
    stream.start()
    stream.wait_for(*BEST_EFFORT_ONLY, *RELIABLE_ONLY)
    publisher = ros.advertise(Image, "image_raw", qos)
    ros.wait(publisher.get_subscription_count, "a subscription")
    publisher.publish(make_image(ros))
    stream.wait_for(*taken)
    ros.wait(lambda: stream.input._sequence == 1, "the image")
    assert stream.log.count("RELIABILITY") == 0


def test_no_image_is_lost_or_doubled_when_the_publishers_change(ros):
    stream = Stream(ros, deadline_ms=5000.0)
    first = ros.advertise(Image, "image_raw", RELIABLE)
    stream.start()
    stream.wait_for(*RELIABLE_ONLY)
    ros.wait(first.get_subscription_count)
    sent = 0

    def send_until(condition):
        nonlocal sent
        while not condition():
            first.publish(make_image(ros))
            sent += 1
            ros.wait(lambda now=sent: stream.input._sequence == now, f"image {sent}")

    second = ros.advertise(Image, "image_raw", qos_profile_sensor_data)
    send_until(lambda: stream.reliabilities() == list(BEST_EFFORT_ONLY))
    ros.call(lambda: ros.probe.destroy_publisher(second))
    send_until(lambda: stream.reliabilities() == list(RELIABLE_ONLY))
    send_until(lambda: sent % 10 == 0)
    assert stream.input._sequence == sent
    assert stream.input.losses.lost == 0


def test_images_without_numbers_are_told_by_their_stamps(ros):
    """As in Humble, where rclpy does not give what the middleware knows of a message."""
    stream = Stream(ros)
    stream.start()
    stream.wait_for(*BEST_EFFORT_ONLY, *RELIABLE_ONLY)
    observe = stream.input.losses.observe
    stream.input.losses.observe = lambda info, alone: observe(None)
    publisher = ros.advertise(Image, "image_raw", RELIABLE)
    ros.wait(lambda: publisher.get_subscription_count() == 2, "both subscriptions")
    first = make_image(ros)
    ros.call(lambda: publisher.publish(first))
    ros.wait(lambda: stream.input._sequence == 1, "the image")
    stream.wait_for(*RELIABLE_ONLY)
    ros.call(lambda: setattr(stream.input, "_alone_ns", 0))
    publisher.publish(first)  # of one subscription a repeated stamp is not a second copy
    ros.wait(lambda: stream.input._sequence == 2, "the image once more")


@pytest.mark.parametrize("told", [info(7), None], ids=["number", "stamp"])
def test_a_copy_that_waits_while_the_other_subscription_ends_is_none(ros, told):
    """The next look may come between the two copies of one image."""
    stream = Stream(ros)
    stream.start()
    stream.wait_for(*BEST_EFFORT_ONLY, *RELIABLE_ONLY)
    image = serialize_message(make_image(ros))

    def deliver_twice():
        one = stream.input
        one._on_message("SENSOR_DATA", image, told)
        one._wanted = ("DEFAULT",)
        one._unsubscribe("SENSOR_DATA")
        one._on_message("DEFAULT", image, told)
        return one._sequence

    assert ros.call(deliver_twice) == 1


def test_images_with_numbers_are_not_told_by_their_stamps(ros):
    stream = Stream(ros)
    stream.start()
    stream.wait_for(*BEST_EFFORT_ONLY, *RELIABLE_ONLY)
    image = serialize_message(make_image(ros))

    def deliver():
        for number in (7, 8):
            stream.input._on_message("SENSOR_DATA", image, info(number))
        return stream.input._sequence

    assert ros.call(deliver) == 2


def test_a_missed_deadline_is_counted_by_one_of_two_subscriptions(ros):
    stream = Stream(ros)
    stream.start()
    stream.wait_for(*BEST_EFFORT_ONLY, *RELIABLE_ONLY)

    def miss():
        for name in ("DEFAULT", "SENSOR_DATA"):
            stream.input._on_deadline(name, 1)
        return stream.input.deadline_events

    assert ros.call(miss) == 1


@pytest.mark.parametrize(
    ("values", "taken"),
    [
        ({"input_qos": "DEFAULT"}, RELIABLE_ONLY),
        ({"input_qos": "SENSOR_DATA"}, BEST_EFFORT_ONLY),
        ({"qos_overrides./image_raw.subscription.reliability": "reliable"}, RELIABLE_ONLY),
        ({"qos_overrides./image_raw.subscription.reliability": "best_effort"}, BEST_EFFORT_ONLY),
    ],
)
def test_what_the_user_says_is_not_changed(ros, values, taken):
    stream = Stream(ros, **values)
    stream.start()
    assert stream.reliabilities() == list(taken)
    publisher = ros.advertise(Image, "image_raw", RELIABLE)
    ros.wait(lambda: stream.input._publishers, "a look at the publisher")
    ros.wait(publisher.get_subscription_count)
    assert stream.reliabilities() == list(taken)


def test_a_reliable_subscription_of_auto_has_room_for_pictures_in_pieces(ros):
    bench = Bench(ros)
    ros.call(lambda: ros.probe.destroy_publisher(bench.images))
    ros.advertise(Image, "image_raw", RELIABLE)
    assert bench.node.autostart()
    (subscription,) = bench.node.bridge.inputs[bench.node.input_key]._subscriptions.values()
    assert subscription.qos_profile.depth == image_input.RELIABLE_DEPTH > 1


def test_images_that_are_published_and_do_not_arrive_are_said(ros):
    """The ROS thread is busy meanwhile, and the queue holds one."""
    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
    bench = Bench(ros, input_qos="SENSOR_DATA", expected_frequency=0.05)
    ros.call(lambda: ros.probe.destroy_publisher(bench.images))
    bench.images = ros.advertise(Image, "image_raw", RELIABLE)
    results = ros.listen(Detection2DArray, "detections")
    assert bench.node.autostart()
    ros.wait(bench.images.get_subscription_count)
    one = bench.node.bridge.inputs[bench.node.input_key]
    ros.wait(lambda: len(one._publishers) == 1, "a look at the publisher")  # Jazzy: its numbers

    def send_at_once():
        for _ in range(10):
            bench.images.publish(make_image(ros))

    ros.call(lambda: bench.images.publish(make_image(ros)))
    results.wait_count(1)
    ros.call(send_at_once)
    found = wait_for_value(
        diagnostics, "/detector: camera_status", "", "the subscription best effort"
    )
    assert (
        " Hz arrive: the publisher is reliable, the subscription best effort; fix: " in found[""]
    )
    assert "input_qos: auto" in found[""]
    assert found["publisher_reliability"] == "reliable"
    assert found["subscription_reliability"] == "best effort"
    arrived, lost = int(found["images_arrived"]), int(found["images_lost"])
    assert lost > 0
    assert arrived + lost <= 11
    assert wait_for_value(diagnostics, "/image_raw", "", "the subscription best effort")


def test_silence_is_explained_by_losses(ros):
    stream = Stream(ros)
    ros.advertise(Image, "image_raw", qos_profile_sensor_data)
    stream.start()
    ros.wait(lambda: len(stream.input.losses._marks) > 1)
    ros.call(lambda: stream.input.losses.add_events(3))
    expected = (
        "1 publisher of /image_raw, whose images are lost: the publisher is best effort, the "
        "subscription best effort; fix: make the publisher reliable, or give its process the "
        "Fast DDS profile that jetson-dnn-rt doctor names"
    )
    ros.wait(lambda: ros.call(stream.input.explain_silence) == expected)


def test_gaps_in_the_numbers_of_each_publisher_are_losses():
    losses = Losses()
    for number, publisher in [(5, b"a"), (100, b"b"), (6, b"a"), (104, b"b"), (9, b"a")]:
        assert losses.observe(info(number, publisher))
    assert (losses.snapshot().arrived, losses.lost) == (5, 3 + 2)
    # The first number says nothing: the publisher may be older than the subscription.
    assert losses.observe(info(50, b"c"))
    assert losses.lost == 5


def test_what_came_by_another_subscription_is_not_counted_again():
    losses = Losses()
    assert losses.observe(info(1))
    assert not losses.observe(info(1))
    assert losses.snapshot().arrived == 1
    # Of a publisher without numbers nothing is known.
    assert losses.observe(None) is None
    unknown = {"publication_sequence_number": None, "publisher_gid": None}
    assert losses.observe(unknown) is None
    assert losses.snapshot().arrived == 3


def test_numbers_without_publisher_have_gaps_where_there_is_one_publisher():
    """As in Jazzy."""
    losses = Losses()

    def observe(number, alone=True):
        assert losses.observe(info(number) | {"publisher_gid": None}, alone=alone) is None
        return losses.lost

    assert [observe(5), observe(6), observe(9)] == [0, 0, 2]
    assert [observe(1), observe(3)] == [2, 3]  # it was started again
    assert [observe(50, alone=False), observe(60), observe(62)] == [3, 3, 4]
    assert losses.snapshot().arrived == 8


def test_publishers_that_come_and_go_take_no_memory():
    losses = Losses()
    for number in range(1000):
        losses.observe(info(1, str(number).encode()))
    assert len(losses._last) == 32


@pytest.mark.parametrize(
    ("lost_of_100", "level"), [(0, OK), (1, OK), (2, WARN), (50, WARN), (51, ERROR), (100, ERROR)]
)
def test_the_share_of_lost_images_decides_on_the_level(lost_of_100, level):
    losses = Losses()
    losses.mark(0)
    for _ in range(100 - lost_of_100):
        losses.observe(None)
    losses.add_events(lost_of_100)
    losses.mark(2 * SECOND_NS)
    found, text = judge_losses(losses.snapshot(), lambda: "why")
    assert found == level
    assert text == ("" if level == OK else f"{(100 - lost_of_100) / 2:.1f} of 50.0 Hz arrive: why")


def test_losses_of_the_past_are_only_counted():
    losses = Losses()
    losses.mark(0)
    losses.add_events(10)
    for second in range(1, 12):
        losses.observe(None)
        losses.mark(second * SECOND_NS)
    assert losses.snapshot().lost == 10
    assert losses.snapshot().lost_share == 0.0
    assert judge_losses(losses.snapshot(), lambda: "why") == (OK, "")


def test_a_loss_explains_another_rate_and_never_hides_an_error():
    arrivals = Arrivals()
    for number in range(1, 11):
        arrivals.observe(number * SECOND_NS, number * SECOND_NS, number * SECOND_NS)
    common = {"expected_hz": 2.0, "tolerance": 0.1, "node_state": "active"}
    now = arrivals.snapshot(10 * SECOND_NS)
    lossy = stream_status(now, delivery=(WARN, "1.0 of 2.0 Hz arrive: why"), **common)
    assert (lossy.level, lossy.message) == (
        WARN,
        "1.0 Hz instead of 2.0 Hz: 1.0 of 2.0 Hz arrive: why",
    )
    failed = stream_status(now, delivery=(ERROR, "lost"), error="unplugged", **common)
    assert (failed.level, failed.message) == (ERROR, "unplugged")
