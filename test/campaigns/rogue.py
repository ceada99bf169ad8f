# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A rogue participant: what it sends must neither end a process nor cost a frame.

A camera, a detector and a coordinator run in processes of their own. For a while nothing happens;
then this process sends to the detector and the coordinator, on every topic and service that the
graph says they read, messages of the right type with the worst values and messages of other types,
sets all their parameters to values of all types, asks for transitions that do not exist, and
answers in the detector's place what the coordinator asks. Left out is what anybody may do on an
open network and what would change what is measured: valid values of dynamic parameters,
`deactivate`, `shutdown`, `~/enable` with false.

    python test/campaigns/rogue.py --seconds 60 --rate-hz 200 --seed 1
"""

# ruff: noqa: E402  (ROS reads its environment when it is imported)
from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [os.fspath(ROOT), os.fspath(ROOT / "test" / "support")]

if "PYTEST_CURRENT_TEST" not in os.environ:  # a test run has a domain of its own already
    os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    profile = os.fspath(ROOT / "config" / "fastdds_profile.xml")
    os.environ.setdefault("FASTDDS_DEFAULT_PROFILES_FILE", profile)
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

import rclpy
from cohort_tables import VALUES, write_tables
from diagnostic_msgs.msg import DiagnosticArray
from hostile_values import BAD_NUMBERS, fill, parameter_values
from node_process import Process
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.msg import ParameterEvent
from rcl_interfaces.srv import ListParameters, SetParameters, SetParametersAtomically
from rclpy.node import Node
from rclpy.parameter import parameter_value_to_python
from rclpy.qos import QoSProfile, ReliabilityPolicy
from std_msgs.msg import Int64MultiArray, String

try:
    from rclpy.event_handler import PublisherEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import PublisherEventCallbacks
from lifecycle_msgs.srv import ChangeState
from std_srvs.srv import SetBool

from jetson_dnn_rt.config.declaration import describe
from jetson_dnn_rt.config.nodes import CoordinatorConfig, CoordinatorProcessConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.process.running import Spinner
from jetson_dnn_rt.tasks import Outcome

TARGETS = {
    "detector": (TaskConfig, ProcessConfig),
    "coordinator": (CoordinatorConfig, CoordinatorProcessConfig),
}
NUMBERS = (*BAD_NUMBERS, -1.0)
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
        self.answers = 0
        self._clients: dict[str, Any] = {}
        self._subscribers = dict.fromkeys(TARGETS, ())
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

    def _publish(self, node: Node, topic: str, kind: Any) -> Send:
        name = f"topic {topic} ({kind.__name__})"
        reliable = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
        events = PublisherEventCallbacks(use_default_callbacks=False)
        publisher = node.create_publisher(kind, topic, reliable, event_callbacks=events)
        values = list(parameter_values())

        def send() -> None:
            message = fill(kind(), self._rng, NUMBERS)
            if kind is ParameterEvent:
                message.node = f"/{self._rng.choice(list(TARGETS))}"
                message.changed_parameters = [
                    ParameterMessage(name=item, value=self._rng.choice(values))
                    for item in ("deadline_ms", "variant", "variants", "no_such")
                ]
            publisher.publish(message)
            self.sent[name] += 1

        return send

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
            request = fill(kind.Request(), rng, NUMBERS)
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
            for value in parameter_values():
                try:
                    if item is not None and item.dynamic:
                        item.check(parameter_value_to_python(value))
                        continue
                except (ConfigurationError, RuntimeError):
                    pass
                pairs.append((name, value))
        return pairs

    def _impersonate(self, service: str, kind: Any) -> None:
        values = list(parameter_values())

        def answer(request: Any, response: Any) -> Any:
            self.answers += 1
            fill(response, self._rng, NUMBERS)
            if hasattr(response, "values"):
                response.values = [self._rng.choice(values) for _ in range(3)]
            return response

        self._node.create_service(kind, service, answer)


class Counts:
    """The detector's counts of outcomes, as its diagnostics say them."""

    def __init__(self, node: Node) -> None:
        self._condition = threading.Condition()
        self._values: dict[str, str] = {}
        self.messages = 0
        node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name == "/detector: task_status" and status.hardware_id == platform.node():
                with self._condition:
                    self._values = {v.key: v.value for v in status.values}
                    self.messages += 1
                    self._condition.notify_all()

    def wait_for(self, ready: Callable[[dict[str, int]], bool]) -> dict[str, int]:
        """The next counts that are ready."""
        with self._condition:
            before = self.messages
            found = self._condition.wait_for(
                lambda: self.messages > before and ready(self.read()), START_LIMIT_S
            )
            if not found:
                raise TimeoutError(f"the detector does not get on: {self.read()}")
            return self.read()

    def read(self) -> dict[str, int]:
        return {o.value: int(self._values.get(f"outcome.{o.value}", 0)) for o in Outcome}


def measure(counts: Counts, seconds: float, attack: Callable[[float], None]) -> dict[str, Any]:
    """Outcomes of the frames of so many seconds.

    A message that is no image counts as failed, so these are left out of the ratio; the camera's
    frames cannot fail.
    """
    before = counts.wait_for(lambda _: True)
    attack(time.monotonic() + seconds)
    after = counts.wait_for(lambda _: True)
    outcomes = {key: after[key] - before[key] for key in after}
    frames = sum(outcomes.values()) - outcomes["failed"]
    return {**outcomes, "frames": frames, "met_ratio": outcomes["met"] / frames if frames else 0.0}


def start_processes(folder: Path, rate_hz: float, deadline_ms: float) -> dict[str, Process]:
    """The camera, the detector and the coordinator, each locked and active."""

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
    return {
        "camera": run("camera", source="synthetic:320x240", rate=rate_hz),
        "detector": run("detector", engine_cache="none", **detector),
        "coordinator": run("coordinator", tasks=["detector"], tables=[tables], policy="apnet"),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; 1 when a process ended or the ratio of met frames fell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each of the two halves")
    parser.add_argument("--rate-hz", type=float, default=200.0, help="messages of all kinds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--camera-hz", type=float, default=10.0)
    parser.add_argument("--deadline-ms", type=float, default=100.0)
    parser.add_argument(
        "--tolerance", type=float, default=0.01, help="by which the ratio of met frames may fall"
    )
    args = parser.parse_args(arguments)
    rclpy.init()
    # Not "rogue": names must not matter either.
    node = Node("ros2cli_node")
    # Of one participant all writers of a topic have one type: others need their own.
    strangers = {}
    for kind in (String, Int64MultiArray):
        context = rclpy.Context()
        rclpy.init(context=context)
        stranger = strangers[kind] = Node(f"stranger_{kind.__name__}", context=context)
        stranger.destroy_publisher(stranger._parameter_event_publisher)
    spinner = Spinner(rclpy.get_default_context())
    spinner.executor.add_node(node)
    spinner.start()
    with tempfile.TemporaryDirectory() as folder:
        processes = start_processes(Path(folder), args.camera_hz, args.deadline_ms)
        try:
            report = attack(node, strangers, processes, args)
        finally:
            for process in processes.values():
                process.close()
    spinner.stop()
    print(json.dumps(report, indent=1))
    fell = report["undisturbed"]["met_ratio"] - report["disturbed"]["met_ratio"]
    failed = bool(report["exits"]) or fell > args.tolerance or set(report["ends"].values()) != {0}
    return int(failed)


def attack(
    node: Node, strangers: dict[Any, Node], processes: dict[str, Process], args: argparse.Namespace
) -> dict[str, Any]:
    """Measure without and with the rogue."""
    counts = Counts(node)
    counts.wait_for(lambda values: values["met"] > 2 * args.camera_hz)
    undisturbed = measure(
        counts, args.seconds, lambda end_s: time.sleep(max(0, end_s - time.monotonic()))
    )
    rogue = Rogue(node, strangers, random.Random(args.seed))
    rogue.look()

    def send_until(end_s: float) -> None:
        begin_s = next_s = time.monotonic()
        while time.monotonic() < end_s:
            rogue.send()
            next_s += 1.0 / args.rate_hz
            time.sleep(max(0.0, next_s - time.monotonic()))
        took_s.append(time.monotonic() - begin_s)

    took_s: list[float] = []
    disturbed = measure(counts, args.seconds, send_until)
    exits = {n: p._process.poll() for n, p in processes.items() if p._process.poll() is not None}
    kinds = " failed; further faults of this kind"
    faults = {n: [line.strip() for line in p.lines if kinds in line] for n, p in processes.items()}
    ends = {} if exits else {n: p.end(signal.SIGTERM) for n, p in processes.items()}
    for name in exits:
        sys.stderr.write("".join(processes[name].lines[-40:]))
    return {
        "undisturbed": undisturbed,
        "disturbed": disturbed,
        "exits": exits,
        "ends": ends,
        "guarded": faults,
        "sent": dict(sorted(rogue.sent.items())),
        "sent_in_all": sum(rogue.sent.values()),
        "sent_per_s": sum(rogue.sent.values()) / sum(took_s),
        "answers_in_the_detectors_place": rogue.answers,
        "load_average": os.getloadavg(),
    }


if __name__ == "__main__":
    sys.exit(main())
