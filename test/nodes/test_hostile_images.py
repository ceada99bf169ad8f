# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A detector in a process of its own and images from a stranger: it lives, and counts them all."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from hostile_images import FAR_TOO_LARGE, TOO_LARGE, disguise_jpeg
from image_storm import storm_detector
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage
from task_bench import Bench, make_image

from jetson_dnn_rt.tasks import Outcome


@pytest.mark.parametrize(("height", "width"), [FAR_TOO_LARGE, TOO_LARGE])
def test_a_jpeg_that_hides_its_size_fails_alone(ros, height, width):
    """EDGES 1: one file of a few hundred bytes ended the node, or took 243 MB of it."""
    bench = Bench(ros, image_transport="compressed")
    bench.images = ros.advertise(CompressedImage, "image_raw/compressed")
    assert bench.node.autostart(), bench.node.fault
    ros.wait(lambda: bench.images.get_subscription_count() == 1, "the subscription")
    message = CompressedImage(format="jpeg", data=disguise_jpeg(height, width))
    message.header = make_image(ros).header
    bench.send(message, 1)
    assert bench.count(Outcome.FAILED) == 1
    assert bench.node.snapshot.reasons == {"truncated": 1}


def test_bytes_that_are_no_image_fail_alone(ros):
    """A publisher may send bytes of any kind under the type of an image."""
    bench = Bench(ros)
    results = bench.start()
    bench.send(b"\0\1\0\0" + b"\xff" * 60, 1)
    bench.send(serialize_message(make_image(ros))[:-8], 2)
    assert bench.node.snapshot.reasons == {"serialization": 2}
    bench.send(make_image(ros), 3)
    results.wait_count(1)


@pytest.mark.parametrize("transport", ["compressed", "raw"])
def test_a_detector_lives_through_images_from_a_stranger(ros, transport):
    """EDGES 1: no exit, bounded memory, every image counted, good ones in between answered.

    The short form of ``test/campaigns/image_fuzz.py``.
    """
    assert storm_detector(ros, transport, 200, seed=1).faults == []
