# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A rogue participant: what it sends must neither end a process nor cost others a frame.

A camera, a detector and a coordinator run in processes of their own; a fourth process has a camera
and a task that nobody addresses. For a while nothing happens. Then this process sends to the
detector and the coordinator, on every topic and service that the graph says they read, messages
of the right type with all classes of numbers, the worst texts and huge arrays, and messages of
other types, sets all their parameters to values of all types, asks for transitions that do not
exist, and answers in the detector's place what the coordinator asks. Left out is what anybody may
do on an open network and what would change what is measured: valid values of dynamic parameters,
`deactivate`, `shutdown`, `~/enable` with false::

    python test/campaigns/rogue.py --minutes 10 --seed 1 --output test/campaigns/results/rogue.json
"""

# ruff: noqa: E402  (ROS reads its environment when it is imported)
from __future__ import annotations

import argparse
import importlib
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import program

program.prepare_ros()

import rclpy
import yaml
from cohort_tables import VALUES, write_tables
from hostile_values import COUNTS, FLOAT_CLASSES, fill, huge_parameter_values, parameter_values
from lifecycle_msgs.srv import ChangeState
from node_process import Process
from process_samples import read_sample
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.msg import ParameterEvent
from rcl_interfaces.srv import ListParameters, SetParameters, SetParametersAtomically
from rclpy.node import Node
from rclpy.parameter import parameter_value_to_python
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message
from ros_graph import PublisherEventCallbacks, Ros
from statuses import Statuses, read_outcomes
from std_msgs.msg import Int64MultiArray, String
from std_srvs.srv import SetBool

from jetson_dnn_rt.config.declaration import describe
from jetson_dnn_rt.config.nodes import CoordinatorConfig, CoordinatorProcessConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError

TARGETS = {
    "detector": (TaskConfig, ProcessConfig),
    "coordinator": (CoordinatorConfig, CoordinatorProcessConfig),
}
ALONE = "quiet/detector"
MOST_CHANGE, LEAST_FRAMES = 0.01, 500
HUGE = 100_000
"""Items of a huge array, characters of a huge text."""

POOL, NEW_SHARE = 64, 0.1
"""Messages of a topic that are kept to be sent again, and share of those that are new."""

LENGTHS = (*(16 * COUNTS), HUGE)
START_LIMIT_S = 120.0
HARMFUL_TRANSITIONS = (4, 5, 6, 7)
"""Deactivating and shutting down: anybody's right on an open network."""

Send = Callable[[], None]


def find_type(name: str) -> Any:
    """The class of ``std_msgs/msg/String``."""
    package, folder, kind = name.split("/")
    return getattr(importlib.import_module(f"{package}.{folder}"), kind)


class Rogue:
    """Everything that can be sent to the targets, found in the graph."""

    def __init__(self, node: Node, strangers: dict[Any, Node], rng: random.Random) -> None:
        self._node, self._strangers, self._rng = node, strangers, rng
        self.sent: Counter[str] = Counter()
        self.made = self.answers = 0
        self.values = [*parameter_values(), *huge_parameter_values(HUGE)]
        self.ways: list[Send] = []

    def look(self) -> None:
        """Find all ways in."""
        node = self._node
        for target in TARGETS:
            for topic, kinds in node.get_subscriber_names_and_types_by_node(target, "/"):
                for kind in kinds:
                    self.ways.append(self._publish(node, topic, find_type(kind)))
                for other, stranger in self._strangers.items():
                    self.ways.append(self._publish(stranger, topic, other))
            for service, (kind, *_) in node.get_service_names_and_types_by_node(target, "/"):
                self.ways.append(self._call(target, service, find_type(kind)))
        for service, (kind, *_) in node.get_client_names_and_types_by_node("coordinator", "/"):
            self._impersonate(service, find_type(kind))

    def send(self) -> None:
        """Send one message or request, chosen by chance."""
        self._rng.choice(self.ways)()

    def _fill(self, message: Any) -> Any:
        return fill(message, self._rng, FLOAT_CLASSES, LENGTHS)

    def _publish(self, node: Node, topic: str, kind: Any) -> Send:
        name = f"topic {topic} ({kind.__name__})"
        reliable = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
        events = PublisherEventCallbacks(use_default_callbacks=False)
        publisher = node.create_publisher(kind, topic, reliable, event_callbacks=events)
        pool: list[bytes] = []

        def send() -> None:
            # Making each anew, a Python process sends a few hundred a second.
            if len(pool) < POOL:
                pool.append(self._make(kind))
                data = pool[-1]
            else:
                place = self._rng.randrange(POOL)
                if self._rng.random() < NEW_SHARE:
                    pool[place] = self._make(kind)
                data = pool[place]
            publisher.publish(data)
            self.sent[name] += 1

        return send

    def _make(self, kind: Any) -> bytes:
        """A message as it is sent."""
        message = self._fill(kind())
        if kind is ParameterEvent:
            message.node = f"/{self._rng.choice(list(TARGETS))}"
            message.changed_parameters = [
                ParameterMessage(name=item, value=self._rng.choice(self.values))
                for item in ("deadline_ms", "variant", "variants", "no_such")
            ]
        self.made += 1
        return bytes(serialize_message(message))

    def _call(self, target: str, service: str, kind: Any) -> Send:
        client = self._node.create_client(kind, service)
        requests = self._requests(target, service, kind)

        def send() -> None:
            future = client.call_async(next(requests))
            self.sent[f"service {service}"] += 1
            # Never more than a few: an answer that does not come is not waited for.
            waiting = client._pending_requests
            if len(waiting) > 20:
                client.remove_pending_request(next(iter(waiting.values())))
            del future

        return send

    def _requests(self, target: str, service: str, kind: Any) -> Iterator[Any]:
        rng = self._rng
        if kind in (SetParameters, SetParametersAtomically):
            pairs = self._parameters(target)
            while True:
                count = 1 if kind is SetParameters else 3
                parameters = [
                    ParameterMessage(name=n, value=v) for n, v in rng.sample(pairs, count)
                ]
                yield kind.Request(parameters=parameters)
        while True:
            request = self._fill(kind.Request())
            if kind is ChangeState:
                request.transition.id = rng.choice(
                    [i for i in range(256) if i not in HARMFUL_TRANSITIONS]
                )
            elif kind is SetBool:
                request.data = True
            yield request

    def _parameters(self, target: str) -> list[tuple[str, Any]]:
        """Every declared parameter with every value, less what is valid for a dynamic one."""
        client = self._node.create_client(ListParameters, f"/{target}/list_parameters")
        if not client.wait_for_service(START_LIMIT_S):
            raise TimeoutError(f"{target} does not list its parameters")
        future = client.call_async(ListParameters.Request())
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        if not done.wait(START_LIMIT_S):
            raise TimeoutError(f"{target} does not list its parameters")
        items = {item.name: item for kind in TARGETS[target] for item in describe(kind)}
        pairs = []
        for name in (*future.result().result.names, "no_such_parameter"):
            item = items.get(name)
            for value in self.values:
                try:
                    if item is not None and item.dynamic:
                        item.check(parameter_value_to_python(value))
                        continue
                except (ConfigurationError, RuntimeError):
                    pass
                pairs.append((name, value))
        return pairs

    def _impersonate(self, service: str, kind: Any) -> None:
        def answer(request: Any, response: Any) -> Any:
            self.answers += 1
            self._fill(response)
            if hasattr(response, "values"):
                response.values = [self._rng.choice(self.values) for _ in range(3)]
            return response

        self._node.create_service(kind, service, answer)


def measure(
    statuses: Statuses, seconds: float, attack: Callable[[float], None]
) -> dict[str, dict[str, Any]]:
    """Outcomes of the frames of so many seconds, of the detector and of the task left alone.

    A message that is no image counts as failed, so these are left out of the ratio; frames of a
    camera cannot fail.
    """
    before = read_all(statuses)
    attack(time.monotonic() + seconds)
    after = read_all(statuses)
    found: dict[str, dict[str, Any]] = {}
    for task, counts in after.items():
        outcomes = {key: counts[key] - before[task][key] for key in counts}
        frames = sum(outcomes.values()) - outcomes["failed"]
        ratio = outcomes["met"] / frames if frames else 0.0
        found[task] = {**outcomes, "frames": frames, "met_ratio": ratio}
    return found


def read_all(statuses: Statuses, ready: Callable[[dict[str, int]], Any] = bool) -> Any:
    """The next counts that are ready, of the detector and of the task left alone."""
    return {
        task: read_outcomes(
            statuses.wait(f"/{task}: task_status", lambda values: ready(read_outcomes(values)))
        )
        for task in ("detector", ALONE)
    }


def start_processes(folder: Path, rate_hz: float, deadline_ms: float) -> dict[str, Process]:
    """The camera, the detector and the coordinator, each locked, and the task left alone."""

    def run(executable: str, **values: Any) -> Process:
        given = {"autostart": True, "lock_configuration": True, **values}
        arguments = [
            part
            for name, value in given.items()
            for part in ("-p", f"{name}:={json.dumps(value)}")
        ]
        return Process(executable, *arguments)

    detector = {**VALUES, "deadline_ms": deadline_ms, "expected_frequency": rate_hz}
    tables = write_tables(folder)
    alone = {
        "perception": {
            "tasks": ["detector"], "cameras": ["camera"], "coordinator": False, "autostart": True,
        },
        "camera": {"source": "synthetic:64x64", "rate": rate_hz},
        "detector": {"model": "null:5", "deadline_ms": deadline_ms, "warmup_runs": 3},
    }  # fmt: skip
    space = f"/{ALONE.partition('/')[0]}"
    file = folder / "alone.yaml"
    nodes = {f"{space}/{node}": {"ros__parameters": given} for node, given in alone.items()}
    file.write_text(yaml.safe_dump(nodes), encoding="utf-8")
    return {
        "camera": run("camera", source="synthetic:320x240", rate=rate_hz),
        "detector": run("detector", engine_cache="none", **detector),
        "coordinator": run("coordinator", tasks=["detector"], tables=[tables], policy="apnet"),
        "alone": Process("perception", "-r", f"__ns:={space}", "--params-file", str(file)),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this campaign; ``--minutes`` is the time with the rogue."""
    add = parser.add_argument
    add("--calm-minutes", type=float, help="without it, before; by default as long, at most 2")
    add("--rate-hz", type=float, default=1000.0, help="messages of all kinds")
    add("--camera-hz", type=float, default=10.0)
    add("--deadline-ms", type=float, default=100.0)


def run(args: argparse.Namespace) -> program.Result:
    """Run the campaign."""
    ros = Ros()
    # Of one participant all writers of a topic have one type: others need their own.
    strangers = {}
    for kind in (String, Int64MultiArray):
        context = rclpy.Context()
        rclpy.init(context=context)
        stranger = strangers[kind] = Node(f"stranger_{kind.__name__}", context=context)
        stranger.destroy_publisher(stranger._parameter_event_publisher)
    try:
        with tempfile.TemporaryDirectory() as folder:
            processes = start_processes(Path(folder), args.camera_hz, args.deadline_ms)
            try:
                return attack(ros, strangers, processes, args)
            finally:
                for process in processes.values():
                    process.close()
    finally:
        ros.close()


def attack(
    ros: Ros, strangers: dict[Any, Node], processes: dict[str, Process], args: argparse.Namespace
) -> program.Result:
    """Measure without and with the rogue."""
    result, statuses = program.Result(), ros.call(lambda: Statuses(ros.probe))
    read_all(statuses, lambda outcomes: outcomes.get("met", 0) > 2 * args.camera_hz)
    calm_s = 60.0 * (min(args.minutes, 2.0) if args.calm_minutes is None else args.calm_minutes)
    calm = measure(statuses, calm_s, lambda end_s: time.sleep(max(0.0, end_s - time.monotonic())))
    memory = {name: read_sample(p.pid)["memory_mb"] for name, p in processes.items()}
    rogue = Rogue(ros.probe, strangers, args.rng)
    rogue.look()

    def send_until(end_s: float) -> None:
        begin_s = next_s = time.monotonic()
        while time.monotonic() < end_s:
            rogue.send()
            next_s += 1.0 / args.rate_hz
            time.sleep(max(0.0, next_s - time.monotonic()))
        took_s.append(time.monotonic() - begin_s)

    took_s: list[float] = []
    disturbed = measure(statuses, 60.0 * args.minutes, send_until)
    exits = {name: p.code for name, p in processes.items() if p.code is not None}
    alive = {name: p for name, p in processes.items() if name not in exits}
    grown = {
        name: f"{memory[name]:.0f} -> {read_sample(p.pid)['memory_mb']:.0f}"
        for name, p in alive.items()
    }
    ends = {name: process.end(signal.SIGTERM) for name, process in alive.items()}
    for name, code in exits.items():
        result.faults.append(f"{name} ended with {code}: {processes[name].said[-2000:]}")
    kinds = " failed; further faults of this kind"
    guarded = {
        n: [line.strip() for line in p.lines if kinds in line] for n, p in processes.items()
    }
    rate_hz = sum(rogue.sent.values()) / sum(took_s)
    result.judge(
        "no process ends; each ends with 0 when told to",
        f"{len(exits)} of {len(processes)} ended, exit codes {ends}",
        not exits and set(ends.values()) == {0},
    )
    change = disturbed[ALONE]["met_ratio"] - calm[ALONE]["met_ratio"]
    frames = disturbed[ALONE]["frames"]
    result.judge(
        f"the task left alone: its share of frames in time changes by less than {MOST_CHANGE:.0%}",
        f"{calm[ALONE]['met_ratio']:.2%} -> {disturbed[ALONE]['met_ratio']:.2%} of {frames}",
        abs(change) < MOST_CHANGE if frames >= LEAST_FRAMES else None,
    )
    result.judge(
        f"{args.rate_hz:g} messages a second",
        f"{rate_hz:.0f} ({sum(rogue.sent.values()):,} in all)",
        # The machine was too busy to send more.
        True if rate_hz >= 0.9 * args.rate_hz else None,
    )
    result.counts = {
        "sent": dict(sorted(rogue.sent.items())),
        "different_messages_on_topics": rogue.made,
        "answers_in_the_detectors_place": rogue.answers,
        "ends": ends,
        "memory_mb": grown,
        "calm": calm,
        "disturbed": disturbed,
        "guarded": guarded,
    }
    return result


if __name__ == "__main__":
    sys.exit(program.main(run, add_arguments, minutes=10.0))
