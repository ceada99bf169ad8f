# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Parameters of a real node set again and again while frames come, over DDS."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from ros_graph import Ros
from task_bench import Bench, make_image

from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.tasks import JobRecord, Outcome

FRAMES_HZ = 100.0
MODEL = "null:2"
OUTSTANDING = 6  # requests at once
CALM_S = 20.0  # for what was sent to be answered
GOOD = {
    "deadline_ms": (200.0, 300, 500.0),
    "max_age_ms": (0.0, 400, 800.0),
    "confidence_threshold": (0.1, 0.5, 0.9),
    "max_detections": (1, 50, 300),
    "late_results": ("drop", "publish"),
}
BAD = {
    "deadline_ms": (-5.0, "soon", float("nan")),
    "max_age_ms": (-1.0, "old"),
    "confidence_threshold": (1.5, "sure"),
    "max_detections": (0, 1.5),
    "late_results": ("perhaps", 1),
}


class Overheads:
    """An observer of the time that frames lose to neither stages nor other frames."""

    def __init__(self) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self.longest_ns = 0
        self.sequences: Counter[int] = Counter()

    def __call__(self, record: JobRecord, work: Any) -> None:
        self.outcomes[record.outcome] += 1
        self.sequences[record.sequence] += 1
        if record.start_ns is not None:
            self.longest_ns = max(self.longest_ns, record.overhead_ns)


def storm(ros: Ros, seconds: float, rate_hz: float, rng: random.Random) -> dict[str, Any]:
    """Set parameters at this rate for so long; returns what came of it."""
    bench = Bench(ros, model=MODEL, warmup_runs=2, deadline_ms=300.0)
    seen = Overheads()
    bench.start()
    bench.node.session.executor.add_observer(seen)
    client = ros.call(
        lambda: ros.probe.create_client(SetParameters, f"{bench.node.get_name()}/set_parameters")
    )
    assert client.wait_for_service(CALM_S)
    over, sent = threading.Event(), Counter()
    image = make_image(ros)

    def send_frames() -> None:
        while not over.wait(1.0 / FRAMES_HZ):
            image.header.stamp = ros.probe.get_clock().now().to_msg()
            bench.images.publish(image)
            sent["frames"] += 1

    camera = threading.Thread(target=send_frames, name="frames")
    camera.start()
    last: dict[str, Any] = {}
    futures = []
    begin_s, number = time.monotonic(), 0
    while time.monotonic() - begin_s < seconds:
        name = rng.choice(list(GOOD))
        bad = rng.random() < 0.2
        value = rng.choice((BAD if bad else GOOD)[name])
        if not bad:
            last[name] = value
        message = Parameter(name, value=value).to_parameter_msg()
        request = SetParameters.Request(parameters=[message])
        # More requests than the middleware keeps would be lost: that is no fault of the node.
        patience_s = time.monotonic() + CALM_S
        while sum(not future.done() for _, future in futures[-50:]) >= OUTSTANDING:
            if time.monotonic() > patience_s:
                break
            time.sleep(0.0005)
        futures.append((bad, ros.call(lambda request=request: client.call_async(request))))
        number += 1
        time.sleep(max(0.0, begin_s + number / rate_hz - time.monotonic()))
    took_s = time.monotonic() - begin_s
    end_s = time.monotonic() + CALM_S
    while any(not future.done() for _, future in futures) and time.monotonic() < end_s:
        time.sleep(0.01)
    over.set()
    camera.join()
    idle = bench.node.session.wait_idle(CALM_S)
    results = [(bad, future.result().results[0]) for bad, future in futures if future.done()]
    snapshot = bench.node.snapshot
    parameters = {name: bench.node.get_parameter(name).value for name in last}
    return {
        "requests": len(futures),
        "rate_hz": round(len(futures) / took_s, 1),
        "answered": len(results),
        "wrongly answered": sum(bad == result.successful for bad, result in results),
        "frames sent": sent["frames"],
        "frames released": snapshot.released,
        "outcomes": {outcome.value: count for outcome, count in snapshot.outcomes.items()},
        "counts add up": idle and sum(snapshot.outcomes.values()) == snapshot.released,
        "ended more than once": sum(count > 1 for count in seen.sequences.values()),
        "longest overhead_ms": round(seen.longest_ns / 1e6, 2),
        "deadline_ms": [snapshot.parameters.deadline_ns / 1e6, parameters["deadline_ms"]],
        "not the last value": [
            name for name, value in last.items() if float_or(parameters[name]) != float_or(value)
        ],
        "faults": [f"{fault.kind}: {fault.count}" for fault in FAULTS.snapshot()],
    }


def float_or(value: Any) -> Any:
    """A number as float."""
    return float(value) if isinstance(value, int | float) else value
