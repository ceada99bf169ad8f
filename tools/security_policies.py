# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Generate the SROS2 policies in ``config/security`` from the endpoints of running nodes.

    python tools/security_policies.py           # a difference is printed, exit code 1
    python tools/security_policies.py --write   # after topics or services have changed

Every node is taken through its lifecycle, and what another participant sees of it on the ROS graph
is allowed, nothing else. ``ros2 security generate_policy`` does that for nodes that run, too, but
cannot see the topics that exist only while somebody subscribes.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import rclpy
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from snapshot_nodes import STATES, TIMEOUT_S, Graph

from jetson_dnn_rt.nodes.cameras.camera import CameraNode
from jetson_dnn_rt.nodes.coordinator.coordinator_node import CoordinatorNode
from jetson_dnn_rt.nodes.perception import PerceptionNode
from jetson_dnn_rt.nodes.tasks.task_node import ClassifierNode, DetectorNode, SegmenterNode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "test" / "support"))
from cohort_tables import make_table, write_tables  # noqa: E402
from constant_networks import make_pose, make_seg  # noqa: E402

FOLDER = ROOT / "config" / "security"

Rule = tuple[str, str, str]
"""Element, attribute and name: ``("topic", "publish", "~/debug/*")``."""

Policy = dict[str, dict[tuple[str, str], set[Rule]]]
"""Rules by enclave, and by namespace and name of a node."""

QUERIES = {
    ("topic", "publish"): "get_publisher_names_and_types_by_node",
    ("topic", "subscribe"): "get_subscriber_names_and_types_by_node",
    ("service", "reply"): "get_service_names_and_types_by_node",
    ("service", "request"): "get_client_names_and_types_by_node",
}

ON_DEMAND = "~/debug/"
"""Topics below it exist only while somebody subscribes, and depend on the variants."""

ALWAYS: set[Rule] = {
    ("topic", "subscribe", "/clock"),  # use_sim_time
    ("service", "reply", "~/get_type_description"),  # of rclpy, from Jazzy on
}
"""Allowed to every node, though not every distribution or configuration needs it."""

WITH_FOXGLOVE: set[Rule] = {("topic", "publish", "annotations")}
"""Of a detector whose `annotations` are on, which takes foxglove_msgs; not on PyPI."""

WITHOUT_NAMESPACE = ("/clock", "/diagnostics", "/parameter_events", "/rosout", "/statistics")

_QUICK = {"warmup_runs": 1, "deadline_ms": 500.0, "engine_cache": "none"}
_PROCESS = {"realtime.gc_freeze": False, "realtime.mallopt": False}
_CAMERA = {"source": "synthetic:64x64", "rate": 50.0}
_DETECTOR = {"model": "null:0.1", **_QUICK}
_SEGMENTER = {"model": "null:0.1,segmentation", "confidence_image": True, **_QUICK}
_CLASSIFIER = {"model": "null:0.1,classification", **_QUICK}
_COMPRESSED = {"image_transport": "compressed"}

Make = Callable[[Any, Path], Any]
"""Makes a node in a context; the folder is for its files."""


def _alone(kind: Any, *values: dict[str, Any]) -> Make:
    merged = {key: value for part in values for key, value in part.items()}
    given = [Parameter(key, value=value) for key, value in merged.items()]
    return lambda context, folder: kind(parameter_overrides=given, context=context)


def _detector_of(make_model: Callable[[Path], str]) -> Make:
    """Make a detector whose model gives more than boxes: it has topics for that."""

    def make(context: Any, folder: Path) -> Any:
        values = {"model": make_model(folder), "variants": ["full@onnxruntime-fp32"]}
        return _alone(DetectorNode, _DETECTOR, _PROCESS, values)(context, folder)

    return make


def _composed(
    cameras: list[str], transport: dict[str, Any], make_model: Callable[[Path], str] | None = None
) -> Make:
    def make(context: Any, folder: Path) -> Any:
        given = overrides
        if make_model is not None:
            values = {"model": make_model(folder), "variants": ["full@onnxruntime-fp32"]}
            given = {**overrides, "detector": {**overrides["detector"], **values}}
        return PerceptionNode(overrides=given, context=context)

    overrides: dict[str, dict[str, Any]] = {
        "perception": {**_PROCESS, "cameras": cameras},
        **{camera: _CAMERA for camera in cameras if camera},
        "detector": {**_DETECTOR, **transport},
        "segmenter": {**_SEGMENTER, **transport},
        "coordinator": {"policy": "neuos_balanced"},
    }
    return make


def _coordinator(context: Any, folder: Path) -> Any:
    """Make a coordinator with a table for each task: it makes clients only for those."""
    tables = write_tables(folder, make_table("detector"), make_table("segmenter"))
    values = {"tasks": ["detector", "segmenter"], "tables": [tables]}
    return _alone(CoordinatorNode, values)(context, folder)


ENCLAVES: dict[str, dict[str, Sequence[Make]]] = {
    "composed": {
        "/perception": (
            _composed(["camera"], {}),
            _composed([""], {}),
            _composed([""], _COMPRESSED),
            _composed(["camera"], {}, make_seg),
            _composed(["camera"], {}, make_pose),
        )
    },
    "separate": {
        "/camera": (_alone(CameraNode, _CAMERA, _PROCESS),),
        "/detector": (
            _alone(DetectorNode, _DETECTOR, _PROCESS),
            _alone(DetectorNode, _DETECTOR, _PROCESS, _COMPRESSED),
            _detector_of(make_seg),
            _detector_of(make_pose),
        ),
        "/segmenter": (
            _alone(SegmenterNode, _SEGMENTER, _PROCESS),
            _alone(SegmenterNode, _SEGMENTER, _PROCESS, _COMPRESSED),
        ),
        "/classifier": (
            _alone(ClassifierNode, _CLASSIFIER, _PROCESS),
            _alone(ClassifierNode, _CLASSIFIER, _PROCESS, _COMPRESSED),
        ),
        "/coordinator": (_coordinator,),
    },
}
"""Configurations that an enclave must allow, by the name of the policy and the enclave."""


def collect(name: str) -> Policy:
    """Collect the rules of a policy from nodes that are started for it."""
    policy: Policy = {}
    for enclave, cases in ENCLAVES[name].items():
        nodes = policy.setdefault(enclave, {})
        for make in cases:
            for node, rules in _run(make):
                nodes.setdefault(node, set(ALWAYS)).update(rules)
            gc.collect()  # a node stays on the graph while anything refers to it
    return policy


def _run(make: Make) -> list[tuple[tuple[str, str], set[Rule]]]:
    """Take nodes through their lifecycle; return their rules in every state."""
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Graph(lambda context: make(context, Path(folder)))) as graph,
        _observe() as observer,
    ):
        for state, transition in STATES:
            if transition:
                getattr(graph.node, transition)()
            if graph.node.state_name != state:
                raise RuntimeError(f"{graph.node.get_name()} is not {state}: {graph.node.fault}")
            for node in graph.nodes:
                key = (node.get_namespace(), node.get_name())
                optional = WITH_FOXGLOVE if isinstance(node, DetectorNode) else set()
                found.append((key, find_rules(observer, node) | optional))
    return found


@contextlib.contextmanager
def _observe() -> Iterator[Any]:
    """Yield a node of another participant."""
    context = rclpy.Context()
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("_observer", context=context, start_parameter_services=False)
    try:
        yield node
    finally:
        node.destroy_node()
        context.try_shutdown()


def find_rules(observer: Any, node: Any) -> set[Rule]:
    """Find what a node needs, once the observer sees all that the node has created."""
    name, namespace = node.get_name(), node.get_namespace()
    limit_s = time.monotonic() + TIMEOUT_S
    while True:
        created = {end.topic_name for end in (*node.publishers, *node.subscriptions)}
        created |= {end.service_name for end in (*node.services, *node.clients)}
        seen: set[Rule] = set()
        with contextlib.suppress(rclpy.node.NodeNameNonExistentError):
            for (element, attribute), query in QUERIES.items():
                found = getattr(observer, query)(name, namespace)
                seen |= {(element, attribute, topic) for topic, _ in found}
        missing = created - {topic for _, _, topic in seen}
        if not missing:
            return {
                (element, attribute, shorten(topic, name, namespace))
                for element, attribute, topic in seen
            }
        if time.monotonic() > limit_s:
            raise TimeoutError(f"{name}: not seen on the graph: {', '.join(sorted(missing))}")
        time.sleep(0.02)  # discovery has no event to wait for


def shorten(topic: str, name: str, namespace: str) -> str:
    """Write a topic relative to its node or namespace: both can then be changed in the file."""
    space = namespace.rstrip("/")
    own = f"{space}/{name}/"
    if topic.startswith(own):
        rest = f"~/{topic.removeprefix(own)}"
        return f"{ON_DEMAND}*" if rest.startswith(ON_DEMAND) else rest
    if topic in WITHOUT_NAMESPACE or not topic.startswith(f"{space}/"):
        return topic
    return topic.removeprefix(f"{space}/")


def render(policy: Policy) -> str:
    """Format a policy as ``ros2 security create_permission`` reads it."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        "<!-- Made by tools/security_policies.py. For other names of nodes or another namespace",
        "     change ns, node and path; see docs/security.md. -->",
        '<policy version="0.2.0">',
        "  <enclaves>",
    ]
    for enclave, nodes in policy.items():
        lines += [f'    <enclave path="{escape(enclave)}">', "      <profiles>"]
        for (namespace, name), rules in sorted(nodes.items()):
            lines.append(f'        <profile ns="{namespace}" node="{name}">')
            for element, attribute in QUERIES:
                names = sorted(n for e, a, n in rules if (e, a) == (element, attribute))
                if names:
                    lines.append(f'          <{element}s {attribute}="ALLOW">')
                    lines += [f"            <{element}>{escape(n)}</{element}>" for n in names]
                    lines.append(f"          </{element}s>")
            lines.append("        </profile>")
        lines += ["      </profiles>", "    </enclave>"]
    return "\n".join([*lines, "  </enclaves>", "</policy>", ""])


def policy_file(name: str) -> Path:
    """Return the file of a policy."""
    return FOLDER / f"{name}.policy.xml"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare all policies."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the files")
    options = parser.parse_args(arguments)
    stale = False
    for name in ENCLAVES:
        file, text = policy_file(name), render(collect(name))
        if options.write:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
            continue
        old = file.read_text(encoding="utf-8") if file.is_file() else ""
        difference = difflib.unified_diff(
            old.splitlines(), text.splitlines(), str(file), "the nodes", lineterm=""
        )
        for line in difference:
            stale = True
            print(line)
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
